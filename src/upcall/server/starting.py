"""Starting a run from outside, by the API and by the pages: once for each key."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from upcall import identity
from upcall.errors import CallerError, UnknownRun, UpcallError
from upcall.execution.start_options import check_options
from upcall.questions.answer import Answer
from upcall.questions.matching import AnswerValue
from upcall.runs.steering import SentMessage
from upcall.server.bodies import Start
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
    options_given: dict[str, Any] = {
        **wanted.model_dump(exclude={"task", "review_plan"}),
        "user": caller.user,
        "run_id": run_id,
    }
    check_options(options_given)  # Before anything is stored in a folder of this name.
    app = service.app_for(caller, review_plan=await _wants_review(service, caller, wanted))
    try:
        paths = await _keep_documents(service, run_id, documents)
        options = check_options({**options_given, **({"documents": paths} if paths else {})})
        await service.start(app, run_id, task, options)
    except UpcallError:
        if not await is_begun(service, run_id):
            await service.store.uploads.forget(run_id)
            raise
    return run_id  # If the same request was made twice at once, this is the run that it began.


async def _wants_review(service: Service, caller: Caller, wanted: Start) -> bool:
    """Return whether the plan of a new run is reviewed: as asked for, else as that of the run that it follows.

    Raises:
        CallerError: nobody would show one.
    """
    if wanted.review_plan and service.has_own_team:
        raise CallerError("The team of this service makes no plan to review. Leave review_plan out.")
    if wanted.review_plan is not None or wanted.follows is None or service.has_own_team:
        return bool(wanted.review_plan)
    earlier = await service.app_for(caller).get(wanted.follows, user=caller.user)
    return earlier.config.team is not None and earlier.config.team.enable_plan_approval


async def _keep_documents(service: Service, run_id: str, documents: Sequence[Sent]) -> list[Path]:
    if not documents:
        return []
    size = sum(len(each.content) for each in documents)
    folder = await service.store.uploads.reserve(run_id, size, service.server_settings.uploads_limit)
    return await asyncio.to_thread(store_documents, folder, documents)


async def begin_fork(
    service: Service, caller: Caller, run_id: str, question_id: str, answer: AnswerValue, key: str | None
) -> str:
    """Begin a branch of a run, and return its id. With a key used before for the same request, return the branch begun
    then.

    Raises:
        UpcallError: it cannot be forked there.
    """
    new_id = identity.new_id()
    if key is not None:
        content = [answer.outcome.value, answer.text] if isinstance(answer, Answer) else answer
        new_id = await reserve_request(service.store, caller.user, key, [run_id, question_id, content], new_id)
        if await is_begun(service, new_id):
            return new_id
    run = await service.app_for(caller).get(run_id, user=caller.user)
    app = service.app_for(caller, run if not run.restricted else None)
    await service.work.begin(new_id, app.fork_stream(run.id, question_id, answer, user=caller.user, new_id=new_id))
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
