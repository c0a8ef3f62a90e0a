"""The events of a run as lines: a tree on a terminal, self-contained lines anywhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from upcall.autogen.api import (
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
)
from upcall.autogen.messages import PLAN, QUESTIONS, Event, event_path
from upcall.progress import PROGRESS
from upcall.runs.plan import Plan, PlanStep, ReviewedPlan
from upcall.runs.plan_steps import count_returns, find_done_steps
from upcall.runs.run import Run
from upcall.text import escape_controls, one_line
from upcall.ui.columns import LINE_CHARS, cut_to_width, wrap_lines
from upcall.ui.event_lines import REPORTS, describe_event
from upcall.ui.plan_ticks import tick_step

if TYPE_CHECKING:
    from upcall.ui.terminal.live_region import LiveRegion

_INDENT = "  "
_BESIDE_TICK = " " * 6
_COST_FROM = 60
"""A narrower terminal uses its columns for the text and omits times and tokens."""


class EventTree:
    """Prints the events of a run, one line each: who did what, the time and the tokens.

    Args:
        console: where to print.
        region: the changing lines of a terminal that can be drawn on. There nested agents are indented, lines are as
            wide as the terminal, and tokens and progress change in place. Without it each line has the whole path.
    """

    def __init__(self, console: Console, region: LiveRegion | None = None) -> None:
        self._console, self._region = console, region
        self._above: tuple[str, ...] = ()
        self._clock = _Clock()
        self._held: _HeldReport | None = None
        self._returns: Counter[str] = Counter()
        self._plan: Plan | None = None
        self._ticked: set[str] = set()

    def begin(self, run: Run) -> None:
        """Mark earlier work as known: it is ticked, and not printed again."""
        self._above, self._clock = (), _Clock()
        if self._region is not None:
            self._region.texts.clear()
        self._returns = count_returns(run)
        self._plan = run.plan
        self._ticked = set(find_done_steps(run.plan, self._returns)) if run.plan else set()

    @contextmanager
    def pause_clock(self) -> Iterator[None]:
        """Stop the clock inside: the run waits for somebody."""
        began = datetime.now(UTC)
        try:
            yield
        finally:
            self._clock.skip(datetime.now(UTC) - began)

    def show(self, event: Event) -> None:
        """Print an event, unless it is of no interest to a reader."""
        path = event_path(event)
        if isinstance(event, ModelClientStreamingChunkEvent):
            if self._region is not None:
                self._region.texts.add(event)
            return
        if self._region is not None:
            if isinstance(event, ThoughtEvent) and PROGRESS in event.metadata:
                self._region.progress = one_line(event.content, LINE_CHARS)
                return
            self._region.texts.end(event)
        self.settle()
        cost = self._measure(event)
        line = describe_event(event)
        if line.startswith(REPORTS) and isinstance(event, TextMessage) and len(path) == 1:
            self._held = _HeldReport(path, line, cost, event.content)
        elif line:
            self._print(path, line, cost)
        for step, done in self._find_steps(event):
            self._print_step(step, done=done)

    def finish(self, result: str | None) -> None:
        """Print the last report, without its text if that is the run's `result`, which is printed by itself."""
        held, self._held = self._held, None
        if held is not None:
            is_result = result is not None and result.strip() == held.text.strip()
            self._print(held.path, REPORTS.rstrip(": ") if is_result else held.line, held.cost)

    def settle(self) -> None:
        """Print the last report of an outermost agent, and the last progress permanently."""
        self.finish(None)
        if self._region is not None and self._region.progress:
            text, self._region.progress = self._region.progress, ""
            self._console.print(Text(cut_to_width(escape_controls(text), self._console.width - 1)))

    def _print(self, path: tuple[str, ...], line: str, cost: str) -> None:
        if self._region is None:
            tail = f"  ({cost})" if cost else ""
            self._console.print(
                Text.assemble((escape_controls(" > ".join(path)), "cyan"), "  ", escape_controls(line), (tail, "dim"))
            )
            return
        width = self._console.width - 1
        for depth in range(len(path) - 1):  # A line below another agent's agent would seem to be that one's.
            if self._above[: depth + 1] != path[: depth + 1]:
                self._console.print(
                    Text(cut_to_width(f"{_INDENT * depth}{escape_controls(path[depth])}", width), "dim cyan")
                )
        self._above = path
        indent, who = _INDENT * min(len(path) - 1, self._console.width // 8), escape_controls(path[-1])
        shown_cost = cost if self._console.width >= _COST_FROM else ""
        text = cut_to_width(
            f"{indent}{who}  {escape_controls(line)}", width - (len(shown_cost) + 2 if shown_cost else 0)
        )
        printed = Text(text)
        printed.stylize("cyan", len(indent), len(indent) + len(who))
        if shown_cost:
            printed.append(" " * (width - printed.cell_len - len(shown_cost)))
            printed.append(shown_cost, "dim")
        self._console.print(printed)

    def _print_step(self, step: PlanStep, *, done: bool) -> None:
        line = escape_controls(tick_step(step, done=done))
        width = self._console.width - 1
        parts = [_INDENT + line] if self._region is None else wrap_lines(line, width, _INDENT, _BESIDE_TICK)
        for part in parts:
            self._console.print(Text(part, style="dim"))

    def _measure(self, event: Event) -> str:
        """Format the duration and the tokens of the model call: ``1.2 s  310+12 tok``."""
        took, spent = self._clock.measure(event), event.models_usage
        if took is None or not (spent or isinstance(event, ToolCallExecutionEvent)):
            return ""
        seconds = f"{max(took.total_seconds(), 0):.1f} s"
        tokens = f"{spent.prompt_tokens:,}+{spent.completion_tokens} tok" if spent else ""
        return "  ".join(filter(None, [seconds, tokens])) if self._region is None else f"{seconds:>7}  {tokens:>14}"

    def _find_steps(self, event: Event) -> list[tuple[PlanStep, bool]]:
        """Find the plan steps that are new or newly done, and whether each is done."""
        if isinstance(event, HandoffMessage) and PLAN in event.metadata and QUESTIONS not in event.metadata:
            try:
                self._plan = ReviewedPlan.model_validate_json(event.metadata[PLAN])
            except ValidationError:
                return []  # The plan of somebody else's team.
            self._ticked = set(find_done_steps(self._plan, self._returns))
            return [(step, step.step_id in self._ticked) for step in self._plan.steps]
        if not isinstance(event, ToolCallExecutionEvent):
            return []
        self._returns.update(each.name for each in event.content if not each.is_error)
        if self._plan is None:
            return []
        done = set(find_done_steps(self._plan, self._returns))
        new, self._ticked = done - self._ticked, done
        return [(step, True) for step in self._plan.steps if step.step_id in new]


class _HeldReport(NamedTuple):
    """A report that may be the result of the run, until the next event shows that it is not."""

    path: tuple[str, ...]
    line: str
    cost: str
    text: str


class _Clock:
    """How long agents took, without the time when the run waited for somebody."""

    def __init__(self) -> None:
        self._last_at: dict[tuple[str, ...], datetime] = {}
        self._called_at: dict[str, datetime] = {}

    def skip(self, waited: timedelta) -> None:
        """Exclude a time when nobody worked."""
        self._last_at = {path: at + waited for path, at in self._last_at.items()}
        self._called_at = {call: at + waited for call, at in self._called_at.items()}

    def measure(self, event: Event) -> timedelta | None:
        """Return how long an event took; None if its start is unknown."""
        path, at = event_path(event), event.created_at
        # The first thing that an agent does began when its caller called it; for the caller, when the team began.
        since = self._last_at.get(path) or self._last_at.get(path[:-1]) or self._last_at.get(())
        self._last_at[path] = at
        if len(path) == 1:
            self._last_at[()] = at
        if isinstance(event, ToolCallRequestEvent):
            self._called_at |= {call.id: at for call in event.content}
        if isinstance(event, ToolCallExecutionEvent):
            began = [found for each in event.content if (found := self._called_at.pop(each.call_id, None))]
            since = min(began, default=None)
        return None if since is None else at - since
