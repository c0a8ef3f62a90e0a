"""The same runs as tools of the Model Context Protocol: start, inbox, answer, overrule, say, stop, show.

If the client can ask its user, the questions of a run appear there. Until the specification of 2025-11-25 it is asked
in the middle of the call. Since that of 2026-07-28 the call's result says which input is required, and the client makes
the call again with it, whenever and to whatever process: the run is in the store, and the state names it and its
questions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Literal, TypeAlias

from anyio import ClosedResourceError
from pydantic import BaseModel, Field, JsonValue
from starlette.requests import Request

import upcall
from upcall.errors import AnswerRefused, CallerError, UpcallError
from upcall.questions.answer import Answer, Outcome
from upcall.questions.matching import AnswerValue, parse_unsealed
from upcall.questions.question import Question
from upcall.runs.run import Run
from upcall.server.bodies import QuestionList, RunBody, SentBody, Start
from upcall.server.mcp_forms import as_message, describe_fields, read_reply
from upcall.server.mcp_package import (
    AnyContext,
    McpServer,
    ToolError,
    await_reply,
    can_ask_by_form,
    make_server,
    read_elicitation,
    read_request,
    read_retry,
    require_input,
    takes_requests,
)
from upcall.server.overruling import Overruling, overrule
from upcall.server.own_choice import ELSEWHERE, is_refusal
from upcall.server.problems import describe
from upcall.server.service import Caller, Service
from upcall.server.starting import begin_run

WAIT_TIMEOUT_S = 45.0
"""How long a call waits for a run that is at work; clients give up after a minute."""

POLL_INTERVAL_S = 0.2
MAX_TRIES = 3
"""How often one question is asked, when the answers do not fit it."""

MAX_ROUNDS = 10
"""How many results of one call say that input is required: clients take no more, and would lose the run. The next one
lists the open questions instead, as for a client that asks nobody."""

FindCaller: TypeAlias = Callable[[Request | None], Awaitable[Caller]]

INSTRUCTIONS = (
    "Runs are tasks for a team of agents that may ask the user in the middle of their work. Start one, show it, list "
    "the open questions, and pass on what the user answers. Do not answer in the user's place: ask them."
)


def make_mcp(service: Service, find_caller: FindCaller) -> McpServer:
    """Make the MCP server of a service; `find_caller` identifies the caller by the HTTP request, if there is one."""
    logging.getLogger("mcp.server.streamable_http").addFilter(_is_no_farewell)
    made = make_server(
        "upcall", upcall.__version__, INSTRUCTIONS, service.store, f"user {service.settings.users.user or ''}"
    )

    @asynccontextmanager
    async def let_in(context: AnyContext) -> AsyncIterator[Caller]:
        """Yield who calls; report an error to a client in its own words, as far as it concerns them."""
        caller = None
        try:
            caller = await find_caller(read_request(context))
            yield caller
        except UpcallError as error:
            is_local = read_request(context) is None  # On standard input: whoever runs this program.
            problem = describe(error, to_operator=is_local or service.is_operator(caller))
            raise ToolError(problem.detail) from error

    @made.tool()
    async def start(
        context: AnyContext, task: Annotated[str, Field(description="What is to be done, in the user's words.")]
    ) -> RunBody:
        """Start a run for a task, and wait for a while: it is completed, has open questions, or is still at work."""
        async with let_in(context) as caller:
            conversation = _Conversation(service, caller, context)
            if (state := conversation.state) is not None:
                return await conversation.answer_back(state)
            return await conversation.take_further(await begin_run(service, caller, Start(task=task)))

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
            str | list[str] | dict[str, JsonValue],
            Field(
                description="What the user said: an option, several of them, their own words, or an object of fields."
            ),
        ] = "",
        outcome: Annotated[
            Literal["answered", "skipped", "declined"], Field(description="Whether the user answered at all.")
        ] = "answered",
    ) -> RunBody:
        """Pass on what the user answered to a question of a run, and wait for a while. A risk to confirm is asked of
        the user in the client itself."""
        async with let_in(context) as caller:
            conversation = _Conversation(service, caller, context)
            if (state := conversation.state) is not None:
                return await conversation.answer_back(state, passed_on=question_id)
            value: AnswerValue = answer
            if outcome != "answered":
                value = Answer(question_id=question_id, outcome=Outcome(outcome), text=str(answer or ""))
            required = await conversation.pass_on(run_id, question_id, value)
            return required or await conversation.take_further(run_id)

    @made.tool(name="overrule")
    async def overrule_assumption(
        context: AnyContext,
        run_id: str,
        question_id: str,
        answer: Annotated[
            str | list[str] | dict[str, JsonValue], Field(description="What the user said instead of the assumption.")
        ],
        consent: Annotated[str, Field(description="That of the plan that the user agreed to; empty at first.")] = "",
    ) -> Overruling:
        """Pass on another answer of the user than the one that the agents have assumed. The first call does nothing but
        show what would be done again and taken back; show that to the user. The second one does it, with the consent
        that came with the plan: a branch takes the place of the run."""
        async with let_in(context) as caller:
            begun = await overrule(service, caller, run_id, question_id, answer, consent)
            if isinstance(begun, Overruling):
                return begun
            run = await _Conversation(service, caller, context).wait(begun)
            return Overruling(text=f"Run {run.id} takes the place of the other one.", plan={}, run=RunBody.of(run))

    @made.tool()
    async def say(
        context: AnyContext,
        run_id: str,
        text: Annotated[str, Field(description="What the user wants the agents to know, in the user's words.")],
        to: Annotated[str | None, Field(description="The agent that reads it; else the next one to act.")] = None,
    ) -> SentBody:
        """Pass on a message of the user to the agents of a run that is not over. They read it after their present step;
        the note says what becomes of it. It answers no question."""
        async with let_in(context) as caller:
            return SentBody(**(await service.say(caller, run_id, text, to)).as_json())

    @made.tool()
    async def stop(context: AnyContext, run_id: str) -> RunBody:
        """Stop a run after the step that its agents are at, if the user wants that. The user can resume it."""
        async with let_in(context) as caller:
            return RunBody.of(await service.app_for(caller).stop(run_id, user=caller.user))

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

    async def find_caller(_: Request | None) -> Caller:
        return Caller(user)

    try:
        await make_mcp(service, find_caller).run_stdio_async()
    finally:
        await service.close()


class _State(BaseModel, frozen=True):
    """What goes to a client with required input, and comes back with what its user said.

    Attributes:
        run_id: the run.
        forms: ids of the questions asked by a form.
        pages: ids of those asked on our page.
        tries: how often in a row the answers did not fit.
        rounds: how many results of the call reported it.
    """

    run_id: str
    forms: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    tries: int = 0
    rounds: int = 0


class _Conversation:
    """One call of a tool: a run, and a user who may be asked in between."""

    def __init__(self, service: Service, caller: Caller, context: AnyContext) -> None:
        self._service, self._caller, self._context = service, caller, context
        self._ways = read_elicitation(context)
        sealed, self._replies = read_retry(context)
        if sealed is None and self._replies:
            raise CallerError("The input came without the requestState that it was required with. Send both.")
        self.state = None if sealed is None else _State.model_validate_json(sealed)
        """With what the call was answered before."""

    @property
    def can_ask(self) -> bool:
        """Whether the client asks its user for us by a form; one that names no way does."""
        return can_ask_by_form(self._context)

    @property
    def page(self) -> str | None:
        """The address of our pages, if the client sends its user to pages and there are any to be reached."""
        if self._ways is None or self._ways.url is None:
            return None
        request = read_request(self._context)
        known = self._service.server_settings.public_url or (request and request.base_url)
        return str(known).rstrip("/") if known else None

    async def pass_on(self, run_id: str, question_id: str, value: AnswerValue) -> RunBody | None:
        """Answer a question with what the client says; a risk only with what its user says.

        Returns:
            what the client's user has to say first, if it takes no requests.

        Raises:
            AnswerRefused: the user cannot be asked, or did not answer.
        """
        app = self._service.app_for(self._caller)
        run = await app.get(run_id, user=self._caller.user)
        asked = next((each for each in app.access.answerable(run, self._caller.user) if each.id == question_id), None)
        if asked is not None and asked.secret:
            if self.page is not None and not takes_requests(self._context):
                return self._require(run, [asked])
            if await self._ask_on_page(run.id, asked):
                return None
            raise AnswerRefused(f"Question {asked.id} is for a secret, which no model may read: {ELSEWHERE}")
        if asked is not None and asked.is_risk and not is_refusal(value):
            if not self.can_ask:
                raise AnswerRefused(f"Question {asked.id} is for the user to decide, and no model: {ELSEWHERE}")
            if not takes_requests(self._context):
                return self._require(run, [asked])
            if not await self._ask(run.id, asked):
                raise _leave_open(asked.id)
            return None
        await self._service.answer(self._caller, run_id, {question_id: value})
        return None

    async def take_further(self, run_id: str) -> RunBody:
        """Wait until a run stops working, and ask the user its questions; return the run as it is then, or, to a client
        that takes no requests, what its user has to say first."""
        run = await self.wait(run_id)
        if not takes_requests(self._context):
            return self._require(run, self._list_askable(run))
        while questions := self._list_askable(run):
            ask = self._ask_on_page if questions[0].secret else self._ask
            if not await ask(run.id, questions[0]):
                break
            run = await self.wait(run.id)
        return RunBody.of(run)

    async def answer_back(self, state: _State, passed_on: str | None = None) -> RunBody:
        """Answer the questions of a state with what the user said, and continue as `take_further`. What they leave open
        stays open; what does not fit is asked again.

        Raises:
            AnswerRefused: they left the question open that the client wanted to pass an answer on to.
            UpcallError: the run or a question is gone, or answered in another way since.
        """
        app, replies = self._service.app_for(self._caller), self._replies or {}
        run = await app.get(state.run_id, user=self._caller.user)
        mine = {each.id: each for each in app.access.answerable(run, self._caller.user)}
        answers: dict[str, AnswerValue] = {}
        wrong = {each: "" for each in state.forms if each not in replies and each in mine}
        for question_id in (each for each in state.forms if each in replies and replies[each].action != "cancel"):
            value = read_reply(replies[question_id], question_id, mine.get(question_id))
            try:
                if question_id in mine:
                    parse_unsealed(mine[question_id], value, self._caller.user)
                answers[question_id] = value
            except AnswerRefused as error:
                wrong[question_id] = f"{error}\n\n"
        # Those answered since come last: another answer to them is an error, and must not keep back the first.
        for group in ({*answers} & {*mine}, {*answers} - {*mine}):
            if group:
                await self._service.answer(self._caller, run.id, {each: answers[each] for each in group})
        if (await app.get(run.id, user=self._caller.user)).interrupted:  # The call was lost with its process.
            await self._service.resume(self._caller, run.id)
        left = [each for each in state.forms if each in replies and replies[each].action == "cancel"]
        for question_id in (each for each in state.pages if each in replies):
            if not (replies[question_id].action == "accept" and await self._wait_for_page(run.id, question_id)):
                left.append(question_id)
        if passed_on in left:
            raise _leave_open(passed_on)
        run = await self.wait(run.id)
        tries = state.tries + 1 if wrong else 0
        if left or tries >= MAX_TRIES or state.rounds >= MAX_ROUNDS:
            return RunBody.of(run)
        return self._require(run, self._list_askable(run), state.model_copy(update={"tries": tries}), wrong)

    def _require(
        self,
        run: Run,
        questions: Sequence[Question],
        before: _State | None = None,
        wrong: Mapping[str, str] | None = None,
    ) -> RunBody:
        """Return what a client's user has to say before its call is done; the run, if that is nothing.

        Args:
            run: the run.
            questions: those that the client can ask.
            before: what the call was answered with before.
            wrong: what was wrong with the answers, by question.
        """
        if not questions:
            return RunBody.of(run)
        replies = self._replies or {}
        forms = {
            each.id: (
                f"{(wrong or {}).get(each.id, '')}{as_message(each)}",
                describe_fields(each, replies.get(each.id)),
            )
            for each in questions
            if not each.secret
        }
        pages = {each.id: (_describe_secret(each), f"{self.page}/runs/{run.id}") for each in questions if each.secret}
        before = before or _State(run_id=run.id)
        state = before.model_copy(update={"forms": (*forms,), "pages": (*pages,), "rounds": before.rounds + 1})
        required: RunBody = require_input(forms, pages, state.model_dump_json())  # The package passes it through.
        return required

    def _list_askable(self, run: Run) -> list[Question]:
        """Return the questions of a run that the client can ask its user."""
        if not (run.waiting or run.under_way):
            return []
        mine = self._service.app_for(self._caller).access.answerable(run, self._caller.user)
        return [each for each in mine if (self.page is not None if each.secret else self.can_ask)]

    async def wait(self, run_id: str) -> Run:
        """Return a run once it works no more, has something to ask of the client's user, or has taken too long."""
        app = self._service.app_for(self._caller)
        loop = asyncio.get_running_loop()
        end = loop.time() + WAIT_TIMEOUT_S
        while True:
            run = await app.get(run_id, user=self._caller.user)
            is_over = run.interrupted or not run.under_way or loop.time() > end
            if is_over or self._list_askable(run):
                return run
            await asyncio.sleep(POLL_INTERVAL_S)

    async def _ask_on_page(self, run_id: str, question: Question) -> bool:
        """Send the user to our page for a secret, which no client may read; return whether they answered it there. The
        page wants them to be logged in, so nobody else can."""
        if (page := self.page) is None:
            return False
        result = await await_reply(
            self._context.session.elicit_url(
                _describe_secret(question), f"{page}/runs/{run_id}", question.id, self._context.request_id
            )
        )
        return result.action == "accept" and await self._wait_for_page(run_id, question.id)

    async def _wait_for_page(self, run_id: str, question_id: str) -> bool:
        """Wait for what a user types on our page; return whether it came."""
        loop, app = asyncio.get_running_loop(), self._service.app_for(self._caller)
        end = loop.time() + WAIT_TIMEOUT_S
        while loop.time() < end:
            run = await app.get(run_id, user=self._caller.user)
            if question_id not in {each.id for each in run.questions}:
                return True
            await asyncio.sleep(POLL_INTERVAL_S)
        return False

    async def _ask(self, run_id: str, question: Question) -> bool:
        """Ask the user one question of a run, and answer it; return False if they leave it open."""
        wrong, result = "", None
        for _ in range(MAX_TRIES):
            result = await await_reply(
                self._context.session.elicit_form(
                    f"{wrong}{as_message(question)}", describe_fields(question, result), self._context.request_id
                )
            )
            if result.action == "cancel":
                return False
            try:
                value = read_reply(result, question.id, question)
                await self._service.answer(self._caller, run_id, {question.id: value})
                return True
            except AnswerRefused as error:
                wrong = f"{error}\n\n"
        return False


def _leave_open(question_id: str) -> AnswerRefused:
    return AnswerRefused(f"The user did not answer question {question_id}; it stays open.")


def _describe_secret(question: Question) -> str:
    return f"{question.introduce()}: {question.question}\nThis is a secret: type it on upcall's own page."
