"""The journal: everything a team did since its last checkpoint, so that nothing is repeated after a kill or a failure.

A run that was cut off restarts from its last checkpoint. Each model call and tool call is then looked up by its caller
(the path, with the tool call at each level) and its content; what was recorded is replayed. The rules:

- The intent is recorded before a tool runs: a call without a result is in doubt, and only the human can say what became
  of it. A tool that may run twice says so (`idempotent`), and is run again.
- A model's reply may be lost in a kill, a tool's result may not: the one costs a call, the other an effect. So replies
  are written together, a little later, and results at once.
- Everything that led to a request is written before the request is made, so that a replay asks for the same.
- A replay takes an identical request's reply, else the next unused one of the same agent: members that work side by
  side may have received more or fewer of each other's messages this time. A fork takes identical ones alone, because
  its answers differ; but those of all the work of its run, also of what came after the fork (`EarlierWork`). What does
  not depend on the answer is thereby found, whoever did it. An agent that asks its model something new has departed:
  from then on its tool calls, and those below it, are its own, whatever they look like, over pauses and kills.
- What the human writes to an agent at work is recorded where the agent takes it in. A replay takes it in there again,
  and nothing else until the records are used up: whatever came later was not seen by the replies that are recorded.
- Where another answer is merely tried, no call is made that may have an effect: the run's own outcome of the same call
  stands for it, and where there is none, the work ends there (`CallsOfRun`).
- A checkpoint ends a journal; the keys of the next one are made with another epoch.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from autogen_core import FunctionCall
from autogen_core.models import CreateResult, LLMMessage
from pydantic import BaseModel, ValidationError

from upcall.autogen import tracing
from upcall.autogen.broken_off import BrokenOffReplies
from upcall.autogen.call_path import current_path
from upcall.autogen.earlier_calls import EarlierCalls, as_question_id, digest, name_call
from upcall.autogen.model_notes import Returned
from upcall.autogen.record_buffer import Check, RecordBuffer, WriteRecords
from upcall.autogen.scope import current_scope
from upcall.autogen.tool_calls import StartedLate, ToolCall, check_start_time, current_call, enter_call
from upcall.autogen.tried_calls import NO_TRIAL, CallsOfRun
from upcall.autogen.usage import usage_to_count
from upcall.errors import ModelReplyInvalid, SchemaMismatch
from upcall.lazy_pattern import LazyPattern
from upcall.runs.call_paths import CallPath
from upcall.runs.journal_records import EarlierWork, ReplyRecord, ToolOutcome, ToolRecord
from upcall.runs.steering import SteeringMessage, TakenMessages
from upcall.text import replace_surrogates

UNCHECKED_LEASE_TIME_S = 0.2
"""A worker that takes longer from recording an intent to running the tool checks whether it still owns the run."""

STEERING = "steering"
"""What the keys begin with under which agents took in what the human wrote."""

IDLE_POLL_INTERVAL_S = 0.02
"""How often to look whether the calls of others have ended."""

_DURATION_TAKEN = LazyPattern(r"\bafter \d+\.\d s\b")
"""The duration in the result of a command (`upcall.workspace.command_runs`), which is never the same twice."""

MAX_BUFFERED = 100_000
"""A longer reply, in characters, does not wait."""

ModelT = TypeVar("ModelT", bound=BaseModel)


class Journal:
    """The journal of one segment of a run.

    Args:
        run_id: the run, for idempotency keys.
        epoch: identifies the last checkpoint; a fork of a run has the same as the run.
        records: those since that checkpoint, by key.
        write: stores new records; it raises if they cannot be stored, and then nothing more may be done.
        check: raises for records that can never be stored: their caller gets the error, and no others are delayed.
        exact: whether a reply is replayed only for an identical request, as in a fork, where an answer differs.
        earlier: what the run was forked from has done: an identical call is taken from there.
        departed: the agents that had departed from that work before this segment.
        tried: the calls of the run in which an answer is merely tried here.
        on_delivery: receives the questions whose answers reached their askers in mid-turn.
    """

    def __init__(
        self,
        run_id: str,
        epoch: str,
        records: Mapping[str, str],
        write: WriteRecords,
        *,
        check: Check = lambda records: None,
        exact: bool = False,
        earlier: Sequence[EarlierWork] = (),
        departed: Sequence[CallPath] = (),
        tried: CallsOfRun = NO_TRIAL,
        on_delivery: Callable[[Sequence[str]], None] = lambda question_ids: None,
    ) -> None:
        self._run_id, self._epoch, self._records = run_id, epoch, records
        self._buffer = RecordBuffer(write, check)
        self._taken: set[str] = set()
        self._named: set[str] = set()
        self._started: dict[str, ToolRecord] = {}
        self._last: dict[tuple[Any, ...], str] = {}
        self._replies: dict[str, list[tuple[int, str]]] = {}
        self._place = 0
        self._unused: dict[str, CallPath] = {}
        """The recorded replies that were not replayed yet, and in which calls they were given."""
        for key, text in records.items():
            if key.startswith("model:"):
                known = _read(ReplyRecord, text)
                self._replies.setdefault(known.who, []).append((known.number, key))
                self._unused[key] = known.above
                self._place = max(self._place, known.place)
        self._steering = asyncio.Lock()
        self._in_flight: list[CallPath] = []
        """The model and tool calls under way: who works, with the call at each level, empty for a model's."""
        self._idle: list[CallPath] = []
        """Where agents wait until nobody else works."""
        self._counts = {who: len(known) for who, known in self._replies.items()}
        self._exact = exact
        self.earlier = EarlierCalls(earlier)
        self._is_fork = exact or bool(earlier)
        self.departed: dict[CallPath, None] = dict.fromkeys(departed)
        """The agents that have departed from the earlier work, each with the calls in which it did."""
        self._tried = tried
        self.report_delivery = on_delivery
        self._diverged: set[tuple[Any, ...]] = set()
        self._whole: list[CallPath] = []
        """The calls whose outcomes were replayed."""
        self.broken_off = BrokenOffReplies(run_id, records, self._buffer.write_later)

    @property
    def records(self) -> dict[str, str]:
        """All records since the last checkpoint."""
        known = {**self._records, **self._buffer.records}
        return {key: text for key, text in known.items() if text is not None}

    @property
    def done(self) -> dict[str, str]:
        """The records of what was done here: a fork begins with what its run did later, too."""
        used = self._taken | self._buffer.records.keys()
        return {key: text for key, text in self.records.items() if _is_done(key, text, used, self._whole)}

    async def flush(self) -> None:
        """Write all pending records; see `RecordBuffer.flush`."""
        await self._buffer.flush()

    async def stop_writing(self) -> None:
        """Start no more writes, and wait for the current one: a checkpoint replaces the journal."""
        await self._buffer.stop()

    async def replay_or_request(
        self,
        agent: str,
        messages: Sequence[LLMMessage],
        options: Sequence[str],
        fetch: Callable[[], Awaitable[CreateResult]],
    ) -> CreateResult:
        """Return the recorded reply to a model call of `agent`, or request one with `fetch` and record it, unless the
        human wants the run to stop.

        The call is identified by its messages, in any order, and its `options`.

        Raises:
            ModelReplyInvalid: the reply cannot be stored, so nothing could be resumed from it.
        """
        request = sorted(digest(message.model_dump_json()) for message in messages)
        key = self._key("model", agent, "", [*request, *options])
        who = (*current_path(), agent)
        self._last.pop(who, None)
        archive, notes = current_scope().replies, current_scope().model_notes
        name = self._name_request(messages, [*who, *options]) if archive is not None else ""
        asker = digest(json.dumps([self._epoch, who, *options]))
        known: ReplyRecord | None
        if (there := self._find_recorded(key, asker)) is not None:
            known = _read(ReplyRecord, self._records[there])
            self._taken.add(there)
            self._unused.pop(there, None)
            if known.own:
                self._depart(agent)
        else:
            known, there = self._take_earlier_reply(key, asker, agent, [*request, *options]), key
        if known is not None:
            self._last[who] = there
            if known.returned is not None and notes is not None:
                notes.fields.keep(known.reply.content, Returned.from_json(known.returned))
            return known.reply
        # A reply to a request that no replay could make again would be of no use.
        await self.flush()
        if (steering := current_scope().steering) is not None:
            await steering.stop_if_requested()
        budget, spent = current_scope().budget, dict[str, str]()
        try:
            async with nullcontext() if budget is None else budget.call():
                number = self._counts.get(asker, 0)
                with self._flying((*current_path(), (agent, ""))):
                    fetched = await (fetch() if archive is None else archive.find_or_request(name, fetch))
                spent |= {} if budget is None else budget.count(agent, usage_to_count(messages, fetched))
            reply = _sendable_reply(fetched)
            kept = None if notes is None else notes.fields.find(reply.content)
            returned = None if kept is None else kept.to_json()
            text = _dump(
                ReplyRecord(
                    who=asker,
                    number=number,
                    reply=reply,
                    returned=returned,
                    above=current_path(),
                    agent=agent,
                    place=self._next_place(),
                    own=self._is_fork or None,
                )
            )
        except _NotReadable as error:
            self._taken.discard(key)
            self._named.discard(name)
            raise ModelReplyInvalid(
                f"Agent {agent!r}: the model's reply cannot be stored ({error}). Try again, or use another model "
                "client. The run is stored and can be resumed."
            ) from error
        except BaseException:
            self._taken.discard(key)  # The next attempt is the same request, not a repetition with another number.
            self._named.discard(name)
            raise
        self._diverged.add(who)
        self._depart(agent)
        self._counts[asker] = number + 1
        if len(text) > MAX_BUFFERED:
            await self._buffer.write({key: text, **spent})
        else:
            self._buffer.write_later({key: text, **spent})
        self._last[who] = key
        return reply

    def _next_place(self) -> int:
        """Return the number of the next reply in this journal: a call that is made again gets a higher one."""
        self._place += 1
        return self._place

    def _name_request(self, messages: Sequence[LLMMessage], asker: Sequence[object]) -> str:
        """Return a name for a model request that is the same in another run as long as that run does the same."""
        digests = sorted(digest(_DURATION_TAKEN.sub("", message.model_dump_json())) for message in messages)
        number = 0  # Not the segment: chance decides whether an automatic answer comes in it or the next.
        while (name := digest(json.dumps([*asker, *digests, number]))) in self._named:
            number += 1
        self._named.add(name)
        return name

    def _find_recorded(self, key: str, asker: str) -> str | None:
        """Return the key of the recorded reply to a call: of an identical call, else the next unused one of this
        agent."""
        if key in self._records:
            self.earlier.skip(key)
            return key
        left = [] if self._exact else sorted(self._replies.get(asker, ()))
        return next((each for _, each in left if each not in self._taken), None)

    def _has_diverged(self, agent: str) -> bool:
        """Return whether `agent`, or one that it works for, has asked its model something new in this part of a fork:
        what the human wrote to it is then not that of the records."""
        above = current_path()
        path = [(*above[:depth], above[depth][0]) for depth in range(len(above))]
        return self._exact and any(who in self._diverged for who in [*path, (*above, agent)])

    def _depart(self, agent: str) -> None:
        if self._is_fork:
            self.departed[(*current_path(), (agent, ""))] = None

    def _has_departed(self, agent: str) -> bool:
        """Return whether `agent`, or one that it works for, has departed from the earlier work."""
        above = (*current_path(), (agent, ""))
        return any((*above[:depth], (above[depth][0], "")) in self.departed for depth in range(len(above)))

    def _take_earlier_reply(self, key: str, asker: str, agent: str, of: Sequence[str]) -> ReplyRecord | None:
        """Return the reply to an identical request in the earlier work, and record it under this key."""
        if (text := self.earlier.take("model", [current_path(), agent, "", *of])) is None:
            return None
        number = self._counts.get(asker, 0)
        self._counts[asker] = number + 1
        known = _read(ReplyRecord, text).model_copy(
            update={"who": asker, "number": number, "place": self._next_place(), "own": None}
        )
        self._buffer.write_later({key: _dump(known)})
        return known

    async def discard_last_reply(self, agent: str | None = None) -> bool:
        """Discard the last reply to `agent`, or to any, because it is unusable: the next attempt requests a new one.

        Returns False if there is nothing to discard: the last call brought no reply, or a tool was called since.
        """
        who = next(reversed(self._last), None) if agent is None else (*current_path(), agent)
        if who in self._last:
            # Where this fails, the next attempt discards the same one.
            await self._buffer.write({self._last[who]: None})
            self._last.pop(who, None)
            return True
        return False

    async def replay_or_run(
        self,
        agent: str,
        call_id: str,
        tool: str,
        arguments: Mapping[str, Any],
        run: Callable[[], Awaitable[ToolOutcome]],
        *,
        idempotent: bool,
        reversible: bool = False,
        effect_free: bool = False,
        answers: Sequence[str] = (),
    ) -> ToolOutcome:
        """Return the recorded outcome of a tool call of `agent`, or run the tool with `run` and record its outcome.

        With different `answers` to the tool's questions, as in a fork, it is a different call.

        Raises:
            Whatever `run` raises; the call is then in doubt.
        """
        self._last.pop((*current_path(), agent), None)
        given = json.dumps(arguments, sort_keys=True, default=str)
        key = self._key("tool", agent, call_id, [tool, given, *answers])
        text, has_departed = self._records.get(key), self._has_departed(agent)
        if text is not None:
            record = _read(ToolRecord, text)
            if has_departed and self._exact and not record.own:
                text = None  # The run's, of a call that only looks the same.
            elif record.outcome is not None:
                self.earlier.skip(key)
                self._forget_below((*current_path(), (agent, call_id)))
                await self._tried.take_known(key, record, self._buffer.write)
                return record.outcome
        if text is None and not has_departed:
            earlier = self.earlier.take("tool", [current_path(), agent, call_id, tool, given, *answers])
            if earlier is not None and (outcome := (known := _read(ToolRecord, earlier)).outcome):
                known = known.model_copy(update={"place": self._place, "own": None})
                self._buffer.write_later({key: known.model_dump_json(exclude_none=True)})
                await self._tried.take_known(key, known, self._buffer.write)
                return outcome
        above = current_path()
        intent = _intend((*above, (agent, call_id)), tool, given, self._place, idempotent=idempotent).model_copy(
            update={"own": self._is_fork or None, "reversible": reversible or None, "effect_free": effect_free or None}
        )
        if self._tried.is_trial and not effect_free:
            return await self._tried.take_or_end(key, intent, self._buffer.write, is_answered=bool(answers))
        self._started[key] = intent
        start = time.monotonic()
        await self._before_it_runs(key, {key: intent.model_dump_json(exclude_none=True)})
        with self._flying((*above, (agent, call_id))):
            with enter_call(ToolCall(intent.name_in(self._run_id), agent, tool, repeated=text is not None)):
                outcome = _sendable_outcome(
                    await tracing.tool_call(agent, tool, call_id, given, partial(self._run_in_time, run, key, start))
                )
            done = intent.model_copy(update={"outcome": outcome})  # Its content may be any JSON: it can be read back.
            await self._buffer.write({key: done.model_dump_json(exclude_none=True)})
        del self._started[key]  # Not if it raised: what it did is unknown, unless its caller abandons it.
        return outcome

    def _forget_below(self, call: CallPath) -> None:
        """Expect no replay of the replies that were given inside a call whose outcome is replayed."""
        self._whole.append(call)
        self._unused = {key: path for key, path in self._unused.items() if path[: len(call)] != call}

    async def _before_it_runs(self, key: str, records: Mapping[str, str | None]) -> None:
        """Write, which shows whether this worker still owns the run. If that fails, the tool call `key` does not run,
        and nothing is in doubt."""
        try:
            await self._buffer.write(records)
        except BaseException:
            with suppress(Exception):
                await self._buffer.write({key: None})
            raise

    async def _run_in_time(self, run: Callable[[], Awaitable[ToolOutcome]], key: str, since: float) -> ToolOutcome:
        """Run a tool while this worker still owns the run, as it did at the time `since`."""
        while True:
            with enter_call(replace(current_call(), start_by=since + UNCHECKED_LEASE_TIME_S)), suppress(StartedLate):
                check_start_time()
                return await run()
            await self._before_it_runs(key, {})
            since = time.monotonic()

    async def abandon_calls(self, agent: str, call_id: str) -> None:
        """Remove the calls that were started for a call of `agent` and cut off: nobody waits for them any more."""
        above = (*current_path(), (agent, call_id))
        names, calls = tuple(name for name, _ in above), tuple(call for _, call in above)
        lost = [
            key
            for key, intent in self._started.items()
            if intent.path[: len(names)] == names and intent.calls[: len(calls)] == calls
        ]
        if lost:
            await self._buffer.write(dict.fromkeys(lost))
        for key in lost:
            del self._started[key]

    async def replay_or_take(
        self, agent: str, place: int, take: Callable[[str], Awaitable[Sequence[SteeringMessage]]]
    ) -> Sequence[SteeringMessage]:
        """Return the messages of the human that `agent` took in at a place of its work, or those that it takes in now.

        `take` gets the path of the agent, and returns what it is to read; no other agent gets that.
        """
        key = self._key(STEERING, agent, "", [str(place)])
        if (text := self._records.get(key)) is not None and not self._has_diverged(agent):
            return _read(TakenMessages, text).messages
        if self._is_replaying(agent):
            return ()
        async with self._steering:
            path = "/".join([*(name for name, _ in current_path()), agent])
            messages = await take(path)
            if messages:
                await self._buffer.write({key: TakenMessages(path=path, messages=tuple(messages)).model_dump_json()})
        return messages

    @contextmanager
    def _flying(self, call: CallPath) -> Iterator[None]:
        self._in_flight.append(call)
        try:
            yield
        finally:
            self._in_flight.remove(call)

    async def wait_until_idle(self, timeout: float) -> bool:
        """Wait until no model or tool call is under way but those in which somebody waits here; return whether that
        came within `timeout` seconds."""
        path, end = current_path(), time.monotonic() + timeout
        self._idle.append(path)
        try:
            # Several may wait, each in a call of its own.
            while any(all(who[: len(each)] != each for who in self._idle) for each in self._in_flight):
                if time.monotonic() > end:
                    return False
                await asyncio.sleep(IDLE_POLL_INTERVAL_S)
            return True
        finally:
            self._idle.remove(path)

    def _is_replaying(self, agent: str) -> bool:
        """Return whether `agent` may have recorded replies before it: all agents' count, as it may work for them."""
        if (*current_path(), agent) in self._diverged or (self._exact and self._diverged):
            return False
        return bool(self._unused)

    async def record_delivery(self, question_ids: Sequence[str]) -> None:
        """Record that the agent that asked these questions received the answers in mid-turn."""
        await self._buffer.write({f"delivered:{question_id}": "{}" for question_id in question_ids})
        self.report_delivery(question_ids)

    def was_delivered(self, question_id: str) -> bool:
        """Return whether it was delivered before the segment was cut off."""
        return f"delivered:{question_id}" in self._records

    def question_id(self, agent: str, call_id: str, text: str) -> str:
        """Return the id of a question asked by a tool call of `agent`: the same each time the call is made."""
        question_id = as_question_id(self._key("question", agent, call_id, [text]))
        if not self._has_departed(agent):
            self.earlier.note_question(question_id, [current_path(), agent, call_id, text])
        return question_id

    def _key(self, kind: str, agent: str, call_id: str, of: Sequence[str]) -> str:
        """Return a name for this call, numbered among its repetitions."""
        number, call = 0, [self._epoch, current_path(), agent, call_id, *of]
        while (key := name_call(kind, [*call, number])) in self._taken:
            number += 1
        self._taken.add(key)
        return key


def _intend(call: CallPath, tool: str, arguments: str, place: int, *, idempotent: bool) -> ToolRecord:
    """Return the record of a tool call before it is made."""
    names, calls = tuple(name for name, _ in call), tuple(each for _, each in call)
    return ToolRecord(path=names, calls=calls, tool=tool, arguments=arguments, idempotent=idempotent, place=place)


def _is_done(key: str, text: str, used: Collection[str], whole: Sequence[CallPath]) -> bool:
    """Return whether a record was used, or is of something that was done inside one of the `whole` calls."""
    if key in used or not key.startswith(("model:", "tool:")):
        return True
    if key.startswith("model:"):
        above = _read(ReplyRecord, text).above
    else:
        call = _read(ToolRecord, text)
        above = tuple(zip(call.path, call.calls, strict=True))[:-1]
    return any(above[: len(each)] == each for each in whole)


def find_unfinished(records: Mapping[str, str]) -> dict[str, ToolRecord]:
    """Find the tool calls that were started and have no outcome, by their keys: they are repeated, or are in doubt.

    Raises:
        SchemaMismatch: a record was written by another version of upcall.
    """
    read = {key: _read(ToolRecord, text) for key, text in records.items() if key.startswith("tool:")}
    return {key: record for key, record in read.items() if record.outcome is None}


def find_in_doubt(records: Mapping[str, str]) -> dict[str, ToolRecord]:
    """Find the tool calls that were started and whose outcome is unknown, by their keys."""
    return {key: record for key, record in find_unfinished(records).items() if record.in_doubt}


def _sendable_outcome(outcome: ToolOutcome) -> ToolOutcome:
    return outcome.model_copy(
        update={name: _sendable_value(getattr(outcome, name)) for name in ("content", "asked", "kept")}
    )


def _sendable_reply(reply: CreateResult) -> CreateResult:
    if isinstance(reply.content, str):
        return reply.model_copy(update={"content": replace_surrogates(reply.content)})
    calls = [FunctionCall(str(call.id), replace_surrogates(call.arguments), call.name) for call in reply.content]
    return reply.model_copy(update={"content": calls})


def _sendable_value(value: Any) -> Any:
    """Make the texts of a JSON value fit to be written and sent: a file name may be invalid UTF-8."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, Mapping):
        return {_sendable_value(name): _sendable_value(each) for name, each in value.items()}
    return [_sendable_value(each) for each in value] if isinstance(value, list) else value


class _NotReadable(Exception):
    """A reply that can be written, but not read back."""


def _dump(record: ReplyRecord) -> str:
    """Return a reply as JSON that was read back: pydantic writes values it refuses to read, such as a count that is
    NaN.

    Raises:
        _NotReadable: says where and why.
    """
    try:
        text = record.model_dump_json(exclude_none=True, warnings=False)
        ReplyRecord.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise _NotReadable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    return text


def _read(kind: type[ModelT], text: str) -> ModelT:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise SchemaMismatch(
            "The journal of this run contains a record that cannot be read: it was written by another version of "
            "upcall. Resume the run with the version that wrote it."
        ) from error
