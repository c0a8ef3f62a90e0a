"""One run that a notebook, a terminal and the service have open at the same time, each in a process of its own."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import Any

import pytest
from ipywidgets import Button, Textarea, Widget
from scenario import TASK, WRITE, model, script, upcall
from services import read_events, serve_apart, settle, start

from upcall import Settings, Upcall
from upcall.testing import Call, Calls
from upcall.testing.server import LoopbackServer

NAMES = ("terminal", "service", "notebook")
ASKS = Calls([Call("ask_user", {"question": f"What does the {name} say?"}) for name in NAMES])


def find(root: Any, kind: type[Widget]) -> list[Any]:
    """Return the widgets of a kind, from the top down."""
    here = [root] if type(root) is kind else []
    return here + [each for child in getattr(root, "children", ()) for each in find(child, kind)]


@pytest.mark.needs("workspace")
@pytest.mark.slow
@pytest.mark.skipif(find_spec("upcall.notebook") is None, reason="one of the doors is not here")
async def test_three_doors_answer_one_run_at_the_same_time() -> None:
    replies = script(coder=[ASKS, WRITE, '{"summary": "Heard all three."}'])
    with LoopbackServer(replies) as server:
        app = Upcall(
            settings=Settings.read(
                None, models={"model": "scripted", "base_url": server.base_url}, store={"path": "runs.db"}
            )
        )
        with serve_apart(*model(server), "--store", "runs.db") as process:
            async with process.caller() as me:
                run = await start(me, TASK)
                run_id, path = run["run_id"], f"/api/runs/{run['run_id']}"
                ids = {name: each["id"] for each in run["questions"] for name in NAMES if name in each["question"]}
                following = asyncio.create_task(read_events(me, f"{path}/events"))
                here = await app.get(run_id)
                form = app.form(here)
                at = [each.id for each in here.questions].index(ids["notebook"])
                find(form.widget, Textarea)[at].value = "from the notebook"
                buttons = [each for each in find(form.widget, Button) if each.description == "Answer"]
                buttons[at].click()
                await asyncio.sleep(0)  # The click is handed to the loop.
                output = f"{ids['terminal']}=from the terminal"
                ended, posted, _ = await asyncio.gather(
                    asyncio.to_thread(
                        upcall, "answer", run_id, output, "--detach", *model(server), "--store", "runs.db"
                    ),
                    me.post(f"{path}/answers", json={"answers": {ids["service"]: "from the service"}}),
                    form.settle(),
                )
                done = await settle(me, run_id)
                again = await me.post(f"{path}/answers", json={"answers": {ids["terminal"]: "something else"}})
                events = await following
                seen = await app.get(run_id)
                shown = upcall("show", run_id, "--json", "--store", "runs.db").json
    assert (ended.status, posted.status_code, again.status_code) == (0, 200, 409), ended.err
    assert {each.text for each in seen.answers} == {f"from the {name}" for name in NAMES}
    assert shown["status"] == done["status"] == seen.status == "completed"
    assert shown["result"] == done["result"] == seen.result
    emitted = [each.data["text"] for each in events if each.kind == "entry" and each.data["kind"] == "answer"]
    assert sorted(emitted) == sorted(f"from the {name}" for name in NAMES)
