"""Who may do what through the service: each route, each kind of caller, their own run and somebody else's; and what a
request, a model or a user may try."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum, auto
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from services import OPERATOR, Site, one_agent, read_events, serving
from starlette.routing import BaseRoute, Route
from stores import FIRST

from upcall import Run, Settings, identity
from upcall.questions.answer import Answer
from upcall.questions.question import Option, Question
from upcall.questions.record import QuestionRecords
from upcall.runs.config import RunConfig
from upcall.runs.plan import PlanStep, ReviewedPlan
from upcall.runs.states import RunStatus
from upcall.runs.transcript import EntryKind, TranscriptEntry
from upcall.server import events, guard, server
from upcall.server.run_names import rename_run
from upcall.server.server import make_application
from upcall.server.service import Service
from upcall.server.tokens import create_token, revoke_token
from upcall.storage.transcripts import write_transcript

PAGE = {"Accept": "text/html"}
PROXY = "127.0.0.2"


class Right(StrEnum):
    """Whom a route is for."""

    ANYBODY = auto()
    KNOWN = auto()  # Whoever is let in: for what is theirs.
    READ = auto()  # Whoever may read the run.
    PART = auto()  # The same, and assignees: for their question.
    ANSWER = auto()  # Whose question it is.
    ACT = auto()  # The owner of the run.
    FORK = auto()  # The owner, if it is their question.


DECISIONS = {
    "GET /login": Right.ANYBODY,
    "POST /login": Right.ANYBODY,
    "GET /healthz": Right.ANYBODY,
    "GET /readyz": Right.ANYBODY,
    "GET /metrics": Right.KNOWN,
    "POST /logout": Right.KNOWN,
    "GET /": Right.KNOWN,
    "GET /runs": Right.KNOWN,
    "GET /start": Right.KNOWN,
    "POST /start": Right.KNOWN,
    "GET /docs": Right.KNOWN,
    "GET /added/{name}": Right.KNOWN,
    "GET /added/{name}/{page:path}": Right.KNOWN,
    "GET /openapi.json": Right.KNOWN,
    "POST /mcp": Right.KNOWN,
    "POST /mcp/ask": Right.KNOWN,
    "POST /api/runs": Right.KNOWN,
    "GET /api/runs": Right.KNOWN,
    "GET /api/questions": Right.KNOWN,
    "GET /api/holds": Right.KNOWN,
    "POST /api/holds": Right.KNOWN,
    "POST /api/holds/release": Right.KNOWN,
    "GET /api/questions/events": Right.KNOWN,
    "POST /agui": Right.PART,
    "GET /runs/{run_id}": Right.PART,
    "GET /runs/{run_id}/tree.svg": Right.PART,
    "GET /api/runs/{run_id}": Right.PART,
    "GET /api/runs/{run_id}/events": Right.PART,
    "GET /runs/{run_id}/timeline.svg": Right.READ,
    "GET /compare": Right.READ,
    "GET /api/runs/{run_id}/transcript": Right.READ,
    "GET /api/runs/{run_id}/changes": Right.READ,
    "POST /runs/{run_id}/answers": Right.ANSWER,
    "POST /api/runs/{run_id}/answers": Right.ANSWER,
    "POST /runs/{run_id}/fork": Right.FORK,
    "POST /api/runs/{run_id}/fork": Right.FORK,
    "GET /api/runs/{run_id}/fork": Right.ACT,
    "GET /api/runs/{run_id}/worth": Right.ACT,
    **{
        f"POST {at}/{act}": Right.ACT
        for at in ("/runs/{run_id}", "/api/runs/{run_id}")
        for act in ("cancel", "messages", "resume", "stop", "undo")
    },
    "POST /runs/{run_id}/completion": Right.ACT,
    "POST /runs/{run_id}/plan": Right.ANSWER,
    "POST /runs/{run_id}/name": Right.ACT,
    "POST /answers": Right.KNOWN,
    "POST /runs/{run_id}/follow-up": Right.ACT,
}
"""What is decided about each route; one that is not here fails."""

NAMES_PER_RUN = {
    "/compare": "/compare?one=RUN&other=RUN",
    "/agui": "/agui",
    "/api/runs/{run_id}/fork": "/api/runs/RUN/fork?question=QUESTION",
}
"""Routes whose request names the run, or its question, elsewhere than in the path."""


def walk(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, str]]:
    """Yield the method and the path of each route; one for all methods is tried with POST."""
    for each in routes:
        included = getattr(each, "original_router", None)
        if included is not None:
            yield from walk(included.routes)
        elif isinstance(each, Route):
            for method in sorted((each.methods or {"POST"}) - {"HEAD"}):
                yield method, each.path
        else:
            assert getattr(each, "path", None) == "/static", "a mounted application needs a decision too"


with pytest.MonkeyPatch.context() as patch:  # What packages add is for their own tests.
    patch.setattr(server, "load_all", lambda kind: ())
    application = make_application(Service(Settings.read(None)), operator=None)
HELD = [(method, path) for method, path in walk(application.routes) if path not in ("/login", "/healthz", "/readyz")]
ROUTES = [
    (method, NAMES_PER_RUN.get(path, path.replace("{run_id}", "RUN")))
    for method, path in HELD
    if "{run_id}" in path or path in NAMES_PER_RUN
]
OF_NO_RUN = [each for each in HELD if "{run_id}" not in each[1] and each[1] not in NAMES_PER_RUN]


def decide(method: str, path: str) -> Right:
    """Look up what is decided about one of `ROUTES`."""
    return DECISIONS[f"{method} {path.partition('?')[0].replace('RUN', '{run_id}')}"]


def test_each_route_has_a_decision() -> None:
    assert sorted(f"{method} {path}" for method, path in walk(application.routes)) == sorted(DECISIONS)


FOR_PROGRAMS = ("/api", "/agui", "/mcp", "/openapi.json", "/metrics")
BODIES = {
    "answers": {"answers": {"QUESTION": "Express"}},
    "fork": {"question": "QUESTION", "answer": "Express"},
    "undo": {},
    "messages": {"text": "Use tabs."},
}
AGUI = {"threadId": "t", "runId": "r", "messages": [], "state": {"run_id": "RUN"}}
ERRORS = {"unknown-run": 404, "not-allowed": 403}
FORMS = {
    "answers": {"question": "QUESTION", "choice": "Express"},
    "fork": {"question": "QUESTION", "answer": "Express", "key": "QUESTION", "how": "beside"},
    "undo": {"change": "none"},
    "plan": {"question": "QUESTION", "choice": "Express"},
    "follow-up": {"task": "More", "key": "QUESTION"},
    "messages": {"text": "Use tabs.", "key": "QUESTION"},
}


async def call(client: httpx.AsyncClient, method: str, path: str, run: str, question: str) -> httpx.Response:
    """Make a request that would do something if it were allowed."""
    last = path.partition("?")[0].rpartition("/")[2]
    chosen = BODIES if path.startswith("/api") else FORMS
    body = {key: _fill(value, question) for key, value in chosen.get(last, {}).items()}  # type: ignore[attr-defined]
    address, given = (
        path.replace("RUN", run).replace("QUESTION", question),
        "json" if path.startswith("/api") else "data",
    )
    if path == "/agui":
        return await look_by_agui(client, run)
    if path.endswith("events"):
        async with client.stream(method, address) as response:
            return response
    more = {given: body} if method == "POST" else {}
    return await client.request(method, address, headers=PAGE if given == "data" else {}, **more)  # type: ignore[arg-type]


async def look_by_agui(client: httpx.AsyncClient, run: str) -> httpx.Response:
    """Look at a run over AG-UI: what that tells by its second event, as the status that other routes tell it by."""
    async with client.stream("POST", "/agui", json={**AGUI, "state": {"run_id": run}}) as response:
        if not response.is_success:
            await response.aread()
            return response
        lines = (line async for line in response.aiter_lines() if line.startswith("data: "))
        event, text = json.loads((await anext(lines))[6:]), ""
        while event["type"] in ("RUN_STARTED", "MESSAGES_SNAPSHOT"):
            text = (await anext(lines))[6:]
            event = json.loads(text)
    status = ERRORS.get(event["code"], 500) if event["type"] == "RUN_ERROR" else 200
    return httpx.Response(status, text=text)


def _fill(value: object, question: str) -> object:
    if isinstance(value, dict):
        return {key.replace("QUESTION", question): each for key, each in value.items()}
    return str(value).replace("QUESTION", question)


async def store_run(
    site: Site, *, assignee: str | None = None, user: str | None = "alice", is_open: bool = False
) -> tuple[str, str]:
    """Store a run that waits for an answer; its id, and that of the question."""
    question = Question(question="Which framework?", path=("agent",), assignee=assignee)
    records, config = QuestionRecords.build([question]), RunConfig(open=is_open)
    status = RunStatus.AWAITING_CLARIFICATION
    run = Run(task="Secret plans", status=status, user=user, records=records, config=config)
    await site.service.store.create(run, FIRST)
    return run.id, question.id


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving(one_agent()) as served:
        yield served


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), [*ROUTES, *OF_NO_RUN])
async def test_who_shows_no_good_token_gets_nothing(site: Site, method: str, path: str) -> None:
    run, question = await store_run(site)
    token, revoked = await create_token(site.service.store, "alice")
    await revoke_token(site.service.store, token.id)
    _, expired = await create_token(site.service.store, "alice", None, timedelta(seconds=-1))
    shown: list[dict[str, str]] = [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {revoked}"},
        {"Authorization": f"Bearer {expired}"},
        {"Authorization": f"Basic {OPERATOR}"},
        {"Cookie": f"upcall-session-{site.url.rpartition(':')[2]}={OPERATOR}"},
        {"X-User": "alice", "X-Forwarded-User": "alice"},
    ]
    for headers in shown:
        async with httpx.AsyncClient(base_url=site.url, headers=headers) as client:
            response = await call(client, method, path, run, question)
            if method == "POST" and path.startswith(FOR_PROGRAMS):  # What a stranger sends is not taken apart.
                wrong = {"content": "{", "headers": {"Content-Type": "application/json"}}
                assert (await client.post(path, **wrong)).status_code == 401  # type: ignore[arg-type]
        assert response.status_code == (401 if path.startswith(FOR_PROGRAMS) else 303), headers
        assert path.endswith("events") or "Secret plans" not in response.text
    assert (await site.service.store.load(run)).version == 1


RUNS: dict[str, dict[str, Any]] = {
    "hers": {},
    "the operator's": {"user": None},
    "open": {"is_open": True},
    "assigned": {"assignee": "role:legal"},
}
OWNERS = {"hers": {"alice"}, "the operator's": set[str](), "open": {"alice"}, "assigned": {"alice"}}
CALLERS = (
    "nobody",
    "guesser",
    "revoked",
    "expired",
    "alice",
    "mallory",
    "lawyer",
    "mallory by proxy",
    "admin",
    "operator",
)


async def open_client(site: Site, who: str) -> httpx.AsyncClient:
    """Return a client of a kind of caller."""
    store, shown = site.service.store, "wrong"
    match who:
        case "alice" | "mallory":
            return await site.caller(who)
        case "lawyer" | "admin":
            return await site.caller("carol", "legal" if who == "lawyer" else "admin")
        case "operator":
            return await site.caller()
        case "mallory by proxy":
            headers = {"X-Forwarded-User": "mallory"}
            async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(local_address=PROXY)) as first:
                page = await first.get(f"{site.url}/", headers={**PAGE, **headers})
            transport, headers["X-CSRF-Token"] = httpx.AsyncHTTPTransport(local_address=PROXY), find_csrf(page.text)
            return httpx.AsyncClient(base_url=site.url, headers=headers, transport=transport)
        case "revoked":
            token, shown = await create_token(store, "alice")
            await revoke_token(store, token.id)
        case "expired":
            _, shown = await create_token(store, "alice", None, timedelta(seconds=-1))
    return httpx.AsyncClient(base_url=site.url, headers={} if who == "nobody" else {"Authorization": f"Bearer {shown}"})


def expect_of(who: str, right: Right, whose: str) -> str:
    """Say what a caller gets of a run by a route."""
    if who in ("nobody", "guesser", "revoked", "expired"):
        return "login"
    if who in ("admin", "operator"):
        return "done"
    if who in OWNERS[whose]:  # What she assigned to others is theirs to answer.
        return "refused" if whose == "assigned" and right in (Right.ANSWER, Right.FORK) else "done"
    if whose == "open":
        return "done" if right in (Right.READ, Right.PART) else "refused"
    if whose == "assigned" and who == "lawyer":
        return "done" if right in (Right.PART, Right.ANSWER) else "refused"
    return "unknown"


def name_outcome(response: httpx.Response) -> str:
    if response.headers.get("Location") == "/login":
        return "login"
    return {401: "login", 403: "refused", 404: "unknown"}.get(response.status_code, "done")


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_each_caller_gets_what_is_theirs_of_each_run(method: str, path: str) -> None:
    """Each route, each kind of caller, each kind of run; what is refused changes nothing and shows nothing."""
    right, wrong = decide(method, path), []
    async with serving(
        one_agent(), users={"roles": {"legal": []}}, server={"trusted_proxy": {"networks": [f"{PROXY}/32"]}}
    ) as site:
        for whose, fields in RUNS.items():
            for who in CALLERS:
                run, question = await store_run(site, **fields)
                async with await open_client(site, who) as client:
                    response = await call(client, method, path, run, question)
                expected, version = expect_of(who, right, whose), (await site.service.store.load(run)).version
                outcome = name_outcome(response)
                shows = not path.endswith("events") and "Secret plans" in response.text
                if outcome != expected or (expected != "done" and (version != 1 or shows)):
                    wrong.append((who, whose, response.status_code, f"not {expected}", version, shows))
    assert wrong == []


async def test_events_of_an_assigned_question_have_no_log() -> None:
    async with serving(one_agent(), users={"roles": {"legal": []}}) as site:
        run, _ = await store_run(site, assignee="role:legal")
        async with await site.caller("carol", "legal") as lawyer:
            found = await read_events(lawyer, f"/api/runs/{run}/events", until="run")
    assert ([each.kind for each in found], "Secret plans" in str(found)) == (["run"], False)


@pytest.mark.slow
async def test_lists_have_the_callers_runs_and_open_ones(site: Site) -> None:
    hers, operators = await store_run(site), await store_run(site, user=None)
    shared = await store_run(site, is_open=True)
    for who, runs in (("mallory", {shared}), ("alice", {hers, shared}), ("operator", {hers, operators, shared})):
        async with await open_client(site, who) as client:
            listed = {each["run_id"] for each in (await client.get("/api/runs")).json()["runs"]}
            asked = {each["id"] for each in (await client.get("/api/questions")).json()["questions"]}
            page = (await client.get("/runs", headers=PAGE)).text
        assert listed == {run for run, _ in runs}
        assert asked == (set() if who == "mallory" else {question for _, question in runs})
        assert {run for run, _ in (hers, operators, shared) if run in page} == listed
        assert '<span class="badge">open</span>' in page


@pytest.mark.parametrize("owner", ["alice", None])
@pytest.mark.slow
async def test_run_of_another_is_reached_by_no_other_way(site: Site, owner: str | None) -> None:
    """Compared with one's own, followed, named as the place in a list, or as the key of a branch."""
    run, question = await store_run(site, user=owner)
    own, _ = await store_run(site, user="mallory")
    fork = {"question": question, "answer": "Express", "key": run}
    async with await site.caller("mallory") as mallory:
        for unknown in (run, run[:6], "f" * 12):
            for one, other in ((own, unknown), (unknown, own)):
                assert (await mallory.get("/compare", params={"one": one, "other": other})).status_code == 404
            followed = await mallory.post("/api/runs", json={"task": "Go on", "follows": unknown})
            assert followed.status_code == 404
            for path in ("/runs", "/api/runs"):
                assert (await mallory.get(path, params={"before": unknown})).status_code == 404
            forked = await mallory.post(f"/runs/{unknown}/fork", data={**fork, "key": unknown})
            assert (forked.status_code, run in forked.headers.get("Location", "")) == (404, False)
            resume = [{"interruptId": f"{unknown}:{question}", "status": "resolved", "payload": "Express"}]
            emitted = (await mallory.post("/agui", json={**AGUI, "state": {}, "resume": resume})).text
            assert '"code":"unknown-run"' in emitted
    assert (await site.service.store.load(run)).version == 1


@pytest.mark.slow
async def test_key_of_a_request_is_its_callers_own(site: Site) -> None:
    key, started = {"Idempotency-Key": "order 17"}, []
    for user in ("alice", "mallory", None, "alice"):
        async with await site.caller(user) as client:
            response = await client.post("/api/runs", json={"task": "Build it"}, headers=key)
            started.append(response.json()["run_id"])
            assert response.json()["user"] == user
    assert len({*started}) == 3
    assert started[0] == started[3]


@pytest.mark.slow
async def test_token_role_answers_questions_assigned_to_it() -> None:
    async with serving(one_agent(), users={"roles": {"legal": []}}) as site:
        run, question = await store_run(site, assignee="role:legal")
        for role, status in ((None, 404), ("legal", 200)):
            async with await site.caller("carol", role) as carol:
                assert (await carol.get(f"/api/runs/{run}")).status_code == status
                asked = (await carol.get("/api/questions")).json()["questions"]
                assert [each["id"] for each in asked] == ([question] if role else [])


@pytest.mark.slow
async def test_strangers_and_users_learn_nothing_of_the_store() -> None:
    """Neither by the check of health, nor by a token that cannot be looked up; the operator does."""
    place = "postgresql://some-account:a-password@127.0.0.1:1/some-database"
    async with serving(
        one_agent(), store={"path": place}, server={"trusted_proxy": {"networks": [f"{PROXY}/32"]}}
    ) as site:
        transport = httpx.AsyncHTTPTransport(local_address=PROXY)
        user = httpx.AsyncClient(base_url=site.url, headers={"X-Forwarded-User": "mallory"}, transport=transport)
        async with await open_client(site, "guesser") as stranger, user, await site.caller() as operator:
            health, ready = await stranger.get("/healthz"), await stranger.get("/readyz")
            assert (health.status_code, health.json()) == (200, {"status": "ok"})
            assert (ready.status_code, ready.json()) == (503, {"status": "not ready"})
            for path in ("/api/runs", "/", "/login", "/runs/abcd", "/nothing"):
                for client, headers in ((stranger, {}), (stranger, PAGE), (user, {}), (user, PAGE)):
                    response = await client.get(path, headers=headers)
                    emitted = f"{response.headers} {response.text}"
                    assert not any(each in emitted for each in ("some-", "a-password", "127.0.0.1:1", "psycopg"))
            assert "some-database" in (await operator.get("/api/runs")).json()["detail"]


# -- browsers ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_browser_changes_nothing_for_another_page(site: Site) -> None:
    run, question = await store_run(site)
    of_pages = [path for method, path in [*ROUTES, *OF_NO_RUN] if method == "POST" and not path.startswith("/mcp")]
    posts = [path.replace("RUN", run) for path in of_pages]
    async with await site.browser("alice") as alice:
        for path in posts:
            for headers in ({}, {"X-CSRF-Token": "wrong"}, {"Origin": "http://evil.example"}, {"Origin": "http://["}):
                response = await alice.post(path, headers=headers, data={"question": question})
                assert (response.status_code, (await site.service.store.load(run)).version) == (403, 1)


@pytest.mark.slow
async def test_good_form_of_another_origin_is_refused(site: Site) -> None:
    run, _ = await store_run(site)
    async with await site.browser("alice") as alice:
        csrf = find_csrf((await alice.get(f"/runs/{run}")).text)
        for headers in ({"Origin": "http://evil.example"}, {"Origin": "http://["}, {"Sec-Fetch-Site": "cross-site"}):
            response = await alice.post(f"/runs/{run}/cancel", data={"csrf": csrf}, headers=headers)
            assert response.status_code == 403
        assert (await alice.post(f"/runs/{run}/cancel", data={"csrf": csrf})).status_code == 303


def find_csrf(page: str) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
    assert found
    return found[1]


@pytest.mark.slow
async def test_session_is_new_at_each_login_until_logout(site: Site) -> None:
    name = f"upcall-session-{site.url.rpartition(':')[2]}"
    async with httpx.AsyncClient(base_url=site.url, cookies={name: "chosen-by-another"}, headers=PAGE) as client:
        entered = await client.get("/login", params={"token": OPERATOR})
        cookie = entered.headers["Set-Cookie"]
        assert ("HttpOnly" in cookie, "SameSite=lax" in cookie, "chosen-by-another" in cookie) == (True, True, False)
        assert entered.headers["Location"] == "/"
        session = re.search(rf"{name}=([^;]+)", cookie)
        assert session
        async with httpx.AsyncClient(base_url=site.url, cookies={name: session[1]}, headers=PAGE) as mine:
            page = await mine.get("/")
            assert page.status_code == 200
            assert (await mine.post("/logout", data={"csrf": find_csrf(page.text)})).status_code == 303
        async with httpx.AsyncClient(base_url=site.url, cookies={name: session[1]}, headers=PAGE) as again:
            assert (await again.get("/")).headers["Location"] == "/login"
        async with httpx.AsyncClient(base_url=site.url, headers={"Authorization": f"Bearer {session[1]}"}) as bearer:
            assert (await bearer.get("/api/runs")).status_code == 401


@pytest.mark.slow
async def test_page_of_another_name_reads_nothing(site: Site) -> None:
    async with await site.caller() as me:
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
            assert (await me.get("/api/runs", headers={"Host": host})).status_code in (400, 421)


@pytest.mark.slow
async def test_every_response_forbids_foreign_scripts(site: Site) -> None:
    async with await site.caller() as me:
        for path in ("/", "/login", "/api/runs", "/healthz", "/nothing", "/static/app.js"):
            headers = (await me.get(path)).headers
            policy = headers["Content-Security-Policy"]
            assert "unsafe" not in policy, path
            assert {"default-src 'none'", "frame-ancestors 'none'"} <= {*policy.split("; ")}, path
            assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store"), path


@pytest.mark.slow
async def test_static_files_are_those_of_the_package(site: Site) -> None:
    async with httpx.AsyncClient(base_url=site.url) as client:
        for path in ("../app.py", "..%2f..%2fserver.py", "%2e%2e/pages.py", "/etc/passwd", "app.css%00"):
            assert (await client.get(f"/static/{path}")).status_code in (400, 404), path


# -- sizes and paces --------------------------------------------------------------------------------------------------


LONG = {"/api/runs": 26_000_000, "/agui": 26_000_000, "/api/runs/x/answers": 1_100_000, "/login": 1_100_000}


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.slow
async def test_body_that_is_too_long_is_refused(site: Site, counted: bool) -> None:
    async def pieces(size: int) -> AsyncIterator[bytes]:
        for _ in range(size // 100_000):
            yield b"a" * 100_000

    for path, size in LONG.items():
        async with await site.caller() as me:
            sent = b"a" * size if counted else pieces(size)
            form = {"Content-Type": "application/x-www-form-urlencoded"}
            with suppress(httpx.TransportError):  # It closed before all of it was sent.
                assert (await me.post(path, content=sent, headers=form)).status_code == 413, path
            assert not (await me.get("/api/runs")).json()["runs"]


@pytest.mark.parametrize("path", ["/agui", "/mcp", "/api/runs", "/api/runs/x/answers"])
@pytest.mark.slow
async def test_json_of_too_many_pieces_is_refused(site: Site, path: str) -> None:
    async with await site.caller() as me:
        response = await me.post(path, json={"messages": [{"content": [1] * 100_000}]})
        assert response.status_code == 413
        assert response.json()["detail"].startswith("The JSON has 100,007 quotation marks, commas and brackets")
        assert (await me.post(path, json={"messages": "a" * 900_000})).status_code in (400, 406, 422)


@pytest.mark.slow
async def test_json_form_of_too_many_nodes_is_refused(site: Site) -> None:
    async with await site.caller() as me:
        start = json.dumps({"task": "x", "data_sources": [1] * 100_000})
        response = await me.post("/api/runs", data={"start": start}, files={"documents": ("a.md", b"text")})
        assert response.status_code == 413
        form = {"Content-Type": "application/x-www-form-urlencoded"}  # As curl sends JSON where it is given nothing.
        assert (await me.post("/api/runs", content=start, headers=form)).status_code == 413


@pytest.mark.slow
async def test_slow_body_is_cut_off(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_TIMEOUT_S", 0.2)

    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"task": '
        await asyncio.sleep(5)
        yield b'"x"}'

    async with await site.caller() as me:
        response = await me.post("/api/runs", content=pieces(), headers={"Content-Type": "application/json"})
    assert response.status_code == 413


@pytest.mark.slow
async def test_too_many_requests_are_asked_to_wait(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "REQUESTS_AT_ONCE", 5.0)
    monkeypatch.setattr(guard, "REQUESTS_PER_SECOND", 0.01)
    async with await site.caller("alice") as alice, await site.caller("bob") as bob:
        found = [(await alice.get("/api/runs")).status_code for _ in range(7)]
        assert (found, (await bob.get("/api/runs")).status_code) == ([200] * 5 + [429] * 2, 200)
    wrong = [{"Authorization": f"Bearer {number}"} for number in range(7)]
    async with httpx.AsyncClient(base_url=site.url) as guesser:
        guessed = [(await guesser.get("/api/runs", headers=each)).status_code for each in wrong]
    assert guessed == [401] * 5 + [429] * 2


@pytest.mark.slow
async def test_token_spelled_in_many_ways_has_one_rate_limit(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "REQUESTS_AT_ONCE", 5.0)
    monkeypatch.setattr(guard, "REQUESTS_PER_SECOND", 0.01)
    async with await site.caller("alice") as alice:
        token = alice.headers["Authorization"].removeprefix("Bearer ")
        ways = [{"Authorization": f"Bearer{' ' * spaces}{token}"} for spaces in range(1, 16)]
        found = [(await alice.get("/api/runs", headers=each)).status_code for each in ways]
    assert found == [200] * 10 + [429] * 5  # Their own pace, then that of the address.


@pytest.mark.slow
async def test_who_guesses_locks_nobody_out_and_has_one_pace(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "REQUESTS_AT_ONCE", 5.0)
    monkeypatch.setattr(guard, "REQUESTS_PER_SECOND", 0.01)
    async with await site.caller("alice") as alice, httpx.AsyncClient(base_url=site.url) as guesser:
        found = [(await alice.get("/api/runs")).status_code]
        for number in range(8):
            path = ("/healthz", "/login", "/api/runs")[number % 3]
            found.append((await guesser.get(path, headers={"Cookie": f"a={number}"})).status_code)
        found.append((await alice.get("/api/runs")).status_code)
    assert found == [200, *[200, 200, 401, 200, 200], *[429] * 3, 200]


@pytest.mark.slow
async def test_link_of_another_page_logs_nobody_in(site: Site) -> None:
    async with await site.caller("eve") as eve, httpx.AsyncClient(base_url=site.url) as browser:
        token = eve.headers["Authorization"].removeprefix("Bearer ")
        elsewhere = {"Sec-Fetch-Site": "cross-site"}
        for secret, headers, status in ((token, elsewhere, 200), (token, {}, 303), (OPERATOR, elsewhere, 303)):
            entered = await browser.get("/login", params={"token": secret}, headers=headers)
            assert (entered.status_code, "set-cookie" in entered.headers) == (status, status == 303)


async def test_caller_opens_so_many_streams_at_most(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "STREAMS_PER_CALLER", 1)
    async with await site.caller("alice") as alice, alice.stream("GET", "/api/questions/events") as one:
        lines = one.aiter_lines()  # Held: who drops it closes the stream.
        await anext(lines)
        assert (await alice.get("/api/questions/events")).status_code == 429
        async with await site.caller("bob") as bob, bob.stream("GET", "/api/questions/events") as other:
            assert other.status_code == 200


# -- texts ------------------------------------------------------------------------------------------------------------

MARKUP = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<iframe src=javascript:alert(1)>",
    "<body onload=alert(1)>",
    "<a href=javascript:alert(1)>x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](vbscript:alert(1))",
    "[x]: javascript:alert(1)\n\n[x]",
    "<javascript:alert(1)>",
    "![x](http://evil.example/x.png)",
    "![x](javascript:alert(1))",
    '"><script>alert(1)</script>',
    "'><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' onfocus='alert(1)' autofocus='",
    "` onload=alert(1) `",
    "<style>@import 'http://evil.example'</style>",
    "<link rel=stylesheet href=http://evil.example>",
    "<meta http-equiv=refresh content='0;url=http://evil.example'>",
    "<base href=http://evil.example/>",
    "<form action=http://evil.example><input name=a></form>",
    "<input onfocus=alert(1) autofocus>",
    "<button formaction=javascript:alert(1)>x</button>",
    "<textarea></textarea><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</pre><script>alert(1)</script>",
    "<!--<script>alert(1)</script>-->",
    "--><script>alert(1)</script>",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<math><mtext><script>alert(1)</script></mtext></math>",
    "<object data=javascript:alert(1)></object>",
    "<embed src=javascript:alert(1)>",
    "<details open ontoggle=alert(1)>",
    "<marquee onstart=alert(1)>",
    "<video><source onerror=alert(1)></video>",
    "<audio src=x onerror=alert(1)>",
    "<ScRiPt>alert(1)</sCrIpT>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "%3Cscript%3Ealert(1)%3C/script%3E",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "\\x3cscript\\x3ealert(1)\\x3c/script\\x3e",
    "{{ 7 * 7 }}{% for each in page %}x{% endfor %}",
    "${7*7}<%= 7*7 %>",
    "\u202e<script>alert(1)</script>",
    "```html\n<script>alert(1)</script>\n```",
]
TAGS = set(
    re.findall(
        r"\w+",
        "html head meta title link script body a header nav form input select option span button main h1 h2 h3 p div "
        "section article label textarea fieldset legend time ol ul li pre details summary img table thead tbody tr "
        "th td strong br code sup em blockquote hr h4 h5 h6 s aside footer "
        "datalist dialog dl dt dd kbd",
    )
)


SCRIPTS = ("/static/lists.js", "/static/app.js")


class Checker(HTMLParser):
    """Reads a page as a browser does, and notes what in it is none of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.wrong += [f"<{tag}>"] if tag not in TAGS else []
        self.wrong += [f"{tag} {name}" for name in found if name.startswith("on") or name in ("style", "formaction")]
        for name in ("href", "src", "action"):
            target = found.get(name) or "/"
            allowed = ("/", "#", "http://", "https://", "mailto:") if tag == "a" else ("/", "#")
            self.wrong += [] if target.startswith(allowed) else [f"{tag} {name}={target}"]
        if tag == "script":
            self.scripts += 1
            self.wrong += [] if found.get("src") in SCRIPTS else ["inline script"]
        if tag == "select":  # The filter of the page of runs, and the start.
            self.wrong += [] if attrs in ([("name", "status")], [("name", "on_expiry")]) else ["foreign select"]
        if tag == "meta" and "http-equiv" in found:
            self.wrong.append("meta refresh")


async def store_hostile(site: Site, text: str) -> str:
    """Store a run of mallory that has a text wherever a model or a user can write one; its id."""
    question = Question(
        question=text,
        header=text[:80],
        context=text,
        options=(Option(label=text, description=text), Option(label="b")),
        default=text,
        path=(text, text),
        assignee="alice",
    )
    open_too = question.model_copy(update={"id": identity.new_id(), "multi_select": True})
    closed = question.model_copy(update={"id": identity.new_id()})
    answer = Answer(question_id=closed.id, text=text, user=text, reason=text)
    step = PlanStep(step_id="1", description=text, name="coder", outputs=(text,))
    run = Run(
        task=text,
        user="mallory",
        status=RunStatus.AWAITING_CLARIFICATION,
        records=QuestionRecords.build([closed, question, open_too]).close([answer]),
        result=text,
        error=text,
        warnings=(text,),
        plan=ReviewedPlan(title=text, sections=(text,), steps=(step,), remark=text),
    )
    await site.service.store.create(run, FIRST)
    entries = [TranscriptEntry(kind, (text,), identity.now(), text, text) for kind in EntryKind]
    await site.service.store.database.write(write_transcript(run.id, 0, entries))
    await rename_run(site.service.store, run.id, text)
    return run.id


@pytest.mark.slow
async def test_no_text_becomes_part_of_a_page(site: Site) -> None:
    assert len(MARKUP) >= 50
    async with await site.browser("mallory") as mallory, await site.browser("alice") as alice:
        for text in MARKUP:
            run = await store_hostile(site, text)
            looks = [(mallory, path) for path in (f"/runs/{run}", f"/compare?one={run}&other={run}", "/runs")]
            searches = [f"/?several=1&text={quote(text)}", f"/runs?text={quote(text)}", "/?several=1"]
            looks += [(mallory, each) for each in searches] + [(alice, each) for each in searches]
            for client, path in [*looks, (alice, f"/runs/{run}"), (alice, "/")]:
                checker = Checker()
                checker.feed((await client.get(path)).text)
                assert (checker.wrong, checker.scripts) == ([], len(SCRIPTS)), (path, text)
            await site.service.store.delete(run)


@pytest.mark.slow
async def test_answer_that_is_refused_is_shown_as_text(site: Site) -> None:
    run, _ = await store_run(site)
    async with await site.browser("alice") as alice:
        csrf = find_csrf((await alice.get("/")).text)
        form = {"csrf": csrf, "question": "<script>", "choice": "<script>alert(1)</script>"}
        page = await alice.post(f"/runs/{run}/answers", data=form)
        many = {"csrf": csrf, "question": f"{run}/<script>", f"own-{run}/<script>": "<script>alert(1)</script>"}
        refused = await alice.post("/answers?several=1", data=many)
        began = await alice.post("/start", data={"csrf": csrf, "task": "</textarea><script>", "expires_after": "<b>"})
    for shown, status, text in ((page, 422, "Unknown question"), (refused, 422, "did not hold"), (began, 400, "<b>")):
        checker = Checker()
        checker.feed(shown.text)
        assert (shown.status_code, checker.wrong, text in unescape(shown.text)) == (status, [], True)
