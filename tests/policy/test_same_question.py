"""Whether two questions mean the same: strict, so that the human is asked once more where it errs."""

from __future__ import annotations

from typing import Any

import pytest
from tables import rows

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

NOT_THE_SAME = rows("same_question/not_the_same")


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
    rows("same_question/what_may_be_answered_has_to_fit"),
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
def test_fact_answers_what_asks_for_just_this(asked: str, answer: str, text: str, answers: bool) -> None:
    assert has_answer(Fact(asked=asked, answer=answer, where="here"), question(text)) is answers


def test_words_of_own_options_do_not_rule_out_facts() -> None:
    text = "Which framework: Express, FastAPI or Django?"
    fact = Fact(asked="framework", answer="Express", where="here")
    assert has_answer(fact, question(text, options=["Express", "FastAPI", "Django"]))
    assert not has_answer(fact, question(text))
