"""The options of a `PausableAgent`, each with its default, and its declarative form."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, Literal, TypedDict

from autogen_agentchat.base import Handoff
from autogen_agentchat.messages import StructuredMessageFactory
from autogen_core import ComponentModel
from pydantic import BaseModel, Field, ValidationError

from upcall.config_source import describe_wrong, list_known
from upcall.errors import ConfigurationError
from upcall.runs.reports import Report

AskMode = Literal["strict", "soft", "none"]
MixedBatch = Literal["ask_only", "run"]

_OURS = "upcall"
"""The package whose reports keep their methods in a dump; those of others are their fields."""


class PausableSettings(BaseModel, frozen=True, defer_build=True):
    """The plain options of a `PausableAgent`.

    Attributes:
        description: its purpose, for other agents and their models.
        system_message: the first message to its model.
        ask_user: whether the model gets the `ask_user` tool and the rule for it (``ask_mode``).
        ask_mode: the rule, at the end of the system message: ``strict`` to clarify before acting, ``soft`` to ask only
            what cannot be assumed, ``none`` if the system message has its own rule (S1-29).
        mixed_batch: what happens to other calls in a reply with an `ask_user` call: ``ask_only`` drops them, and
            the model decides again with the answer; ``run`` runs them (decision X9).
        max_rounds: model calls per turn; the turn then ends with a text that says so.
        max_repeats: rounds in a row whose calls were all made before, with the same results; the turn then ends too.
        max_questions: `ask_user` calls per turn; further ones get an error result.
        max_reply_calls: calls of one reply that are made; the model learns that the others were not. `ask_user` calls
            and hand-offs do not count, nor does the same call again: a reply makes it once, unless its tool is declared
            `upcall.repeatable`.
        report_tool: whether the model can end its turn with the tool ``report``, whose arguments are the fields of
            ``output_type``. By default if a text alone cannot be the output, or the model is not small.
        search_first: whether a turn begins with a search of the agent's own documents for its task, made for the model;
            ``auto``: if the model is small.
        answers_nested: whether it checks a nested agent's question before that goes up, and answers it if it was given
            the answer, little depends on it, and the choice is not the user's (S4-23). One more model call each.
        catch_prose: whether a text that ends the turn with a question mark counts as a question to the user. The
            model is reminded once that only `ask_user` reaches the user; a text that still asks becomes that call.
        nested_timeout: how many seconds a nested agent may work until it pauses or ends, including waits for another
            call of the same team or stock agent; its questions may wait forever. Its call then ends with an error.
        stream: whether text is streamed from the model as it arrives.
        compact_at: from which share of its model's context on its older messages are replaced by notes, which its model
            writes; 0 is never. A model whose context is not known is found out about by a refusal of its server.
        metadata: for the program's own use, as in an `AssistantAgent`; a component dump keeps it.
        user_proxy: the name of the `UserProxyAgent` of the outermost group chat.
    """

    description: str = "An agent that uses tools and asks the user when it needs to."
    system_message: str = "You are a helpful assistant. Use your tools to do what is asked, then report."
    ask_user: bool = True
    ask_mode: AskMode = "strict"
    mixed_batch: MixedBatch = "ask_only"
    max_rounds: int = 30
    max_repeats: int = 3
    max_questions: int = 10
    max_reply_calls: Annotated[int, Field(ge=1)] = 32
    report_tool: bool | None = None
    search_first: bool | Literal["auto"] = False
    answers_nested: bool = False
    catch_prose: bool = False
    nested_timeout: float | None = None
    stream: bool = False
    compact_at: Annotated[float, Field(ge=0, le=1)] = 0.0
    metadata: dict[str, str] = {}
    user_proxy: str = "user"


class PausableOptions(TypedDict, total=False):
    """The same as keyword arguments."""

    description: str
    system_message: str
    ask_user: bool
    ask_mode: AskMode
    mixed_batch: MixedBatch
    max_rounds: int
    max_repeats: int
    max_questions: int
    max_reply_calls: int
    report_tool: bool | None
    search_first: bool | Literal["auto"]
    answers_nested: bool
    catch_prose: bool
    nested_timeout: float | None
    stream: bool
    compact_at: float
    metadata: dict[str, str]
    user_proxy: str


def read_options(agent: str, options: Mapping[str, Any]) -> PausableSettings:
    """Return the options of the agent of this name.

    Raises:
        ConfigurationError: there is no such option, or its value is invalid.
    """
    known = PausableSettings.model_fields
    if unknown := next((name for name in options if name not in known), None):
        raise ConfigurationError(f"Agent {agent!r}: there is no option {unknown!r}{list_known(unknown, known)}")
    try:
        return PausableSettings.model_validate(options)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        problem = describe_wrong(first["loc"], first["input"], first["msg"])
        raise ConfigurationError(f"Agent {agent!r}: {problem}") from error


class PausableAgentConfig(PausableSettings, defer_build=True):
    """The declarative form of a `PausableAgent`. ``prompts`` is the folder of the user's own prompts."""

    name: str
    model_client: ComponentModel
    small_client: ComponentModel | None = None
    tools: list[ComponentModel] = []
    workbench: list[ComponentModel] = []
    agents: list[ComponentModel] = []
    handoffs: list[Handoff] = []
    approve: list[str | int] = []
    memory: list[ComponentModel] = []
    model_context: ComponentModel | None = None
    output_type: ComponentModel | str | None = None
    prompts: str | None = None


def dump_output_type(kind: type[BaseModel] | None) -> Any:
    """Return the declarative form of an output type: where it is defined if it is one of our reports, else its
    fields."""
    if kind is None:
        return None
    if issubclass(kind, Report) and kind.__module__.startswith(f"{_OURS}."):
        return f"{kind.__module__}.{kind.__qualname__}"
    return StructuredMessageFactory(input_model=kind).dump_component()


def load_output_type(dumped: ComponentModel | str | None) -> type[BaseModel] | None:
    """Return the output type of a declarative form.

    Raises:
        ConfigurationError: it names no report of this library.
    """
    if dumped is None:
        return None
    if isinstance(dumped, str):
        module, _, name = dumped.rpartition(".")
        kind = getattr(import_module(module), name, None) if module.startswith(f"{_OURS}.") else None
        if isinstance(kind, type) and issubclass(kind, Report):
            return kind
        raise ConfigurationError(f"There is no report {dumped!r} for output_type; give its fields, as AutoGen does.")
    return StructuredMessageFactory.load_component(dumped).ContentModel
