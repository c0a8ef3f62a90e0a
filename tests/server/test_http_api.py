"""The HTTP API on a real server, over a real file; with processes that are killed."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import socket
import time
from functools import partial
from typing import Any

import httpx
import pytest
from PIL import Image
from postgres import Server
from scenario import TASK, WRITE, model, script, upcall
from services import ASK, TIMEOUT_S, Event, one_agent, read_events, serve_apart, serving, settle, start

from upcall import Answer, Question, Run, RunStatus, Upcall
from upcall.questions.record import QuestionRecords
from upcall.runs.checkpoint import Checkpoint
from upcall.server.problems import name_requests
from upcall.server.service import Caller
from upcall.testing import Call, Calls, Hang, Say
from upcall.testing.server import LoopbackServer


def select_kept(events: list[Event]) -> dict[str, list[Any]]:
    """Return what is kept for whoever reads later, in order, by kind."""
    return {kind: [each.data for each in events if each.kind == kind] for kind in ("log", "entry")}


@pytest.mark.slow
async def test_run_is_started_answered_and_shown() -> None:
    async with serving(one_agent(ASK, "Built with Express.")) as site, await site.caller("alice") as alice:
        asked = await start(alice)
        assert (asked["status"], asked["user"]) == ("awaiting_clarification", "alice")
        (question,) = (await alice.get("/api/questions")).json()["questions"]
        assert (question["run_id"], question["task"]) == (asked["run_id"], "Build it")
        path = f"/api/runs/{asked['run_id']}"
        answered = await alice.post(f"{path}/answers", json={"answers": {question["id"]: 1}})
        assert answered.status_code == 200
        run = await settle(alice, asked["run_id"])
        assert (run["status"], run["result"]) == ("completed", "Built with Express.")
        texts = [(each["kind"], each["text"]) for each in (await alice.get(f"{path}/transcript")).json()]
        assert ("answer", "Express") in texts


@pytest.mark.slow
async def test_run_that_a_limit_stopped_says_which() -> None:
    async with serving(one_agent(ASK, max_rounds=1)) as site, await site.caller("alice") as alice:
        asked = await start(alice)
        question = asked["questions"][0]["id"]
        await alice.post(f"/api/runs/{asked['run_id']}/answers", json={"answers": {question: "Express"}})
        run = await settle(alice, asked["run_id"])
        assert (run["status"], run["stop_reason"]) == ("completed", "max_rounds")


@pytest.mark.slow
async def test_run_keeps_the_built_in_team_in_another_service() -> None:
    run_id = upcall("run", TASK, "--detach", "--json", "--model", "demo", "--store", "runs.db").json["run_id"]
    async with serving(one_agent("Other."), store={"path": "runs.db"}) as site:
        run = await site.service.app_for(Caller(None)).get(run_id)
        assert not site.service.app_for(Caller(None), run).team.is_own


@pytest.mark.slow
async def test_several_questions_are_answered_at_once() -> None:
    asks = Calls([Call("ask_user", {"question": each}) for each in ("Which name?", "Which colour?", "Which size?")])
    async with serving(one_agent(asks, "Done.")) as site, await site.caller("alice") as alice:
        asked = await start(alice)
        name, colour, size = (each["id"] for each in asked["questions"])
        answers = {name: "upcall", colour: {"outcome": "declined", "text": "None"}, size: {"outcome": "declined"}}
        await alice.post(f"/api/runs/{asked['run_id']}/answers", json={"answers": answers})
        assert (await settle(alice, asked["run_id"]))["result"] == "Done."


@pytest.mark.slow
async def test_run_forks_and_is_cancelled() -> None:
    async with serving(one_agent(ASK, "One.", "Other.")) as site, await site.caller("alice") as alice:
        asked = await start(alice)
        path, question = f"/api/runs/{asked['run_id']}", asked["questions"][0]["id"]
        await alice.post(f"{path}/answers", json={"answers": {question: "Express"}})
        await settle(alice, asked["run_id"])
        keyed = {"Idempotency-Key": "one"}
        forks = [
            await alice.post(f"{path}/fork", json={"question": question, "answer": "FastAPI"}, headers=keyed)
            for _ in range(2)
        ]
        ids = {each.json()["run_id"] for each in forks}
        assert ([each.status_code for each in forks], len(ids)) == ([202, 202], 1)
        branch = await settle(alice, ids.pop())
        assert (branch["forked_from"], branch["result"]) == (asked["run_id"], "Other.")
        assert (await alice.post(f"{path}/cancel")).json()["type"] == "urn:upcall:problem:run-not-waiting"


@pytest.mark.slow
async def test_what_was_started_with_a_key_is_started_once() -> None:
    async with serving(one_agent(ASK)) as site, await site.caller("alice") as alice:
        keyed, body = {"Idempotency-Key": "k"}, {"task": "Build it"}
        first, again = await asyncio.gather(*(alice.post("/api/runs", json=body, headers=keyed) for _ in range(2)))
        assert first.json()["run_id"] == again.json()["run_id"]
        other = await alice.post("/api/runs", json={"task": "Something else"}, headers=keyed)
        assert (other.status_code, other.json()["title"]) == (422, "Key reused")
        run = await settle(alice, first.json()["run_id"])
        given = {"answers": {run["questions"][0]["id"]: "Express"}}
        assert (await alice.post(f"/api/runs/{run['run_id']}/answers", json=given, headers=keyed)).status_code == 422
        assert len((await alice.get("/api/runs")).json()["runs"]) == 1


@pytest.mark.slow
async def test_runs_are_listed_page_by_page() -> None:
    async with serving(one_agent(*["Done."] * 5)) as site, await site.caller("alice") as alice:
        started = [(await start(alice, f"Task {number}"))["run_id"] for number in range(5)]
        seen, before = list[str](), None
        while True:
            page = (await alice.get("/api/runs", params={"limit": 2} | ({"before": before} if before else {}))).json()
            seen += [each["run_id"] for each in page["runs"]]
            if (before := page["next"]) is None:
                break
        assert sorted(seen) == sorted(started)


@pytest.mark.slow
async def test_what_is_not_started_leaves_no_documents() -> None:
    async with serving(one_agent()) as site, await site.caller("alice") as alice:
        for wrong in ({"task": "x", "expires_after": "soon"}, {"task": "x", "follows": "no-such-run"}, {"task": ""}):
            files = [("documents", ("a.txt", b"text"))]
            refused = await alice.post("/api/runs", data={"start": json.dumps(wrong)}, files=files)
            assert refused.status_code in (400, 404, 422)
        assert [*site.service.store.uploads.folder.rglob("*.txt")] == []


@pytest.mark.slow
async def test_documents_and_images_come_along() -> None:
    picture = io.BytesIO()
    Image.new("RGB", (2, 2)).save(picture, "PNG")
    names = [
        "../../etc/passwd.txt",
        "..\\evil.txt",
        ".hidden.md",
        "passwd.txt",
        "a\u202eb.txt",
        "x" * 300 + ".txt",
        "é" * 119 + ".md",
        "\U0001d400" * 100 + ".md",
    ]
    files = [("documents", (name, b"text")) for name in names]
    files.append(("images", ("dot.png", picture.getvalue())))
    async with serving(models={"model": "demo"}) as site, await site.caller("alice") as alice:
        response = await alice.post("/api/runs", data={"start": '{"task": "Hello!"}'}, files=files)
        assert response.status_code == 202, response.text
        folder = site.service.store.uploads.folder / response.json()["run_id"]
        long = ["é" * 98 + ".md", "\U0001d400" * 49 + ".md"]
        kept = sorted(each.relative_to(folder).as_posix() for each in folder.rglob("*"))
        assert kept == sorted(
            ["passwd.txt", "evil.txt", "_hidden.md", "passwd-2.txt", "a_b.txt", "x" * 116 + ".txt", *long]
        )
        await settle(alice, response.json()["run_id"])
        stored = (await site.service.store.load(response.json()["run_id"])).run
        assert stored.config.team is not None
        assert len(stored.config.team.documents) == 8
        broken = await alice.post("/api/runs", data={"start": '{"task": "Hello!"}'}, files={"images": ("a.png", b"no")})
        assert (broken.status_code, "not an image" in broken.json()["detail"]) == (400, True)


@pytest.mark.slow
async def test_documents_share_a_limit_and_leave_with_their_run() -> None:
    async def send(caller: httpx.AsyncClient) -> httpx.Response:
        files = {"documents": ("a.md", b"text")}
        return await caller.post("/api/runs", data={"start": '{"task": "Hello!"}'}, files=files)

    async with (
        serving(models={"model": "demo"}, server={"uploads_limit": 4}) as site,
        await site.caller("alice") as alice,
    ):
        run_id = (await send(alice)).json()["run_id"]
        await settle(alice, run_id)
        full = await send(alice)
        assert (full.status_code, full.json()["type"]) == (507, "urn:upcall:problem:uploads-full")
        assert upcall("store", "delete", run_id).status == 0
        assert (await send(alice)).status_code == 202


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("There: upcall fork 0f q1 ANSWER", 'There: POST /api/runs/0f/fork {"question": "q1", "answer": "ANSWER"}'),
        ("There: upcall fork 0f q1 -", 'There: POST /api/runs/0f/fork {"question": "q1", "answer": "ANSWER"}'),
        (
            "Do: upcall fork 0f q1 ANSWER --replace --also q2=ANSWER",
            'Do: POST /api/runs/0f/fork {"question": "q1", "answer": "ANSWER", "replace": true, "also": '
            '{"q2": "ANSWER"}}',
        ),
        ("Resume: upcall resume 0f. Or", "Resume: POST /api/runs/0f/resume. Or"),
        ("See what else is: upcall store check", "See what else is: upcall store check"),
        ("all of it: upcall show 0f --json", "all of it: upcall show 0f --json"),
    ],
)
def test_hint_over_http_names_a_request(text: str, expected: str) -> None:
    assert name_requests(text) == expected


async def test_second_answer_over_http_names_a_fork_request() -> None:
    async with serving(one_agent(ASK, "Done.")) as site, await site.caller() as me:
        run = await start(me)
        path, question = f"/api/runs/{run['run_id']}", run["questions"][0]["id"]
        await me.post(f"{path}/answers", json={"answers": {question: "Express"}})
        refused = await me.post(f"{path}/answers", json={"answers": {question: "Flask"}})
    assert refused.json()["detail"].endswith(f': POST {path}/fork {{"question": "{question}", "answer": "ANSWER"}}')


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path", "body", "status", "name"),
    [
        ("GET", "/api/runs/nothing", None, 404, "unknown-run"),
        ("POST", "/api/runs", {"task": " "}, 400, "configuration-error"),
        ("POST", "/api/runs", {"task": "x", "user": "mallory"}, 400, "caller-error"),
        ("POST", "/api/runs", {"task": "x", "workspace": "/etc"}, 400, "caller-error"),
        ("POST", "/api/runs", "no object", 400, "caller-error"),
        ("POST", "/api/runs/RUN/answers", {"answers": {"nobody": "x"}}, 404, "unknown-question"),
        ("POST", "/api/runs/RUN/answers", {"answers": {}}, 422, "invalid-request"),
        ("POST", "/api/runs/RUN/answers", {"answers": {"QUESTION": 7}}, 422, "answer-refused"),
        ("POST", "/api/runs/RUN/answers", {"answers": {"QUESTION": {"outcome": "skipped"}}}, 422, "answer-refused"),
        ("POST", "/api/runs/RUN/answers", {"answers": {"QUESTION": {"outcome": "assumed"}}}, 422, "invalid-request"),
        ("POST", "/api/runs/RUN/resume", None, 409, "run-not-waiting"),
        ("POST", "/api/runs/RUN/undo", {}, 400, "caller-error"),
        ("GET", "/api/runs?before=nothing", None, 404, "unknown-run"),
        ("GET", "/api/runs?limit=0", None, 422, "invalid-request"),
        ("GET", "/api/nothing", None, 404, "not-found"),
        ("DELETE", "/api/runs", None, 405, "method-not-allowed"),
    ],
)
async def test_what_is_wrong_is_reported_as_a_problem(
    method: str, path: str, body: Any, status: int, name: str
) -> None:
    async with serving(one_agent(ASK)) as site, await site.caller() as me:
        run = await start(me)
        wanted = (
            str(body).replace("QUESTION", run["questions"][0]["id"]).replace("'", '"') if body is not None else None
        )
        headers = {"Content-Type": "application/json"}
        response = await me.request(method, path.replace("RUN", run["run_id"]), content=wanted, headers=headers)
        problem = response.json()
        assert (response.status_code, problem["type"]) == (status, f"urn:upcall:problem:{name}")
        assert response.headers["Content-Type"] == "application/problem+json"
        assert (problem["status"], "\n" in problem["detail"]) == (status, False)


@pytest.mark.slow
async def test_second_answer_conflicts_unless_it_is_the_same() -> None:
    async with serving(one_agent(ASK, "Done.")) as site, await site.caller() as me:
        run = await start(me)
        path, question = f"/api/runs/{run['run_id']}/answers", run["questions"][0]["id"]
        texts = [await me.post(path, json={"answers": {question: each}}) for each in ("Express", "Express", "FastAPI")]
        assert [each.status_code for each in texts] == [200, 200, 409]


@pytest.mark.slow
async def test_stream_continues_after_the_last_event_read() -> None:
    async with serving(one_agent(ASK, Say("Built.")), team={"stream": True}) as site, await site.caller() as me:
        run = await start(me)
        path = f"/api/runs/{run['run_id']}/events"
        first = await read_events(me, path, until="run")
        rest = asyncio.create_task(read_events(me, path, first[-2].id))
        await me.post(f"/api/runs/{run['run_id']}/answers", json={"answers": {run["questions"][0]["id"]: "Express"}})
        whole = await read_events(me, path)
        emitted = select_kept([*first, *await rest])
        assert emitted == select_kept(whole)
        assert [each["kind"] for each in emitted["entry"]] == ["task", "question", "answer", "message"]


async def read_one_by_one(client: httpx.AsyncClient, path: str) -> list[Event]:
    """Read a stream by connections that each break off after one event, up to the end of the run."""
    found: list[Event] = []
    while True:
        last = found[-1].id if found else None
        new = await read_events(client, path, last, until="log,entry,end")
        found += [each for each in new if each.kind in ("log", "entry")]
        if new[-1].kind == "end":
            return found


@pytest.mark.slow
async def test_stream_resumes_at_any_event() -> None:
    """In segments that are over, in a fork, and in what another program has answered."""
    team = one_agent(ASK, Call("ask_user", {"question": "Which port?"}), "Built.", "Built otherwise.", "And again.")
    async with serving(team) as site, await site.caller() as me:
        run = await start(me)
        other = Upcall(store=site.service.settings.store.path, team=team)
        asked = await other.answer(run["run_id"], "Express")
        await other.answer(asked.id, "80")
        fork = await other.fork(asked.id, asked.questions[0].id, "81")
        for run_id in (asked.id, fork.id):
            path = f"/api/runs/{run_id}/events"
            whole = [each for each in await read_events(me, path) if each.kind in ("log", "entry")]
            assert [int(each.id) for each in whole] == sorted({int(each.id) for each in whole})
            assert await read_one_by_one(me, path) == whole
            assert [each.data["kind"] for each in whole].count("answer") == 2


@pytest.mark.slow
async def test_stream_that_breaks_off_at_each_event_misses_none() -> None:
    """While the run is being worked on, for longer than a transcript waits to be written."""

    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(0.7)
        return "waited"

    steps = [step for number in range(4) for step in (Call("wait", {}), Say(f"Step {number}."))]
    async with serving(one_agent(ASK, *steps, tools=[wait])) as site, await site.caller() as me:
        run = await start(me)
        path = f"/api/runs/{run['run_id']}"
        reading = [asyncio.create_task(read_one_by_one(me, f"{path}/events")) for _ in range(2)]
        await me.post(f"{path}/answers", json={"answers": {run["questions"][0]["id"]: "Express"}})
        emitted = await asyncio.gather(*reading)
        whole = [each for each in await read_events(me, f"{path}/events") if each.kind in ("log", "entry")]
        assert emitted == [whole, whole]


@pytest.mark.slow
async def test_text_is_reported_as_it_is_written() -> None:
    async with serving(models={"model": "demo"}, team={"stream": True}) as site, await site.caller() as me:
        run = await start(me, TASK)
        path = f"/api/runs/{run['run_id']}"
        reading = asyncio.create_task(read_events(me, f"{path}/events"))
        await asyncio.sleep(0.5)
        await me.post(f"{path}/answers", json={"answers": {run["questions"][0]["id"]: "Express"}})
        tokens = [each for each in await reading if each.kind == "token"]
        assert "".join(each.data["text"] for each in tokens if each.data["path"] == ["lead"]).startswith(
            "The user authentication"
        )
        assert {each.id for each in tokens} == {""}
        assert len({each.data["text_id"] for each in tokens if each.data["path"] == ["lead"]}) == 1


@pytest.mark.slow
async def test_new_question_is_emitted_to_those_waiting() -> None:
    stream = "/api/questions/events"
    async with serving(one_agent(ASK)) as site, await site.caller() as me, me.stream("GET", stream) as response:
        lines = response.aiter_lines()
        while await anext(lines) != 'data: {"questions": []}':
            pass
        run = await start(me)
        while run["questions"][0]["id"] not in await anext(lines):
            pass


@pytest.mark.slow
async def test_answer_is_emitted_before_a_team_has_taken_it() -> None:
    question = Question(id="q1", question="Which framework?")
    run = Run(id="a-run", task="Build it", status=RunStatus.EXECUTING, records=QuestionRecords.build([question]))
    path = "/api/runs/a-run/events"
    async with serving(one_agent()) as site, await site.caller() as me:
        await site.service.store.create(run, Checkpoint())
        async with asyncio.timeout(TIMEOUT_S), me.stream("GET", path) as response:
            lines = response.aiter_lines()
            while '"id": "q1"' not in await anext(lines):
                pass
            await site.service.store.queue.add("a-run", [Answer(question_id="q1", text="Express")])
            while '"questions": []' not in await anext(lines):
                pass


@pytest.mark.slow
async def test_api_describes_itself_from_local_files() -> None:
    async with serving(one_agent()) as site, await site.caller() as me:
        described = (await me.get("/openapi.json")).json()["paths"]
        assert {"/api/runs", "/api/runs/{run_id}/answers", "/api/questions", "/healthz"} <= described.keys()
        page = (await me.get("/docs", headers={"Accept": "text/html"})).text
        assert all(path in page for path in described)
        assert "http" not in page.replace("HTTP API", "")


@pytest.mark.slow
async def test_every_act_is_in_the_audit_trail() -> None:
    async with serving(one_agent(ASK, "Done.")) as site, await site.caller("alice") as alice:
        run = await start(alice)
        answers = {"answers": {run["questions"][0]["id"]: "Express"}}
        await alice.post(f"/api/runs/{run['run_id']}/answers", json=answers)
        await settle(alice, run["run_id"])
        async with await site.caller("mallory") as mallory:
            await mallory.get(f"/api/runs/{run['run_id']}")
        acts = [(entry.kind, entry.user) for entry in await site.service.app_for(Caller(None)).log.audit()]
        expected = ["token created", "started", "answered", "token created", "refused"]
        assert [kind for kind, _ in acts] == expected


@pytest.mark.needs("workspace")
@pytest.mark.slow
async def test_killed_service_returns_and_its_stream_has_no_gap() -> None:
    replies = script(coder=[ASK, WRITE, Hang(), '{"summary": "Written."}'])
    with LoopbackServer(replies) as server:
        with serve_apart(*model(server)) as process:
            async with process.caller() as me:
                run = await start(me, TASK)
                path = f"/api/runs/{run['run_id']}"
                reading = asyncio.create_task(read_events(me, f"{path}/events"))
                await me.post(f"{path}/answers", json={"answers": {run["questions"][0]["id"]: "Express"}})
                while "result" not in [each["kind"] for each in (await me.get(f"{path}/transcript")).json()]:
                    await asyncio.sleep(0.1)
                await asyncio.sleep(1)
                process.stop(signal.SIGKILL)
                before = await reading
        with serve_apart(*model(server)) as process:
            async with process.caller() as me:
                assert (await me.get(path)).json()["interrupted"]
                assert (await me.post(f"{path}/resume")).status_code == 202
                rest = await read_events(me, f"{path}/events", before[-1].id)
                whole = await read_events(me, f"{path}/events")
                assert (await me.get(path)).json()["status"] == "completed"
    emitted = select_kept([*before, *rest])
    assert "result" in [each["kind"] for each in select_kept(before)["entry"]]
    assert emitted == select_kept(whole)
    assert len([each for each in emitted["entry"] if each["name"] == "write_file"]) == 2


@pytest.mark.needs("workspace")
@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_stopped_service_leaves_its_runs_to_be_resumed(how: signal.Signals) -> None:
    replies = script(coder=[Hang()], lead=[Call("coder", {"task": "Build"})])
    with LoopbackServer(replies) as server, serve_apart(*model(server)) as process:
        run_id = process.client.post("/api/runs", json={"task": TASK}).json()["run_id"]
        with process.client.stream("GET", f"/api/runs/{run_id}/events") as stream:
            next(stream.iter_lines())
            while len(server.requests) < 6:
                time.sleep(0.05)
            status, text = process.stop(how)
    assert (status, "Traceback" in text) == (0, False)
    assert upcall("show", run_id, "--json").json["interrupted"]


@pytest.mark.slow
def test_service_for_other_machines_needs_tokens() -> None:
    refused = upcall("serve", "--host", "0.0.0.0", "--port", "0")
    assert (refused.status, "upcall token create USER" in refused.error) == (2, True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "Address already in use" in upcall("serve", "--port", str(taken.getsockname()[1])).error


@pytest.mark.slow
async def test_over_postgresql_workers_take_the_runs_on(postgres: Server) -> None:
    location = postgres.new_database()
    async with serving(store={"path": location}, models={"model": "demo"}) as site, await site.caller("alice") as alice:
        started = (await alice.post("/api/runs", json={"task": TASK})).json()
        assert started["status"] == "queued"
        work = partial(upcall, "worker", "--drain", "--store", location, "--model", "demo")
        await asyncio.to_thread(work)
        run = await settle(alice, started["run_id"])
        answers = {"answers": {run["questions"][0]["id"]: "Express"}}
        answered = await alice.post(f"/api/runs/{run['run_id']}/answers", json=answers)
        assert answered.json()["status"] == "queued"
        await asyncio.to_thread(work)
        events = await read_events(alice, f"/api/runs/{run['run_id']}/events")
        assert events[-2].data["status"] == "completed"
        assert "answer" in [each["kind"] for each in select_kept(events)["entry"]]
