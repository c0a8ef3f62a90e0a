"""What a termination condition and a selector function are shown of a question: neither it nor its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from autogen_agentchat.base import TerminationCondition
from autogen_agentchat.conditions import (
    FunctionalTermination,
    FunctionCallTermination,
    HandoffTermination,
    MaxMessageTermination,
    SourceMatchTermination,
    TextMentionTermination,
    TextMessageTermination,
)
from autogen_agentchat.messages import ToolCallExecutionEvent, ToolCallRequestEvent
from autogen_agentchat.teams import (
    BaseGroupChat,
    DiGraphBuilder,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
)

from upcall import PausableAgent, Upcall, make_resumable
from upcall.autogen.messages import answer_message, message_questions
from upcall.questions.answer import Answer
from upcall.testing import Call, Calls, Reply, ScriptedModelClient

QUESTION = "TERMINATE the old one, or look first?"
ANSWER = "Do not TERMINATE yet"
ASK = Call("ask_user", {"question": QUESTION})


def done() -> TerminationCondition:
    return TextMentionTermination("ALLDONE")


def look() -> str:
    """Look."""
    return "seen"


def members(first: Sequence[Reply] = (ASK, "First done.")) -> list[Any]:
    return [
        PausableAgent("first", ScriptedModelClient(list(first)), tools=[look], description="first", mixed_batch="run"),  # type: ignore[arg-type]
        PausableAgent("second", ScriptedModelClient(["Second done. ALLDONE"]), description="second"),
    ]


def chain(two: list[Any], condition: TerminationCondition) -> BaseGroupChat:
    graph = DiGraphBuilder().add_node(two[0]).add_node(two[1]).add_edge(*two)
    return GraphFlow(two, graph.build(), termination_condition=condition)


def in_turn(two: list[Any], condition: TerminationCondition) -> BaseGroupChat:
    return RoundRobinGroupChat(two, termination_condition=condition)


def in_an_inner_team(two: list[Any], condition: TerminationCondition) -> BaseGroupChat:
    inner = RoundRobinGroupChat([two[0]], name="inner", max_turns=1)
    return RoundRobinGroupChat([inner, two[1]], termination_condition=condition)


def follow(thread: Sequence[Any]) -> str:
    return "second" if "first" in [each.source for each in thread] else "first"


def selected(two: list[Any], condition: TerminationCondition) -> BaseGroupChat:
    model = ScriptedModelClient([])
    return SelectorGroupChat(two, model, selector_func=follow, termination_condition=condition)


async def by_run(make: Callable[[], BaseGroupChat]) -> tuple[str | None, str | None]:
    run = await Upcall(team=make, store="runs.db").start("Do it")
    assert run.questions
    run = await Upcall(team=make, store="runs.db").answer(run.id, ANSWER)
    return run.result, run.stop_reason


async def by_script(make: Callable[[], BaseGroupChat]) -> tuple[str | None, str | None]:
    team = make_resumable(make())
    asked = message_questions((await team.run(task="Do it")).messages[-1])
    answer = Answer(question_id=asked[0].id, text=ANSWER)
    result = await team.run(task=answer_message([answer], target="first", questions=asked))
    return result.messages[-1].to_text(), result.stop_reason  # type: ignore[union-attr]


DOORS = pytest.mark.parametrize("door", [by_run, by_script])


@DOORS
@pytest.mark.parametrize("shape", [in_turn, chain, in_an_inner_team, selected])
async def test_termination_word_in_question_and_answer_ends_nothing(door: Any, shape: Any) -> None:
    two = members()
    result, _ = await door(lambda: shape(two, TextMentionTermination("TERMINATE") | done()))
    assert result == "Second done. ALLDONE"


@DOORS
@pytest.mark.parametrize(
    "condition",
    [
        lambda: FunctionCallTermination("ask_user"),
        lambda: HandoffTermination("user"),
        lambda: MaxMessageTermination(3, include_agent_event=True) & done(),
        lambda: MaxMessageTermination(4, include_agent_event=True),
        lambda: TextMessageTermination("user") & SourceMatchTermination(["second"]),
        lambda: FunctionalTermination(lambda messages: "ask_user" in str(messages)),
        lambda: FunctionalTermination(lambda messages: not messages[-1].source),
    ],
)
async def test_termination_on_parts_of_a_question_is_none(
    door: Any, condition: Callable[[], TerminationCondition]
) -> None:
    two = members()
    assert (await door(lambda: in_turn(two, condition() | done())))[0] == "Second done. ALLDONE"


@DOORS
@pytest.mark.parametrize("tools", [[Call("look"), ASK], [Calls([Call("look"), ASK])], [Calls([ASK, Call("look")])]])
async def test_termination_by_a_call_beside_a_question_stands(door: Any, tools: Any) -> None:
    two = members([*tools, "First done."])
    assert await door(lambda: in_turn(two, FunctionCallTermination("look") | done())) == (
        "First done.",
        "Function 'look' was executed.",
    )


@DOORS
async def test_termination_by_tokens_counts_what_it_cost_to_ask(door: Any) -> None:
    shown: list[int] = []

    def count(messages: Sequence[Any]) -> bool:
        shown.extend(each.models_usage.completion_tokens for each in messages if each.models_usage)
        return False

    two = members([ASK, "First done."])
    await door(lambda: in_turn(two, FunctionalTermination(count) | done()))
    assert sum(shown) == sum(each._model_client.total_usage().completion_tokens for each in two)


async def test_termination_by_its_task_fails_the_run() -> None:
    two = members()
    plain = await in_turn(two, SourceMatchTermination(["user"])).run(task="Do it")
    run = await Upcall(team=lambda: in_turn(two, SourceMatchTermination(["user"])), store="runs.db").start("Do it")
    assert plain.stop_reason == "'user' answered"
    assert run.error == "The team stopped without a result ('user' answered). Resume the run to try again."


async def test_selector_function_sees_no_call_of_a_question() -> None:
    seen: list[Any] = []

    def select(thread: Sequence[Any]) -> str:
        seen[:] = thread
        return follow(thread)

    two = members([Calls([ASK, Call("look")]), "First done."])
    model = ScriptedModelClient([])
    await by_run(lambda: SelectorGroupChat(two, model, selector_func=select, termination_condition=done()))
    calls = [len(each.content) for each in seen if isinstance(each, ToolCallRequestEvent | ToolCallExecutionEvent)]
    assert (len(seen), calls) == (4, [1, 1])


async def test_termination_in_a_magentic_team_sees_no_question() -> None:
    ledger = {"is_request_satisfied": True, "is_in_loop": False, "is_progress_being_made": True}
    steps = {name: {"reason": "", "answer": each} for name, each in ledger.items()}
    steps |= {
        "instruction_or_question": {"reason": "", "answer": "Work."},
        "next_speaker": {"reason": "", "answer": "first"},
    }
    begin = json.dumps(steps | {"is_request_satisfied": {"reason": "", "answer": False}})
    model = ScriptedModelClient(["Facts.", "Plan.", begin, json.dumps(steps), "The end."])
    team = MagenticOneGroupChat(members()[:1], model, termination_condition=TextMentionTermination("TERMINATE"))
    assert await by_run(lambda: team) == ("The end.", "")
