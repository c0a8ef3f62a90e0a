"""What the command line shows: events, questions and runs as text, and the questions asked in place.

Progress goes to standard error, results to standard output. Text of models and users is data: its control characters
are shown, not sent, and it is never read as markup.
"""

from __future__ import annotations

import getpass
import logging
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

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
from rich.console import Console
from rich.text import Text

from upcall.answers import AnswerValue, read_answer
from upcall.errors import AnswerRefused, one_line
from upcall.expiry import EXPIRED, EXPIRY, what_now
from upcall.handoffs import ANSWERS, ERROR, PLAN, QUESTIONS, answers_in, path_of, questions_of
from upcall.progress import PROGRESS
from upcall.questions import Answer, AnsweredBy, Outcome, Question, moment
from upcall.runs import Run, RunStatus
from upcall.sealing import HIDDEN
from upcall.store import LogEntry

_SHOWN_CHARS = 160
_SKIP, _DECLINE = "/skip", "/decline"


def safe(text: str) -> str:
    """The text with its control characters made visible, so that it cannot move the cursor or change the title."""
    return "".join(
        char if char == "\n" or char == "\t" or (char.isprintable() and char != "\x7f") else f"\\x{ord(char):02x}"
        for char in text
    )


class Screen:
    """One place that prints: results to standard output, everything else to standard error."""

    def __init__(self) -> None:
        self.out = Console(highlight=False, soft_wrap=True)
        self.err = Console(stderr=True, highlight=False, soft_wrap=True)

    def note(self, text: str, style: str = "dim") -> None:
        """A line about the run."""
        self.err.print(Text(safe(text), style=style))

    def error(self, text: str) -> None:
        """The one line that says what went wrong."""
        self.err.print(Text.assemble(("error: ", "bold red"), safe(one_line(text))))

    def result(self, text: str) -> None:
        """What the user asked for."""
        self.out.print(Text(safe(text)))

    def assumed(self, run: Run) -> None:
        """What was assumed because nobody answered, if anything was."""
        if run.assumptions:
            self.result("\n".join(["", *_assumptions(run)]))

    def event(self, event: BaseAgentEvent | BaseChatMessage) -> None:
        """One event in a line: who, and what; nothing for events that say nothing to a reader."""
        line = _event_line(event)
        if line:
            who = " > ".join(path_of(event))
            self.err.print(Text.assemble((safe(who), "cyan"), "  ", safe(line)))

    def question(
        self, question: Question, number: str = "", also: Sequence[Question] = (), console: Console | None = None
    ) -> None:
        """A question with who asks, why, the numbered options, and who `also` waits for its answer."""
        console = console or self.err
        console.print()
        head = f"{number}{question.asked_by()}: "
        console.print(Text.assemble((safe(head), "bold"), (safe(question.question), "bold yellow")))
        others = [f"  {', '.join(each.asker_for_whom() for each in also)} waits for this too."] if also else []
        whose = [f"  For {question.assignee}."] if question.assignee else []
        for line in [*question.details(), *others, *whose]:
            console.print(Text(safe(line)))

    def ask(self, run: Run) -> Mapping[str, AnswerValue]:
        """Ask each open question of a run on the terminal until its answer is one it accepts.

        Raises:
            EOFError, KeyboardInterrupt: the user stopped; no answer of this round counts then.
        """
        count = len(run.questions)
        return {
            question.id: self._ask(question, f"[{number}/{count}] " if count > 1 else "", run.also_waiting(question))
            for number, question in enumerate(run.questions, start=1)
        }

    def _ask(self, question: Question, number: str, also: Sequence[Question]) -> AnswerValue:
        self.question(question, number, also)
        leave = _DECLINE if question.required else f"{_SKIP}, {_DECLINE}"
        self.note(f"  ({leave} to go on without, Ctrl-C to answer later)")
        while True:
            self.err.print("Your answer: ", end="")
            self.err.file.flush()
            text = getpass.getpass("") if question.secret else _line()
            value: AnswerValue = text
            if text.strip() == _DECLINE:
                value = Answer(question_id=question.id, outcome=Outcome.DECLINED)
            elif text.strip() == _SKIP or (not text.strip() and not question.required):
                value = Answer(question_id=question.id, outcome=Outcome.SKIPPED)
            try:
                read_answer(question, value)
            except AnswerRefused as refusal:
                self.note(str(refusal), "yellow")
            else:
                return value

    def expiry(self, run_id: str, event: BaseAgentEvent | BaseChatMessage) -> None:
        """One line about a question that waited too long or long enough for a reminder; nothing for other events."""
        what = event.metadata.get(EXPIRY)
        for question in questions_of(event) if what else ():
            text = event.content if isinstance(event, ThoughtEvent) else question.question
            until = f", until {moment(question.expires_at)}" if question.expires_at and what != EXPIRED else ""
            self.result(f"{run_id}  {what}{until}  {question.asker_for_whom()}: {_short(text)}")

    def show_log(self, *, verbose: bool) -> None:
        """Show what the library logs: warnings, and with `verbose` the model's replies."""
        logger = logging.getLogger("upcall")
        logger.setLevel(logging.INFO if verbose else logging.WARNING)
        logger.addHandler(_LogLines(self))
        logger.propagate = False

    def waiting(self, run: Run, program: str, options: str, console: Console | None = None) -> None:
        """The open questions and how to answer them later, by `program` with `options` at the end."""
        console = console or self.err
        for question in run.questions:
            self.question(question, also=run.also_waiting(question), console=console)
        for line in what_now(run):
            console.print(Text(safe(f"\n{line}"), style="yellow"))
        if run.own_team:
            told = f"Run {run.id} waits for the answer. Give it in the program that started it: its team is its own."
            console.print(Text(safe(f"\n{told}")))
            return
        several = len(run.questions) > 1
        secret = any(question.secret for question in run.questions)
        what = (
            f"{len(run.questions)} answers. Give one or more of them with:" if several else "the answer. Give it with:"
        )
        lines = ["", f"Run {run.id} waits for {what}"]
        for question in run.questions:
            example = question.options[0].label if question.options else "your answer"
            if question.secret:  # On the command line it would stay in the shell's history.
                example = "-"
            given = f"{question.id}={example}" if several else example
            lines.append(f"  {program} answer {run.id} {shlex.quote(given)}{options}")
        if secret:
            lines.append("For - the answer is read from standard input; on a terminal it is not shown.")
        console.print(Text(safe("\n".join(lines))))

    def whole(self, run: Run) -> None:
        """All that is known of a run."""
        folder = run.inputs.get("workspace")
        lines = [
            f"Run      {run.id}",
            f"Status   {run.status}",
            f"Task     {run.task}",
            *([f"User     {run.user}"] if run.user else []),
            f"Started  {run.created_at.isoformat()}",
            f"Updated  {run.updated_at.isoformat()}",
            *([f"Files    {folder}"] if folder and Path(folder).is_dir() else []),
        ]
        if run.plan:
            lines += ["", run.plan.as_markdown()]
            lines += ["", f"Plan     {run.plan.status}, version {len(run.plan.history) + 1}"]
            lines += [f"Remark   {run.plan.remark}"] if run.plan.remark else []
        asked = {question.id: question for question in run.closed}
        for answer in run.answers:
            if question := asked.get(answer.question_id):
                lines += ["", f"Asked    {question.question} ({' > '.join(question.path)})"]
            lines += [f"Answer   {HIDDEN if answer.sealed else answer.text or answer.outcome}"]
            if answer.outcome is not Outcome.CANCELLED:
                who = answer.by if answer.by is not AnsweredBy.HUMAN else answer.user or answer.by
                lines += [f"         by {who} at {answer.answered_at.isoformat()}"]
            lines += [f"Reason   {answer.reason}"] if answer.reason else []
        if run.usage:
            lines += ["", "Tokens   prompt  reply  calls"]
            lines += [
                f"  {used.prompt_tokens:>12} {used.completion_tokens:>6} {used.model_calls:>6}  {agent}"
                for agent, used in run.usage.items()
            ]
        if run.error:
            lines += ["", f"Error    {run.error}"]
        if run.result:
            lines += ["", run.result]
        if run.assumptions:
            lines += ["", *_assumptions(run)]
        self.result("\n".join(lines))


class _LogLines(logging.Handler):
    """A log's records as lines of a screen."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        self._screen.note(self.format(record))


def table(runs: Sequence[Run]) -> str:
    """One line a run: id, status, time, task."""
    wide = max(len(status) for status in RunStatus)
    return "\n".join(
        f"{run.id}  {run.status:<{wide}}  {run.updated_at:%Y-%m-%d %H:%M}  {_short(run.task)}" for run in runs
    )


def audit_table(entries: Sequence[LogEntry]) -> str:
    """One line an entry: number, time, run, who, what, and its details."""
    return "\n".join(
        f"{entry.id:>5}  {entry.at}  {entry.run_id or '-':<12}  {_short(entry.user or '-', 40):<12}  {entry.kind:<9}  "
        + " ".join(f"{name}={_short(str(value))}" for name, value in entry.detail.items())
        for entry in entries
    )


def _event_line(event: BaseAgentEvent | BaseChatMessage) -> str:
    match event:
        case ThoughtEvent() if ANSWERS in event.metadata:
            return f"has its answer: {_short(event.content)}"
        case ThoughtEvent() if PROGRESS in event.metadata:
            return event.content
        case _ if QUESTIONS in event.metadata or isinstance(event, ModelClientStreamingChunkEvent):
            return ""
        case ToolCallRequestEvent():
            calls = [f"{call.name}({_short(call.arguments, 60)})" for call in event.content if call.name != "ask_user"]
            return f"calls {', '.join(calls)}" if calls else ""
        case ToolCallExecutionEvent():
            results = [f"{each.name}: {_short(each.content)}" for each in event.content]
            return "; ".join(results)
        case HandoffMessage():
            plan = " with the plan" if PLAN in event.metadata else ""
            if event.source == "user":
                if {answer.by for answer in answers_in(event)} == {AnsweredBy.POLICY}:
                    return ""  # The asker's own line tells it.
                long = len(event.content) > _SHOWN_CHARS  # A plan that was reviewed would hide what was said of it.
                said = "; ".join(answer.as_text() for answer in answers_in(event)) if long else event.content
                return f"answers: {_short(said)}"
            return f"hands over to {event.target}{plan}"
        case TextMessage() if ERROR in event.metadata:
            return ""  # It is told as the run's error.
        case TextMessage():
            return "" if event.source == "user" else f"reports: {_short(event.content)}"
        case _:
            return ""


def _assumptions(run: Run) -> list[str]:
    lines = [
        f"- {_short(question.question)} {answer.text} ({' > '.join(question.path)})"
        for question, answer in run.assumptions
    ]
    return ["Assumed, since nobody answered:", *lines]


def _short(text: str, limit: int = _SHOWN_CHARS) -> str:
    return one_line(text, limit)


def _line() -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\r\n")
