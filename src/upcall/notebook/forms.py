"""A run as a form of ipywidgets: buttons answer its questions, and the kernel's loop resumes it.

Nothing here waits in a cell: a click starts a task, and its results change the widgets.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console

from upcall.autogen.api import HandoffMessage, ModelClientStreamingChunkEvent, UserInputRequestedEvent
from upcall.autogen.begun_texts import BegunText, BegunTexts
from upcall.autogen.messages import ANSWERS, RUN, Event
from upcall.errors import AnswerRefused, ConfigurationError, UpcallError, missing_extra
from upcall.notebook.displays import (
    STYLE,
    as_written,
    error_html,
    head_html,
    hide,
    known_html,
    log_html,
    lost_form_html,
    pictures_html,
    question_html,
    review_html,
)
from upcall.progress import PROGRESS
from upcall.questions.answer import Answer, Outcome
from upcall.questions.answer_form import AnswerForm, FormField, is_long
from upcall.questions.matching import AnswerValue
from upcall.questions.question import Question
from upcall.questions.question_form import OTHER, QuestionForm
from upcall.runs.plan import Plan, PlanStep
from upcall.runs.plan_edits import can_edit, find_review, write_review
from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.text import first_line
from upcall.ui.answer_input import read_answer
from upcall.ui.event_tree import EventTree

try:
    import ipywidgets as widgets
    from IPython.display import DisplayHandle, display
except ImportError as missing:
    raise missing_extra("A form needs ipywidgets", "notebook") from missing

if TYPE_CHECKING:
    from upcall.app import Upcall

_LOG_LINES = 200
_WIDE = {"width": "auto", "max_width": "60em"}


class Form:
    """A form of ipywidgets (`upcall.run_form.RunForm`).

    A question asked while others work can be answered at once; the others continue. ``run`` is the run as it is
    shown, None until it is known. ``task`` is the work that the last click started.

    Args:
        app: the application that answers.
        run: the run, its id, or a stream of events that ends with it.
        user: who answers, as in `Upcall.answer`.

    Raises:
        ConfigurationError: no event loop is running.
    """

    def __init__(
        self, app: Upcall, run: Run | str | AsyncGenerator[Event | Run, None], *, user: str | None = None
    ) -> None:
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise ConfigurationError(
                "A form needs a running event loop: create it in a notebook cell, or use await app.answer(...)."
            ) from None
        self._app, self._user = app, user
        self.run: Run | None = None
        self.task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._beginning: set[asyncio.Task[None] | None] = set()
        """Work that has not reached its first event or its end: until then no other click counts."""
        self._following = 0
        self._sending: set[str] = set()
        self._left: set[str] = set()
        """The ids of questions whose answers are being sent, or will be taken in by a team at work."""
        self._fields: dict[str, _FormField] = {}
        self._events = _Events()
        self._head, self._note, self._busy, self._log, self._known, self._pictures = (widgets.HTML() for _ in range(6))
        self._body, self._actions = widgets.VBox(), _row()
        style = widgets.HTML(layout={"display": "none"})
        parts = [self._head, self._body, self._actions, self._note, self._busy, self._log, self._known, self._pictures]
        self.widget = widgets.VBox([style, *parts])
        self.widget.add_class("upcall-form")
        self._page: DisplayHandle | None = None
        self._page_class = f"upcall-page-{self.widget.model_id}"
        style.value = STYLE + hide(self._page_class)
        if isinstance(run, Run):
            self._show(run)
        elif isinstance(run, str):
            self._begin(lambda: self._load(run))
        else:
            self._begin(lambda: self._follow(run))

    def _ipython_display_(self) -> None:
        """Show the widgets, and the run as a page that they hide: a notebook that is reopened has no widgets, only the
        page, in the state of the last pause while the notebook was open."""
        display(self.widget._repr_mimebundle_() | {"text/plain": "The buttons of a form."}, raw=True)
        self._page = display(self._page_bundle(), raw=True, display_id=True)

    def _page_bundle(self) -> dict[str, str]:
        text = str(self.run) if self.run else "The form of a run that is being read."
        return {"text/plain": text, "text/html": f'<div class="{self._page_class}">{lost_form_html(self.run)}</div>'}

    async def settle(self) -> Run | None:
        """Return the run when no work of this form is in progress. It does not wait for a click: without subshells
        Jupyter delivers none while a cell waits."""
        while under_way := [task for task in self._tasks if not task.done()]:
            await asyncio.wait(under_way)
        return self.run

    # -- work ---------------------------------------------------------------------------------------------------------

    def _on_click(self, button: Any, work: Callable[[], Awaitable[None]]) -> Any:
        """Return a button that starts some work. Jupyter may deliver clicks in another thread; the store and the
        model belong to the loop of the cell."""
        button.on_click(lambda _: self._loop.call_soon_threadsafe(self._begin, work))
        return button

    def _begin(self, work: Callable[[], Awaitable[None]]) -> None:
        if self._beginning:
            return  # A second click, made before the first one had disabled the button.
        self._note.value = ""
        self.task = self._in_background(self._guard(work))
        self._beginning.add(self.task)
        self._enable()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _has_begun(self) -> None:
        """Let other clicks count again, except on the questions of this task."""
        self._beginning.discard(asyncio.current_task())
        self._enable()

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - nobody awaits the task: who looks at the form sees it.
            if self.run is not None and not isinstance(error, AnswerRefused):
                with suppress(UpcallError):  # Somebody else may have answered: show how it stands.
                    await self._load(self.run.id)
            self._note.value = error_html(first_line(error))
        finally:
            self._has_begun()

    async def _load(self, run_id: str) -> None:
        self._show(await self._app.get(run_id, user=self._user))

    async def _follow(self, stream: AsyncGenerator[Event | Run, None]) -> None:
        self._at_work(1)
        try:
            async with aclosing(stream) as items:
                first = True
                async for item in items:
                    if isinstance(item, Run):
                        if self.run is None or _how_far(item) >= _how_far(self.run):
                            self._show(item)  # Else other work of this form has brought the run further meanwhile.
                    else:
                        await self._hear(item, first=first)
                    first = False
                    self._has_begun()
        finally:
            self._at_work(-1)

    async def _hear(self, event: Event, *, first: bool) -> None:
        if first:
            self._events.begin(self.run)
        if self._events.add_event(event):
            self._show_log()
        run_id = event.metadata.get(RUN) or (self.run.id if self.run else None)
        if run_id is not None and (first or _may_change_the_form(event)):
            with suppress(UpcallError):  # A store that is busy is no reason to stop the team.
                await self._load(run_id)

    async def _send(self, run_id: str, fields: Sequence[_FormField]) -> None:
        given = {field.question.id: value for field in fields if (value := field.take_answer()) is not None}
        if not given:
            raise AnswerRefused("There is no answer yet: choose an option or write an answer.")
        await self._answer(run_id, given)

    async def _answer(self, run_id: str, given: Mapping[str, AnswerValue]) -> None:
        self._sending |= given.keys()
        try:
            await self._follow(self._app.answer_stream(run_id, given, user=self._user))
            if self.run is not None and self.run.working:
                self._left |= given.keys()
        finally:
            self._sending -= given.keys()

    async def _resume(self, run_id: str) -> None:
        await self._follow(self._app.resume_stream(run_id, user=self._user))

    # -- what is shown ------------------------------------------------------------------------------------------------

    def _show(self, run: Run) -> None:
        self.run = run
        self._head.value = head_html(run)
        self._known.value = known_html(run)
        open_now = run.questions
        if run.working:  # An answer that was sent is noted in the run only when its team takes it in.
            open_now = tuple(each for each in open_now if each.id not in self._sending | self._left)
        else:
            self._left.clear()
            self._in_background(self._draw(run))
            if self._page is not None:
                self._page.update(self._page_bundle(), raw=True)
        before, self._fields = self._fields, {}
        answerable = self._app.access.answerable(run, self._user) if run.waiting or run.working else ()
        mine = {each.id for each in answerable}
        rows: list[Any] = []
        for question in open_now:
            if question.id not in mine:
                rows.append(widgets.HTML(question_html(question, run.records.duplicates_of(question.id))))
                continue
            # What was typed into the other fields stays there when one is answered.
            field = before.pop(question.id, None) or self._field(run, question)
            self._fields[question.id] = field
            rows.append(field.box)
        self._body.children = rows
        for gone in before.values():
            gone.close()
        self._actions.children = self._buttons(run)
        self._enable()

    def _field(self, run: Run, question: Question) -> _FormField:
        also = run.records.duplicates_of(question.id)
        if run.plan is not None and find_review(run) == question.id:
            field: _FormField = _PlanField(question, also, run.plan)
        elif (form := question.answer_form) is not None:
            field = _TypedField(question, also, form)
        else:
            field = _FormField(question, also)
        self._on_click(field.answer, lambda: self._send(run.id, [field]))
        for outcome, button in field.outcomes.items():
            without = Answer(question_id=question.id, outcome=outcome)
            self._on_click(button, partial(self._answer, run.id, {question.id: without}))
        return field

    def _buttons(self, run: Run) -> list[Any]:
        """Return the buttons below all questions."""
        buttons = []
        if len(self._fields) > 1:
            every = widgets.Button(description="Send all answers", button_style="primary")
            buttons.append(self._on_click(every, lambda: self._send(run.id, [*self._fields.values()])))
        if run.status is RunStatus.FAILED or run.interrupted:
            buttons.append(self._on_click(widgets.Button(description="Resume"), partial(self._resume, run.id)))
        if not run.is_final and not (run.working and self._following):
            buttons.append(self._on_click(widgets.Button(description="Look again"), lambda: self._load(run.id)))
        return buttons

    def _enable(self) -> None:
        """Enable what can be clicked now."""
        for question_id, field in self._fields.items():
            field.enable(not self._beginning and question_id not in self._sending)
        for button in self._actions.children:
            button.disabled = bool(self._beginning)

    def _at_work(self, change: int) -> None:
        self._following += change
        self._busy.value = "<div>Working&hellip;</div>" if self._following else ""
        self._show_log()

    def _show_log(self) -> None:
        self._log.value = log_html(self._events.list_shown(), folded=not self._following)

    async def _draw(self, run: Run) -> None:
        """Show the pictures of a paused run. Users who see only some of its questions get none."""
        with suppress(UpcallError):
            worked = await self._app.log.call_timings(run.id, user=self._user)
            self._pictures.value = pictures_html(run, worked)


def _how_far(run: Run) -> tuple[int, bool]:
    """Return a key that orders the states of a run within a run segment."""
    return len(run.answers), not run.working


def _may_change_the_form(event: Event) -> bool:
    """Whether the event may have changed the run's questions, plan or status."""
    return isinstance(event, UserInputRequestedEvent | HandoffMessage) or ANSWERS in event.metadata


def _row(*buttons: Any) -> Any:
    return widgets.HBox(buttons, layout={"flex_flow": "row wrap"})


class _FormField:
    """A question and its input fields. Nothing is chosen at first."""

    def __init__(self, question: Question, also: Sequence[Question]) -> None:
        self.question = question
        self._form = QuestionForm.of(question)
        self._choices = self._options() if self._form.choices else []
        self._own = self._text() if self._form.takes_text else None
        self.answer = widgets.Button(description="Answer", button_style="primary")
        self.outcomes = {Outcome.DECLINED: widgets.Button(description="Decline", tooltip="Do without an answer")}
        if self._form.may_skip:
            skip = widgets.Button(description="Skip", tooltip="Continue with your best judgement")
            self.outcomes = {Outcome.SKIPPED: skip, **self.outcomes}
        self._inputs = [*self._choices, *([self._own] if self._own is not None else [])]
        heading = widgets.HTML(self._heading(also))
        self.box = widgets.VBox([heading, *self._inputs, _row(self.answer, *self.outcomes.values())])
        self.box.add_class("upcall-question")
        if self._form.needs_own_choice:
            self.box.add_class("upcall-risk")

    def _heading(self, also: Sequence[Question]) -> str:
        return question_html(self.question, also, in_form=True)

    def take_answer(self) -> AnswerValue | None:
        """Return the answer as filled in; None if empty. A secret is then removed from the form, because it
        would be saved with the notebook.

        Raises:
            AnswerRefused: the question does not accept it.
        """
        text, labels = self._own.value.strip() if self._own is not None else "", self._list_chosen()
        if self._form.hidden and self._own is not None:
            self._own.value = ""
            return text or None
        if labels and text and not self._form.several:
            raise AnswerRefused(f"An option is chosen and text is entered: clear the text, or choose {OTHER!r}.")
        if labels:
            return [*labels, text] if text else labels
        return (read_answer(self.question, text) if self._form.choices else text) if text else None

    def enable(self, on: bool) -> None:
        """Whether anything can be changed or sent."""
        for each in (*self._inputs, self.answer, *self.outcomes.values()):
            each.disabled = not on

    def close(self) -> None:
        """Remove it from the page."""
        for each in (*self.box.children, self.answer, *self.outcomes.values(), self.box):
            each.close()

    def _options(self) -> list[Any]:
        lines = [option.as_line() for option in self._form.choices]
        if self._form.several:
            return [
                widgets.Checkbox(
                    description=as_written(line),
                    description_allow_html=True,
                    tooltip=line,
                    indent=False,
                    layout=_WIDE,
                )
                for line in lines
            ]
        rows = [(f"{number}. {line}", number - 1) for number, line in enumerate(lines, start=1)]
        if self._form.takes_text:
            rows.append((f"{len(rows) + 1}. {OTHER}", len(rows)))
        return [widgets.RadioButtons(options=rows, index=None, layout=_WIDE)]

    def _text(self) -> Any:
        if self._form.hidden:
            return widgets.Password(placeholder="Hidden while you type", layout=_WIDE)
        field = widgets.Text if self._form.choices else widgets.Textarea
        return field(placeholder=self._form.text_label, layout=_WIDE)

    def _list_chosen(self) -> list[str]:
        labels = self._form.labels
        if not self._choices:
            return []
        if self._form.several:
            return [label for label, box in zip(labels, self._choices, strict=True) if box.value]
        at = self._choices[0].index
        return [] if at is None or at == len(labels) else [labels[at]]


class _PlanField(_FormField):
    """A plan to review: a field a step, which removes the step if it is empty, and one for another step."""

    def __init__(self, question: Question, also: Sequence[Question], plan: Plan) -> None:
        self._plan = plan
        self._steps = {step.step_id: self._step(step) for step in plan.steps if can_edit(step)}
        self._added = widgets.Textarea(placeholder="One more step at the end", rows=1, layout=_WIDE)
        super().__init__(question, also)
        shown = [self._steps.get(step.step_id) or widgets.HTML(as_written(step.as_line())) for step in plan.steps]
        self._inputs = [*self._steps.values(), self._added, *self._inputs]
        heading, *rest = self.box.children
        self.box.children = [heading, *shown, self._added, *rest]

    def take_answer(self) -> AnswerValue | None:
        """Return the changes of the plan and the own words, which also take the place of an approval: the plan is
        shown again with them, and nobody approves what they have not seen. Else the choice.

        Raises:
            AnswerRefused: something is changed, and the plan is not to be carried out.
        """
        own = self._own.value if self._own is not None else ""
        descriptions = {step_id: field.value for step_id, field in self._steps.items()}
        changes = write_review(self._plan, descriptions, self._added.value, own)
        chosen = self._list_chosen()
        if changes and chosen and chosen != self._form.labels[:1]:
            raise AnswerRefused(
                f"{chosen[0]!r} is chosen and the plan is changed: undo the changes, or choose {OTHER!r}."
            )
        return changes or super().take_answer()

    def _heading(self, also: Sequence[Question]) -> str:
        return review_html(self.question, self._plan, also)

    def _step(self, step: PlanStep) -> Any:
        after = f", after {', '.join(step.depends_on)}" if step.depends_on else ""
        who = f"Step {step.step_id} ({step.name}{after})"
        field = widgets.Textarea(value=step.description, rows=2, description=who, tooltip=who, layout=_WIDE)
        field.style.description_width = "14em"
        return field


class _TypedField(_FormField):
    """An answer of several fields: a widget a field, and no own words."""

    def __init__(self, question: Question, also: Sequence[Question], form: AnswerForm) -> None:
        self._answer_form = form
        self._fields = {field.name: self._draw_field(field) for field in form.fields}
        super().__init__(question, also)
        heading, *_, actions = self.box.children
        self._inputs = [*self._fields.values()]
        about = [widgets.HTML(f"<small>{as_written(_describe(each))}</small>") for each in form.fields]
        rows = [part for pair in zip(self._inputs, about, strict=True) for part in pair]
        self.box.children = [heading, *rows, actions]

    def take_answer(self) -> AnswerValue | None:
        """Return what stands in the fields. What does not fit is refused where it is sent, and stays."""
        return self._answer_form.take({name: _read(widget) for name, widget in self._fields.items()})

    def _heading(self, also: Sequence[Question]) -> str:
        return question_html(self.question.without_fields(), also, in_form=True)

    def _text(self) -> Any:
        return None

    def _draw_field(self, field: FormField) -> Any:
        named = {"description": field.label, "tooltip": _describe(field), "layout": _WIDE}
        if field.choices and field.several:
            widget = widgets.SelectMultiple(options=field.labels, value=tuple(field.begun_labels), **named)
        elif field.choices:
            options = [("", ""), *((label, label) for label in field.labels)]
            widget = widgets.Dropdown(options=options, value=next(iter(field.begun_labels), ""), **named)
        else:
            kind = widgets.Textarea if is_long(field.begun_text) else widgets.Text
            widget = kind(value=field.begun_text, **named)
        widget.style.description_width = "14em"
        return widget


def _read(widget: Any) -> str | list[str]:
    return [*widget.value] if isinstance(widget.value, tuple) else str(widget.value)


def _describe(field: FormField) -> str:
    return f"{field.description} ({field.describe()})".strip()


TOKEN_UPDATE_INTERVAL_S = 0.15
"""The minimum time between updates of tokens, in seconds."""

WRITING_CHARS = 600
"""How many of the last characters of an unfinished text are shown."""


def describe_writing(text: BegunText) -> str:
    """Return the end of what an agent writes or thinks, in one entry."""
    return f"{' > '.join(text.path)}  {'thinks: ' if text.is_thought else ''}{text.tail(WRITING_CHARS).strip()}"


class _Events:
    """The last events of a run as lines: who did what, and how long it took."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=_LOG_LINES)
        self._out = io.StringIO()
        # In a kernel rich would show it below a cell, whatever its file.
        console = Console(file=self._out, soft_wrap=True, highlight=False, color_system=None, force_jupyter=False)
        self._tree = EventTree(console)
        self._progress = False
        self._writing = BegunTexts()
        self._drawn_at = 0.0

    def begin(self, run: Run | None) -> None:
        """Mark earlier work as known."""
        if run is not None:
            self._tree.begin(run)
        self._writing.clear()

    def list_shown(self) -> list[str]:
        """Return the lines, followed by the end of each agent's unfinished text."""
        return [*self.lines, *map(describe_writing, self._writing)]

    def add_event(self, event: Event) -> bool:
        """Add an event; return whether there is anything new to show. Progress replaces earlier progress, and
        tokens change the last lines, a few times a second."""
        if isinstance(event, ModelClientStreamingChunkEvent):
            self._writing.add(event)
            due = time.monotonic() > self._drawn_at + TOKEN_UPDATE_INTERVAL_S
            self._drawn_at = time.monotonic() if due else self._drawn_at
            return due
        self._writing.end(event)
        self._tree.show(event)
        printed = self._out.getvalue().splitlines()
        self._out.seek(0)
        self._out.truncate()
        if not printed:
            return False
        progress = PROGRESS in event.metadata
        if progress and self._progress:
            self.lines.pop()
        self._progress = progress
        self.lines += printed
        return True
