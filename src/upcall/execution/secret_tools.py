"""Tools that ask for secrets need a key to store the answers; without one a run does not start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import unwrap
from types import CodeType

from autogen_agentchat.base import Team

from upcall.agents.parts import list_parts, list_tools
from upcall.autogen.internals import function_of
from upcall.questions.secrets import require_key
from upcall.questions.tool_context import ask_secret


def refuse_without_key(team: Team) -> None:
    """Refuse a team with a function tool that calls `ask_secret` if no key is set.

    A tool that calls it through other functions is not detected; its run fails when it asks, and can be resumed.

    Raises:
        ConfigurationError: there is such a tool, and no valid key.
    """
    for agent, tool in _secret_tools(team):
        require_key(f"Tool {tool!r} of agent {agent!r} asks for a secret")


def _secret_tools(team: Team) -> Iterator[tuple[str, str]]:
    for part in list_parts(team):
        for name, tool in list_tools(part).items():
            function = function_of(tool)
            if function is not None and _calls_ask_secret(function):
                yield str(getattr(part, "name", "")), name


def _calls_ask_secret(function: Callable[..., object]) -> bool:
    plain = unwrap(function)
    plain = getattr(plain, "__func__", plain)
    code = getattr(plain, "__code__", None)
    aliases = {name for name, value in getattr(plain, "__globals__", {}).items() if value is ask_secret}
    return isinstance(code, CodeType) and not _names(code).isdisjoint({"ask_secret", *aliases})


def _names(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return {*code.co_names, *code.co_freevars}.union(*map(_names, inner))
