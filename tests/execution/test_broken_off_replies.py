"""What a model wrote of a reply that ended before its end is counted, once, over stops, failures and resumes."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from autogen_agentchat.base import Team
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import OpenAICompatibleClient, PausableAgent, Upcall
from upcall.runs.states import RunStatus
from upcall.testing import Call, CutShort, Reply, Say
from upcall.testing.server import LoopbackServer

WORDS = 20
LONG = " ".join(["word"] * WORDS)


def look() -> str:
    """Look."""
    return "nothing"


def app_on(server: LoopbackServer, *, stream: bool = True) -> Upcall:
    def make_team() -> Team:
        client = OpenAICompatibleClient("qwen2.5-1.5b", base_url=server.base_url, api_key="k", max_retries=0)
        return RoundRobinGroupChat([PausableAgent("solo", client, tools=[look], stream=stream)], max_turns=1)

    return Upcall(store="runs.db", team=make_team)


@pytest.mark.parametrize("stream", [True, False])
async def test_tokens_of_a_reply_cut_short_are_counted_once(stream: bool) -> None:
    replies: list[Reply] = [Call("look"), CutShort(LONG), "Done."]
    with LoopbackServer(replies) as server:
        failed = await app_on(server, stream=stream).start("Go")
        before = failed.total_usage.completion_tokens
        done = await app_on(server, stream=stream).resume(failed.id)
    assert (failed.status, done.status) == (RunStatus.FAILED, RunStatus.COMPLETED)
    assert before >= WORDS
    assert before < done.total_usage.completion_tokens < before + WORDS
    assert (failed.total_usage.model_calls, done.total_usage.model_calls) == (2, 3)


async def test_tokens_of_a_stopped_run_are_counted_once() -> None:
    with LoopbackServer([Call("look"), Say(LONG, pace=0.02), "Done."]) as server:
        app = app_on(server)
        async with aclosing(app.start_stream("Go")) as stream:
            async for item in stream:
                if isinstance(item, ModelClientStreamingChunkEvent):
                    break
        (stopped,) = await app.list()
        done = await app_on(server).resume(stopped.id)
    assert (stopped.interrupted, done.result) == (True, "Done.")
    assert (stopped.total_usage.model_calls, done.total_usage.model_calls) == (2, 3)


async def test_branch_does_not_count_what_its_run_lost() -> None:
    ask = Call("ask_user", {"question": "Which one?"})
    with LoopbackServer([ask, CutShort(LONG), "One.", "Two."]) as server:
        app = app_on(server)
        asked = await app.start("Go")
        failed = await app.answer(asked.id, "one")
        await app.resume(failed.id)
        branch = await app.fork(asked.id, asked.questions[0].id, "two")
    assert (branch.result, branch.total_usage.completion_tokens < WORDS) == ("Two.", True)


async def test_budget_counts_a_reply_cut_short_once() -> None:
    with LoopbackServer([Call("look"), CutShort(LONG), "Done."]) as server:
        failed = await app_on(server).start("Go", budget="10000 tokens")
        resumed = await app_on(server).resume(failed.id)
    for run in (failed, resumed):
        assert run.budget is not None
        assert (run.budget.spent.calls, run.budget.spent.tokens) == (
            run.total_usage.model_calls,
            run.total_usage.tokens,
        )
    assert (failed.status, resumed.status, resumed.total_usage.model_calls) == (
        RunStatus.FAILED,
        RunStatus.COMPLETED,
        3,
    )


async def test_reply_cut_short_may_use_up_a_budget() -> None:
    with LoopbackServer([Call("look"), CutShort(LONG), "Done."]) as server:
        app = app_on(server)
        failed = await app.start("Go", budget="2 calls")
        waiting = await app.resume(failed.id)
        assert [each.header for each in waiting.questions] == ["Budget"]
        done = await app.answer(waiting.id, "1")
    assert (done.result, done.total_usage.model_calls) == ("Done.", 3)
