"""Other shapes of an `ask_user` call that mean one thing only: the human is asked instead of the call refused.

What is right as it is stays as it is, and what could mean two things is left for `parse_question` to refuse.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from autogen_core import FunctionCall

from upcall.agents.tool_loop.ask_user import ASK_USER, camel_to_snake
from upcall.questions.question import ClarificationType
from upcall.text import shorten

_MAX_HEADER_CHARS = 80

_QUESTION = ("question", "text", "prompt", "message", "query")
_LABEL = ("label", "text", "name", "title", "option", "value")
_DESCRIPTION = ("description", "explanation", "detail", "details")
"""The names that models give a field, best first."""

_KINDS = frozenset(kind.value for kind in ClarificationType)


def mend_asks(calls: Iterable[FunctionCall]) -> list[FunctionCall]:
    """Return the calls with each `ask_user` call in its own shape; one with several questions becomes several calls."""
    return [each for call in calls for each in (_mend(call) if call.name == ASK_USER else (call,))]


def _mend(call: FunctionCall) -> Iterator[FunctionCall]:
    try:
        given = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        yield call
        return
    arguments = {camel_to_snake(name): value for name, value in given.items()}
    for number, listed in enumerate(_list_questions(arguments)):
        mended = _mend_fields(listed)
        text = call.arguments if mended == arguments else json.dumps(mended, ensure_ascii=False)
        yield FunctionCall(id=call.id if number == 0 else "", name=call.name, arguments=text)


def _list_questions(arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the arguments of each question in a call: those in ``questions``, in an object, or of the call itself."""
    question = _read(arguments.get("questions") or arguments.get("question"))
    rest = {name: value for name, value in arguments.items() if name not in ("question", "questions")}
    listed = question if isinstance(question, list) else [question]
    if arguments.get("question") and arguments.get("questions"):
        return [arguments]
    if listed and all(isinstance(each, dict) and each for each in listed):
        return [{**rest, **{camel_to_snake(name): value for name, value in each.items()}} for each in listed]
    if arguments.get("questions") and all(isinstance(each, str) and each.strip() for each in listed):
        return [{**rest, "question": each} for each in listed]
    return [arguments]


def _mend_fields(given: dict[str, Any]) -> dict[str, Any]:
    mended = dict(given)
    if not mended.get("question") and (name := _first(mended, _QUESTION)):
        mended["question"] = mended.pop(name)
    if not mended.get("options") and isinstance(_read(mended.get("choices")), list):
        mended["options"] = mended.pop("choices")
    options = _read(mended.get("options"))
    if isinstance(options, list):
        mended["options"] = _merge_equal([_mend_option(each) for each in options])
    kind = mended.get("clarification_type")
    if isinstance(kind, str) and kind not in _KINDS:
        mended["clarification_type"] = _find_kind(kind)
    if isinstance(mended.get("default"), int | float):
        mended["default"] = json.dumps(mended["default"])
    header = mended.get("header")
    if isinstance(header, str) and len(header) > _MAX_HEADER_CHARS:
        mended["header"] = shorten(header, _MAX_HEADER_CHARS - 1)
    return mended


def _find_kind(name: str) -> str:
    """Return the kind that is meant by a word that names none: the only one that contains it, else the default."""
    word = "_".join(name.lower().replace("-", " ").replace("_", " ").split())
    meant = [kind for kind in sorted(_KINDS) if word and (word in kind or kind in word)]
    return meant[0] if len(meant) == 1 else ClarificationType.MISSING_INFO.value


def _read(value: Any) -> Any:
    """Return the list or the object that a text is as JSON, else the value."""
    if isinstance(value, str) and value.strip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _mend_option(option: Any) -> Any:
    if not isinstance(option, dict) or not option or option.get("label"):
        return option
    label, description = _first(option, _LABEL), _first(option, _DESCRIPTION)
    if label is None:
        return option
    return {"label": option[label], **({"description": option[description]} if description else {})}


def _first(given: Mapping[str, Any], names: Iterable[str]) -> str | None:
    return next((name for name in names if isinstance(given.get(name), str | int | float) and given[name] != ""), None)


def _merge_equal(options: list[Any]) -> list[Any]:
    """Return the options without those whose label was there before, which people could not distinguish, if there is
    still a choice."""
    seen, kept = set[str](), list[Any]()
    for option in options:
        label = option.get("label") if isinstance(option, dict) else option
        key = " ".join(label.split()).casefold() if isinstance(label, str) else ""
        if not key or key not in seen:
            kept.append(option)
        seen.add(key)
    return kept if len(kept) > 1 else options
