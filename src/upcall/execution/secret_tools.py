"""Tools that ask for secrets need a key to store the answers with: without one a run is not started."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import unwrap
from types import CodeType

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team

from upcall.agents.toolset import Toolset
from upcall.autogen.internals import assistant_parts, function_of, static_tools
from upcall.execution.compatibility import list_workers
from upcall.questions.secrets import require_key
from upcall.questions.tool_context import ask_secret


def refuse_without_key(team: Team) -> None:
    """Refuse a team with a function tool that calls `ask_secret`, where no key is set.

    A tool that calls it through other functions is not seen here; its run fails where it asks, and can be resumed.

    Raises:
        ConfigurationError: there is such a tool, and no key, or one that is none.
    """
    for agent, tool in _secret_tools([team]):
        require_key(f"Tool {tool!r} of agent {agent!r} asks for a secret")


def _secret_tools(agents: Sequence[object]) -> Iterator[tuple[str, str]]:
    for agent in agents:
        functions = ((name, function_of(tool)) for name, tool in _tools_of(agent).items())
        for name, function in functions:
            if function is not None and _calls_ask_secret(function):
                yield str(getattr(agent, "name", "")), name
        yield from _secret_tools(list_workers(agent))


def _tools_of(agent: object) -> dict[str, object]:
    toolset = getattr(agent, "toolset", None)
    workbenches = assistant_parts(agent).workbenches if isinstance(agent, AssistantAgent) else ()
    own = toolset.tools if isinstance(toolset, Toolset) else {}
    workbenches = toolset.workbenches if isinstance(toolset, Toolset) else workbenches
    return {**own, **{name: tool for each in workbenches for name, tool in static_tools(each).items()}}


def _calls_ask_secret(function: Callable[..., object]) -> bool:
    plain = unwrap(function)
    plain = getattr(plain, "__func__", plain)
    code = getattr(plain, "__code__", None)
    aliases = {name for name, value in getattr(plain, "__globals__", {}).items() if value is ask_secret}
    return isinstance(code, CodeType) and not _names(code).isdisjoint({"ask_secret", *aliases})


def _names(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return {*code.co_names, *code.co_freevars}.union(*map(_names, inner))
