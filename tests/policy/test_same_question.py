"""Whether two questions mean the same: strict, so that the human is asked once more where it errs."""

from __future__ import annotations

from typing import Any

import pytest

from upcall import Question
from upcall.policy.facts import has_answer
from upcall.policy.same_question import is_same_question
from upcall.runs.config import Fact

SAME = [
    ("Which framework should I use?", "What framework do you want?"),
    ("Which framework should I use?", "which framework should we use"),
    ("Which framework should I use?", "Which framework would you like me to use?"),
    ("Which framework should I use?", "Please choose a framework."),
    ("Which framework should I use?", "What is your preferred framework?"),
    ("Which framework should I use?", "Which framework is to be used?"),
    ("Which framework should I use?", "Could you please tell me which framework you prefer?"),
    ("Which framework should I use?", "I need to know: which framework do you want?"),
    ("Which framework?", "WHICH  FRAMEWORKS ?!"),
    ("What's the database?", "What is the database?"),
    ("Which database should I use for the backend?", "For the backend, which database should I use?"),
    ("Which classes should be tested?", "Which class should be tested?"),
    ("Which caches do you want?", "Which cache do you want?"),
    ("Which libraries should I use?", "Which library do you want?"),
    ("Should I delete the old logs?", "Do you want me to delete the old logs?"),
    ("Should I delete the old logs?", "Shall we delete the old log?"),
    ("Should I use a framework?", "Do you want a framework?"),
    ("Should I not delete X?", "Should I not delete the X?"),
    ("Which front-end framework?", "Which frontend framework?"),
    ("How many replicas of 3 servers?", "How many replicas for 3 servers?"),
    ("Don't you want tests?", "Don\u2019t you want tests?"),
    ("应该用哪个框架？", "应该用哪个框架?"),
    ("Which port, 80 or 8080?", "What port: 80 or 8080?"),
]

NOT_THE_SAME = [
    ("Which framework should I use?", "Which testing framework should I use?"),
    ("Which framework for the frontend?", "Which framework for the backend?"),
    ("Should I delete X?", "Should I not delete X?"),
    ("Should I delete X?", "Shouldn't I delete X?"),
    ("Which framework should I use?", "Which framework should I not use?"),
    ("Which framework should I use?", "Should I use a framework?"),
    ("Which framework should I use?", "Can I use a framework?"),
    ("Which framework should I use?", "Which framework do you use?"),
    ("Should I delete X?", "Can I delete X?"),
    ("Should I delete X?", "Did you delete X?"),
    ("Should I delete X?", "Delete X?"),
    ("How should I deploy?", "Where should I deploy?"),
    ("How should I deploy?", "When should I deploy?"),
    ("How many users?", "How much users?"),
    ("Should I move A to B?", "Should I move B to A?"),
    ("Should I replace Redis with Kafka?", "Should I replace Kafka with Redis?"),
    ("Which Python, 3.11 or 3.12?", "Which Python, 3.11 or 3.13?"),
    ("Should I start 2 workers?", "Should I start 3 workers?"),
    ("Should I start workers?", "Should I start 3 workers?"),
    ("Should I pay $5?", "Should I pay €5?"),
    ("Should I pay 5?", "Should I pay -5?"),
    ("Is x > 5?", "Is x < 5?"),
    ("Should I use C++?", "Should I use C#?"),
    ("Should I use Java?", "Should I use JavaScript?"),
    ("Should I delete a.txt?", "Should I delete b.txt?"),
    ("Should I delete /etc/a?", "Should I delete etc/a?"),
    ("Should I read env?", "Should I read .env?"),
    ("Should I use Express and Flask?", "Should I use Express or Flask?"),
    ("Should I push with --force?", "Should I push?"),
    ("Which database?", "Which database in production?"),
    ("What is your name?", "What is the name?"),
    ("What now?", "What now?"),
    ("What do you want?", "What do you want?"),
    ("Should I continue?", "Should I continue?"),
    ("Should I go on?", "Should I go on?"),
    ("Is this ok?", "Is this ok?"),
    ("Should it support login?", "Should it support login?"),
    ("Anything else?", "Anything else?"),
    ("Which one?", "Which two?"),
    ("???", "???"),
    ("应该用哪个框架？", "应该用哪个数据库？"),
]


def question(text: str, **fields: Any) -> Question:
    return Question(question=text, **fields)


@pytest.mark.parametrize(("one", "other"), SAME)
def test_these_mean_the_same(one: str, other: str) -> None:
    assert is_same_question(question(one), question(other))
    assert is_same_question(question(other), question(one))


@pytest.mark.parametrize(("one", "other"), NOT_THE_SAME)
def test_these_do_not(one: str, other: str) -> None:
    assert not is_same_question(question(one), question(other))
    assert not is_same_question(question(other), question(one))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"options": ["A", "B"]}, {"options": ["b", "a"]}, True),
        ({"options": ["A", "B"]}, {"options": ["A", "C"]}, False),
        ({"options": ["A", "B"]}, {"options": ["A", "B", "C"]}, False),
        ({"options": ["A", "B"]}, {}, True),
        ({"options": ["A", "B"], "allow_free_text": False}, {}, False),
        ({"options": ["A", "B"], "allow_free_text": False}, {"options": ["A", "B"]}, False),
        ({"options": ["A", "B"], "multi_select": True}, {"options": ["A", "B"]}, False),
        ({"multi_select": True}, {}, True),
        ({"context": "one reason"}, {"context": "another"}, True),
        ({"required": False}, {"default": "A"}, True),
    ],
)
def test_what_may_be_answered_has_to_fit(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    first, second = question("Which framework?", **one), question("Which framework?", **other)
    assert (is_same_question(first, second), is_same_question(second, first)) == (same, same)


@pytest.mark.parametrize(
    ("asked", "answer", "text", "answers"),
    [
        ("framework", "Express", "Which framework should I use?", True),
        ("Framework", "Express", "What frameworks do you want?", True),
        ("Which framework should I use?", "Express", "What framework do you want?", True),
        ("framework", "Express", "Should I use Express as the framework?", False),  # "as" may make it another question.
        ("framework", "Express", "Which framework, Express?", True),
        ("framework", "Express", "Which testing framework?", False),
        ("testing framework", "pytest", "Which framework?", False),
        ("framework", "Express", "Should I replace the framework?", False),
        ("framework", "Express", "Should I use a framework?", False),
        ("framework", "Express", "Which framework should I not use?", False),
        ("framework", "not Flask", "Which framework not?", False),
        ("tests", "yes", "Should I use tests?", True),
        ("tests", "yes", "Which tests?", False),
        ("backend framework", "Express", "Which framework for the backend?", True),
        ("framework", "Express", "What do you want?", False),
    ],
)
def test_a_fact_answers_what_asks_for_just_this(asked: str, answer: str, text: str, answers: bool) -> None:
    assert has_answer(Fact(asked=asked, answer=answer, where="here"), question(text)) is answers


def test_the_words_of_a_questions_own_options_do_not_count_against_a_fact() -> None:
    text = "Which framework: Express, FastAPI or Django?"
    fact = Fact(asked="framework", answer="Express", where="here")
    assert has_answer(fact, question(text, options=["Express", "FastAPI", "Django"]))
    assert not has_answer(fact, question(text))
