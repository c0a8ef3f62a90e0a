"""A run as a tree: who worked for whom, tools, tokens and questions of each agent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from upcall.runs.run import Run, Usage
from upcall.text import one_line
from upcall.ui.columns import LINE_CHARS
from upcall.ui.diagrams.diagram import Picture
from upcall.ui.diagrams.labels import AgentPath, Asked, list_agents, list_asked, summarize
from upcall.ui.diagrams.svg import FAINT, LINE, MARGIN, WIDTH, Drawing, count_phrase, measure_width

STEP, MAX_DEPTH = 22, 12
"""The indentation of a node relative to its parent, and the maximum depth that is indented."""

MAX_NODES = 400


@dataclass(frozen=True)
class _Node:
    depth: int
    name: str
    detail: str
    below: str = ""
    asked: Asked | None = None


def tree(run: Run) -> Picture:
    """Return a run as an SVG: agents below those they work for, with their tokens and tools, and the
    questions they asked, with the answers."""
    asked = list_asked(run)
    agents = list_agents(run)
    description = f"{summarize(run, agents, asked)}."
    drawing = Drawing(f"Agents and questions of run {run.id}, {run.status}", description, f"{run.id} tree")
    wide = WIDTH - 2 * MARGIN
    drawing.text(MARGIN, 28, f"Run {run.id}: {run.status}", size=16, width=wide, bold=True)
    drawing.text(MARGIN, 48, run.task, width=wide, colour=FAINT)
    nodes = list(_nodes(run, agents, asked))
    y, parents = 64.0, {0: 56.0}
    for node in nodes[:MAX_NODES]:
        depth = min(node.depth, MAX_DEPTH)
        x, middle = float(MARGIN + STEP * depth), y + 12
        parent_x = MARGIN + STEP * (depth - 1) + 6
        drawing.line([(parent_x, parents[depth - 1]), (parent_x, middle), (x, middle)])
        _draw(drawing, node, x, y)
        height = 40.0 if node.below else 24.0
        parents[depth] = y + 18
        y += height
    if len(nodes) > MAX_NODES:
        drawing.text(MARGIN, y + 14, f"and {len(nodes) - MAX_NODES:,} more", colour=FAINT)
        y += 20
    return drawing.finish(y + MARGIN)


def tree_lines(run: Run) -> list[str]:
    """Return the same tree as text: agents below those they work for, with their questions and tokens."""
    lines = [f"Run {run.id}: {run.status}"]
    for node in _nodes(run, list_agents(run), list_asked(run)):
        indent = "  " * min(node.depth, MAX_DEPTH)
        detail = f"  ({node.detail})" if node.detail else ""
        lines.append(f"{indent}{'? ' if node.asked else ''}{one_line(node.name, LINE_CHARS)}{detail}")
        lines += [f"{indent}  {one_line(node.below, LINE_CHARS)}"] if node.below else []
    return lines


def _nodes(run: Run, agents: list[AgentPath], asked: list[Asked]) -> Iterator[_Node]:
    for path in agents:
        yield _Node(len(path), path[-1], _describe_usage(run.usage.get("/".join(path))), _tools(run, path))
        for each in asked:
            if each.question.path == path:
                yield _Node(len(path) + 1, f"{each.number}. {each.question.question}", "", each.outcome, each)
    for each in asked:
        if not each.question.path:  # About a call in doubt, say: nobody in the team asked it.
            yield _Node(1, f"{each.number}. {each.question.question}", "", each.outcome, each)


def _draw(drawing: Drawing, node: _Node, x: float, y: float) -> None:
    right = WIDTH - MARGIN
    if node.asked is not None:
        drawing.diamond(x + 5, y + 12)
    else:
        drawing.rect(x, y + 8, 9, 9, fill=LINE, radius=2)
    left, taken = x + 16, measure_width(node.detail, 11) + 12 if node.detail else 0.0
    drawing.text(left, y + 16, node.name, width=right - left - taken, bold=node.asked is None)
    if node.detail:
        drawing.text(right, y + 16, node.detail, size=11, anchor="end", colour=FAINT)
    if node.below:
        drawing.text(left, y + 32, node.below, size=11, width=right - left, colour=FAINT)


def _describe_usage(usage: Usage | None) -> str:
    if usage is None:
        return ""
    return f"{count_phrase(usage.model_calls, 'call')}, {usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens"


def _tools(run: Run, path: AgentPath) -> str:
    prefix = "/".join(path) + "/"
    used = {
        name.removeprefix(prefix): count
        for name, count in run.tools.items()
        if name.startswith(prefix) and "/" not in name.removeprefix(prefix)
    }
    agents = {each.removeprefix(prefix) for each in run.usage if each.startswith(prefix)}
    own = [f"{name} ×{count}" if count > 1 else name for name, count in used.items() if name not in agents]
    return f"tools: {', '.join(own)}" if own else ""
