"""The events of a run as lines: a tree on a terminal, and lines that stand alone anywhere else."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime

from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
)
from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from upcall.autogen.messages import ANSWERS, ERROR, PLAN, QUESTIONS, Event, event_path, message_answers
from upcall.progress import PROGRESS
from upcall.questions.answer import AnsweredBy
from upcall.runs.plan import Plan, PlanStep, ReviewedPlan
from upcall.runs.run import Run
from upcall.text import escape_controls, one_line
from upcall.ui.columns import LINE_CHARS, cut_to_width, wrap_lines
from upcall.ui.plan_ticks import calls_by_name, done_steps, tick_steps

_INDENT = "  "
_BESIDE_TICK = " " * 6
_NAME_CHARS = 64
"""What is shown of a tool's name: a model may make up any."""
_COST_FROM = 60
"""A narrower terminal has the columns for what is said and not for what it took."""
_SILENT_FROM = 3.0
"""Seconds without an event after which a line says that there is work all the same."""


class EventTree:
    """Prints the events of a run, one line each: who, what, and on the same line what it took.

    Args:
        console: where to.
        live: whether that is a terminal that can be drawn on. There nested agents are indented, lines are as wide as
            the terminal, and progress is one line that changes. Else each line has the whole path.
    """

    def __init__(self, console: Console, *, live: bool) -> None:
        self._console, self._live = console, live
        self._above: tuple[str, ...] = ()
        self._last_at: dict[tuple[str, ...], datetime] = {}
        self._called_at: dict[str, datetime] = {}
        self._came_back: Counter[str] = Counter()
        self._plan: Plan | None = None
        self._ticked: set[str] = set()
        self._drawn = self._silence_drawn = False
        self._told_at = time.monotonic()

    def begin(self, run: Run) -> None:
        """Know what was done before: it is ticked, and not told again."""
        self._above, self._last_at, self._called_at = (), {}, {}
        self._came_back = calls_by_name(run.tools, run.failed_tools)
        self._plan = run.plan
        self._ticked = set(done_steps(run.plan, self._came_back)) if run.plan else set()

    def settle(self) -> None:
        """Leave the line of progress as it is, and take away that of silence: something else is printed."""
        self._told_at = time.monotonic()
        if self._silence_drawn:
            self._silence_drawn = False
            self._over("")
        if self._drawn:
            self._drawn = False
            self._console.print()

    def show(self, event: Event) -> None:
        """Print an event; nothing where it says nothing to a reader."""
        if self._live and isinstance(event, ThoughtEvent) and PROGRESS in event.metadata:
            self._draw(one_line(event.content, LINE_CHARS))
            return
        path, cost = event_path(event), self._cost(event)
        if said := _said(event):
            self.settle()
            self._line(path, said, cost)
        for step, done in self._steps(event):
            self.settle()
            line = escape_controls(tick_steps(step, done=done))
            for part in (
                wrap_lines(line, self._console.width - 1, _INDENT, _BESIDE_TICK) if self._live else [_INDENT + line]
            ):
                self._console.print(Text(part, style="dim"))

    def tell_of_silence(self) -> None:
        """Where nothing was told for some seconds, one line that changes says for how long; the next event takes its
        place. Nothing below a line of progress, and where nothing can be drawn."""
        silent = time.monotonic() - self._told_at
        if self._live and not self._drawn and silent >= _SILENT_FROM:
            self._silence_drawn = True
            self._over(f"at work for {silent:.0f} s; Ctrl-C stops, and what is done stays stored")

    def _draw(self, text: str) -> None:
        """Over the line of progress that stands there."""
        self._drawn, self._silence_drawn = True, False
        self._over(text)

    def _over(self, text: str) -> None:
        """In place of the line that the cursor is in."""
        self._console.file.write(f"\r\x1b[2K{cut_to_width(escape_controls(text), self._console.width - 1)}")
        self._console.file.flush()

    def _line(self, path: tuple[str, ...], said: str, cost: str) -> None:
        if not self._live:
            tail = f"  ({cost})" if cost else ""
            self._console.print(
                Text.assemble((escape_controls(" > ".join(path)), "cyan"), "  ", escape_controls(said), (tail, "dim"))
            )
            return
        for depth in range(len(path) - 1):  # A line below that of another agent's agent would seem to be that one's.
            if self._above[: depth + 1] != path[: depth + 1]:
                above = cut_to_width(f"{_INDENT * depth}{escape_controls(path[depth])}", self._console.width - 1)
                self._console.print(Text(above, style="dim cyan"))
        self._above = path
        indent, who = _INDENT * min(len(path) - 1, self._console.width // 8), escape_controls(path[-1])
        room = self._console.width - 1
        shown_cost = cost if cost and room >= _COST_FROM else ""
        left = cut_to_width(
            f"{indent}{who}  {escape_controls(said)}", room - (len(shown_cost) + 2 if shown_cost else 0)
        )
        line = Text(left)
        line.stylize("cyan", len(indent), len(indent) + len(who))
        if shown_cost:
            line.append(" " * (room - line.cell_len - len(shown_cost)))
            line.append(shown_cost, "dim")
        self._console.print(line)

    def _cost(self, event: Event) -> str:
        """How long it took, and the tokens of its model call: ``1.2 s  310+12 tok``."""
        path, at = event_path(event), event.created_at
        since = self._last_at.get(path) or self._last_at.get(path[:-1]) or self._last_at.get(())
        self._last_at[path] = at
        if len(path) == 1:
            self._last_at[()] = at
        if isinstance(event, ToolCallRequestEvent):
            self._called_at |= {call.id: at for call in event.content}
        if isinstance(event, ToolCallExecutionEvent):
            calls = [found for each in event.content if (found := self._called_at.pop(each.call_id, None))]
            since = min(calls, default=None)
        spent = event.models_usage
        if since is None or not (spent or isinstance(event, ToolCallExecutionEvent)):
            return ""
        took = f"{max((at - since).total_seconds(), 0):5.1f} s"
        tokens = f"{spent.prompt_tokens:,}+{spent.completion_tokens} tok" if spent else ""
        return f"{took}  {tokens:>14}" if self._live else "  ".join(filter(None, [took.strip(), tokens]))

    def _steps(self, event: Event) -> list[tuple[PlanStep, bool]]:
        """The steps of the plan that are new, or newly done, each with whether it is done."""
        if isinstance(event, HandoffMessage) and PLAN in event.metadata and QUESTIONS not in event.metadata:
            try:
                self._plan = ReviewedPlan.model_validate_json(event.metadata[PLAN])
            except ValidationError:
                return []  # The plan of a team of somebody's own.
            self._ticked = set(done_steps(self._plan, self._came_back))
            return [(step, step.step_id in self._ticked) for step in self._plan.steps]
        if not isinstance(event, ToolCallExecutionEvent):
            return []
        self._came_back.update(each.name for each in event.content if not each.is_error)
        if self._plan is None:
            return []
        done = set(done_steps(self._plan, self._came_back))
        new, self._ticked = done - self._ticked, done
        return [(step, True) for step in self._plan.steps if step.step_id in new]


def _said(event: BaseAgentEvent | BaseChatMessage) -> str:
    match event:
        case ThoughtEvent() if ANSWERS in event.metadata:
            return f"has its answer: {one_line(event.content, LINE_CHARS)}"
        case ThoughtEvent() if PROGRESS in event.metadata:
            return one_line(event.content, LINE_CHARS)
        case _ if QUESTIONS in event.metadata or isinstance(event, ModelClientStreamingChunkEvent):
            return ""
        case ToolCallRequestEvent():
            asked = (call for call in event.content if call.name != "ask_user")
            calls = [f"{one_line(call.name, _NAME_CHARS)}({one_line(call.arguments, 60)})" for call in asked]
            return f"calls {', '.join(calls)}" if calls else ""
        case ToolCallExecutionEvent():
            results = [
                f"{one_line(each.name, _NAME_CHARS)}: {one_line(each.content, LINE_CHARS)}" for each in event.content
            ]
            return "; ".join(results)
        case HandoffMessage():
            plan = " with the plan" if PLAN in event.metadata else ""
            if event.source == "user":
                if {answer.by for answer in message_answers(event)} == {AnsweredBy.POLICY}:
                    return ""  # The asker's own line tells it.
                long = len(event.content) > LINE_CHARS  # A plan that was reviewed would hide what was said of it.
                said = "; ".join(answer.as_text() for answer in message_answers(event)) if long else event.content
                return f"answers: {one_line(said, LINE_CHARS)}"
            return f"hands over to {event.target}{plan}"
        case TextMessage() if ERROR in event.metadata:
            return ""  # It is told as the run's error.
        case TextMessage():
            return "" if event.source == "user" else f"reports: {one_line(event.content, LINE_CHARS)}"
        case _:
            return ""
