"""AutoGen's shelf: each public class of autogen-agentchat and autogen-ext, and of what autogen-core gives to both, in a
team that is asked something. `tests/autogen/test_shelf.py` runs the rows and makes the table in the documentation.
"""

from __future__ import annotations

from collections.abc import Sequence

from shelf import agents, conditions, core, extensions, services, teams
from shelf.others import BESIDE, ELSEWHERE
from shelf.rows import Outcome, Row

ROWS: Sequence[Row] = [*agents.ROWS, *teams.ROWS, *conditions.ROWS, *core.ROWS, *extensions.ROWS, *services.ROWS]

__all__ = ["BESIDE", "ELSEWHERE", "ROWS", "Outcome", "Row"]
