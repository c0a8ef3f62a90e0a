"""The current tool call: what its function declares, and can read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

ToolT = TypeVar("ToolT")

TakeBack: TypeAlias = Callable[..., Any]
"""Takes a call of a tool back: a function of the same arguments, plain or async."""

_IDEMPOTENT = "upcall_idempotent"
_EFFECT_FREE = "upcall_effect_free"
_REPEATABLE = "upcall_repeatable"
_UNDO = "upcall_undo"


def idempotent(tool: ToolT) -> ToolT:
    """Declare that calls of a tool (a function, an AutoGen tool or a whole workbench) may be repeated.

    If a process is killed during a call, nobody knows whether it took effect. An idempotent call is repeated when the
    run is resumed; for any other the human is asked. Returns the same object; it can be used as a decorator.
    """
    setattr(getattr(tool, "__func__", tool), _IDEMPOTENT, True)  # A bound method has no attributes of its own.
    return tool


def is_idempotent(*tools: object) -> bool:
    """Return whether one of these is declared so: a tool, the function it was made of, the workbench it is in. What
    has no effect may be repeated."""
    return any(getattr(tool, _IDEMPOTENT, False) is True for tool in tools) or is_effect_free(*tools)


def effect_free(tool: ToolT) -> ToolT:
    """Declare that calls of a tool (a function, an AutoGen tool or a whole workbench) change nothing: it only looks at
    something, or computes.

    Such a call may be repeated, as that of an `idempotent` tool. Where another answer is merely tried
    (`Upcall.worth`), no call of any other tool is made. Returns the same object; it can be used as a decorator.
    """
    setattr(getattr(tool, "__func__", tool), _EFFECT_FREE, True)
    return tool


def is_effect_free(*tools: object) -> bool:
    """Return whether one of these is declared so: a tool, the function it was made of, the workbench it is in."""
    return any(getattr(tool, _EFFECT_FREE, False) is True for tool in tools)


def repeatable(tool: ToolT) -> ToolT:
    """Declare that the same call of a tool (a function, an AutoGen tool, a whole workbench or a nested agent) means
    something twice in one reply of a model: a line that is appended twice, a die that is rolled twice.

    Of any other tool the same call with the same arguments is made once a reply, since small models repeat themselves.
    Returns the same object; it can be used as a decorator.
    """
    setattr(getattr(tool, "__func__", tool), _REPEATABLE, True)
    return tool


def is_repeatable(*tools: object) -> bool:
    """Return whether one of these is declared so: a tool, the function it was made of, the workbench it is in."""
    return any(getattr(tool, _REPEATABLE, False) is True for tool in tools)


def reversible(undo: TakeBack) -> Callable[[ToolT], ToolT]:
    """Declare how a call of a tool (a function or an AutoGen tool) is taken back, as a decorator: ``undo`` is called
    with the same arguments.

    It is called where a branch takes the place of its run (`Upcall.fork`) and the call depended on the answer that is
    another one now. A kill in between can make it happen twice, so it must do no harm then.
    """

    def declare(tool: ToolT) -> ToolT:
        setattr(getattr(tool, "__func__", tool), _UNDO, undo)
        return tool

    return declare


def find_undo(*tools: object) -> TakeBack | None:
    """Return how calls of a tool are taken back, if one of these says it: the tool, the function it was made of."""
    return next((undo for tool in tools if callable(undo := getattr(tool, _UNDO, None))), None)


@dataclass(frozen=True)
class ToolCall:
    """The current tool call.

    ``start_by`` is the time, by `time.monotonic`, after which a function that has not started may belong to another
    worker.
    """

    idempotency_key: str
    agent: str = ""
    tool: str = ""
    repeated: bool = False
    start_by: float | None = None


_call: ContextVar[ToolCall] = ContextVar("upcall_tool_call")


def current_call() -> ToolCall:
    """Return the current tool call.

    Raises:
        LookupError: there is none.
    """
    return _call.get()


def current_tool() -> tuple[str, str] | None:
    """Return the tool whose function is running, and the agent that called it; None outside of tools."""
    call = _call.get(None)
    return (call.tool, call.agent) if call is not None else None


@contextmanager
def enter_call(call: ToolCall) -> Iterator[None]:
    """Make `call` the current one inside, and in tasks started there."""
    token = _call.set(call)
    try:
        yield
    finally:
        _call.reset(token)


def idempotency_key() -> str:
    """Return, in a tool that `Upcall` runs, a key for the current call that stays the same when it is repeated.

    Its form is ``run/path/calls``; it is for services that do a thing once per key.

    Raises:
        LookupError: there is no current tool call of a run.
    """
    call = _call.get(None)
    if call is None:
        raise LookupError("There is no idempotency key here: it is for a tool while upcall.Upcall runs it.")
    return call.idempotency_key


def is_repeated_call() -> bool:
    """Return whether the current call of a tool run by `Upcall` was started before and cut off: it may be partly
    done."""
    call = _call.get(None)
    return call is not None and call.repeated


class Interruption(BaseException):
    """What ends work from outside: neither a handler of errors nor `concurrency.contain` catches it."""


class StartedLate(Interruption):
    """A tool's function got its thread too late, since all were busy or the process was suspended, and did not run.

    No handler of a tool's errors catches it.
    """


def check_start_time() -> None:
    """Check the time, in the thread of a tool's function, right before it runs.

    Raises:
        StartedLate: it must not run before the journal has checked that the run is still this worker's.
    """
    call = _call.get(None)
    if call is not None and call.start_by is not None and time.monotonic() > call.start_by:
        raise StartedLate
