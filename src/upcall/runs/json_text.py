"""Values of a run as JSON text that is stored."""

from __future__ import annotations

import json

from pydantic import BaseModel


def dump_json(model: BaseModel, *, exclude_none: bool = False) -> str:
    """Give a value as JSON text, whatever its texts hold."""
    try:
        return model.model_dump_json(exclude_none=exclude_none)
    except ValueError:  # Half a surrogate pair: no UTF-8, but a text that Python can hold, and JSON as an escape.
        return json.dumps(model.model_dump(mode="json", exclude_none=exclude_none), separators=(",", ":"))
