"""`upcall.ask` in code that wraps, replaces or drops its exception, in threads, and where nobody can wait."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

import anyio
import pytest
from autogen_agentchat.agents import ApprovalResponse, AssistantAgent, BaseChatAgent, CodeExecutorAgent
from autogen_agentchat.base import ChatAgent, Response, Team
from autogen_agentchat.conditions import FunctionalTermination
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, SelectorGroupChat
from autogen_core import CancellationToken
from autogen_core.memory import ListMemory
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.tools import StaticWorkbench, ToolResult
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from upcall import PausableAgent, Run, RunStatus, Upcall, UserInputRequired, ask
from upcall.agents.toolset import Tool
from upcall.errors import AskedOutsideTool
from upcall.questions.tool_context import tool_context
from upcall.testing import Call, Calls, ScriptedModelClient
from upcall.testing.model import Request

SHARED = ThreadPoolExecutor(2)
"""A pool that is older than every call."""


def ask_class(to: str = "Oslo") -> str:
    return ask(f"Which class to {to}?", ["1st", "2nd"]).text


async def ask_class_async(to: object = "Oslo") -> str:
    return ask_class(str(to))


def replaces(to: str) -> str:
    try:
        return ask_class(to)
    except UserInputRequired:
        raise RuntimeError("gave up after 3 attempts") from None


def wraps_twice(to: str) -> str:
    try:
        return replaces(to)
    except Exception as error:
        raise ValueError("no ticket") from error


def drops(to: str) -> str:
    with contextlib.suppress(Exception):
        return ask_class(to)
    return "no class"


def drops_all(to: str) -> str:
    try:
        return ask_class(to)
    except BaseException:  # noqa: BLE001  (what the test is about)
        return "no class"


def raises_in_a_group(to: str) -> str:
    try:
        return ask_class(to)
    except UserInputRequired as error:
        raise ExceptionGroup("all", [KeyError("x"), ExceptionGroup("one", [error])]) from None


def ends_the_program(to: str) -> str:
    try:
        return ask_class(to)
    except UserInputRequired:
        raise SystemExit(2) from None


async def in_a_task_group(to: str) -> str:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(ask_class_async(to))
    return task.result()


async def in_groups_in_groups(to: str) -> str:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(in_a_task_group(to))
        group.create_task(asyncio.sleep(0))
    return task.result()


async def in_a_group_of_anyio(to: str) -> str:
    texts: list[str] = []

    async def work() -> None:
        texts.append(await anyio.to_thread.run_sync(ask_class, to))

    async with anyio.create_task_group() as group:
        group.start_soon(work)
    return texts[0]


async def in_errors_returned(to: str) -> str:
    return str((await asyncio.gather(ask_class_async(to), return_exceptions=True))[0])


async def in_a_task_not_looked_at(to: str) -> str:
    done, _ = await asyncio.wait([asyncio.ensure_future(ask_class_async(to))])
    (task,) = done
    return "no class" if task.exception() else task.result()


def in_a_pool(to: str) -> str:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(ask_class, to).result()


def in_a_shared_pool(to: str) -> str:
    return SHARED.submit(ask_class, to).result()


def in_a_map(to: str) -> str:
    return next(iter(SHARED.map(ask_class, [to])))


def in_a_pool_in_a_pool(to: str) -> str:
    return SHARED.submit(in_a_pool, to).result()


def in_a_pool_of_multiprocessing(to: str) -> str:
    with ThreadPool(1) as pool:
        return pool.apply(ask_class, (to,))


async def in_an_executor(to: str) -> str:
    return await asyncio.get_running_loop().run_in_executor(SHARED, ask_class, to)


def in_a_thread(to: str) -> str:
    texts: list[str] = []

    def work() -> None:
        with contextlib.suppress(UserInputRequired):
            texts.append(ask_class(to))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return texts[0]


def in_a_loop_of_its_own(to: str) -> str:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, ask_class_async(to)).result()


WAYS = [
    replaces,
    wraps_twice,
    drops,
    drops_all,
    raises_in_a_group,
    ends_the_program,
    in_a_task_group,
    in_groups_in_groups,
    in_a_group_of_anyio,
    in_errors_returned,
    in_a_task_not_looked_at,
    in_a_pool,
    in_a_shared_pool,
    in_a_map,
    in_a_pool_in_a_pool,
    in_a_pool_of_multiprocessing,
    in_an_executor,
    in_a_thread,
    in_a_loop_of_its_own,
]


def replying(*calls: Call) -> ScriptedModelClient:
    def reply(request: Request) -> Any:
        return f"Booked: {', '.join(request.tool_results.values())}" if request.tool_results else Calls(calls)

    return ScriptedModelClient(reply)


def ours(tool: Tool, *calls: Call) -> ChatAgent:
    return PausableAgent("agent", replying(*calls), tools=[tool])


def stock(tool: Tool, *calls: Call) -> ChatAgent:
    return AssistantAgent("agent", replying(*calls), tools=[tool], reflect_on_tool_use=True)


async def run_with(make: Callable[[], Team | ChatAgent], *answers: str) -> Run:
    """Return a run whose answers are given by other apps, one a question."""

    def app() -> Upcall:
        def team() -> Team:
            made = make()
            return RoundRobinGroupChat([made], max_turns=1) if isinstance(made, ChatAgent) else made

        return Upcall(store="runs.db", team=team)

    run = await app().start("Go")
    for answer in answers:
        assert run.waiting, run.error
        run = await app().answer(run.id, {run.questions[0].id: answer})
    return run


@pytest.mark.parametrize("agent", [ours, pytest.param(stock, marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", WAYS)
async def test_question_leaves_a_tool_that_swallows_exceptions(agent: Any, way: Any) -> None:
    def book(to: str) -> Any:
        """Book."""
        return way(to)

    async def book_async(to: str) -> Any:
        """Book."""
        return await way(to)

    tool = book_async if asyncio.iscoroutinefunction(way) else book
    run = await run_with(lambda: agent(tool, Call(tool.__name__, {"to": "Oslo"})), "2nd")
    assert run.result == "Booked: 2nd"


@pytest.mark.parametrize("agent", [ours, stock])
async def test_calls_at_once_get_their_answers_in_one_pool(agent: Any) -> None:
    def book(to: str) -> str:
        """Book."""
        return in_a_shared_pool(to)

    calls = [Call("book", {"to": "Oslo"}), Call("book", {"to": "Rome"})]
    run = await run_with(lambda: agent(book, *calls), "2nd", "1st")
    assert run.result == "Booked: 2nd, 1st"


async def test_workbench_that_makes_texts_of_errors_asks() -> None:
    class Texts(StaticWorkbench):
        async def call_tool(self, name: str, *given: Any, **named: Any) -> ToolResult:
            return await super().call_tool(name, *given, **named)

    def team() -> ChatAgent:
        from upcall.agents.toolset import as_tool

        def book(to: str) -> str:
            """Book."""
            return ask_class(to)

        return PausableAgent("agent", replying(Call("book", {"to": "Oslo"})), workbench=Texts([as_tool(book)]))

    assert (await run_with(team, "2nd")).result == "Booked: 2nd"


@pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor")
async def test_function_that_approves_code_asks_despite_dropping_the_question() -> None:
    classes: list[str] = []

    def approve(_: object) -> ApprovalResponse:
        classes.append(drops("Oslo"))
        return ApprovalResponse(approved=True, reason="")

    def team() -> ChatAgent:
        code = ScriptedModelClient(["```sh\necho ran\n```", "Done."])
        return CodeExecutorAgent(
            "agent", LocalCommandLineCodeExecutor(work_dir="code"), model_client=code, approval_func=approve
        )

    assert (await run_with(team, "2nd")).status is RunStatus.COMPLETED
    assert classes == ["no class", "2nd"]


def test_threads_outside_of_a_call_keep_their_context() -> None:
    with tool_context({}), ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        worker = pool._threads.copy().pop()  # type: ignore[attr-defined]
    assert "run" not in vars(worker)


async def test_question_after_the_end_of_its_call_is_refused() -> None:
    tasks: list[asyncio.Task[str]] = []

    async def later() -> str:
        await asyncio.sleep(0.01)
        return ask_class()

    async def book() -> str:
        """Book."""
        tasks.append(asyncio.create_task(later()))
        return "booked"

    assert (await run_with(lambda: ours(book, Call("book")))).result == "Booked: booked"
    with pytest.raises(AskedOutsideTool, match=r"ask_class \(.*test_ask_anywhere.py, line \d+\)"):
        await tasks[0]


async def test_question_in_a_foreign_thread_fails_the_run() -> None:
    old = ThreadPool(1)  # Its thread has begun already.

    def book() -> str:
        """Book."""
        return old.apply(ask_class)

    run = await run_with(lambda: ours(book, Call("book")))
    old.terminate()
    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert run.error.startswith("'Which class to Oslo?' was asked in ask_class (")


# -- where nobody can wait --------------------------------------------------------------------------------------------


class Own(BaseChatAgent):
    def __init__(self, turn: Callable[[], str] = lambda: "Hello.", saved: Callable[[], str] = lambda: "") -> None:
        super().__init__("own", "Of the program.")
        self._turn, self._saved = turn, saved

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        return Response(chat_message=TextMessage(content=self._turn(), source=self.name))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        self._turn()

    async def save_state(self) -> Mapping[str, Any]:
        return {"said": self._saved()}


class AskingMemory(ListMemory):
    async def update_context(self, model_context: Any) -> Any:
        ask_class()


class AskingContext(UnboundedChatCompletionContext):
    async def get_messages(self) -> Any:
        ask_class()


class AskingWorkbench(StaticWorkbench):
    async def list_tools(self) -> Any:
        ask_class()


class AskingClient(ScriptedModelClient):
    async def create(self, *given: Any, **named: Any) -> Any:
        ask_class()


def member(name: str, **parts: Any) -> AssistantAgent:
    return AssistantAgent(name, ScriptedModelClient(lambda _: "one"), **parts)


def select(**functions: Any) -> Team:
    model = ScriptedModelClient(lambda _: "one")
    return SelectorGroupChat([member("one"), member("two")], model, max_turns=2, **functions)


async def select_async(_: object) -> str:
    return ask_class()


def graph() -> Team:
    one, two = member("one"), member("two")
    builder = DiGraphBuilder().add_node(one).add_node(two).add_edge(one, two, condition=lambda _: bool(ask_class()))
    return GraphFlow([one, two], builder.build())


def ending() -> Team:
    return RoundRobinGroupChat(
        [member("one")], termination_condition=FunctionalTermination(lambda _: bool(ask_class()))
    )


def lead(agent: ChatAgent | Team) -> ChatAgent:
    return PausableAgent("lead", ScriptedModelClient([Call(agent.name, {"task": "go"}), "Done."]), agents=[agent])


PLACES: dict[str, Callable[[], Team | ChatAgent]] = {
    "selector_func": lambda: select(selector_func=lambda _: ask_class()),
    "async selector_func": lambda: select(selector_func=select_async),
    "candidate_func": lambda: select(candidate_func=lambda _: [ask_class()]),
    "edge of a graph": graph,
    "termination condition": ending,
    "turn": lambda: Own(ask_class),
    "turn or on_reset of a nested agent": lambda: lead(Own(ask_class)),
    "save_state": lambda: Own(saved=ask_class),
    "selector_func of a nested team": lambda: lead(select(selector_func=lambda _: ask_class())),
    "memory": lambda: member("one", memory=[AskingMemory()]),
    "memory of ours": lambda: PausableAgent("one", ScriptedModelClient([]), memory=[AskingMemory()]),
    "model context": lambda: member("one", model_context=AskingContext()),
    "workbench": lambda: member("one", workbench=AskingWorkbench([])),
    "workbench of ours": lambda: PausableAgent("one", ScriptedModelClient([]), workbench=AskingWorkbench([])),
    "model client": lambda: AssistantAgent("one", AskingClient([])),
}


@pytest.mark.parametrize("place", PLACES)
async def test_question_where_nobody_can_wait_fails_the_run(place: str) -> None:
    run = await run_with(PLACES[place])
    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert "'Which class to Oslo?' was asked in ask_class (" in run.error
    assert "Ask in the function of a tool that an agent has" in run.error
    assert "\n" not in run.error


async def test_user_input_required_in_a_turn_fails_the_run() -> None:
    def turn() -> str:
        raise UserInputRequired("Which?")

    error = (await run_with(lambda: Own(turn))).error
    assert error is not None
    assert error.startswith("Agent 'own' raised UserInputRequired ('Which?') outside of a tool call: only the call")


async def test_question_of_a_tools_team_is_the_tools() -> None:
    async def book() -> str:
        """Book."""
        team = select(selector_func=lambda _: {"1st": "one", "2nd": "two"}[ask_class()])
        return (await team.run(task="Go")).messages[-1].source

    assert (await run_with(lambda: ours(book, Call("book")), "2nd")).result == "Booked: two"
