"""A team as a diagram, read from the team object: agents, nested agents, tools, hand-offs and the user proxy."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Literal

from upcall.agents.clarifier import Clarifier
from upcall.agents.nested_team import NestedTeam
from upcall.agents.planner import Planner
from upcall.agents.stand_in import StandIn
from upcall.agents.toolset import Toolset
from upcall.autogen.api import AssistantAgent, BaseGroupChat, BaseTool, ChatAgent, Team, UserProxyAgent, Workbench
from upcall.autogen.group_chats import graph_of, manager_of, members
from upcall.autogen.internals import agent_of, assistant_parts, is_static, parts_of, static_tools, team_of
from upcall.autogen.workbenches import StatelessWorkbench
from upcall.ui.diagrams.diagram import Picture
from upcall.ui.diagrams.svg import (
    BLUE,
    FAINT,
    GREEN,
    LINE,
    MARGIN,
    PAPER,
    SHADE,
    WIDTH,
    Drawing,
    clean_text,
    count_phrase,
    measure_width,
)

DrawnRole = Literal["team", "agent", "human"]

MAX_TOOLS = 12
"""How many tools of an agent are named; the others are only counted."""

MAX_ARROWS = 30
"""A team with more hand-offs gets no arrows, which would be a thicket. Each member lists its own in any case."""


@dataclass(frozen=True)
class Member:
    """A team, an agent or the user proxy, and its contents.

    Attributes:
        name: its name.
        kind: its class if that is AutoGen's or the caller's own; ``you`` for the human.
        role: whether it is a team, an agent or the human.
        tools: the names of its tools.
        hands_to: the members that it hands its turn to.
        calls: the members that it calls like tools; those are not `inside`.
        asks: whether it may ask the human.
        inside: what is nested in it.
    """

    name: str
    kind: str
    role: DrawnRole = "agent"
    tools: tuple[str, ...] = ()
    hands_to: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    asks: bool = False
    inside: tuple[Member, ...] = ()


def read_team(team: Team) -> Member:
    """Return the parts of a team, as far as its objects reveal them. No server is asked for its tools."""
    return _team(team, frozenset())


def _team(team: Team, above: frozenset[int]) -> Member:
    name, kind = getattr(team, "name", ""), type(team).__name__
    here = members(team)
    if here is None or id(team) in above:
        return Member(name or kind, kind, "team")
    if not isinstance(team, BaseGroupChat):
        kind = manager_of(team).removesuffix("GroupChatManager")
    graph = graph_of(team)
    read = [_part(each, above | {id(team)}) for each in here.values()]
    if graph is not None:
        edges = {node: tuple(edge.target for edge in each.edges) for node, each in graph.nodes.items()}
        read = [replace(each, hands_to=edges.get(each.name, ())) for each in read]
    return Member(name or kind, kind, "team", inside=tuple(_draw_once(read)))


def _draw_once(read: Sequence[Member]) -> Iterator[Member]:
    """Merge an agent that takes turns with the same agent called by another member with the same tools."""
    there = {(each.name, each.tools) for each in read if each.role == "agent"}
    for member in read:
        both = [each for each in member.inside if (each.name, each.tools) in there and member.role == "agent"]
        inside = tuple(each for each in member.inside if each not in both)
        yield replace(member, inside=inside, calls=tuple(each.name for each in both))


def _part(part: ChatAgent | Team, above: frozenset[int]) -> Member:
    if isinstance(part, Team):
        return _team(part, above)
    part = part.stock if isinstance(part, StandIn) else part
    kind = "" if type(part).__module__.startswith("upcall.") else type(part).__name__
    if id(part) in above:
        return Member(part.name, kind)
    above |= {id(part)}
    if isinstance(part, UserProxyAgent):
        return Member(part.name, "you", "human")
    if isinstance(part, NestedTeam):
        return Member(part.name, kind, inside=(_team(part.team, above),))
    if isinstance(part, AssistantAgent):
        parts = assistant_parts(part)
        tools = tuple(
            name
            for name, tool in _list_offered(parts.workbenches)
            if tool is None or not (agent_of(tool) or team_of(tool))
        )
        hands_to = tuple(each.target for each in parts.handoffs)
        return Member(part.name, kind, "agent", tools, hands_to, inside=_read_nested(part, above))
    toolset = getattr(part, "toolset", None)
    if isinstance(toolset, Toolset):
        offered = [*toolset.tools, *(name for name, _ in _list_offered(toolset.workbenches))]
        names = tuple(name for name in offered if name not in toolset.nested)
        hands_to = tuple(dict.fromkeys([*(each.target for each in toolset.handoffs.values()), *_targets(part)]))
        inside = tuple(_part(each, above) for each in toolset.nested.values())
        asks = toolset.ask_user or isinstance(part, Clarifier)
        return Member(part.name, kind, "agent", names, hands_to, asks=asks, inside=inside)
    asks = isinstance(part, Planner)
    return Member(part.name, kind, hands_to=_targets(part), asks=asks, inside=_read_nested(part, above))


def _read_nested(agent: ChatAgent, above: frozenset[int]) -> tuple[Member, ...]:
    return tuple(_part(each, above) for each in parts_of(agent) if isinstance(each, ChatAgent | Team))


def _targets(agent: ChatAgent) -> tuple[str, ...]:
    """Return the agents that an agent hands off to without a tool: classifier, clarifier and planner."""
    return tuple(getattr(agent, "targets", ()))


def _list_offered(workbenches: Iterable[Workbench]) -> Iterator[tuple[str, BaseTool[Any, Any] | None]]:
    """Yield the tools of workbenches, with the object where there is one; of one that must be started to list them, its
    name."""
    for workbench in workbenches:
        if is_static(workbench):
            yield from static_tools(workbench).items()
        elif isinstance(workbench, StatelessWorkbench):
            yield from ((schema["name"], None) for schema in _at_once(workbench.list_tools()))
        else:
            name = getattr(workbench, "name", "")
            yield f"{name if isinstance(name, str) and name else type(workbench).__name__} …", None


def _at_once(listing: Coroutine[Any, Any, Sequence[Any]]) -> Sequence[Any]:
    """Return the result of a coroutine that never waits: these workbenches only read what they have."""
    try:
        listing.send(None)
    except StopIteration as end:
        listed: Sequence[Any] = end.value
        return listed
    listing.close()
    return ()


# -- Mermaid ----------------------------------------------------------------------------------------------------------


def team_mermaid(team: Team) -> str:
    """Return a team as a Mermaid flowchart: solid lines lead to nested agents, dotted ones are
    hand-offs."""
    return "\n".join(["flowchart TB", *_Flowchart().team(read_team(team), "  ")]) + "\n"


class _Flowchart:
    """Nodes have numbers as ids: a name may be any word, also one of Mermaid's own."""

    def __init__(self) -> None:
        self._ids = map("n{}".format, count(1))

    def team(self, team: Member, indent: str, node: str | None = None) -> Iterator[str]:
        """Yield a team and everything in it."""
        node = node or next(self._ids)
        ids = {each.name: next(self._ids) for each in team.inside}
        yield f'{indent}subgraph {node}["{_quote(_full_name(team))}"]'
        for each in team.inside:
            yield from self._member(each, ids[each.name], indent + "  ")
        for each in team.inside:
            for target in each.hands_to:
                if target in ids:
                    yield f"{indent}  {ids[each.name]} -.-> {ids[target]}"
            for called in each.calls:
                yield f"{indent}  {ids[each.name]} --> {ids[called]}"
        yield f"{indent}end"

    def _member(self, member: Member, node: str, indent: str) -> Iterator[str]:
        label = "<br/>".join(_quote(each) for each in (member.name, member.kind) if each)
        if member.role == "team":
            yield from self.team(member, indent, node)
            return
        yield f'{indent}{node}(["{label}"])' if member.role == "human" else f'{indent}{node}["{label}"]'
        if member.tools:
            tools, named = next(self._ids), "<br/>".join(map(_quote, _some(member.tools)))
            yield f'{indent}{tools}[/"{named}"/]'
            yield f"{indent}{node} --- {tools}"
        for each in member.inside:
            inner = next(self._ids)
            yield from self._member(each, inner, indent)
            yield f"{indent}{node} --> {inner}"


def _quote(text: str) -> str:
    """Return a text as a Mermaid label, with Mermaid syntax and HTML written as codes."""
    codes = {"#": "#35;", "%": "#37;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;", "\\": "#92;"}
    return "".join(codes.get(char, char) for char in clean_text(text))


# -- SVG --------------------------------------------------------------------------------------------------------------

TITLE, ROW, INSET, GAP = 24.0, 15.0, 10.0, 8.0
NARROWEST = 190.0
"""A box with less room for its text is drawn with its contents listed by name."""


def team_svg(team: Team) -> Picture:
    """Return a team as an SVG: nested agents are boxes in a box, hand-offs are arrows on the right."""
    root = read_team(team)
    everybody = list(_all(root))
    agents = [each for each in everybody if each.role == "agent"]
    description = f"{count_phrase(len(agents), 'agent')}. " + " ".join(map(_sentence, everybody))
    drawing = Drawing(f"Team {_full_name(root)}", description, f"team {everybody}")
    box = _Box(root, WIDTH - 2 * MARGIN)
    box.draw(drawing, MARGIN, MARGIN)
    y = MARGIN + box.height + 20
    drawing.line([(MARGIN, y - 4), (MARGIN + 24, y - 4)], stroke=BLUE, width=1.5)
    _tip(drawing, MARGIN + 24, y - 4, 1)
    drawing.text(MARGIN + 32, y, "hands the turn over", size=11)
    drawing.text(MARGIN + 200, y, "a box in a box: nested, called like a tool", size=11)
    return drawing.finish(y + MARGIN)


class _Box:
    """A member with its place; its height follows from its maximum width."""

    def __init__(self, member: Member, width: float) -> None:
        self.member, self.width = member, width
        names = {each.name for each in member.inside}
        self._edges = (
            [(each.name, target) for each in member.inside for target in each.hands_to if target in names]
            if member.role == "team"
            else []
        )
        if len(self._edges) > MAX_ARROWS:
            self._edges = []
        self._columns = _columns(self._edges, [each.name for each in member.inside])
        gutter = 7 * (max(self._columns, default=-1) + 1) + (14 if self._edges else 0)
        inner = width - 2 * INSET - gutter
        fits = inner >= NARROWEST
        self.inside = [_Box(each, inner) for each in member.inside] if fits else []
        self._rows = list(_rows(member, width - 2 * INSET, named=not fits))
        nested = sum(each.height + GAP for each in self.inside)
        self.height: float = TITLE + ROW * len(self._rows) + nested + (INSET if nested else 6)

    def draw(self, drawing: Drawing, x: float, y: float) -> None:
        """Draw the box, with its corner at (`x`, `y`), and everything in it."""
        member = self.member
        human, team = member.role == "human", member.role == "team"
        fill, stroke = (SHADE, LINE) if team else (PAPER, GREEN if human else BLUE)
        drawing.rect(x, y, self.width, self.height, fill=fill, stroke=stroke, dashed=human, radius=6, kind=member.role)
        wide = self.width - 2 * INSET
        kind = member.kind if member.kind != member.name else ""
        taken = min(measure_width(kind, 11) + 12, wide * 0.5) if kind else 0.0
        drawing.text(x + INSET, y + 17, member.name, size=13, bold=True, width=wide - taken)
        drawing.text(x + self.width - INSET, y + 17, kind, size=11, width=taken, colour=FAINT, anchor="end")
        at = y + TITLE
        for row in self._rows:
            drawing.text(x + INSET, at + 10, row, size=11, width=wide, colour=FAINT)
            at += ROW
        tops: dict[str, tuple[float, _Box]] = {}
        for each in self.inside:
            each.draw(drawing, x + INSET, at)
            tops[each.member.name] = (at, each)
            at += each.height + GAP
        if self.inside and self._edges:
            self._arrows(drawing, tops, x + INSET + self.inside[0].width)

    def _arrows(self, drawing: Drawing, tops: Mapping[str, tuple[float, _Box]], right: float) -> None:
        """Assign each hand-off a column, shared only with hand-offs that it does not pass."""
        ports: dict[str, list[tuple[int, bool]]] = {name: [] for name in tops}
        for number, (source, target) in enumerate(self._edges):
            ports[source].append((number, True))
            ports[target].append((number, False))
        at: dict[tuple[int, bool], float] = {}
        for name, here in ports.items():
            top, box = tops[name]
            for place, port in enumerate(here, 1):
                at[port] = top + box.height * place / (len(here) + 1)
        for number, column in enumerate(self._columns):
            start, end, out = at[number, True], at[number, False], right + 10 + 7 * column
            drawing.line([(right, start), (out, start), (out, end), (right + 1, end)], stroke=BLUE, width=1.2)
            _tip(drawing, right, end, -1)


def _columns(edges: Sequence[tuple[str, str]], order: Sequence[str]) -> list[int]:
    """Return the column of each arrow, so that no two in one column meet; short ones are nearest."""
    place = {name: number for number, name in enumerate(order)}
    spans = [(min(place[one], place[other]), max(place[one], place[other])) for one, other in edges]
    taken: list[list[tuple[int, int]]] = []
    columns = [0] * len(edges)
    for number in sorted(range(len(edges)), key=lambda each: spans[each][1] - spans[each][0]):
        low, high = spans[number]
        column = next((at for at, there in enumerate(taken) if _is_free(there, low, high)), len(taken))
        if column == len(taken):
            taken.append([])
        taken[column].append((low, high))
        columns[number] = column
    return columns


def _is_free(there: Sequence[tuple[int, int]], low: int, high: int) -> bool:
    return all(high < first or last < low for first, last in there)


def _tip(drawing: Drawing, x: float, y: float, way: int) -> None:
    """Draw the tip of an arrow that ends at (`x`, `y`), pointing right, or with -1 left."""
    drawing.shape([(x, y), (x - 6 * way, y - 3), (x - 6 * way, y + 3)], fill=BLUE)


def _rows(member: Member, width: float, *, named: bool) -> Iterator[str]:
    """Yield the lines of text in a box."""
    if member.tools:
        yield from _wrap("tools: ", _some(member.tools), width)
    if member.hands_to:
        yield from _wrap("hands off to: ", _some(member.hands_to), width)
    if member.calls:
        yield from _wrap("calls like tools: ", _some(member.calls), width)
    if member.asks:
        yield "asks you"
    if named and member.inside:
        yield from _wrap("in it: ", _some([each.name for each in member.inside]), width)


def _wrap(first: str, words: Sequence[str], width: float) -> Iterator[str]:
    line = first
    for number, word in enumerate(words):
        piece = clean_text(word) + ("," if number + 1 < len(words) else "")
        if line.strip() and line != first and measure_width(f"{line} {piece}", 11) > width:
            yield line
            line = piece
        else:
            line = f"{line.rstrip()} {piece}"
    yield line


def _some(names: Sequence[str]) -> list[str]:
    left = len(names) - MAX_TOOLS
    return [*names[:MAX_TOOLS], *([f"and {left} more"] if left > 0 else [])]


def _full_name(member: Member) -> str:
    return member.name if member.kind in ("", member.name) else f"{member.name} ({member.kind})"


def _sentence(member: Member) -> str:
    named = [*(each.name for each in member.inside), *member.calls]
    return f"{member.name} has {', '.join(named)}." if named else ""


def _all(member: Member) -> Iterable[Member]:
    yield member
    for each in member.inside:
        yield from _all(each)
