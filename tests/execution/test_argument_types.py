"""Arguments of other types than the methods of `Upcall` take: each is refused in one line, by the library."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from worlds import app_of, solo

from upcall.errors import AnswerRefused, CallerError, ConfigurationError, UnknownQuestion, UnknownRun
from upcall.testing import Call, ScriptedModelClient

Do = Callable[[Any, str, str], Any]
"""What is called, with the application, the id of a run that waits, and that of its question."""

NO_RUN_ID = "A run is named by its id, a string, not by {}. Give run.id."
NO_QUESTION_ID = "question_id is {}; it must be the id of a question."
NO_RUN = "run is {}; it must be a run, as `await app.get(run_id)` gives it."

CALLS: list[tuple[type[Exception], str, Do]] = [
    (CallerError, NO_RUN_ID.format("int"), lambda app, _, q: app.answer(5, "Express")),
    (CallerError, NO_RUN_ID.format("PosixPath"), lambda app, _, q: app.cancel(Path("a-run"))),
    (CallerError, NO_RUN_ID.format("NoneType"), lambda app, _, q: app.log.transcript(None)),
    (CallerError, NO_RUN_ID.format("int"), lambda app, _, q: app.expire_stream(run_id=5)),
    (CallerError, NO_RUN_ID.format("list"), lambda app, _, q: app.log.active_calls(["a-run"])),
    (CallerError, NO_RUN_ID.format("bytes"), lambda app, _, q: app.list(before=b"a-run")),
    (CallerError, NO_RUN_ID.format("NoneType"), lambda app, _, q: app.plans.delete(None)),
    (UnknownRun, "Unknown run '\\udcff'", lambda app, _, q: app.list(before="\udcff")),
    (ConfigurationError, NO_RUN.format("str"), lambda app, run, q: app.access.answerable(run)),
    (ConfigurationError, NO_RUN.format("str"), lambda app, run, q: app.team.settings_of(run)),
    (ConfigurationError, "run is int; it must be a run, its id, or", lambda app, _, q: app.form(5)),
    (ConfigurationError, NO_QUESTION_ID.format("NoneType"), lambda app, run, q: app.fork(run, None, "Express")),
    (ConfigurationError, NO_QUESTION_ID.format("list"), lambda app, run, q: app.forks.plan(run, [q])),
    (ConfigurationError, NO_QUESTION_ID.format("list"), lambda app, run, q: app.memory.keep_fact(run, [q])),
    (UnknownQuestion, "Unknown question None", lambda app, run, q: app.access.assign(run, None, "bob")),
    (ConfigurationError, "assignee is int; it must be a user's name", lambda app, run, q: app.access.assign(run, q, 5)),
    (AnswerRefused, "b'Express'; give text", lambda app, run, q: app.answer(run, {q: b"Express"})),
    (ConfigurationError, "workspace is int; it must be", lambda app, run, q: app.fork(run, q, "x", workspace=5)),
    (ConfigurationError, "new_id = 5 is wrong", lambda app, run, q: app.fork(run, q, "x", new_id=5)),
    (ConfigurationError, "new_id = '../x' is wrong", lambda app, run, q: app.fork(run, q, "x", new_id="../x")),
    (ConfigurationError, "now is str; it must be a time", lambda app, _, q: app.expire("tomorrow")),
    (ConfigurationError, "now is date; it must be a time", lambda app, _, q: app.expire(date(2026, 1, 2))),
    (ConfigurationError, "has no time zone", lambda app, _, q: app.expire(datetime(2026, 1, 2))),
    (ConfigurationError, "The task is bytes; it must be text", lambda app, _, q: app.start(b"Build it")),
    (ConfigurationError, "topic is int; it must be", lambda app, _, q: app.memory.forget(5)),
    (ConfigurationError, "project is int; it must be", lambda app, _, q: app.memory.forget(project=5)),
    (
        CallerError,
        "asked = None and dismissed = 0",
        lambda app, _, q: app.memory.correct("input", asked=None, dismissed=0),
    ),
    (CallerError, "after = None is wrong", lambda app, run, q: app.log.entries(run, after=None)),
    (CallerError, "after = 'x' is wrong", lambda app, _, q: app.log.audit(after="x")),
    (CallerError, "limit = '1; x' is wrong", lambda app, _, q: app.log.audit(limit="1; x")),
    (CallerError, f"limit = {10**30} is wrong", lambda app, _, q: app.list(limit=10**30)),
]


@pytest.mark.parametrize(("error", "text", "call"), CALLS, ids=[each[1] for each in CALLS])
async def test_another_type_is_refused_in_one_line(error: type[Exception], text: str, call: Do) -> None:
    app = app_of(solo(ScriptedModelClient([Call("ask_user", {"question": "Which framework?"})])))
    run = await app.start("Build it")
    with pytest.raises(error) as refused:
        await _finish(call(app, run.id, run.questions[0].id))
    assert text in str(refused.value)
    assert "\n" not in str(refused.value)
    assert [each.id for each in await app.list()] == [run.id]


async def _finish(called: Any) -> None:
    if inspect.isasyncgen(called):
        async for _ in called:
            pass
    elif inspect.isawaitable(called):
        await called
