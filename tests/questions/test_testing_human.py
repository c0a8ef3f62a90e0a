"""The scripted human."""

from __future__ import annotations

import pytest
from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken

from upcall.questions.answer import Answer, Outcome
from upcall.questions.matching import match_answers
from upcall.questions.question import Question
from upcall.testing import OneAfterAnother, ScriptedHuman, ScriptError

FRAMEWORK = Question(id="q1", question="Which framework?")
DATABASE = Question(id="q2", question="Which database?", required=False)
SKIP = Answer(question_id="", outcome=Outcome.SKIPPED)


def test_answers_are_found_by_words_of_the_question() -> None:
    with ScriptedHuman({"Database": "SQLite", "framework": ["Express", "Koa"]}) as human:
        answers = human.answers_to([FRAMEWORK, DATABASE])
    assert answers == {"q1": ["Express", "Koa"], "q2": "SQLite"}
    assert human.asked == [FRAMEWORK, DATABASE]


def test_whole_answer_gets_the_id_of_its_question() -> None:
    with ScriptedHuman({"database": SKIP}) as human:
        (answer,) = match_answers(human.answers_to([DATABASE]), [DATABASE])
    assert (answer.question_id, answer.outcome) == ("q2", Outcome.SKIPPED)


def test_longest_words_win() -> None:
    with ScriptedHuman({"": "no idea", "framework": "Express", "test framework": "pytest"}) as human:
        answers = human.answers_to([Question(id="q3", question="Which test framework?"), DATABASE, FRAMEWORK])
    assert answers == {"q3": "pytest", "q2": "no idea", "q1": "Express"}


def test_answers_come_one_after_another() -> None:
    with ScriptedHuman({"framework": OneAfterAnother(["Express", "Koa"])}) as human:
        texts = [human.answers_to([FRAMEWORK])["q1"] for _ in range(2)]
    assert texts == ["Express", "Koa"]


def test_question_that_nobody_scripted_is_an_error() -> None:
    with pytest.raises(ScriptError, match="no answer scripted for: 'Which database"):
        ScriptedHuman({"framework": "Express"}).answers_to([DATABASE])


def test_question_asked_too_often_is_an_error() -> None:
    human = ScriptedHuman({"framework": "Express"})
    human.answers_to([FRAMEWORK])
    with pytest.raises(ScriptError, match="no answer left for 'framework'"):
        human.answers_to([FRAMEWORK])


def test_answers_that_nobody_asked_for_raise_at_the_end() -> None:
    human = ScriptedHuman({"framework": OneAfterAnother(["Express", "Koa"])})
    with pytest.raises(ScriptError, match="'framework': 2"), human:
        pass


def test_leftover_answers_do_not_hide_a_tests_error() -> None:
    with pytest.raises(ZeroDivisionError), ScriptedHuman({"framework": "Express"}):
        _ = 1 / 0


@pytest.mark.parametrize(
    ("answer", "typed"),
    [
        ("Express", "Express"),
        (["Express", "Koa"], "Express, Koa"),
        (Answer(question_id="", text="my own"), "my own"),
        (Answer(question_id="", selected=("Express", "Koa")), "Express, Koa"),
    ],
)
async def test_answer_is_typed_at_a_prompt(answer: str | list[str] | Answer, typed: str) -> None:
    with ScriptedHuman({"framework": answer}) as human:
        assert await human.input_func(FRAMEWORK.as_text()) == typed
    assert human.prompts == [FRAMEWORK.as_text()]


async def test_autogens_user_proxy_types_for_the_human() -> None:
    with ScriptedHuman({"enter your response": "Express"}) as human:
        user = UserProxyAgent("user", input_func=human.input_func)
        response = await user.on_messages([], CancellationToken())
    assert isinstance(response.chat_message, TextMessage)
    assert response.chat_message.content == "Express"


async def test_prompt_failures_raise_at_the_end_too() -> None:
    human = ScriptedHuman({})
    with pytest.raises(RuntimeError, match="no answer scripted"):
        await UserProxyAgent("user", input_func=human.input_func).on_messages([], CancellationToken())
    with pytest.raises(ScriptError, match="no answer scripted"):
        human.assert_used_up()


async def test_question_cannot_be_skipped_by_typing() -> None:
    with pytest.raises(ScriptError, match="outcome 'skipped' cannot be typed"):
        await ScriptedHuman({"database": SKIP}).input_func(DATABASE.as_text())
