"""The calls in which an agent works."""

from __future__ import annotations

from typing import TypeAlias

CallPath: TypeAlias = tuple[tuple[str, str], ...]
"""Calls, from the outermost on: who made each, and its id, which is empty for a team's turn."""
