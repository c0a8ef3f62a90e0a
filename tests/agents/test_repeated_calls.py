"""The same call twice in one reply is made once, and of too many calls the first ones are made; no question is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from autogen_agentchat.messages import ToolCallExecutionEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.tools import FunctionTool, StaticWorkbench
from conversation import TurnResult, answers, resumed_as, send
from worlds import STORE

from upcall import OpenAICompatibleClient, PausableAgent, Upcall, ask, repeatable
from upcall.agents.tool_loop.turn import MADE_ONCE
from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.testing import Call, Calls, LoopbackServer, Reply, ScriptedModelClient


class Notebook:
    """Tools that keep what they are called with."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, text: str) -> str:
        """Write a line."""
        self.lines.append(text)
        return f"line {len(self.lines)}: {text}"

    @repeatable
    def append(self, text: str) -> str:
        """Append a line, each time."""
        return self.write(text)

    def fail(self, text: str) -> str:
        """Fail."""
        self.lines.append(text)
        raise ValueError("no room")

    def paint(self, wall: str) -> str:
        """Paint a wall in a colour that the user chooses."""
        answer = ask("Which colour?", ["red", "blue"])
        return self.write(f"{wall} {answer.text}")


@pytest.fixture
def book() -> Notebook:
    return Notebook()


def write(text: str, tool: str = "write") -> Call:
    return Call(tool, {"text": text})


def results(turn: TurnResult) -> list[str]:
    """Return the results of all calls."""
    return [each.content for event in turn.events_of(ToolCallExecutionEvent) for each in event.content]  # type: ignore[union-attr]


async def reply(book: Notebook, *calls: Call, **options: Any) -> TurnResult:
    tools = [book.write, book.append, book.fail, book.paint]
    model = ScriptedModelClient([Calls(calls), "Done."])
    return await send(PausableAgent("solo", model, tools=tools, **options), "Go")


# -- the same call twice ----------------------------------------------------------------------------------------------


async def test_same_call_twice_is_made_once(book: Notebook) -> None:
    turn = await reply(book, write("a"), write("b"), write("a"))
    first, _, again = results(turn)
    assert (sorted(book.lines), again) == (["a", "b"], f"{MADE_ONCE}\n{first}")


@pytest.mark.parametrize(
    "other", [write("b"), Call("write", {"text": "a", "more": 1}), write("a", "append"), Call("write", "{")]
)
async def test_other_call_is_no_repetition(book: Notebook, other: Call) -> None:
    turn = await reply(book, write("a"), other)
    assert MADE_ONCE not in "".join(results(turn))


async def test_same_arguments_in_another_order_are_the_same(book: Notebook) -> None:
    await reply(book, Call("write", '{"text": "a"}'), Call("write", '{ "text":"a" }'))
    assert book.lines == ["a"]


async def test_same_call_in_another_reply_is_made_again(book: Notebook) -> None:
    model = ScriptedModelClient([write("a"), write("a"), "Done."])
    await send(PausableAgent("solo", model, tools=[book.write]), "Go")
    assert book.lines == ["a", "a"]


async def test_failed_call_fails_for_its_repetition_too(book: Notebook) -> None:
    turn = await reply(book, write("a", "fail"), write("a", "fail"))
    assert (book.lines, results(turn)[1]) == (["a"], f"{MADE_ONCE}\nError: no room")


async def test_long_result_is_shortened_in_its_repetition(book: Notebook) -> None:
    turn = await reply(book, write("a" * 900), write("a" * 900))
    assert (len(results(turn)[0]) > 900, len(results(turn)[1]) < 500) == (True, True)


async def test_repeatable_call_is_made_each_time(book: Notebook) -> None:
    turn = await reply(book, write("a", "append"), write("a", "append"))
    assert sorted(results(turn)) == ["line 1: a", "line 2: a"]


async def test_repeatable_workbench_makes_each_call(book: Notebook) -> None:
    bench = repeatable(StaticWorkbench([FunctionTool(book.write, description="Write.")]))
    model = ScriptedModelClient([Calls([write("a"), write("a")]), "Done."])
    await send(PausableAgent("solo", model, workbench=bench), "Go")
    assert book.lines == ["a", "a"]


async def test_nested_agent_gets_the_same_task_once(book: Notebook) -> None:
    twice = Calls([Call("coder", {"task": "write a"})] * 2)
    model = ScriptedModelClient([twice, write("a"), "Written.", "Done."])
    coder = PausableAgent("coder", model, tools=[book.write])
    turn = await send(PausableAgent("lead", model, agents=[coder]), "Go")
    assert (book.lines, turn.text) == (["a"], "Done.")


async def test_repeatable_nested_agent_gets_each_task() -> None:
    model = ScriptedModelClient([Calls([Call("voter", {"task": "Vote"})] * 3), "yes", "no", "yes", "Done."])
    turn = await send(PausableAgent("lead", model, agents=[repeatable(PausableAgent("voter", model))]), "Go")
    assert (sorted(results(turn)), turn.text) == (["no", "yes", "yes"], "Done.")


async def test_repeated_calls_do_not_hide_a_circle(book: Notebook) -> None:
    """The marked results are no news: the turn ends as with single calls."""
    twice = Calls([Call("look")] * 2)

    def look() -> str:
        """Look."""
        return "nothing"

    model = ScriptedModelClient([twice, twice, twice, twice, "There is nothing."])
    turn = await send(PausableAgent("solo", model, tools=[look]), "Go")
    assert turn.text == "There is nothing."


# -- questions --------------------------------------------------------------------------------------------------------


async def test_same_question_twice_is_asked_by_both_calls(book: Notebook) -> None:
    """One answer serves both by the rule for questions that mean the same, which is not the turn's."""
    model = ScriptedModelClient([Calls([Call("ask_user", {"question": "Which one?"})] * 2), "Done."])
    turn = await send(PausableAgent("solo", model, tools=[book.write]), "Go")
    assert [each.question for each in turn.questions] == ["Which one?", "Which one?"]


async def test_calls_that_ask_are_not_merged(book: Notebook) -> None:
    turn = await reply(book, Call("paint", {"wall": "a"}), Call("paint", {"wall": "a"}))
    assert [each.question for each in turn.questions] == ["Which colour?", "Which colour?"]


async def test_each_call_that_needs_approval_gets_its_own(book: Notebook) -> None:
    turn = await reply(book, write("a"), write("a"), approve=["write"])
    assert (len(turn.questions), book.lines) == (2, [])


async def test_repetition_survives_a_pause(book: Notebook) -> None:
    """A batch that waits for another call is stored with it."""
    model = ScriptedModelClient([Calls([write("a"), write("a"), Call("paint", {"wall": "b"})]), "Done."])

    def solo() -> PausableAgent:
        return PausableAgent("solo", model, tools=[book.write, book.paint])

    first = solo()
    asked = await send(first, "Go")
    done = await send(await resumed_as(first, solo()), answers(asked, "red"))
    assert (book.lines, done.text) == (["a", "b red"], "Done.")
    assert results(done)[1].startswith(MADE_ONCE)


async def run_with(book: Notebook, *replies: Reply, **options: Any) -> tuple[Upcall, Run]:
    """Run an agent on a server, and return the run at its end or first question."""
    with LoopbackServer(replies) as server:
        client = OpenAICompatibleClient("qwen2.5-1.5b", base_url=server.base_url, api_key="k")
        agent = PausableAgent("solo", client, tools=[book.write, book.append, book.paint], **options)
        app = Upcall(team=lambda: RoundRobinGroupChat([agent], max_turns=1), store=STORE)
        return app, await app.start("Go")


def thirty_two() -> Sequence[Call]:
    """Return what a small model did: 32 calls in one reply, 7 of them distinct."""
    return [write(f"line {number % 7}") for number in range(32)]


async def test_thirty_two_calls_make_seven(book: Notebook) -> None:
    _, run = await run_with(book, Calls(thirty_two()), "Done.")
    assert (run.status, len(book.lines), run.tools) == (RunStatus.COMPLETED, 7, {"solo/write": 7})


async def test_answer_serves_calls_that_ask_the_same() -> None:
    book = Notebook()
    paints = Calls([Call("paint", {"wall": "a"})] * 2)
    model = ScriptedModelClient([paints, "Done."])
    app = Upcall(
        team=lambda: RoundRobinGroupChat([PausableAgent("solo", model, tools=[book.paint])], max_turns=1), store=STORE
    )
    asked = await app.start("Go")
    done = await app.answer(asked.id, "red")
    assert (len(asked.questions), len(asked.duplicates)) == (1, 1)
    assert (done.status, book.lines) == (RunStatus.COMPLETED, ["a red", "a red"])


# -- too many calls ---------------------------------------------------------------------------------------------------


async def test_calls_beyond_the_limit_are_not_made(book: Notebook) -> None:
    _, run = await run_with(book, Calls([write(str(number)) for number in range(5)]), "Done.", max_reply_calls=3)
    assert (sorted(book.lines), run.result) == (["0", "1", "2"], "Done.")
    assert (run.tools, run.failed_tools) == ({"solo/write": 5}, {"solo/write": 2})


async def test_refused_call_says_what_to_do(book: Notebook) -> None:
    turn = await reply(book, write("a"), write("b"), max_reply_calls=1)
    assert "made 2 calls, and at most 1 of a reply are made" in results(turn)[1]


async def test_questions_beyond_the_limit_are_asked(book: Notebook) -> None:
    calls = [write("a"), write("b"), Call("ask_user", {"question": "Which one?"})]
    turn = await reply(book, *calls, max_reply_calls=1, mixed_batch="run")
    assert ([each.question for each in turn.questions], book.lines) == (["Which one?"], ["a"])


async def test_repetitions_do_not_count_towards_the_limit(book: Notebook) -> None:
    await reply(book, *thirty_two(), max_reply_calls=7)
    assert len(book.lines) == 7
