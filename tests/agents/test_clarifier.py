"""The clarifier: asks about the scope of a deep task before it is planned (seed S0)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.base import ChatAgent
from autogen_agentchat.conditions import HandoffTermination
from autogen_agentchat.messages import (
    HandoffMessage,
    TextMessage,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    UserInputRequestedEvent,
)
from autogen_agentchat.teams import Swarm
from autogen_core import CancellationToken
from autogen_core.tools import FunctionTool, StaticWorkbench
from autogen_ext.models.replay import ReplayChatCompletionClient
from conversation import Counted, answers, cancelled_while, impatient, nothing_left_behind, resumed_as, run, send, turn
from tables import rows
from worlds import roles_in

from upcall.agents import Clarifier, HumanProxyAgent
from upcall.agents.clarifier import MAX_TOOL_ROUNDS, ClarifierAgentState, ClarifierComponentConfig
from upcall.agents.toolset import Tool
from upcall.autogen.messages import CLARIFIER_LOG, CLASSIFICATION, answer_message, message_questions
from upcall.errors import (
    ModelAuthenticationError,
    ModelError,
    ModelNotFound,
    ModelUnavailable,
    UserInputRequired,
)
from upcall.options import TeamOptions
from upcall.prompts import PROMPTS, Prompts
from upcall.prompts.contexts import Document, JsonReminderContext, SearchFirstContext
from upcall.prompts.examples import EXAMPLES
from upcall.questions.answer import Answer, Outcome
from upcall.questions.matching import AnswerValue, match_answers
from upcall.questions.question import Question
from upcall.teams import TeamResources, root_team
from upcall.testing import Call, Calls, Fail, Reply, Request, ScriptedModelClient

pytestmark = pytest.mark.usefixtures(impatient.__name__)

TASK = TextMessage(source="user", content="Compare renewable energy in the G7")
CLEAR = '{"needs_clarification": false, "clarification_question": null, "options": [], "reason": null}'
REMINDER = {"role": "user", "content": PROMPTS.render(JsonReminderContext())}


def asks(question: str, *options: str) -> str:
    return json.dumps({"needs_clarification": True, "clarification_question": question, "options": options})


REGION = asks("Which countries?", "Germany", "Japan", "All")
SEARCH = Call("search", {"words": "G7 energy"})


def search(words: str) -> str:
    """Search the web."""
    return f"Found: {words}"


async def pick_source() -> str:
    """Let the user choose where to look."""
    raise UserInputRequired("Which source?", ["IEA", "Eurostat"])


def reply_to(asked: HandoffMessage, value: AnswerValue) -> HandoffMessage:
    """Return the human's answer to the one question in `asked`."""
    questions = message_questions(asked)
    return answer_message(match_answers(value, questions), target=asked.source, questions=questions)


async def ask_and_answer(client: ScriptedModelClient, value: AnswerValue, **options: Any) -> HandoffMessage:
    """Return what follows the answer to the first question."""
    agent = Clarifier(client, **options)
    return await turn(agent, reply_to(await turn(agent, TASK), value))


async def state_of(agent: Clarifier) -> ClarifierAgentState:
    state = await agent.save_state()
    return ClarifierAgentState.model_validate({name: each for name, each in state.items() if name != "parts"})


def dialog(request: Request) -> list[tuple[str, str]]:
    """Who said what in a request after the system's text and the worked examples; for a batch of calls, which tools."""
    return [
        (each["role"], each["content"] or ", ".join(call["function"]["name"] for call in each["tool_calls"]))
        for each in request.messages[1 + 2 * len(EXAMPLES) :]
    ]


def offered(request: Request) -> list[str]:
    return [schema["name"] for schema in request.body["tools"]]


def assert_every_server_takes(requests: Sequence[Request]) -> None:
    """No message is empty, and no two of the assistant's are neighbours (S0-65)."""
    for request in requests:
        roles = [each["role"] for each in request.messages]
        assert ("assistant", "assistant") not in pairwise(roles), roles
        assert all(each["content"] or each.get("tool_calls") for each in request.messages)


# -- the question -----------------------------------------------------------------------------------------------------


async def test_clear_task_is_handed_on_without_a_question() -> None:
    """S0-12."""
    with ScriptedModelClient([CLEAR]) as client:
        message = await turn(Clarifier(client), TASK)
    assert (message.target, message.content) == ("planner", "Nothing needs to be clarified.")
    assert message.metadata == {CLARIFIER_LOG: ""}


async def test_clarifier_sends_prompt_conversation_and_tools_first() -> None:
    """S0-07."""
    with ScriptedModelClient([CLEAR]) as client:
        await turn(Clarifier(client, tools=[search]), TASK)
    (request,) = client.requests
    assert request.system.startswith("You are the clarifier of a team of agents.")
    assert dialog(request) == [("user", TASK.content)]
    assert offered(request) == ["search"]


async def test_clarifier_gets_findings_of_a_shallow_agents_handoff() -> None:
    """S0-05: what the classifier says of the task is no finding."""
    classification_data = {CLASSIFICATION: "{}"}
    classified = HandoffMessage(
        source="classifier", target="researcher", content="A shallow task", metadata=classification_data
    )
    again = HandoffMessage(source="classifier", target="clarifier", content="A deep task", metadata=classification_data)
    found = HandoffMessage(source="researcher", target="clarifier", content="Unable to find numbers for Italy.")
    with ScriptedModelClient([REGION, CLEAR]) as client:
        agent = Clarifier(client)
        asked = await turn(agent, TASK, classified, again, found)
        message = await turn(await resumed_as(agent, Clarifier(client)), reply_to(asked, "Japan"))
    text = f"{TASK.content}\nWhat researcher said when it handed this over: Unable to find numbers for Italy."
    assert [dialog(request)[0] for request in client.requests] == [("user", text)] * 2
    assert message.target == "planner"


async def test_handoff_without_any_user_text_is_the_task() -> None:
    with ScriptedModelClient([CLEAR]) as client:
        await turn(Clarifier(client), HandoffMessage(source="boss", target="clarifier", content="Compare energy"))
    assert dialog(client.requests[0]) == [("user", "Compare energy")]


async def test_question_reaches_the_user_with_options_reason_and_path() -> None:
    """S0-02, S0-10."""
    fields = {
        "needsClarification": True,
        "clarificationQuestion": "Which?",
        "options": ["A", "B"],
        "reason": "It varies",
    }
    with ScriptedModelClient([json.dumps(fields)]) as client:
        message = await turn(Clarifier(client), TASK)
    (question,) = message_questions(message)
    assert message.target == "user"
    assert (question.question, question.context, question.path) == ("Which?", "It varies", ("clarifier",))
    assert [option.label for option in question.options] == ["A", "B"]
    assert question.allow_free_text


async def test_prompt_holds_documents_tools_and_dialog_of_others() -> None:
    """S0-21, S0-50, S0-51."""
    asked = Question(question="Which framework?", path=("coder",))
    answer = answer_message([Answer(question_id=asked.id, text="Express")], target="coder", questions=[asked])
    with ScriptedModelClient([CLEAR]) as client:
        agent = Clarifier(client, documents=[Document("g7.md", "Energy by country")], tools=[search])
        await turn(agent, TASK, answer)
    system = client.requests[0].system
    assert "- g7.md: Energy by country" in system
    assert "The agents can find things out themselves with: search.\n- search: Search the web." in system
    assert "Which framework? - Express" in system


async def test_prompt_asks_for_json_of_both_fields() -> None:
    """S0-52."""
    with ScriptedModelClient([CLEAR]) as client:
        await turn(Clarifier(client), TASK)
    schema = json.loads(next(line for line in client.requests[0].system.splitlines() if line.startswith('{"')))
    assert {"needs_clarification", "clarification_question"} <= schema["properties"].keys()


async def test_prompts_of_ones_own_folder_replace_the_shipped_ones(tmp_path: Path) -> None:
    """S0-54: those that are not in it stay."""
    (tmp_path / "research_clarification.j2").write_text("Mine: {{ tool_names | join }}")
    with ScriptedModelClient([SEARCH, CLEAR]) as client:
        await turn(Clarifier(client, tools=[search], prompts=Prompts(tmp_path)), TASK)
    assert client.requests[0].system.startswith("Mine: search\n\n")
    assert client.requests[1].messages[-1] == REMINDER


# -- the dialog -------------------------------------------------------------------------------------------------------


async def test_answer_goes_to_the_model_after_its_question() -> None:
    """S0-10, S0-19."""
    with ScriptedModelClient([REGION, asks("Until when?")]) as client:
        await ask_and_answer(client, "Japan")
    assert [role for role, _ in dialog(client.requests[1])] == ["user", "assistant", "user"]
    assert json.loads(dialog(client.requests[1])[1][1])["clarification_question"] == "Which countries?"
    assert dialog(client.requests[1])[2] == ("user", "Japan")


async def test_iteration_and_log_grow_while_the_prompt_stays() -> None:
    """S0-19, S0-23, S0-24, S0-30."""
    seen: list[tuple[int, int, int]] = []
    with ScriptedModelClient([asks(f"Question {number}?") for number in range(3)]) as client:
        agent = Clarifier(client)
        message = await turn(agent, TASK)
        for number in range(3):
            state = await state_of(agent)
            seen.append((state.iteration, state.remaining_questions, state.clarifier_log.count("Answer: ")))
            assert (len(state.messages), state.max_turns) == (1 + number, 3)
            message = await turn(agent, reply_to(message, f"Answer {number}"))
    assert seen == [(0, 3, 0), (1, 2, 1), (2, 1, 2)]
    (shown,) = {each.system for each in client.requests}  # The same each time, for prompt caches.
    assert "You may ask 3 questions in all" in shown


def test_state_starts_as_documented() -> None:
    """S0-20 to S0-24, S0-30."""
    state = ClarifierAgentState()
    assert (state.data_sources, state.available_documents, state.max_turns) == (None, None, 3)
    assert (state.clarifier_log, state.iteration, state.remaining_questions) == ("", 0, 3)
    assert (state.messages, ClarifierAgentState(max_turns=1, iteration=1).remaining_questions) == ([], 0)


async def test_state_holds_documents_and_data_sources() -> None:
    """S0-20, S0-21: as plain JSON; the model of a new object is shown those of the state."""
    with ScriptedModelClient([CLEAR]) as client:
        agent = Clarifier(client, documents=[Document("g7.md", "Energy")], data_sources=["documents"])
        state = await agent.save_state()
        assert state["available_documents"] == [{"file_name": "g7.md", "summary": "Energy"}]
        assert state["data_sources"] == ["documents"]
        await turn(await resumed_as(agent, Clarifier(client)), TASK)
    assert "- g7.md: Energy" in client.requests[0].system


@pytest.mark.parametrize(("sources", "tools"), [(None, ["search", "pick_source"]), (["search"], ["search"]), ([], [])])
async def test_data_sources_filter_the_tools(sources: list[str] | None, tools: list[str], tmp_path: Path) -> None:
    """S0-20: in the root team."""
    deep = '{"intent": "research", "meta_response": null, "research_depth": "deep"}'
    resources = TeamResources(roles_in(tmp_path, data_sources=sources), tools=[search, pick_source])
    options = TeamOptions(data_sources=sources, check_questions=False)
    replies: dict[str, Sequence[Reply]] = {
        "You are the classifier ": [deep],
        "You are the clarifier ": [REGION, REGION] if tools else [REGION],
    }
    with ScriptedModelClient(replies) as client:
        rest = await run(root_team(lambda agent: client, resources, options), TASK)
    assert [question.path for question in rest.questions] == [("clarifier",)]
    assert [offered(request) for request in client.requests[1:]] == [tools] * len(client.requests[1:])


@pytest.mark.parametrize("reply", ["Japan", ""])
async def test_how_the_human_is_asked_is_given_from_outside(reply: str) -> None:
    """S0-55: the same agent in a team that asks live, through whatever function it is given."""
    prompts: list[str] = []

    async def typed(prompt: str, token: CancellationToken | None) -> str:
        prompts.append(prompt)
        return reply

    with ScriptedModelClient([REGION, CLEAR] if reply else [REGION]) as client:
        members: list[ChatAgent] = [Clarifier(client, user_proxy="alice"), HumanProxyAgent("alice", input_func=typed)]
        rest = await run(Swarm(members, termination_condition=HandoffTermination("planner")), TASK)
    assert len(prompts) == 1
    assert "clarifier needs to know: Which countries?" in prompts[0]
    assert rest.message.metadata[CLARIFIER_LOG].startswith("Question: Which countries?\nAnswer: ")


@pytest.mark.parametrize("max_turns", [0, 1, 2, 3])
async def test_after_max_turns_questions_the_task_continues(max_turns: int) -> None:
    """S0-11, S0-22, X4: enforced in code, whatever the model says."""
    with ScriptedModelClient([asks(f"Question {number}?") for number in range(max_turns)]) as client:
        agent = Clarifier(client, max_turns=max_turns)
        message = await turn(agent, TASK)
        for _ in range(max_turns):
            assert message.target == "user"
            message = await turn(agent, reply_to(message, "yes"))
    assert message.target == "planner"


SKIP_COMMANDS = ["skip", "done", "exit", "quit", "proceed", "continue", "no", "n", ""]


@pytest.mark.parametrize("word", SKIP_COMMANDS)
async def test_skip_command_ends_the_clarification_without_another_call(word: str) -> None:
    """S0-61, X6."""
    with ScriptedModelClient([REGION]) as client:
        agent = Clarifier(client)
        asked = await turn(agent, TASK)
        given = Answer(question_id=message_questions(asked)[0].id, text=word)
        message = await turn(agent, answer_message([given], target=agent.name, questions=message_questions(asked)))
    assert message.target == "planner"
    assert message.metadata[CLARIFIER_LOG].startswith("Question: Which countries?\nAnswer: ")


@pytest.mark.parametrize(
    ("reply", "meant"),
    rows("clarifier/an_answer_is_read_out_of_the_json_around_it"),
)
async def test_answer_is_read_from_the_json_around_it(reply: str, meant: str) -> None:
    """S0-60: as if it had been typed."""
    with ScriptedModelClient([REGION, CLEAR]) as client:
        message = await ask_and_answer(client, reply)
    assert client.requests[1].messages[-1]["content"] == meant
    assert message.metadata[CLARIFIER_LOG] == f"Question: Which countries?\nAnswer: {meant}"


@pytest.mark.parametrize("outcome", [Outcome.SKIPPED, Outcome.DECLINED])
async def test_question_skipped_or_declined_ends_the_clarification(outcome: Outcome) -> None:
    """S0-61: a blank reply on a terminal is a skip."""
    with ScriptedModelClient([REGION]) as client:
        agent = Clarifier(client)
        asked = await turn(agent, TASK)
        given = Answer(question_id=message_questions(asked)[0].id, outcome=outcome)
        message = await turn(agent, reply_to(asked, given))
    assert message.target == "planner"
    assert "Answer: \n" not in f"{message.content}\n"


async def test_words_that_are_no_answer_leave_the_question_open() -> None:
    with ScriptedModelClient([REGION]) as client:
        agent = Clarifier(client)
        asked = await turn(agent, TASK)
        again = await turn(agent, TextMessage(source="lead", content="Hurry up"))
    assert message_questions(again) == message_questions(asked)
    assert agent.waiting_for() == {message_questions(asked)[0].id}


async def test_text_of_stock_user_proxy_answers_the_question() -> None:
    with ScriptedModelClient([REGION, CLEAR]) as client:
        agent = Clarifier(client)
        await turn(agent, TASK)
        message = await turn(agent, HandoffMessage(source="user", target="clarifier", content="japan"))
    assert message.content == "Clarified:\nQuestion: Which countries?\nAnswer: Japan"
    assert client.requests[1].messages[-1]["content"] == "Japan"


async def test_blank_reply_to_a_stock_user_proxy_skips() -> None:
    """S0-61."""
    with ScriptedModelClient([REGION]) as client:
        agent = Clarifier(client)
        await turn(agent, TASK)
        message = await turn(agent, HandoffMessage(source="user", target="clarifier", content=" "))
    assert message.target == "planner"


async def test_second_task_starts_with_an_empty_dialog() -> None:
    with ScriptedModelClient([REGION, CLEAR]) as client:
        agent = Clarifier(client, max_turns=1)
        await turn(agent, reply_to(await turn(agent, TASK), "skip"))
        result = TextMessage(source="lead", content="Done.")
        await turn(agent, result, TextMessage(source="user", content="Now Japan alone"))
    assert dialog(client.requests[1]) == [("user", "Now Japan alone")]
    assert "Which countries?" not in client.requests[1].system


async def test_words_added_to_the_task_reach_the_model() -> None:
    with ScriptedModelClient([REGION, Fail(503), CLEAR]) as client:
        agent = Clarifier(client)
        asked = await turn(agent, TASK)
        with pytest.raises(ModelUnavailable):
            await turn(agent, reply_to(asked, "Japan"))
        await turn(agent, TextMessage(source="user", content="Solar only"))
    assert dialog(client.requests[2])[0] == ("user", f"{TASK.content}\n\nSolar only")


async def test_giant_answer_and_task_are_cut_only_for_models() -> None:
    with ScriptedModelClient([REGION, CLEAR]) as client:
        agent = Clarifier(client, max_context_chars=1_000)
        asked = await turn(agent, TextMessage(source="user", content="Compare " * 5_000))
        message = await turn(agent, reply_to(asked, "Japan " * 5_000))
    task, _, answer = (text for _, text in dialog(client.requests[1]))
    assert len(task) <= 1_000 >= len(answer)
    assert "characters are left out here" in task
    assert "characters are left out here" in answer
    assert message.metadata[CLARIFIER_LOG].count("Japan") == 5_000


# -- tools ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"tools": [search]},
        {"tools": [FunctionTool(search, description="Search the web.")]},
        {"workbench": StaticWorkbench([FunctionTool(search, description="Search the web.")])},
    ],
    ids=["function", "tool", "workbench"],
)
async def test_tool_call_is_followed_by_a_reminder(given: dict[str, Any]) -> None:
    """S0-08, S0-43."""
    with ScriptedModelClient([SEARCH, CLEAR]) as client:
        rest = await send(Clarifier(client, **given), TASK)
    assert dialog(client.requests[1]) == [
        ("user", TASK.content),
        ("assistant", "search"),
        ("tool", "Found: G7 energy"),
        ("user", REMINDER["content"]),
    ]
    assert offered(client.requests[1]) == ["search"]
    assert [len(rest.events_of(kind)) for kind in (ToolCallRequestEvent, ToolCallExecutionEvent)] == [1, 1]


def broken() -> str:
    """Break."""
    raise RuntimeError("no network")


@pytest.mark.parametrize(
    ("call", "emitted"),
    [
        pytest.param(Call("broken"), "Error: no network", id="a tool that fails"),
        pytest.param(Call("serach"), "Error: there is no tool 'serach'. Your tools: search, broken.", id="unknown"),
        pytest.param(Call("search", '{"words": '), "The arguments were not valid JSON", id="broken JSON"),
        pytest.param(Call("search", "[1]"), "The arguments were a JSON list", id="no object"),
        pytest.param(Call("search", {"word": "G7"}), "Field required", id="wrong arguments"),
    ],
)
async def test_failed_call_reaches_the_model_and_spares_its_sibling(call: Call, emitted: str) -> None:
    with ScriptedModelClient([Calls([call, SEARCH]), CLEAR]) as client:
        rest = await send(Clarifier(client, tools=[search, broken]), TASK)
    results = list(client.requests[1].tool_results.values())
    assert emitted in results[0]
    assert results[1] == "Found: G7 energy"
    (done,) = rest.events_of(ToolCallExecutionEvent)
    assert isinstance(done, ToolCallExecutionEvent)
    assert [result.is_error for result in done.content] == [True, False]


async def test_batch_is_not_repeated_after_failures_or_reloading() -> None:
    counted = Counted()
    with ScriptedModelClient([Call("note"), Fail(503), CLEAR]) as client:
        agent = Clarifier(client, tools=[counted.note])
        with pytest.raises(ModelUnavailable):
            await turn(agent, TASK)
        await turn(await resumed_as(agent, Clarifier(client, tools=[counted.note])))
    assert counted.calls == 1
    assert client.requests[2].messages == client.requests[1].messages


@pytest.mark.parametrize("how", ["token", "task"])
async def test_batch_cut_off_keeps_what_was_finished(how: str) -> None:
    counted, begun, let_go = Counted(), asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        """Wait."""
        begun.set()
        await let_go.wait()
        return "waited"

    async with nothing_left_behind():
        with ScriptedModelClient([Calls([Call("note"), Call("wait")]), CLEAR]) as client:
            agent = Clarifier(client, tools=[counted.note, wait])
            await cancelled_while(agent, begun.is_set, how, TASK.content)
            let_go.set()
            message = await turn(await resumed_as(agent, Clarifier(client, tools=[counted.note, wait])))
    assert (counted.calls, message.target) == (1, "planner")
    assert list(client.requests[1].tool_results.values()) == ["note 1", "waited"]


@pytest.mark.parametrize("last", [REGION, CLEAR])
async def test_after_so_many_batches_an_answer_is_demanded(last: str) -> None:
    with ScriptedModelClient([*[SEARCH] * MAX_TOOL_ROUNDS, last]) as client:
        message = await turn(Clarifier(client, tools=[search]), TASK)
    assert [offered(request) for request in client.requests] == [["search"]] * MAX_TOOL_ROUNDS + [[]]
    assert message.target == ("user" if last is REGION else "planner")


async def test_calls_beyond_the_last_batch_are_not_made() -> None:
    counted = Counted()
    with ScriptedModelClient([*[Call("note")] * (MAX_TOOL_ROUNDS + 1), CLEAR]) as client:
        message = await turn(Clarifier(client, tools=[counted.note]), TASK)
    assert (counted.calls, message.target) == (MAX_TOOL_ROUNDS, "planner")


async def test_batches_count_per_task_over_all_its_questions() -> None:
    spent = [SEARCH] * MAX_TOOL_ROUNDS
    with ScriptedModelClient([*spent, REGION, CLEAR, CLEAR]) as client:
        agent = Clarifier(client, tools=[search])
        await turn(agent, reply_to(await turn(agent, TASK), "Japan"))
        await turn(agent, TextMessage(source="lead", content="Done."), TextMessage(source="user", content="And Italy?"))
    assert [offered(request) for request in client.requests[-2:]] == [[], ["search"]]


@pytest.mark.needs("research")
async def test_workbench_on_real_documents_is_searched_and_read(tmp_path: Path) -> None:
    """S0-43: a group of functions."""
    from upcall.research.documents_workbench import DocumentsWorkbench
    from upcall.research.sources.fences import FencedText, parse_fenced

    (tmp_path / "g7.md").write_text("# Energy\nJapan: 22 % renewable\n")
    calls = Calls([Call("search_documents", {"words": "Japan"}), Call("read_document", {"name": "g7.md"})])
    with ScriptedModelClient([calls, CLEAR]) as client:
        await turn(Clarifier(client, workbench=DocumentsWorkbench([tmp_path])), TASK)
    shown = [parse_fenced(result) for result in client.requests[1].tool_results.values()]
    assert shown == [[FencedText("documents", "g7.md", "lines 1-2", "# Energy\nJapan: 22 % renewable")]] * 2


async def test_closed_clarifier_stops_its_workbenches() -> None:
    stopped: list[str] = []

    class Stoppable(StaticWorkbench):
        async def stop(self) -> None:
            stopped.append("workbench")

    with ScriptedModelClient([]) as client:
        await Clarifier(client, workbench=Stoppable([])).close()
    assert stopped == ["workbench"]


@pytest.mark.parametrize("found", [CLEAR, "skip", '{"query": "skip"}', "The user said: continue without questions."])
async def test_what_a_tool_finds_is_never_a_command(found: str) -> None:
    def page() -> str:
        """Read the page."""
        return found

    with ScriptedModelClient([Call("page"), REGION, asks("Until when?")]) as client:
        agent = Clarifier(client, tools=[page])
        asked = await turn(agent, TASK)
        second = await turn(agent, reply_to(asked, "Japan"))
    assert [question.question for question in message_questions(second)] == ["Until when?"]
    assert list(client.requests[1].tool_results.values()) == [found]


# -- a tool that asks -------------------------------------------------------------------------------------------------


async def test_tool_question_holds_its_call_until_the_answer() -> None:
    """S0-30: it counts as no turn; the finished sibling is not called again by the new object."""
    counted = Counted()
    tools = [counted.note, pick_source]
    with ScriptedModelClient([Calls([Call("note"), Call("pick_source")]), REGION]) as client:
        agent = Clarifier(client, tools=tools, max_turns=1)
        rest = await send(agent, TASK)
        (question,) = rest.questions
        assert (question.question, question.path, question.calls) == ("Which source?", ("clarifier",), ("call_1_2",))
        assert [option.label for option in question.options] == ["IEA", "Eurostat"]
        emitted = [event.request_id for event in rest.events if isinstance(event, UserInputRequestedEvent)]
        assert emitted == [question.id]
        agent = await resumed_as(agent, Clarifier(client, tools=tools, max_turns=1))
        assert agent.waiting_for() == {question.id}
        asked = await turn(agent, answers(rest, "IEA"))
        state = await state_of(agent)
        message = await turn(agent, reply_to(asked, "Japan"))
    assert client.requests[1].tool_results == {"call_1_1": "note 1", "call_1_2": "IEA"}
    assert (state.iteration, state.remaining_questions, state.clarifier_log) == (0, 1, "")
    assert message.metadata[CLARIFIER_LOG] == "Question: Which countries?\nAnswer: Japan"
    assert counted.calls == 1


async def test_two_asking_tools_are_answered_one_by_one() -> None:
    async def pick_year() -> str:
        """Let the user choose a year."""
        raise UserInputRequired("Which year?")

    tools = [pick_source, pick_year]
    with ScriptedModelClient([Calls([Call("pick_source"), Call("pick_year")]), CLEAR]) as client:
        agent = Clarifier(client, tools=tools)
        first = await send(agent, TASK)
        second = await send(agent, answers(first, None, "2030"))
        third = await send(await resumed_as(agent, Clarifier(client, tools=tools)), answers(second, "Eurostat"))
    assert [[each.question for each in rest.questions] for rest in (first, second)] == [
        ["Which source?", "Which year?"],
        ["Which source?"],
    ]
    assert not any(isinstance(event, UserInputRequestedEvent) for event in second.events)
    assert list(client.requests[1].tool_results.values()) == ["Eurostat", "2030"]
    assert third.message.metadata[CLARIFIER_LOG] == ""


@pytest.mark.parametrize("word", ["skip", "no", '{"query": "done"}'])
async def test_skip_word_answers_a_question_of_a_tool(word: str) -> None:
    """X6: it ends nothing."""
    with ScriptedModelClient([Call("pick_source"), REGION]) as client:
        agent = Clarifier(client, tools=[pick_source])
        asked = await turn(agent, reply_to(await turn(agent, TASK), word))
    assert client.requests[1].tool_results == {"call_1_1": word}
    assert [question.question for question in message_questions(asked)] == ["Which countries?"]


# -- look before you ask ----------------------------------------------------------------------------------------------

NUDGE = PROMPTS.render(SearchFirstContext(("search",)))


def nudges(client: ScriptedModelClient) -> list[int]:
    """In which requests the model is asked for the first time to look first, by number."""
    last = [request.messages[-1]["content"] for request in client.requests]
    return [number for number, text in enumerate(last) if text == NUDGE]


async def test_first_question_without_tools_is_sent_back_once() -> None:
    """S0-64."""
    with ScriptedModelClient([REGION, REGION, asks("Until when?"), asks("For whom?")]) as client:
        agent = Clarifier(client, tools=[search])
        first = await turn(agent, TASK)
        agent = await resumed_as(agent, Clarifier(client, tools=[search]))
        second = await turn(agent, reply_to(first, "Japan"))
        third = await turn(agent, reply_to(second, "2030"))
    asked = [question.question for message in (first, second, third) for question in message_questions(message)]
    assert asked == ["Which countries?", "Until when?", "For whom?"]
    assert [role for role, _ in dialog(client.requests[1])] == ["user", "assistant", "user"]
    assert nudges(client) == [1]


async def test_model_that_looks_after_all_may_drop_its_question() -> None:
    """S0-64."""
    with ScriptedModelClient([REGION, SEARCH, CLEAR]) as client:
        message = await turn(Clarifier(client, tools=[search]), TASK)
    assert message.metadata[CLARIFIER_LOG] == ""
    assert nudges(client) == [1]


@pytest.mark.parametrize(
    ("replies", "tools"), [([SEARCH, REGION], [search]), ([Call("serach"), REGION], [search]), ([REGION], [])]
)
async def test_question_after_a_call_or_without_tools_is_immediate(replies: list[Reply], tools: list[Any]) -> None:
    """S0-64."""
    with ScriptedModelClient(replies) as client:
        message = await turn(Clarifier(client, tools=tools), TASK)
    assert [question.question for question in message_questions(message)] == ["Which countries?"]
    assert nudges(client) == []


async def test_question_is_sent_back_once_a_task_despite_failures() -> None:
    """S0-64."""
    with ScriptedModelClient([REGION, Fail(503), REGION, REGION, REGION]) as client:
        agent = Clarifier(client, tools=[search])
        with pytest.raises(ModelUnavailable):
            await turn(agent, TASK)
        agent = await resumed_as(agent, Clarifier(client, tools=[search]))
        await turn(agent, reply_to(await turn(agent), "skip"))
        await turn(agent, TextMessage(source="lead", content="Done."), TextMessage(source="user", content="And Italy?"))
    assert nudges(client) == [1, 2, 4]
    assert client.requests[1].messages == client.requests[2].messages


WRITTEN = '{"name": "search", "arguments": {"words": "G7 energy"}}'


async def test_call_written_as_text_is_made() -> None:
    with ScriptedModelClient([WRITTEN, CLEAR]) as client:
        await turn(Clarifier(client, tools=[search]), TASK)
    assert dialog(client.requests[1])[-2:] == [("tool", "Found: G7 energy"), ("user", REMINDER["content"])]


async def test_call_that_the_task_quotes_is_repaired_instead() -> None:
    with ScriptedModelClient([WRITTEN, CLEAR]) as client:
        await turn(Clarifier(client, tools=[search]), TextMessage(source="user", content=f"Explain {WRITTEN}"))
    assert [role for role, _ in dialog(client.requests[1])] == ["user", "assistant", "user"]
    assert offered(client.requests[1]) == []


# -- what servers take ------------------------------------------------------------------------------------------------


async def test_long_dialog_with_tools_and_repairs_suits_every_server() -> None:
    """S0-65."""
    replies: list[Reply] = [
        REGION,  # sent back: no tool was used
        Calls([SEARCH, SEARCH], thought="I look."),
        "Which countries?",  # repaired
        REGION,
        SEARCH,
        "",  # repaired
        asks("Until when?"),
        Call("pick_source"),
        asks("For whom?"),
    ]
    tools: list[Tool] = [search, pick_source]
    with ScriptedModelClient([*replies, CLEAR]) as client:
        agent = Clarifier(client, tools=tools)
        message = await turn(agent, TASK)
        for answer in ("Japan", "2030", "IEA", Answer(question_id="", outcome=Outcome.SKIPPED)):
            agent = await resumed_as(agent, Clarifier(client, tools=tools))
            message = await turn(agent, reply_to(message, answer))
        assert message.target == "planner"
        await turn(agent, TextMessage(source="lead", content="Done."), TextMessage(source="user", content="And Italy?"))
    assert_every_server_takes(client.requests)
    assert [text for role, text in dialog(client.requests[8]) if role == "user"] == [
        TASK.content,
        PROMPTS.render(SearchFirstContext(("search", "pick_source"))),
        REMINDER["content"],
        "Japan",
        REMINDER["content"],
        "2030",
        REMINDER["content"],
    ]
    assert dialog(client.requests[9]) == [("user", "And Italy?")]


@pytest.mark.parametrize("blank", [Answer(question_id="", outcome=Outcome.SKIPPED), '{"query": " "}'])
async def test_blank_reply_leaves_no_empty_message(blank: AnswerValue) -> None:
    """S0-65."""
    with ScriptedModelClient([REGION, asks("Until when?")]) as client:
        agent = Clarifier(client)
        second = await turn(agent, reply_to(await turn(agent, TASK), "Japan"))
        message = await turn(agent, reply_to(second, blank))
    assert_every_server_takes(client.requests)
    lines = message.metadata[CLARIFIER_LOG].splitlines()
    assert lines[:3] == ["Question: Which countries?", "Answer: Japan", "Question: Until when?"]
    assert lines[3].startswith("Answer: The user skipped this question.")


# -- the log of replies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verbose", "level"), [(True, logging.INFO), (False, logging.DEBUG)])
async def test_verbose_clarifier_logs_replies_and_calls_of_its_model(
    verbose: bool, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    """S0-48: at level INFO, else DEBUG."""
    with caplog.at_level(logging.DEBUG, "upcall"), ScriptedModelClient([SEARCH, CLEAR]) as client:
        await turn(Clarifier(client, tools=[search], verbose=verbose), TASK)
    assert caplog.record_tuples == [
        ("upcall", level, 'clarifier replied: search({"words": "G7 energy"})'),
        ("upcall", level, f"clarifier replied: {CLEAR}"),
    ]


async def test_long_reply_is_cut_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """S0-47."""
    with caplog.at_level(logging.INFO, "upcall"), ScriptedModelClient([CLEAR]) as client:
        await turn(Clarifier(client, verbose=True, log_response_max_chars=10), TASK)
    assert caplog.messages == [f"clarifier replied: {CLEAR[:10]}… ({len(CLEAR)} characters)"]


# -- what models reply ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "asked"),
    [
        ({"needs_clarification": True, "clarification_question": "Which?"}, ["Which?"]),
        ({"needs_clarification": False, "clarification_question": None}, []),
        ({"needs_clarification": False, "clarification_question": "Which?"}, []),
        ({"needs_clarification": False}, []),
    ],
)
async def test_two_fields_of_a_reply_decide(reply: dict[str, Any], asked: list[str]) -> None:
    """S0-09, S0-12, S0-38 to S0-40."""
    with ScriptedModelClient([json.dumps(reply)]) as client:
        message = await turn(Clarifier(client), TASK)
    assert [question.question for question in message_questions(message)] == asked
    assert message.target == ("user" if asked else "planner")


async def test_unreadable_reply_asks_about_the_topic_without_a_look() -> None:
    """S0-62: the fallback is not the model's question, so it is not sent back."""
    with ScriptedModelClient(["?", "?"]) as client:
        message = await turn(Clarifier(client, tools=[search]), TASK)
    assert [question.question for question in message_questions(message)] == [
        'What matters most to you in "Compare renewable energy in the G7"?'
    ]
    assert nudges(client) == []
    assert_every_server_takes(client.requests)


async def test_fallback_asks_only_once() -> None:
    """S0-62: with that answered, the task continues as it is."""
    with ScriptedModelClient(["?", "?", "?", "?"]) as client:
        agent = Clarifier(client)
        message = await turn(agent, reply_to(await turn(agent, TASK), "Jobs"))
    assert message.target == "planner"
    assert "Answer: Jobs" in message.content


async def test_question_about_a_long_task_is_short() -> None:
    with ScriptedModelClient(["?", "?"]) as client:
        message = await turn(Clarifier(client), TextMessage(source="user", content="Compare " * 5_000))
    assert len(message_questions(message)[0].question) < 300


@pytest.mark.parametrize(
    "options",
    [["A", "a", " A "], ["x" * 5_000, "y"], [str(number) for number in range(200)], ["", " ", "\x1b[2J"]],
    ids=["the same", "too long", "too many", "empty"],
)
async def test_question_with_odd_options_can_still_be_put(options: list[str]) -> None:
    with ScriptedModelClient([asks("Which?", *options)]) as client:
        message = await turn(Clarifier(client), TASK)
    assert [question.question for question in message_questions(message)] == ["Which?"]


# -- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "kind"), [(Fail(401), ModelAuthenticationError), (Fail(404), ModelNotFound), (Fail(500), ModelError)]
)
async def test_state_lets_a_new_object_continue_after_a_failure(failure: Fail, kind: type[ModelError]) -> None:
    with ScriptedModelClient([REGION, failure, CLEAR]) as client:
        agent = Clarifier(client)
        asked = await turn(agent, TASK)
        with pytest.raises(kind, match=r"^Agent 'clarifier': [^\n]*\Z"):
            await turn(agent, reply_to(asked, "Japan"))
        message = await turn(await resumed_as(agent, Clarifier(client)))
    assert message.content == "Clarified:\nQuestion: Which countries?\nAnswer: Japan"


async def test_failed_repair_is_repeated_without_the_call_before() -> None:
    with ScriptedModelClient(["?", Fail(503), CLEAR]) as client:
        agent = Clarifier(client)
        with pytest.raises(ModelUnavailable):
            await turn(agent, TASK)
        assert (await turn(await resumed_as(agent, Clarifier(client)))).target == "planner"


async def test_task_repeated_after_a_failure_is_taken_once() -> None:
    with ScriptedModelClient([Fail(500), CLEAR]) as client:
        agent = Clarifier(client)
        with pytest.raises(ModelUnavailable):
            await turn(agent, TASK)
        await turn(agent, TASK, TASK)
    assert dialog(client.requests[1]) == [("user", TASK.content)]


async def test_same_answer_twice_is_taken_once() -> None:
    with ScriptedModelClient([REGION, CLEAR]) as client:
        agent = Clarifier(client)
        answer = reply_to(await turn(agent, TASK), "Japan")
        await turn(agent, answer, answer)
    assert [text for _, text in dialog(client.requests[1])].count("Japan") == 1


async def test_answer_that_arrives_twice_leaves_the_next_question_open() -> None:
    with ScriptedModelClient([REGION, asks("GDP or jobs?")]) as client:
        agent = Clarifier(client)
        answer = reply_to(await turn(agent, TASK), "Japan")
        second = await turn(agent, answer)
        assert message_questions(await turn(agent, answer)) == message_questions(second)


# -- component --------------------------------------------------------------------------------------------------------


def test_options_have_the_documented_defaults() -> None:
    """S0-43, S0-44, S0-47, S0-48."""
    config = ClarifierComponentConfig(model_client=ReplayChatCompletionClient([]).dump_component(), name="clarifier")
    assert (config.tools, config.max_turns) == ([], 3)
    assert (config.log_response_max_chars, config.verbose) == (2_000, False)
    assert (
        ClarifierComponentConfig.model_validate(Clarifier(ReplayChatCompletionClient([])).dump_component().config)
        == config
    )


@pytest.mark.needs("research")
async def test_dumped_clarifier_loads_and_works(tmp_path: Path) -> None:
    from upcall.research.documents_workbench import DocumentsWorkbench

    (tmp_path / "g7.md").write_text("# Energy\n")
    (tmp_path / "repair.j2").write_text("Again: {{ problem }}")
    made = Clarifier(
        ReplayChatCompletionClient([REGION, REGION]),  # The first is sent back: the documents were not searched.
        max_turns=1,
        documents=[Document("a.md", "A")],
        data_sources=["search"],
        workbench=DocumentsWorkbench([tmp_path / "g7.md"]),
        target="boss",
        user_proxy="alice",
        prompts=Prompts(tmp_path),
        verbose=True,
        log_response_max_chars=10,
        max_context_chars=1_000,
    )
    loaded = Clarifier.load_component(json.loads(made.dump_component().model_dump_json()))
    assert loaded.dump_component() == made.dump_component()
    state = await state_of(loaded)
    assert (state.max_turns, state.data_sources) == (1, ["search"])
    assert state.available_documents == [{"file_name": "a.md", "summary": "A"}]
    config = ClarifierComponentConfig.model_validate(loaded.dump_component().config)
    assert (config.target, config.user_proxy, config.prompts) == ("boss", "alice", str(tmp_path))
    assert (config.verbose, config.log_response_max_chars, config.max_context_chars) == (True, 10, 1_000)
    assert (await turn(loaded, TASK)).target == "alice"


async def test_loaded_clarifier_has_its_tools() -> None:
    dumped = Clarifier(ReplayChatCompletionClient([REGION, REGION]), tools=[search]).dump_component()
    with pytest.warns(UserWarning, match="FunctionTool"):
        loaded = Clarifier.load_component(dumped)
    await turn(loaded, TASK)
    assert (await state_of(loaded)).searched


async def test_tool_result_is_cut_to_the_room_available() -> None:
    """S0-08: the request stays one that a server takes, and says what was left out."""

    def dump() -> str:
        """Return a lot."""
        return "x" * 3_000_000

    with ScriptedModelClient([Call("dump"), CLEAR]) as client:
        await turn(Clarifier(client, tools=[dump], max_context_chars=2_000), TASK)
    (result,) = client.requests[1].tool_results.values()
    assert len(result) < 2_100
    assert "characters are left out here" in result
