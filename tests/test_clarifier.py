"""The clarifier: asks about the scope of a deep task before it is planned (seed S0)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from autogen_agentchat.messages import BaseChatMessage, HandoffMessage, TextMessage, UserInputRequestedEvent
from autogen_core.models import ModelFamily, ModelInfo
from autogen_ext.models.replay import ReplayChatCompletionClient
from conversation import cancelled_while, carried, say

from upcall.agents import Clarifier
from upcall.agents.clarifier import SKIP_WORDS
from upcall.answers import AnswerValue, match_answers
from upcall.errors import ModelAuthenticationError, ModelError, ModelNotFound, ModelUnavailable
from upcall.handoffs import answering, questions_in
from upcall.prompts import ToolInfo
from upcall.prompts.contexts import Document
from upcall.questions import Answer, Outcome, Question
from upcall.testing import Call, Fail, Hang, Reply, ScriptedModelClient

TASK = TextMessage(source="user", content="Compare renewable energy in the G7")
CLEAR = '{"needs_clarification": false, "clarification_question": null, "options": [], "reason": null}'


def asks(question: str, *options: str) -> str:
    return json.dumps({"needs_clarification": True, "clarification_question": question, "options": options})


REGION = asks("Which countries?", "Germany", "Japan", "All")


async def turn(agent: Clarifier, *messages: BaseChatMessage) -> HandoffMessage:
    """The hand-off that ends the agent's turn."""
    message = (await say(agent, *messages)).message
    assert isinstance(message, HandoffMessage)
    return message


def reply_to(asked: HandoffMessage, value: AnswerValue) -> HandoffMessage:
    """The human's answer to the one question in `asked`."""
    questions = questions_in(asked)
    return answering(match_answers(value, questions), target=asked.source, questions=questions)


# -- the question -----------------------------------------------------------------------------------------------------


async def test_a_clear_task_is_handed_on_without_a_question() -> None:
    """S0-12."""
    with ScriptedModelClient([CLEAR]) as client:
        message = await turn(Clarifier(client), TASK)
    assert (message.target, message.content) == ("planner", "Nothing needs to be clarified.")


async def test_a_question_goes_to_the_user_with_its_options_reason_and_path() -> None:
    """S0-02, S0-10."""
    said = {"needsClarification": True, "clarificationQuestion": "Which?", "options": ["A", "B"], "reason": "It varies"}
    with ScriptedModelClient([json.dumps(said)]) as client:
        message = await turn(Clarifier(client), TASK)
    (question,) = questions_in(message)
    assert message.target == "user"
    assert (question.question, question.context, question.path) == ("Which?", "It varies", ("clarifier",))
    assert [option.label for option in question.options] == ["A", "B"]
    assert question.allow_free_text


async def test_a_question_is_told_as_an_event_with_its_id() -> None:
    """S4-19."""
    agent = Clarifier(ScriptedModelClient([REGION]))
    rest = await say(agent, TASK)
    told = [event.request_id for event in rest.events if isinstance(event, UserInputRequestedEvent)]
    assert told == [question.id for question in rest.questions]


async def test_the_model_is_shown_documents_tools_and_how_many_questions_are_left() -> None:
    """S0-21, S0-30, S0-50, S0-51."""
    documents, tools = [Document("g7.md", "Energy by country")], [ToolInfo("search_documents", "Finds lines")]
    with ScriptedModelClient([CLEAR]) as client:
        await turn(Clarifier(client, max_turns=2, documents=documents, tools=tools), TASK)
    system = client.requests[0].system
    assert "- g7.md: Energy by country" in system
    assert "search_documents" in system
    assert "You may ask 2 more questions" in system


# -- the dialog -------------------------------------------------------------------------------------------------------


async def test_the_dialog_of_the_seed() -> None:
    """S0-56: two questions, then the task goes to the planner with both answers; each turn by a new object."""
    with ScriptedModelClient([REGION, asks("GDP or jobs?"), CLEAR]) as client:
        agent = Clarifier(client)
        first = await turn(agent, TASK)
        agent = await carried(agent, Clarifier(client))
        second = await turn(agent, reply_to(first, "Focus on Germany and Japan."))
        agent = await carried(agent, Clarifier(client))
        done = await turn(agent, reply_to(second, "Both"))
    assert done.target == "planner"
    assert "Which countries?\nAnswer: Focus on Germany and Japan.\nQuestion: GDP or jobs?\nAnswer: Both" in done.content
    assert "Which countries? - Focus on Germany and Japan." in client.requests[1].system


async def test_what_another_agent_asked_before_is_not_asked_again() -> None:
    """X11: a shallow task that escalates may have been asked about already."""
    asked = Question(question="Which framework?", path=("coder",))
    answer = answering([Answer(question_id=asked.id, text="Express")], target="coder", questions=[asked])
    with ScriptedModelClient([CLEAR]) as client:
        await turn(Clarifier(client), TASK, answer)
    assert "Which framework? - Express" in client.requests[0].system


@pytest.mark.parametrize("max_turns", [0, 1, 2, 3])
async def test_after_max_turns_questions_the_task_goes_on(max_turns: int) -> None:
    """S0-11, X4: enforced in code, whatever the model says."""
    with ScriptedModelClient([asks(f"Question {number}?") for number in range(max_turns)]) as client:
        agent = Clarifier(client, max_turns=max_turns)
        message = await turn(agent, TASK)
        for _ in range(max_turns):
            assert message.target == "user"
            message = await turn(agent, reply_to(message, "yes"))
    assert message.target == "planner"


@pytest.mark.parametrize("word", sorted(SKIP_WORDS | {"SKIP", " Done ", "No"}))
async def test_a_skip_word_ends_the_clarification_without_another_call(word: str) -> None:
    """S0-61, X6."""
    with ScriptedModelClient([REGION]) as client:
        agent = Clarifier(client)
        message = await turn(agent, reply_to(await turn(agent, TASK), word))
    assert message.target == "planner"


@pytest.mark.parametrize("outcome", [Outcome.SKIPPED, Outcome.DECLINED])
async def test_a_question_that_is_skipped_or_declined_ends_the_clarification(outcome: Outcome) -> None:
    """S0-61: a blank reply on a terminal is a skip."""
    with ScriptedModelClient([REGION]) as client:
        agent = Clarifier(client)
        asked = await turn(agent, TASK)
        given = Answer(question_id=questions_in(asked)[0].id, outcome=outcome)
        message = await turn(agent, reply_to(asked, given))
    assert message.target == "planner"
    assert "Answer: \n" not in f"{message.content}\n"


@pytest.mark.parametrize("word", ["approve", "yes", "ok", "no idea, you choose", "stop", "reject"])
async def test_other_words_are_answers(word: str) -> None:
    """X6: approval and rejection words mean nothing here."""
    with ScriptedModelClient([REGION, CLEAR]) as client:
        agent = Clarifier(client)
        message = await turn(agent, reply_to(await turn(agent, TASK), word))
    assert f"Answer: {word}" in message.content


@pytest.mark.parametrize("chosen", ["No", "2", "no"])
async def test_an_option_that_is_a_skip_word_is_an_answer(chosen: str) -> None:
    with ScriptedModelClient([asks("Include transport?", "Yes", "No"), asks("Until when?"), CLEAR]) as client:
        agent = Clarifier(client)
        second = await turn(agent, reply_to(await turn(agent, TASK), chosen))
        await turn(agent, reply_to(second, "2030"))
    assert "Include transport? - No" in client.requests[1].system


async def test_words_that_are_no_answer_leave_the_question_open() -> None:
    with ScriptedModelClient([REGION]) as client:
        agent = Clarifier(client)
        asked = await turn(agent, TASK)
        again = await turn(agent, TextMessage(source="lead", content="Hurry up"))
    assert questions_in(again) == questions_in(asked)
    assert agent.waiting_for() == {questions_in(asked)[0].id}


async def test_the_text_of_a_stock_user_proxy_answers_the_question() -> None:
    with ScriptedModelClient([REGION, CLEAR]) as client:
        agent = Clarifier(client)
        await turn(agent, TASK)
        message = await turn(agent, HandoffMessage(source="user", target="clarifier", content="japan"))
    assert message.content == "Clarified:\nQuestion: Which countries?\nAnswer: Japan"
    assert "Which countries? - Japan" in client.requests[1].system


async def test_an_empty_text_of_a_stock_user_proxy_is_asked_for_again() -> None:
    with ScriptedModelClient([REGION]) as client:
        agent = Clarifier(client)
        await turn(agent, TASK)
        message = await turn(agent, HandoffMessage(source="user", target="clarifier", content=" "))
    assert message.target == "user"
    assert "is empty" in message.content


async def test_a_second_task_starts_with_an_empty_dialog() -> None:
    with ScriptedModelClient([REGION, CLEAR]) as client:
        agent = Clarifier(client, max_turns=1)
        await turn(agent, reply_to(await turn(agent, TASK), "skip"))
        result = TextMessage(source="lead", content="Done.")
        await turn(agent, result, TextMessage(source="user", content="Now Japan alone"))
    assert client.requests[1].messages[-1]["content"] == "Now Japan alone"
    assert "Which countries?" not in client.requests[1].system


# -- what models reply ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [REGION, f"```json\n{REGION}\n```", f"I would ask: {REGION}"],
    ids=["whole", "fenced", "in prose"],
)
async def test_a_reply_is_found_in_one_call(reply: str) -> None:
    """S0-63."""
    with ScriptedModelClient([reply]) as client:
        message = await turn(Clarifier(client), TASK)
    assert [question.question for question in questions_in(message)] == ["Which countries?"]


BROKEN: list[Any] = [
    pytest.param("Which countries do you mean?", id="prose"),
    pytest.param('{"needs_clarification": true}', id="no question"),
    pytest.param('{"needs_clarification": "perhaps"}', id="wrong type"),
    pytest.param('{"needs_clarification": tru', id="cut"),
    pytest.param("", id="empty"),
    pytest.param(Call("ask_user", {"question": "Which countries?"}), id="tool call"),
]


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_reply_that_cannot_be_read_is_repaired_once(broken: Reply) -> None:
    with ScriptedModelClient([broken, CLEAR]) as client:
        message = await turn(Clarifier(client), TASK)
    assert message.target == "planner"


@pytest.mark.parametrize("broken", BROKEN)
async def test_what_cannot_be_read_after_one_repair_asks_about_the_topic(broken: Reply) -> None:
    """S0-62."""
    with ScriptedModelClient([broken, broken]) as client:
        message = await turn(Clarifier(client), TASK)
    (question,) = questions_in(message)
    assert question.question == 'What matters most to you in "Compare renewable energy in the G7"?'


async def test_the_fallback_asks_only_once() -> None:
    """S0-62: with that answered, the task goes on as it is."""
    with ScriptedModelClient(["?", "?", "?", "?"]) as client:
        agent = Clarifier(client)
        message = await turn(agent, reply_to(await turn(agent, TASK), "Jobs"))
    assert message.target == "planner"
    assert "Answer: Jobs" in message.content


async def test_the_question_about_a_long_task_is_short() -> None:
    with ScriptedModelClient(["?", "?"]) as client:
        message = await turn(Clarifier(client), TextMessage(source="user", content="Compare " * 5_000))
    assert len(questions_in(message)[0].question) < 300


@pytest.mark.parametrize(
    "options",
    [["A", "a", " A "], ["x" * 5_000, "y"], [str(number) for number in range(200)], ["", " ", "\x1b[2J"]],
    ids=["the same", "too long", "too many", "empty"],
)
async def test_a_question_with_odd_options_can_still_be_put(options: list[str]) -> None:
    with ScriptedModelClient([asks("Which?", *options)]) as client:
        message = await turn(Clarifier(client), TASK)
    assert [question.question for question in questions_in(message)] == ["Which?"]


# -- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "kind"), [(Fail(401), ModelAuthenticationError), (Fail(404), ModelNotFound), (Fail(500), ModelError)]
)
async def test_after_a_failure_a_new_object_goes_on_from_the_state(failure: Fail, kind: type[ModelError]) -> None:
    with ScriptedModelClient([REGION, failure, CLEAR]) as client:
        agent = Clarifier(client)
        asked = await turn(agent, TASK)
        with pytest.raises(kind, match=r"^Agent 'clarifier': [^\n]*\Z"):
            await turn(agent, reply_to(asked, "Japan"))
        message = await turn(await carried(agent, Clarifier(client)))
    assert message.content == "Clarified:\nQuestion: Which countries?\nAnswer: Japan"


async def test_a_repair_that_fails_is_made_again_but_not_the_call_before_it() -> None:
    with ScriptedModelClient(["?", Fail(503), CLEAR]) as client:
        agent = Clarifier(client)
        with pytest.raises(ModelUnavailable):
            await turn(agent, TASK)
        assert (await turn(await carried(agent, Clarifier(client)))).target == "planner"


async def test_a_cancelled_call_ends_at_once_and_can_be_made_again() -> None:
    with ScriptedModelClient([Hang(), CLEAR]) as client:
        agent = Clarifier(client)
        await cancelled_while(agent, lambda: len(client.requests) == 1, "token", TASK.content)
        assert (await turn(await carried(agent, Clarifier(client)))).target == "planner"


async def test_a_task_that_comes_again_after_a_failure_is_taken_once() -> None:
    with ScriptedModelClient([Fail(500), CLEAR]) as client:
        agent = Clarifier(client)
        with pytest.raises(ModelUnavailable):
            await turn(agent, TASK)
        await turn(agent, TASK, TASK)
    assert client.requests[1].messages[1:] == [{"role": "user", "content": TASK.content}]


async def test_the_same_answer_twice_is_taken_once() -> None:
    with ScriptedModelClient([REGION, CLEAR]) as client:
        agent = Clarifier(client)
        answer = reply_to(await turn(agent, TASK), "Japan")
        await turn(agent, answer, answer)
    assert client.requests[1].system.count("Which countries? - Japan") == 1


async def test_an_answer_that_comes_again_does_not_answer_the_next_question() -> None:
    with ScriptedModelClient([REGION, asks("GDP or jobs?")]) as client:
        agent = Clarifier(client)
        answer = reply_to(await turn(agent, TASK), "Japan")
        second = await turn(agent, answer)
        assert questions_in(await turn(agent, answer)) == questions_in(second)


# -- component --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("structured", "json_object", "promise"),
    [(True, True, "ClarificationResponse"), (False, True, True), (False, False, None)],
)
async def test_the_strongest_promise_of_json_is_asked_for(structured: bool, json_object: bool, promise: object) -> None:
    info = ModelInfo(
        vision=False,
        function_calling=True,
        json_output=json_object,
        structured_output=structured,
        family=ModelFamily.UNKNOWN,
    )
    client = ReplayChatCompletionClient([CLEAR], model_info=info)
    await turn(Clarifier(client), TASK)
    asked = client.create_calls[0]["json_output"]
    assert (asked.__name__ if isinstance(asked, type) else asked) == promise


async def test_a_dumped_clarifier_loads_and_works() -> None:
    made = Clarifier(
        ReplayChatCompletionClient([REGION]),
        max_turns=1,
        documents=[Document("a.md", "A")],
        tools=[ToolInfo("a", "b")],
        target="boss",
        user_proxy="alice",
    )
    loaded = Clarifier.load_component(json.loads(made.dump_component().model_dump_json()))
    assert loaded.dump_component() == made.dump_component()
    assert (await turn(loaded, TASK)).target == "alice"
