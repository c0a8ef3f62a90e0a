"""What a client of A2A asks for, carried out on the runs of the service.

The task of a run is made from the store whenever somebody asks for it, so any process on the store can serve the next
request, also after a kill.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Coroutine, Iterator
from contextlib import aclosing, contextmanager, suppress
from datetime import UTC
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.events import Event
from a2a.server.request_handlers import RequestHandler
from a2a.server.request_handlers.request_handler import validate_request_params
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import (
    A2AError,
    ExtendedAgentCardNotConfiguredError,
    InternalError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.task import apply_history_length, validate_history_length, validate_page_size
from starlette.types import Receive

from upcall.errors import AnswerError, CallerError, NotAllowed, RunNotWaiting, UnknownRun, UpcallError
from upcall.runs.run import Run
from upcall.runs.run_filter import RunFilter
from upcall.server.a2a.contexts import count_runs
from upcall.server.a2a.messages import ClientMessages, name_tasks
from upcall.server.a2a.tasks import STATES, make_task
from upcall.server.callers import Authenticator
from upcall.server.events import RunFollower, Stored, Streams, TooManyStreams, follow_run, read_position
from upcall.server.problems import describe
from upcall.server.service import Caller, Service

PAGE_SIZE = 50
CALLER = "upcall.caller"
RECEIVE = "upcall.receive"
"""Where the context of a call has who calls, and what says that the client hangs up."""

_log = logging.getLogger(__name__)


class RunHandler(RequestHandler):
    """The methods of the protocol, whatever way a request came.

    Args:
        service: the service that has the runs.
        authenticator: says whether a caller may go on listening.
        streams: counts those that wait.
    """

    def __init__(self, service: Service, authenticator: Authenticator, streams: Streams) -> None:
        self._service, self._authenticator, self._streams = service, authenticator, streams

    @validate_request_params
    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task:
        """Begin a run, or answer one, and wait for its next pause, unless the client does not want to, hangs up, or has
        too many that wait."""
        caller = _caller_of(context)
        with self._explaining(caller):
            _check_wishes(params)
            taken = await ClientMessages(self._service, caller).take(params.message)
            task = await self._show(caller, taken.run_id)
            if not params.configuration.return_immediately:
                with suppress(TooManyStreams):
                    last = _read_last(self._follow(caller, taken.run_id, taken.answered))
                    task = await _while_connected(last, context.state[RECEIVE]) or task
            return apply_history_length(task, params.configuration)

    @validate_request_params
    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Do the same, and yield the task, then what changes, unless the client has too many streams."""
        caller = _caller_of(context)
        with self._explaining(caller):
            _check_wishes(params)
            taken = await ClientMessages(self._service, caller).take(params.message)
            try:
                async with aclosing(self._follow(caller, taken.run_id, taken.answered)) as tasks:
                    async for event in _as_events(tasks, params):
                        yield event
            except TooManyStreams:  # The message is taken all the same.
                yield apply_history_length(await self._show(caller, taken.run_id), params.configuration)

    @validate_request_params
    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Yield a task, then what changes up to its next pause; a run whose process is gone continues."""
        caller = _caller_of(context)
        with self._explaining(caller):
            app = self._service.app_for(caller)
            run = await app.get(params.id, user=caller.user)
            if run.is_final:
                raise UnsupportedOperationError(f"Task {run.id} is {run.status.value}: nothing follows.")
            await ClientMessages(self._service, caller).wake(run.id)
            open_now = frozenset(each.id for each in run.questions) if run.waiting else frozenset()
            async with aclosing(self._follow(caller, run.id, open_now)) as tasks:
                async for event in _as_events(tasks):
                    yield event

    @validate_request_params
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task:
        """Show a run as a task."""
        caller = _caller_of(context)
        with self._explaining(caller):
            validate_history_length(params)
            return apply_history_length(await self._show(caller, params.id), params)

    @validate_request_params
    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """List the caller's own runs as tasks, newest first; those of a conversation all at once."""
        caller = _caller_of(context)
        with self._explaining(caller):
            validate_history_length(params)
            size = params.page_size if params.HasField("page_size") else PAGE_SIZE
            validate_page_size(size)
            only = _read_filter(params, caller)
            if params.context_id:
                found = await ClientMessages(self._service, caller).list_in(params.context_id)
                runs = [each for each in found if _is_wanted(each, only)]
                runs.sort(key=lambda each: (each.created_at, each.id), reverse=True)
                following, total = None, len(runs)
            else:
                page = await self._service.app_for(caller).list(
                    caller.user, limit=size, before=params.page_token or None, only=only
                )
                runs, following, total = page, page.next, await count_runs(self._service.store, only)
            tasks = await self._make_tasks(caller, runs)
            for task in tasks if not params.include_artifacts else ():
                task.ClearField("artifacts")
            return ListTasksResponse(
                tasks=[apply_history_length(each, params) for each in tasks],
                next_page_token=following or "",
                page_size=len(tasks),
                total_size=total,
            )

    @validate_request_params
    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task:
        """End a run for good."""
        caller = _caller_of(context)
        with self._explaining(caller):
            try:
                run = await self._service.app_for(caller).cancel(params.id, user=caller.user)
            except RunNotWaiting as error:
                raise TaskNotCancelableError(str(error)) from error
            return await self._show(caller, run.id)

    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Refuse: whoever runs the service sets up its webhooks."""
        raise PushNotificationNotSupportedError

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Refuse, as above."""
        raise PushNotificationNotSupportedError

    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        """Refuse, as above."""
        raise PushNotificationNotSupportedError

    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Refuse, as above."""
        raise PushNotificationNotSupportedError

    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        """Refuse: the public card says all."""
        raise ExtendedAgentCardNotConfiguredError

    async def _show(self, caller: Caller, run_id: str) -> Task:
        run = await self._service.app_for(caller).get(run_id, user=caller.user)
        return (await self._make_tasks(caller, [run]))[0]

    async def _make_tasks(self, caller: Caller, runs: Collection[Run]) -> list[Task]:
        access = self._service.app_for(caller).access
        names = await name_tasks(self._service.store, [*runs])
        return [make_task(each, access.answerable(each, caller.user), names[each.id]) for each in runs]

    async def _follow(self, caller: Caller, run_id: str, answered: Collection[str] = ()) -> AsyncGenerator[Task]:
        """Yield a task as it is, and again whenever its run has changed, up to its next pause: where none of `answered`
        is open, of which the answer just given may not be stored yet. It ends before, if the service does, the caller
        may no longer see the run, or a stream's time is up.

        Raises:
            TooManyStreams: too many wait already; nothing was yielded.
        """
        position = await read_position(self._service, run_id)
        reader = RunFollower(self._service, caller, run_id, position)
        await reader.read_new()
        [task] = await self._make_tasks(caller, [reader.run])
        if _is_at_pause(reader.run, answered):
            yield task
            return
        self._streams.refuse_more(caller)
        with self._streams.count(caller):
            yield task
            async with aclosing(follow_run(self._service, self._authenticator, caller, reader)) as updates:
                async for update in updates:
                    if isinstance(update, Stored) and isinstance(run := update.item, Run):
                        yield (await self._make_tasks(caller, [run]))[0]
                        if _is_at_pause(run, answered):
                            return

    @contextmanager
    def _explaining(self, caller: Caller) -> Iterator[None]:
        """Report errors as the protocol's, in one line that says what is wrong, as far as it concerns the caller."""
        try:
            yield
        except A2AError:
            raise
        except Exception as error:
            problem = describe(error, to_operator=self._service.is_operator(caller))
            data = {"type": problem.type, **({"fields": problem.fields} if problem.fields else {})}
            if not isinstance(error, UpcallError):
                _log.error("A2A: %s", type(error).__name__, exc_info=error)
            raise _choose_error(error)(problem.detail, data) from error


def _choose_error(error: Exception) -> type[A2AError]:
    match error:
        case UnknownRun():
            return TaskNotFoundError
        case NotAllowed() | RunNotWaiting() | TooManyStreams():  # The protocol has no error of its own for a limit.
            return UnsupportedOperationError
        case CallerError() | AnswerError():
            return InvalidParamsError
        case _:
            return InternalError


def _caller_of(context: ServerCallContext) -> Caller:
    caller: Caller = context.state[CALLER]
    return caller


def _check_wishes(params: SendMessageRequest) -> None:
    """Refuse what the protocol allows and this agent does not do."""
    validate_history_length(params.configuration)
    if params.configuration.HasField("task_push_notification_config"):
        raise PushNotificationNotSupportedError


def _is_at_pause(run: Run, answered: Collection[str]) -> bool:
    if run.under_way:
        return run.interrupted
    return not (run.waiting and any(each.id in answered for each in run.questions))


def _read_filter(params: ListTasksRequest, caller: Caller) -> RunFilter:
    wanted = frozenset(status for status, state in STATES.items() if params.status in (0, state))
    after = params.status_timestamp_after.ToDatetime(UTC) if params.HasField("status_timestamp_after") else None
    return RunFilter(statuses=wanted, owner=caller.user, changed_after=after)


def _is_wanted(run: Run, only: RunFilter) -> bool:
    is_new = only.changed_after is None or run.updated_at >= only.changed_after
    return is_new and run.status in (only.statuses or ())


async def _read_last(tasks: AsyncGenerator[Task]) -> Task | None:
    last: Task | None = None
    async with aclosing(tasks):
        async for task in tasks:
            last = task
    return last


async def _while_connected(work: Coroutine[Any, Any, Task | None], receive: Receive) -> Task | None:
    """Return what some work brings; None if the client hangs up before, which ends it."""
    doing, going = asyncio.create_task(work), asyncio.create_task(_wait_for_hangup(receive))
    try:
        await asyncio.wait([doing, going], return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        for each in (doing, going):
            each.cancel()
        await asyncio.gather(doing, going, return_exceptions=True)


async def _wait_for_hangup(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _as_events(tasks: AsyncGenerator[Task], params: SendMessageRequest | None = None) -> AsyncGenerator[Event]:
    """Yield the first task whole, and of each later one what is new: its result, then its status."""
    before: Task | None = None
    async for task in tasks:
        if before is None:
            yield apply_history_length(task, params.configuration if params is not None else None)
        else:
            for artifact in task.artifacts:
                if artifact not in before.artifacts:
                    yield TaskArtifactUpdateEvent(
                        task_id=task.id, context_id=task.context_id, artifact=artifact, last_chunk=True
                    )
            if (task.status.state, task.status.message) != (before.status.state, before.status.message):
                yield TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=task.status)
        before = task
