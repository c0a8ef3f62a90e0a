"""The same runs over AG-UI 1.0: a front end of that protocol starts a run, watches it, and answers its questions.

A run of AG-UI goes from a start or an answer to the next pause; the stored run continues through all of them.
"""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Mapping
from contextlib import aclosing
from hashlib import sha256
from typing import NamedTuple

from ag_ui.core import (
    PROTOCOL_VERSION,
    BaseEvent,
    CustomEvent,
    DataSource,
    DocumentPart,
    ImagePart,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateSnapshotEvent,
    TextPart,
    TokenUsage,
    UserMessage,
)
from fastapi import APIRouter
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError
from sse_starlette import EventSourceResponse, ServerSentEvent

from upcall.errors import CallerError, OverrulesAssumption, UnknownQuestion, UpcallError
from upcall.questions.matching import AnswerValue
from upcall.runs.run import Run, Usage
from upcall.runs.states import RunStatus
from upcall.runs.transcript import TranscriptEntry
from upcall.server.agui_messages import Conversation
from upcall.server.agui_questions import describe_interrupt, read_payload
from upcall.server.background import StreamedToken
from upcall.server.bodies import RunBody, Start, explain_validation
from upcall.server.callers import Authenticator, CurrentUser, KnownCallersRoute
from upcall.server.events import (
    LINE_END,
    RunFollower,
    Stored,
    Streams,
    Update,
    follow_run,
    respond_with,
)
from upcall.server.overruling import sign_plan
from upcall.server.problems import describe
from upcall.server.service import Caller, Service
from upcall.server.starting import begin_fork, begin_run, is_begun
from upcall.server.uploads import Sent


def make_agui(service: Service, authenticator: Authenticator, streams: Streams) -> APIRouter:
    """Make the route."""
    router = APIRouter(tags=["AG-UI"], route_class=KnownCallersRoute)

    @router.post("/agui", response_class=EventSourceResponse)
    async def run_agent(given: RunAgentInput, caller: CurrentUser) -> EventSourceResponse:
        """Start a run, answer its questions, or look at it, by AG-UI 1.0; the events of that protocol follow."""
        _refuse_broken_text(given)
        return respond_with(_encode(_AguiExchange(service, authenticator, caller, given)), streams, caller)

    return router


def _refuse_broken_text(given: RunAgentInput) -> None:
    """Refuse what cannot be sent back: the messages are, including fields that the protocol does not know.

    Raises:
        CallerError: it contains a lone surrogate.
    """
    try:
        given.model_dump_json()
    except PydanticSerializationError as error:
        raise CallerError("A text holds half a character (a lone surrogate). Send whole ones.") from error


async def _encode(exchange: _AguiExchange) -> AsyncIterator[ServerSentEvent]:
    async for event in exchange.stream_events():
        yield ServerSentEvent(event.model_dump_json(by_alias=True), sep=LINE_END)


class _AguiExchange:
    """One run of AG-UI: the front end's request, and the events that follow."""

    def __init__(self, service: Service, authenticator: Authenticator, caller: Caller, given: RunAgentInput) -> None:
        self._service, self._authenticator, self._caller, self._given = service, authenticator, caller, given
        self._app = service.app_for(caller)

    async def stream_events(self) -> AsyncGenerator[BaseEvent]:
        """Carry out the request, and yield what happens."""
        given = self._given
        yield RunStartedEvent(thread_id=given.thread_id, run_id=given.run_id, protocol_version=PROTOCOL_VERSION)
        has_new_message = bool(given.messages) and isinstance(given.messages[-1], UserMessage)
        try:
            events = self._answer() if given.resume else self._begin() if has_new_message else self._look()
            async with aclosing(events):
                async for event in events:
                    yield event
        except Exception as error:
            problem = describe(error, to_operator=self._service.is_operator(self._caller))
            yield RunErrorEvent(message=problem.detail, code=problem.type.rpartition(":")[2])
            if not isinstance(error, UpcallError):
                raise

    async def _begin(self) -> AsyncGenerator[BaseEvent]:
        """Begin a run for the user's last message, after the last run of the conversation; once, even if sent twice."""
        run_id = self._choose_id()
        is_repeated = await is_begun(self._service, run_id)
        if not is_repeated:
            before = await self._find_last()
            if before is not None and (
                before.under_way
                or self._option("to") is not None
                or await self._service.store.events.is_sent(before.id, run_id)
            ):
                async for event in self._say(before, run_id):
                    yield event
                return
            if before is not None and not (before.is_final or before.status is RunStatus.FAILED):
                raise CallerError(
                    f"Run {before.id} of this conversation is {before.status.value}: answer its questions (resume), or "
                    "cancel it, before the next task."
                )
            follows = before.id if before is not None and before.status is RunStatus.COMPLETED else None
            wanted, documents, images = _read_task(self._given, follows)
            await begin_run(self._service, self._caller, wanted, documents, images, run_id=run_id)
        await self._wake(run_id)
        reader, conversation = self._listen(run_id)
        if is_repeated:
            for each in await self._recall(reader, conversation):
                yield each
        async for event in self._follow(reader, conversation, Usage()):
            yield event

    async def _answer(self) -> AsyncGenerator[BaseEvent]:
        """Answer questions of a run, and follow it."""
        names = [each.interrupt_id.partition(":") for each in self._given.resume or ()]
        runs = {run_id for run_id, _, _ in names}
        if len(runs) != 1:
            raise CallerError(f"These are answers for {len(runs)} runs. Answer the questions of one run at a time.")
        run = await self._app.get(runs.pop(), user=self._caller.user)
        values: dict[str, AnswerValue] = {}
        for (_, _, question_id), entry in zip(names, self._given.resume or (), strict=True):
            record = run.records.get(question_id)
            if record is None or question_id in values:
                raise UnknownQuestion(question_id, [each.id for each in run.questions if each.id not in values])
            values[question_id] = read_payload(record.question, entry)
        reader, conversation = self._listen(run.id)
        for each in await self._recall(reader, conversation):
            yield each
        try:
            await self._service.answer(self._caller, run.id, values)
        except OverrulesAssumption:
            async for event in self._overrule(run, values):
                yield event
            return
        if self._app.access.owns(run, self._caller.user):
            await self._wake(run.id)
        async for event in self._follow(reader, conversation, run.total_usage, values):
            yield event

    async def _overrule(self, run: Run, values: Mapping[str, AnswerValue]) -> AsyncGenerator[BaseEvent]:
        """Begin a branch in the place of a run, with other answers than the assumed ones, and follow it: once
        `forwardedProps.upcall.consent` is that of the plan, which is sent first.

        Raises:
            CallerError: it is not.
        """
        if confirmed := [each for each in values if not run.records[each].is_provisional]:
            raise CallerError(f"Answer question {confirmed[0]} by itself: for it nothing is assumed.")
        (question_id, answer), *others = values.items()
        also = dict(others)
        plan = await self._app.forks.plan(run.id, question_id, replace=True, also=also, user=self._caller.user)
        if self._option("consent") != (consent := sign_plan(values, plan)):
            yield CustomEvent(name="upcall.plan", value={**plan.as_json(), "consent": consent})
            raise CallerError(
                "Another answer was assumed, and the run has continued with that. Show the plan (upcall.plan), "
                "then send the answer again with its consent in forwardedProps.upcall."
            )
        kept = plan.bill if plan.effects else False
        branch = await begin_fork(
            self._service,
            self._caller,
            run.id,
            question_id,
            answer,
            None,
            replace=True,
            keep_effects=kept,
            also=also,
        )
        reader, conversation = self._listen(branch)
        for each in await self._recall(reader, conversation):
            yield each
        async for event in self._follow(reader, conversation, Usage()):
            yield event

    async def _say(self, run: Run, new_id: str) -> AsyncGenerator[BaseEvent]:
        """Send the user's last message to the agents of a run that is at work, or that `forwardedProps.upcall.to` names
        an agent of; once, even if sent twice. Follow the run."""
        to = self._option("to")
        sent = await self._service.say(self._caller, run.id, _read_text(self._given), to, new_id)
        yield CustomEvent(name="upcall.message", value=sent.as_json())
        await self._wake(run.id)
        reader, conversation = self._listen(run.id)
        for each in await self._recall(reader, conversation):
            yield each
        async for event in self._follow(reader, conversation, run.total_usage):
            yield event

    def _option(self, name: str) -> str | None:
        """Return an option in the front end's ``forwardedProps.upcall``, if it is a text."""
        given = self._given.forwarded_props
        options = given.get("upcall") if isinstance(given, dict) else None
        value = options.get(name) if isinstance(options, dict) else None
        return value if isinstance(value, str) else None

    async def _look(self) -> AsyncGenerator[BaseEvent]:
        """Watch the last run of the conversation, which continues by itself."""
        run = await self._find_last()
        if run is None:
            raise CallerError(
                "There is nothing to do: send a message of the user, answers (resume), or a state with the "
                "run_id to look at."
            )
        reader, conversation = self._listen(run.id)
        for each in await self._recall(reader, conversation):
            yield each
        async for event in self._follow(reader, conversation, run.total_usage):
            yield event

    def _choose_id(self) -> str:
        """Choose the id of a new run, the same for the same request of this caller."""
        identity_parts = json.dumps([self._caller.user, self._given.thread_id, self._given.run_id])
        return sha256(identity_parts.encode(errors="replace")).hexdigest()[:24]

    async def _find_last(self) -> Run | None:
        """Find the run that the front end's state names."""
        run_id = self._given.state.get("run_id") if isinstance(self._given.state, dict) else None
        return await self._app.get(run_id, user=self._caller.user) if isinstance(run_id, str) else None

    async def _wake(self, run_id: str) -> None:
        """Continue a run whose process is gone."""
        if (await self._app.get(run_id, user=self._caller.user)).interrupted:
            await self._service.resume(self._caller, run_id)

    def _listen(self, run_id: str) -> tuple[RunFollower, Conversation]:
        reader = RunFollower(self._service, self._caller, run_id)
        return reader, Conversation(run_id, self._given.messages)

    async def _recall(self, reader: RunFollower, conversation: Conversation) -> tuple[BaseEvent, BaseEvent]:
        """Read what was written and done so far, and yield it at once, with the run's state."""
        for each in await reader.read_new():
            if isinstance(each.item, TranscriptEntry):
                conversation.remember(each.item, each.position, each.text_id, reader.find_question(each.item))
        return conversation.snapshot(), _show_state(reader.run)

    async def _follow(
        self, reader: RunFollower, conversation: Conversation, before: Usage, answered: Collection[str] = ()
    ) -> AsyncGenerator[BaseEvent]:
        """Yield what happens up to the next pause."""
        for each in await reader.read_new():
            for event in _to_events(each, reader, conversation):
                yield event
        is_at_pause = False
        while not is_at_pause:
            if not self._is_at_pause(reader.run, answered):
                async with aclosing(follow_run(self._service, self._authenticator, self._caller, reader)) as updates:
                    async for update in updates:
                        for event in _to_events(update, reader, conversation):
                            yield event
                        run = update.item if isinstance(update, Stored) else None
                        if isinstance(run, Run) and self._is_at_pause(run, answered):
                            break
                    else:
                        raise StreamEnded(reader.run_id)
            for late in await reader.read_new():  # Stored with the pause, and newer than what was read before it.
                for event in _to_events(late, reader, conversation):
                    yield event
            is_at_pause = self._is_at_pause(reader.run, answered)  # Unless somebody else has answered meanwhile.
        for event in self._finish(reader.run, conversation, before):
            yield event

    def _is_at_pause(self, run: Run, answered: Collection[str]) -> bool:
        """Return whether nothing follows without this caller. Others' questions are theirs to answer, and the answer
        just given may not be stored yet."""
        if run.under_way:
            return run.interrupted
        mine = self._app.access.answerable(run, self._caller.user)
        return not run.waiting or (bool(mine) and not any(each.id in answered for each in mine))

    def _finish(self, run: Run, conversation: Conversation, before: Usage) -> Iterator[BaseEvent]:
        thread, name = self._given.thread_id, self._given.run_id
        usage = _count_usage(run, before)
        waiting = self._app.access.answerable(run, self._caller.user) if run.waiting else ()
        yield from conversation.close(waiting)
        match run.status:
            case RunStatus.AWAITING_CLARIFICATION:
                asked = [
                    describe_interrupt(each, conversation.name(each), conversation.call_of(each)) for each in waiting
                ]
                outcome = RunFinishedInterruptOutcome(interrupts=asked)
                yield RunFinishedEvent(thread_id=thread, run_id=name, outcome=outcome, usage=usage)
            case RunStatus.COMPLETED:
                success = RunFinishedSuccessOutcome()
                yield RunFinishedEvent(thread_id=thread, run_id=name, result=run.result, outcome=success, usage=usage)
            case RunStatus.CANCELLED:
                cancelled = RunFinishedCancelledOutcome()
                yield RunFinishedEvent(thread_id=thread, run_id=name, outcome=cancelled, usage=usage)
            case _ if run.interrupted:
                why = f"Run {run.id} was interrupted. Send the same again, or resume it in the browser or a terminal."
                yield RunErrorEvent(message=why, code="interrupted", usage=usage)
            case _:
                why = run.error or f"Run {run.id} is {run.status.value}."
                yield RunErrorEvent(message=why, code=run.status.value, usage=usage)


class StreamEnded(UpcallError):
    """The run continues, and this stream does not: the service stops, the caller lost their rights, or time is up."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"The stream of run {run_id} ended before the run did. Call again to follow it.")


class _Task(NamedTuple):
    wanted: Start
    documents: list[Sent]
    images: list[Sent]


def _to_events(update: Update, reader: RunFollower, conversation: Conversation) -> Iterator[BaseEvent]:
    match update:
        case Stored(TranscriptEntry() as entry, position, text_id):
            yield from conversation.add(entry, position, text_id, reader.find_question(entry))
        case Stored(Run() as run):
            yield _show_state(run)
        case StreamedToken():
            yield from conversation.write(update)


def _show_state(run: Run) -> StateSnapshotEvent:
    return StateSnapshotEvent(snapshot=RunBody.of(run).model_dump(mode="json"))


def _count_usage(run: Run, before: Usage) -> list[TokenUsage] | None:
    """Count what was used since then; in the protocol the count starts again at each answer."""
    sent = run.total_usage.prompt_tokens - before.prompt_tokens
    written = run.total_usage.completion_tokens - before.completion_tokens
    if sent + written <= 0:
        return None
    return [TokenUsage(input_tokens=max(0, sent), output_tokens=max(0, written), total_tokens=sent + written)]


def _read_task(given: RunAgentInput, follows: str | None) -> _Task:
    """Read the task from the last message: its text and its files.

    Raises:
        CallerError: it has parts that no agent reads, or unknown options.
    """
    parts = given.messages[-1].content
    texts, documents, images = list[str](), list[Sent](), list[Sent]()
    for part in [TextPart(text=parts)] if isinstance(parts, str) else parts or ():
        match part:
            case TextPart():
                texts.append(part.text)
            case ImagePart(source=DataSource() as source):
                images.append(_decode(source, f"image {len(images) + 1}"))
            case DocumentPart(source=DataSource() as source):
                ending = mimetypes.guess_extension(source.mime_type) or ".txt"
                documents.append(_decode(source, f"document-{len(documents) + 1}{ending}"))
            case _:
                kind = getattr(part, "type", type(part).__name__)
                raise CallerError(f"A part of kind {kind!r} is not taken: send text, and images and documents as data.")
    options = given.forwarded_props.get("upcall", {}) if isinstance(given.forwarded_props, dict) else {}
    if isinstance(options, dict) and (given_twice := {"task", "follows"} & options.keys()):
        names = " and ".join(sorted(given_twice))
        raise CallerError(f"forwardedProps.upcall: leave out {names}; the message and the state's run_id say that.")
    try:
        wanted = Start.model_validate({**dict(options), "task": "\n".join(texts), "follows": follows})
    except (ValidationError, TypeError, ValueError) as error:
        reason = explain_validation(error.errors()) if isinstance(error, ValidationError) else "it is not an object."
        raise CallerError(f"forwardedProps.upcall: {reason}") from error
    return _Task(wanted, documents, images)


def _read_text(given: RunAgentInput) -> str:
    """Read a message to agents at work: its text.

    Raises:
        CallerError: it has other parts, which no agent takes in at work.
    """
    parts = given.messages[-1].content
    texts = [parts] if isinstance(parts, str) else [getattr(each, "text", None) for each in parts or ()]
    if None in texts:
        raise CallerError("Agents at work read text alone. Send files with the next task.")
    return "\n".join(str(each) for each in texts)


def _decode(source: DataSource, name: str) -> Sent:
    try:
        return Sent(name, base64.b64decode(source.value, validate=True))
    except (binascii.Error, ValueError) as error:
        raise CallerError(f"The data of {name} is not base64. Send the file's bytes so encoded.") from error
