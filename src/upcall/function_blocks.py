"""The blocks of ``functions:`` as the NeMo Agent Toolkit writes them, read into the settings that they stand for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field, ValidationError

from upcall.config_source import ConfigSource, ValuePath, describe_wrong, dot_path, list_known, render_value
from upcall.errors import ConfigurationError
from upcall.options import AgentName
from upcall.setting_types import AtLeastOne, Count, Seconds, Section

Name = Annotated[str, Field(min_length=1)]


class _Block(BaseModel, extra="forbid", frozen=True, populate_by_name=True, defer_build=True):
    """What all blocks have. A block says more than its defaults only by what is in ``model_fields_set``."""

    SETTINGS: ClassVar[Mapping[str, str]] = {}
    """The fields that are settings of the same name, with their sections."""

    llm: Name
    tools: list[Name] = []
    verbose: bool = False

    @property
    def llms(self) -> dict[AgentName, str]:
        """The agents that the block is about, each with the name of its model."""
        raise NotImplementedError


class ClarifierConfig(_Block):
    """A block of the type ``clarifier_agent`` (S0-41 to S0-49): the clarifier, and the planner behind it.

    ``planner_llm`` falls back to ``llm``. ``tools`` are the clarifier's.
    """

    SETTINGS = {
        "max_turns": "questions",
        "enable_plan_approval": "planning",
        "max_plan_iterations": "planning",
        "log_response_max_chars": "team",
    }

    type_: Literal["clarifier_agent"] = Field(default="clarifier_agent", alias="_type")
    planner_llm: Name | None = None
    max_turns: Count = 3
    enable_plan_approval: bool = False
    max_plan_iterations: Count = 10
    log_response_max_chars: AtLeastOne = 2000

    @property
    def llms(self) -> dict[AgentName, str]:
        """The agents that the block is about, each with the name of its model."""
        return {"clarifier": self.llm, "planner": self.planner_llm or self.llm}


class IntentClassifierConfig(_Block):
    """A block of the type ``intent_classifier`` (S2-21 to S2-25). ``llm_timeout`` is in seconds."""

    SETTINGS = {"llm_timeout": "team"}

    type_: Literal["intent_classifier"] = Field(default="intent_classifier", alias="_type")
    llm_timeout: Seconds = 90.0

    @property
    def llms(self) -> dict[AgentName, str]:
        """The agents that the block is about, each with the name of its model."""
        return {"classifier": self.llm}


FunctionConfig = Annotated[ClarifierConfig | IntentClassifierConfig, Field(discriminator="type_")]
Block = ClarifierConfig | IntentClassifierConfig

TYPES: dict[str, type[Block]] = {"clarifier_agent": ClarifierConfig, "intent_classifier": IntentClassifierConfig}


def apply_blocks(given: ConfigSource) -> dict[str, Any]:
    """Return the settings of one source, with those that its blocks stand for and the blocks themselves as typed
    values.

    Raises:
        ConfigurationError: a block is wrong, there are two of a type, or a setting is given in a block and beside it
            with another value.
    """
    if "functions" not in given.data:
        return given.data
    blocks = _blocks(given)
    data = {**given.data, "functions": blocks}
    for at, block in blocks.items():
        for section, name, value in _list_settings(given, at, block):
            data[section] = {**_table(data, section), name: value}
    if agents := _list_verbose(given, blocks):
        data["team"] = {**_table(data, "team"), "verbose": agents}
    return data


def _table(data: Mapping[str, Any], section: str) -> dict[str, Any]:
    value = data.get(section, {})
    return (
        {name: getattr(value, name) for name in value.model_fields_set} if isinstance(value, Section) else dict(value)
    )


def _blocks(given: ConfigSource) -> dict[str, Block]:
    named = given.data["functions"]
    if not isinstance(named, dict):
        raise ConfigurationError(f"{given.at('functions')}: functions must hold blocks by name, each with its _type.")
    blocks: dict[str, Block] = {}
    for name, data in named.items():
        block = data if isinstance(data, ClarifierConfig | IntentClassifierConfig) else _block(given, name, data)
        for other, earlier in blocks.items():
            if type(earlier) is type(block):
                raise ConfigurationError(
                    f"{given.at('functions', name)}: functions.{name} is a second block of the type {block.type_}, "
                    f"after {other} ({given.at('functions', other)}); keep one."
                )
        blocks[name] = block
    return blocks


def _block(given: ConfigSource, name: str, data: object) -> Block:
    place: ValuePath = ("functions", name)
    if not isinstance(data, dict):
        raise ConfigurationError(f"{given.at(*place)}: {dot_path(place)} must be a block of settings with its _type.")
    kind = _type(given, place, data)
    fields = [field for field in kind.model_fields if field != "type_"]
    given.refuse_unknown(place, [*fields, "_type"], listed=[*fields, "_type"])
    if "llm" not in data:
        raise ConfigurationError(f"{given.at(*place)}: {dot_path(place)} has no llm: add llm: NAME, a name under llms.")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        inside = (*place, *first["loc"])
        raise ConfigurationError(
            f"{given.at(*inside)}: {describe_wrong(inside, first['input'], first['msg'])}"
        ) from error


def _type(given: ConfigSource, place: ValuePath, data: dict[str, Any]) -> type[Block]:
    known = " or ".join(TYPES)
    if "_type" not in data:
        raise ConfigurationError(f"{given.at(*place)}: {dot_path(place)} has no _type: add _type: {known}.")
    name = data["_type"]
    if not isinstance(name, str) or name not in TYPES:
        meant = list_known(name if isinstance(name, str) else "", TYPES)
        raise ConfigurationError(
            f"{given.at(*place, '_type')}: unknown _type {render_value(name)} in {dot_path(place)}{meant}"
        )
    return TYPES[name]


def _list_settings(given: ConfigSource, name: str, block: Block) -> Iterator[tuple[str, str, Any]]:
    """Yield section, name and value of each setting that a block gives, not those that it only defaults."""
    for field, section in block.SETTINGS.items():
        if field not in block.model_fields_set:
            continue
        value, beside = getattr(block, field), _table(given.data, section)
        if field in beside and beside[field] != value:
            raise ConfigurationError(
                f"{given.at(section, field)}: {section}.{field} = {render_value(beside[field])}, but "
                f"functions.{name}.{field} = {value!r} ({given.at('functions', name, field)}), and both are the same "
                "setting; keep one."
            )
        yield section, field, value


def _list_verbose(given: ConfigSource, blocks: Mapping[str, Block]) -> list[str]:
    """Return what the setting ``verbose`` becomes by the agents of the blocks that are; nothing if it stays."""
    agents: list[str] = [agent for block in blocks.values() if block.verbose for agent in block.llms]
    beside = _table(given.data, "team").get("verbose", False)
    if not agents or not isinstance(beside, bool | list) or beside is True:
        return []
    named = beside if isinstance(beside, list) else []
    return [*named, *(agent for agent in agents if agent not in named)]
