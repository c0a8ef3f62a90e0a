"""The driver, on teams of the user's own and on faults that only it sees."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, UserProxyAgent
from autogen_agentchat.base import Response, Team
from autogen_agentchat.conditions import HandoffTermination, MaxMessageTermination, TextMessageTermination
from autogen_agentchat.messages import BaseChatMessage, TextMessage, UserInputRequestedEvent
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm
from autogen_core import CancellationToken

from upcall import Answer, Outcome, PausableAgent, Run, RunStatus, Settings, Upcall
from upcall.errors import (
    AlreadyAnswered,
    AnswerRefused,
    ConfigurationError,
    RunConflict,
    RunNotWaiting,
    UnknownQuestion,
)
from upcall.testing import Call, Calls, Fail, Hang, Reply, ScriptedModelClient
from upcall.testing.server import LoopbackServer

ASK = Call("ask_user", {"question": "Which framework?", "options": ["Express", "FastAPI"]})


def solo(model: ScriptedModelClient, **options: Any) -> Team:
    """A team of one agent and the user."""
    agent = PausableAgent("solo", model, **options)
    stops = HandoffTermination("user") | TextMessageTermination("solo")
    return Swarm([agent, UserProxyAgent("user")], termination_condition=stops)


def app_with(*replies: Reply, **options: Any) -> tuple[Upcall, ScriptedModelClient]:
    model = ScriptedModelClient(replies)
    return Upcall(store="runs.db", team=lambda: solo(model, **options)), model


async def test_a_team_of_ones_own_pauses_and_goes_on_in_a_new_object() -> None:
    app, model = app_with(ASK, "Done with Express.")
    asked = await app.start("Build it", user="alice")
    done = await Upcall(store="runs.db", team=lambda: solo(model)).answer(asked.id, "express", user="bob")
    assert (asked.status, asked.questions[0].path) == (RunStatus.AWAITING_CLARIFICATION, ("solo",))
    assert (done.status, done.result, done.answers[0].user) == (RunStatus.COMPLETED, "Done with Express.", "bob")
    assert len(model.requests) == 2


async def test_a_question_is_stored_before_anybody_is_told_of_it() -> None:
    app, _ = app_with(ASK)
    async for item in app.start_stream("Build it"):
        if isinstance(item, UserInputRequestedEvent):
            assert [run.status for run in await app.list()] == [RunStatus.AWAITING_CLARIFICATION]
            return
    pytest.fail("no event told of the question")


async def test_the_run_is_the_last_item_of_a_stream() -> None:
    app, _ = app_with("Done.")
    items = [item async for item in app.start_stream("Build it")]
    assert isinstance(items[-1], Run)
    assert not any(isinstance(item, Run) for item in items[:-1])


async def test_an_answer_is_stored_before_the_team_goes_on() -> None:
    app, _ = app_with(ASK, Fail(500), "Done.")
    asked = await app.start("Build it")
    failed = await app.answer(asked.id, "Express")
    assert (failed.status, failed.answers[0].text) == (RunStatus.FAILED, "Express")
    assert (await app.resume(asked.id)).result == "Done."


async def test_two_questions_can_be_answered_in_any_order() -> None:
    two = Calls([ASK, Call("ask_user", {"question": "Which database?"})])
    app, model = app_with(two, "Done.")
    asked = await app.start("Build it")
    first, second = asked.questions
    partly = await app.answer(asked.id, {second.id: "PostgreSQL"})
    done = await app.answer(asked.id, {first.id: "1"})
    assert (partly.questions, done.result) == ((first,), "Done.")
    assert sorted(model.requests[-1].tool_results.values()) == ["Express", "PostgreSQL"]


async def test_a_stock_agent_that_hands_off_to_the_user_asks_in_its_own_words() -> None:
    model = ScriptedModelClient([Call("transfer_to_user"), "Done."])

    def team() -> Team:
        stops = HandoffTermination("user") | TextMessageTermination("stock")
        return Swarm([AssistantAgent("stock", model, handoffs=["user"])], termination_condition=stops)

    app = Upcall(store="runs.db", team=team)
    asked = await app.start("Build it")
    done = await app.answer(asked.id, "With Express.")
    assert "Transferred to user" in asked.questions[0].question
    assert (done.status, done.result) == (RunStatus.COMPLETED, "Done.")


async def test_any_other_team_completes_with_its_last_message() -> None:
    model = ScriptedModelClient(["One.", "Two."])

    def team() -> Team:
        agents = [AssistantAgent("one", model), AssistantAgent("two", model)]
        return RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(3))

    assert (await Upcall(store="runs.db", team=team).start("Talk")).result == "Two."


class Silent(BaseChatAgent):
    """An agent that says nothing."""

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        return Response(chat_message=TextMessage(source=self.name, content=" "))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        pass


async def test_an_empty_result_is_a_failure_that_says_so() -> None:
    app = Upcall(store="runs.db", team=lambda: RoundRobinGroupChat([Silent("silent", "says nothing")], max_turns=1))
    run = await app.start("Talk")
    assert (run.status, run.result) == (RunStatus.FAILED, None)
    assert "without a result" in str(run.error)


class Broken(Silent):
    """An agent of somebody else that raises."""

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        raise ZeroDivisionError("division\nby zero")


async def test_an_exception_of_somebody_elses_agent_fails_the_run_in_one_line() -> None:
    app = Upcall(store="runs.db", team=lambda: RoundRobinGroupChat([Broken("broken", "raises")], max_turns=1))
    run = await app.start("Talk")
    assert run.status is RunStatus.FAILED
    assert str(run.error).startswith("ZeroDivisionError: division")
    assert "\n" not in str(run.error)


async def test_after_a_failed_stretch_of_a_stock_agent_the_last_checkpoint_stands() -> None:
    """A stock agent's state after an error may hold half a batch; its stretch is done again from the task."""
    model = ScriptedModelClient([Fail(500), "Done."])

    def team() -> Team:
        return RoundRobinGroupChat([AssistantAgent("stock", model)], max_turns=1)

    app = Upcall(store="runs.db", team=team)
    run = await app.start("Talk")
    assert (await app.resume(run.id)).result == "Done."
    assert [each["content"] for each in model.requests[-1].messages[1:]] == ["Talk"]


async def test_a_failed_run_says_what_failed_where_and_resumes_without_repeating() -> None:
    ran = []

    def note(text: str) -> str:
        """Note it."""
        ran.append(text)
        return "noted"

    app, model = app_with(Call("note", {"text": "once"}), Fail(401), "Done.", tools=[note])
    failed = await app.start("Build it")
    assert "Agent 'solo'" in str(failed.error)
    done = await app.resume(failed.id)
    assert (done.status, done.error, done.result) == (RunStatus.COMPLETED, None, "Done.")
    assert (ran, len(model.requests)) == (["once"], 3)


async def test_leaving_a_stream_stores_the_run_so_that_it_can_be_resumed() -> None:
    app, model = app_with(Call("missing"), "Done.")
    stream: AsyncGenerator[Any, None] = app.start_stream("Build it")
    async for item in stream:
        if type(item).__name__ == "ToolCallRequestEvent":
            break
    await stream.aclose()
    (run,) = await app.list()
    assert run.status is RunStatus.EXECUTING
    assert (await app.resume(run.id)).result == "Done."
    assert len(model.requests) == 2


async def test_a_cancelled_task_stores_the_run_and_leaves_nothing_running() -> None:
    app, model = app_with(Call("missing"), Hang(), "Done.")
    task = asyncio.create_task(app.start("Build it"))
    while len(model.requests) < 2:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
    (run,) = await app.list()
    assert (await app.resume(run.id)).result == "Done."
    assert len(model.requests) == 3


async def test_usage_counts_every_model_call_once_over_a_pause() -> None:
    app, model = app_with(ASK, "Done.")
    asked = await app.start("Build it")
    done = await app.answer(asked.id, "Express")
    assert done.usage["solo"].model_calls == len(model.requests) == 2


async def test_a_run_that_asked_nothing_takes_no_answer() -> None:
    app, _ = app_with("Done.")
    run = await app.start("Build it")
    with pytest.raises(RunNotWaiting, match="is completed and waits for no answer"):
        await app.answer(run.id, "Express")


async def test_a_task_that_is_no_text_is_refused() -> None:
    app, _ = app_with()
    with pytest.raises(ConfigurationError, match="no text in UTF-8"):
        await app.start("caf\udce9")


async def test_the_task_itself_is_never_the_result() -> None:
    def team() -> Team:
        return RoundRobinGroupChat([Silent("x", "x")], termination_condition=MaxMessageTermination(1))

    run = await Upcall(store="runs.db", team=team).start("Build it")
    assert (run.status, run.result) == (RunStatus.FAILED, None)


async def test_two_answers_at_once_do_the_work_once() -> None:
    app, model = app_with(ASK, "Done.")
    asked = await app.start("Build it")
    tries = [app.answer(asked.id, "Express") for _ in range(2)]
    ended = await asyncio.gather(*tries, return_exceptions=True)
    kinds = {type(each) for each in ended}
    assert kinds <= {Run, RunConflict, RunNotWaiting}
    assert len(model.requests) == 2


async def test_wrong_answers_are_refused_and_change_nothing() -> None:
    app, _ = app_with(ASK)
    asked = await app.start("Build it")
    with pytest.raises(UnknownQuestion, match=asked.questions[0].id):
        await app.answer(asked.id, {"nosuch": "Express"})
    with pytest.raises(AnswerRefused, match="is empty"):
        await app.answer(asked.id, "  ")
    with pytest.raises(AnswerRefused, match="is required"):
        await app.answer(asked.id, Answer(question_id=asked.questions[0].id, outcome=Outcome.SKIPPED))
    assert await app.get(asked.id) == asked


async def test_the_same_answer_again_changes_nothing_and_another_one_is_refused() -> None:
    app, model = app_with(ASK, "Done.")
    asked = await app.start("Build it")
    done = await app.answer(asked.id, "Express", user="alice")
    for again in ("express", "1", {asked.questions[0].id: "EXPRESS"}):
        assert await app.answer(asked.id, again) == done
    with pytest.raises(AlreadyAnswered, match=r"by alice at .*Express"):
        await app.answer(asked.id, {asked.questions[0].id: "FastAPI"})
    assert len(model.requests) == 2


async def test_a_waiting_run_is_not_resumed_and_a_completed_one_is_over() -> None:
    app, _ = app_with(ASK, "Done.")
    asked = await app.start("Build it")
    with pytest.raises(RunNotWaiting, match=f"upcall answer {asked.id}"):
        await app.resume(asked.id)
    await app.answer(asked.id, "Express")
    for call in (app.resume(asked.id), app.cancel(asked.id)):
        with pytest.raises(RunNotWaiting, match="is completed"):
            await call


async def test_cancel_records_the_open_question_as_cancelled() -> None:
    app, _ = app_with(ASK)
    asked = await app.start("Build it")
    cancelled = await app.cancel(asked.id)
    assert (cancelled.status, cancelled.questions) == (RunStatus.CANCELLED, ())
    assert [answer.outcome for answer in cancelled.answers] == [Outcome.CANCELLED]
    assert await app.cancel(asked.id) == cancelled


async def test_a_run_cancelled_elsewhere_while_it_works_is_not_overwritten() -> None:
    app, model = app_with(Call("missing"), Hang(2))
    task = asyncio.create_task(app.start("Build it"))
    while len(model.requests) < 2:
        await asyncio.sleep(0.01)
    (run,) = await app.list()
    await Upcall(store="runs.db", team=lambda: solo(model)).cancel(run.id)
    with pytest.raises(RunConflict):
        await task
    assert (await app.get(run.id)).status is RunStatus.CANCELLED


async def test_a_run_does_not_go_on_with_another_team() -> None:
    app, _ = app_with(ASK)
    asked = await app.start("Build it")

    def other() -> Team:
        return Swarm(
            [PausableAgent("other", ScriptedModelClient([]))], termination_condition=HandoffTermination("user")
        )

    failed = await Upcall(store="runs.db", team=other).answer(asked.id, "Express")
    assert failed.status is RunStatus.FAILED
    assert "does not fit this team" in str(failed.error)


async def test_a_run_that_failed_on_another_team_goes_on_with_its_own() -> None:
    app, _ = app_with(ASK, "Done.")
    asked = await app.start("Build it")
    await Upcall(store="runs.db", team=lambda: RoundRobinGroupChat([Silent("x", "x")])).answer(asked.id, "Express")
    assert (await app.resume(asked.id)).result == "Done."


async def test_an_agent_state_of_another_version_is_refused_with_what_to_do() -> None:
    app, _ = app_with(ASK, "Done.")
    asked = await app.start("Build it")
    with sqlite3.connect("runs.db") as connection:
        connection.execute(
            'update upcall_checkpoints set state = replace(state, \'"version":1,"seen"\', \'"version":9,"seen"\')'
        )
    failed = await app.answer(asked.id, "Express")
    assert "stored state of agent 'solo' has version 9" in str(failed.error)


async def test_a_model_and_a_team_together_are_refused() -> None:
    model = ScriptedModelClient([])
    with pytest.raises(ConfigurationError, match="not both"):
        Upcall(model, team=lambda: solo(model))


async def test_nothing_is_stored_for_a_task_that_cannot_start() -> None:
    app = Upcall(ScriptedModelClient([]), store="runs.db")
    with pytest.raises(ConfigurationError, match="does not exist"):
        await app.start("Read it", documents=["missing.md"])
    assert await app.list() == []


@pytest.mark.filterwarnings("error")
async def test_no_warning_and_no_lost_exception_on_the_way() -> None:
    app, _ = app_with(ASK, Fail(500), "Done.")
    asked = await app.start("Build it")
    await app.answer(asked.id, "Express")
    assert (await app.resume(asked.id)).result == "Done."
    gc.collect()


def test_one_app_can_be_used_from_several_event_loops() -> None:
    """A script may call asyncio.run for each step; a model client's connections belong to one loop."""
    asked = '{"intent": "coding", "research_depth": "shallow"}'
    with LoopbackServer([asked, ASK, '{"summary": "Done."}']) as server:
        app = Upcall(store="runs.db", settings=Settings.read(model="m", base_url=server.base_url))
        run = asyncio.run(app.start("Build it"))
        done = asyncio.run(app.answer(run.id, "Express"))
    assert done.result == "Done."


async def test_a_question_to_a_user_proxy_of_another_name_fails_the_run_and_is_not_taken_for_its_result() -> None:
    model = ScriptedModelClient([ASK])

    def team() -> Team:
        agents = [PausableAgent("solo", model, user_proxy="boss"), UserProxyAgent("boss")]
        return Swarm(agents, termination_condition=HandoffTermination("boss"))

    run = await Upcall(store="runs.db", team=team).start("Build it")
    assert (run.status, run.result) == (RunStatus.FAILED, None)
    assert "the user proxy is called 'user'" in str(run.error)


async def test_a_cancelled_run_does_not_keep_the_error_it_failed_with() -> None:
    app, _ = app_with(Fail(500))
    failed = await app.start("Build it")
    assert (await app.cancel(failed.id)).error is None


async def test_nothing_in_the_stream_tells_of_a_question_before_it_is_stored() -> None:
    app, _ = app_with(ASK)
    told = [str(getattr(item, "content", "")) async for item in told_before_rest(app)]
    assert not any("Which framework?" in each for each in told)


async def told_before_rest(app: Upcall) -> AsyncGenerator[Any, None]:
    """The items of a stream that come before the run is stored as waiting."""
    async for item in app.start_stream("Build it"):
        if (await app.list())[0].waiting:
            return
        yield item


async def test_a_run_goes_on_with_its_own_model_where_the_caller_names_none() -> None:
    shallow = '{"intent": "coding", "research_depth": "shallow"}'
    with LoopbackServer([shallow, ASK, '{"summary": "Done."}']) as server:
        started = Upcall(store="runs.db", settings=Settings.read(model="m", base_url=server.base_url))
        run = await started.start("Build it")
        done = await Upcall(store="runs.db").answer(run.id, "Express")
    assert done.result == "Done."
