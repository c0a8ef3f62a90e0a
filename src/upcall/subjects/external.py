"""`app.external`: questions of programs outside, and their answers. Nothing here needs AutoGen."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pydantic import ValidationError

from upcall import identity
from upcall.errors import AnswerRefused, CallerError, ConfigurationError, RunConflict, RunNotWaiting, UnknownRun
from upcall.options import ResolutionOptions
from upcall.policy.acceptance import accept
from upcall.policy.deadlines import end_run, expired_answers, is_due
from upcall.policy.resolver import AnswerResolver, Moment
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.matching import AnswerValue, parse_unsealed, resolve_id
from upcall.questions.question import MAX_QUESTION_CHARS, ClarificationType, Question
from upcall.questions.record import QuestionRecord, QuestionRecords
from upcall.runs.config import RUN_ID, RunConfig
from upcall.runs.events import EntryAdded
from upcall.runs.external import close_questions, collect, find_repeated, settle
from upcall.runs.run import Run
from upcall.runs.run_page import is_storable
from upcall.runs.states import RunStatus
from upcall.runs.transcript import EntryKind, TranscriptEntry
from upcall.setting_types import parse_seconds
from upcall.storage.store import RunStore
from upcall.storage.stored_run import StoredHead
from upcall.subjects.subject import Subject
from upcall.text import CONTROLS, one_line

if TYPE_CHECKING:
    from upcall.questions.elicitation import ValueForm
    from upcall.settings import Settings

REPEAT_FOR = timedelta(hours=12)
"""How long an answer is repeated to others who ask the same, in a run that nobody named: it has no end."""

POLL_INTERVALS_S = (0.1, 0.2, 0.4, 1.0)
"""After how long the store is looked at again; the last one is repeated."""

MAX_CONFLICTS = 1_000
"""How often others may be faster to write a run; of askers at the same moment one is always served."""

MAX_DEPTH, MAX_NAME_CHARS = 20, 80
"""How many names the path of an asker has, and how long one is."""

_Change: TypeAlias = Callable[[Run], Awaitable[tuple[QuestionRecords, str]]]
"""Returns the questions of a run as they are to be, and the id of the one that this is about."""

_UNNAMED = re.compile(r"(ask|mcp)-[0-9a-f]{8}(-[0-9]+)?")


class Ticket(NamedTuple):
    """A question of a program outside: the run that it is in, and its id. It is valid as long as the run is stored."""

    run_id: str
    question_id: str

    def __str__(self) -> str:
        """Return it as one word, as `read` takes it."""
        return f"{self.run_id}/{self.question_id}"

    @classmethod
    def read(cls, text: str) -> Ticket:
        """Return the ticket that a text is.

        Raises:
            CallerError: it is none.
        """
        run_id, _, question_id = text.strip().partition("/")
        if not (run_id and question_id and is_storable(text)):
            raise CallerError(f"{text!r} is not a ticket: that reads RUN/QUESTION.")
        return cls(run_id, question_id)


@dataclass(frozen=True)
class ExternalQuestions(Subject):
    """Questions of askers that are no agents of ours: they belong to a run of the kind ``external``.

    Args:
        settings: who answers before the human is asked, and how long questions wait.
        session: whose run is that of questions which name none; by default it is the folder's.
    """

    settings: Settings
    session: str | None = None

    def of_session(self, session: str | None) -> ExternalQuestions:
        """Return the same for a client whose folder is nobody's piece of work, or is not here.

        Args:
            session: an id of its session; if there is none, what names no run is asked in a run of its own.
        """
        return replace(self, session=identity.new_id() if session is None else session)

    async def ask(
        self, question: Question, *, run: str | None = None, call: str | None = None, user: str | None = None
    ) -> Ticket:
        """Publish a question, or find it: a call that is repeated before it has its answer does not ask twice.

        Args:
            question: the question, with the path of its asker.
            run: the run that it belongs to, by an id that the caller chose; by default that of this session or folder.
            call: an id of the call, for askers that ask in the same words more than once.
            user: who owns the run.

        Raises:
            RunNotWaiting: the run was cancelled or has expired.
            CallerError: it is no run of askers outside.
            NotAllowed: it is somebody else's.
        """
        if call is not None:
            digest = hashlib.sha256(repr((question.path, question.question, call)).encode(errors="replace"))
            question = question.model_copy(update={"id": digest.hexdigest()[:12]})

        async def publish(run: Run) -> tuple[QuestionRecords, str]:
            known = run.records
            if (same := known.get(question.id) if call is not None else find_repeated(known, question)) is not None:
                return run.records, same.id
            question.require_form()
            resolver = self._resolve(run)
            if await resolver.answer_to(question) is None:
                await resolver.decide([question], Moment.AT_DRIVER)
            return _add_new(run.records, resolver.records), question.id

        return await self._record(publish, run, user)

    async def assume(
        self, question: Question, assumption: str, *, run: str | None = None, user: str | None = None
    ) -> Ticket:
        """Record what an asker assumes instead of asking, for the human to see. Where the answer is known, from a fact
        or since it was asked before, that is the outcome. The arguments and errors are those of `ask`.

        Raises:
            CallerError: it is about a risk, which is never assumed.
        """
        if question.is_risk:
            raise CallerError("A risk is not assumed: ask, and the human decides.")
        _refuse_long("The assumption", assumption)

        async def note(run: Run) -> tuple[QuestionRecords, str]:
            resolver = self._resolve(run)
            if await resolver.answer_to(question) is None:
                why = f"{question.asker} did not ask"
                assumed = Answer(
                    question_id=question.id,
                    text=assumption,
                    outcome=Outcome.ASSUMED,
                    by=AnsweredBy.POLICY,
                    reason=why,
                )
                resolver.note(question, assumed)
            noted = run.model_copy(update={"records": _add_new(run.records, resolver.records)})
            return collect(noted, question.id).records, question.id  # Who asks the same later asks the human.

        return await self._record(note, run, user)

    async def notify(self, path: Sequence[str], text: str, *, run: str | None = None, user: str | None = None) -> str:
        """Add what an asker wants the human to know to the transcript of its run; return the run's id. The arguments
        and errors are those of `ask`.

        Raises:
            CallerError: no text may be stored, so nobody would ever see it.
        """

        _refuse_long("The text", text)
        if not self.settings.store.transcripts:
            raise CallerError("The settings keep no transcripts (store.transcripts), so nobody would see this. Ask it.")

        async def keep(run: Run) -> tuple[QuestionRecords, str]:
            return run.records, ""

        run_id, _ = await self._record(keep, run, user)
        entry = TranscriptEntry(EntryKind.MESSAGE, read_path(path), identity.now(), text)
        await self._store.events.append(run_id, EntryAdded(segment=0, entry=entry))
        return run_id

    async def answer(self, ticket: Ticket, value: AnswerValue, *, user: str | None = None) -> None:
        """Answer a question as `Upcall.answer` does, where the asker's own client asked its user.

        Raises:
            AnswerError, RunNotWaiting, NotAllowed: nothing was changed.
        """
        access = self.access_of(user)
        while True:
            head = await self._load(ticket.run_id, user)
            given = {_find_record(head.run, ticket).id: value}
            accepted = accept(head.run, given, identity.now(), access=access.rights)
            if accepted.is_intrusion:
                await access.record_refusal(head.run.id, "answer")
            changed = accepted.ended or (close_questions(head.run, accepted.answers) if accepted.answers else None)
            try:
                if changed is not None:
                    await self._store.save_head(head, changed)
            except RunConflict:
                continue
            if accepted.refusal is not None:
                raise accepted.refusal
            return

    async def look(self, ticket: Ticket, *, user: str | None = None) -> QuestionRecord:
        """Return a question as it stands. Where its time is over, that has its consequence now.

        Raises:
            UnknownRun: its run was removed.
            CallerError: the run has no such question.
        """
        while True:
            head = await self._load(ticket.run_id, user)
            record = _find_record(head.run, ticket)
            if record.is_closed or not is_due(head.run):
                return record
            answers = expired_answers(head.run)
            ended = close_questions(head.run, answers) if answers else end_run(head.run, None)
            try:
                head = await self._store.save_head(head, ended)
            except RunConflict:  # Somebody answers it, or looks as well.
                continue
            return _find_record(head.run, ticket)

    async def wait(
        self,
        ticket: Ticket,
        seconds: float | None = None,
        *,
        user: str | None = None,
        on_look: Callable[[float], Awaitable[object]] | None = None,
    ) -> Answer | None:
        """Wait for the answer to a question, and note that the asker has it; None if it is still open after `seconds`.
        `on_look` is awaited after each look, with the seconds since the first one."""
        loop, number = asyncio.get_running_loop(), 0
        began = loop.time()
        while (record := await self.look(ticket, user=user)).answer is None:
            waited = loop.time() - began
            if on_look is not None:
                await on_look(waited)
            left = None if seconds is None else seconds - waited
            if left is not None and left <= 0:
                return None
            pause = POLL_INTERVALS_S[min(number, len(POLL_INTERVALS_S) - 1)]
            await asyncio.sleep(pause if left is None else min(pause, left))
            number += 1
        return await self._collect(ticket, record, user)

    async def _collect(self, ticket: Ticket, record: QuestionRecord, user: str | None) -> Answer | None:
        while not record.collected:
            head = await self._load(ticket.run_id, user)
            record = _find_record(head.run, ticket)
            try:
                await self._store.save_head(head, collect(head.run, record.id))
                break
            except RunConflict:
                continue
        return record.answer

    # -- the run ------------------------------------------------------------------------------------------------------

    async def _record(self, change: _Change, run: str | None, user: str | None) -> Ticket:
        """Change the questions of a run, which is made where there is none."""
        access, conflicts = self.access_of(user), 0
        if run is not None and not re.fullmatch(RUN_ID, run):
            raise CallerError(f"{run!r} cannot be the id of a run: use letters, digits, - and _, at most 64.")
        while True:
            run_id, head = (run, await self._find(run)) if run else await self._find_unnamed(access.user)
            before = head.run if head else Run(id=run_id, task=self._describe(run), user=access.user)
            if not access.rights.owns(before):
                raise access.rights.refuse_theirs(before)
            _require_usable(before, is_new=head is None)
            before = before.model_copy(update={"config": self._configure(before.config)})
            records, question_id = await change(before)
            if head is not None and records is before.records:
                return Ticket(run_id, question_id)
            after = settle(before, records)
            try:
                await (self._store.create_head(after) if head is None else self._store.save_head(head, after))
            except (RunConflict, ConfigurationError):  # Another asker was faster, maybe to make the run.
                conflicts += 1
                if conflicts == MAX_CONFLICTS:
                    raise
            else:
                return Ticket(run_id, question_id)

    async def _find(self, run_id: str) -> StoredHead | None:
        try:
            head = await self._store.load_head(run_id)
        except UnknownRun:
            return None
        return head if head.run.id == run_id else None  # Of another one the id begins so.

    async def _find_unnamed(self, user: str | None) -> tuple[str, StoredHead | None]:
        """Find the run of this session or folder, behind those that somebody ended: nobody could ask there any more."""
        kind, place = ("ask", os.getcwd()) if self.session is None else ("mcp", self.session)
        digest = hashlib.sha256(repr((user, place)).encode(errors="replace")).hexdigest()[:8]
        for number in count(1):
            run_id = f"{kind}-{digest}" if number == 1 else f"{kind}-{digest}-{number}"
            head = await self._find(run_id)
            if head is None or not (head.run.is_final and head.run.status is not RunStatus.COMPLETED):
                return run_id, head
        raise AssertionError("numbers do not end")

    def _describe(self, run: str | None) -> str:
        """Return the task of a run. Of a folder it names no more than the last part: others see it too."""
        place = f"programs in {Path.cwd().name or '/'}" if self.session is None else "an MCP client"
        return f"Questions of {run or place}"

    async def _load(self, run_id: str, user: str | None) -> StoredHead:
        rights = self.access_of(user).rights
        try:
            head = await self._store.load_head(run_id)
        except UnknownRun as unknown:
            if rights.unlimited:
                raise
            raise UnknownRun(run_id) from unknown  # The reason may name the store, or others' runs.
        if not rights.owns(head.run):
            raise UnknownRun(run_id)
        return head

    @property
    def _store(self) -> RunStore:
        return self.access_of(None).store

    def _configure(self, config: RunConfig) -> RunConfig:
        """Return the config of a run as the settings are now: it has no start from which it could keep others. An asker
        that names a deadline means it, unless the settings say what becomes of late questions."""
        chosen = self.settings.choose(ResolutionOptions)
        if "on_expiry" not in self.settings.questions.model_fields_set:
            chosen["on_expiry"] = "assume"
        facts = [[], [*self.settings.standing_facts()]]
        chosen |= {"on_ask": "wait", "ask_rules": []}  # What a program did with an assumption cannot be done again.
        return config.model_copy(update={**chosen, "facts": facts, "kind": "external"})

    def _resolve(self, run: Run) -> AnswerResolver:
        """Return the steps that answer a question before the human is asked."""
        records = run.records
        if _UNNAMED.fullmatch(run.id):
            since = identity.now() - REPEAT_FOR
            records = records.keep([each.id for each in records if not _is_older(each, since)])
        return AnswerResolver(run.config, records, run.config.facts)


def _require_usable(run: Run, *, is_new: bool) -> None:
    if not (is_new or run.config.is_external):
        raise CallerError(f"Run {run.id} is one of a team, whose agents ask in it themselves. Name another run.")
    if run.is_final and run.status is not RunStatus.COMPLETED:
        raise RunNotWaiting(f"Run {run.id} is {run.status}, so nobody is asked in it any more. Name another run.")


def _is_older(record: QuestionRecord, since: datetime) -> bool:
    return record.answer is not None and record.answer.answered_at < since


def _add_new(known: QuestionRecords, decided: QuestionRecords) -> QuestionRecords:
    return known.add(each for each in decided if each.id not in known)


def _find_record(run: Run, ticket: Ticket) -> QuestionRecord:
    question_id = resolve_id(ticket.question_id, [each.id for each in run.records])
    record = run.records.get(question_id)
    if record is None:
        raise CallerError(f"Run {run.id} has no question {ticket.question_id!r}.")
    return record


# -- what an asker gives ----------------------------------------------------------------------------------------------


def describe_question(
    text: str,
    *,
    path: Sequence[str],
    options: Sequence[str] = (),
    only: bool = False,
    several: bool = False,
    reason: str | None = None,
    default: str | None = None,
    risk: bool = False,
    deadline: str | float | None = None,
    schema: Mapping[str, Any] | None = None,
) -> Question:
    """Return the question that an asker outside describes in plain values.

    Args:
        text: the question.
        path: its asker, from the outermost agent on; empty names are left out.
        options: the choices by their labels; empty ones are left out.
        only: whether nothing but a choice is an answer.
        several: whether several may be chosen.
        reason: why it is asked.
        default: what is assumed if nobody answers in time.
        risk: whether it needs the human's own choice.
        deadline: after how long it expires: seconds, or ``30m``.
        schema: the JSON schema of the answer: of an object with several fields, or of one value, whose choices are the
            options where none are given.

    Raises:
        CallerError: it cannot be asked.
    """
    after = None if deadline is None else timedelta(seconds=read_seconds("deadline", deadline))
    form = None if schema is None else read_value_form(schema)
    only = only or bool(form and form.labels and not options)
    options = options or (form.labels if form else ())
    try:
        question = Question.model_validate(
            {
                "question": text,
                "path": read_path(path),
                "options": [each.strip() for each in options if each.strip()],
                "allow_free_text": not only,
                "multi_select": several or bool(form and form.several),
                "context": reason or None,
                "clarification_type": ClarificationType.RISK_CONFIRMATION if risk else ClarificationType.MISSING_INFO,
                "default": default,
                "answer_schema": schema if form and form.has_fields else None,
                "expires_at": None if after is None else identity.now() + after,
            }
        )
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, found["loc"]))
        problem = found["msg"].removeprefix("Value error, ")
        raise CallerError(f"This cannot be asked{f': {where}' if where else ''}: {problem}") from error
    if form is not None and form.has_fields and default is not None:
        try:
            parse_unsealed(question, default)
        except AnswerRefused as error:
            raise CallerError(f"default = {one_line(default, 100)!r} does not answer this: {error}") from error
    return question


def read_value_form(schema: Mapping[str, Any]) -> ValueForm:
    """Return what an asker wants to get, by its JSON schema.

    Raises:
        CallerError: it cannot be asked for.
    """
    from upcall.questions.elicitation import UnusableRequest, ValueForm

    try:
        return ValueForm(schema)
    except UnusableRequest as problem:
        raise CallerError(f"This cannot be asked: {problem}.") from problem


def read_path(names: Sequence[str]) -> tuple[str, ...]:
    """Return the path of an asker outside, each name as one line: a line break in it could pass for a line of ours.

    Raises:
        CallerError: it is too deep.
    """
    visible = [CONTROLS.sub("", one_line(each, MAX_NAME_CHARS)) for each in names]
    path = tuple(each for each in visible if each)
    if len(path) > MAX_DEPTH:
        raise CallerError(f"The asker's path has {len(path)} names; at most {MAX_DEPTH} are taken.")
    return path or ("agent",)


def _refuse_long(what: str, text: str) -> None:
    if not text.strip() or len(text) > MAX_QUESTION_CHARS or not is_storable(text):
        raise CallerError(f"{what} must have 1 to {MAX_QUESTION_CHARS:,} characters, and none that cannot be stored.")


def read_seconds(name: str, value: str | float) -> float:
    """Return a length of time in seconds.

    Raises:
        CallerError: it is none.
    """
    try:
        return parse_seconds(value)
    except ValueError as error:
        raise CallerError(f"{name} = {value!r} is wrong: {error}.") from error
