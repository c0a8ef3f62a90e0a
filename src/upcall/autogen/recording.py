"""The journal for stock AutoGen agents: wrappers around their models, their tools and their code executors.

With a journal they also end at once what does not listen to its cancellation token. Without one they pass everything
through. A dump of a component is that of what is wrapped.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict
from functools import partial
from typing import Any, Generic, TypeVar

from autogen_agentchat.teams import BaseGroupChat
from autogen_core import CancellationToken, ComponentModel
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, ModelCapabilities, ModelInfo
from autogen_core.models import RequestUsage as Usage
from autogen_core.tools import BaseTool, StreamTool, TextResultContent, ToolResult, ToolSchema, Workbench
from pydantic import BaseModel

from upcall.autogen import tracing
from upcall.autogen.concurrency import Emit, cancellable, merge_streams
from upcall.autogen.internals import (
    Wrappers,
    agent_of,
    function_of,
    in_this_context,
    is_static,
    static_tools,
    team_of,
    with_tools,
    wrap_manager,
    wrap_parts,
)
from upcall.autogen.journal import Journal, check_start_time, is_idempotent
from upcall.autogen.scope import current_scope
from upcall.runs.journal_records import ToolOutcome

T = TypeVar("T")

P = TypeVar("P", ChatCompletionClient, Workbench, CodeExecutor)
S = TypeVar("S", Workbench, CodeExecutor)

EXECUTE_CODE = "execute_code"
"""What a run of code is called in the journal."""


def with_journal(part: object) -> None:
    """Let a stock agent, or a stock team and those in it, keep the journal."""
    wrap_parts(part, _WRAPPERS)


def manager_with_journal(team: BaseGroupChat) -> None:
    """Let the model with which a team itself selects and plans keep the journal."""
    wrap_manager(team, _WRAPPERS)


class _Wrapper(Generic[P]):
    """A part of a stock agent with the journal: all that it does not do itself is the part's."""

    inner: P

    def __init__(self, inner: P, agent: str) -> None:
        self.inner, self._agent = inner, agent

    def dump_component(self) -> ComponentModel:
        """As the part's."""
        return self.inner.dump_component()

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # Of a copy that is being made.
            raise AttributeError(name)
        return getattr(self.inner, name)


class _Service(_Wrapper[S]):
    """A part that is started and stopped."""

    async def start(self) -> None:
        """As the part's."""
        await self.inner.start()

    async def stop(self) -> None:
        """As the part's."""
        await self.inner.stop()


class JournaledClient(_Wrapper[ChatCompletionClient], ChatCompletionClient):
    """A model client of a stock agent."""

    async def create(self, messages: Sequence[LLMMessage], **options: Any) -> CreateResult:
        """As the client's; from the journal where it has the reply."""
        _refuse_cancelled(options)
        journal = current_scope().journal
        if journal is None:
            return await self.inner.create(messages, **options)
        form, token = _form(options), options.get("cancellation_token")

        def fetch() -> Awaitable[CreateResult]:
            return tracing.model_call(self._agent, self.inner, self.inner.create(messages, **options))

        return await _until(token, journal.replay_or_request(self._agent, messages, form, fetch))

    async def create_stream(
        self, messages: Sequence[LLMMessage], **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """As the client's. A reply counts when it is complete; one from the journal comes without its pieces."""
        _refuse_cancelled(options)
        journal = current_scope().journal
        if journal is None:
            async for item in self.inner.create_stream(messages, **options):
                yield item
        else:
            async for item in self._recorded_stream(journal, messages, options):
                yield item

    def _recorded_stream(
        self, journal: Journal, messages: Sequence[LLMMessage], options: dict[str, Any]
    ) -> AsyncGenerator[str | CreateResult, None]:
        async def work(emit: Emit[str | CreateResult]) -> None:
            async def fetch() -> CreateResult:
                async for item in self.inner.create_stream(messages, **options):
                    if isinstance(item, CreateResult):
                        if item.finish_reason == "unknown":  # Cut short (autogen-ext 0.7.5).
                            raise _Unfinished(item)
                        return item
                    emit(item)
                raise _Unfinished(None)

            try:
                called = partial(tracing.model_call, self._agent, self.inner)
                reply = journal.replay_or_request(self._agent, messages, _form(options), lambda: called(fetch()))
                emit(await _until(options.get("cancellation_token"), reply))
            except _Unfinished as unfinished:
                if unfinished.reply is not None:
                    emit(unfinished.reply)

        return merge_streams([work])

    async def close(self) -> None:
        """As the client's."""
        await self.inner.close()

    def actual_usage(self) -> Usage:
        """As the client's."""
        return self.inner.actual_usage()

    def total_usage(self) -> Usage:
        """As the client's."""
        return self.inner.total_usage()

    def count_tokens(self, messages: Sequence[LLMMessage], **options: Any) -> int:
        """As the client's."""
        return self.inner.count_tokens(messages, **options)

    def remaining_tokens(self, messages: Sequence[LLMMessage], **options: Any) -> int:
        """As the client's."""
        return self.inner.remaining_tokens(messages, **options)

    @property
    def capabilities(self) -> ModelCapabilities:
        """As the client's."""
        return self.inner.capabilities

    @property
    def model_info(self) -> ModelInfo:
        """As the client's."""
        return self.inner.model_info


class _Cancelled(RuntimeError):
    """A tool call that its token has ended."""


@contextmanager
def _ended_by(token: CancellationToken | None) -> Iterator[None]:
    """Make an error of a cancellation by the token. An `AssistantAgent` waits for ever for a tool that was cancelled
    (autogen-agentchat 0.7.5: its queue of events has no `finally`); with an error it ends, at its next model call."""
    try:
        yield
    except asyncio.CancelledError as error:
        if token is None or not token.is_cancelled():
            raise
        raise _Cancelled("The call was cancelled.") from error


async def _until(token: CancellationToken | None, work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives, ended by its token, or by that of the segment where it was given none."""
    token = token or current_scope().token
    return await work if token is None else await cancellable(work, token)


def _refuse_cancelled(options: Mapping[str, Any]) -> None:
    token = options.get("cancellation_token")
    if token is not None and token.is_cancelled():
        raise asyncio.CancelledError


class _Unfinished(Exception):
    """A streamed reply that ended too soon: it is no reply to record."""

    def __init__(self, reply: CreateResult | None) -> None:
        self.reply = reply


class JournaledTool(BaseTool[BaseModel, Any]):
    """A tool in a static workbench of a stock agent. Its result is the text that the model is given."""

    def __init__(self, inner: BaseTool[Any, Any], agent: str) -> None:
        super().__init__(inner.args_type(), inner.return_type(), inner.name, inner.description)
        self.inner, self._agent = inner, agent

    @property
    def schema(self) -> ToolSchema:
        """As the tool's."""
        return self.inner.schema

    async def run_json(
        self, args: Mapping[str, Any], cancellation_token: CancellationToken, call_id: str | None = None
    ) -> Any:
        """As the tool's; from the journal where it was called already."""

        async def run() -> ToolOutcome:
            try:
                value = await in_this_context(self.inner, check_start_time).run_json(
                    args, cancellation_token, call_id=call_id
                )
            except Exception as error:  # noqa: BLE001  (raised again below)
                return ToolOutcome(content=str(error), is_error=True)
            return ToolOutcome(content=self.inner.return_value_as_string(value))

        return await self._result(args, cancellation_token, call_id, run)

    async def _result(
        self,
        args: Mapping[str, Any],
        token: CancellationToken,
        call_id: str | None,
        run: Callable[[], Awaitable[ToolOutcome]],
    ) -> Any:
        """What `run` comes to, from the journal where it was called already."""
        journal = current_scope().journal
        declared = is_idempotent(self.inner, function_of(self.inner))
        with _ended_by(token):
            if journal is None:
                outcome = await run()
            else:
                called = journal.replay_or_run(self._agent, call_id or "", self.name, args, run, idempotent=declared)
                outcome = await _until(token, called)
        if outcome.is_error:
            raise RuntimeError(outcome.content)
        return outcome.content

    async def run(self, args: BaseModel, cancellation_token: CancellationToken) -> Any:
        """As the tool's."""
        return await self.run_json(args.model_dump(), cancellation_token)

    def return_value_as_string(self, value: Any) -> str:
        """It is one already."""
        return str(value)

    async def save_state_json(self) -> Mapping[str, Any]:
        """As the tool's."""
        return await self.inner.save_state_json()

    async def load_state_json(self, state: Mapping[str, Any]) -> None:
        """As the tool's."""
        await self.inner.load_state_json(state)

    def dump_component(self) -> ComponentModel:
        """As the tool's."""
        return self.inner.dump_component()


class JournaledStreamTool(JournaledTool, StreamTool):
    """A tool that streams, of the user's own."""

    async def run_json_stream(
        self, args: Mapping[str, Any], cancellation_token: CancellationToken, call_id: str | None = None
    ) -> AsyncGenerator[Any, None]:
        """As the tool's, its result last; that alone where it was called already."""
        inner: Any = self.inner
        if current_scope().journal is None:
            async for item in inner.run_json_stream(args, cancellation_token, call_id=call_id):
                yield item
            return

        async def work(emit: Emit[Any]) -> None:
            async def run() -> ToolOutcome:
                told: list[Any] = []
                try:
                    async for item in inner.run_json_stream(args, cancellation_token, call_id=call_id):
                        for before in told:
                            emit(before)
                        told = [item]
                except Exception as error:  # noqa: BLE001  (raised again below)
                    return ToolOutcome(content=str(error), is_error=True)
                return ToolOutcome(content=inner.return_value_as_string(told[-1] if told else None))

            emit(await self._result(args, cancellation_token, call_id, run))

        async for item in merge_streams([work]):
            yield item


class JournaledWorkbench(_Service[Workbench], Workbench):
    """Any other workbench of a stock agent: an MCP server's, or one of a user's own."""

    async def list_tools(self) -> list[ToolSchema]:
        """As the workbench's."""
        return await self.inner.list_tools()

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """As the workbench's; from the journal where it was called already."""

        async def run() -> ToolOutcome:
            made = await self.inner.call_tool(name, arguments, cancellation_token, call_id)
            return ToolOutcome(content=made.model_dump(mode="json"))

        journal = current_scope().journal
        declared = is_idempotent(self.inner)
        try:
            with _ended_by(cancellation_token):
                if journal is None:
                    return await self.inner.call_tool(name, arguments, cancellation_token, call_id)
                called = journal.replay_or_run(
                    self._agent, call_id or "", name, arguments or {}, run, idempotent=declared
                )
                outcome = await _until(cancellation_token, called)
        except _Cancelled as cancelled:
            return ToolResult(name=name, result=[TextResultContent(content=str(cancelled))], is_error=True)
        if isinstance(outcome.content, str):  # What the human said that it came to.
            return ToolResult(name=name, result=[TextResultContent(content=outcome.content)], is_error=outcome.is_error)
        return ToolResult.model_validate(outcome.content)

    async def reset(self) -> None:
        """As the workbench's."""
        await self.inner.reset()

    async def save_state(self) -> Mapping[str, Any]:
        """As the workbench's."""
        return await self.inner.save_state()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """As the workbench's."""
        await self.inner.load_state(state)


class JournaledExecutor(_Service[CodeExecutor], CodeExecutor):
    """The code executor of a stock agent. A run of code is a tool call without an id."""

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        """As the executor's; from the journal where it was run already."""

        made: list[CodeResult] = []

        async def run() -> ToolOutcome:
            result = await self.inner.execute_code_blocks(code_blocks, cancellation_token)
            made.append(result)
            return ToolOutcome(content={"output": result.output, "exit_code": result.exit_code})

        journal = current_scope().journal
        if journal is None:
            return await self.inner.execute_code_blocks(code_blocks, cancellation_token)
        blocks = {"code": json.dumps([asdict(block) for block in code_blocks])}
        declared = is_idempotent(self.inner)
        called = journal.replay_or_run(self._agent, "", EXECUTE_CODE, blocks, run, idempotent=declared)
        outcome = await _until(cancellation_token, called)
        if made:
            return made[0]
        if isinstance(outcome.content, Mapping):
            return CodeResult(exit_code=int(outcome.content["exit_code"]), output=str(outcome.content["output"]))
        return CodeResult(exit_code=int(outcome.is_error), output=str(outcome.content))  # The human's word.

    async def restart(self) -> None:
        """As the executor's."""
        await self.inner.restart()


def _form(options: Mapping[str, Any]) -> list[str]:
    """What tells one call from another besides its messages."""
    tools = [each["name"] if isinstance(each, Mapping) else each.name for each in options.get("tools", ())]
    form = options.get("json_output")
    return [*tools, getattr(form, "__name__", str(form))]


def _client(client: ChatCompletionClient, agent: str) -> ChatCompletionClient:
    return client if isinstance(client, JournaledClient) else JournaledClient(client, agent)


def _tools(workbench: Workbench, agent: str) -> Workbench:
    if not is_static(workbench):
        return workbench if isinstance(workbench, JournaledWorkbench) else JournaledWorkbench(workbench, agent)
    tools = list(static_tools(workbench).values())
    return with_tools(workbench, [_tool(each, agent) for each in tools])


def _tool(tool: BaseTool[Any, Any], agent: str) -> BaseTool[Any, Any]:
    """The tool with a journal; but the agent or team of a stock tool keeps it itself."""
    if isinstance(tool, JournaledTool):
        return tool
    if agent_of(tool) is not None or team_of(tool) is not None:
        return _ending(tool)
    return JournaledStreamTool(tool, agent) if isinstance(tool, StreamTool) else JournaledTool(tool, agent)


def _ending(tool: Any) -> BaseTool[Any, Any]:
    """A stock tool that is an agent or a team, for which `_ended_by` is needed as for any other."""
    twin: Any = copy(tool)

    async def run_json(args: Mapping[str, Any], cancellation_token: CancellationToken, **options: Any) -> Any:
        with _ended_by(cancellation_token):
            return await tool.run_json(args, cancellation_token, **options)

    async def run_json_stream(
        args: Mapping[str, Any], cancellation_token: CancellationToken, **options: Any
    ) -> AsyncGenerator[Any, None]:
        with _ended_by(cancellation_token):
            async for item in tool.run_json_stream(args, cancellation_token, **options):
                yield item

    twin.run_json, twin.run_json_stream = run_json, run_json_stream
    return twin  # type: ignore[no-any-return]


def _code(executor: CodeExecutor, agent: str) -> CodeExecutor:
    return executor if isinstance(executor, JournaledExecutor) else JournaledExecutor(executor, agent)


_WRAPPERS = Wrappers(model=_client, tools=_tools, code=_code)
