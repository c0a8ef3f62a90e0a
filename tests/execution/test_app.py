"""The driver, on teams of the user's own and on faults that only it sees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.base import Response, Team
from autogen_agentchat.conditions import HandoffTermination, MaxMessageTermination
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm
from autogen_agentchat.ui import Console
from autogen_core import CancellationToken
from conversation import HANG_GUARD
from foreign import ForeignAgent
from scenario import for_team, requests_of
from worlds import solo

from upcall import Answer, Outcome, PausableAgent, Run, RunStatus, Settings, Upcall
from upcall.agents.toolset import Tool
from upcall.errors import (
    AlreadyAnswered,
    AnswerRefused,
    CallerError,
    ConfigurationError,
    RunConflict,
    RunNotWaiting,
    UnknownQuestion,
)
from upcall.runs.plan import ReviewedPlan
from upcall.storage.store import RunStore
from upcall.testing import Call, Calls, Fail, Hang, Reply, ScriptedModelClient
from upcall.testing.server import LoopbackServer
from upcall.ui.cli.answer_arguments import read_arguments

ASK = Call("ask_user", {"question": "Which framework?", "options": ["Express", "FastAPI"]})


def app_with(*replies: Reply, **options: Any) -> tuple[Upcall, ScriptedModelClient]:
    model = ScriptedModelClient(replies)
    return Upcall(store="runs.db", team=solo(model, **options)), model


async def test_team_of_ones_own_pauses_and_continues_when_rebuilt() -> None:
    app, model = app_with(ASK, "Done with Express.")
    asked = await app.start("Build it", user="alice")
    done = await Upcall(store="runs.db", team=solo(model)).answer(asked.id, "express", user="alice")
    assert (asked.status, asked.questions[0].path) == (RunStatus.AWAITING_CLARIFICATION, ("solo",))
    assert (done.status, done.result, done.answers[0].user) == (RunStatus.COMPLETED, "Done with Express.", "alice")
    assert len(model.requests) == 2


async def test_run_is_the_last_item_of_a_stream() -> None:
    app, _ = app_with("Done.")
    items = [item async for item in app.start_stream("Build it")]
    assert isinstance(items[-1], Run)
    assert not any(isinstance(item, Run) for item in items[:-1])


async def test_number_beyond_the_options_is_refused_like_in_commands() -> None:
    app, _ = app_with(ASK, "Done.")
    asked = await app.start("Build it")
    with pytest.raises(AnswerRefused) as in_python:
        await app.answer(asked.id, "7")
    with pytest.raises(AnswerRefused) as on_the_command_line:
        read_arguments(asked, ["7"], (), ())
    as_typed = str(in_python.value).replace('"7"', "'\"7\"'")
    assert as_typed == str(on_the_command_line.value)


@pytest.mark.parametrize("named", ["deadbeef=Express", "dead=Express", "123456789abc=Express"])
async def test_answer_to_what_looks_like_another_id_is_refused(named: str) -> None:
    app, _ = app_with(ASK, "Done.")
    asked = await app.start("Build it")
    with pytest.raises(CallerError, match=f"names no question of run {asked.id}.*{asked.questions[0].id}"):
        read_arguments(asked, [named], (), ())
    assert read_arguments(asked, ["size=3"], (), ()) == "size=3"


async def test_questions_asked_together_share_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write holds all questions of its run: with one each, a thousand questions would cost a million."""
    count, writes, save = 100, list[Run](), RunStore.save
    monkeypatch.setattr(
        RunStore, "save", lambda self, *args, **more: (writes.append(args[1]), save(self, *args, **more))[1]
    )
    asks = Calls([Call("ask_user", {"question": f"What is the name of part {n}?"}) for n in range(count)])
    app = Upcall(
        store="runs.db",
        team=solo(ScriptedModelClient([asks]), max_questions=count),
        settings=Settings.read(None, questions={"max_questions_run": count}),
    )
    asked = await app.start("Build it")
    assert (len(asked.questions), len(writes) < count / 4) == (count, True)


async def test_answer_is_stored_before_the_team_continues() -> None:
    app, _ = app_with(ASK, Fail(500), "Done.")
    asked = await app.start("Build it")
    failed = await app.answer(asked.id, "Express")
    assert (failed.status, failed.answers[0].text) == (RunStatus.FAILED, "Express")
    assert (await app.resume(asked.id)).result == "Done."


async def test_any_other_team_completes_with_its_last_message() -> None:
    model = ScriptedModelClient(["One.", "Two."])

    def team() -> Team:
        agents = [AssistantAgent("one", model), AssistantAgent("two", model)]
        return RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(3))

    assert (await Upcall(store="runs.db", team=team).start("Talk")).result == "Two."


class Silent(ForeignAgent):
    """An agent that says nothing."""

    async def speak(self, messages: Sequence[BaseChatMessage]) -> str:
        return " "


async def test_empty_result_is_a_failure_that_says_so() -> None:
    app = Upcall(store="runs.db", team=lambda: RoundRobinGroupChat([Silent("silent", "says nothing")], max_turns=1))
    run = await app.start("Talk")
    assert (run.status, run.result) == (RunStatus.FAILED, None)
    assert "without a result" in str(run.error)


class Broken(Silent):
    """An agent of somebody else that raises."""

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        raise ZeroDivisionError("division\nby zero")


async def test_exception_of_a_foreign_agent_is_one_line() -> None:
    app = Upcall(store="runs.db", team=lambda: RoundRobinGroupChat([Broken("broken", "raises")], max_turns=1))
    run = await app.start("Talk")
    assert run.status is RunStatus.FAILED
    line = Broken.on_messages.__code__.co_firstlineno + 1
    assert str(run.error).startswith(f"Agent 'broken' failed ({__file__}, line {line}): ZeroDivisionError: division.")
    assert "\n" not in str(run.error)


async def test_traceback_is_logged_for_bugs_not_model_failures(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing = ScriptedModelClient([Fail(500)])
    app = Upcall(store="runs.db", team=lambda: RoundRobinGroupChat([PausableAgent("solo", failing)], max_turns=1))
    assert "HTTP 500" in str((await app.start("Talk")).error)
    assert caplog.text == ""
    app = Upcall(store="runs.db", team=lambda: RoundRobinGroupChat([Broken("broken", "raises")], max_turns=1))
    await app.start("Talk")
    assert "ZeroDivisionError" in caplog.text


async def test_checkpoint_before_a_stock_agents_failed_segment_stands() -> None:
    """A stock agent's state after an error may hold half a batch; its segment is done again from the task."""
    model = ScriptedModelClient([Fail(500), "Done."])

    def team() -> Team:
        return RoundRobinGroupChat([AssistantAgent("stock", model)], max_turns=1)

    app = Upcall(store="runs.db", team=team)
    run = await app.start("Talk")
    assert (await app.resume(run.id)).result == "Done."
    assert [each["content"] for each in model.requests[-1].messages[1:]] == ["Talk"]


async def test_cancelled_task_stores_the_run_and_leaves_nothing_running() -> None:
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


async def test_task_cancelled_twice_stops_its_team_too() -> None:
    app, model = app_with(Hang(), "Done.")
    task = asyncio.create_task(app.start("Build it"))
    while not model.requests:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    async with asyncio.timeout(HANG_GUARD):
        while left := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(left)
    (run,) = await app.list()
    assert (await app.resume(run.id)).result == "Done."


async def test_run_without_a_worker_is_interrupted_until_resumed() -> None:
    app, model = app_with(Call("missing"), Hang(), "Done.")
    task = asyncio.create_task(app.start("Build it"))
    while len(model.requests) < 2:
        await asyncio.sleep(0.01)
    (at_work,) = await app.list()
    task.cancel()
    await asyncio.wait([task])
    stopped = await app.get(at_work.id)
    done = await app.resume(at_work.id)
    seen = [at_work, stopped, *await app.list(), done]
    assert [each.interrupted for each in seen[:2]] == [False, True]
    assert [(each.interrupted, each.status) for each in seen[2:]] == [(False, RunStatus.COMPLETED)] * 2


async def test_run_that_asked_nothing_takes_no_answer() -> None:
    app, _ = app_with("Done.")
    run = await app.start("Build it")
    with pytest.raises(RunNotWaiting, match="is completed and waits for no answer"):
        await app.answer(run.id, "Express")


async def test_task_that_is_no_text_is_refused() -> None:
    app, _ = app_with()
    with pytest.raises(ConfigurationError, match="not UTF-8 text"):
        await app.start("caf\udce9")


async def test_task_itself_is_never_the_result() -> None:
    def team() -> Team:
        return RoundRobinGroupChat([Silent("x", "x")], termination_condition=MaxMessageTermination(1))

    run = await Upcall(store="runs.db", team=team).start("Build it")
    assert (run.status, run.result) == (RunStatus.FAILED, None)


@pytest.mark.slow
async def test_answers_to_two_questions_at_once_both_count() -> None:
    asks = Calls([ASK, Call("ask_user", {"question": "Which database?"})])
    app, model = app_with(asks, "Done.")
    asked = await app.start("Build it")
    given = zip(asked.questions, ("Express", "SQLite"), strict=True)
    await asyncio.gather(*(app.answer(asked.id, {question.id: text}) for question, text in given))
    done = await app.get(asked.id)
    assert (done.status, {each.text for each in done.answers}) == (RunStatus.COMPLETED, {"Express", "SQLite"})
    assert len(model.requests) == 2


async def test_two_answers_at_once_do_the_work_once() -> None:
    app, model = app_with(ASK, "Done.")
    asked = await app.start("Build it")
    tries = [app.answer(asked.id, "Express") for _ in range(2)]
    ended = await asyncio.gather(*tries, return_exceptions=True)
    assert all(isinstance(each, Run | RunConflict | RunNotWaiting) for each in ended)
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


async def test_answer_repeated_changes_nothing_and_another_is_refused() -> None:
    app, model = app_with(ASK, "Done.")
    asked = await app.start("Build it", user="alice")
    done = await app.answer(asked.id, "Express", user="alice")
    for again in ("express", "1", {asked.questions[0].id: "EXPRESS"}):
        assert await app.answer(asked.id, again) == done
    first = asked.questions[0].id
    with pytest.raises(
        AlreadyAnswered, match=rf"by alice at .*Express.*: upcall fork {asked.id} {first} ANSWER$"
    ) as no:
        await app.answer(asked.id, {first: "FastAPI"})
    assert no.value.question_id == first
    assert len(model.requests) == 2


async def test_resume_refuses_waiting_and_completed_runs() -> None:
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


@pytest.mark.slow
async def test_run_cancelled_elsewhere_at_work_is_not_overwritten() -> None:
    app, model = app_with(Call("missing"), Hang(2))
    task = asyncio.create_task(app.start("Build it"))
    while len(model.requests) < 2:
        await asyncio.sleep(0.01)
    (run,) = await app.list()
    await Upcall(store="runs.db", team=solo(model)).cancel(run.id)
    with pytest.raises(RunConflict):
        await task
    assert (await app.get(run.id)).status is RunStatus.CANCELLED


async def test_model_and_a_team_together_are_refused() -> None:
    model = ScriptedModelClient([])
    with pytest.raises(ConfigurationError, match="not both"):
        Upcall(model, team=solo(model))


@pytest.mark.needs("research")
async def test_nothing_is_stored_for_a_task_that_cannot_start() -> None:
    app = Upcall(ScriptedModelClient([]), store="runs.db")
    with pytest.raises(ConfigurationError, match="does not exist"):
        await app.start("Read it", documents=["missing.md"])
    assert await app.list() == []


@pytest.mark.needs("workspace")
def test_one_app_can_be_used_from_several_event_loops() -> None:
    """A script may call asyncio.run for each step; a model client's connections belong to one loop."""
    asked = '{"intent": "coding", "research_depth": "shallow"}'
    with LoopbackServer([asked, ASK, "Done.", "Done."]) as server:
        app = Upcall(store="runs.db", settings=Settings.read(models={"model": "m", "base_url": server.base_url}))
        run = asyncio.run(app.start("Build it"))
        done = asyncio.run(app.answer(run.id, "Express"))
    assert done.result == "Done."


async def test_question_to_an_unknown_user_proxy_fails_the_run() -> None:
    model = ScriptedModelClient([ASK])

    def team() -> Team:
        agents = [PausableAgent("solo", model, user_proxy="boss"), UserProxyAgent("boss")]
        return Swarm(agents, termination_condition=HandoffTermination("boss"))

    run = await Upcall(store="runs.db", team=team).start("Build it")
    assert (run.status, run.result) == (RunStatus.FAILED, None)
    assert "the user proxy is called 'user'" in str(run.error)


async def test_cancelled_run_drops_the_error_it_failed_with() -> None:
    app, _ = app_with(Fail(500))
    failed = await app.start("Build it")
    assert (await app.cancel(failed.id)).error is None


async def test_stream_emits_no_question_before_it_is_stored() -> None:
    app, _ = app_with(ASK)
    emitted = [str(getattr(item, "content", "")) async for item in emit_before_stored(app)]
    assert not any("Which framework?" in each for each in emitted)


async def emit_before_stored(app: Upcall) -> AsyncGenerator[Any, None]:
    """Yield the items of a stream that come before the question is stored."""
    async for item in app.start_stream("Build it"):
        if not (await app.list())[0].questions:
            yield item


@pytest.mark.needs("workspace")
async def test_run_keeps_its_own_model_where_none_is_named() -> None:
    shallow = '{"intent": "coding", "research_depth": "shallow"}'
    with LoopbackServer([shallow, ASK, "Done.", "Done."]) as server:
        started = Upcall(store="runs.db", settings=Settings.read(models={"model": "m", "base_url": server.base_url}))
        run = await started.start("Build it")
        done = await Upcall(store="runs.db").answer(run.id, "Express")
    assert done.result == "Done."


# -- what the root team is started with -------------------------------------------------------------------------------

SHALLOW = '{"intent": "research", "research_depth": "shallow"}'
DEEP = '{"intent": "research", "research_depth": "deep"}'
CLEAR = '{"needs_clarification": false}'
PLAN = '{"title": "Energy", "sections": ["Wind"], "steps": []}'
FOUND = '{"summary": "Japan follows."}'
DONE = '{"summary": "All done."}'


def rooted(**output: Sequence[Reply]) -> ScriptedModelClient:
    """Return a model for the root team; an agent that is not named says nothing."""
    return ScriptedModelClient(for_team(**output))


def deep(**changed: Sequence[Reply]) -> ScriptedModelClient:
    """Return a model for a deep task in which nobody asks."""
    fields: dict[str, Sequence[Reply]] = {
        "classifier": [DEEP],
        "clarifier": [CLEAR],
        "planner": [CLEAR, PLAN],
        "lead": [DONE],
    }
    return rooted(**fields | changed)


def root_app(model: ScriptedModelClient, *own_tools: Tool, **settings: Any) -> Upcall:
    return Upcall(model, store="runs.db", tools=own_tools, settings=Settings.read(None, **settings))


def text(source: str, content: str) -> TextMessage:
    return TextMessage(source=source, content=content)


EARLIER = [text("user", "Who leads in wind?"), text("assistant", "Germany.")]


async def test_history_precedes_the_task_with_order_and_roles() -> None:
    """S2-06, S2-14."""
    with deep(lead=[FOUND]) as model:
        run = await root_app(model).start("And in Japan?", history=EARLIER)
    assert (run.task, run.result) == ("And in Japan?", "Japan follows.")
    assert [(each["role"], each["content"]) for each in model.requests[0].messages[1:]] == [
        ("user", "Who leads in wind?"),
        ("assistant", "Germany."),
        ("user", "And in Japan?"),
    ]
    assert "Germany." in str(requests_of(model, "lead")[0].messages)


async def test_history_is_no_part_of_the_planned_request() -> None:
    """S3-36: the request is the task, and the history is not repeated after a pause."""
    ask = '{"needs_clarification": true, "clarification_question": "Which year?"}'
    with deep(clarifier=[ask, CLEAR]) as model:
        asked = await root_app(model).start("And in Japan?", history=EARLIER)
        done = await root_app(model).answer(asked.id, "2020")
    assert done.status is RunStatus.COMPLETED
    for request in requests_of(model, "planner"):
        assert "And in Japan?" in request.system
        assert "Which year? - 2020" in request.system
        assert "Germany." not in str(request.body)
    assert str(requests_of(model, "lead")[0].messages).count("Germany.") == 1


@pytest.mark.parametrize("member", ["classifier", "researcher", "lead"])
async def test_history_may_name_the_agents_of_earlier_runs(member: str) -> None:
    """The result of a run is stated by one of its agents; to give it as history must not end the next run with it."""
    with deep(lead=[FOUND]) as model:
        run = await root_app(model).start(
            "And in Japan?", history=[text("user", "Who leads in wind?"), text(member, "Germany.")]
        )
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Japan follows.")


async def test_history_speakers_had_no_turn_in_the_run() -> None:
    """S3-23."""
    with deep() as model:
        run = await root_app(model).start("And in Japan?", history=EARLIER)
    assert run.execution_path == ("classifier", "clarifier", "planner", "lead")


async def test_history_itself_is_never_the_result() -> None:
    def team() -> Team:
        return RoundRobinGroupChat([Silent("x", "x")], termination_condition=MaxMessageTermination(3))

    run = await Upcall(store="runs.db", team=team).start("And in Japan?", history=EARLIER)
    assert (run.status, run.result) == (RunStatus.FAILED, None)


@pytest.mark.parametrize(
    ("agent", "status"),
    [
        ("clarifier", RunStatus.PLANNING),
        ("lead", RunStatus.EXECUTING),
    ],
)
async def test_resumed_run_has_the_status_of_the_failed_agent(agent: str, status: RunStatus) -> None:
    """S3-21, S3-23."""
    failing: Sequence[Reply] = [Fail(500)]
    failed = await root_app(deep(**{agent: failing})).start("And in Japan?")
    app = root_app(deep())
    seen = [(await app.get(failed.id)).status async for _ in app.resume_stream(failed.id)]
    assert failed.execution_path[-1] == agent
    assert seen[0] is status


@pytest.mark.needs("research")
async def test_user_info_and_sources_come_from_start_or_settings() -> None:
    """S2-15, S2-16."""
    ada, bob = {"name": "Ada"}, {"name": "Bob"}
    for given, expected in (({}, (bob, [])), ({"user_info": ada, "data_sources": ["documents"]}, (ada, ["documents"]))):
        with rooted(classifier=[SHALLOW], researcher=[FOUND]) as model:
            run = await root_app(model, users={"user_info": bob}, research={"data_sources": []}).start(
                "And in Japan?", **given
            )
        assert run.config.team
        assert (run.config.team.user_info, run.config.team.data_sources) == expected
        assert f"The user is {expected[0]['name']}." in model.requests[0].system


@pytest.mark.needs("research")
async def test_data_source_that_is_unknown_is_refused_before_storing() -> None:
    app = root_app(ScriptedModelClient([]), search_web)
    with pytest.raises(ConfigurationError, match=r"no data source 'search_wep'\. Known: documents, search_web"):
        await app.start("And in Japan?", data_sources=["search_wep"])
    assert await app.list() == []


def search_web(query: str) -> str:
    """Search the web."""
    return f"Found: {query}"


COMPONENT: dict[str, Any] = {
    "provider": "autogen_core.tools.FunctionTool",
    "component_type": "tool",
    "config": {
        "name": "look_up_law",
        "description": "Look up a law.",
        "source_code": "def look_up_law(name: str) -> str:\n    return name\n",
        "global_imports": [],
        "has_cancellation_support": False,
    },
}


@pytest.mark.needs("research")
@pytest.mark.filterwarnings("ignore:(?s).*SECURITY WARNING")
async def test_researcher_has_tools_of_the_program_and_settings() -> None:
    """S2-22: the classifier sees both."""
    look = Call("look_up_law", {"name": "EEG"})
    with rooted(classifier=[SHALLOW], researcher=[Call("search_web", {"query": "wind"}), look, FOUND]) as model:
        await root_app(model, search_web, team={"tools": [COMPONENT]}).start("And in Japan?")
    emitted = model.requests[0].system
    assert "- search_web: Search the web." in emitted
    assert "- look_up_law: Look up a law." in emitted
    assert list(requests_of(model, "researcher")[-1].tool_results.values()) == ["Found: wind", "EEG"]


def test_tools_and_a_team_together_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="tools or a team, not both"):
        Upcall(team=solo(ScriptedModelClient([])), tools=[search_web])


PINNED: list[Any] = [
    pytest.param("team", "enable_clarifier", False, id="enable_clarifier"),
    pytest.param("team", "enable_escalation", False, id="enable_escalation"),
    pytest.param("planning", "skip_ambiguity_check", True, id="skip_ambiguity_check"),
    pytest.param("planning", "enable_plan_approval", True, id="enable_plan_approval"),
    pytest.param("planning", "max_plan_iterations", 2, id="max_plan_iterations"),
    pytest.param("planning", "at_plan_limit", "pause", id="at_plan_limit"),
    pytest.param("questions", "check_questions", True, id="check_questions"),
    pytest.param("questions", "max_turns", 7, id="max_turns"),
    pytest.param("planning", "max_clarifications", 7, id="max_clarifications"),
    pytest.param("users", "user_info", {"name": "Ada"}, id="user_info"),
    pytest.param("research", "data_sources", ["documents"], id="data_sources"),
]


@pytest.mark.needs("research")
@pytest.mark.parametrize(("section", "name", "value"), PINNED)
async def test_run_keeps_how_its_team_works(section: str, name: str, value: Any) -> None:
    """S3-35: through the file, and through drivers whose settings say something else."""
    ask = Call("ask_user", {"question": "Which year?"})
    with rooted(classifier=[SHALLOW], researcher=[ask, FOUND]) as model:
        asked = await root_app(model, **{section: {name: value}}).start("And in Japan?")
        done = await root_app(model).answer(asked.id, "2020")
    assert getattr(done.config.team, name) == value
    assert done.config == asked.config


async def test_run_keeps_its_prompts_wherever_it_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "plan_generation.j2").write_text(
        "You are the planner with prompts of its own. {{ clarifier_context }}{{ feedback_history }}"
        "{{ available_handlers }}{{ available_tools }}"
    )
    ask = '{"needs_clarification": true, "clarification_question": "Which year?"}'
    store = tmp_path / "runs.db"
    with deep(clarifier=[ask, CLEAR]) as model:
        first = Upcall(model, store=store, settings=Settings.read(None, team={"prompts": "mine"}))
        asked = await first.start("And in Japan?")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        await Upcall(model, store=store, settings=Settings.read(None)).answer(asked.id, "2020")
    assert requests_of(model, "planner")[-1].system.startswith("You are the planner with prompts of its own.")


async def test_plan_of_a_run_is_stored_as_reviewed() -> None:
    """S0-25 to S0-29, S0-37."""
    with deep(planner=[CLEAR, PLAN, PLAN.replace('"Wind"', '"Wind", "Sun"')]) as model:
        app = root_app(model, planning={"enable_plan_approval": True})
        run = await app.start("And in Japan?")
        for output in ("Add the sun", "approve"):
            run = await app.answer(run.id, output)
    stored = await root_app(ScriptedModelClient([])).get(run.id)
    assert isinstance(stored.plan, ReviewedPlan)
    assert stored.plan == run.plan
    assert (stored.plan.title, stored.plan.sections) == ("Energy", ("Wind", "Sun"))
    assert stored.plan.feedback == ("Add the sun",)
    assert (stored.clarifier_result.plan_approved, stored.clarifier_result.plan_rejected) == (True, False)


async def test_tools_named_in_settings_are_all_an_agent_sees() -> None:
    """S0-43, S2-22."""

    def search_papers(query: str) -> str:
        """Search papers."""
        return query

    blocks = {
        "door": {"_type": "intent_classifier", "llm": "m", "tools": ["search_web"]},
        "scope": {"_type": "clarifier_agent", "llm": "m", "tools": ["search_papers", "search_wep"]},
    }
    with deep() as model:
        app = root_app(model, search_web, search_papers, functions=blocks, llms={"m": {"model": "m"}})
        await app.start("And in Japan?")
    shown = {
        agent: {name for name in ("search_web", "search_papers") if name in requests_of(model, agent)[0].system}
        for agent in ("classifier", "clarifier")
    }
    assert shown == {"classifier": {"search_web"}, "clarifier": {"search_papers"}}
    (note,) = [note for note in app.warnings if "search_wep" in note]
    assert "there is: search_papers, search_web" in note


async def test_console_of_autogen_returns_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    app, _ = app_with("Done.")
    run = await Console(app.start_stream("Build it."), output_stats=True)
    assert (run.status, run.result) == ("completed", "Done.")
    assert "Finish reason: Text message received from 'solo'" in capsys.readouterr().out
    assert run.stop_reason == (await app.get(run.id)).stop_reason


async def test_max_rounds_reached_does_not_look_like_success() -> None:
    def look() -> str:
        """Look."""
        return "Nothing."

    app, _ = app_with(Call("look"), tools=[look], max_rounds=1)
    run = await app.start("Build it.")
    assert run.stop_reason == "max_rounds"
    assert "completed (not finished: an agent used up its model calls; raise max_rounds)" in str(run)
