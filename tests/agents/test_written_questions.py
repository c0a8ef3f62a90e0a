"""The question for what is missing: its model writes it, rules say whether a person can answer it."""

from __future__ import annotations

import json

import pytest
from ask_replies import list_needs, write_question
from conversation import TurnResult, send
from test_ask_policies import Judge

from upcall.agents import Clarifier
from upcall.agents.asking.writing import (
    HOW_TO_GIVE_INPUT,
    UNKNOWN_REASON,
    clean_options,
    find_error,
    find_fault,
    find_stated,
)
from upcall.autogen.messages import event_warnings
from upcall.prompts.contexts import Document
from upcall.prompts.question_examples import QUESTION_EXAMPLES, QuestionExample
from upcall.questions.question import Detail, Question
from upcall.runs.outputs import WrittenQuestion
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


async def test_default_stays_among_the_options() -> None:
    question = await ask(write_question(options=["a", "b", "c", "d", "e"], default="E."))
    assert ([each.label for each in question.options], question.default) == (["a", "b", "c", "e"], "e")


# -- what is sent back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (write_question("Name the area"), "a question mark"),
        (write_question("Which area? Which town?"), "two things"),
        (write_question("Which area is it for, and who reads it?"), "two things"),
        (write_question("\u7ed9\u54ea\u4e2a\u5730\u533a\uff1f"), "the language of the task"),
        (write_question("Which colours?", options=["JavaScript", "Rust"]), 'the task already says "JavaScript"'),
        (write_question("What does a leaflet about the pump in German colours have?", options=[]), "wants to know"),
        (write_question("Write a leaflet in German?"), "wants to know"),
        (write_question("In which country do you want the driving licence?"), "that of an example"),
        (write_question("Which colours?", options=["in German", "in French"]), 'the task already says "in German"'),
        (write_question("Which style for the leaflet?", detail="style", options=[]), "two to four options"),
        (write_question("What is the task asking for?", options=["input", "meaning"]), "any task"),
        (write_question("What is the pump?", detail="other", options=[]), "only names a thing"),
        (write_question("What's the pump?", detail="other", options=[]), "only names a thing"),
        (write_question("Which style would it be?", detail="other", options=[]), "any task"),
        (write_question("How long is it and how do I pay?"), "two things"),
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
        ("Which area?", "Say \u041e\u0441\u0442\u043e\u0440\u043e\u0436\u043d\u043e"),
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


async def test_choice_in_words_of_the_task_is_asked() -> None:
    written = write_question(
        "Which unit should the temperatures in weather.csv be converted to?", options=["Fahrenheit", "Kelvin"]
    )
    assert len((await ask(written, task="Convert the temperatures in weather.csv to another unit")).options) == 2


@pytest.mark.parametrize(
    ("question", "task"),
    [
        ("When is the party?", "Write an invitation to the party"),
        ("Who is the letter for?", "Write the letter"),
        ("Which car do you have?", "How do I change the oil of my car?"),
        ("How long and how high is the wall?!", "How many bricks does the wall need?"),
    ],
)
async def test_short_open_question_is_asked(question: str, task: str) -> None:
    assert (await ask(write_question(question, detail="other", options=[]), task=task)).question in question


@pytest.mark.parametrize("example", QUESTION_EXAMPLES, ids=lambda each: each.question)
def test_worked_example_breaks_no_rule(example: QuestionExample) -> None:
    """The options in another order: in the same they count as copied."""
    asked = {"detail": example.detail, "question": example.question, "options": example.options[::-1]}
    written = WrittenQuestion.model_validate(asked)
    assert find_error(written) == "it is that of an example; ask about this task"
    assert find_fault(written, example.request, example.request) is None
    assert find_stated(written, example.request) == ""


async def test_name_of_a_document_settles_nothing() -> None:
    with ScriptedModelClient([write_question("Which format?", options=["PDF", "Word", "HTML"])]) as client:
        agent = Clarifier(
            client, policies=[Judge(must_ask=True, missing="the format")], documents=[Document("report.pdf", "")]
        )
        (question,) = (await send(agent, "Convert the report")).questions
    assert [each.label for each in question.options] == ["PDF", "Word", "HTML"]


async def test_name_of_a_document_suits_a_question() -> None:
    with ScriptedModelClient([write_question("Which page of report.pdf?", detail="other", options=[])]) as client:
        agent = Clarifier(
            client, policies=[Judge(must_ask=True, missing="the page")], documents=[Document("report.pdf", "")]
        )
        (question,) = (await send(agent, "Translate it")).questions
    assert question.question == "Which page of report.pdf?"


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


async def test_second_try_may_offer_what_no_task_states() -> None:
    written = write_question("Which unit?", options=["Celsius", "Fahrenheit", "Kelvin"], default="Celsius")
    rest, _ = await write(written, written, task="Convert the Celsius values into the other unit")
    (question,) = rest.questions
    assert ([each.label for each in question.options], question.default) == (["Fahrenheit", "Kelvin"], None)


@pytest.mark.parametrize(
    "written",
    [
        write_question("Which style for the leaflet?", detail="style", options=[]),
        write_question("\u7ed9\u54ea\u4e2a\u5730\u533a\uff1f"),
        write_question("Which style would it be?", detail="other", options=[]),
    ],
)
async def test_second_try_is_asked_if_it_can_be(written: str) -> None:
    rest, _ = await write(written, written)
    assert [each.question for each in rest.questions] == [json.loads(written)["question"]]
    assert event_warnings(rest.message) == []


async def test_question_in_code_s_words_names_no_document() -> None:
    with ScriptedModelClient([BAD, BAD]) as client:
        agent = Clarifier(
            client, policies=[Judge(must_ask=True, missing="the area")], documents=[Document("report.pdf", "")]
        )
        (question,) = (await send(agent, "Translate it")).questions
    assert question.question == 'Before I begin with "Translate it": can you tell me the area?'


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


@pytest.mark.parametrize(
    ("detail", "options"),
    [("budget", ["under 100", "100 to 500"]), ("input", []), ("place", ["under 100", "100 to 500"])],
)
async def test_listed_amounts_can_be_chosen(detail: str, options: list[str]) -> None:
    listed = json.loads(list_needs(area="high"))
    listed["candidates"][0] |= {"detail": detail, "options": ["under 100", "100 to 500"]}
    with ScriptedModelClient([json.dumps(listed)]) as client:
        (question,) = (await send(Clarifier(client, check_questions=False), TASK)).questions
    assert [each.label for each in question.options] == options


async def test_listed_default_stays_among_the_options() -> None:
    listed = json.loads(list_needs(area="high"))
    listed["candidates"][0] |= {"options": ["a", "b", "c", "d", "e"], "assumed": "e"}
    with ScriptedModelClient([json.dumps(listed)]) as client:
        (question,) = (await send(Clarifier(client, check_questions=False), TASK)).questions
    assert ([each.label for each in question.options], question.default) == (["a", "b", "c", "e"], "e")
