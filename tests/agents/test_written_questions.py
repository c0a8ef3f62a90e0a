"""The question for what is missing: its model writes it, rules say whether a person can answer it."""

from __future__ import annotations

import json

import pytest
from conversation import TurnResult, send
from scorers import list_needs, write_question
from test_ask_policies import Judge

from upcall.agents import Clarifier
from upcall.agents.asking.writing import HOW_TO_GIVE_INPUT, UNKNOWN_REASON, clean_options
from upcall.autogen.messages import event_warnings
from upcall.questions.question import Detail, Question
from upcall.testing import Reply, ScriptedModelClient

TASK = "Write a leaflet in German about the pump, in JavaScript colours"
BAD = "I do not know."


async def write(*replies: Reply, task: str = TASK) -> tuple[TurnResult, ScriptedModelClient]:
    """Return what comes of these replies where a policy says that the readers are missing."""
    with ScriptedModelClient(list(replies)) as client:
        agent = Clarifier(client, policies=[Judge(must_ask=True, missing="the readers")])
        return await send(agent, task), client


async def ask(*replies: Reply, task: str = TASK) -> Question:
    """Return the question."""
    (question,) = (await write(*replies, task=task))[0].questions
    return question


# -- what is asked ----------------------------------------------------------------------------------------------------


async def test_written_question_has_options_reason_and_default() -> None:
    written = write_question("Who reads the leaflet?", options=["buyers", "fitters"], default="fitters")
    question = await ask(written)
    assert question.question == "Who reads the leaflet?"
    assert [each.label for each in question.options] == ["buyers", "fitters"]
    assert (question.context, question.default, question.detail) == ("They differ.", "fitters", Detail.PLACE)


async def test_model_that_writes_is_shown_what_is_missing() -> None:
    _, client = await write(write_question())
    assert client.requests[0].messages[-1]["content"] == f"{TASK}\n\n(What only the user can tell: the readers)"


@pytest.mark.parametrize("default", ["somebody", "", "the"])
async def test_default_is_one_of_the_options(default: str) -> None:
    assert (await ask(write_question(default=default))).default is None
    assert (await ask(write_question(default="The North"))).default == "the north"


@pytest.mark.parametrize("reason", ["", "Which area?"])
async def test_question_without_a_reason_gets_one(reason: str) -> None:
    assert (await ask(write_question(reason=reason))).context == UNKNOWN_REASON


@pytest.mark.parametrize("copied", [["Linux", "Windows Server"], ["input", "meaning", "place"]])
async def test_copy_from_a_small_model_prompt_is_dropped(copied: list[str]) -> None:
    reason = "Each country has its own tests and fees."
    question = await ask(write_question("Who reads the leaflet?", reason=reason, options=copied))
    assert (question.context, question.options) == (UNKNOWN_REASON, ())


async def test_what_follows_the_question_is_dropped() -> None:
    assert (await ask(write_question("Which area? You can name several."))).question == "Which area?"


async def test_text_can_be_pasted() -> None:
    question = await ask(write_question("What is the leaflet?", detail="input"))
    assert question.context == f"They differ. {HOW_TO_GIVE_INPUT}"


@pytest.mark.parametrize("detail", [Detail.INPUT, Detail.BUDGET])
async def test_text_or_amount_has_neither_options_nor_default(detail: Detail) -> None:
    question = await ask(write_question("How long is the leaflet?", detail=detail, default="the north"))
    assert (question.options, question.default) == ((), None)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (["red", "blue", "Red", "red."], ("red", "blue")),
        (["a", "b", "c", "d", "e"], ("a", "b", "c", "d")),
        (["red", "blue", "other", "Other (please name it)", "something else", "I don't know", "-"], ("red", "blue")),
        (["one page", "another page", "none of these", "two pages"], ("one page", "two pages")),
        (["red", "other"], ()),
        (["red", "blue " * 20], ()),
        (["2030", "2050"], ("2030", "2050")),
    ],
)
def test_options_can_be_chosen_from(written: list[str], kept: tuple[str, ...]) -> None:
    assert clean_options(written, Detail.OTHER) == kept


# -- what is sent back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (write_question("Name the area"), "a question mark"),
        (write_question("Which area? Which town?"), "two things"),
        (write_question("Which area is it for, and who reads it?"), "two things"),
        (write_question("\u7ed9\u54ea\u4e2a\u5730\u533a\uff1f"), "the language of the task"),
        (write_question("Which colours?", options=["JavaScript", "Rust"]), 'the task already says "JavaScript"'),
        (write_question("What does a leaflet about the pump in German colours have?"), "wants to know"),
        (write_question("Write a leaflet in German?"), "wants to know"),
        (write_question("In which country do you want the driving licence?"), "that of an example"),
        (write_question("Which colours?", options=["in German", "in French"]), 'the task already says "in German"'),
        (write_question("Which style for the leaflet?", detail="style", options=[]), "two to four options"),
        (write_question("What is the task asking for?", options=["input", "meaning"]), "any task"),
        (write_question("What is the pump?", detail="other", options=[]), "only names a thing"),
        (write_question("Which style would it be?", detail="other", options=[]), "any task"),
    ],
)
async def test_question_nobody_can_answer_is_written_again(written: str, problem: str) -> None:
    rest, client = await write(written, write_question("Who reads the leaflet?"))
    assert problem in str(client.requests[1].messages[-1]["content"])
    assert [each.question for each in rest.questions] == ["Who reads the leaflet?"]


@pytest.mark.parametrize(
    ("question", "task"),
    [
        ("\u7ed9\u54ea\u4e2a\u5730\u533a\uff1f", "\u7ed9\u6211\u5199\u4e00\u4efd\u4f20\u5355"),
        ("\u7ed9\u54ea\u4e2a\u5730\u533a\uff1f", "def pump(flow): return flow * 2 \u6ce8\u91ca\u8fd9\u6bb5"),
        ("\u3069\u306e\u5730\u57df\u3067\u3059\u304b\uff1f", "\u6cf5\u306e\u8aac\u660e\u66f8"),
        ("Which area?", "42 / 7"),
    ],
)
async def test_question_in_the_scripts_of_its_task_is_asked(question: str, task: str) -> None:
    assert (await ask(write_question(question), task=task)).question == question


async def test_choice_that_a_task_leaves_open_is_asked() -> None:
    written = write_question("Which of both?", options=["company", "river"])
    assert (await ask(written, task="Is it Amazon the company or the river?")).question == "Which of both?"


async def test_open_question_about_the_task_is_asked() -> None:
    written = write_question("\u6c34\u6cf5\u6709\u591a\u957f\uff1f", detail="other", options=[])
    assert (await ask(written, task="\u8bf4\u660e\u6c34\u6cf5\u7684\u7528\u6cd5")).options == ()


# -- what a second try leaves wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [BAD, write_question("Name the area"), write_question("Which area? Which town?")])
async def test_question_in_code_s_words_can_be_answered(bad: str) -> None:
    rest, _ = await write(bad, bad)
    (question,) = rest.questions
    assert question.question == f'Before I begin with "{TASK}": can you tell me the readers?'
    assert question.context == UNKNOWN_REASON
    assert "what seems to be missing was asked for" in event_warnings(rest.message)[0]


async def test_what_the_task_says_twice_over_is_not_asked() -> None:
    stated = write_question("Which colours?", options=["JavaScript", "Rust"])
    rest, _ = await write(stated, stated)
    assert rest.text == "Nothing needs to be clarified."


async def test_general_question_has_a_reason() -> None:
    with ScriptedModelClient([BAD, BAD]) as client:
        (question,) = (await send(Clarifier(client), TASK)).questions
    assert question.context is not None
    assert "If you skip this" in question.context


# -- what a model lists -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conclusion", "reason"),
    [
        ({"clarification_question": "Which area?", "reason": "Laws differ."}, "Laws differ."),
        ({"clarification_question": "Which town?", "reason": "Laws differ."}, "All of the result depends on it"),
        ({}, "All of the result depends on it"),
    ],
)
async def test_listed_question_has_a_reason(conclusion: dict[str, str], reason: str) -> None:
    with ScriptedModelClient([json.dumps({**json.loads(list_needs(area="high")), **conclusion})]) as client:
        (question,) = (await send(Clarifier(client, check_questions=False), TASK)).questions
    assert question.context is not None
    assert question.context.startswith(reason)


async def test_listed_options_are_cleaned_like_written_ones() -> None:
    listed = json.loads(list_needs(area="high"))
    listed["candidates"][0]["options"] = ["the north", "the south", "other"]
    with ScriptedModelClient([json.dumps(listed)]) as client:
        (question,) = (await send(Clarifier(client, check_questions=False), TASK)).questions
    assert [each.label for each in question.options] == ["the north", "the south"]
