"""What a model can, by its name: rows of a table, `model_table.toml`, which the setting `models.families` extends.

Three properties that used to be one ("is its family known?"): whether a model takes images, which parameters it takes,
and whether it is *small*. An unknown name is neither blind nor small. Small is what has few parameters, as the server
says or the name does; it decides which prompts, how many examples, and whether research begins with a search.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from upcall.lazy_pattern import LazyPattern

TokenParameter = Literal["max_tokens", "max_completion_tokens"]
ApiName = Literal["chat_completions", "responses"]

ApiChoice = ApiName | Literal["auto"]
"""Which of OpenAI's APIs a model is called by: ``auto`` by its name, or as its server shows."""

SMALL_BILLIONS = 10.0
"""A model with fewer parameters, in billions, is small."""

_SIZE = LazyPattern(r"(?<![a-z0-9.])(?:(\d+)x)?[ea]?(\d+(?:\.\d+)?)([bm])(?![a-z0-9])")
"""``7b``, ``1.5b``, ``8x7b``, ``e4b``, ``a3b``, ``360m``: of several the largest counts (``30b-a3b``)."""

_SEES = LazyPattern(r"(?<![a-z])(?:vlm?|vision|omni|multimodal)\d*(?![a-z])")
"""How names of all families say that a model takes images."""

_QUANTIZED = LazyPattern(r"(?<![a-z0-9])(?:i?q[2-8](?![a-z0-9])|i?q[2-8]_|gguf)")
_SMALL_NAMES = LazyPattern(r"(?<![a-z0-9])(?:smolv?lm|tinyllama|phi-?\d(?:\.\d)?-mini)")


@dataclass(frozen=True)
class ModelTraits:
    """What a model can, and what its server wants to be asked.

    Attributes:
        family: AutoGen's name of the family where it has one, else ours; ``unknown`` for a name that no row matches.
        context: how many tokens it takes; None if unknown.
        vision: whether it takes images.
        tools: whether it calls tools.
        parallel: whether it makes several calls in one reply.
        json: whether it can be asked to return JSON.
        schema: whether it can be asked to return JSON of a schema.
        api: which of OpenAI's APIs it is called by.
        token_parameter: the parameter that limits the length of a reply.
        temperature: whether it takes a temperature.
        reasoning: whether it thinks before it replies.
        system_messages: how many it takes, anywhere in the conversation.
        send_name: whether a message says who wrote it.
        empty_text: what is sent for an empty text, which some servers refuse.
    """

    family: str = "unknown"
    context: int | None = None
    vision: bool = True
    tools: bool = True
    parallel: bool = True
    json: bool = True
    schema: bool = True
    api: ApiName = "chat_completions"
    token_parameter: TokenParameter = "max_tokens"
    temperature: bool = True
    reasoning: bool = False
    system_messages: Literal["several", "none"] = "several"
    send_name: bool = True
    empty_text: str = ""


UNKNOWN = ModelTraits()

FIELDS = frozenset(each.name for each in fields(ModelTraits)) | {"name"}
"""The keys of a row."""


def find_traits(name: str, own: Iterable[Mapping[str, Any]] = ()) -> ModelTraits:
    """Return what the model of a name can; the rows in `own` come before the table's."""
    plain = plain_name(name)
    for row in own:
        if _compile(row["name"]).search(plain):
            return ModelTraits(**{key: value for key, value in row.items() if key != "name"})
    return _find(plain)


@cache
def _find(plain: str) -> ModelTraits:
    found = next((traits for pattern, traits in _load_table() if pattern.search(plain)), UNKNOWN)
    return replace(found, vision=True) if not found.vision and _SEES.search(plain) else found


@cache
def _load_table() -> list[tuple[re.Pattern[str], ModelTraits]]:
    text = files("upcall").joinpath("model_table.toml").read_text(encoding="utf-8")
    return [(_compile(row.pop("name")), ModelTraits(**row)) for row in tomllib.loads(text)["model"]]


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![a-z0-9])(?:{pattern})")


def plain_name(name: str) -> str:
    """Return a model's name in lower case, without what a router or a fine-tuning puts around it."""
    plain = name.strip().lower()
    if plain.startswith("ft:"):
        plain = plain[3:].partition(":")[0]
    return re.split(r"[:@]", plain.rstrip("/").rsplit("/", 1)[-1])[0]


def has_size(name: str) -> bool:
    """Return whether the name of a model tells how many parameters it has."""
    return bool(_SIZE.search(name.strip().lower()))


def is_small_name(name: str) -> bool:
    """Return whether the name of a model says that it is small: by its size, a kind of small models, or a quantization
    without any size, which is done to run a model on a machine of one's own."""
    lower = name.strip().lower()
    sizes = [
        float(number) * (int(many) if many else 1) * (1 if unit == "b" else 0.001)
        for many, number, unit in _SIZE.findall(lower)
    ]
    if sizes:
        return max(sizes) < SMALL_BILLIONS
    return bool(_SMALL_NAMES.search(lower) or _QUANTIZED.search(lower))
