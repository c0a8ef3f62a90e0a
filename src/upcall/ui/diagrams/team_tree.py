"""A team as text for a terminal: its members, their tools, and who may ask."""

from __future__ import annotations

from collections.abc import Iterator

from upcall.autogen.api import Team
from upcall.text import one_line
from upcall.ui.diagrams.team import Member, read_team

_INDENT = "  "


def team_lines(team: Team) -> list[str]:
    """Return a team as lines, with nested members indented below it."""
    return list(_lines(read_team(team), 0))


def _lines(member: Member, depth: int) -> Iterator[str]:
    kind = f" ({member.kind})" if member.kind not in ("", member.name) else ""
    yield _INDENT * depth + one_line(f"{member.name}{kind}{', may ask you' if member.asks else ''}")
    for label, names in (
        ("tools", member.tools),
        ("hands off to", member.hands_to),
        ("calls like tools", member.calls),
    ):
        if names:
            yield _INDENT * (depth + 1) + one_line(f"{label}: {', '.join(names)}")
    for inside in member.inside:
        yield from _lines(inside, depth + 1)
