"""The open questions of a run, asked one after the other on a terminal: as lists, or as plain lines where it cannot
draw."""

from __future__ import annotations

import getpass
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from upcall.errors import AnswerRefused
from upcall.policy.resolver import is_risk
from upcall.questions.answer import Answer, Outcome
from upcall.questions.matching import AnswerValue, OwnWords, parse_answer, parse_unsealed
from upcall.questions.question import Question
from upcall.questions.secrets import HIDDEN
from upcall.runs.run import Run
from upcall.text import escape_controls, one_line

if TYPE_CHECKING:
    from upcall.ui.terminal.dialogs import Row

PROMPT = "Your answer: "
SKIP, DECLINE, GO_BACK = "/skip", "/decline", "/back"

_NUMBERS = re.compile(r"\d+(?:\s*[,，、]\s*\d+)*")
_QUOTED = re.compile(r"\"([\d\s,，、]+)\"")

_OTHER, _SKIPPED, _DECLINED, _STEP_BACK, _SEND = "other", "skip", "decline", "back", "send"


class Back:
    """Instead of an answer: to the question before."""


@dataclass(frozen=True)
class Place:
    """A question among those that are asked together: ``[2/3]``."""

    question: Question
    number: int
    count: int
    also: Sequence[Question] = ()
    earlier: AnswerValue | None = None

    @property
    def first(self) -> bool:
        """Whether there is nothing to go back to."""
        return self.number == 1

    @property
    def mark(self) -> str:
        """What stands before the question; nothing where it is the only one."""
        return f"[{self.number}/{self.count}] " if self.count > 1 else ""


class Shows(Protocol):
    """What an asker needs of a screen."""

    def question(self, question: Question, number: str = "", also: Sequence[Question] = ()) -> None:
        """Print a question with all that belongs to it."""

    def note(self, text: str, style: str = "dim") -> None:
        """Print a line."""

    def prompt(self, text: str) -> None:
        """Print what stands before an answer, and stay on that line."""


class Asker(Protocol):
    """A way to ask."""

    def ask(self, place: Place) -> AnswerValue | Back:
        """The answer that one question accepts.

        Raises:
            KeyboardInterrupt, EOFError: the user stopped.
        """

    def review(self, given: Sequence[tuple[Question, AnswerValue]]) -> int | None:
        """Show all answers before they count: the place of the one to change, or None where they are right."""


def ask_all(run: Run, asker: Asker) -> Mapping[str, AnswerValue]:
    """The answers to the open questions of a run, by their ids.

    Raises:
        KeyboardInterrupt, EOFError: the user stopped; no answer of this round counts then.
    """
    questions, given, at = run.questions, dict[str, AnswerValue](), 0
    while at < len(questions):
        question = questions[at]
        place = Place(question, at + 1, len(questions), run.list_also_waiting(question), given.get(question.id))
        answer = asker.ask(place)
        if isinstance(answer, Back):
            at = max(at - 1, 0)
            continue
        given[question.id] = answer
        at += 1
        if len(given) == len(questions) > 1:
            change = asker.review([(each, given[each.id]) for each in questions])
            at = len(questions) if change is None else change
    return given


def read(question: Question, text: str) -> AnswerValue:
    """What a line means as the answer to a question; `meant` says of numbers.

    Raises:
        AnswerRefused: it is not one that the question accepts.
        ConfigurationError: the question is secret, and there is no key to seal its answer with.
    """
    value: AnswerValue = text
    if text.strip() == DECLINE:
        value = Answer(question_id=question.id, outcome=Outcome.DECLINED)
    elif text.strip() == SKIP or (not text.strip() and not question.required):
        value = Answer(question_id=question.id, outcome=Outcome.SKIPPED)
    else:
        value = meant(question, text)
    parse_answer(question, value)
    return value


def meant(question: Question, text: str, as_typed: Callable[[str], str] = str) -> str:
    """The text that somebody typed as the answer to a question.

    A number that is no option is most likely a slip: it is refused, where the question takes other text too. In quotes
    it is the number itself; `as_typed` tells how these are typed where it is typed.

    Raises:
        AnswerRefused: it is such a number.
    """
    if not question.options or question.secret:
        return text
    if quoted := _QUOTED.fullmatch(text.strip()):
        return OwnWords(quoted[1])
    _refuse_beyond(question, text.strip(), as_typed)
    return text


def _refuse_beyond(question: Question, text: str, as_typed: Callable[[str], str]) -> None:
    labels = {option.label.casefold() for option in question.options} | {option.id for option in question.options}
    if text.casefold() in labels or not _NUMBERS.fullmatch(text):
        return
    count = len(question.options)
    for number in re.findall(r"\d+", text):
        if not 1 <= int(number) <= count and number not in labels:
            quoted = as_typed(f'"{text}"')
            mean = f" If you mean the number itself, write {quoted} in quotes." if question.allow_free_text else ""
            raise AnswerRefused(f"There is no option {number}: choose 1 to {count}.{mean}")


class PlainAsker:
    """Lines printed and lines read: for terminals that cannot draw, and for screen readers."""

    def __init__(self, screen: Shows) -> None:
        self._screen = screen

    def ask(self, place: Place) -> AnswerValue | Back:
        """See `Asker`."""
        question = place.question
        self._screen.question(question, place.mark, place.also)
        leave = DECLINE if question.required else f"{SKIP}, {DECLINE}"
        back = "" if place.first else f"{GO_BACK} to the question before, "
        self._screen.note(f"  ({leave} to go on without, {back}Ctrl-C to answer later)")
        while True:
            self._screen.prompt(PROMPT)
            text = getpass.getpass("") if question.secret else read_line()
            if text.strip() == GO_BACK and not place.first:
                return Back()
            try:
                return read(question, text)
            except AnswerRefused as refusal:
                self._screen.note(str(refusal), "yellow")

    def review(self, given: Sequence[tuple[Question, AnswerValue]]) -> int | None:
        """Each answer stands in its line already."""


class DialogAsker:
    """Lists with arrow keys, and lines that can be edited."""

    def __init__(self, screen: Shows) -> None:
        self._screen = screen

    def ask(self, place: Place) -> AnswerValue | Back:
        """See `Asker`."""
        question = place.question
        listed = bool(question.options) and not question.secret
        # The list shows the options and what else there is to choose.
        without = {"options": (), "multi_select": False, "required": True} if listed else {}
        self._screen.question(question.model_copy(update=without), place.mark, place.also)
        if is_risk(question):
            _forget_typed_keys()
        answer = self._from_list(place) if listed else self._from_line(place)
        if not isinstance(answer, Back):
            self._screen.note(f"  Answer: {_told(question, answer)}", "bold")
        return answer

    def review(self, given: Sequence[tuple[Question, AnswerValue]]) -> int | None:
        """See `Asker`."""
        from upcall.ui.terminal.dialogs import BACK, ListDialog, Row

        self._screen.note("\nThese are your answers:", "bold")
        rows = [
            Row(
                str(place),
                escape_controls(f"{place + 1}. {one_line(question.question, 60)} - {_told(question, answer)}"),
            )
            for place, (question, answer) in enumerate(given)
        ]
        rows.append(Row(_SEND, "Send them"))
        hint = "Enter sends them; choose one to change it. Esc back, Ctrl-C to answer later"
        chosen = ListDialog(rows, hint=hint, at=_SEND, numbered=len(given), back=True).ask()
        if chosen.key == _SEND:
            return None
        return len(given) - 1 if chosen.key == BACK else int(chosen.key or 0)

    # -- questions with options ---------------------------------------------------------------------------------------

    def _from_list(self, place: Place) -> AnswerValue | Back:
        from upcall.ui.terminal.dialogs import ListDialog

        question = place.question
        draft = _Draft.of(question, place.earlier)
        at: str | None = draft.at
        while True:
            rows = _rows(place)
            chosen = ListDialog(
                rows,
                hint=_hint(place),
                several=question.multi_select,
                at=at,
                ticked=draft.ticked,
                numbered=len(question.options) + question.allow_free_text,
                typing=question.allow_free_text,
                back=not place.first,
            ).ask()
            ticked, at = chosen.ticked, chosen.key or _OTHER
            draft = _Draft(at, ticked, chosen.typed or draft.text)
            match chosen.key:
                case "back":
                    return Back()
                case "skip":
                    return Answer(question_id=question.id, outcome=Outcome.SKIPPED)
                case "decline":
                    return Answer(question_id=question.id, outcome=Outcome.DECLINED)
            labels = [question.options[int(key)].label for key in ticked if key != _OTHER]
            if chosen.key is not None and chosen.key != _OTHER and _OTHER not in ticked:
                answer = labels if question.multi_select else question.options[int(chosen.key)].label
                parse_answer(question, answer)
                return answer
            said = self._own_words(question, draft.text, labels)
            if said is not None:
                return said

    def _own_words(self, question: Question, begun: str, labels: Sequence[str]) -> AnswerValue | None:
        """What the user says beside or instead of the options; None to go back to them."""
        from upcall.ui.terminal.dialogs import ask_line

        while True:
            text = ask_line("In your own words (Esc: back to the options): ", begun=begun, back=True)
            if text is None or text.strip() == GO_BACK or not text.strip():
                return None
            begun = text
            try:
                if text.strip() in (SKIP, DECLINE):
                    return read(question, text)
                said = OwnWords(text)
                value = [*labels, said] if labels else said
                parse_answer(question, value)
            except AnswerRefused as refusal:
                self._screen.note(str(refusal), "yellow")
            else:
                return value

    # -- questions without --------------------------------------------------------------------------------------------

    def _from_line(self, place: Place) -> AnswerValue | Back:
        from upcall.ui.terminal.dialogs import ask_line

        question = place.question
        skip = "" if question.required else "Enter alone skips, "
        back = "" if place.first else "Esc back, "
        self._screen.note(f"  ({skip}{DECLINE} to go on without, {back}Ctrl-C to answer later)")
        begun = "" if question.secret or not isinstance(place.earlier, str) else place.earlier
        while True:
            text = ask_line(PROMPT, hidden=question.secret, begun=begun, back=not place.first)
            if text is None or (text.strip() == GO_BACK and not place.first):
                return Back()
            begun = "" if question.secret else text
            try:
                return read(question, text)
            except AnswerRefused as refusal:
                self._screen.note(str(refusal), "yellow")


@dataclass(frozen=True)
class _Draft:
    """What a list begins with: the row, the ticks, the text of one's own."""

    at: str | None
    ticked: tuple[str, ...] = ()
    text: str = ""

    @classmethod
    def of(cls, question: Question, earlier: AnswerValue | None) -> _Draft:
        """As it was answered before; else on the first row, or on none where Enter alone must allow nothing."""
        if isinstance(earlier, Answer):
            return cls(_SKIPPED if earlier.outcome is Outcome.SKIPPED else _DECLINED)
        if earlier is None:
            return cls(None if is_risk(question) else "0")
        keys = {option.label: str(place) for place, option in enumerate(question.options)}
        parts = [earlier] if isinstance(earlier, str) else list(earlier)
        own = [part for part in parts if part not in keys]
        ticked = tuple(keys.get(part, _OTHER) for part in parts) if question.multi_select else ()
        return cls(keys.get(parts[0], _OTHER) if parts else "0", ticked, ", ".join(own))


def _rows(place: Place) -> list[Row]:
    from upcall.ui.terminal.dialogs import Row

    question, several = place.question, place.question.multi_select
    lines = [escape_controls(f"{number}. {each.as_line()}") for number, each in enumerate(question.options, start=1)]
    rows = [Row(str(at), line, tickable=several) for at, line in enumerate(lines)]
    if question.allow_free_text:
        rows.append(Row(_OTHER, f"{len(lines) + 1}. Other: in your own words", tickable=several))
    if not question.required:
        rows.append(Row(_SKIPPED, f"Skip: {escape_controls(question.asker)} goes on with its best judgement"))
    rows.append(Row(_DECLINED, f"Decline: {escape_controls(question.asker)} is to do without an answer"))
    if not place.first:
        rows.append(Row(_STEP_BACK, "Back to the question before"))
    return rows


def _hint(place: Place) -> str:
    several = place.question.multi_select
    keys = "Up, Down or a number; Space ticks; Enter when done" if several else "Up, Down or a number, then Enter"
    return f"{keys}. Ctrl-C to answer later"


def _told(question: Question, answer: AnswerValue) -> str:
    """The answer in a line; nothing of a secret."""
    if isinstance(answer, Answer):
        return f"({answer.outcome.value})"
    if question.secret:
        return HIDDEN
    return one_line(parse_unsealed(question, answer).text, 60)


def _forget_typed_keys() -> None:
    """What was typed before a question stood there consents to nothing."""
    if sys.platform != "win32":
        import termios

        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def read_line() -> str:
    """A line of standard input.

    Raises:
        EOFError: there is none.
    """
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\r\n")
