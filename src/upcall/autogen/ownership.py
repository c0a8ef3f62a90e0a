"""Whose run an agent works for: what keeps the words of one run enters no other.

Agents, teams and model contexts keep messages. An agent of this library has its messages in one value: each team is
given a twin of it with an empty one (`group_chats.renew_members`), as is each call of a nested agent. Anything else
that has worked in a run belongs to that run for as long as it exists; another run that finds it in its team, or uses
it while it works, is refused. Model clients, tools, workbenches, memories and termination conditions may be shared:
what they keep is the program's decision.

A new team is searched before it is made resumable, which already changes its members. What only running code leads
to (a registry, an object of the program) is caught when it is used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple, TypeAlias
from weakref import ref

from autogen_agentchat.base import ChatAgent, Team
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool, Workbench

from upcall.autogen.internals import before_each_use
from upcall.autogen.scope import current_scope
from upcall.errors import SharedAgent

Keeper: TypeAlias = ChatAgent | Team | ChatCompletionContext
"""What keeps messages."""


class RunOwner(NamedTuple):
    """A run of a store; a run with the same id in another store is another one."""

    store: str
    run_id: str


_owners: dict[int, tuple[ref[Keeper], RunOwner]] = {}
"""By identity, since an agent may define equality; an entry goes with its object."""

_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})

_OURS = ("upcall.agents.", "upcall.autogen.")

_lock = Lock()  # Teams work in several threads.


class TeamClaim:
    """What a new team claimed for its run. If the team does no work, its agents are free again."""

    def __init__(self, team: Team, owner: RunOwner) -> None:
        """Claim everything in a team that keeps messages.

        Raises:
            SharedAgent: some of it belongs to another run; nothing was claimed.
        """
        self._new = _claim(_list_keepers(team), owner)

    def keep(self) -> None:
        """Keep the claim for good: the team is about to load messages of the run."""
        self._new = []

    def release(self) -> None:
        """Give up what was claimed, unless it is kept."""
        with _lock:
            for keeper in self._new:
                _owners.pop(id(keeper), None)
        self._new = []


def can_be_renewed(agent: object) -> bool:
    """Whether a twin of an agent has none of its messages: an agent of this library, but not one of a class that a
    program derived from it, which may keep more."""
    return hasattr(agent, "fresh") and type(agent).__module__.startswith(_OURS)


def claim_for_current_run(keeper: Keeper) -> None:
    """Claim an agent, team or model context that the run at work is about to use; without a run nothing happens.

    Raises:
        SharedAgent: it belongs to another run.
    """
    owner = current_scope().owner
    if owner is not None:
        _claim({"": keeper}.items(), owner)


before_each_use(claim_for_current_run)


def _claim(keepers: Iterable[tuple[str, Keeper]], owner: RunOwner) -> list[Keeper]:
    """Claim objects, all or none, each with the name of its holder, and return those that had no owner."""
    with _lock:
        new = []
        for holder, keeper in keepers:
            known = _owners.get(id(keeper))
            if known is None:
                new.append(keeper)
            elif known[1] != owner:
                raise SharedAgent(f"{_describe(keeper, holder)} has worked in another run")
        for keeper in new:
            _owners[id(keeper)] = ref(keeper, partial(_forget, id(keeper))), owner
    return new


def _forget(key: int, gone: ref[Keeper]) -> None:
    _owners.pop(key, None)  # Without the lock: the collector may run in a thread that holds it.


def _describe(keeper: Keeper, holder: str) -> str:
    kind = type(keeper).__name__
    if isinstance(keeper, ChatCompletionContext):
        return f"A model context ({kind}){f' of {holder!r}' if holder else ''}"
    return f"{'Agent' if isinstance(keeper, ChatAgent) else 'Team'} {keeper.name!r} ({kind})"


# -- the search -------------------------------------------------------------------------------------------------------


def _list_keepers(team: Team) -> Iterator[tuple[str, Keeper]]:
    """List a team and all below it that keeps messages, outermost first, each with the name of its holder."""
    seen, renewed, waiting = set[int](), set[int](), deque[tuple[str, Any]]([("", team)])
    while waiting:
        holder, part = waiting.popleft()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, Keeper) and id(part) not in renewed:
            yield holder, part
        if isinstance(nested := getattr(part, "nested", None), dict) and type(part).__module__.startswith(_OURS):
            renewed |= {id(each) for each in nested.values() if can_be_renewed(each)}  # A toolset serves with twins.
        if isinstance(part, ChatAgent | Team):
            holder = part.name
        waiting.extend((holder, each) for each in _parts_of(part))


def _parts_of(part: Any) -> Iterable[object]:
    """Return the objects that an object of AutoGen or of this library works through, or that a function uses."""
    match part:
        case ChatCompletionClient() | type():
            return ()
        case list() | tuple() | set() | frozenset() | deque():
            return [each for each in [*part] if type(each) not in _PLAIN]
        case dict():
            return _parts_of([*part.values()])
        case FunctionType():
            return filter(_is_used, _list_named(part))
        case MethodType():
            return (part.__func__, part.__self__, *filter(_is_used, _fields(part.__self__)))
        case partial():
            return (part.func, *filter(_is_used, (*part.args, *part.keywords.values())))
        case _ if can_be_renewed(part):
            return _fields_but_views(part)
        case ChatAgent() | Team() | ChatCompletionContext() | BaseTool() | Workbench():
            return _fields(part)
    return _fields_but_views(part) if type(part).__module__.startswith(_OURS) else ()


def _is_used(named: object) -> bool:
    """Whether code that names an object may let it take in messages, unless that is always noticed: an agent of this
    library claims itself, and a selector function may want no more than its name."""
    return isinstance(named, Keeper | BaseTool | Workbench | FunctionType | MethodType) and not can_be_renewed(named)


def _fields(part: object) -> Sequence[object]:
    return [*getattr(part, "__dict__", {}).values()]


def _fields_but_views(part: object) -> Sequence[object]:
    """Leave out model contexts: an agent of this library, and what it is made of, use one as a view, which keeps
    nothing."""
    return [each for each in _fields(part) if not isinstance(each, ChatCompletionContext)]


def _list_named(function: FunctionType) -> Iterator[object]:
    """Yield what a function holds, and what it names in its module: agents, teams, and other functions there."""
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    yield getattr(function, "__wrapped__", None)
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # Not bound yet.
            yield cell.cell_contents
    here: Mapping[str, Any] = function.__globals__
    for name in _names_in(function.__code__):
        named = here.get(name)
        if not isinstance(named, FunctionType) or named.__globals__ is here:
            yield named


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names_in(each)
