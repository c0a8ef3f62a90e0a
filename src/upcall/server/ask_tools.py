"""Questions of other programs' agents as tools of the Model Context Protocol: `upcall mcp --ask`.

An agent at any depth of any framework calls `ask_human`. The answer is the result of the call where it comes in time;
otherwise the result is a ticket, by which `get_answer` fetches it whenever and from whatever process: the question is
in the store. A client that can ask its user does so too, besides all other doors: until the specification of 2025-11-25
in the middle of the call, since that of 2026-07-28 by input that the result requires. Nothing here needs AutoGen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from mcp.types import ElicitResult
from pydantic import BaseModel, Field, JsonValue
from starlette.requests import Request

import upcall
from upcall.errors import AlreadyAnswered, AnswerRefused, CallerError, QuestionExpired, UpcallError
from upcall.questions.answer import Answer, Outcome
from upcall.questions.elicitation import ValueForm
from upcall.questions.question import Question
from upcall.server.mcp_forms import as_message, describe_fields, read_reply
from upcall.server.mcp_package import (
    AnyContext,
    McpServer,
    ToolError,
    await_reply,
    can_ask_by_form,
    make_server,
    read_client_name,
    read_request,
    read_retry,
    require_input,
    takes_requests,
)
from upcall.storage.store import RunStore
from upcall.subjects.external import ExternalQuestions, Ticket, describe_question, read_value_form
from upcall.text import first_line

WAIT_TIMEOUT_S = 45.0
"""How long a call waits for the answer, if nobody says otherwise; many clients give up after a minute."""

PROGRESS_INTERVAL_S = 5.0
MAX_TRIES = 3
"""How often a client's user is asked one question, when the answers do not fit it."""

ANSWER_KEY = "answer"

SESSION_HEADER = "mcp-session-id"
"""By which a client over HTTP says in which session it calls; since 2026-07-28 there are none."""

_log = logging.getLogger(__name__)

INSTRUCTIONS = (
    "Ask the human here whatever you need to know from them, however deep you are nested: do not guess. Say with each "
    "call who you are, in `path`. A result with the status `waiting` has no answer yet: call `get_answer` with its "
    "ticket, and never take that for consent."
)

AskerPath: TypeAlias = Annotated[
    list[str] | None, Field(description="The agents from the outermost to you: ['lead', 'coder'].")
]
AskerRun: TypeAlias = Annotated[
    str | None, Field(description="A name for this piece of work; the same in all calls that belong to it.")
]


class AnswerBody(BaseModel, frozen=True):
    """What became of a question.

    Attributes:
        status: its outcome; ``waiting`` if there is none yet.
        text: what to make of it, in a sentence; the answer itself where there is one.
        selected: the labels of the options that were chosen.
        value: the answer as the schema of the call describes it; None without a schema.
        by: who answered.
        ticket: by which `get_answer` finds it.
    """

    status: Literal["answered", "assumed", "skipped", "declined", "expired", "cancelled", "waiting"]
    text: str
    selected: list[str] = []
    value: JsonValue = None
    by: str | None = None
    ticket: str

    @classmethod
    def of(cls, ticket: Ticket, answer: Answer | None, form: ValueForm | None = None) -> AnswerBody:
        """Return the body for an answer, or for none so far."""
        if answer is None:
            same = " and the same schema" if form else ""
            text = f"Nobody has answered so far. Call get_answer with the ticket {ticket}{same}."
            return cls(status="waiting", text=text, ticket=str(ticket))
        text, value, problem = answer.as_text(), None, None
        if form is not None and answer.outcome in (Outcome.ANSWERED, Outcome.ASSUMED):
            value, problem = form.read(answer)
        return cls(
            status=answer.outcome.value,
            text=f"{text} (This does not fit the schema: {problem}.)" if problem else text,
            selected=[*answer.selected],
            value=value,
            by=answer.by.value,
            ticket=str(ticket),
        )


@dataclass(frozen=True)
class OutsideAsker:
    """Who calls a tool.

    Attributes:
        questions: where they ask.
        user: the owner of their run.
    """

    questions: ExternalQuestions
    user: str | None


FindOutsideAsker: TypeAlias = Callable[[Request | None], Awaitable[OutsideAsker]]


def make_ask_mcp(
    store: RunStore,
    find_asker: FindOutsideAsker,
    *,
    local_caller: str = "",
    run: str | None = None,
    wait: float = WAIT_TIMEOUT_S,
    explain: Callable[[UpcallError], str] = str,
) -> McpServer:
    """Make the MCP server for askers.

    Args:
        store: where the questions are.
        find_asker: identifies the caller by the HTTP request, if there is one.
        local_caller: by which name a client on standard input is known.
        run: the run of calls that name none; by default each session over HTTP has one of its own, and a client on
            standard input that of the folder.
        wait: how long a call waits for its answer, in seconds.
        explain: describes an error to a client.
    """
    made = make_server("upcall-ask", upcall.__version__, INSTRUCTIONS, store, local_caller)
    forms = _OpenForms()

    @asynccontextmanager
    async def let_in(context: AnyContext) -> AsyncIterator[OutsideAsker]:
        request = read_request(context)
        try:
            asker = await find_asker(request)
            if request is not None:  # The folder is the service's: askers in it have nothing in common.
                asker = replace(asker, questions=asker.questions.of_session(request.headers.get(SESSION_HEADER)))
            yield asker
        except UpcallError as error:
            raise ToolError(explain(error)) from error

    @made.tool()
    async def ask_human(
        context: AnyContext,
        question: Annotated[str, Field(description="One question, understandable by itself.")],
        options: Annotated[list[str] | None, Field(description="The choices, if there are some.")] = None,
        schema: Annotated[
            dict[str, Any] | None,
            Field(description="What you need, as JSON Schema: a string, number, boolean, enum or list, or an object."),
        ] = None,
        reason: Annotated[str | None, Field(description="Why you need to know.")] = None,
        default: Annotated[str | None, Field(description="What you assume if nobody answers by the deadline.")] = None,
        path: AskerPath = None,
        deadline: Annotated[str | None, Field(description="How long it can be answered: 30m, 2h, 3d.")] = None,
        risk: Annotated[bool, Field(description="It is about what cannot be undone: the human must agree.")] = False,
        call: Annotated[str | None, Field(description="An id of this call, the same when you repeat it.")] = None,
        run: AskerRun = run,
    ) -> AnswerBody:
        """Ask the human a question, and wait for a while for the answer. The same question is asked once, whoever asks
        it; a repeated call finds its question again."""
        async with let_in(context) as asker:
            form = _read_schema(schema)
            asked = describe_question(
                question,
                path=path or [read_client_name(context)],
                options=options or (),
                reason=reason,
                default=default,
                risk=risk,
                deadline=deadline,
                schema=schema,
            )
            conversation = _AskCall(asker, context, forms, wait)
            if (state := conversation.state) is not None:
                return await conversation.take_reply(state, form)
            ticket = await asker.questions.ask(asked, run=run, call=call, user=asker.user)
            return await conversation.fetch(ticket, form, ask_here=True)

    @made.tool()
    async def get_answer(
        context: AnyContext,
        ticket: Annotated[str, Field(description="The ticket of an earlier result.")],
        schema: Annotated[
            dict[str, Any] | None, Field(description="The schema of the earlier call: without it there is no `value`.")
        ] = None,
    ) -> AnswerBody:
        """Fetch the answer to an earlier question, and wait for it for a while."""
        async with let_in(context) as asker:
            return await _AskCall(asker, context, forms, wait).fetch(Ticket.read(ticket), _read_schema(schema))

    @made.tool()
    async def assume(
        context: AnyContext,
        question: Annotated[str, Field(description="What you would have asked.")],
        assumption: Annotated[str, Field(description="What you take for the answer.")],
        path: AskerPath = None,
        run: AskerRun = run,
    ) -> AnswerBody:
        """Record what you assume instead of asking, for the human to see later. If the answer is known already, it is
        the result: use that."""
        async with let_in(context) as asker:
            asked = describe_question(question, path=path or [read_client_name(context)])
            ticket = await asker.questions.assume(asked, assumption, run=run, user=asker.user)
            return await _AskCall(asker, context, forms, 0).fetch(ticket)

    @made.tool()
    async def notify(
        context: AnyContext,
        text: Annotated[str, Field(description="What the human should know.")],
        path: AskerPath = None,
        run: AskerRun = run,
    ) -> str:
        """Let the human know something that needs no answer. It is in the transcript of the run."""
        async with let_in(context) as asker:
            names = path or [read_client_name(context)]
            run_id = await asker.questions.notify(names, text, run=run, user=asker.user)
            return f"The human finds it in run {run_id}."

    return made


async def serve_askers_on_stdio(
    questions: ExternalQuestions, store: RunStore, user: str | None, run: str | None, wait: float | None
) -> None:
    """Serve the client on standard input and output until it disconnects."""

    if Path.cwd() in (Path.home(), Path(Path.cwd().anchor)):  # Where desktop programs start servers: of no project.
        questions = questions.of_session(None)

    async def find_asker(_: Request | None) -> OutsideAsker:
        return OutsideAsker(questions, user)

    made = make_ask_mcp(
        store, find_asker, local_caller=f"user {user or ''}", run=run, wait=WAIT_TIMEOUT_S if wait is None else wait
    )
    try:
        await made.run_stdio_async()
    finally:
        await store.close()


class _AskState(BaseModel, frozen=True):
    """What goes to a client with required input, and comes back with what its user replied."""

    ticket: str
    tries: int = 0


class _OpenForms:
    """The questions that clients show their users. No client can be made to close a form, and people take longer than
    calls do: it stays open behind the call that showed it, is not shown twice, and its reply counts whenever it comes.
    With the session it ends."""

    def __init__(self) -> None:
        self._shown: dict[tuple[int, Ticket], asyncio.Task[None]] = {}

    def show(self, session: object, ticket: Ticket, ask: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Ask a question in a client, unless it is asked there already; return what takes the reply."""
        key = id(session), ticket  # What takes the reply refers to the session, so no other one gets its id.
        if key not in self._shown:
            self._shown[key] = asyncio.create_task(ask())
            self._shown[key].add_done_callback(lambda task: self._close(key, task))
        return self._shown[key]

    def _close(self, key: tuple[int, Ticket], task: asyncio.Task[None]) -> None:
        del self._shown[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("What the user of a client replied to %s was not taken: %s", key[1], first_line(error))


class _AskCall:
    """One call of a tool, and a user at the client who may be asked in it."""

    def __init__(self, asker: OutsideAsker, context: AnyContext, forms: _OpenForms, wait: float) -> None:
        self._asker, self._context, self._forms, self._wait_s = asker, context, forms, wait
        self._is_over = False
        sealed, self._replies = read_retry(context)
        if sealed is None and self._replies:
            raise CallerError("The input came without the requestState that it was required with. Send both.")
        self.state = None if sealed is None else _AskState.model_validate_json(sealed)
        """With what the call was answered before."""

    async def fetch(self, ticket: Ticket, form: ValueForm | None = None, *, ask_here: bool = False) -> AnswerBody:
        """Return the answer to a question, asked of the client's user too; a ticket if it does not come in time."""
        questions, user = self._asker.questions, self._asker.user
        record = await questions.look(ticket, user=user)
        if record.answer is None and ask_here and self._is_askable(record.question):
            if not takes_requests(self._context):
                return self._require(_AskState(ticket=str(ticket)), record.question)
            return AnswerBody.of(ticket, await self._ask_and_wait(ticket, record.question), form)
        return AnswerBody.of(ticket, await self._wait(ticket), form)

    async def take_reply(self, state: _AskState, form: ValueForm | None) -> AnswerBody:
        """Answer the question of a state with what the client's user replied, and continue as `fetch`."""
        ticket, reply = Ticket.read(state.ticket), (self._replies or {}).get(ANSWER_KEY)
        record = await self._asker.questions.look(ticket, user=self._asker.user)
        if record.answer is None and reply is not None and reply.action != "cancel":
            wrong = await self._answer(ticket, reply, record.question)
            if wrong and state.tries + 1 < MAX_TRIES:
                return self._require(state.model_copy(update={"tries": state.tries + 1}), record.question, wrong)
        return await self.fetch(ticket, form)

    def _is_askable(self, question: Question) -> bool:
        is_theirs = question.assignee is None or question.assignee == self._asker.user
        return is_theirs and can_ask_by_form(self._context)

    def _require(self, state: _AskState, question: Question, wrong: str = "") -> AnswerBody:
        reply = (self._replies or {}).get(ANSWER_KEY)
        forms = {ANSWER_KEY: (f"{wrong}{as_message(question)}", describe_fields(question, reply))}
        required: AnswerBody = require_input(forms, {}, state.model_dump_json())  # The package passes it through.
        return required

    async def _answer(self, ticket: Ticket, reply: ElicitResult, question: Question) -> str:
        """Answer a question with what the user replied; return what is wrong with it, if they can mend that."""
        try:
            value = read_reply(reply, question.id, question)
            await self._asker.questions.answer(ticket, value, user=self._asker.user)
        except (AlreadyAnswered, QuestionExpired):  # What came of it is the result all the same.
            return ""
        except AnswerRefused as error:
            return f"{error}\n\n"
        return ""

    async def _wait(self, ticket: Ticket) -> Answer | None:
        next_report = PROGRESS_INTERVAL_S

        async def report(waited: float) -> None:
            nonlocal next_report
            if waited >= next_report:
                next_report = waited + PROGRESS_INTERVAL_S
                await self._context.report_progress(waited, self._wait_s, "Waiting for the human")

        return await self._asker.questions.wait(ticket, self._wait_s, user=self._asker.user, on_look=report)

    async def _ask_and_wait(self, ticket: Ticket, question: Question) -> Answer | None:
        """Ask the client's user in the middle of the call, until the answer comes from them or by another door."""
        asking = self._forms.show(self._context.session, ticket, lambda: self._ask(ticket, question))
        waiting = asyncio.create_task(self._wait(ticket))
        try:
            await asyncio.wait([asking, waiting], return_when=asyncio.FIRST_COMPLETED)
            if asking.done() and not asking.cancelled():
                asking.result()
            answer = await waiting
            if answer is not None:
                asking.cancel()
            return answer
        finally:
            self._is_over = True
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    async def _ask(self, ticket: Ticket, question: Question) -> None:
        wrong, reply = "", None
        for _ in range(MAX_TRIES):
            message, fields = f"{wrong}{as_message(question)}", describe_fields(question, reply)
            reply = await await_reply(self._context.session.elicit_form(message, fields, self._context.request_id))
            wrong = "" if reply.action == "cancel" else await self._answer(ticket, reply, question)
            if not wrong or self._is_over:  # Over HTTP no request reaches the client behind a call that is over.
                return


def _read_schema(schema: dict[str, Any] | None) -> ValueForm | None:
    return None if schema is None else read_value_form(schema)
