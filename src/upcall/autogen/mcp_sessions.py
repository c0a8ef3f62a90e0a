"""Sessions with MCP servers that may ask the user in the middle of a call, with `mcp` 1.x and 2.x alike.

A server asks in one of three ways. It sends a request while the call runs; or it refuses the call until a page was
opened (both until the specification of 2025-11-25); or the call's result says what it requires, with a state that goes
back to it (since that of 2026-07-28). In each case the tool call that runs is left with its question, and is made again
with the answer, in whatever process. Where a result required it, the server continues from its state; otherwise, or if
it takes its state no more, it begins anew, and what it asked before is answered at once.

A request does not say which call it is for. So it waits until only one is left; if each of several has asked, they are
made once more, one at a time.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

import mcp
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import INVALID_PARAMS, INVALID_REQUEST, ElicitResult, ErrorData
from pydantic import BaseModel

from upcall.errors import UserInputRequired
from upcall.questions.elicitation import UnusableRequest, answer_request, digest_request
from upcall.questions.tool_call import format_call
from upcall.questions.tool_context import OpenCall, open_call
from upcall.text import one_line

MAX_ROUNDS = 10
"""How often in a row a server may want a call once more without asking anybody."""

ROUND_DELAY_S = 0.05
"""The wait before the first of them; it doubles, up to the next."""

MAX_ROUND_DELAY_S = 0.25

MAX_CALL_CHARS = 300
"""How much of a call stands in a question."""

_PAGE_REQUIRED = -32042
_LATER = ElicitResult(action="cancel")
"""What a server gets while the human is asked: nobody has chosen yet. After an error some continue without asking."""

_NOBODY = "nobody can be asked in this call"

Send: TypeAlias = Callable[[Mapping[str, Any] | None, str | None], Awaitable[Any]]
"""Makes a call: with the answers to what its result required, and the server's state."""


class _Input(BaseModel, frozen=True, defer_build=True):
    """One thing that a server needs: the params of its request, and how often the call was asked the same before."""

    key: str = ""
    params: dict[str, Any]
    earlier: int = 0


class _Needed(BaseModel, frozen=True, defer_build=True):
    """What a call waits for; stored with its question.

    Attributes:
        by: how the server reported it: by a request, by an error that names pages, by its result.
        inputs: what it needs.
        state: its own, which goes back as it came.
        answered: digests of what it was answered in earlier rounds.
    """

    by: Literal["request", "page", "result"]
    inputs: tuple[_Input, ...] = ()
    state: str | None = None
    answered: tuple[str, ...] = ()

    def list_answered_digests(self) -> tuple[str, ...]:
        """Return the digests of what is answered once its inputs are."""
        return (*self.answered, *(digest_request(each.params) for each in self.inputs))


@dataclass(eq=False)
class _Call:
    """One attempt of a call, and what its server asked meanwhile."""

    caller: OpenCall | None
    shown: str = ""
    """How a person reads it."""
    known: tuple[_Input, ...] = ()
    """What the human was asked for it already."""
    context: Context = field(default_factory=copy_context)
    seen: Counter[str] = field(default_factory=Counter)
    needed: _Needed | None = None
    unusable: UnusableRequest | None = None
    is_ambiguous: bool = False

    def answer(self, caller: OpenCall, params: dict[str, Any]) -> ElicitResult:
        """Answer a request of the server; the call is left with it if the human has to be asked."""
        digest = digest_request(params)
        asked = _Input(params=params, earlier=self.seen[digest])
        self.seen[digest] += 1
        for each in self.known:  # The address of the same page may be another one each time.
            if (digest_request(each.params), each.earlier) == (digest, asked.earlier):
                asked = each
        try:
            given = self.context.run(answer_request, asked.params, caller.server, self.shown, asked.earlier)
            return ElicitResult.model_validate(given)
        except UserInputRequired:
            self.needed = self.needed or _Needed(by="request", inputs=(*self.known, asked))
        except UnusableRequest as error:
            self.unusable = error
        return _LATER


class AskingCalls:
    """The calls of one session, and what its server asks."""

    def __init__(self) -> None:
        self._open: list[_Call] = []
        self._asking = 0
        """How many requests of the server wait to be assigned to a call."""
        self._is_alone = False
        self._changed = asyncio.Event()

    async def make(self, name: str, arguments: Mapping[str, Any] | None, send: Send) -> Any:
        """Make a call of a tool.

        Raises:
            UserInputRequired: the server needs the human.
            UnusableRequest: what it needs cannot be put.
        """
        caller = open_call()
        given = json.dumps(arguments or {}, sort_keys=True, default=str, ensure_ascii=False)
        place = blake2b(f"{name} {given}".encode(errors="replace"), digest_size=8).hexdigest()
        shown = one_line(format_call(name, given), MAX_CALL_CHARS)
        stored = caller.kept.get(place) if caller is not None else None
        needed = None if stored is None else _Needed.model_validate(stored)
        for number in range(MAX_ROUNDS):
            responses = None if needed is None else _answer(caller, place, shown, needed)
            known = needed or _Needed(by="request")
            call = partial(_Call, caller, shown, known.inputs if known.by == "request" else ())
            try:
                result = await self._make_once(call, send, known, responses)
            except Exception as error:
                # A state is good for minutes, often; then the server asks anew, and is answered at once.
                if stored is None or known.by != "result" or _read_code(error) != INVALID_PARAMS:
                    raise
                needed = stored = None
                continue
            if not isinstance(result, _Needed):
                return result
            needed = result
            if not needed.inputs:  # It only wants the call once more, and may be waiting for something itself.
                await asyncio.sleep(min(ROUND_DELAY_S * 2**number, MAX_ROUND_DELAY_S))
        raise UnusableRequest("it wants the same call again and again")

    async def _make_once(
        self, make: Callable[[], _Call], send: Send, known: _Needed, responses: Mapping[str, Any] | None
    ) -> Any:
        """Make the call with what is `known` of it; return its result, or what it needs."""
        given = (responses or None, known.state) if known.by == "result" else (None, None)
        # Side by side at first. Where a request may be for any of several calls, each is made once more, alone.
        for alone in (False, True):
            result: Any = None
            async with self._at_work(make(), alone=alone) as call:
                try:
                    result = await send(*given)
                except Exception as error:  # noqa: BLE001  (raised below, unless the server has asked)
                    result = error
            if not call.is_ambiguous:
                break
        if call.needed is not None:
            return call.needed
        if call.unusable is not None:
            raise call.unusable
        answered = known.list_answered_digests()
        if isinstance(result, Exception):
            if (pages := _read_pages(result, answered)) is None:
                raise result
            return pages
        return _read_required(result, answered) or result

    @asynccontextmanager
    async def _at_work(self, call: _Call, *, alone: bool) -> AsyncIterator[_Call]:
        await self._until(lambda: not (self._asking or self._is_alone or (alone and self._open)))
        self._open.append(call)
        self._is_alone = alone
        try:
            yield call
        finally:
            self._open.remove(call)
            self._is_alone = False
            self._changed.set()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._changed.clear()
            await self._changed.wait()

    def _is_assignable(self) -> bool:
        """Return whether a request can only be of one call, or each of several waits for its own."""
        return len(self._open) <= max(1, self._asking) or all(each.is_ambiguous for each in self._open)

    async def elicit(self, _: Any, params: Any) -> ElicitResult | ErrorData:
        """Answer a request of the server, or tell it that the human is asked first."""
        self._asking += 1  # Once as many requests wait as calls are open, waiting longer tells nothing.
        self._changed.set()
        try:
            await self._until(self._is_assignable)
            if len(self._open) > 1:
                for each in self._open:
                    each.is_ambiguous = True
        finally:
            self._asking -= 1
            self._changed.set()
        call = self._open[0] if self._open else _Call(None)  # Outside of any call nobody would get the answer.
        if call.is_ambiguous:
            return _LATER
        if call.caller is None:
            return ErrorData(code=INVALID_REQUEST, message=f"Elicitation not supported: {_NOBODY}.")
        return call.answer(call.caller, params.model_dump(mode="json", by_alias=True))


def _answer(caller: OpenCall | None, place: str, shown: str, needed: _Needed) -> dict[str, Any]:
    """Return the results for what a server needs, by their keys.

    Raises:
        UserInputRequired: one of them is open.
        UnusableRequest: one cannot be put, or a page that it needs was not opened.
    """
    if caller is None:
        raise UnusableRequest(_NOBODY)
    try:
        given = {each.key: answer_request(each.params, caller.server, shown, each.earlier) for each in needed.inputs}
    except UserInputRequired:
        caller.kept[place] = needed.model_dump(mode="json")
        raise
    if needed.by == "page" and any(each["action"] != "accept" for each in given.values()):
        raise UnusableRequest("the user did not open the page that it needs")
    return given


def _read_code(error: Exception) -> int | None:
    """Return the code of a server's refusal. The two generations name the exception differently."""
    code = getattr(getattr(error, "error", None), "code", None)
    return code if isinstance(code, int) else None


def _read_pages(error: Exception, answered: tuple[str, ...]) -> _Needed | None:
    """Read the pages that have to be opened first; None for any other error."""
    if _read_code(error) != _PAGE_REQUIRED:
        return None
    given = getattr(getattr(error, "error", None), "data", None)
    pages = given.get("elicitations") if isinstance(given, dict) else None
    if not isinstance(pages, list) or not pages:
        return None
    inputs = [(str(number), {**each, "mode": "url"}) for number, each in enumerate(pages) if isinstance(each, dict)]
    return _Needed(by="page", inputs=_count(inputs, answered), answered=answered)


def _read_required(result: Any, answered: tuple[str, ...]) -> _Needed | None:
    """Read what a result requires; None for one that is complete.

    Raises:
        UnusableRequest: it requires something else than the user's word.
    """
    if type(result).__name__ != "InputRequiredResult":  # `mcp` 1.x has no such class.
        return None
    fields = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    requests = fields.get("inputRequests") or {}
    for each in requests.values():
        if each["method"] != "elicitation/create":
            raise UnusableRequest(f"it asks for {one_line(str(each['method']), 60)}, which is not offered to servers")
    inputs = [(key, each["params"]) for key, each in requests.items()]
    return _Needed(by="result", inputs=_count(inputs, answered), state=fields.get("requestState"), answered=answered)


def _count(inputs: list[tuple[str, dict[str, Any]]], answered: tuple[str, ...]) -> tuple[_Input, ...]:
    seen = Counter(answered)
    found = []
    for key, params in inputs:
        # The same request twice is two questions: `earlier` distinguishes them, as it does from one round to the next.
        found.append(_Input(key=key, params=params, earlier=seen[digest_request(params)]))
        seen[digest_request(params)] += 1
    return tuple(found)


@dataclass(frozen=True)
class ServerSession:
    """A session with a server, with either generation of `mcp`: its results as JSON, with the protocol's names."""

    _list_tools: Callable[[str | None], Awaitable[Any]]
    _call_tool: Callable[[str, dict[str, Any]], Awaitable[Any]]

    async def list_tools(self) -> list[dict[str, Any]]:
        """List its tools, of all pages."""
        return [each for page in await _list_pages(self._list_tools) for each in _to_json(page)["tools"]]

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Make a call, as `AskingCalls.make` does."""
        return _to_json(await self._call_tool(name, arguments))


@asynccontextmanager
async def open_session(transport: AbstractAsyncContextManager[Any], seconds: float) -> AsyncIterator[ServerSession]:
    """Open a session with a server over a transport of `mcp`, in the newest protocol that both speak; `seconds` is how
    long it may take for a reply."""
    client_kind: Any = getattr(mcp, "Client", None)
    if client_kind is None:  # `mcp` 1.x
        async with transport as streams, AskingSession(*streams[:2], timedelta(seconds=seconds)) as session:
            await session.initialize()
            yield ServerSession(session.list_tools, session.call_tool)
        return
    calls = AskingCalls()
    async with client_kind(transport, read_timeout_seconds=seconds, elicitation_callback=calls.elicit) as client:

        async def list_tools(cursor: str | None) -> Any:
            return await client.list_tools(cursor=cursor, cache_mode="refresh")  # Also asked whether it is there.

        async def call_tool(name: str, arguments: dict[str, Any]) -> Any:
            async def send(responses: Mapping[str, Any] | None, state: str | None) -> Any:
                given = responses and {key: ElicitResult.model_validate(each) for key, each in responses.items()}
                return await client.session.call_tool(
                    name, arguments, input_responses=given, request_state=state, allow_input_required=True
                )

            return await calls.make(name, arguments, send)

        yield ServerSession(list_tools, call_tool)


@asynccontextmanager
async def open_http(url: str, headers: dict[str, str]) -> AsyncIterator[Any]:
    """Open the transport to a server that listens (streamable HTTP). The two generations use other HTTP packages."""
    async with create_mcp_http_client(headers) as client, streamable_http_client(url, http_client=client) as streams:
        yield streams


def _to_json(result: Any) -> dict[str, Any]:
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)  # type: ignore[no-any-return]


async def _list_pages(list_page: Callable[[str | None], Awaitable[Any]]) -> list[Any]:
    """Return the pages of a list; a server that repeats a cursor has no more."""
    pages: list[Any] = []
    cursors: list[str | None] = [None]
    while True:
        pages.append(await list_page(cursors[-1]))
        following = _to_json(pages[-1]).get("nextCursor")
        if following is None or following in cursors:
            return pages
        cursors.append(following)


class AskingSession(ClientSession):
    """A session of `mcp` 1.x whose server may ask, and whose lists are whole.

    `mcp` lists one page at a time, and AutoGen asks for the first only: what is behind it, no model would see
    (autogen-ext 0.7.5).
    """

    def __init__(self, *streams: Any, **options: Any) -> None:
        self._calls = AskingCalls()
        super().__init__(*streams, **{"elicitation_callback": self._calls.elicit, **options})

    async def call_tool(self, name: str, arguments: dict[str, Any] | None = None, *given: Any, **options: Any) -> Any:
        """Make a call, as `AskingCalls.make` does."""
        call = super().call_tool
        return await self._calls.make(name, arguments, lambda *_: call(name, arguments, *given, **options))

    async def list_tools(self, *given: Any, **options: Any) -> Any:
        """List all tools, or the page that is asked for."""
        return await self._list(super().list_tools, "tools", *given, **options)

    async def list_prompts(self, *given: Any, **options: Any) -> Any:
        """List all prompts, or the page that is asked for."""
        return await self._list(super().list_prompts, "prompts", *given, **options)

    async def list_resources(self, *given: Any, **options: Any) -> Any:
        """List all resources, or the page that is asked for."""
        return await self._list(super().list_resources, "resources", *given, **options)

    async def list_resource_templates(self, *given: Any, **options: Any) -> Any:
        """List all templates of resources, or the page that is asked for."""
        return await self._list(super().list_resource_templates, "resourceTemplates", *given, **options)

    @staticmethod
    async def _list(list_page: Callable[..., Awaitable[Any]], kind: str, *given: Any, **options: Any) -> Any:
        if any(each is not None for each in (*given, *options.values())):
            return await list_page(*given, **options)
        pages = await _list_pages(list_page)
        return pages[-1].model_copy(
            update={kind: [each for page in pages for each in getattr(page, kind)], "nextCursor": None}
        )

    async def _received_request(self, responder: Any) -> None:
        """Answer a request of the server beside the session's reading: it may have to wait for results of calls, and
        `mcp` 1.x reads none until a request is answered."""
        self._task_group.start_soon(super()._received_request, responder)
