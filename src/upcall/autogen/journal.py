"""The journal: what a team did since its last rest, so that nothing of it is done again after a kill or a failure.

A run that was cut off begins again at its last rest. Each model call and each tool call is then looked up by who makes
it (the path, with the tool call at each level) and by what it is; what was recorded is taken from there. Before a tool
runs, that it will is recorded: a call with no result is in doubt, and nobody but the human can say what became of it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from hashlib import blake2b
from typing import Any, TypeAlias, TypeVar

from autogen_core import FunctionCall
from autogen_core.models import CreateResult, LLMMessage
from pydantic import BaseModel, ValidationError

from upcall.autogen import tracing
from upcall.autogen.call_path import current_path
from upcall.autogen.concurrency import run_to_completion
from upcall.errors import SchemaMismatch
from upcall.questions.question import replace_surrogates
from upcall.runs.journal_records import ReplyRecord, ToolOutcome, ToolRecord

Write: TypeAlias = Callable[[Mapping[str, str | None]], Awaitable[None]]
"""Writes records into the store, by their keys; None takes one out."""

Check: TypeAlias = Callable[[Mapping[str, str | None]], None]
"""Raises where records can never be written."""

SECONDS_WITHOUT_DOUBT = 0.2
"""A worker that took longer from recording that a tool will run to running it looks whether the run is still its."""

SECONDS_NOTED = 0.02
"""How long a model's reply waits for a write that takes it along: that of the call that it asks for, most often."""

MAX_NOTED = 100_000
"""A longer reply does not wait, in characters."""

ToolT = TypeVar("ToolT")
ModelT = TypeVar("ModelT", bound=BaseModel)

_IDEMPOTENT = "upcall_idempotent"


class Journal:
    """The journal of one stretch of a run.

    Args:
        run_id: the run, for idempotency keys.
        epoch: names the last rest; a branch of a run has that of the run.
        records: what was recorded since that rest, by key.
        write: where new records go; it raises where they cannot be kept, and then nothing more may be done.
        check: raises where records can never be kept: they are refused to who brings them, and keep no others back.
        exact: whether a reply is given to the very same request alone, as in a branch, where an answer is another.
    """

    def __init__(
        self,
        run_id: str,
        epoch: str,
        records: Mapping[str, str],
        write: Write,
        *,
        check: Check = lambda records: None,
        exact: bool = False,
    ) -> None:
        self._run_id, self._epoch, self._records, self._write_to, self._check = run_id, epoch, records, write, check
        self._new: dict[str, str | None] = {}
        self._noted: dict[str, str | None] = {}
        self._writing = asyncio.Lock()
        self._timer: asyncio.Task[None] | None = None
        self._taken: set[str] = set()
        self._begun: dict[str, ToolRecord] = {}
        self._last: dict[tuple[Any, ...], str] = {}
        self._replies: dict[str, list[tuple[int, str]]] = {}
        for key, text in records.items():
            if key.startswith("model:"):
                known = _read(ReplyRecord, text)
                self._replies.setdefault(known.who, []).append((known.number, key))
        self._counts = {who: len(known) for who, known in self._replies.items()}
        self._exact = exact
        self._parted: set[tuple[Any, ...]] = set()

    @property
    def records(self) -> dict[str, str]:
        """All that was recorded since the last rest."""
        known = {**self._records, **self._new, **self._noted}
        return {key: text for key, text in known.items() if text is not None}

    async def _write(self, records: Mapping[str, str | None]) -> None:
        """Write records, and with them what was noted before."""
        self._check(records)
        self._noted |= records
        await run_to_completion(self._write_noted(always=not records))

    def _note(self, records: Mapping[str, str | None]) -> None:
        """Have records written by the next write, and soon if there is none."""
        self._check(records)
        self._noted |= records
        if self._timer is None:
            self._timer = asyncio.create_task(self._write_soon())

    async def _write_soon(self) -> None:
        with suppress(Exception):  # It stays noted: who writes next is told what is wrong.
            while self._noted:
                await asyncio.sleep(SECONDS_NOTED)
                await run_to_completion(self._write_noted())
        self._timer = None

    async def _write_noted(self, *, always: bool = False) -> None:
        """Write what was noted, of all agents at once. What cannot be written stays noted."""
        async with self._writing:
            batch, self._noted = self._noted, {}
            if not batch and not always:
                return
            try:
                await self._write_to(batch)
            except BaseException:
                self._noted = batch | self._noted
                raise
            self._new |= batch

    async def flush(self) -> None:
        """Write what was noted and is not written yet.

        Raises:
            Whatever the writing raises; it stays noted.
        """
        await self.stop_writing()
        if self._noted:
            await run_to_completion(self._write_noted())

    async def stop_writing(self) -> None:
        """Write nothing any more by itself, and wait for what is being written: a checkpoint takes the journal's
        place."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            await asyncio.wait([timer])  # What it has begun to write must not come behind the checkpoint.
        async with self._writing:
            pass

    async def reply(
        self,
        agent: str,
        messages: Sequence[LLMMessage],
        options: Sequence[str],
        fetch: Callable[[], Awaitable[CreateResult]],
    ) -> CreateResult:
        """The reply to a model call of `agent`: the recorded one, or what `fetch` gives, recorded.

        The call is told by its messages, in any order, and its `options`. Members that work at the same time may have
        heard more or less of each other when they are gone through again: a request that is not there gets the next
        reply to the same agent that nobody has got.

        A new reply is noted, and written with what is done with it, or soon: a kill in between costs this one call.
        What it is asked for with is written before.
        """
        request = sorted(_digest(message.model_dump_json()) for message in messages)
        key = self._key("model", agent, "", [*request, *options])
        who = (*current_path(), agent)
        self._last.pop(who, None)
        party = _digest(json.dumps([self._epoch, who, *options]))
        if (there := self._recorded(key, party)) is not None:
            self._last[who] = there
            self._taken.add(there)
            return _read(ReplyRecord, self._records[there]).reply
        await self.flush()
        try:
            reply = await fetch()
        except BaseException:
            self._taken.discard(key)
            raise
        self._parted.add(who)
        reply = _sendable_reply(reply)
        number = self._counts.get(party, 0)
        self._counts[party] = number + 1
        record = ReplyRecord(who=party, number=number, reply=reply)
        text = record.model_dump_json(exclude_none=True)
        if len(text) > MAX_NOTED:
            await self._write({key: text})
        else:
            self._note({key: text})
        self._last[who] = key
        return reply

    def _recorded(self, key: str, party: str) -> str | None:
        """The key of the recorded reply to a call: the very same, else the next of this agent that was not given."""
        if key in self._records:
            return key
        left = [] if self._exact else sorted(self._replies.get(party, ()))
        return next((each for _, each in left if each not in self._taken), None)

    def _behind_the_answer(self, agent: str) -> bool:
        """Whether `agent`, or one that it works for, has left what is recorded: in a branch its calls are others then,
        even where they look the same."""
        above = current_path()
        path = [(*above[:depth], above[depth][0]) for depth in range(len(above))]
        return self._exact and any(who in self._parted for who in [*path, (*above, agent)])

    async def discard_last_reply(self, agent: str | None = None) -> bool:
        """Forget the last reply to `agent`, or of all: it could not be used, and is fetched anew when the run goes on.
        Where the last call brought no reply, or a tool was called since, there is nothing to forget: False."""
        who = next(reversed(self._last), None) if agent is None else (*current_path(), agent)
        if who in self._last:
            key = self._last.pop(who)
            await self._write({key: None})
            return True
        return False

    async def outcome(
        self,
        agent: str,
        call_id: str,
        tool: str,
        arguments: Mapping[str, Any],
        run: Callable[[], Awaitable[ToolOutcome]],
        *,
        idempotent: bool,
    ) -> ToolOutcome:
        """The outcome of a tool call of `agent`: the recorded one, or what `run` gives, recorded.

        Raises:
            Whatever `run` raises; the call is in doubt then.
        """
        self._last.pop((*current_path(), agent), None)
        given = json.dumps(arguments, sort_keys=True, default=str)
        key = self._key("tool", agent, call_id, [tool, given])
        if (text := self._records.get(key)) is not None and not self._behind_the_answer(agent):
            record = _read(ToolRecord, text)
            if record.outcome is not None:
                return record.outcome
        above = current_path()
        begun = ToolRecord(
            path=(*(name for name, _ in above), agent),
            calls=(*(call for _, call in above), call_id),
            tool=tool,
            arguments=given,
            idempotent=idempotent,
        )
        self._begun[key] = begun
        start = time.monotonic()
        await self._before_it_runs(key, {key: begun.model_dump_json(exclude_none=True)})
        token = _idempotency_key.set("/".join([self._run_id, *begun.path, *begun.calls]))
        again = _made_again.set(text is not None)
        try:
            outcome = _sendable_outcome(
                await tracing.tool_call(agent, tool, call_id, partial(self._in_time, run, key, start))
            )
        finally:
            _idempotency_key.reset(token)
            _made_again.reset(again)
        ended = begun.model_copy(update={"outcome": outcome})
        await self._write({key: ended.model_dump_json(exclude_none=True)})
        del self._begun[key]
        return outcome

    async def _before_it_runs(self, key: str, records: Mapping[str, str | None]) -> None:
        """Write, which tells whether the run is still this worker's. Where that fails, the tool call `key` does not
        run: nothing is in doubt."""
        try:
            await self._write(records)
        except BaseException:
            with suppress(Exception):
                await self._write({key: None})
            raise

    async def _in_time(self, run: Callable[[], Awaitable[ToolOutcome]], key: str, since: float) -> ToolOutcome:
        """What `run` gives, which begins while the run is still this worker's, as it was at the time `since`."""
        while True:
            token = _begin_by.set(since + SECONDS_WITHOUT_DOUBT)
            try:
                check_start_time()
                return await run()
            except StartedLate:
                await self._before_it_runs(key, {})
                since = time.monotonic()
            finally:
                _begin_by.reset(token)

    async def give_up(self, agent: str, call_id: str) -> None:
        """Forget the calls that were begun for a call of `agent` and cut off: nobody waits for them any more."""
        above = (*current_path(), (agent, call_id))
        names, calls = tuple(name for name, _ in above), tuple(call for _, call in above)
        lost = [
            key
            for key, begun in self._begun.items()
            if begun.path[: len(names)] == names and begun.calls[: len(calls)] == calls
        ]
        if lost:
            await self._write(dict.fromkeys(lost))
        for key in lost:
            del self._begun[key]

    async def heard(self, question_ids: Sequence[str]) -> None:
        """Note that who asked these got their answers by mail in the middle of its turn."""
        await self._write({f"heard:{question_id}": "{}" for question_id in question_ids})

    def was_heard(self, question_id: str) -> bool:
        """Whether that was so before the stretch was cut off."""
        return f"heard:{question_id}" in self._records

    def id_of(self, agent: str, call_id: str, text: str) -> str:
        """The id of a question that a tool call of `agent` asks: the same each time that the call is made."""
        return self._key("question", agent, call_id, [text]).removeprefix("question:")[:12]

    def _key(self, kind: str, agent: str, call_id: str, of: Sequence[str]) -> str:
        """A name for this call, the next one of its kind. What is asked for several times is told apart by number."""
        number, call = 0, [self._epoch, current_path(), agent, call_id, *of]
        while (key := f"{kind}:{_digest(json.dumps([*call, number]))}") in self._taken:
            number += 1
        self._taken.add(key)
        return key


journal: ContextVar[Journal | None] = ContextVar("upcall_journal", default=None)
"""The driver sets it before it runs a team, and the team's tasks inherit it; a plain AutoGen script has none."""


def find_unfinished(records: Mapping[str, str]) -> dict[str, ToolRecord]:
    """The tool calls that were begun and have no outcome, by their keys: they are made again, or are in doubt.

    Raises:
        SchemaMismatch: a record was written by another version of upcall.
    """
    read = {key: _read(ToolRecord, text) for key, text in records.items() if key.startswith("tool:")}
    return {key: record for key, record in read.items() if record.outcome is None}


def find_in_doubt(records: Mapping[str, str]) -> dict[str, ToolRecord]:
    """The tool calls that were begun and whose outcome nobody knows, by their keys."""
    return {key: record for key, record in find_unfinished(records).items() if record.in_doubt}


async def discard_last_reply(agent: str) -> None:
    """Forget the last reply to `agent`, which could not be used."""
    if (kept := journal.get()) is not None:
        await kept.discard_last_reply(agent)


def id_for_question(agent: str, call_id: str, text: str) -> dict[str, str]:
    """The field ``id`` of a question that a tool call asks; nothing without a journal."""
    kept = journal.get()
    return {"id": kept.id_of(agent, call_id, text)} if kept is not None else {}


# -- what a tool says and is told -------------------------------------------------------------------------------------


def idempotent(tool: ToolT) -> ToolT:
    """Declare that calls of a tool (a function, an AutoGen tool or a whole workbench) may be made again.

    Where a process is killed in the middle of a call, nobody knows whether it took effect. Such a call is made again
    when the run is resumed; any other is put to the human. Gives the same object back; it can be used as a decorator.
    """
    setattr(tool, _IDEMPOTENT, True)
    return tool


def is_idempotent(*tools: object) -> bool:
    """Whether one of these declares it: a tool, the function that it was made of, the workbench that it is in."""
    return any(getattr(tool, _IDEMPOTENT, False) is True for tool in tools)


_idempotency_key: ContextVar[str | None] = ContextVar("upcall_idempotency_key", default=None)


def idempotency_key() -> str:
    """In a tool that `Upcall` runs: a name for the present call, the same however often it is made again.

    Its form is ``run/path/calls``, for services that do a thing once for each key.

    Raises:
        LookupError: no tool call of a run is being made.
    """
    if (key := _idempotency_key.get()) is None:
        raise LookupError("There is no idempotency key here: it is for a tool while upcall.Upcall runs it.")
    return key


_begin_by: ContextVar[float | None] = ContextVar("upcall_begin_by", default=None)
"""The moment, by `time.monotonic`, after which a tool's function that has not begun may be another worker's to run."""


class StartedLate(BaseException):
    """A tool's function got its thread late, since all were taken or the process stood still, and did not run. No
    handler of a tool's errors takes it for one."""


def check_start_time() -> None:
    """To be called in the thread of a tool's function right before it runs.

    Raises:
        BegunLate: it must not run before the journal has looked whether the run is still this worker's.
    """
    by = _begin_by.get()
    if by is not None and time.monotonic() > by:
        raise StartedLate


_made_again: ContextVar[bool] = ContextVar("upcall_made_again", default=False)


def is_repeated_call() -> bool:
    """In a tool that `Upcall` runs: whether the present call was begun before and cut off, so that some of it, or all,
    may be done already."""
    return _made_again.get()


def _sendable_outcome(outcome: ToolOutcome) -> ToolOutcome:
    return outcome.model_copy(update={"content": _cleaned(outcome.content), "asked": _cleaned(outcome.asked)})


def _sendable_reply(reply: CreateResult) -> CreateResult:
    if isinstance(reply.content, str):
        return reply.model_copy(update={"content": replace_surrogates(reply.content)})
    calls = [FunctionCall(call.id, replace_surrogates(call.arguments), call.name) for call in reply.content]
    return reply.model_copy(update={"content": calls})


def _cleaned(value: Any) -> Any:
    """A JSON value whose texts can be written and sent: a file name may be no UTF-8."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, Mapping):
        return {_cleaned(name): _cleaned(each) for name, each in value.items()}
    return [_cleaned(each) for each in value] if isinstance(value, list) else value


def _digest(text: str) -> str:
    return blake2b(text.encode(errors="replace"), digest_size=16).hexdigest()


def _read(kind: type[ModelT], text: str) -> ModelT:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise SchemaMismatch(
            "The journal of this run holds a record that cannot be read: it was written by another version of upcall. "
            "Resume the run with the version that wrote it."
        ) from error
