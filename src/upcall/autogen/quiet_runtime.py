"""AutoGen's runtime of a group chat, without the work that nobody sees.

The stock one writes each message as JSON for a log, formats it for another, and opens several spans around it, even if
there is neither a log nor a trace: at 500 messages that costs more than the group chat itself (autogen-core 0.7.5).
This one does so only if somebody looks. Which messages are delivered, to whom, and in which order is unchanged.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from typing import Any

from autogen_agentchat.teams import BaseGroupChat
from autogen_core import (
    EVENT_LOGGER_NAME,
    ROOT_LOGGER_NAME,
    AgentId,
    CancellationToken,
    MessageContext,
    MessageHandlerContext,
    SingleThreadedAgentRuntime,
    TopicId,
)
from autogen_core._single_threaded_agent_runtime import (
    PublishMessageEnvelope,
    SendMessageEnvelope,
)
from opentelemetry import trace

from upcall.autogen.concurrency import SingleReaderQueue
from upcall.autogen.scope import current_scope
from upcall.telemetry.spans import is_recorded

_logger = logging.getLogger(ROOT_LOGGER_NAME)
_events = logging.getLogger(EVENT_LOGGER_NAME)


class QuietRuntime(SingleThreadedAgentRuntime):
    """A runtime that logs and traces its messages only if somebody looks at them."""

    is_watched = True
    """Whether messages were logged or traced when it was last started."""

    def __init__(self) -> None:
        super().__init__(ignore_unhandled_exceptions=False)
        self._numbers = count()

    def _next_id(self) -> str:
        """Return an id for a message that nobody logs: it only has to be unique here."""
        return str(next(self._numbers))

    def start(self) -> None:
        """Start, as AutoGen's runtime does. The run's own spans replace those of its messages."""
        is_traced = current_scope().trace is not None
        if is_traced:
            self._tracer_helper.tracer = trace.NoOpTracer()
        self.is_watched = _is_logged() or (is_recorded() and not is_traced)
        super().start()

    async def send_message(
        self,
        message: Any,
        recipient: AgentId,
        *,
        sender: AgentId | None = None,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> Any:
        """Send a message, as AutoGen's runtime does."""
        if self.is_watched or recipient.type not in self._agent_factories:
            return await super().send_message(
                message, recipient, sender=sender, cancellation_token=cancellation_token, message_id=message_id
            )
        token = cancellation_token or CancellationToken()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._message_queue.put_nowait(
            SendMessageEnvelope(
                message=message,
                recipient=recipient,
                future=future,
                cancellation_token=token,
                sender=sender,
                message_id=message_id or self._next_id(),
            )
        )
        token.link_future(future)
        return await future

    async def publish_message(
        self,
        message: Any,
        topic_id: TopicId,
        *,
        sender: AgentId | None = None,
        cancellation_token: CancellationToken | None = None,
        message_id: str | None = None,
    ) -> None:
        """Publish a message, as AutoGen's runtime does."""
        if self.is_watched:
            await super().publish_message(
                message, topic_id, sender=sender, cancellation_token=cancellation_token, message_id=message_id
            )
            return
        self._message_queue.put_nowait(
            PublishMessageEnvelope(
                message=message,
                cancellation_token=cancellation_token or CancellationToken(),
                sender=sender,
                topic_id=topic_id,
                message_id=message_id or self._next_id(),
            )
        )

    async def _process_send(self, message_envelope: SendMessageEnvelope) -> None:
        sent = message_envelope
        if self.is_watched:
            await super()._process_send(sent)
            return
        try:
            agent = await self._get_agent(sent.recipient)
            context = MessageContext(
                sender=sent.sender,
                topic_id=None,
                is_rpc=True,
                cancellation_token=sent.cancellation_token,
                message_id=sent.message_id,
            )
            with MessageHandlerContext.populate_context(agent.id):
                response = await agent.on_message(sent.message, ctx=context)
        except BaseException as error:  # noqa: BLE001  (every error goes to the sender)
            if not sent.future.done():
                sent.future.set_exception(error)
        else:
            # Not through the queue, as AutoGen does: that is closed if another agent has failed meanwhile, and the
            # sender would wait forever (autogen-core 0.7.5).
            if not sent.future.done():
                sent.future.set_result(response)
        self._message_queue.task_done()

    async def _process_publish(self, message_envelope: PublishMessageEnvelope) -> None:
        if self.is_watched:
            await super()._process_publish(message_envelope)
            return
        try:
            recipients = await self._subscription_manager.get_subscribed_recipients(message_envelope.topic_id)
            delivered = [
                self._deliver(each, message_envelope) for each in recipients if each != message_envelope.sender
            ]
            if len(delivered) == 1:
                await delivered[0]
            else:
                await asyncio.gather(*delivered)
        except BaseException as error:  # noqa: BLE001  (raised where the group chat awaits its end)
            if not self._ignore_unhandled_handler_exceptions:
                self._background_exception = error
        finally:
            self._message_queue.task_done()

    async def _deliver(self, recipient: AgentId, published: PublishMessageEnvelope) -> None:
        agent = await self._get_agent(recipient)
        context = MessageContext(
            sender=published.sender,
            topic_id=published.topic_id,
            is_rpc=False,
            cancellation_token=published.cancellation_token,
            message_id=published.message_id,
        )
        with MessageHandlerContext.populate_context(agent.id):
            try:
                await agent.on_message(published.message, ctx=context)
            except asyncio.CancelledError:
                raise  # It was stopped, which is not an error; AutoGen prints a traceback.
            except BaseException:
                _logger.error(f"Error processing publish message for {agent.id}", exc_info=True)
                raise


def _is_logged() -> bool:
    return _events.isEnabledFor(logging.INFO) or _logger.isEnabledFor(logging.INFO)


class _Output(SingleReaderQueue[Any]):
    """The output of a group chat. AutoGen makes a task of each result of `get`, unless it is a future."""

    _taker: asyncio.Future[Any] | None = None

    def put_nowait(self, item: Any) -> None:
        """See `SingleReaderQueue`."""
        taker, self._taker = self._taker, None
        if taker is None or taker.done():  # The waiting reader was cancelled.
            super().put_nowait(item)
        else:
            taker.set_result(item)

    def get(self) -> asyncio.Future[Any]:  # type: ignore[override]  # It can still be awaited.
        """See `SingleReaderQueue`."""
        taker = asyncio.get_running_loop().create_future()
        if self.empty():
            self._taker = taker
        else:
            taker.set_result(self.get_nowait())
        return taker


def make_quiet(team: BaseGroupChat) -> None:
    """Give a quiet runtime to a group chat that has not run yet and has AutoGen's own runtime."""
    if team._embedded_runtime and type(team._runtime) is SingleThreadedAgentRuntime and not team._initialized:
        team._runtime = QuietRuntime()
        team._output_message_queue = _Output()  # type: ignore[assignment]  # It has one reader, `run_stream`.


async def renew_runtime(team: BaseGroupChat) -> None:
    """Give a group chat whose last run raised an error a new runtime, with the state that it had.

    The old one raises that error once more, or never answers (autogen-core 0.7.5). Those that had the turn get it
    again, as in a new team with that state. A runtime of the user's own stays.
    """
    if not team._embedded_runtime:
        return
    state = await team.save_state()
    team._runtime, team._output_message_queue, team._initialized = QuietRuntime(), _Output(), False  # type: ignore[assignment]
    if team._termination_condition is not None:
        await team._termination_condition.reset()  # It is shown again what came since the last end.
    await team.load_state(state)
