"""The report of `upcall show`: plan, answers and who gave them, timeline, cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from upcall.errors import RunBeingReplaced
from upcall.execution.prices import Prices
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.question import Question, format_time
from upcall.questions.secrets import HIDDEN
from upcall.runs.events import FilesChanged, LogEntry, QuestionAnswered, QuestionAsked, RunStarted, StatusChanged
from upcall.runs.run import Run, Usage
from upcall.text import one_line
from upcall.ui.columns import LINE_CHARS, cut_to_width, wrap_lines
from upcall.ui.plan_ticks import list_steps
from upcall.ui.stop_reasons import explain_stop
from upcall.ui.tool_calls import count_cached, list_read

_LABEL = 9
_LABELS = frozenset(
    "Run Status Replaced Task User Budget Models Started Updated Files Plan Remark Asked Answer Reason Error".split()  # noqa: SIM905
)


def describe_models(run: Run) -> str:
    """Return the models that a run was started with, in one line; empty if its program supplied them."""
    team = run.config.team
    if team is None or team.model is None or team.model.model is None:
        return ""
    return ", ".join([team.model.model, *(f"{each.model} ({kind})" for kind, each in team.models.items())])


def report(
    run: Run,
    log: Sequence[LogEntry],
    prices: Prices,
    width: int | None = None,
    complete: Callable[[str], str] = str,
) -> list[str]:
    """Return everything known about a run as lines, wrapped to `width` columns if given.

    Args:
        run: the run.
        log: the entries of its log, oldest first.
        prices: what tokens cost.
        width: columns of the terminal, at least 20; None to leave lines as long as they are.
        complete: completes the command that resumes the run.
    """
    parts = [
        _head(run, complete),
        _plan(run),
        _answers(run),
        _timeline(run, log),
        _failed_tools(run),
        _cost(run.usage, prices, width),
        _label_text("Error", run.error) if run.error else [],
        run.result.split("\n") if run.result else [],
        list_assumptions(run),
        list_warnings(run),
    ]
    lines = [line for part in parts if part for line in ("", *part)][1:]
    return lines if width is None else [each for line in lines for each in _fit(line, max(width, 20))]


def list_assumptions(run: Run) -> list[str]:
    """Return what was assumed because nobody answered, the riskiest first, if anything was."""
    lines = [
        f"- {one_line(question.question, LINE_CHARS)} {one_line(answer.text)} ({' > '.join(question.path)}"
        f"{'' if question.weight is None else f', risk {question.weight:.0%}'}"
        f"{', for now' if answer.provisional else ''})"
        for question, answer in run.assumptions
    ]
    return ["Assumed, since nobody answered:", *lines] if lines else []


def list_warnings(run: Run) -> list[str]:
    """Return the work that should not be taken as done, if any."""
    return ["Warnings:", *(f"- {one_line(each)}" for each in run.warnings)] if run.warnings else []


def _fit(line: str, width: int) -> list[str]:
    """Return the line wrapped at the width; continuation lines are aligned with its text."""
    indent = line[: len(line) - len(line.lstrip(" "))]
    hanging = f"{indent}  "
    if line[:_LABEL].rstrip() in _LABELS:
        hanging = " " * _LABEL
    elif line.startswith(("[x] ", "[ ] ")):
        hanging = " " * len("[x] ")
    return wrap_lines(line[len(indent) :], width, indent, hanging)


def _label_text(label: str, text: str) -> list[str]:
    """Return a text after its label. Further lines are indented past all labels, because a question could contain
    some."""
    first, *more = text.split("\n")
    return [f"{label:<{_LABEL}}{first}", *(f"{'':{_LABEL}}{line}".rstrip() for line in more)]


def _explain_status(run: Run) -> str:
    if run.interrupted:
        return f" (interrupted, nobody works on it: upcall resume {run.id})"
    return f" ({stopped})" if (stopped := explain_stop(run)) else ""


def _explain_replacing(run: Run) -> str:
    return str(RunBeingReplaced(run.id, run.replacing)).partition("; nothing was written. ")[2]


def _head(run: Run, complete: Callable[[str], str]) -> list[str]:
    folder = run.workspace
    return [
        *_label_text("Run", run.id),
        *_label_text("Status", f"{run.status}{complete(_explain_status(run))}"),
        *(_label_text("Replaced", f"by {run.replaced_by}, with another answer") if run.replaced_by else []),
        *(_label_text("Replaced", f"not yet. {_explain_replacing(run)}") if run.replacing else []),
        *_label_text("Task", run.task),
        *(_label_text("User", run.user) if run.user else []),
        *(_label_text("Open", "everybody may read it") if run.config.open else []),
        *(_label_text("Budget", run.budget.as_line()) if run.budget else []),
        *(_label_text("Models", models) if (models := describe_models(run)) else []),
        *_label_text("Started", format_time(run.created_at)),
        *_label_text("Updated", format_time(run.updated_at)),
        *(_label_text("Files", str(folder)) if folder and Path(folder).is_dir() else []),
    ]


def _plan(run: Run) -> list[str]:
    plan = run.plan
    if plan is None:
        return []
    lines = [f"# {one_line(plan.title)}", "", *(f"- {one_line(section)}" for section in plan.sections)]
    if plan.steps:
        lines += ["", "## Steps", "", *list_steps(run)]
    lines += ["", *_label_text("Plan", f"{plan.status}, version {len(plan.history) + 1}")]
    return lines + (_label_text("Remark", plan.remark) if plan.remark else [])


def _answers(run: Run) -> list[str]:
    asked, lines = run.asked, list[str]()
    for answer in run.answers:
        question = asked.get(answer.question_id)
        if lines:
            lines.append("")
        if question is not None:
            lines += _label_text("Asked", f"{question.question} ({' > '.join(question.path)}, {question.id})")
        lines += _label_text("Answer", HIDDEN if answer.sealed else answer.text or answer.outcome)
        if answer.outcome is not Outcome.CANCELLED:
            lines += _label_text("", f"by {_who(answer)} at {format_time(answer.answered_at)}")
        lines += _label_text("Reason", answer.reason) if answer.reason else []
    return lines


def _who(answer: Answer) -> str:
    return answer.by if answer.by is not AnsweredBy.HUMAN else answer.user or answer.by


def _timeline(run: Run, log: Sequence[LogEntry]) -> list[str]:
    """Return one line per entry: the time since the start, and what happened."""
    if not log:
        return []
    asked = run.asked
    start = datetime.fromisoformat(log[0].at)
    lines = [f"  {_since(datetime.fromisoformat(entry.at) - start):>9}  {_format_entry(entry, asked)}" for entry in log]
    return ["Timeline", *lines]


def _since(time: timedelta) -> str:
    """Format a duration in its two largest units: ``+3.1 s``, ``+2 m 5 s``, ``+3 d 4 h``."""
    seconds = max(time.total_seconds(), 0)
    if seconds < 60:
        return f"+{seconds:.1f} s"
    units = (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1))
    unit, size, below, below_size = next(each for each in units if seconds >= each[1])
    return f"+{int(seconds // size)} {unit} {int(seconds % size // below_size)} {below}"


def _format_entry(entry: LogEntry, asked: Mapping[str, Question]) -> str:
    detail = entry.detail
    by = f" by {entry.user}" if entry.user else ""
    question = asked.get(str(detail.get("question", "")))
    about = f": {one_line(question.question, 60)}" if question else ""
    match entry.event:
        case StatusChanged(before=before, after=after):
            return f"{before} -> {after}"
        case QuestionAsked(path=path):
            return f"asked by {' > '.join(path)}{about}"
        case QuestionAnswered(outcome=outcome, by=whom):
            return f"{outcome} by {entry.user or whom}{about}"
        case FilesChanged(change=change):
            listed = [*(file.path for file in list_read(change)), *count_cached(change)]
            return f"changed {one_line(', '.join(listed), 60)}{by}"
        case RunStarted():
            return f"{entry.kind}{by}"
        case _:
            details = " ".join(
                f"{name}={one_line(str(value), 40)}" for name, value in detail.items() if name != "question"
            )
            return f"{entry.kind}{by}{about}" + (f" {details}" if details else "")


def _failed_tools(run: Run) -> list[str]:
    """Return the tools whose calls ended in an error, by agent, and how many of them did."""
    lines = [f"  {tool}: {count} of {run.tools.get(tool, count)}" for tool, count in run.failed_tools.items()]
    return ["Tool calls that failed", *lines] if lines else []


def _cost(usage: Mapping[str, Usage], prices: Prices, width: int | None) -> list[str]:
    """Return tokens and calls by agent, and their cost if there are prices."""
    if not usage:
        return []
    costs = prices.total(usage)
    priced = costs.cost is not None
    money = f" {prices.currency:>10}" if priced else ""
    lines = [f"Tokens  {'prompt':>7} {'reply':>8} {'calls':>6}{money}  agent"]
    for path, used in usage.items():
        lines.append(_row(used, path, prices.cost(path, used), priced=priced))
    total = Usage.total(usage.values())
    partly = f" ({costs.gap})" if costs.gap else ""
    lines.append(_row(total, f"in all{partly}", costs.cost, priced=priced))
    return lines if width is None else [cut_to_width(line, width) for line in lines]


def _row(used: Usage, agent: str, cost: float | None, *, priced: bool) -> str:
    money = f" {'-' if cost is None else f'{cost:.4f}':>10}" if priced else ""
    return f"  {used.prompt_tokens:>13,} {used.completion_tokens:>8,} {used.model_calls:>6}{money}  {agent}"
