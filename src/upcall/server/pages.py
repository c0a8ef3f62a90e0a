"""The pages for the browser. They work without scripts; scripts only keep them up to date."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query, Request
from starlette.datastructures import FormData
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from upcall import identity
from upcall.app import Upcall
from upcall.errors import (
    AnswerError,
    CallerError,
    NotAllowed,
    OverrulesAssumption,
    RunBeingReplaced,
    UnknownQuestion,
    UpcallError,
)
from upcall.questions.answer import Answer, Outcome
from upcall.questions.matching import AnswerValue
from upcall.questions.question_form import join_fields
from upcall.runs.plan_edits import find_review, write_review
from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.server.added import find_pages, list_added, send_page
from upcall.server.api import Filter
from upcall.server.bodies import Start
from upcall.server.callers import Authenticator, CurrentUser, is_same_origin
from upcall.server.completing import SECRET_AMONG, GivenAgain, has_secret, read_again
from upcall.server.inbox import InboxFilter, find_questions
from upcall.server.many_answers import Filled, RefusedAnswer, answer_each, read_answers
from upcall.server.overruling import list_changed, list_overruled
from upcall.server.problems import Problem, describe, respond
from upcall.server.run_names import read_names, rename_run, widen_to_names
from upcall.server.service import Caller, Service
from upcall.server.start_form import ON_EXPIRY, list_demo_tasks, list_fixed, list_selects, read_start, reviews_plans
from upcall.server.starting import begin_fork, begin_run, send_once
from upcall.server.typed_fields import read_fields
from upcall.server.uploads import DOCUMENTS, IMAGES, read_files
from upcall.server.views import PageFrame, list_operations, name_topic, render, run_view
from upcall.ui import diagrams

FormText = Annotated[str, Form()]
STATIC = Path(__file__).parent / "static"
PAGE_SIZE = 30
MAX_LOOKS = 50
"""How many pages of a list without a run that is sought are passed over for one page that is shown."""
_PROGRAMS = ("/api", "/healthz", "/readyz", "/metrics", "/openapi.json", "/agui", "/mcp", "/static")
_PICTURE = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}


@dataclass(frozen=True)
class UnsentMessage:
    """A message to agents that was refused, to be sent again with changes, and why."""

    text: str
    to: str
    error: UpcallError


def show_problem(request: Request, problem: Problem) -> Response:
    """Show a problem: to a person as a page, or as the login if they need one."""
    if request.url.path.startswith(_PROGRAMS) or "text/html" not in request.headers.get("Accept", ""):
        return respond(problem)
    if problem.status == 401:
        return RedirectResponse("/login", 303)
    return HTMLResponse(render("problem.html", request.app.state.frame, problem=problem), problem.status)


def make_pages(service: Service, authenticator: Authenticator, describe_api: Callable[[], dict[str, Any]]) -> APIRouter:
    """Make the routes of the pages."""
    router = APIRouter()
    router.mount("/static", StaticFiles(directory=STATIC))
    _add_doors(router, authenticator)

    def frame(caller: Caller) -> PageFrame:
        folders = None if service.is_operator(caller) else service.folders
        return PageFrame(caller, service.is_demo, list_added(service, caller), folders)

    async def show_inbox(
        caller: Caller,
        wanted: InboxFilter,
        after: str | None = None,
        wrong: AnswerError | None = None,
        wrong_at: str = "",
        refused: Sequence[RefusedAnswer] = (),
        answered: int = 0,
    ) -> HTMLResponse:
        app = service.app_for(caller)
        page = await find_questions(app, caller.user, wanted, after, identity.now())
        holds = await app.holds.list(user=caller.user)
        view: dict[str, Any] = {
            "entries": page.found,
            "names": page.names,
            "damaged": page.found.damaged,
            "next": page.found.next,
        }
        is_wrong_shown = wrong_at in {f"{each.run_id}/{each.question.id}" for each in page.found}
        view |= {"wrong": wrong, "wrong_at": wrong_at, "is_wrong_shown": is_wrong_shown, "answered": answered}
        view["address"] = "&".join(filter(None, [wanted.query, urlencode({"after": after}) if after else ""]))
        overruled = await list_overruled(app, caller, refused)
        shown_first = {f"{run.id}/{each.question.id}" for run, changes in overruled for each in changes}
        wrong_ones = [each for each in refused if each.filled.key not in shown_first]
        view["refused"] = [(each, await _find_topic(app, caller, each.filled)) for each in wrong_ones]
        view["errors"] = {each.filled.key: each.error for each in wrong_ones}
        view["filled"] = {each.filled.key: each.filled for each in refused}
        view |= {"overruled": overruled, "key": identity.new_id()}
        shown = render("inbox.html", frame(caller), **view, wanted=wanted, holds=holds)
        return HTMLResponse(shown, 422 if wrong or wrong_ones else 200)

    async def show_run(
        run_id: str,
        caller: Caller,
        wrong: UpcallError | None = None,
        question: str = "",
        before: int | None = None,
        unsent: UnsentMessage | None = None,
        again: GivenAgain | None = None,
    ) -> HTMLResponse:
        view = await run_view(service, caller, run_id, before)
        view["again"] = again or GivenAgain()
        shown = render("run.html", frame(caller), **view, wrong=wrong, wrong_at=question, unsent=unsent)
        status = 200 if unsent is None else describe(unsent.error).status
        return HTMLResponse(shown, 422 if wrong else status)

    async def show_fork(
        caller: Caller, run_id: str, answers: Mapping[str, AnswerValue], wrong: UpcallError | None = None
    ) -> Response:
        """Show what other answers would cost, in the place of their run and beside it, before anything is done. While
        others are about to replace theirs, only these can be given.

        Raises:
            UpcallError: a secret is among them, which is drawn nowhere: what is wrong, if anything is.
        """
        app = service.app_for(caller)
        run = await app.get(run_id, user=caller.user)
        if run.replacing and {*answers} != {*run.replacing}:
            return RedirectResponse(f"/runs/{run.id}#replacing", 303)
        changes = list_changed(run, answers)
        if any(each.question.secret for each in changes):
            raise wrong or CallerError(SECRET_AMONG)
        first, *others = answers
        is_over, may_stand = run.replaced_by is not None, not (others or run.replacing)
        shown = render(
            "fork.html",
            frame(caller),
            run=run,
            beside=await app.forks.plan(run.id, first, user=caller.user) if may_stand else None,
            replacing=None
            if is_over
            else await app.forks.plan(run.id, first, replace=True, also=others, user=caller.user),
            changes=changes,
            wrong=wrong,
            key=identity.new_id(),
        )
        return HTMLResponse(shown, 200 if wrong is None else describe(wrong).status)

    def show_start_form(caller: Caller, wanted: Start, wrong: CallerError | None = None) -> HTMLResponse:
        shown = render(
            "start.html",
            frame(caller),
            key=identity.new_id(),
            wanted=wanted,
            wrong=wrong,
            fixed=list_fixed(service),
            selects=list_selects(service, wanted),
            demo_tasks=list_demo_tasks(service),
            may_review=not (service.has_own_team or reviews_plans(service.settings)),
            expiries=ON_EXPIRY,
        )
        return HTMLResponse(shown, describe(wrong).status if wrong else 200)

    @router.get("/")
    async def inbox(
        request: Request, caller: CurrentUser, after: str | None = None, answered: Annotated[int, Query(ge=0)] = 0
    ) -> Response:
        return await show_inbox(caller, InboxFilter.of(request.query_params), after, answered=answered)

    @router.post("/answers")
    async def answer_many(request: Request, caller: CurrentUser) -> Response:
        given = await read_answers(service.app_for(caller), caller.user, await request.form())
        wanted = InboxFilter.parse(request.url.query)
        refused = await answer_each(service, caller, given)
        answered = len(given) - len(refused)
        if refused:
            return await show_inbox(caller, wanted, refused=refused, answered=answered)
        left = replace(wanted, several="" if given else wanted.several)
        return _show_receipt(left, answered)

    @router.get("/runs")
    async def list_runs(request: Request, caller: CurrentUser, only: Filter, before: str | None = None) -> Response:
        app = service.app_for(caller)
        only = await widen_to_names(app, caller.user, only)
        page = await app.list(caller.user, limit=PAGE_SIZE, before=before, only=only)
        for _ in range(MAX_LOOKS):  # What is sought may be far behind.
            if page or page.damaged or page.next is None:
                break
            page = await app.list(caller.user, limit=PAGE_SIZE, before=page.next, only=only)
        names = await read_names(service.store, [run.id for run in page if not run.restricted])
        wanted = {name: value for name, value in request.query_params.items() if name != "before" and value}
        view = {
            "runs": [*page],
            "names": names,
            "damaged": page.damaged,
            "holds": await app.holds.list(user=caller.user),
        }
        following = urlencode({**wanted, "before": page.next}) if page.next is not None else None
        statuses = [each.value for each in RunStatus]
        return HTMLResponse(
            render("runs.html", frame(caller), **view, wanted=wanted, statuses=statuses, following=following)
        )

    @router.get("/start")
    async def show_start(caller: CurrentUser) -> Response:
        return show_start_form(caller, Start(task=""))

    @router.post("/start")
    async def start(request: Request, caller: CurrentUser) -> Response:
        async with request.form() as form:
            wanted, key = read_start(form), str(form.get("key", "")) or None
            files = await read_files(form, DOCUMENTS), await read_files(form, IMAGES)
        try:
            run_id = await begin_run(service, caller, wanted, *files, key)
        except CallerError as error:
            return show_start_form(caller, wanted, error)
        return RedirectResponse(f"/runs/{run_id}", 303)

    @router.get("/runs/{run_id}")
    async def show(run_id: str, caller: CurrentUser, before: Annotated[int | None, Query(ge=1)] = None) -> Response:
        return await show_run(run_id, caller, before=before)

    @router.post("/runs/{run_id}/answers")
    async def answer(request: Request, run_id: str, caller: CurrentUser) -> Response:
        form = await request.form()
        question, back = str(form.get("question", "")), str(form.get("back", ""))
        choices = [str(each) for each in form.getlist("choice")]
        try:
            if form.get("typed"):
                run = await service.app_for(caller).get(run_id, user=caller.user)
                value = _read_fields(form, question, run)
            else:
                value = _read_answer(question, choices, str(form.get("own", "")), str(form.get("act", "")))
            await service.answer(caller, run_id, {question: value})
        except AnswerError as error:
            if isinstance(error, OverrulesAssumption) and not isinstance(value, Answer):
                app = service.app_for(caller)
                if app.access.owns(await app.get(run_id, user=caller.user), caller.user):
                    return await show_fork(caller, run_id, {question: value})
            if back:
                return await show_inbox(caller, InboxFilter.parse(back), None, error, f"{run_id}/{question}")
            return await show_run(run_id, caller, error, question)
        except RunBeingReplaced as error:
            return await show_run(run_id, caller, error)
        return _show_receipt(InboxFilter.parse(back), 1) if back else RedirectResponse(f"/runs/{run_id}", 303)

    @router.post("/runs/{run_id}/plan")
    async def review_plan(request: Request, run_id: str, caller: CurrentUser) -> Response:
        form = await request.form()
        question = str(form.get("question", ""))
        run = await service.app_for(caller).get(run_id, user=caller.user)
        try:
            reply = _read_review(form, run if find_review(run) == question else None)
            await service.answer(caller, run_id, {question: reply})
        except (AnswerError, RunBeingReplaced) as error:
            return await show_run(run_id, caller, error, question)
        return RedirectResponse(f"/runs/{run_id}", 303)

    @router.post("/runs/{run_id}/messages")
    async def say(
        run_id: str,
        caller: CurrentUser,
        text: FormText,
        key: FormText,
        to: FormText = "",
    ) -> Response:
        try:
            await send_once(service, caller, run_id, text, to.strip() or None, key)
        except NotAllowed:
            raise
        except CallerError as error:
            return await show_run(run_id, caller, unsent=UnsentMessage(text, to, error))
        return RedirectResponse(f"/runs/{run_id}#messages", 303)

    @router.post("/runs/{run_id}/stop")
    async def stop(run_id: str, caller: CurrentUser) -> Response:
        await service.app_for(caller).stop(run_id, user=caller.user)
        return RedirectResponse(f"/runs/{run_id}", 303)

    @router.post("/runs/{run_id}/follow-up")
    async def follow_up(run_id: str, caller: CurrentUser, task: FormText, key: FormText) -> Response:
        new_id = await begin_run(service, caller, Start(task=task, follows=run_id), key=key)
        return RedirectResponse(f"/runs/{new_id}", 303)

    @router.post("/runs/{run_id}/fork")
    async def fork(
        request: Request,
        run_id: str,
        caller: CurrentUser,
        question: FormText,
        answer: Annotated[Sequence[str], Form()],
        key: FormText,
        how: FormText = "",
        keep: FormText = "",
        seen: FormText = "",
        also: Annotated[Sequence[str], Form()] = (),
    ) -> Response:
        sent = await request.form()
        others = {each: join_fields([str(part) for part in sent.getlist(f"also-{each}")], "") for each in also}
        value = join_fields(answer, "")
        answers = {question: value, **others}
        if how not in ("replace", "beside"):
            return await show_fork(caller, run_id, answers)
        replaces = how == "replace"
        try:
            app, kept = service.app_for(caller), seen if replaces and keep else False
            if kept and (await app.get(run_id, user=caller.user)).replacing:  # Then also what turns out to stay.
                plan = await app.forks.plan(run_id, question, replace=True, also=others, user=caller.user)
                kept = plan.bill == seen or seen
            new_id = await begin_fork(
                service, caller, run_id, question, value, key, replace=replaces, keep_effects=kept, also=others
            )
        except NotAllowed:
            raise
        except (AnswerError, CallerError, RunBeingReplaced) as error:
            return await show_fork(caller, run_id, answers, error)
        return RedirectResponse(f"/runs/{new_id}", 303)

    @router.post("/runs/{run_id}/completion")
    async def complete(request: Request, run_id: str, caller: CurrentUser) -> Response:
        app = service.app_for(caller)
        run = await app.get(run_id, user=caller.user)
        if not app.access.owns(run, caller.user):
            raise NotAllowed(f"Run {run.id} is somebody else's: they complete it.")
        if not run.replacing:
            return RedirectResponse(f"/runs/{run.id}", 303)
        if has_secret(run):
            raise CallerError(SECRET_AMONG)
        given = await read_again(app, caller, run, await request.form())
        if given.wrong is not None:
            return await show_run(run.id, caller, given.wrong, again=given)
        return await show_fork(caller, run.id, given.answers)

    @router.post("/runs/{run_id}/name")
    async def rename(run_id: str, caller: CurrentUser, name: FormText = "") -> Response:
        app = service.app_for(caller)
        run = await app.get(run_id, user=caller.user)
        if not app.access.owns(run, caller.user):
            raise NotAllowed(f"Run {run.id} is somebody else's: they name it.")
        await rename_run(service.store, run.id, name)
        return RedirectResponse(f"/runs/{run.id}", 303)

    @router.post("/runs/{run_id}/cancel")
    async def cancel(run_id: str, caller: CurrentUser) -> Response:
        await service.app_for(caller).cancel(run_id, user=caller.user)
        return RedirectResponse(f"/runs/{run_id}", 303)

    @router.post("/runs/{run_id}/resume")
    async def resume(run_id: str, caller: CurrentUser) -> Response:
        await service.resume(caller, run_id)
        return RedirectResponse(f"/runs/{run_id}", 303)

    @router.post("/runs/{run_id}/undo")
    async def undo(run_id: str, caller: CurrentUser, change: FormText) -> Response:
        await service.app_for(caller).changes.undo(run_id, change, user=caller.user)
        return RedirectResponse(f"/runs/{run_id}#files", 303)

    @router.get("/runs/{run_id}/tree.svg")
    async def draw_tree(run_id: str, caller: CurrentUser) -> Response:
        run = await service.app_for(caller).get(run_id, user=caller.user)
        return Response(diagrams.tree(run), media_type="image/svg+xml", headers=_PICTURE)

    @router.get("/runs/{run_id}/timeline.svg")
    async def draw_timeline(run_id: str, caller: CurrentUser) -> Response:
        app = service.app_for(caller)
        worked = await app.log.call_timings(run_id, user=caller.user)
        drawn = diagrams.timeline(await app.get(run_id, user=caller.user), worked)
        return Response(drawn, media_type="image/svg+xml", headers=_PICTURE)

    @router.get("/compare")
    async def compare(caller: CurrentUser, one: str, other: str) -> Response:
        app = service.app_for(caller)
        lines = await app.forks.diff(one, other, user=caller.user)
        runs = [await app.get(each, user=caller.user) for each in (one, other)]
        return HTMLResponse(render("compare.html", frame(caller), lines=lines, runs=runs))

    @router.get("/added/{name}")
    async def list_pages(name: str, caller: CurrentUser) -> Response:
        pages = find_pages(service, caller, name)
        return HTMLResponse(render("added.html", frame(caller), pages=pages, name=name, entries=await pages.list()))

    @router.get("/added/{name}/{page:path}")
    async def show_added(request: Request, name: str, page: str, caller: CurrentUser) -> Response:
        return await send_page(find_pages(service, caller, name), page, f"/added/{name}", request.query_params)

    @router.get("/openapi.json")
    async def show_description(caller: CurrentUser) -> Response:
        return JSONResponse(describe_api())

    @router.get("/docs")
    async def show_reference(caller: CurrentUser) -> Response:
        return HTMLResponse(render("reference.html", frame(caller), operations=list_operations(describe_api())))

    return router


def _add_doors(router: APIRouter, authenticator: Authenticator) -> None:
    """Add the routes for login and logout."""

    @router.get("/login")
    async def show_login(request: Request, token: str = "") -> Response:
        if token and authenticator.may_log_in_by_link(request, token):
            return await _log_in(request, token)
        return HTMLResponse(render("login.html", request.app.state.frame, wrong=False))

    @router.post("/login")
    async def log_in(request: Request, token: FormText) -> Response:
        if not is_same_origin(request):
            raise CallerError("Another page sent this form; nothing was changed. Load the page again.")
        return await _log_in(request, token.strip())

    async def _log_in(request: Request, token: str) -> Response:
        entered = RedirectResponse("/", 303)
        if await authenticator.log_in(request, entered, token):
            return entered
        return HTMLResponse(render("login.html", request.app.state.frame, wrong=True), 401)

    @router.post("/logout")
    async def log_out(request: Request, caller: CurrentUser) -> Response:
        left = RedirectResponse("/login", 303)
        await authenticator.log_out(request, left, caller)
        return left


async def _find_topic(app: Upcall, caller: Caller, filled: Filled) -> str:
    """Return what a question asks, as far as the caller sees it; else its id."""
    try:
        question = (await app.get(filled.run_id, user=caller.user)).asked.get(filled.question_id)
    except UpcallError:
        question = None
    return filled.question_id if question is None else name_topic(question)


def _show_receipt(wanted: InboxFilter, answered: int) -> Response:
    """Go back to the inbox, which says how many answers were sent."""
    return RedirectResponse(f"/?{wanted.query}{'&' if wanted.query else ''}answered={answered}", 303)


def _read_answer(question: str, choices: list[str], own: str, act: str) -> AnswerValue:
    """Read the answer from the fields of a form: the button pressed, then what is ticked and written."""
    if act in (Outcome.SKIPPED, Outcome.DECLINED):
        return Answer(question_id=question, outcome=Outcome(act), text=own)
    return join_fields(choices, own)


def _read_fields(form: FormData, question_id: str, run: Run) -> AnswerValue:
    """Read what stands in the fields of an answer that has several.

    Raises:
        UnknownQuestion: the run has no such question.
    """
    record = run.records.get(question_id)
    answer = None if record is None else record.question.answer_form
    if answer is None:
        raise UnknownQuestion(question_id, [each.id for each in run.questions])
    return answer.take(read_fields(form, answer, "field-"))


def _read_review(form: FormData, run: Run | None) -> str:
    """Read what is answered to a plan: with changes or own words in the form, these, even if the plan is approved by
    its button. It is shown again with them, and nobody approves what they have not seen.

    Args:
        form: a field a step, one for another step, one for own words, and the button.
        run: the run, if the form is about its present plan.
    """
    if decision := form.get("decision"):
        return str(decision)
    steps = {name.removeprefix("step-"): str(value) for name, value in form.items() if name.startswith("step-")}
    added, own = str(form.get("added", "")), str(form.get("own", ""))
    changes = write_review(run.plan, steps, added, own) if run is not None and run.plan is not None else own.strip()
    return changes or str(form.get("choice", ""))
