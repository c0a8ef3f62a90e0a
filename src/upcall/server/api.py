"""The HTTP API, below ``/api``."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import JSONResponse
from pydantic import JsonValue, ValidationError
from sse_starlette import EventSourceResponse

from upcall import identity
from upcall.errors import CallerError
from upcall.runs.run import Run
from upcall.runs.run_filter import RunFilter, parse_filter
from upcall.server.bodies import (
    Answers,
    Changes,
    Entry,
    Fork,
    HoldBody,
    HoldStart,
    HoldSubject,
    MessageBody,
    QuestionList,
    RunBody,
    RunList,
    SentBody,
    Start,
    Undo,
    explain_validation,
    read_value,
)
from upcall.server.callers import Authenticator, CurrentUser, KnownCallersRoute, limit_json_nodes
from upcall.server.events import Streams, follow, follow_questions, parse_position, respond_with
from upcall.server.problems import Problem
from upcall.server.requests import reserve_request
from upcall.server.run_names import read_names, widen_to_names
from upcall.server.service import Caller, Service
from upcall.server.starting import begin_fork, begin_run, send_once
from upcall.server.uploads import DOCUMENTS, IMAGES, read_files

Key = Annotated[
    str | None,
    Header(alias="Idempotency-Key", max_length=200, description="Who repeats a request with its key repeats nothing."),
]
PageLimit = Annotated[int, Query(ge=1, le=200)]
_FILES = {"type": "array", "items": {"type": "string", "format": "binary"}}
_MULTIPART = {
    "type": "object",
    "required": ["start"],
    "properties": {"start": {"type": "string", "description": "As in JSON."}, DOCUMENTS: _FILES, IMAGES: _FILES},
}
_START = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": Start.model_json_schema()},
            "multipart/form-data": {"schema": _MULTIPART},
        },
    }
}
_STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}, "description": "Events."}}


def make_router(service: Service, authenticator: Authenticator, streams: Streams) -> APIRouter:
    """Make the routes."""
    wrong = {code: {"model": Problem} for code in (400, 401, 403, 404, 409, 413, 422, 429, 507)}
    router = APIRouter(
        prefix="/api",
        tags=["runs"],
        responses=wrong,  # type: ignore[arg-type]
        route_class=KnownCallersRoute,
    )

    async def show_run(run_id: str, caller: Caller) -> RunBody:
        return await name_run(await service.app_for(caller).get(run_id, user=caller.user))

    async def name_run(run: Run) -> RunBody:
        names = {} if run.restricted else await read_names(service.store, [run.id])
        return RunBody.of(run, names.get(run.id))

    @router.post("/runs", status_code=202, response_model=RunBody, openapi_extra=_START)
    async def start(request: Request, caller: CurrentUser, key: Key = None) -> JSONResponse:
        """Start a run; send documents and images in a form. The run continues by itself: look at it, or follow its
        events."""
        wanted, documents, images = await _read_start(request)
        run_id = await begin_run(service, caller, wanted, documents, images, key)
        body = await show_run(run_id, caller)
        return JSONResponse(body.model_dump(mode="json"), 202, {"Location": f"/api/runs/{run_id}"})

    @router.get("/runs")
    async def list_runs(caller: CurrentUser, only: Filter, limit: PageLimit = 50, before: str | None = None) -> RunList:
        """List the runs that the caller may see, newest first; of these those that fit all that is asked for."""
        app = service.app_for(caller)
        only = await widen_to_names(app, caller.user, only)
        page = await app.list(caller.user, limit=limit, before=before, only=only)
        holds = [HoldBody.of(each) for each in await app.holds.list(user=caller.user)]
        names = await read_names(service.store, [each.id for each in page if not each.restricted])
        bodies = [RunBody.of(each, names.get(each.id)) for each in page]
        bodies += [RunBody.of(each) for each in page.damaged]
        return RunList(runs=bodies, next=page.next, holds=holds)

    @router.get("/runs/{run_id}")
    async def show(run_id: str, caller: CurrentUser) -> RunBody:
        """Show a run."""
        return await show_run(run_id, caller)

    @router.post("/runs/{run_id}/answers")
    async def answer(run_id: str, body: Answers, caller: CurrentUser, key: Key = None) -> RunBody:
        """Answer one or several questions of a run, which then continues. The same answer again changes nothing."""
        if key is not None:
            await reserve_request(service.store, caller.user, key, [run_id, body.model_dump()], run_id)
        await service.answer(caller, run_id, body.read())
        return await show_run(run_id, caller)

    @router.post("/runs/{run_id}/messages", status_code=202)
    async def say(run_id: str, body: MessageBody, caller: CurrentUser, key: Key = None) -> SentBody:
        """Send a message to the agents of a run, which they read after their present step; kept if nobody works on it
        now."""
        return SentBody(**(await send_once(service, caller, run_id, body.text, body.to, key)).as_json())

    @router.post("/runs/{run_id}/stop", status_code=202)
    async def stop(run_id: str, caller: CurrentUser) -> RunBody:
        """Stop a run after the step that its agents are at; it can be resumed."""
        return await name_run(await service.app_for(caller).stop(run_id, user=caller.user))

    @router.post("/runs/{run_id}/fork", status_code=202)
    async def fork(run_id: str, body: Fork, caller: CurrentUser, key: Key = None) -> RunBody:
        """Start a branch of a run: the same up to one of its questions, with another answer."""
        answer = read_value(body.answer, body.question)
        begun = await begin_fork(
            service,
            caller,
            run_id,
            body.question,
            answer,
            key,
            replace=body.replace,
            keep_effects=body.keep_effects,
            also={each: read_value(value, each) for each, value in body.also.items()},
        )
        return await show_run(begun, caller)

    @router.get("/runs/{run_id}/fork")
    async def plan_fork(
        run_id: str,
        question: str,
        caller: CurrentUser,
        replace: bool = False,
        also: Annotated[list[str] | None, Query()] = None,
    ) -> dict[str, JsonValue]:
        """Show what a branch at a question would keep, do again, and take back, before it is begun."""
        forks, user = service.app_for(caller).forks, caller.user
        return (await forks.plan(run_id, question, replace=replace, also=also or (), user=user)).as_json()

    @router.get("/runs/{run_id}/worth")
    async def show_worth(run_id: str, caller: CurrentUser) -> dict[str, JsonValue]:
        """Show whether other answers to the questions of a completed run would have changed its result, as far as that
        was tried, and what trying them may cost."""
        return (await service.app_for(caller).worth.read(run_id, user=caller.user)).as_json()

    @router.post("/runs/{run_id}/cancel")
    async def cancel(run_id: str, caller: CurrentUser) -> RunBody:
        """End a run for good."""
        return await name_run(await service.app_for(caller).cancel(run_id, user=caller.user))

    @router.post("/runs/{run_id}/resume", status_code=202)
    async def resume(run_id: str, caller: CurrentUser) -> RunBody:
        """Continue a run that failed or was interrupted."""
        await service.resume(caller, run_id)
        return await show_run(run_id, caller)

    @router.get("/runs/{run_id}/transcript")
    async def show_transcript(run_id: str, caller: CurrentUser) -> list[Entry]:
        """Show what the agents of a run wrote and did."""
        found = await service.app_for(caller).log.transcript(run_id, user=caller.user)
        return [Entry.model_validate(each) for each in found.as_json()]

    @router.get("/runs/{run_id}/changes")
    async def list_changes(run_id: str, caller: CurrentUser) -> Changes:
        """Show which files a run changed, with the diffs."""
        return Changes(changes=[*await service.app_for(caller).changes.list(run_id, user=caller.user)])

    @router.post("/runs/{run_id}/undo")
    async def undo(run_id: str, body: Undo, caller: CurrentUser) -> Changes:
        """Undo the last change, or the given one and all after it."""
        return Changes(changes=[*await service.app_for(caller).changes.undo(run_id, body.change, user=caller.user)])

    @router.get("/runs/{run_id}/events", responses=_STREAM, response_class=EventSourceResponse)
    async def stream_events(
        run_id: str,
        caller: CurrentUser,
        last: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
        after: Annotated[str | None, Query(description="The same, for a browser's first request.")] = None,
    ) -> EventSourceResponse:
        """Follow a run: ``log``, ``entry`` (of the transcript), ``run``, ``token``, ``thought``, ``end``."""
        run = await service.app_for(caller).get(run_id, user=caller.user)
        position = parse_position(last or after)
        return respond_with(follow(service, authenticator, caller, run.id, position), streams, caller)

    @router.get("/questions")
    async def list_questions(
        caller: CurrentUser, limit: Annotated[int | None, Query(ge=1)] = None, after: str | None = None
    ) -> QuestionList:
        """List the open questions that the caller may answer, oldest first; with a limit those of this many runs."""
        return QuestionList.of(await service.app_for(caller).inbox(caller.user, limit=limit, after=after))

    @router.get("/questions/events", responses=_STREAM, response_class=EventSourceResponse)
    async def stream_questions(caller: CurrentUser) -> EventSourceResponse:
        """Follow the caller's open questions: ``questions`` with the ids of all, whenever they change."""
        return respond_with(follow_questions(service, authenticator, caller), streams, caller)

    @router.get("/holds")
    async def list_holds(caller: CurrentUser) -> list[HoldBody]:
        """List what is held, the longest held first; to others than admins not who else is held."""
        return [HoldBody.of(each) for each in await service.app_for(caller).holds.list(user=caller.user)]

    @router.post("/holds")
    async def hold(body: HoldStart, caller: CurrentUser) -> HoldBody:
        """Hold the runs of a user, a team or a model, or all: no work on them begins until they are released. Only
        admins may. What is held already stays as it is."""
        holds = service.app_for(caller).holds
        return HoldBody.of(await holds.place(body.kind, body.name, reason=body.reason, user=caller.user))

    @router.post("/holds/release")
    async def release(body: HoldSubject, caller: CurrentUser) -> HoldBody:
        """Release what is held: the runs that waited continue. Only admins may."""
        return HoldBody.of(await service.app_for(caller).holds.release(body.kind, body.name, user=caller.user))

    return router


def read_filter(
    status: Annotated[list[str], Query(description="With one of these statuses.")] = [],  # noqa: B006  (FastAPI's way)
    owner: Annotated[str | None, Query(description="Started by this user.")] = None,
    text: Annotated[
        str | None,
        Query(max_length=500, description="With this text in the task or the name, or at the beginning of the id."),
    ] = None,
    agent: Annotated[
        str | None, Query(max_length=500, description="At which an agent of this name worked or asked.")
    ] = None,
    older_than: Annotated[str | None, Query(description="Not changed for so long: 30d, 12h, 90m.")] = None,
    newer_than: Annotated[str | None, Query(description="Changed within this time.")] = None,
) -> RunFilter:
    """Return the filter that a request asks for.

    Raises:
        CallerError: there is no such status, or no such length of time.
    """
    ages = {"older_than": older_than, "newer_than": newer_than}
    return parse_filter(statuses=status, owner=owner, text=text, agent=agent, **ages, now=identity.now())


Filter = Annotated[RunFilter, Depends(read_filter)]
"""The parameters of a route that lists runs."""


async def _read_start(request: Request) -> tuple[Start, list[Any], list[Any]]:
    """Read a start from JSON, or from a form with files.

    Raises:
        CallerError: it is neither.
    """
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    try:
        if kind == "multipart/form-data":
            async with request.form() as form:
                start_text = str(form.get("start", ""))
                limit_json_nodes(start_text.encode(errors="replace"))
                wanted = Start.model_validate_json(start_text)
                return wanted, await read_files(form, DOCUMENTS), await read_files(form, IMAGES)
        return Start.model_validate(json.loads(await request.body())), [], []
    except ValidationError as error:
        raise CallerError(explain_validation(error.errors(include_url=False))) from error
    except (ValueError, RecursionError) as error:
        raise CallerError("The body is not JSON. Send an object with a task.") from error
