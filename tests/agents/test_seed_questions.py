"""Seeds S1 and S4, item by item: the tool that asks, the pause, what is stored, and how a run continues."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination, TextMessageTermination
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    TextMessage,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    UserInputRequestedEvent,
)
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, Swarm
from conversation import answers, resumed_as, run, send
from openai.types.beta.threads.run import RequiredAction
from places import ROOT

from upcall import HumanProxyAgent, PausableAgent, Run, RunStatus, Settings, Upcall, UserInputRequired
from upcall.agents.tool_loop.ask_user import ASK_USER, HINT
from upcall.agents.tool_loop.turn import Frame
from upcall.autogen.messages import CLARIFICATIONS, answer_message, event_path, event_questions, message_questions
from upcall.errors import AnswerRefused
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.question import MAX_QUESTION_CHARS, Question
from upcall.questions.record import QuestionRecords
from upcall.storage.store import RunStore
from upcall.testing import Call, Calls, Reply, Request, ScriptedModelClient

STORE = "runs.db"
FRAMEWORKS = ["Express", "FastAPI", "Django"]
WHICH: dict[str, Any] = {"question": "Which framework?", "options": FRAMEWORKS}
ASK = Call(ASK_USER, WHICH)
INVALID = Call(ASK_USER, {"question": " "})
DELEGATE = Call("coder", {"task": "Build the login"})
TASK = "Build me a user authentication system"


def look() -> str:
    """Look at the workspace."""
    return "It is empty."


def pick() -> str:
    """Pick the framework."""
    raise UserInputRequired("Which framework?", FRAMEWORKS)


def coder(client: ScriptedModelClient, **options: Any) -> PausableAgent:
    return PausableAgent("coder", client, **{"system_message": "You code.", "tools": [look, pick]} | options)


def scripted(coder: Sequence[Reply], lead: Sequence[Reply] = (DELEGATE, "All done.")) -> ScriptedModelClient:
    """Return what the coder says, and the lead that it is nested in."""
    return ScriptedModelClient({"You code.": list(coder), "You lead.": list(lead)})


def app(client: ScriptedModelClient, settings: Settings | None = None, **options: Any) -> Upcall:
    """Return a new driver on the same file, as another process would make it."""

    def team() -> RoundRobinGroupChat:
        lead = PausableAgent("lead", client, system_message="You lead.", agents=[coder(client)], **options)
        return RoundRobinGroupChat([lead], max_turns=1)

    return Upcall(team=team, store=STORE, settings=settings)


def of(client: ScriptedModelClient, system: str) -> list[Request]:
    return [request for request in client.requests if request.system.startswith(system)]


async def coder_state(run: Run) -> dict[str, Any]:
    """Return what is stored of the nested coder, as plain JSON."""
    stored = await RunStore(STORE).load(run.id)
    state = json.loads(stored.checkpoint.dump())["team_state"]["agent_states"]["lead"]["agent_state"]
    return state["frames"][0]["nested"]  # type: ignore[no-any-return]


# -- S1: the tool and its rule ----------------------------------------------------------------------------------------


async def test_agent_gets_tool_and_rule_after_its_own() -> None:
    """S1-01, S1-02, S1-25, S4-41: the rule is the last that its system message says, and emitted events come first."""
    with ScriptedModelClient([ASK]) as client:
        rest = await send(coder(client), TASK)
    (request,) = client.requests
    assert [tool["name"] for tool in request.body["tools"]] == ["look", "pick", ASK_USER]
    own, rule = request.system.split("\n\n")
    assert own == "You code."
    assert "underspecified" in rule
    assert "risky" in rule
    assert "clarify before you act" in rule
    assert [type(event) for event in rest.events] == [ToolCallRequestEvent, UserInputRequestedEvent]


@pytest.mark.parametrize(
    ("options", "tool", "expected"),
    [
        ({}, True, "clarify before you act"),
        ({"ask_mode": "strict"}, True, "clarify before you act"),
        ({"ask_mode": "soft"}, True, "you may call ask_user"),
        ({"ask_mode": "none"}, True, None),
        ({"ask_user": False}, False, None),
    ],
)
async def test_tool_and_rule_are_configured(options: dict[str, Any], tool: bool, expected: str | None) -> None:
    """S1-29: enabled, append the rule, strict or soft."""
    with ScriptedModelClient(["Built."]) as client:
        made = coder(client, **options)
        await send(made, TASK)
    (request,) = client.requests
    assert (ASK_USER in [each["name"] for each in request.body["tools"]]) is tool
    assert request.system.startswith("You code.")
    assert (expected in request.system) if expected else (request.system == "You code.")


async def test_rule_asks_for_one_lone_call_and_question() -> None:
    """S1-30"""
    with ScriptedModelClient(["Built."]) as client:
        await send(coder(client), TASK)
    assert "exactly once and with no other call in the same reply" in client.requests[0].system
    assert "One focused question at a time" in client.requests[0].system


async def test_question_of_a_mixed_batch_remains_and_never_runs() -> None:
    """S1-03, S1-04: the reply is rewritten; the question's call gets no result but the answer."""
    with ScriptedModelClient([Calls([Call("look"), ASK, Call("look")]), "Built."]) as client:
        agent = coder(client)
        rest = await send(agent, TASK)
        (event,) = rest.events_of(ToolCallRequestEvent)
        assert isinstance(event, ToolCallRequestEvent)
        assert [call.name for call in event.content] == [ASK_USER]
        assert rest.events_of(ToolCallExecutionEvent) == []
        await send(agent, answers(rest, "Express"))
    assert list(client.requests[-1].tool_results.values()) == ["Express"]
    assert client.requests[-1].list_unpaired() == []


@pytest.mark.parametrize("required", [True, False])
async def test_question_required_or_not_ends_the_turn_readably(
    required: bool,
) -> None:
    """S1-05, S1-06, S1-17, S1-18, S1-21"""
    call = Call(ASK_USER, WHICH | {"required": required, "context": "It shapes all files."})
    with ScriptedModelClient([call]) as client:
        rest = await send(coder(client), TASK)
    assert len(client.requests) == 1
    assert isinstance(rest.message, HandoffMessage)
    assert rest.message.target == "user"
    assert rest.text.splitlines() == [
        "coder needs to know: Which framework?",
        "  Reason: It shapes all files.",
        "  1. Express",
        "  2. FastAPI",
        "  3. Django",
        "  Or answer in your own words.",
        *([] if required else ["  This question may be skipped."]),
    ]
    assert rest.questions[0].required is required


async def test_answer_is_a_tool_result_in_the_next_turn() -> None:
    """S1-20, S1-23"""
    with ScriptedModelClient([ASK, "Built."]) as client:
        agent = coder(client)
        asked = await send(agent, TASK)
        done = await send(agent, answers(asked, "Express"))
    (event,) = done.events_of(ToolCallExecutionEvent)
    assert isinstance(event, ToolCallExecutionEvent)
    assert [(each.name, each.content, each.is_error) for each in event.content] == [(ASK_USER, "Express", False)]
    assert done.text == "Built."


def test_why_it_matters_is_shown_where_it_is_stated() -> None:
    """S1-13"""
    text = Question(question="Which framework?", context=" It shapes all files. ", path=("coder",))
    assert text.context == "It shapes all files."
    assert "Reason: It shapes all files." in text.as_text()
    assert "Reason" not in Question(question="Which framework?").as_text()


async def test_agent_that_asks_can_be_used_alone() -> None:
    """S1-26: no team, no driver, no store; its state is JSON."""
    with ScriptedModelClient([ASK, "Built."]) as client:
        first = coder(client)
        paused = await first.run(task=TASK)
        (question,) = message_questions(paused.messages[-1])
        again = await resumed_as(first, coder(client))
        answer = answer_message([Answer(question_id=question.id, text="Express")], target="coder")
        assert (await send(again, answer)).text == "Built."


# -- S1: what an interface gets ---------------------------------------------------------------------------------------


CLARIFICATION = {
    "version": "v1",
    "kind": "clarification",
    "question": "Which framework?",
    "clarification_type": "approach_choice",
    "context": "It shapes all files.",
    "options": FRAMEWORKS,
    "allow_free_text": False,
    "required": True,
}


async def test_event_that_asks_holds_the_question_for_richer_interfaces() -> None:
    """S1-22, S1-27, S1-28, X8: trimmed, empty options dropped, snake_case, camelCase read; from any depth."""
    fields = {
        "question": "  Which framework? ",
        "clarificationType": "approach_choice",
        "context": " It shapes all files. ",
        "options": [" Express", "", *FRAMEWORKS[1:]],
        "allowFreeText": False,
    }
    with scripted([Call(ASK_USER, fields)], [DELEGATE]) as client:
        lead = PausableAgent("lead", client, system_message="You lead.", agents=[coder(client)])
        rest = await send(lead, TASK)
    (event,) = rest.events_of(UserInputRequestedEvent)
    assert json.loads(event.metadata[CLARIFICATIONS]) == [CLARIFICATION]
    assert event_path(event) == ("lead", "coder")
    assert CLARIFICATIONS not in rest.message.metadata  # Each hand-off is stored several times.


def test_question_defaults_are_the_seeds_without_context() -> None:
    """S1-27"""
    assert Question(question="Which?").as_clarification() == {
        "version": "v1",
        "kind": "clarification",
        "question": "Which?",
        "clarification_type": "missing_info",
        "options": [],
        "allow_free_text": True,
        "required": True,
    }


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (INVALID, "question: "),
        (Call(ASK_USER, WHICH | {"options": "Express"}), "options must be a list"),
        (Call(ASK_USER, "{broken"), "not valid JSON"),
    ],
    ids=["empty", "options", "no JSON"],
)
async def test_invalid_call_is_marked_with_its_reason(call: Call, reason: str) -> None:
    """S1-19, S1-27: an error for the model, and never a question for the user."""
    with ScriptedModelClient([call, "Built without."]) as client:
        rest = await send(coder(client), TASK)
    (event,) = rest.events_of(ToolCallExecutionEvent)
    assert isinstance(event, ToolCallExecutionEvent)
    assert [each.is_error for each in event.content] == [True]
    (marked,) = json.loads(event.metadata[CLARIFICATIONS])
    assert reason in marked.pop("reason")
    assert marked == {"version": "v1", "kind": "clarification", "invalid": True}
    assert (rest.text, rest.events_of(UserInputRequestedEvent)) == ("Built without.", [])


async def test_invalid_call_beside_a_question_is_marked_after_resuming() -> None:
    """S1-27: the mark is in the state, as the call's error is."""
    with ScriptedModelClient([Calls([INVALID, ASK]), "Built."]) as client:
        first = coder(client)
        rest = await send(first, TASK)
        done = await send(await resumed_as(first, coder(client)), answers(rest, "Express"))
    (event,) = done.events_of(ToolCallExecutionEvent)
    (marked,) = json.loads(event.metadata[CLARIFICATIONS])
    assert marked["reason"].startswith("question: ")
    assert client.requests[-1].tool_results["call_1_1"].endswith(HINT)


async def test_results_without_an_invalid_question_are_not_marked() -> None:
    with ScriptedModelClient([Call("look"), Call("nothing"), "Built."]) as client:
        rest = await send(coder(client), TASK)
    assert [event.metadata for event in rest.events_of(ToolCallExecutionEvent)] == [{}, {}]


def test_words_around_a_question_in_chinese_are_chinese() -> None:
    """S1-31"""
    asked = Question(
        question="你想用哪个框架，Express 还是 FastAPI？",
        context="它决定所有文件的结构。",
        options=("Express", "FastAPI"),
        multi_select=True,
        required=False,
        default="Express",
        path=("lead", "coder"),
    )
    assert asked.as_text().splitlines() == [
        "coder（代 lead）想知道: 你想用哪个框架，Express 还是 FastAPI？",
        "  原因：它决定所有文件的结构。",
        "  1. Express",
        "  2. FastAPI",
        "  也可以用自己的话回答。",
        "  可以多选，用逗号分隔。",
        "  这个问题可以跳过。",
        "  如果没有人回答：Express",
    ]


@pytest.mark.parametrize(
    "words",
    ["Which framework?", "What does 你好 mean?", "どのフレームワークを使いますか?", "어떤 프레임워크?", "2 + 2?"],
)
def test_words_around_all_other_questions_are_english(words: str) -> None:
    """S1-31"""
    assert Question(question=words, path=("coder",)).as_text() == f"coder needs to know: {words}"


@pytest.mark.parametrize("text", ["Express，Django", "Express、Django", "1，3", "Express, Django"])
async def test_several_options_may_be_separated_as_chinese_does(text: str) -> None:
    call = Call(ASK_USER, WHICH | {"multi_select": True})
    with scripted([call, "Built."]) as client:
        asked = await app(client).start(TASK)
        done = await app(client).answer(asked.id, text)
    assert done.answers[0].selected == ("Express", "Django")


# -- S1: what its middleware does not do, decided ---------------------------------------------------------------------


async def test_question_moves_the_run_to_a_state_that_waits() -> None:
    """S1-07, S1-10, S4-15: only an answer makes it continue, and that in the very turn that asked."""
    with scripted([ASK, "Built."]) as client:
        asked = await app(client).start(TASK)
        later = app(client)
        assert (await later.get(asked.id)).status is RunStatus.AWAITING_CLARIFICATION
        assert [each.id for each in await later.list()] == [asked.id]
        assert len(client.requests) == 2
        done = await later.answer(asked.id, "Express")
    assert (done.status, done.result, len(client.requests)) == (RunStatus.COMPLETED, "All done.", 4)


@pytest.mark.parametrize("text", ["2", "fastapi", "FastAPI"])
async def test_answer_is_read_by_the_question(text: str) -> None:
    """S1-09, S1-32: by number or label; what it does not accept is refused and changes nothing."""
    with scripted([Call(ASK_USER, WHICH | {"allow_free_text": False}), "Built."]) as client:
        asked = await app(client).start(TASK)
        with pytest.raises(AnswerRefused, match="is not an option"):
            await app(client).answer(asked.id, "Rails")
        assert await app(client).get(asked.id) == asked
        done = await app(client).answer(asked.id, text)
    assert of(client, "You code.")[-1].tool_results[asked.questions[0].calls[-1]] == "FastAPI"
    assert done.answers[0].selected == ("FastAPI",)


async def test_human_has_an_interface_of_its_own() -> None:
    """S1-08: a prompt with all of the question, once more where the answer is not accepted."""
    prompts: list[str] = []
    typed = iter(["Rails", "2"])

    def human(prompt: str) -> str:
        prompts.append(prompt)
        return next(typed)

    with ScriptedModelClient([Call(ASK_USER, WHICH | {"allow_free_text": False}), "Built."]) as client:
        stop = TextMessageTermination("coder")
        team = Swarm([coder(client), HumanProxyAgent("user", input_func=human)], termination_condition=stop)
        assert (await run(team, TASK)).text == "Built."
    assert prompts[0].startswith("coder needs to know: Which framework?\n  1. Express\n  2. FastAPI\n  3. Django\n")
    assert "'Rails' is not an option" in prompts[1]


# -- S4: turns --------------------------------------------------------------------------------------------------------


async def test_one_message_turn_is_made_of_many_agent_turns() -> None:
    """S4-01, S4-02: from the task to the result, over the pause; an agent turn is one model call and its tools."""
    with scripted([Call("look"), ASK, Call("look"), "Built."]) as client:
        asked = await app(client).start(TASK)
        assert (asked.result, (await coder_state(asked))["rounds"]) == (None, 2)
        done = await app(client).answer(asked.id, "Express")
    assert (done.id, done.result) == (asked.id, "All done.")
    assert {path: used.model_calls for path, used in done.usage.items()} == {"lead": 2, "lead/coder": 4}


@pytest.mark.parametrize("call", [ASK, Call("pick")], ids=["ask_user", "a tool that raises"])
async def test_pause_is_emitted_stored_and_ends_the_loop(call: Call) -> None:
    """S4-17, S4-18, S4-19, S4-31, S4-32, S4-43, S4-44, S4-47, X12: one id in event, state and run, and the answer
    goes to it."""
    with scripted([call, "Built."]) as client:
        items = [item async for item in app(client).start_stream(TASK)]
        paused = items[-1]
        assert isinstance(paused, Run)
        (event,) = [item for item in items if isinstance(item, UserInputRequestedEvent)]
        (frame,) = map(Frame.model_validate, (await coder_state(paused))["frames"])
        ids = {event.request_id, paused.questions[0].id, frame.questions[0].id}
        assert len(ids) == 1
        assert (paused.status, paused.result, frame.result) == (RunStatus.AWAITING_CLARIFICATION, None, None)
        assert [len(of(client, agent)) for agent in ("You code.", "You lead.")] == [1, 1]
        done = await app(client).answer(paused.id, {event.request_id: "Express"})
    assert done.status is RunStatus.COMPLETED
    assert list(of(client, "You code.")[-1].tool_results.values()) == ["Express"]


async def test_exception_of_a_tool_holds_request_question_and_options() -> None:
    """S4-32, S4-39"""
    raised: list[UserInputRequired] = []

    def choose() -> str:
        """Choose."""
        raised.append(UserInputRequired("Which framework?", FRAMEWORKS))
        raise raised[0]

    with ScriptedModelClient([Call("choose")]) as client:
        rest = await send(coder(client, tools=[choose]), TASK)
    (needed,) = raised
    assert str(needed) == "User input required: Which framework?"
    assert (needed.question, needed.options) == ("Which framework?", tuple(FRAMEWORKS))
    (event,) = rest.events_of(UserInputRequestedEvent)
    assert isinstance(event, UserInputRequestedEvent)
    assert needed.request_id == event.request_id == rest.questions[0].id
    assert UserInputRequired("Which?").request_id != UserInputRequired("Which?").request_id


async def test_question_differs_from_results_by_more_than_words() -> None:
    """S4-21: a text that asks is a result, and a question is none; the parent's frame says which."""
    with scripted(["Which framework? (Express/FastAPI/Django)"]) as client:
        done = await app(client).start(TASK)
    assert (done.status, done.questions) == (RunStatus.COMPLETED, ())
    with scripted([ASK], [DELEGATE]) as client:
        asked = await app(client).start(TASK)
    stored = await RunStore(STORE).load(asked.id)
    (stored_frame,) = (stored.checkpoint.team_state or {})["agent_states"]["lead"]["agent_state"]["frames"]
    frame = Frame.model_validate(stored_frame)
    assert (frame.result, [each.question for each in frame.questions]) == (None, ["Which framework?"])
    assert len(of(client, "You lead.")) == 1


async def test_paused_turn_holds_all_that_resuming_needs() -> None:
    """S4-30: ids of conversation, turn and request, messages, iteration, and what else there is."""
    with scripted([Call("look"), Calls([ASK, Call(ASK_USER, {"question": "Which database?"})])], [DELEGATE]) as client:
        asked = await app(client).start(TASK)
    stored, state = await RunStore(STORE).load(asked.id), await coder_state(asked)
    conversation, turn = stored.run.id, stored.run.questions[0].calls
    assert conversation == asked.id
    assert turn == (stored.run.questions[1].calls[0], state["frames"][0]["call"]["id"])
    assert [each["type"] for each in state["messages"]] == [
        "UserMessage",
        "AssistantMessage",
        "FunctionExecutionResultMessage",
    ]
    assert state["rounds"] == 2
    open_ids = [each.id for frame in map(Frame.model_validate, state["frames"]) for each in frame.questions]
    assert open_ids == [question.id for question in asked.questions]
    assert (state["asked"], state["usage"]["coder"]["model_calls"]) == (2, 2)


async def test_resume_continues_the_paused_iteration_with_options_and_tools() -> None:
    """S4-33, S4-34: the rounds count on, and the request after the answer is the one before it and two messages."""
    with scripted([Call("look"), ASK, Call("look"), "Built."]) as client:
        asked = await app(client).start(TASK)
        done = await app(client).answer(asked.id, "Express")
    _, before, after, _ = of(client, "You code.")
    assert [after.body[name] for name in after.body if name != "messages"] == [
        before.body[name] for name in before.body if name != "messages"
    ]
    assert [each["name"] for each in after.body["tools"]] == ["look", "pick", ASK_USER]
    assert after.messages[: len(before.messages)] == before.messages
    assert [each["role"] for each in after.messages[len(before.messages) :]] == ["assistant", "tool"]
    assert done.usage["lead/coder"].model_calls == 4


async def test_stream_consumer_asks_at_events_and_resumes_by_id() -> None:
    """S4-42: all else streams as usual."""
    shown: list[str] = []
    rendered: list[type[BaseAgentEvent | BaseChatMessage]] = []
    given: dict[str, str] = {}
    with scripted([Call("look"), ASK, Call("look"), "Built."]) as client:
        stream = app(client).start_stream(TASK)
        while True:
            async for update in stream:
                if isinstance(update, UserInputRequestedEvent):
                    (question,) = event_questions(update)
                    shown.append(f"{question.question}\nYour answer: ")
                    given[update.request_id] = "Express"
                elif isinstance(update, Run):
                    at_rest = update
                else:
                    rendered.append(type(update))
            if not at_rest.waiting:
                break
            stream = app(client).answer_stream(at_rest.id, given)
    assert shown == ["Which framework?\nYour answer: "]
    assert (at_rest.result, rendered.count(ToolCallExecutionEvent)) == ("All done.", 4)


@pytest.mark.parametrize("mode", ["strict", "soft"])
async def test_nested_prompt_allows_only_questions_it_cannot_infer(
    mode: Literal["strict", "soft"],
) -> None:
    """S4-40"""
    with scripted(["Built."]) as client:
        nested = coder(client, ask_mode=mode)
        await send(PausableAgent("lead", client, system_message="You lead.", agents=[nested]), TASK)
    (request,) = of(client, "You code.")
    infer = {"strict": "If you can infer the answer", "soft": "you cannot reasonably assume it"}
    assert infer[mode] in request.system
    assert "with the likely options" in request.system
    assert "Never put a question to the user in your text" in request.system
    assert ("The answer comes back as the result of your call." in request.system) is (mode == "strict")


async def test_asking_is_enabled_for_each_agent_by_itself() -> None:
    """S4-41: the lead cannot, the agent nested in it can."""
    with scripted([ASK, "Built."]) as client:
        asked = await app(client, ask_user=False).start(TASK)
        done = await app(client, ask_user=False).answer(asked.id, "Express")
    offered = {each.system.split("\n")[0]: [tool["name"] for tool in each.body["tools"]] for each in client.requests}
    assert offered == {"You lead.": ["coder"], "You code.": ["look", "pick", ASK_USER]}
    assert done.status is RunStatus.COMPLETED


# -- S4: what other systems do ----------------------------------------------------------------------------------------


async def test_waiting_run_reads_as_openais_requires_action() -> None:
    """S4-26: OpenAI's own types read it, and the outputs by call id are the answers."""
    with scripted([Calls([ASK, Call(ASK_USER, {"question": "Which database?"})]), "Built."]) as client:
        asked = await app(client).start(TASK)
        view = asked.as_openai_run()
        assert (view["id"], view["status"]) == (asked.id, "requires_action")
        action = RequiredAction.model_validate(view["required_action"])
        calls = action.submit_tool_outputs.tool_calls
        assert (action.type, [(call.type, call.function.name) for call in calls]) == (
            "submit_tool_outputs",
            [("function", ASK_USER)] * 2,
        )
        texts = [json.loads(call.function.arguments) for call in calls]
        assert [each["question"] for each in texts] == ["Which framework?", "Which database?"]
        assert texts[0]["options"] == FRAMEWORKS
        outputs = [
            {"tool_call_id": call.id, "output": answer} for call, answer in zip(calls, ("2", "SQLite"), strict=True)
        ]
        done = await app(client).answer(asked.id, {each["tool_call_id"]: each["output"] for each in outputs})
    assert list(of(client, "You code.")[-1].tool_results.values()) == ["FastAPI", "SQLite"]
    assert done.as_openai_run() == {"id": asked.id, "status": "completed", "required_action": None}


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        (RunStatus.PLANNING, "in_progress"),
        (RunStatus.FAILED, "failed"),
        (RunStatus.CANCELLED, "cancelled"),
        (RunStatus.EXPIRED, "expired"),
    ],
)
def test_run_that_waits_for_nobody_requires_no_action(status: RunStatus, shown: str) -> None:
    """S4-26: also where a question was asked while the team is at work."""
    view = Run(task=TASK, status=status, records=QuestionRecords.build([Question(question="Which?")])).as_openai_run()
    assert (view["status"], view["required_action"]) == (shown, None)


def should_ask_user(message: BaseChatMessage) -> bool:
    return bool(message_questions(message))


@pytest.mark.parametrize(
    ("replies", "spoke"), [([ASK, "Built."], ["coder", "human_input", "coder"]), (["Built."], ["coder"])]
)
async def test_graph_has_conditional_edges_around_the_human(replies: list[Reply], spoke: list[str]) -> None:
    """S4-27: the edge is taken where there is a question, and only there."""
    with ScriptedModelClient({"You code.": replies, "You test.": ["Tested."]}) as client:
        agent = coder(client, user_proxy="human_input")
        human = HumanProxyAgent("human_input", input_func=lambda prompt: "Express")
        tester = PausableAgent("tester", client, system_message="You test.")
        graph = DiGraphBuilder().add_node(agent).add_node(human).add_node(tester).set_entry_point(agent)
        graph.add_edge(agent, human, condition=should_ask_user)
        graph.add_edge(agent, tester, condition=lambda message: not should_ask_user(message))
        graph.add_edge(human, agent, activation_group="answered")
        team = GraphFlow(graph.get_participants(), graph=graph.build(), termination_condition=MaxMessageTermination(8))
        rest = await run(team, TASK)
    chat = [each.source for each in rest.events if isinstance(each, BaseChatMessage)]
    assert [each for each in chat if each in ("coder", "human_input")] == spoke
    assert "tester" in chat


async def test_autogen_s_own_user_proxy_pauses_for_the_human() -> None:
    """S4-28: the agent waits while it is asked, and continues with what it gets."""
    with ScriptedModelClient([ASK, "Built."]) as client:
        calls_made: list[int] = []

        def typed(prompt: str) -> str:
            calls_made.append(len(client.requests))
            return "Express"

        stop = TextMessageTermination("coder")
        team = Swarm([coder(client), UserProxyAgent("user", input_func=typed)], termination_condition=stop)
        assert (await run(team, TASK)).text == "Built."
    assert (calls_made, len(client.requests)) == ([1], 2)
    assert list(client.requests[-1].tool_results.values()) == ["Express"]


# -- S4: workarounds as policies, and what was left open --------------------------------------------------------------


async def test_answer_may_come_in_another_turn_of_the_conversation() -> None:
    """S4-24: a task of its own, that has the conversation before it."""
    words = "Which framework? (Express/FastAPI/Django)"
    history = [TextMessage(source="user", content=TASK), TextMessage(source="lead", content=words)]
    with scripted([], lead=[words, "Built with Express."]) as client:
        first = await app(client).start(TASK)
        second = await app(client).start("Express", history=history)
    assert (first.result, second.result) == (words, "Built with Express.")
    emitted = [str(each["content"]) for each in client.requests[-1].messages[1:]]
    assert emitted == [TASK, words, "Express"]


async def test_recommendations_of_the_seed_are_settings() -> None:
    """S4-46: documented, defaults, domain knowledge, several turns; each says who answered."""
    readme = (ROOT / "README.md").read_text()
    assert all(setting in readme for setting in ("facts:", "parent_answers:", "unattended:"))
    default = Call(ASK_USER, WHICH | {"default": "Django"})
    with scripted([default, "Built."]) as client:
        assumed = await app(client).start(TASK, unattended=True)
    with scripted([ASK, "Built."]) as client:
        known = await app(client).start(TASK, facts={"framework": "Express"})
    with scripted([ASK, Call(ASK_USER, {"question": "Which database?"}), "Built."]) as client:
        turns = await app(client).start(TASK)
        for output in ("Express", "SQLite"):
            turns = await app(client).answer(turns.id, output)
    assert [run.status for run in (assumed, known, turns)] == [RunStatus.COMPLETED] * 3
    assert [(each.text, each.by, each.outcome) for each in assumed.answers] == [
        ("Django", AnsweredBy.POLICY, Outcome.ASSUMED)
    ]
    assert [(each.text, each.by) for each in known.answers] == [("Express", AnsweredBy.FACTS)]
    assert [(each.text, each.by) for each in turns.answers] == [
        ("Express", AnsweredBy.HUMAN),
        ("SQLite", AnsweredBy.HUMAN),
    ]


async def test_state_copies_are_limited_at_every_level() -> None:
    """S4-49: a question is refused, so that its model can shorten it; what agents know is stored whole."""
    long = Call(ASK_USER, {"question": "x" * (MAX_QUESTION_CHARS + 1)})
    with scripted([long, ASK, "Built."]) as client:
        asked = await app(client).start("y" * 1_000_000)
        (refused,) = of(client, "You code.")[1].tool_results.values()
        assert f"at most {MAX_QUESTION_CHARS}" in refused
        assert len((await RunStore(STORE).load(asked.id)).checkpoint.dump()) > 1_000_000
        done = await app(client).answer(asked.id, "Express")
    assert done.status is RunStatus.COMPLETED


async def test_paused_run_is_in_a_database() -> None:
    """S4-54: all of it in one file that any later process reads."""
    with scripted([ASK, "Built."]) as client:
        asked = await app(client).start(TASK)
        assert await RunStore(STORE).list() == [asked]
        done = await app(client).answer(asked.id, "Express")
    assert await RunStore(STORE).list() == [done]
