"""The same runs as tools of the Model Context Protocol: start, inbox, answer, show. If the client can ask its user,
the questions of a run appear there in the middle of the call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal, TypeAlias

from anyio import ClosedResourceError
from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import ElicitationCapability
from pydantic import Field

from upcall.errors import AnswerRefused, UpcallError
from upcall.questions.answer import Answer, Outcome
from upcall.questions.matching import AnswerValue
from upcall.questions.question import Question
from upcall.runs.run import Run
from upcall.ui.web.bodies import QuestionList, RunBody, Start
from upcall.ui.web.callers import AnyContext
from upcall.ui.web.problems import describe
from upcall.ui.web.service import Caller, Service
from upcall.ui.web.starting import begin_run

SECONDS_TO_WAIT = 45.0
"""How long a call waits for a run that is at work; clients give up after a minute."""

SECONDS_BETWEEN_LOOKS = 0.2
MAX_TRIES = 3
"""How often one question is asked, when the answers do not fit it."""

FindCaller: TypeAlias = Callable[[AnyContext], Awaitable[Caller]]

INSTRUCTIONS = (
    "Runs are tasks for a team of agents that may ask the user in the middle of their work. Start one, show it, list "
    "the open questions, and pass on what the user answers. Do not answer in the user's place: ask them."
)


def make_mcp(service: Service, find_caller: FindCaller) -> FastMCP[Any]:
    """Make the MCP server of a service; `find_caller` identifies the caller."""
    logging.getLogger("mcp.server.streamable_http").addFilter(_is_no_farewell)
    made: FastMCP[Any] = FastMCP(
        "upcall",
        INSTRUCTIONS,
        log_level="ERROR",
        # The guard checks the host for all routes.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )

    @asynccontextmanager
    async def let_in(context: AnyContext) -> AsyncIterator[Caller]:
        """Yield who calls; report an error to a client in its own words, as far as it concerns them."""
        caller = None
        try:
            caller = await find_caller(context)
            yield caller
        except UpcallError as error:
            is_local = context.request_context.request is None  # On standard input: whoever runs this program.
            problem = describe(error, to_operator=is_local or service.is_operator(caller))
            raise ToolError(problem.detail) from error

    @made.tool()
    async def start(
        context: AnyContext, task: Annotated[str, Field(description="What is to be done, in the user's words.")]
    ) -> RunBody:
        """Start a run for a task, and wait for a while: it is completed, has open questions, or is still at work."""
        async with let_in(context) as caller:
            run_id = await begin_run(service, caller, Start(task=task))
            return RunBody.of(await _Conversation(service, caller, context).take_further(run_id))

    @made.tool()
    async def inbox(context: AnyContext) -> QuestionList:
        """List the open questions that the user may answer, oldest first, each with its run and that one's task."""
        async with let_in(context) as caller:
            return QuestionList.of(await service.app_for(caller).inbox(caller.user))

    @made.tool()
    async def answer(
        context: AnyContext,
        run_id: str,
        question_id: str,
        answer: Annotated[
            str | list[str], Field(description="What the user said: an option, several of them, or their own words.")
        ] = "",
        outcome: Annotated[
            Literal["answered", "skipped", "declined"], Field(description="Whether the user answered at all.")
        ] = "answered",
    ) -> RunBody:
        """Pass on what the user answered to a question of a run, and wait for a while. A risk to confirm is asked of
        the user in the client itself."""
        async with let_in(context) as caller:
            conversation = _Conversation(service, caller, context)
            value: AnswerValue = answer
            if outcome != "answered":
                value = Answer(question_id=question_id, outcome=Outcome(outcome), text=str(answer or ""))
            await conversation.pass_on(run_id, question_id, value)
            return RunBody.of(await conversation.take_further(run_id))

    @made.tool()
    async def show(context: AnyContext, run_id: str) -> RunBody:
        """Show a run: how it stands, its plan, its open questions, its result."""
        async with let_in(context) as caller:
            return RunBody.of(await service.app_for(caller).get(run_id, user=caller.user))

    return made


def _is_no_farewell(record: logging.LogRecord) -> bool:
    """Keep a client's end of session out of the log. mcp (1.30) logs it as an error of 40 lines, since it closes the
    stream that it still reads; delete this when it no longer does
    (https://github.com/modelcontextprotocol/python-sdk/pull/1384 fixed other such places)."""
    return not (record.exc_info and record.exc_info[0] is ClosedResourceError)


async def serve_on_stdio(service: Service, user: str | None) -> None:
    """Serve the client on standard input and output, which acts for a user, until it disconnects."""

    async def find_caller(_: AnyContext) -> Caller:
        return Caller(user)

    try:
        await make_mcp(service, find_caller).run_stdio_async()
    finally:
        await service.close()


class _Conversation:
    """One call of a tool: a run, and a user who may be asked in between."""

    def __init__(self, service: Service, caller: Caller, context: AnyContext) -> None:
        self._service, self._caller, self._context = service, caller, context

    @property
    def _elicitation(self) -> ElicitationCapability | None:
        """The ways in which the client asks its user for us."""
        params = self._context.session.client_params
        return params.capabilities.elicitation if params is not None else None

    @property
    def can_ask(self) -> bool:
        """Whether the client asks its user for us by a form; one that names no way does."""
        ways = self._elicitation
        return ways is not None and (ways.form is not None or ways.url is None)

    @property
    def page(self) -> str | None:
        """The address of our pages, if the client sends its user to pages and there are any to be reached."""
        if self._elicitation is None or self._elicitation.url is None:
            return None
        request = self._context.request_context.request
        known = self._service.settings.public_url or (request and request.base_url)
        return str(known).rstrip("/") if known else None

    async def pass_on(self, run_id: str, question_id: str, value: AnswerValue) -> None:
        """Answer a question with what the client says; a risk only with what its user says.

        Raises:
            AnswerRefused: the user cannot be asked, or did not answer.
        """
        app = self._service.app_for(self._caller)
        run = await app.get(run_id, user=self._caller.user)
        asked = next((each for each in app.answerable(run, self._caller.user) if each.id == question_id), None)
        if asked is not None and asked.secret:
            if await self._ask_on_page(run.id, asked):
                return
            raise AnswerRefused(f"Question {asked.id} is for a secret, which no model may read: {_ELSEWHERE}")
        if asked is not None and asked.is_risk and not _is_refusal(value):
            if not self.can_ask:
                raise AnswerRefused(f"Question {asked.id} is for the user to decide, and no model: {_ELSEWHERE}")
            if not await self._ask(run.id, asked):
                raise AnswerRefused(f"The user did not answer question {asked.id}; it stays open.")
            return
        await self._service.answer(self._caller, run_id, {question_id: value})

    async def take_further(self, run_id: str) -> Run:
        """Wait until a run stops working, and ask the user its questions; return the run as it is then."""
        run = await self._wait(run_id)
        while (question := self._find_question(run)) is not None:
            ask = self._ask_on_page if question.secret else self._ask
            if not await ask(run.id, question):
                break
            run = await self._wait(run.id)
        return run

    def _find_question(self, run: Run) -> Question | None:
        mine = self._service.app_for(self._caller).answerable(run, self._caller.user)
        askable = (each for each in mine if (self.page is not None if each.secret else self.can_ask))
        return next(askable, None) if run.waiting or run.under_way else None

    async def _wait(self, run_id: str) -> Run:
        app = self._service.app_for(self._caller)
        loop = asyncio.get_running_loop()
        end = loop.time() + SECONDS_TO_WAIT
        while True:
            run = await app.get(run_id, user=self._caller.user)
            is_over = run.interrupted or not run.under_way or loop.time() > end
            if is_over or self._find_question(run) is not None:
                return run
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)

    async def _ask_on_page(self, run_id: str, question: Question) -> bool:
        """Send the user to our page for a secret, which no client may read; return whether they answered it there. The
        page wants them to be logged in, so nobody else can."""
        if (page := self.page) is None:
            return False
        text = f"{question.introduce()}: {question.question}\nThis is a secret: type it on upcall's own page."
        result = await self._context.session.elicit_url(
            text, f"{page}/runs/{run_id}", question.id, self._context.request_id
        )
        loop, app = asyncio.get_running_loop(), self._service.app_for(self._caller)
        end = loop.time() + SECONDS_TO_WAIT
        while result.action == "accept" and loop.time() < end:
            run = await app.get(run_id, user=self._caller.user)
            if question.id not in {each.id for each in run.questions}:
                return True
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
        return False

    async def _ask(self, run_id: str, question: Question) -> bool:
        """Ask the user one question of a run, and answer it; return False if they leave it open."""
        text = "\n".join([f"{question.introduce()}: {question.question}", *question.details()])
        wrong = ""
        for _ in range(MAX_TRIES):
            result = await self._context.session.elicit_form(
                f"{wrong}{text}", _describe_fields(question), self._context.request_id
            )
            if result.action == "cancel":
                return False
            try:
                value = _read_fields(result.content or {}) if result.action == "accept" else None
                declined = Answer(question_id=question.id, outcome=Outcome.DECLINED)
                await self._service.answer(self._caller, run_id, {question.id: declined if value is None else value})
                return True
            except AnswerRefused as error:
                wrong = f"{error}\n\n"
        return False


_ELSEWHERE = "let them answer in the browser (upcall serve) or on a terminal (upcall inbox)."


def _is_refusal(value: AnswerValue) -> bool:
    return isinstance(value, Answer) and value.outcome is Outcome.DECLINED


def _describe_fields(question: Question) -> dict[str, Any]:
    """Describe what the client has to ask for: flat fields, as the protocol requires."""
    labels = [option.label for option in question.options]
    fields: dict[str, Any] = {}
    if labels and question.multi_select:
        fields["chosen"] = {
            "type": "array",
            "title": "Several may be chosen",
            "items": {"type": "string", "enum": labels},
        }
    elif labels:
        fields["chosen"] = {"type": "string", "title": question.header or "Your choice", "enum": labels}
    if question.allow_free_text:
        fields["own_words"] = {"type": "string", "title": "In your own words" if labels else "Your answer"}
    return {"type": "object", "properties": fields, "required": [] if len(fields) > 1 else [*fields]}


def _read_fields(content: dict[str, Any]) -> AnswerValue:
    own = str(content.get("own_words") or "").strip()
    chosen = content.get("chosen") or []
    values = [*(chosen if isinstance(chosen, list) else [str(chosen)]), *([own] if own else [])]
    return values[0] if len(values) == 1 else values
