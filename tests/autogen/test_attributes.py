"""Agents that keep their memory in attributes and save none of it, through a pause and in a new team."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, MessageFilterAgent, MessageFilterConfig
from autogen_agentchat.base import ChatAgent, Response, Team
from autogen_agentchat.messages import BaseChatMessage, HandoffMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken, FunctionCall, Image
from autogen_core.memory import ListMemory, MemoryContent
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import AssistantMessage, UserMessage
from PIL import Image as Pictures
from pydantic import BaseModel, PrivateAttr

from upcall import PausableAgent, Settings, Upcall, make_resumable
from upcall.errors import SchemaMismatch
from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.testing import Call, Reply, ScriptedModelClient
from upcall.testing.model import Request


class Note(BaseModel):
    text: str
    at: datetime | None = None


class Sealed(BaseModel):
    text: str
    _delivered: list[str] = PrivateAttr(default_factory=list)


@dataclass
class Item:
    name: str
    tags: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Point:
    x: int


class Pair(NamedTuple):
    one: str
    two: Point


class Colour(Enum):
    RED = "red"


class Helper:
    """What an agent keeps its history in."""

    def __init__(self, server: object = None) -> None:
        self.delivered: list[str] = []
        self.server = server


class Slotted:
    __slots__ = ("delivered",)

    def __init__(self) -> None:
        self.delivered: list[str] = []


class Opaque:
    """Neither data nor open: its class has no parts."""


def pass_to(agent: BaseChatAgent) -> Callable[[Sequence[BaseChatMessage]], Any]:
    async def hear(messages: Sequence[BaseChatMessage]) -> str:
        return (await agent.on_messages(messages, CancellationToken())).chat_message.to_text()

    return hear


class Memo(BaseChatAgent):
    """Changes `value` in each of its turns, and says what `tell` says."""

    def __init__(self, value: Any = None, change: Callable[[Memo, list[str]], Any] | None = None) -> None:
        super().__init__("memo", "Remembers.")
        self.value, self._change = [] if change is None else value, change

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        delivered = [each.to_text() for each in messages]
        if self._change is None:
            self.value = [*self.value, *delivered]
            wording = self.value
        else:
            wording = self._change(self, delivered)
            wording = await wording if asyncio.iscoroutine(wording) else wording
        return Response(chat_message=TextMessage(content=f"I remember {wording}", source=self.name))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        pass


def replying(*, asks: bool = True) -> ScriptedModelClient:
    def reply(request: Request) -> Reply:
        return "Done." if request.tool_results or not asks else Call("ask_user", {"question": "Which?"})

    return ScriptedModelClient(reply)


def team_with(memo: ChatAgent, *, asks: bool = True) -> Team:
    return RoundRobinGroupChat([memo, PausableAgent("asker", replying(asks=asks), ask_user=asks)], max_turns=3)


async def run_with_pause(make: Callable[[], ChatAgent]) -> Run:
    """Return the run, its answer given by another app."""

    def app() -> Upcall:
        return Upcall(store="runs.db", team=lambda: team_with(make()), settings=Settings.read(None))

    run = await app().start("the task")
    return await app().answer(run.id, "this") if run.waiting else run


def add(value: Any) -> Callable[[Memo, list[str]], Any]:
    """Return a change that adds a value to those that the agent remembers."""

    def change(memo: Memo, emitted: list[str]) -> Any:
        memo.value = [*(memo.value or []), value]
        return len(memo.value), memo.value

    return change


def note_in(owner: Callable[[Memo], list[str]]) -> Callable[[Memo, list[str]], Any]:
    def change(memo: Memo, emitted: list[str]) -> Any:
        owner(memo).extend(emitted)
        return list(owner(memo))

    return change


PICTURE = Image(Pictures.new("RGB", (1, 1)))

DATA: dict[str, Any] = {
    "a message": TextMessage(source="user", content="x", id="m1", created_at=datetime(2026, 1, 2, tzinfo=UTC)),
    "a model's message": AssistantMessage(content=[FunctionCall(id="1", name="f", arguments="{}")], source="a"),
    "a picture": UserMessage(content=["look", PICTURE], source="a"),
    "a memory": MemoryContent(content="x", mime_type="text/plain"),
    "a model": Note(text="x", at=datetime(2026, 1, 2, tzinfo=UTC)),
    "a dataclass": Item("x", {"a"}),
    "a frozen one with slots": Point(3),
    "a named tuple": Pair("x", Point(3)),
    "an enum": Colour.RED,
    "numbers": (1, 2.5, float("inf"), 1 + 2j, Decimal("1.10"), True, None),
    "bytes": (b"x", bytearray(b"y")),
    "times": (datetime(2026, 1, 2, tzinfo=UTC), date(2026, 1, 2), time(1, 2), timedelta(days=2, microseconds=3)),
    "names": (UUID(int=3), Path("/x"), PurePosixPath("y")),
    "collections": ({1}, frozenset({2}), deque([1], 3), Counter("aab"), OrderedDict(a=1), defaultdict(list, a=[1])),
    "keys": ({1: 2, (3, 4): "x"}, {"$": "dict", "of": []}, {}),
}


@pytest.mark.parametrize("kind", DATA)
async def test_attributes_with_data_are_the_same_after_a_pause(kind: str) -> None:
    memo, fresh = Memo(None, add(DATA[kind])), Memo(None, add(DATA[kind]))
    team, new = make_resumable(team_with(memo, asks=False)), make_resumable(team_with(fresh, asks=False))
    await team.run(task="the task")
    await new.load_state(await team.save_state())
    assert [type(each) for each in fresh.value] == [type(each) for each in memo.value]
    assert str(fresh.value).replace("TzInfo(0)", "datetime.timezone.utc") == str(memo.value) or kind == "a picture"


INNER: dict[str, tuple[Callable[[], Any], Callable[[Memo, list[str]], Any]]] = {
    "a list changed in place": (list, note_in(lambda memo: memo.value)),
    "a list in a dictionary": (lambda: {"told": []}, note_in(lambda memo: memo.value["told"])),
    "a helper": (Helper, note_in(lambda memo: memo.value.delivered)),
    "a helper with slots": (Slotted, note_in(lambda memo: memo.value.delivered)),
    "a helper in a list": (lambda: [Helper(object())], note_in(lambda memo: memo.value[0].delivered)),
    "an agent like it": (Memo, lambda memo, delivered: pass_to(memo.value)(as_messages(delivered))),
    "an AssistantAgent": (
        lambda: AssistantAgent("inner", ScriptedModelClient(lambda request: f"{texts_in(request)}")),
        lambda memo, delivered: pass_to(memo.value)(as_messages(delivered)),
    ),
    "an agent in a list": (lambda: [Memo()], lambda memo, delivered: pass_to(memo.value[0])(as_messages(delivered))),
    "a model context": (UnboundedChatCompletionContext, lambda memo, delivered: add_to_context(memo.value, delivered)),
    "a ListMemory": (ListMemory, lambda memo, delivered: add_to_memory(memo.value, delivered)),
}


def as_messages(delivered: Sequence[str]) -> list[BaseChatMessage]:
    return [TextMessage(source="user", content=each) for each in delivered]


def texts_in(request: Request) -> list[str]:
    return [str(each["content"]) for each in request.messages if each["role"] == "user"]


async def add_to_context(context: UnboundedChatCompletionContext, delivered: Sequence[str]) -> list[str]:
    for each in delivered:
        await context.add_message(UserMessage(content=each, source="user"))
    return [str(each.content) for each in await context.get_messages()]


async def add_to_memory(memory: ListMemory, delivered: Sequence[str]) -> list[str]:
    for each in delivered:
        await memory.add(MemoryContent(content=each, mime_type="text/plain"))
    return [str(each.content) for each in memory.content]


@pytest.mark.parametrize("kind", INNER)
async def test_memory_below_an_attribute_comes_through_a_pause(kind: str) -> None:
    make, change = INNER[kind]
    plain = await team_with(Memo(make(), change), asks=False).run(task="the task")
    run = await run_with_pause(lambda: Memo(make(), change))
    assert "the task" in str(run.result)
    assert "this" not in str(run.result)
    assert run.result == plain.messages[-1].to_text()  # type: ignore[union-attr]


def set_to(make: Callable[[], Any], name: str = "value") -> Callable[[Memo, list[str]], Any]:
    return lambda memo, emitted: setattr(memo, name, make())


LOST = {
    "a new object": (set_to(Opaque, "page"), "page (Opaque)"),
    "an object of another library": (set_to(random.Random), "value (Random)"),
    "a function": (set_to(lambda: lambda: None), "value (function)"),
    "a generator": (set_to(lambda: (each for each in "ab")), "value (generator)"),
    "an object in a list": (add(Opaque()), "value.0 (Opaque)"),
    "a model with a private field": (set_to(lambda: make_sealed()), "value.0 (Sealed)"),
    "a new agent": (set_to(Memo), "value (Memo)"),
    "a list in itself": (set_to(lambda: in_itself()), "value.0 (list)"),
}


def make_sealed() -> Any:
    sealed = Sealed(text="x")
    sealed._delivered.append("secretly")
    return [sealed]


def in_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("kind", LOST)
async def test_pause_that_would_lose_memory_is_refused_by_name(kind: str) -> None:
    change, named = LOST[kind]
    run = await run_with_pause(lambda: Memo(None, change))
    assert run.status is RunStatus.FAILED
    assert str(run.error).startswith("Agent 'memo' (Memo) has changed what a pause would lose: ")
    assert f" {named}. " in str(run.error)
    assert "save_state and load_state" in str(run.error)


@pytest.mark.parametrize("make", [asyncio.Lock, asyncio.Event, CancellationToken, lambda: None])
async def test_what_orders_a_turn_is_not_missed(make: Callable[[], Any]) -> None:
    run = await run_with_pause(lambda: Memo(None, set_to(make)))
    assert run.status is RunStatus.COMPLETED


async def test_memory_that_plain_runs_cannot_keep_is_no_failure() -> None:
    app = Upcall(store="runs.db", team=lambda: team_with(Memo(None, set_to(Opaque)), asks=False))
    assert (await app.start("the task")).status is RunStatus.COMPLETED


async def test_state_holds_only_what_changed() -> None:
    quiet, busy = Memo("x" * 1000, lambda memo, emitted: "nothing"), Memo()
    for memo in (quiet, busy):
        await make_resumable(team_with(memo, asks=False)).run(task="the task")
    assert await quiet.save_state() == {"type": "BaseState", "version": "1.0.0"}
    assert (await busy.save_state())["upcall"] == {"changed": [[["value"], ["the task", "Done."]]]}


async def test_state_names_no_class_to_import() -> None:
    fresh = Memo()
    make_resumable(team_with(fresh))
    for name in ("os.system", "Popen", "Journal"):
        form = {"$": "type", "type": name, "of": {"text": "x"}}
        with pytest.raises(SchemaMismatch, match="attributes of agent 'memo' do not fit"):
            await fresh.load_state({"upcall": {"changed": [[["value"], form]]}})
    assert fresh.value == []


async def test_attribute_that_went_is_gone_in_the_new_agent() -> None:
    memo, fresh = Memo(None, lambda memo, emitted: memo.__dict__.pop("extra", None)), Memo(None, add(1))
    memo.extra = fresh.extra = "x"  # type: ignore[attr-defined]
    team, new = make_resumable(team_with(memo, asks=False)), make_resumable(team_with(fresh, asks=False))
    await team.run(task="the task")
    await new.load_state(await team.save_state())
    assert not hasattr(fresh, "extra")


async def test_failed_turn_leaves_the_attributes_as_they_were() -> None:
    def fail(memo: Memo, emitted: list[str]) -> Any:
        memo.value, memo.extra = [*memo.value, *emitted], 1  # type: ignore[attr-defined]
        raise ValueError("broken")

    memo = Memo(["before"], fail)
    with pytest.raises(RuntimeError, match="broken"):
        await make_resumable(team_with(memo)).run(task="the task")
    assert (memo.value, hasattr(memo, "extra")) == (["before"], False)


async def test_agents_that_know_each_other_are_saved_once() -> None:
    one, other = Memo(), Memo(None, add(1))
    one.friend, other.friend, one.own = other, one, Helper()  # type: ignore[attr-defined]
    one.own.back = one  # type: ignore[attr-defined]
    await make_resumable(team_with(one, asks=False)).run(task="the task")
    assert "the task" in str(await one.save_state())


async def test_filtered_agent_keeps_its_memory() -> None:
    run = await run_with_pause(lambda: MessageFilterAgent("memo", Memo(), MessageFilterConfig(per_source=[])))
    assert run.status is RunStatus.COMPLETED


class Asking(BaseChatAgent):
    """Hands off to the user in its first turn, and then says all it has received."""

    def __init__(self) -> None:
        super().__init__("asking", "Asks by a hand-off.")
        self.received: list[str] = []

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage, HandoffMessage)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        self.received += [each.to_text() for each in messages]
        if len(self.received) == 1:
            return Response(chat_message=HandoffMessage(source=self.name, target="user", content="Which one?"))
        return Response(chat_message=TextMessage(source=self.name, content=f"I received {self.received}"))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        self.received = []


async def test_agent_that_hands_off_receives_the_answer_alone() -> None:
    app = Upcall(store="runs.db", team=lambda: RoundRobinGroupChat([Asking(), Memo()], max_turns=2))
    run = await app.start("the task")
    run = await app.answer(run.id, "that")
    text = "I received ['the task', 'that']"
    assert run.result == f"I remember {['the task', 'Which one?', 'that', text]}"
