"""Starting a run from outside, by the API and by the pages: once for each key."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from upcall import identity
from upcall.errors import CallerError, UnknownRun, UpcallError
from upcall.execution.start_options import check_options
from upcall.questions.answer import Answer
from upcall.questions.matching import AnswerValue
from upcall.runs.steering import SentMessage
from upcall.server.bodies import OF_SERVICE, Start
from upcall.server.choices import StartChoice
from upcall.server.requests import reserve_request
from upcall.server.service import Caller, Service
from upcall.server.uploads import Sent, make_task, store_documents


async def begin_run(
    service: Service,
    caller: Caller,
    wanted: Start,
    documents: Sequence[Sent] = (),
    images: Sequence[Sent] = (),
    key: str | None = None,
    run_id: str | None = None,
) -> str:
    """Begin a run, with the given id if any, and return its id. With a key used before for the same request, return the
    run begun then.

    Raises:
        UpcallError: it cannot be started; no run is stored.
    """
    run_id = run_id or identity.new_id()
    if key is not None:
        content = [wanted.as_content(), *(sha256(each.content).hexdigest() for each in (*documents, *images))]
        run_id = await reserve_request(service.store, caller.user, key, content, run_id)
        if await is_begun(service, run_id):
            return run_id
    task = await asyncio.to_thread(make_task, wanted.task, images)
    chosen, review_plan = await _choose(service, caller, wanted)
    options_given: dict[str, Any] = {
        **wanted.model_dump(exclude={"task", *OF_SERVICE}),
        "workspace": chosen.workspace,
        "user": caller.user,
        "run_id": run_id,
    }
    check_options(options_given)  # Before anything is stored in a folder of this name.
    app = service.app_for(caller, chosen=chosen, review_plan=review_plan)
    try:
        paths = await _keep_documents(service, run_id, documents)
        options = check_options({**options_given, **({"documents": paths} if paths else {})})
        await service.start(app, run_id, task, options)
    except UpcallError:
        if not await is_begun(service, run_id):
            await service.store.uploads.forget(run_id)
            raise
    return run_id  # If the same request was made twice at once, this is the run that it began.


async def _choose(service: Service, caller: Caller, wanted: Start) -> tuple[StartChoice, bool]:
    """Return what a start chooses, and whether its plan is reviewed: what it says, else as the run that it follows.

    Raises:
        CallerError: something of it cannot be chosen, or nobody would show a plan.
    """
    chosen, review_plan = service.choices.select(wanted), wanted.review_plan
    if wanted.follows is not None:
        earlier = await service.app_for(caller).get(wanted.follows, user=caller.user)
        if wanted.model is None and wanted.team is None:
            chosen = replace(service.choices.find_chosen(earlier), workspace=chosen.workspace)
            service.choices.refuse_misfit(chosen)
        if review_plan is None and earlier.config.team is not None:
            review_plan = earlier.config.team.enable_plan_approval
    if chosen.team is not None or service.has_own_team:
        if wanted.review_plan:
            raise CallerError("This team makes no plan to review. Leave review_plan out.")
        review_plan = False
    return chosen, bool(review_plan)


async def _keep_documents(service: Service, run_id: str, documents: Sequence[Sent]) -> list[Path]:
    if not documents:
        return []
    size = sum(len(each.content) for each in documents)
    folder = await service.store.uploads.reserve(run_id, size, service.server_settings.uploads_limit)
    return await asyncio.to_thread(store_documents, folder, documents)


async def begin_fork(
    service: Service,
    caller: Caller,
    run_id: str,
    question_id: str,
    answer: AnswerValue,
    key: str | None,
    *,
    replace: bool = False,
    keep_effects: bool | str = False,
    also: Mapping[str, AnswerValue] | None = None,
) -> str:
    """Begin a branch of a run, maybe in its place, and return its id. With a key used before for the same request,
    return the branch begun then.

    Raises:
        UpcallError: it cannot be forked there.
    """
    new_id = identity.new_id()
    if key is not None:
        given = [answer, *(also or {}).values()]
        content = [[each.outcome.value, each.text] if isinstance(each, Answer) else each for each in given]
        wanted = [run_id, question_id, content, replace, *(also or {})]
        new_id = await reserve_request(service.store, caller.user, key, wanted, new_id)
        if await is_begun(service, new_id):
            return new_id
    run = await service.app_for(caller).get(run_id, user=caller.user)
    app = service.app_for(caller, run if not run.restricted else None)
    stream = app.fork_stream(
        run.id,
        question_id,
        answer,
        user=caller.user,
        new_id=new_id,
        replace=replace,
        keep_effects=keep_effects,
        also=also,
    )
    await service.work.begin(new_id, stream)
    return new_id


async def send_once(
    service: Service, caller: Caller, run_id: str, text: str, to: str | None, key: str | None
) -> SentMessage:
    """Send a message to the agents of a run. With a key used before for the same message, nothing more is sent."""
    new_id = identity.new_id()
    if key is not None:
        new_id = await reserve_request(service.store, caller.user, key, [run_id, text, to], new_id)
    return await service.say(caller, run_id, text, to, new_id)


async def is_begun(service: Service, run_id: str) -> bool:
    """Return whether there is a run with this id."""
    try:
        return (await service.store.load(run_id)).run.id == run_id
    except UnknownRun:
        return False
