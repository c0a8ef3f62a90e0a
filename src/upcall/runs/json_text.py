"""Values of a run as JSON text that is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer


class SparseModel(BaseModel, defer_build=True):
    """A model that is written without the fields that have their default; reading restores them.

    Not for the settings of a run: they must hold even if a later version has other defaults.
    """

    @model_serializer(mode="wrap")
    def _leave_defaults_out(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        defaults = _list_defaults(type(self))
        return {
            name: value
            for name, value in dump(self).items()
            if name not in defaults or getattr(self, name) != defaults[name]
        }


@cache
def _list_defaults(kind: type[BaseModel]) -> Mapping[str, Any]:
    """Return the defaults of a class by field, made once: each state that is written is compared with them."""
    fields = kind.model_fields.items()
    return {name: field.get_default(call_default_factory=True) for name, field in fields if not field.is_required()}


def dump_json(model: BaseModel, *, exclude_none: bool = False) -> str:
    """Give a value as JSON text, whatever its texts hold."""
    try:
        return model.model_dump_json(exclude_none=exclude_none)
    except ValueError:  # Half a surrogate pair: no UTF-8, but a text that Python can hold, and JSON as an escape.
        return json.dumps(model.model_dump(mode="json", exclude_none=exclude_none), separators=(",", ":"))
