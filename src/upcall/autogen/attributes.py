"""The memory of an agent that keeps it in attributes and saves none of it, as AutoGen's surfers do.

Such an agent gets a `save_state` that stores what has changed since it was built, and a `load_state` that puts it into
a new one. Data is stored as JSON: plain values, AutoGen's messages, and models, dataclasses and enums that the agent's
own code names; agents, teams and model contexts in attributes store their own states. No class is imported by a name
found in a state: it is looked up among those that the new agent's code names. Helper objects of the agent's own package
are followed into their attributes. Anything else is compared by identity, and what a pause would lose is recorded in
the state, so that the pause can be refused (`refuse_loss`).
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from pathlib import Path, PosixPath, PurePosixPath
from types import FunctionType, MethodType
from typing import Any, TypeAlias, TypeVar, get_args, get_type_hints
from uuid import UUID
from weakref import WeakSet

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.messages import AgentEvent, ChatMessage
from autogen_core import CancellationToken, FunctionCall, Image
from autogen_core.memory import Memory, MemoryContent
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ChatCompletionClient, CreateResult, FunctionExecutionResult, LLMMessage, RequestUsage
from autogen_core.tools import BaseTool, Workbench
from pydantic import BaseModel, TypeAdapter, ValidationError

from upcall.autogen.internals import get_browser_address, list_browser_attributes, open_browser_at
from upcall.errors import AgentFailed, SchemaMismatch

AttributePath: TypeAlias = tuple[str | int, ...]
"""Where a value is: the attribute, then attributes, keys or numbers in it."""

_OURS = "upcall"
"""The key of the attributes in a saved state."""

_TAG = "$"
"""The key that marks a JSON object as the form of something other than a dictionary with plain keys."""

_REPLACED = ("save_state", "load_state", "on_messages_stream")
"""What this library sets on an agent."""

_MAX_DEPTH = 100

_MESSAGES = (*get_args(get_args(ChatMessage)[0]), *get_args(get_args(AgentEvent)[0]))
_MODEL_MESSAGES = (*get_args(get_args(LLMMessage)[0]), CreateResult, FunctionCall, FunctionExecutionResult)
_AUTOGENS = {each.__qualname__: each for each in (*_MESSAGES, *_MODEL_MESSAGES, RequestUsage, MemoryContent, Image)}

_SCALARS: Mapping[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    timedelta: (lambda each: str(each // timedelta(microseconds=1)), lambda text: timedelta(microseconds=int(text))),
    Decimal: (str, Decimal),
    UUID: (str, UUID),
    PosixPath: (str, Path),
    PurePosixPath: (str, PurePosixPath),
    bytes: (lambda each: base64.b64encode(each).decode(), base64.b64decode),
    bytearray: (lambda each: base64.b64encode(each).decode(), lambda text: bytearray(base64.b64decode(text))),
    complex: (str, complex),
    float: (repr, float),  # One that is not JSON.
}
"""Plain values that are not JSON, with their text and back."""

_SEQUENCES: Mapping[type, Callable[[list[Any]], Any]] = {
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    deque: deque,
}

_MAPPINGS = (dict, OrderedDict, Counter)

_MAPPING_NAMES: Mapping[str, Callable[[], Any]] = {each.__name__: each for each in (*_MAPPINGS, defaultdict)}

_FACTORIES = {each.__name__: each for each in (list, dict, set, int, float, str)}
"""What a `defaultdict` may make its values with."""

_SERVICES = (ChatCompletionClient, BaseTool, Workbench, CancellationToken, type, FunctionType, MethodType)
"""What an agent works with and does not remember with."""

_SCHEDULING = ("asyncio", "_asyncio", "threading", "_thread", "concurrent")

_losing: WeakSet[AgentAttributes] = WeakSet()

_saving: ContextVar[frozenset[int]] = ContextVar("upcall_saving", default=frozenset())
"""The agents that are being saved: one may lead to itself."""

T = TypeVar("T", bound=ChatAgent)


class NotData(Exception):
    """A value that is not data."""


@dataclass(frozen=True)
class _Data:
    json: Any


@dataclass(frozen=True, eq=False)
class _Live:
    """An object that is compared by identity."""

    value: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Live) and (
            self.value is other.value or (isinstance(self.value, MethodType) and self.value == other.value)
        )


@dataclass(frozen=True)
class _Inner:
    """An agent, a team or a model context, which has a state of its own."""

    value: Any


_Seen: TypeAlias = _Data | _Live | _Inner


def keep_attributes(agent: T) -> T:
    """Let an agent without a `save_state` of its own save what changes in its attributes. Returns the same agent."""
    if _has_no_state(agent) and not isinstance(getattr(agent.save_state, "__self__", None), AgentAttributes):
        attributes = AgentAttributes(agent)
        agent.save_state = attributes.save  # type: ignore[method-assign]
        agent.load_state = attributes.load  # type: ignore[method-assign]
        attributes.begin()
    return agent


def _has_no_state(agent: object) -> bool:
    return isinstance(agent, BaseChatAgent) and type(agent).save_state is BaseChatAgent.save_state


def refuse_loss(team_state: Mapping[str, Any]) -> None:
    """Refuse to pause with a state that lacks what an agent remembers.

    Raises:
        AgentFailed: it names the agent, the attribute and the remedy.
    """
    if _losing and (lost := next(_find_losses(team_state), None)) is not None:
        raise AgentFailed(lost)


def _find_losses(state: Any) -> Iterator[str]:
    if isinstance(state, Mapping):
        ours = state.get(_OURS)
        if isinstance(ours, Mapping) and isinstance(lost := ours.get("lost"), str):
            yield lost
    parts = state.values() if isinstance(state, Mapping) else state if isinstance(state, list | tuple) else ()
    for each in parts:
        yield from _find_losses(each)


class AgentAttributes:
    """The attributes of an agent, compared with those it had when it was built."""

    def __init__(self, agent: ChatAgent | Memory) -> None:
        self._agent: Any = agent
        kinds = [each for each in type(agent).__mro__ if each.__module__ != "builtins"]
        self._packages = {each.__module__.partition(".")[0] for each in kinds} | {"autogen_core"}
        self._types = dict(_list_named_types(kinds)) | _AUTOGENS
        self._plain: frozenset[type] = frozenset()
        self._left_out = frozenset((*_REPLACED, *list_browser_attributes(agent)))
        self._built: Mapping[AttributePath, _Seen] = {}

    def begin(self) -> None:
        """Take the attributes as they are now for those that the agent was built with. By then the agent has its
        `save_state`: one of those in its attributes may lead back to it."""
        self._built = self._look()

    async def save(self) -> Mapping[str, Any]:
        """Return the state: what has changed, and what of it is lost."""
        state: dict[str, Any] = {"type": "BaseState", "version": "1.0.0"}
        if id(self._agent) in _saving.get():
            return state  # It leads back to itself; the outer call saves it.
        token = _saving.set(_saving.get() | {id(self._agent)})
        try:
            changed, missing = await self._compare()
        finally:
            _saving.reset(token)
        lost = [_name(place, seen) for place, seen in missing.items()]
        ours: dict[str, Any] = {"changed": [[[*place], value] for place, value in changed.items()]} if changed else {}
        (_losing.add if lost else _losing.discard)(self)
        if lost:
            listed = ", ".join(lost)
            ours["lost"] = (
                f"Agent {self._agent.name!r} ({type(self._agent).__name__}) has changed what a pause would lose: "
                f"{listed}. Give its class save_state and load_state, or keep plain data there."
            )
        if (address := get_browser_address(self._agent)) is not None and list_browser_attributes(self._agent):
            ours["browser"] = address
        return {**state, **({_OURS: ours} if ours else {})}

    async def load(self, state: Mapping[str, Any]) -> None:
        """Load a state; what has not changed in it is as when the agent was built.

        Raises:
            SchemaMismatch: it does not fit the agent.
        """
        if id(self._agent) in _saving.get():
            return
        token = _saving.set(_saving.get() | {id(self._agent)})
        ours = state.get(_OURS, {})
        changed = {tuple(place): value for place, value in ours.get("changed", ())}
        try:
            self._restore({} if "lost" in ours else self._built, changed)
            for place, value in changed.items():
                if isinstance(value, dict) and value.get(_TAG) == "state":
                    await self._at(place).load_state(value["of"])
            if "browser" in ours:
                open_browser_at(self._agent, ours["browser"])
        except (LookupError, AttributeError, TypeError, ValueError, ValidationError) as error:
            raise SchemaMismatch(
                f"The stored attributes of agent {self._agent.name!r} do not fit {type(self._agent).__name__} "
                f"({type(error).__name__}). Resume the run with the team that stored it."
            ) from error
        finally:
            _saving.reset(token)

    async def _compare(self) -> tuple[dict[AttributePath, Any], dict[AttributePath, _Seen]]:
        """Return what has changed, and what is lost, by place."""
        now, changed, lost = self._look(), dict[AttributePath, Any](), list[AttributePath]()
        for place, seen in now.items():
            built = self._built.get(place)
            match seen:
                case _Inner():
                    inner: ChatAgent | Team | ChatCompletionContext = seen.value
                    # The new agent builds its own, and one of another kind could not take this state in.
                    if type(getattr(built, "value", None)) is type(inner):
                        changed[place] = {_TAG: "state", "of": dict(await inner.save_state())}
                    else:
                        lost.append(place)
                case _Data():
                    if seen != built:
                        changed[place] = seen.json
                case _Live():
                    # Another list or helper of the same kind is no loss: its parts are compared by themselves.
                    is_twin = type(seen.value) is type(getattr(built, "value", None)) and self._is_open(seen.value)
                    if seen != built and not is_twin and not _is_scheduling(seen.value):
                        lost.append(place)
        for place in self._built.keys() - now.keys():
            if not place[:-1] or place[:-1] in now:  # Otherwise it went with what held it.
                changed[place] = {_TAG: "gone"}
        # Whatever holds something lost is not data either; the message names the innermost, which the author can mend.
        holders = {place[:depth] for place in lost for depth in range(len(place))}
        return changed, {place: now[place] for place in lost if place not in holders}

    # -- looking ------------------------------------------------------------------------------------------------------

    def _look(self) -> dict[AttributePath, _Seen]:
        found: dict[AttributePath, _Seen] = {}
        self._look_into(self._agent, (), found, {id(self._agent)})
        return found

    def _look_into(
        self, owner: object, place: AttributePath, found: dict[AttributePath, _Seen], above: set[int]
    ) -> None:
        for key, value in _parts(owner):
            if not place and key in self._left_out:
                continue
            here = (*place, key)
            if isinstance(value, ChatAgent | Team | ChatCompletionContext):
                found[here] = _Inner(keep_attributes(value) if isinstance(value, ChatAgent) else value)
                continue
            try:
                found[here] = _Data(self._encode(value))
            except NotData:
                found[here] = _Live(value)
                if self._is_open(value) and id(value) not in above and len(here) < _MAX_DEPTH:
                    self._look_into(value, here, found, above | {id(value)})

    def _is_open(self, value: object) -> bool:
        """Whether an object's parts are looked at: a container, or a helper from the agent's own package."""
        if type(value) in (list, tuple, dict):
            return True
        return type(value).__module__.partition(".")[0] in self._packages and not isinstance(value, _SERVICES)

    def _encode(self, value: Any, depth: int = 0) -> Any:
        """Return the JSON of a value.

        Raises:
            NotData: there is none.
        """
        kind = type(value)  # Exactly: a subclass may hold more than the form of its base shows.
        if value is None or kind in (bool, int, str) or (kind is float and math.isfinite(value)):
            return value
        if depth > _MAX_DEPTH:
            raise NotData
        if kind is list:
            return [self._encode(each, depth + 1) for each in value]
        if kind is dict and all(type(key) is str for key in value) and _TAG not in value:
            return {key: self._encode(each, depth + 1) for key, each in value.items()}
        if kind in _MAPPINGS or (kind is defaultdict and value.default_factory in _FACTORIES.values()):
            pairs = [[self._encode(key, depth + 1), self._encode(each, depth + 1)] for key, each in value.items()]
            factory = {"factory": value.default_factory.__name__} if kind is defaultdict else {}
            return {_TAG: kind.__name__, "of": pairs, **factory}
        if kind in _SEQUENCES:
            size = {"size": value.maxlen} if kind is deque else {}
            items = [self._encode(each, depth + 1) for each in value]
            if kind in (set, frozenset):  # Its order differs from process to process.
                items.sort(key=json.dumps)
            return {_TAG: kind.__name__, "of": items, **size}
        if kind in _SCALARS:
            return {_TAG: kind.__name__, "of": _SCALARS[kind][0](value)}
        if self._types.get(kind.__qualname__) is not kind or (kind in self._plain and depth == 0):
            raise NotData
        return {_TAG: "type", "type": kind.__qualname__, "of": self._encode_typed(value, kind, depth)}

    def _encode_typed(self, value: Any, kind: type, depth: int) -> Any:
        if isinstance(value, Enum):
            return value.name
        if isinstance(value, tuple):
            return [self._encode(each, depth + 1) for each in value]
        if kind in _AUTOGENS.values() or isinstance(value, BaseModel):
            return _dump(value, kind)
        names = (
            [str(name) for name, _ in _parts(value)]
            if kind in self._plain
            else [each.name for each in dataclasses.fields(value)]
        )
        if {*names} != {str(name) for name, _ in _parts(value)}:
            raise NotData
        return {name: self._encode(getattr(value, name), depth + 1) for name in names}

    # -- putting back -------------------------------------------------------------------------------------------------

    def _restore(self, built: Mapping[AttributePath, _Seen], changed: Mapping[AttributePath, Any]) -> None:
        """Set every attribute that is not as it should be, outermost first."""
        now = self._look()
        for place, seen in built.items():
            if place not in changed and isinstance(seen, _Data) and now.get(place) != seen:
                self._set(place, self._decode(seen.json))
        for place in [each for each in now if built and each not in built and each not in changed]:
            self._remove(place)
        for place in sorted(changed, key=len):
            value = changed[place]
            if isinstance(value, dict) and value.get(_TAG) == "gone":
                self._remove(place)
            elif not (isinstance(value, dict) and value.get(_TAG) == "state"):
                self._set(place, self._decode(value))

    def _decode(self, json: Any) -> Any:
        if isinstance(json, list):
            return [self._decode(each) for each in json]
        if not isinstance(json, dict):
            return json
        if _TAG not in json:
            return {key: self._decode(each) for key, each in json.items()}
        name, of = json[_TAG], json["of"]
        if name == "type":
            return self._decode_typed(self._types[json["type"]], of)
        if name in _MAPPING_NAMES:
            made = defaultdict(_FACTORIES[json["factory"]]) if "factory" in json else _MAPPING_NAMES[name]()
            for key, each in of:  # A `Counter` would count what it is updated with.
                made[self._decode(key)] = self._decode(each)
            return made
        if name == "deque":
            return deque(map(self._decode, of), json["size"])
        for kind, make in _SEQUENCES.items():
            if kind.__name__ == name:
                return make([self._decode(each) for each in of])
        return next(load(of) for kind, (_, load) in _SCALARS.items() if kind.__name__ == name)

    def _decode_typed(self, kind: Any, of: Any) -> Any:
        if issubclass(kind, Enum):
            return kind[of]
        if issubclass(kind, tuple):
            return kind(*map(self._decode, of))
        if kind in _AUTOGENS.values() or issubclass(kind, BaseModel):
            return _adapter(kind).validate_python(of)
        made = object.__new__(kind)  # Not by its constructor, which may do more than keep its arguments.
        for name, each in of.items():
            object.__setattr__(made, name, self._decode(each))
        return made

    def _at(self, place: AttributePath) -> Any:
        value: Any = self._agent
        for key in place:
            value = getattr(value, str(key)) if not isinstance(value, list | tuple | dict) else value[key]  # type: ignore[index]
        return value

    def _set(self, place: AttributePath, value: Any) -> None:
        owner = self._at(place[:-1])
        if isinstance(owner, list | dict):
            owner[place[-1]] = value  # type: ignore[index]
        else:
            setattr(owner, str(place[-1]), value)

    def _remove(self, place: AttributePath) -> None:
        with suppress(LookupError, AttributeError, TypeError):  # It went with what held it.
            owner = self._at(place[:-1])
            if isinstance(owner, dict):
                del owner[place[-1]]
            elif not isinstance(owner, list | tuple):
                delattr(owner, str(place[-1]))


class MemoryAttributes(AgentAttributes):
    """The data in the attributes of a memory. What is not data is the memory's connection to where it keeps more.

    A simple object of its own package, such as the revisions of a `TextCanvas`, is data where a list or a dictionary
    holds it.
    """

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self._plain = frozenset(
            _list_plain_types(type(memory), self._packages - {"autogen_core"} - sys.stdlib_module_names)
        )
        self._types = {each.__qualname__: each for each in self._plain} | self._types
        self.begin()

    def as_built(self) -> Any:
        """Return the data that the memory was built with, as JSON."""
        return [[[*place], seen.json] for place, seen in self._built.items() if isinstance(seen, _Data)]

    async def save_changes(self) -> Any:
        """Return what has changed since, as JSON; None for nothing."""
        changed, _ = await self._compare()
        return [[[*place], value] for place, value in changed.items()] or None

    def load_changes(self, changes: Any) -> None:
        """Make the changes in a memory that is as it was built."""
        self._restore(self._built, {tuple(place): value for place, value in changes})


def _list_plain_types(kind: type, packages: Set[str]) -> Iterator[type]:
    """Yield the classes with nothing but attributes in the modules of a class, and in those of the classes that they
    name, of the same packages."""
    seen, waiting = set[str](), [each.__module__ for each in kind.__mro__]
    while waiting:
        module = waiting.pop()
        if module in seen or module.partition(".")[0] not in packages:
            continue
        seen.add(module)
        named = [each for each in vars(sys.modules.get(module, object)).values() if isinstance(each, type)]
        waiting += [each.__module__ for each in named]
        yield from (each for each in named if each.__module__ in seen | {module} and _is_plain(each))


def _is_plain(kind: type) -> bool:
    return kind.__bases__ == (object,) and not issubclass(kind, _SERVICES)


def _name(place: AttributePath, seen: _Seen) -> str:
    kind = type(seen.json if isinstance(seen, _Data) else seen.value).__name__
    return f"{'.'.join(map(str, place))} ({kind})"


def _is_scheduling(value: object) -> bool:
    """Whether an object orders what happens at a time, such as a lock, or ends with the turn: it remembers nothing."""
    return isinstance(value, CancellationToken) or type(value).__module__.partition(".")[0] in _SCHEDULING


def _parts(owner: object) -> Iterator[tuple[str | int, Any]]:
    """Yield the keys and values of a container, or the attributes of an object."""
    if isinstance(owner, dict):
        yield from ((key, each) for key, each in [*owner.items()] if isinstance(key, str | int))
    elif isinstance(owner, list | tuple):
        yield from enumerate([*owner])
    else:
        yield from [*getattr(owner, "__dict__", {}).items()]
        for kind in type(owner).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for name in [slots] if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__") and hasattr(owner, name):
                    yield name, getattr(owner, name)


def _list_named_types(kinds: Iterable[type]) -> Iterator[tuple[str, type]]:
    """Yield the models, dataclasses, named tuples and enums that the code of classes names: in their modules, their
    annotations, and the functions that they were made in."""
    for kind in reversed([*kinds]):
        named: list[Any] = [*vars(sys.modules.get(kind.__module__, object)).values(), *vars(kind).values()]
        with suppress(Exception):  # An annotation may name what is only there for a type checker.
            named += [each for hint in get_type_hints(kind).values() for each in (hint, *get_args(hint))]
        for function in [each for each in vars(kind).values() if isinstance(each, FunctionType)]:
            for cell in function.__closure__ or ():
                with suppress(ValueError):  # Not bound yet.
                    named.append(cell.cell_contents)
        for each in named:
            if isinstance(each, type) and (issubclass(each, BaseModel | Enum) or _is_record(each)):
                yield each.__qualname__, each


def _is_record(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _dump(value: Any, kind: type) -> Any:
    """Return the JSON of a model that makes an equal one; AutoGen's are made for it, and images compare by identity.

    Raises:
        NotData: it makes another one.
    """
    try:
        dumped = _adapter(kind).dump_python(value, mode="json")
        if kind not in _AUTOGENS.values() and _adapter(kind).validate_python(dumped) != value:
            raise NotData
    except (ValueError, TypeError) as error:
        raise NotData from error
    return dumped
