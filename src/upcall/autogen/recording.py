"""What a run records of stock AutoGen agents: wrappers around their models, code executors, tool calls and teams.

Each call goes first to the open turn (`OpenTurn`), which replays its records, then to the journal. Without either,
calls pass through. The component dump of a wrapper is that of the wrapped part.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict
from functools import wraps
from typing import Any, Generic, TypeVar

from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse
from autogen_agentchat.base import TaskResult, Team
from autogen_agentchat.teams import BaseGroupChat
from autogen_core import CancellationToken, ComponentModel, FunctionCall
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResult,
    LLMMessage,
    ModelCapabilities,
    ModelInfo,
)
from autogen_core.models import RequestUsage as Usage
from autogen_core.tools import Tool, ToolSchema, Workbench
from pydantic import BaseModel

from upcall.autogen.client_quirks import fit_client, is_broken_off, request_reply, stream_reply
from upcall.autogen.concurrency import Emit, cancellable, merge_streams
from upcall.autogen.internals import ApprovalFunction, Wrappers, is_started, static_tools, wrap_manager, wrap_parts
from upcall.autogen.mending import mend_reply
from upcall.autogen.messages import Event
from upcall.autogen.model_errors import explain_call
from upcall.autogen.reply_streams import Read, ReplyShape, StreamReader
from upcall.autogen.scope import current_scope
from upcall.autogen.server_waits import call_when_free
from upcall.autogen.structured_text import Around
from upcall.autogen.text_calls.reader import may_write_calls
from upcall.autogen.tool_calls import Interruption, check_start_time, is_effect_free, is_idempotent
from upcall.autogen.tool_servers import describe_lost, list_tools
from upcall.autogen.tracing import ModelRequest, model_call
from upcall.autogen.whole_replies import request_whole
from upcall.errors import UpcallError
from upcall.questions.tool_context import redact_secrets
from upcall.runs.journal_records import ToolOutcome
from upcall.runs.shown_text import find_text

T = TypeVar("T")

P = TypeVar("P", ChatCompletionClient, CodeExecutor)

EXECUTE_CODE = "execute_code"
"""The name of a code execution in the journal."""

APPROVE_CODE = "approve_code"
"""The name of a code approval in a turn."""


class TurnStopped(Interruption):
    """Ends a stock agent's turn because something below it waits for the user. No handler of errors catches it."""


def with_journal(part: object) -> None:
    """Record what a stock agent does."""
    wrap_parts(part, _WRAPPERS)


def manager_with_journal(team: BaseGroupChat) -> None:
    """Record the model calls a team itself makes to select and plan."""
    wrap_manager(team, _WRAPPERS)


class _Wrapper(Generic[P]):
    """A wrapped part of a stock agent, which handles everything the wrapper does not."""

    inner: P

    def __init__(self, inner: P, agent: str) -> None:
        self.inner, self._agent = inner, agent

    def dump_component(self) -> ComponentModel:
        """Dump the wrapped part."""
        return self.inner.dump_component()

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # A copy is being made.
            raise AttributeError(name)
        return getattr(self.inner, name)


class JournaledClient(_Wrapper[ChatCompletionClient], ChatCompletionClient):
    """A model client of a stock agent, or of a team's manager.

    In a run it raises the errors of a model call (`ModelError`).
    """

    async def create(self, messages: Sequence[LLMMessage], **options: Any) -> CreateResult:
        """Call the client, or replay a recorded reply."""

        def fetch(sent: Sequence[LLMMessage], _: ModelRequest) -> Awaitable[CreateResult]:
            return request_reply(self.inner, sent, options)

        return await self._reply(messages, options, fetch)

    async def create_stream(
        self, messages: Sequence[LLMMessage], **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Call the client. A reply counts once it is complete; a replayed one comes without its pieces."""
        kind = options.get("json_output")
        may_call = bool(options.get("tools")) and may_write_calls(self.inner)
        shape = ReplyShape({}, Around.REPLY, may_call) if may_call else None
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            shape = ReplyShape(find_text(kind), Around.NOTHING, may_call)

        async def work(emit: Emit[str | CreateResult]) -> None:
            async def fetch(sent: Sequence[LLMMessage], request: ModelRequest) -> CreateResult:
                def show(item: Read) -> None:
                    if isinstance(item, str):  # What is withdrawn, the whole text at the end replaces.
                        emit(item)

                reader = StreamReader(self.inner, self._agent, shape)
                whole = await stream_reply(self.inner, sent, options, reader, show, request.note_chunk)
                if is_broken_off(self.inner, whole):
                    raise _Unfinished(whole)
                return whole

            emit(await self._reply(messages, options, fetch, streams=True))

        async for item in merge_streams([work]):
            yield item

    async def _reply(
        self,
        messages: Sequence[LLMMessage],
        options: Mapping[str, Any],
        fetch_reply: Callable[[Sequence[LLMMessage], ModelRequest], Awaitable[CreateResult]],
        *,
        streams: bool = False,
    ) -> CreateResult:
        token, scope, tools = options.get("cancellation_token"), current_scope(), options.get("tools", ())
        if scope.turn is not None:
            messages = [*messages, *await scope.turn.take_steering()]

        async def fetch(made: ModelRequest) -> CreateResult:
            reply = await request_whole(
                lambda sent: fetch_reply(sent, made), messages, self._agent, self.inner, _names(tools)
            )
            return mend_reply(reply, tools, self._agent)

        if token is not None and token.is_cancelled():
            raise asyncio.CancelledError

        async def attempt() -> CreateResult:
            made = ModelRequest(messages, streams)
            return await model_call(self._agent, self.inner, made, fetch(made))

        async def request() -> CreateResult:
            try:
                if scope.journal is None:
                    return await fetch(ModelRequest(messages))
                replied = scope.journal.replay_or_request(
                    self._agent, messages, _form(options), lambda: call_when_free(self.inner, attempt)
                )
                return await _until(token, replied)
            except _Unfinished as unfinished:
                return unfinished.reply
            except (UpcallError, AssertionError):  # A scripted model's assertion: a test must see it unchanged.
                raise
            except Exception as error:
                if scope.journal is None:
                    raise
                raise explain_call(error, self._agent, self.inner) from error

        return await (request() if scope.turn is None else scope.turn.replay_or_request(request))

    async def close(self) -> None:
        """Close the client."""
        await self.inner.close()

    def actual_usage(self) -> Usage:
        """Return the client's actual usage."""
        return self.inner.actual_usage()

    def total_usage(self) -> Usage:
        """Return the client's total usage."""
        return self.inner.total_usage()

    def count_tokens(self, messages: Sequence[LLMMessage], **options: Any) -> int:
        """Count tokens as the client does."""
        return self.inner.count_tokens(messages, **options)

    def remaining_tokens(self, messages: Sequence[LLMMessage], **options: Any) -> int:
        """Count the remaining tokens as the client does."""
        return self.inner.remaining_tokens(messages, **options)

    @property
    def capabilities(self) -> ModelCapabilities:
        """The client's capabilities."""
        return self.inner.capabilities

    @property
    def model_info(self) -> ModelInfo:
        """The client's model info."""
        return self.inner.model_info


async def _until(token: CancellationToken | None, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, cancelled by its token, or by that of the segment if it has none."""
    token = token or current_scope().token
    return await work if token is None else await cancellable(work, token)


class _Unfinished(Exception):
    """A streamed reply that ended too soon to be recorded."""

    def __init__(self, reply: CreateResult) -> None:
        self.reply = reply


class JournaledExecutor(_Wrapper[CodeExecutor], CodeExecutor):
    """The code executor of a stock agent. Executing code counts as a tool call without an id."""

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        """Execute the code, or replay its result if it was executed already."""
        scope, blocks = current_scope(), {"code": json.dumps([asdict(block) for block in code_blocks])}
        made: list[CodeResult] = []

        async def run() -> ToolOutcome:
            if scope.journal is not None and is_started(self.inner) is False:
                await self.inner.start()  # The segment stops it (`upcall.agents.servers`).
                check_start_time()
            result = await self.inner.execute_code_blocks(code_blocks, cancellation_token)
            result.output = redact_secrets(result.output)
            made.append(result)
            return ToolOutcome(content={"output": result.output, "exit_code": result.exit_code})

        async def execute() -> str:
            if scope.journal is None:
                outcome = await run()
            else:
                called = scope.journal.replay_or_run(
                    self._agent,
                    "",
                    EXECUTE_CODE,
                    blocks,
                    run,
                    idempotent=is_idempotent(self.inner),
                    effect_free=is_effect_free(self.inner),
                )
                outcome = await _until(cancellation_token, called)
            result = {"output": str(outcome.content), "exit_code": int(outcome.is_error)}  # By the human.
            return json.dumps(outcome.content if isinstance(outcome.content, Mapping) else result)

        text = await (execute() if scope.turn is None else scope.turn.run_step(EXECUTE_CODE, blocks, execute))
        return made[0] if made else CodeResult(**json.loads(text))

    async def start(self) -> None:
        """Start the executor."""
        await self.inner.start()

    async def stop(self) -> None:
        """Stop the executor."""
        await self.inner.stop()

    async def restart(self) -> None:
        """Restart the executor."""
        await self.inner.restart()


class TeamWrapper(Team):
    """A team that stands for another, which handles everything the wrapper does not."""

    component_type = "team"

    def __init__(self, team: Team) -> None:
        self.inner = team

    @property
    def name(self) -> str:
        """The team's name."""
        return self.inner.name

    @property
    def description(self) -> str:
        """The team's description."""
        return self.inner.description

    async def run(self, **given: Any) -> TaskResult:
        """Return the result of `run_stream`."""
        async for item in self.run_stream(**given):
            if isinstance(item, TaskResult):
                return item
        raise AssertionError("a team ends with its result")

    async def reset(self) -> None:
        """Reset the team."""
        await self.inner.reset()

    async def pause(self) -> None:
        """Pause the team."""
        await self.inner.pause()

    async def resume(self) -> None:
        """Resume the team."""
        await self.inner.resume()

    async def save_state(self) -> Mapping[str, Any]:
        """Return the team's state."""
        return await self.inner.save_state()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load the team's state."""
        await self.inner.load_state(state)

    def dump_component(self) -> ComponentModel:
        """Dump the team."""
        return self.inner.dump_component()


class InnerTeamOfAgent(TeamWrapper):
    """The team of a `SocietyOfMindAgent`: its members may ask."""

    async def run_stream(self, **given: Any) -> AsyncGenerator[Event | TaskResult, None]:
        """Run the team, or replay its result if the agent's turn is repeated."""
        turn, task = current_scope().turn, given.get("task")
        if turn is None or not isinstance(task, Sequence) or isinstance(task, str):
            stream = self.inner.run_stream(**given)
        else:
            stream = turn.run_team(self.inner, task, given["cancellation_token"])
        async with aclosing(stream) as items:
            async for item in items:
                yield item


async def _call_tool(call: FunctionCall, token: CancellationToken, emit: Emit[Event]) -> FunctionExecutionResult | None:
    """Return the result of a tool call of a stock agent; None if AutoGen should make it."""
    turn = current_scope().turn
    return None if turn is None else await turn.call_tool(call, token)


async def _list_tools(workbenches: Sequence[Workbench]) -> tuple[list[ToolSchema], list[str]]:
    tools = [tool for each in workbenches for tool in await list_tools(each)]
    static = [tool for each in workbenches for tool in static_tools(each).values()]
    return tools, describe_lost([*workbenches, *static])


def _approving(approve: ApprovalFunction) -> ApprovalFunction:
    """Let the function that approves code ask the user (`upcall.ask`)."""

    @wraps(approve)
    async def ask(request: ApprovalRequest) -> ApprovalResponse:
        async def run() -> str:
            response = approve(request)
            return (response if isinstance(response, ApprovalResponse) else await response).model_dump_json()

        turn = current_scope().turn
        code = {"code": request.code}
        return ApprovalResponse.model_validate_json(
            await (run() if turn is None else turn.run_step(APPROVE_CODE, code, run))
        )

    return ask


def _names(tools: Sequence[Tool | ToolSchema]) -> list[str]:
    return [each["name"] if isinstance(each, Mapping) else each.name for each in tools]


def _form(options: Mapping[str, Any]) -> list[str]:
    """Return what distinguishes calls besides their messages."""
    form = options.get("json_output")
    return [*_names(options.get("tools", ())), getattr(form, "__name__", str(form))]


def _client(client: ChatCompletionClient, agent: str) -> ChatCompletionClient:
    fit_client(client)
    return client if isinstance(client, JournaledClient) else JournaledClient(client, agent)


def _code(executor: CodeExecutor, agent: str) -> CodeExecutor:
    return executor if isinstance(executor, JournaledExecutor) else JournaledExecutor(executor, agent)


def _team(team: Team) -> Team:
    return team if isinstance(team, InnerTeamOfAgent) else InnerTeamOfAgent(team)


_WRAPPERS = Wrappers(model=_client, code=_code, call=_call_tool, tools=_list_tools, approve=_approving, team=_team)
