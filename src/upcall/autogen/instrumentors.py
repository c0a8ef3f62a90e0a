"""Instrumentors of other people, such as OpenInference's: they see our agents, tools and clients like AutoGen's.

An instrumentor wraps methods of AutoGen's classes by name, and a class that overrides one, or does the work elsewhere,
is not seen. So what is around AutoGen's method is put around ours when it is called: whoever instruments, before or
after our classes were made, and for as long as that lasts. OpenTelemetry's instrumentors all wrap with `wrapt`, whose
wrappers can be called with another method. Where nothing is instrumented, a call looks up one attribute.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from inspect import getattr_static
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import ChatCompletionClient, FunctionExecutionResult
from autogen_core.tools import BaseTool, Workbench

from upcall.autogen.internals import AGENT_TURNS, TOOL_CALLS
from upcall.runs.journal_records import ToolOutcome

P = ParamSpec("P")
T = TypeVar("T")

_Places: TypeAlias = "Sequence[tuple[type, str]]"
_WrapperFunction: TypeAlias = Callable[..., Any]

_ASKED = "(waits for the user)"


def show_turn(method: Callable[P, T]) -> Callable[P, T]:
    """Return our method for an agent's turn, as it is seen."""
    return _wrap_all(_find(AGENT_TURNS), method, getattr(method, "__self__", None))


def is_shown(method: Callable[..., Any]) -> bool:
    """Return whether an instrumentor has put anything around a bound method."""
    return bool(_wrappers(method))


def show_model_call(method: Callable[P, T], client: ChatCompletionClient) -> Callable[P, T]:
    """Return the method that makes a call of `client`, as it is seen: where it is that of another client, which makes
    the call in its place, with what is around that of `client`."""
    if getattr(method, "__self__", client) is client:
        return method
    return _wrap_all(_find(((type(client), method.__name__),)), method, client)


async def show_tool_call(
    run: Callable[[], Awaitable[ToolOutcome]],
    *,
    agent: str,
    call: FunctionCall,
    tool: BaseTool[Any, Any] | Workbench,
    token: CancellationToken,
) -> ToolOutcome:
    """Return the outcome of the tool call that `run` makes, as it is seen: with the arguments by which AutoGen calls
    its own method."""
    found = _find(TOOL_CALLS)
    if not found:
        return await run()
    made: list[ToolOutcome] = []

    async def execute(*, tool_call: FunctionCall, **_: Any) -> tuple[FunctionCall, FunctionExecutionResult]:
        made.append(outcome := await run())
        output = outcome.content if isinstance(outcome.content, str) else json.dumps(outcome.content, default=str)
        content = output if outcome.asked is None else _ASKED
        return tool_call, FunctionExecutionResult(
            content=content, call_id=tool_call.id, is_error=outcome.is_error, name=tool_call.name
        )

    is_one = isinstance(tool, BaseTool)
    await _wrap_all(found, execute, None)(
        tool_call=call,
        workbench=[] if is_one else [tool],
        handoff_tools=[tool] if is_one else [],  # Those that an instrumentor looks through for its description.
        agent_name=agent,
        cancellation_token=token,
    )
    return made[0]


def _find(places: _Places) -> Sequence[_WrapperFunction]:
    """Return what is around the first of the methods around which there is anything, the outermost first."""
    return next((found for kind, name in places if (found := _wrappers(getattr_static(kind, name)))), ())


def _wrappers(method: Any) -> Sequence[_WrapperFunction]:
    """Return what is around a method, by the attributes of a `wrapt.FunctionWrapper`."""
    found = []
    while method is not None:
        if (wrapper := getattr(method, "_self_wrapper", None)) is not None:
            found.append(wrapper)
        method = getattr(method, "__wrapped__", None)
    return found


def _wrap_all(wrappers: Sequence[_WrapperFunction], method: Callable[P, T], instance: object) -> Callable[P, T]:
    for wrapper in reversed(wrappers):
        method = _wrap(wrapper, method, instance)
    return method


def _wrap(wrapper: _WrapperFunction, method: Callable[P, T], instance: object) -> Callable[P, T]:
    @wraps(method)
    def call(*given: P.args, **named: P.kwargs) -> T:
        return cast(T, wrapper(method, instance, given, named))

    return call
