"""A message of a client: it begins a run, answers questions of one, or goes to its agents at work."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from typing import NamedTuple

from a2a.types import Message
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError

from upcall.errors import AnswerRefused, UnknownRun, UpcallError
from upcall.questions.matching import resolve_id
from upcall.runs.run import Run
from upcall.runs.run_filter import RunFilter
from upcall.runs.run_page import is_storable
from upcall.runs.states import RunStatus
from upcall.server.a2a.contexts import (
    TaskNames,
    forget_names,
    keep_names,
    keep_shown,
    list_in_context,
    read_names,
    read_shown,
)
from upcall.server.a2a.parts import has_data, needs_person, read_answers, read_task, read_text
from upcall.server.own_choice import ELSEWHERE, is_refusal
from upcall.server.service import Caller, Service
from upcall.server.starting import begin_run, is_begun
from upcall.storage.store import RunStore

MAX_ID_CHARS = 200
"""How long an id may be that a client chooses."""

RUNS_AT_ONCE = 200

ID_CHARS, ID_OF_MESSAGE = 24, 16
"""How long the id of a run is that a message begins. Its first part is the same for all messages with the same id, so
that another one with that id is noticed."""


class Taken(NamedTuple):
    """What became of a message.

    Attributes:
        run_id: the run that it began, or that continues with it.
        answered: the ids of the questions that it answers.
    """

    run_id: str
    answered: frozenset[str] = frozenset()


class ClientMessages:
    """The messages of one client."""

    def __init__(self, service: Service, caller: Caller) -> None:
        self._service, self._caller = service, caller
        self._app = service.app_for(caller)

    async def take(self, message: Message) -> Taken:
        """Do what a message asks for; once, however often it is sent.

        Raises:
            UpcallError: it cannot be done; nothing was changed.
            InvalidParamsError, UnsupportedOperationError: the protocol forbids it.
        """
        for name, value in (("messageId", message.message_id), ("contextId", message.context_id)):
            if len(value) > MAX_ID_CHARS or not is_storable(value):
                raise InvalidParamsError(f"The {name} is not a text of at most {MAX_ID_CHARS} characters.")
        if not message.task_id:
            return await self._begin(message)
        run = await self._app.get(message.task_id, user=self._caller.user)
        names = (await name_tasks(self._service.store, [run]))[run.id]
        if message.context_id not in ("", names.context_id):
            raise InvalidParamsError(f"Task {run.id} is of the context {names.context_id}, not {message.context_id}.")
        new_id = self._derive_id(message.message_id, task_id=run.id)
        shown = await read_shown(self._service.store, run.id, new_id)
        if await self._service.store.events.is_sent(run.id, new_id):
            taken = Taken(run.id)  # Sent again after its agents had it: no answer to what they ask since.
        elif run.waiting or has_data(message) or shown is not None:
            taken = await self._answer(run, message, new_id, shown)
        elif run.under_way:
            await self._service.say(self._caller, run.id, read_text(message), new_id=new_id)
            taken = Taken(run.id)
        else:
            raise UnsupportedOperationError(
                f"Task {run.id} is {run.status.value} and takes no message. Leave taskId out: a new task of the same "
                "context follows it."
            )
        await self.wake(run.id)
        return taken

    async def wake(self, run_id: str) -> None:
        """Continue a run whose process is gone, if it is the client's to continue."""
        run = await self._app.get(run_id, user=self._caller.user)
        if run.interrupted and self._app.access.owns(run, self._caller.user):
            await self._service.resume(self._caller, run.id)

    async def _begin(self, message: Message) -> Taken:
        """Begin a run; one that the same message began before continues.

        Raises:
            InvalidParamsError: another message with this id began one.
        """
        task, store = read_task(message), self._service.store
        beginning = self._derive_id(message.message_id, context_id=message.context_id)[:ID_OF_MESSAGE]
        run_id = beginning + task.digest[: ID_CHARS - ID_OF_MESSAGE]
        if not await is_begun(self._service, run_id):
            if others := await store.find(beginning):
                raise InvalidParamsError(
                    f"The messageId {message.message_id} is that of another message, which began the task "
                    f"{others[0]}. Choose a new one for this message."
                )
            follows = await self._find_completed(message.context_id) if message.context_id else None
            wanted = task.wanted.model_copy(update={"follows": follows})
            await keep_names(store, run_id, TaskNames(message.context_id or run_id, message.message_id))
            try:
                await begin_run(self._service, self._caller, wanted, task.documents, task.images, run_id=run_id)
            except UpcallError:
                if not await is_begun(self._service, run_id):
                    await forget_names(store, run_id)
                raise
        await self.wake(run_id)
        return Taken(run_id)

    def _derive_id(self, message_id: str, *, context_id: str = "", task_id: str = "") -> str:
        """Derive the id of what a message begins in a conversation, or is to a task: the same for the same message of
        this client."""
        parts = [self._caller.user, context_id, task_id, message_id]
        return sha256(json.dumps(parts).encode()).hexdigest()[:ID_CHARS]

    async def _find_completed(self, context_id: str) -> str | None:
        """Find the newest completed run of the client in a conversation: none that another one followed already."""
        runs = await self.list_in(context_id)
        done = [each for each in runs if each.status is RunStatus.COMPLETED and not each.config.is_external]
        followed = {each.follows for each in done}
        last = [each for each in done if each.id not in followed]
        return max(last, key=lambda each: each.created_at).id if last else None

    async def list_in(self, context_id: str) -> Sequence[Run]:
        """List the client's own runs of a conversation, with those that were begun elsewhere to follow one of them."""
        runs: dict[str, Run] = {}
        for run_id in await list_in_context(self._service.store, context_id):
            with suppress(UpcallError):
                run = await self._app.get(run_id, user=self._caller.user)
                if run.id == run_id and run.user == self._caller.user:
                    runs[run_id] = run
        later = await self._list_later(min(each.created_at for each in runs.values())) if runs else []
        following: dict[str, Run] = {}
        last = [*runs]
        while last:  # Runs that were begun within a second come in any order.
            new = {each.id: each for each in later if each.follows in last and each.id not in {*runs, *following}}
            following |= new
            last = [*new]
        names = await name_tasks(self._service.store, [*following.values()])
        return [*runs.values(), *(each for each in following.values() if names[each.id].context_id == context_id)]

    async def _list_later(self, time: datetime) -> Sequence[Run]:
        """List the client's own runs that were begun since some time, newest first: they alone say what they follow."""
        only, found, before = RunFilter(owner=self._caller.user), list[Run](), None
        while True:
            page = await self._app.list(self._caller.user, limit=RUNS_AT_ONCE, before=before, only=only)
            found += [each for each in page if each.created_at >= time and each.user == self._caller.user]
            before = page.next
            if before is None or any(each.created_at < time for each in page):
                return found

    async def _answer(self, run: Run, message: Message, new_id: str, shown: Sequence[str] | None) -> Taken:
        """Answer questions of a run. A text, noted by its id, answers those that were open when it came first."""
        mine = self._app.access.answerable(run, self._caller.user)
        if not has_data(message) and shown is None:
            if not mine:
                raise AnswerRefused(f"Task {run.id} has no open question that is yours to answer.")
            shown = await keep_shown(self._service.store, run.id, new_id, [each.id for each in mine])
        asked = mine if shown is None else [run.asked[each] for each in shown if each in run.asked]
        given = read_answers(message, asked)
        known = {each.id: each for each in mine}
        answers = {resolve_id(named, [*known]): value for named, value in given.items()}
        for question_id, value in answers.items():
            if question_id in known and needs_person(known[question_id]) and not is_refusal(value):
                raise AnswerRefused(f"Question {question_id} is for a person to answer, and no program: {ELSEWHERE}")
        await self._service.answer(self._caller, run.id, answers)
        return Taken(run.id, frozenset(answers))


async def name_tasks(store: RunStore, runs: Sequence[Run]) -> Mapping[str, TaskNames]:
    """Return what clients named these runs by. One that was begun elsewhere is of the conversation that it follows, or
    begins one."""
    found = await read_names(store, [each.id for each in runs])
    known = {run_id: names.context_id for run_id, names in found.items()}
    return {each.id: found.get(each.id) or TaskNames(await _find_context(store, each, known)) for each in runs}


async def _find_context(store: RunStore, run: Run, known: dict[str, str]) -> str:
    """Find the context of a run by what it follows; note it for all on the way in those that are `known`."""
    passed = list[str]()
    with suppress(UnknownRun):
        while run.id not in known:
            passed.append(run.id)
            if run.follows is None:
                break
            if (named := (await read_names(store, [run.follows])).get(run.follows)) is not None:
                known[run.follows] = named.context_id
            run = await store.load_run(run.follows)
    found = known.get(run.id, run.id)
    known |= dict.fromkeys(passed, found)
    return found
