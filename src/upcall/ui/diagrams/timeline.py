"""A run as a timeline: agents as lanes, their calls as bars, and compressed waits for the human."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from upcall.questions.answer import AnsweredBy
from upcall.runs.call_timings import TimedCall, WorkPeriod
from upcall.runs.run import Run
from upcall.ui.diagrams.diagram import Picture
from upcall.ui.diagrams.labels import AgentPath, Asked, list_agents, list_asked, summarize
from upcall.ui.diagrams.svg import (
    BLUE,
    FAINT,
    INK,
    LINE,
    MARGIN,
    ORANGE,
    PAPER,
    RED,
    SHADE,
    WIDTH,
    Drawing,
    count_phrase,
    format_duration,
    measure_width,
)

LABELS = 184
LEFT, RIGHT = MARGIN + LABELS, WIDTH - MARGIN
LANE, ROW, ROWS = 22, 9, 4
"""The height of a lane, and of each row in a lane with concurrent calls; the number of rows."""

MAX_LANES = 60
MAX_LISTED = 60
SECOND = timedelta(seconds=1)
NO_GAP = timedelta(seconds=0.25)
"""Shorter stops of a team are not visible in the picture."""


@dataclass(frozen=True)
class TimelinePart:
    """A part of a run's time: work, drawn to scale, or a break of fixed width."""

    start: datetime
    end: datetime
    work: bool
    asked: tuple[Asked, ...] = ()
    open: bool = False

    @property
    def seconds(self) -> float:
        """Its length."""
        return max(0.0, (self.end - self.start).total_seconds())


def timeline(run: Run, call_timings: Sequence[WorkPeriod] = ()) -> Picture:
    """Return a run as an SVG.

    `call_timings` says when its teams were at work and what they called (`Upcall.log.call_timings`); without it the
    picture has the agents, the questions and the waits, but no calls.
    """
    asked = list_asked(run)
    calls = [call for each in call_timings for call in each.calls]
    agents = list_agents(run, (call.path for call in calls))
    shown = agents[:MAX_LANES]
    drawing = Drawing(f"Timeline of run {run.id}, {run.status}", _description(run, agents, asked), f"{run.id} timeline")
    _head(drawing, run)
    scale = _Scale(_parts(run, call_timings, asked))
    lanes = _Lanes(shown, calls, scale, top=118)
    for part, left, width in scale.columns:
        _column(drawing, part, left, width, lanes)
    lanes.draw(drawing, asked)
    bottom = _axis(drawing, scale, lanes.bottom)
    if len(agents) > len(shown):
        drawing.text(MARGIN, bottom + 14, f"and {count_phrase(len(agents) - len(shown), 'more agent')}", colour=FAINT)
        bottom += 18
    return drawing.finish(list_entries(drawing, asked, bottom + 8) + MARGIN)


def list_entries(drawing: Drawing, asked: Sequence[Asked], top: float) -> float:
    """Draw the questions with their answers below `top`; return where they end."""
    for each in asked[:MAX_LISTED]:
        drawing.diamond(MARGIN + 5, top + 12)
        line = f"{each.number}. {each.who}: {each.question.question}"
        drawing.text(MARGIN + 16, top + 16, line, width=WIDTH - 2 * MARGIN - 16)
        drawing.text(MARGIN + 40, top + 32, each.outcome, width=WIDTH - 2 * MARGIN - 40, size=11, colour=FAINT)
        top += 38
    if len(asked) > MAX_LISTED:
        drawing.text(MARGIN, top + 14, f"and {count_phrase(len(asked) - MAX_LISTED, 'more question')}", colour=FAINT)
        top += 18
    return top


def _description(run: Run, agents: Sequence[AgentPath], asked: Sequence[Asked]) -> str:
    sentences = [f"{each.number}. {each.who} asked: {each.question.question} ({each.outcome})." for each in asked[:20]]
    return " ".join([f"{summarize(run, agents, asked)}.", *sentences])


def _head(drawing: Drawing, run: Run) -> None:
    wide = WIDTH - 2 * MARGIN
    drawing.text(MARGIN, 28, f"Run {run.id}: {run.status}", size=16, width=wide, bold=True)
    drawing.text(MARGIN, 48, run.task, width=wide, colour=FAINT)
    x = float(MARGIN)
    for kind, label in (
        ("model", "model call"),
        ("tool", "tool call"),
        ("failed", "failed"),
        ("wait", "no work: a wait"),
    ):
        if kind == "wait":
            drawing.rect(x, 61, 14, 11, fill=drawing.hatched, stroke=LINE)
        else:
            _bar(drawing, x, 62, 14, kind == "tool", kind == "failed", "")
        drawing.text(x + 19, 71, label, size=11)
        x += 19 + measure_width(label, 11) + 18
    drawing.diamond(x + 5, 67)
    drawing.line([(x + 5, 67), (x + 22, 67)], stroke=RED, width=2)
    drawing.text(x + 27, 71, "question, until its answer", size=11)


def _bar(drawing: Drawing, x: float, y: float, width: float, tool: bool, failed: bool, tip: str) -> None:
    """Draw a call. A tool call is lower and has an edge, to be distinguishable without colour; a failed one is
    empty and crossed out."""
    top, height = (y + 2, 5.0) if tool else (y, 8.0)
    colour = ORANGE if tool else BLUE
    edge = RED if failed else INK if tool and width > 2 else None
    fill = PAPER if failed else colour
    drawing.rect(x, top, width, height, fill=fill, stroke=edge, tip=tip, kind="tool" if tool else "model")
    if failed:
        drawing.line([(x, top), (x + width, top + height)], stroke=RED)


def _parts(run: Run, call_timings: Sequence[WorkPeriod], asked: Sequence[Asked]) -> list[TimelinePart]:
    """Return the time of a run as alternating work and breaks."""
    last = max([run.created_at, *(each.end for each in call_timings)])
    spans = [(each.start, each.end) for each in call_timings] or _between(run, asked)
    spans.sort()
    merged: list[tuple[datetime, datetime]] = []
    for start, end in spans:
        if merged and start - merged[-1][1] <= NO_GAP:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, max(start, end)))
    left = [each for each in asked if each.answer]
    parts: list[TimelinePart] = []
    for start, end in merged:
        if parts:
            before = parts[-1].end
            waited = tuple(each for each in left if _has_waited(each, before, start))
            left = [each for each in left if each not in waited]
            parts.append(TimelinePart(before, start, False, waited))
        parts.append(TimelinePart(start, end, True))
    if still := tuple(each for each in asked if each.answer is None):
        end = parts[-1].end if parts else last
        parts.append(TimelinePart(end, max(end, run.updated_at), False, still, open=True))
    return parts


def _between(run: Run, asked: Sequence[Asked]) -> list[tuple[datetime, datetime]]:
    """Return when a run without recorded times was at work: when none of its questions waited for the human."""
    spans: list[tuple[datetime, datetime]] = []
    at = run.created_at
    for each in asked:
        answer = each.answer
        if answer is not None and answer.by is not AnsweredBy.HUMAN:
            continue
        if each.question.asked_at >= at:
            spans.append((at, each.question.asked_at))
        at = max(at, answer.answered_at if answer else each.question.asked_at)
    end = max(at, run.updated_at)
    if not any(each.answer is None for each in asked):
        spans.append((at, end))
    return spans or [(run.created_at, end)]


def _has_waited(asked: Asked, start: datetime, end: datetime) -> bool:
    """Whether a question was answered in a break. Answers are known to the second, breaks more exactly."""
    answer = asked.answer
    return answer is not None and asked.question.asked_at <= end and start - SECOND < answer.answered_at <= end + NO_GAP


class _Scale:
    """Maps moments to positions. Breaks have a fixed width, however long they were; work gets the rest, to scale."""

    def __init__(self, parts: Sequence[TimelinePart]) -> None:
        room = float(RIGHT - LEFT)
        breaks = sum(not part.work for part in parts)
        works = [part for part in parts if part.work]
        # However many there are, breaks leave more than half of the width to the work, and each bit of work is seen.
        each = min(48.0, 0.45 * room / breaks) if breaks else 0.0
        least = min(4.0, 0.3 * room / max(1, len(works)))
        left_over = room - breaks * each - len(works) * least
        in_all = sum(part.seconds for part in works) or 1.0
        at = float(LEFT)
        self.columns: list[tuple[TimelinePart, float, float]] = []
        for part in parts:
            share = part.seconds / in_all if sum(one.seconds for one in works) else 1 / max(1, len(works))
            width = least + left_over * share if part.work else each
            self.columns.append((part, at, width))
            at += width

    def x(self, moment: datetime) -> float:
        """Return the position of a moment, in pixels."""
        for part, left, width in self.columns:
            if moment <= part.end:
                inside = (
                    (moment - part.start).total_seconds() / part.seconds if part.seconds else float(moment == part.end)
                )
                return left + width * min(1.0, max(0.0, inside))
        return float(RIGHT)


@dataclass(frozen=True)
class _Lane:
    path: AgentPath
    top: float
    height: float
    rows: tuple[tuple[TimedCall, ...], ...]


class _Lanes:
    """The lanes of the agents, one below the other."""

    def __init__(self, agents: Sequence[AgentPath], calls: Sequence[TimedCall], scale: _Scale, top: float) -> None:
        self.top, self._scale = top, scale
        self.lanes: list[_Lane] = []
        for path in agents:
            rows = _rows([call for call in calls if call.path == path])
            height = max(LANE, len(rows) * ROW + 13)
            self.lanes.append(_Lane(path, top, height, rows))
            top += height
        self.bottom = top

    def draw(self, drawing: Drawing, asked: Sequence[Asked]) -> None:
        """Draw the names, the calls, and the questions on top of them."""
        for lane in self.lanes:
            indent = 12 * min(len(lane.path) - 1, 6)
            middle = lane.top + lane.height / 2
            drawing.line([(MARGIN, lane.top), (RIGHT, lane.top)], stroke=SHADE)
            drawing.text(
                MARGIN + indent, middle + 4, lane.path[-1], width=LABELS - indent - 8, bold=len(lane.path) == 1
            )
            for number, row in enumerate(lane.rows):
                self._row(drawing, row, lane.top + 4 + number * ROW)
            for each in asked:
                if each.question.path == lane.path:
                    self._question(drawing, each, lane)
        drawing.line([(MARGIN, self.bottom), (RIGHT, self.bottom)])

    def _row(self, drawing: Drawing, row: Sequence[TimedCall], y: float) -> None:
        lefts = [self._scale.x(call.start) for call in row]
        for call, left, after in zip(row, lefts, [*lefts[1:], float(RIGHT)], strict=True):
            width = max(1.5, self._scale.x(call.end) - left)
            width = max(0.5, min(width, after - left))  # Never over the next one.
            took = format_duration((call.end - call.start).total_seconds())
            what = call.tool or "model call"
            tip = f"{'/'.join(call.path)}: {what}, {took}{', failed' if call.failed else ''}"
            _bar(drawing, left, y, width, bool(call.tool), call.failed, tip)

    def _question(self, drawing: Drawing, asked: Asked, lane: _Lane) -> None:
        y = lane.top + lane.height - 4
        start = self._scale.x(_find_ask_time(asked, lane))
        end = self._scale.x(asked.answer.answered_at) if asked.answer else float(RIGHT)
        for part, left, width in self._scale.columns:
            if asked in part.asked:  # Exactly, whatever the seconds say.
                start, end = min(start, left), left + width
        drawing.line([(start, y), (max(start, end), y)], stroke=RED, width=2)
        drawing.diamond(min(start, RIGHT - 5), y, 4, tip=f"{asked.number}. {asked.question.question}: {asked.outcome}")


def _find_ask_time(asked: Asked, lane: _Lane) -> datetime:
    """Return when a question was asked: known to the second, and more exactly from the call that asked."""
    at = asked.question.asked_at
    return max((call.end for row in lane.rows for call in row if at <= call.end < at + SECOND), default=at)


def _rows(calls: Sequence[TimedCall]) -> tuple[tuple[TimedCall, ...], ...]:
    """Arrange the calls of one agent in as few rows as possible, with concurrent calls in separate rows."""
    rows: list[list[TimedCall]] = []
    for call in sorted(calls, key=lambda each: each.start):
        free = next((row for row in rows if row[-1].end <= call.start), None)
        if free is None and len(rows) < ROWS:
            free = []
            rows.append(free)
        (min(rows, key=lambda row: row[-1].end) if free is None else free).append(call)
    return tuple(map(tuple, rows))


def _column(drawing: Drawing, part: TimelinePart, left: float, width: float, lanes: _Lanes) -> None:
    """Draw a break through all lanes, with its length and its questions' numbers; or the duration of some work."""
    middle, top, height = left + width / 2, lanes.top, lanes.bottom - lanes.top
    if part.work:
        duration = format_duration(part.seconds)
        if measure_width(duration, 10) <= width - 6:
            drawing.text(middle, top - 6, duration, size=10, width=width - 4, anchor="middle", colour=FAINT)
        return
    numbers = [each.number for each in part.asked]
    named = f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}" if numbers else ""
    took = "open" if part.open else format_duration(part.seconds)
    tip = f"waited for the human: {took}" if numbers else f"stopped: {took}"
    drawing.rect(left, top, width, height, fill=drawing.hatched, tip=tip, kind="break")
    for text, above, bold in ((named, 18, True), (took, 6, False)):
        if measure_width(text, 10) <= (width if bold else width - 2):
            drawing.text(middle, top - above, text, size=10, width=width, anchor="middle", bold=bold)


def _axis(drawing: Drawing, scale: _Scale, top: float) -> float:
    """Draw the first and the last moment; return where the axis ends."""
    start, end = scale.columns[0][0].start, scale.columns[-1][0].end
    drawing.text(LEFT, top + 16, _moment(start), size=11, width=280, colour=FAINT)
    drawing.text(RIGHT, top + 16, _moment(end), size=11, width=280, colour=FAINT, anchor="end")
    return top + 22


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
