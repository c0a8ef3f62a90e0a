"""The open questions of a run, asked one after the other on a terminal: as lists, or as lines if it cannot draw."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from upcall import signals
from upcall.errors import AnswerRefused
from upcall.policy.approval import is_allowed
from upcall.questions.answer import Answer, Outcome
from upcall.questions.answer_form import AnswerForm
from upcall.questions.choices import OwnWords
from upcall.questions.matching import AnswerValue, list_parts, parse_answer, parse_unsealed
from upcall.questions.question import Question
from upcall.questions.question_form import OTHER, QuestionForm
from upcall.questions.secrets import HIDDEN
from upcall.text import escape_controls, one_line
from upcall.ui.answer_input import DECLINE, SKIP, read_answer
from upcall.ui.terminal.field_asking import LEAVE_EMPTY, FieldReader, LineFieldReader, ListFieldReader, ask_fields

if TYPE_CHECKING:
    from upcall.runs.run import Run
    from upcall.ui.terminal.list_dialog import Row
    from upcall.ui.terminal.screen import Screen

PROMPT = "Your answer: "
GO_BACK = "/back"

_OTHER, _EDIT, _SKIP, _DECLINE, _SEND = "other", "edit", "skip", "decline", "send"


@dataclass(frozen=True)
class DialogTurn:
    """One of several questions asked together, and the answer it had before the user came back to it."""

    question: Question
    number: int
    count: int
    also: Sequence[Question] = ()
    earlier: AnswerValue | None = None

    @property
    def is_first(self) -> bool:
        """Whether there is nothing to go back to."""
        return self.number == 1

    @property
    def form(self) -> QuestionForm:
        """What is to be filled in."""
        return QuestionForm.of(self.question)

    @property
    def mark(self) -> str:
        """The prefix of the question: ``[2/3]``; empty if it is the only one."""
        return f"[{self.number}/{self.count}] " if self.count > 1 else ""


@dataclass(frozen=True)
class Back:
    """Returned instead of an answer: go back to the previous question."""


class Asker(Protocol):
    """A way to ask. Both methods raise KeyboardInterrupt or EOFError if the user stops."""

    async def ask(self, turn: DialogTurn) -> AnswerValue | Back:
        """Ask until the question accepts an answer."""

    async def review(self, answers: Sequence[tuple[Question, AnswerValue]]) -> int | None:
        """Show all answers for confirmation; return the index of the one to change, or None."""


async def ask_questions(run: Run, asker: Asker) -> Mapping[str, AnswerValue]:
    """Ask the open questions of a run, and return the answers by the questions' ids.

    Raises:
        KeyboardInterrupt, EOFError: the user stopped; no answer of this round counts then.
    """
    questions, answers, at = run.questions, dict[str, AnswerValue](), 0
    while (at := _next_to_ask(questions, at, answers)) < len(questions):
        question = questions[at]
        turn = DialogTurn(
            question, at + 1, len(questions), run.records.duplicates_of(question.id), answers.get(question.id)
        )
        answer = await asker.ask(turn)
        if isinstance(answer, Back):
            at = max(at - 1, 0)
            continue
        answers[question.id] = answer
        at += 1
        given = [each for each in questions if each.id in answers]
        left = (place for place in range(len(questions)) if questions[place].id not in answers)
        if len(given) > 1 and all(_next_to_ask(questions, place, answers) > place for place in left):
            change = await asker.review([(each, answers[each.id]) for each in given])
            at = len(questions) if change is None else questions.index(given[change])
    return answers


def _next_to_ask(questions: Sequence[Question], at: int, answers: Mapping[str, AnswerValue]) -> int:
    """Return the index of the next question, from `at` on, that no answer to another question covers."""
    given = [
        (each, parse_unsealed(each, answers[each.id]))
        for each in questions
        if each.approval is not None and each.id in answers
    ]
    while at < len(questions) and questions[at].id not in answers and is_allowed(questions[at], given):
        at += 1
    return at


async def ask_task(screen: Screen) -> str:
    """Ask for the next task of a conversation; empty ends it.

    Raises:
        KeyboardInterrupt: the user stopped.
    """
    prompt = "Task (Enter alone ends): "
    try:
        if not screen.live:
            screen.prompt(prompt)
            return read_line().strip()
        from upcall.ui.terminal.list_dialog import ask_line

        screen.settle()
        task = (await ask_line(prompt) or "").strip()
    except EOFError:
        return ""
    if task:
        screen.note(f"\n> {task}", "bold")
    return task


def read_line() -> str:
    """Read a line of standard input. Ctrl-C ends it at once, even in a coroutine.

    Raises:
        EOFError: there is no more input.
    """
    with signals.raise_at_once():
        line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\r\n")


class LineAsker:
    """Asks by printing and reading lines: for terminals that cannot draw, and for screen readers."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    async def ask(self, turn: DialogTurn) -> AnswerValue | Back:
        """See `Asker`."""
        question, form = turn.question, turn.form
        self._screen.question(question.without_fields(), turn.mark, turn.also)
        leave = f"{SKIP}, {DECLINE}" if form.may_skip else DECLINE
        back = "" if turn.is_first else f"{GO_BACK} to the previous question, "
        if form.answer is not None:
            keys = f"{GO_BACK} to the field before, {LEAVE_EMPTY} for nothing in a field"
            self._screen.note(f"  ({leave} to continue without, {keys}, Ctrl-C to answer later)")
            return await _ask_fields(turn, form.answer, LineFieldReader(question, self._screen, GO_BACK), self._screen)
        self._screen.note(f"  ({leave} to continue without, {back}Ctrl-C to answer later)")
        while True:
            self._screen.prompt(PROMPT)
            text = self._read_hidden() if form.hidden else read_line()
            if text.strip() == GO_BACK and not turn.is_first:
                return Back()
            try:
                return read_answer(question, text)
            except AnswerRefused as refusal:
                self._screen.note(str(refusal), "yellow")

    async def review(self, answers: Sequence[tuple[Question, AnswerValue]]) -> int | None:
        """Change nothing: each answer is already in its line."""

    def _read_hidden(self) -> str:
        with signals.raise_at_once():
            return getpass.getpass("")


class ListAsker:
    """Asks with lists controlled by arrow keys, and lines that can be edited."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    async def ask(self, turn: DialogTurn) -> AnswerValue | Back:
        """See `Asker`."""
        question, form = turn.question, turn.form
        # The list shows the options, and what else there is to choose.
        without = {"options": (), "multi_select": False, "required": True} if form.choices else {}
        self._screen.question(question.model_copy(update=without).without_fields(), turn.mark, turn.also)
        if form.needs_own_choice:
            forget_typed_keys()
        if form.answer is not None:
            leave = f"{SKIP}, {DECLINE}" if form.may_skip else DECLINE
            self._screen.note(f"  ({leave} to continue without, Esc to the field before, Ctrl-C to answer later)")
            answer = await _ask_fields(turn, form.answer, ListFieldReader(question, self._screen), self._screen)
        else:
            answer = await (self._ask_list(turn) if form.choices else self._ask_line(turn))
        if not isinstance(answer, Back):
            self._screen.note(f"  Answer: {_summarize(question, answer)}", "bold")
        return answer

    async def review(self, answers: Sequence[tuple[Question, AnswerValue]]) -> int | None:
        """See `Asker`."""
        from upcall.ui.terminal.list_dialog import BACK, ListDialog, Row

        self._screen.note("\nThese are your answers:", "bold")
        rows = []
        for place, (question, answer) in enumerate(answers):
            line = f"{place + 1}. {one_line(question.question, 60)} - {_summarize(question, answer)}"
            rows.append(Row(str(place), escape_controls(line)))
        rows.append(Row(_SEND, "Send them"))
        hint = "Enter sends them; choose one to change it. Esc back, Ctrl-C to answer later"
        chosen = await ListDialog(rows, hint=hint, at=_SEND, numbered=len(answers), back=True).ask()
        if chosen.key == _SEND:
            return None
        return len(answers) - 1 if chosen.key == BACK else int(chosen.key or 0)

    # -- questions with options ---------------------------------------------------------------------------------------

    async def _ask_list(self, turn: DialogTurn) -> AnswerValue | Back:
        from upcall.ui.terminal.list_dialog import BACK, ListDialog

        question, form = turn.question, turn.form
        draft = _AnswerDraft.of(form, turn.earlier)
        while True:
            chosen = await ListDialog(
                _rows(turn),
                hint=_hint(form),
                several=form.several,
                at=draft.at,
                ticked=draft.ticked,
                numbered=len(form.choices) + form.takes_text,
                typing=form.takes_text,
                back=not turn.is_first,
            ).ask()
            match chosen.key:
                case key if key == BACK:
                    return Back()
                case key if key == _SKIP:
                    return Answer(question_id=question.id, outcome=Outcome.SKIPPED)
                case key if key == _DECLINE:
                    return Answer(question_id=question.id, outcome=Outcome.DECLINED)
                case key if key == _EDIT and form.call is not None:
                    edited = await self._ask_own_words(question, form.call.as_draft(), [])
                    if edited is not None:
                        return edited
                    continue
            draft = _AnswerDraft(chosen.key or _OTHER, chosen.ticked, chosen.typed or draft.text)
            labels = [form.labels[int(key)] for key in draft.ticked if key != _OTHER]
            if _OTHER not in (draft.at, *draft.ticked):
                answer = labels if form.several else form.labels[int(draft.at or 0)]
                parse_answer(question, answer)
                return answer
            own = await self._ask_own_words(question, draft.text, labels)
            if own is not None:
                return own

    async def _ask_own_words(self, question: Question, begun: str, labels: Sequence[str]) -> AnswerValue | None:
        """Ask for free text in addition to or instead of the options; None goes back to them."""
        from upcall.ui.terminal.list_dialog import ask_line

        while True:
            text = await ask_line("In your own words (Esc: back to the options): ", begun=begun, back=True)
            if text is None or text.strip() in (GO_BACK, ""):
                return None
            begun = text
            try:
                if text.strip() in (SKIP, DECLINE):
                    return read_answer(question, text)
                value = [*labels, OwnWords(text)] if labels else OwnWords(text)
                parse_answer(question, value)
            except AnswerRefused as refusal:
                self._screen.note(str(refusal), "yellow")
            else:
                return value

    # -- questions without --------------------------------------------------------------------------------------------

    async def _ask_line(self, turn: DialogTurn) -> AnswerValue | Back:
        from upcall.ui.terminal.list_dialog import ask_line

        question, form = turn.question, turn.form
        skip = "Enter alone skips, " if form.may_skip else ""
        back = "" if turn.is_first else "Esc back, "
        self._screen.note(f"  ({skip}{DECLINE} to continue without, {back}Ctrl-C to answer later)")
        begun = "" if form.hidden or not isinstance(turn.earlier, str) else turn.earlier
        while True:
            text = await ask_line(PROMPT, hidden=form.hidden, begun=begun, back=not turn.is_first)
            if text is None or (text.strip() == GO_BACK and not turn.is_first):
                return Back()
            begun = "" if form.hidden else text
            try:
                return read_answer(question, text)
            except AnswerRefused as refusal:
                self._screen.note(str(refusal), "yellow")


async def _ask_fields(turn: DialogTurn, form: AnswerForm, reader: FieldReader, screen: Screen) -> AnswerValue | Back:
    while (answer := await ask_fields(turn.question, form, reader, screen, turn.earlier)) is None:
        if not turn.is_first:
            return Back()
    return answer


@dataclass(frozen=True)
class _AnswerDraft:
    """The initial state of a list: the row, the ticks, the user's own text."""

    at: str | None
    ticked: tuple[str, ...] = ()
    text: str = ""

    @classmethod
    def of(cls, form: QuestionForm, earlier: AnswerValue | None) -> _AnswerDraft:
        """Begin with the previous answer; otherwise on the first row, or on none if Enter alone must allow nothing."""
        if isinstance(earlier, Answer):
            return cls(_SKIP if earlier.outcome is Outcome.SKIPPED else _DECLINE)
        if earlier is None:
            return cls(None if form.needs_own_choice else "0")
        keys = {label: str(place) for place, label in enumerate(form.labels)}
        parts = list_parts(earlier)
        own = [part for part in parts if part not in keys]
        ticked = tuple(keys.get(part, _OTHER) for part in parts) if form.several else ()
        return cls(keys.get(parts[0], _OTHER) if parts else "0", ticked, ", ".join(own))


def _rows(turn: DialogTurn) -> list[Row]:
    from upcall.ui.terminal.list_dialog import BACK, Row

    form, asker = turn.form, escape_controls(turn.question.asker)
    lines = [escape_controls(f"{number}. {each.as_line()}") for number, each in enumerate(form.choices, start=1)]
    rows = [Row(str(at), line, tickable=form.several) for at, line in enumerate(lines)]
    if form.takes_text:
        rows.append(Row(_OTHER, f"{len(lines) + 1}. {OTHER}", tickable=form.several))
    if form.call is not None:
        rows.append(Row(_EDIT, "Change the arguments, then make the call"))
    if form.may_skip:
        rows.append(Row(_SKIP, f"Skip: {asker} continues with its best judgement"))
    rows.append(Row(_DECLINE, f"Decline: {asker} must do without an answer"))
    if not turn.is_first:
        rows.append(Row(BACK, "Back to the previous question"))
    return rows


def _hint(form: QuestionForm) -> str:
    keys = "Up, Down or a number; Space ticks; Enter when done" if form.several else "Up, Down or a number, then Enter"
    return f"{keys}. Ctrl-C to answer later"


def _summarize(question: Question, answer: AnswerValue) -> str:
    """Summarize the answer in a line; reveal nothing of a secret."""
    if isinstance(answer, Answer):
        return f"({answer.outcome.value})"
    if question.secret:
        return HIDDEN
    return one_line(parse_unsealed(question, answer).text, 60)


def forget_typed_keys() -> None:
    """Drop what was typed before a question appeared: it consents to nothing."""
    if sys.platform != "win32":
        import termios

        termios.tcflush(sys.stdin, termios.TCIFLUSH)
