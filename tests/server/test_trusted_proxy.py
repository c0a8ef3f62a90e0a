"""The service behind a proxy that authenticates: 127.0.0.2 is the proxy, 127.0.0.1 everybody else."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from services import ASK, Site, one_agent, read_events, serving, settle, start

from upcall import Settings
from upcall.errors import ConfigurationError
from upcall.server import guard
from upcall.server.server import serve
from upcall.server.service import Service

PROXY, USER = "127.0.0.2", "X-Forwarded-User"
SETTING = {"networks": [f"{PROXY}/32"], "role_header": "X-Role"}
SERVER = {"trusted_proxy": SETTING, "public_url": "https://inbox.example.org"}
BEHIND = {"server": SERVER, "users": {"roles": {"legal": ["bob"]}}}


@asynccontextmanager
async def calling(
    site: Site, headers: Any, address: str = PROXY, host: str = "inbox.example.org"
) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client that calls from an address, with these headers."""
    transport = httpx.AsyncHTTPTransport(local_address=address)
    given = [("Host", host), *(headers.items() if isinstance(headers, dict) else headers)]
    async with httpx.AsyncClient(base_url=site.url, headers=given, transport=transport, timeout=30) as client:
        yield client


@pytest.mark.slow
async def test_proxy_names_callers_without_changing_their_rights() -> None:
    async with serving(one_agent(ASK, "Done."), **BEHIND) as site, await site.caller("alice") as alice:
        run_id = (await start(alice))["run_id"]
        for user, status in (("alice", 200), ("bob", 404)):
            async with calling(site, {USER: user}) as client:
                assert (await client.get(f"/api/runs/{run_id}")).status_code == status
        async with calling(site, {USER: "bob", "X-Role": "admin"}) as admin:
            assert (await admin.get(f"/api/runs/{run_id}")).json()["user"] == "alice"


@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.3"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"X-Forwarded-For": PROXY},
        {"X-Forwarded-For": f"{PROXY}, 127.0.0.1"},
        {"X-Real-IP": PROXY},
        {"Forwarded": f"for={PROXY}"},
        {"X-Forwarded-Host": "inbox.example.org", "X-Forwarded-Proto": "https", "Via": PROXY},
        {"Authorization": "Basic YWxpY2U6eA=="},
        {"Authorization": "Bearer upcall_wrong"},
        {"Cookie": "upcall-session-80=upcall_wrong"},
    ],
)
async def test_header_from_elsewhere_lets_nobody_in(more: dict[str, str], address: str) -> None:
    async with serving(one_agent(), **BEHIND) as site, calling(site, {USER: "alice", **more}, address) as client:
        assert (await client.get("/api/runs")).status_code == 401
        assert (await client.get("/", headers={"Accept": "text/html"})).headers["location"] == "/login"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 401),
        ([(USER, "")], 401),
        ([("X_Forwarded_User", "alice")], 401),
        ([("x-FORWARDED-user", "alice")], 200),
        ([(USER, "alice"), ("X_Forwarded_User", "bob")], 200),
        ([(USER, "alice"), (USER, "bob")], 403),
        ([(USER, "alice"), (USER.lower(), "alice")], 403),
        ([(USER, ""), (USER, "alice")], 403),
        ([(USER, "alice, bob")], 403),
        ([(USER, "role:legal")], 403),
        ([(USER, "x" * 201)], 403),
        ([(USER, b"\xff\xfe")], 403),
        ([(USER, b"al\xe2\x80\xaeice")], 403),
        ([(USER, "Zoë".encode())], 200),
        ([(USER, "alice"), ("X-Role", "legal")], 200),
        ([(USER, "alice"), ("X-Role", "root")], 403),
        ([(USER, "alice"), ("X-Role", "legal"), ("X-Role", "admin")], 403),
        ([("X-Role", "admin")], 401),
        ([(USER, "alice"), ("Authorization", "Bearer of-the-proxy")], 200),
    ],
)
async def test_header_tricks_of_a_caller_behind_the_proxy(headers: Any, status: int) -> None:
    async with serving(one_agent(), **BEHIND) as site, calling(site, headers) as client:
        assert (await client.get("/api/runs")).status_code == status


@pytest.mark.slow
async def test_proxy_leaves_the_forms_of_our_pages_valid() -> None:
    async with serving(one_agent(ASK, "Done."), **BEHIND) as site, calling(site, {USER: "alice"}) as alice:
        form = {"task": "Build it", "key": "k"}
        assert (await alice.post("/start", data=form)).status_code == 403
        page = (await alice.get("/start")).text
        token = re.findall(r'name="csrf" value="(\w+)"', page)[0]
        wrong = {"Origin": "https://evil.example"}
        assert (await alice.post("/start", data={**form, "csrf": token}, headers=wrong)).status_code == 403
        async with calling(site, {USER: "bob"}) as bob:
            assert (await bob.post("/start", data={**form, "csrf": token})).status_code == 403
        right = {"Origin": "https://inbox.example.org"}
        begun = await alice.post("/start", data={**form, "csrf": token}, headers=right)
        assert begun.status_code == 303
        run = await settle(alice, begun.headers["location"].rpartition("/")[2])
        assert (run["user"], run["status"]) == ("alice", "awaiting_clarification")
        assert (await alice.post(f"/api/runs/{run['run_id']}/cancel")).status_code == 403


@pytest.mark.slow
async def test_stream_behind_the_proxy_stays_open() -> None:
    async with serving(one_agent("Done."), **BEHIND) as site, calling(site, {USER: "alice"}) as alice:
        headers = {"X-CSRF-Token": re.findall(r'name="csrf" value="(\w+)"', (await alice.get("/start")).text)[0]}
        run_id = (await alice.post("/api/runs", json={"task": "Build it"}, headers=headers)).json()["run_id"]
        assert (await read_events(alice, f"/api/runs/{run_id}/events"))[-1].kind == "end"


@pytest.mark.slow
async def test_programs_behind_the_proxy_show_tokens() -> None:
    async with serving(one_agent(), **BEHIND) as site, await site.caller("bob") as bob:
        headers = {USER: "alice", "Accept": "application/json, text/event-stream"}
        async with calling(site, headers) as client:
            assert (await client.post("/mcp", json={})).status_code == 401
        async with calling(site, {**headers, "Authorization": bob.headers["Authorization"]}) as program:
            started = await program.post("/api/runs", json={"task": "Build it"})
            assert (await settle(program, started.json()["run_id"]))["user"] == "bob"


@pytest.mark.slow
async def test_proxy_users_have_rate_limits_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "REQUESTS_AT_ONCE", 3.0)
    monkeypatch.setattr(guard, "REQUESTS_PER_SECOND", 0.01)
    async with serving(one_agent(), **BEHIND) as site:
        seen = list[int]()
        for user in ("eve", "alice"):
            async with calling(site, {USER: user}) as client:
                seen += [(await client.get("/api/runs")).status_code for _ in range(4)]
        assert seen == [200, 200, 200, 429] * 2


@pytest.mark.parametrize("public", ["https://inbox.example.org", "https://Inbox.example.org:443/"])
@pytest.mark.slow
async def test_session_is_secure_where_browsers_come_by_https(public: str) -> None:
    async with (
        serving(one_agent(), server={**SERVER, "public_url": public}) as site,
        await site.caller("alice") as alice,
    ):
        form = {"token": alice.headers["Authorization"].removeprefix("Bearer ")}
        cookies = []
        for host in ("inbox.example.org", site.url.removeprefix("http://")):
            async with calling(site, {}, "127.0.0.1", host) as client:
                cookies.append((await client.post("/login", data=form)).headers["set-cookie"])
        assert ["Secure" in each for each in cookies] == [True, False]


@pytest.mark.parametrize("proxy", [None, SETTING])
async def test_proxy_counts_as_authentication_at_any_address(proxy: Any) -> None:
    service = Service(Settings.read(server={"trusted_proxy": proxy}), team=one_agent())
    try:
        refused = None
        await serve(service, "192.0.2.1", 0, operator="x", show_link=print)
    except ConfigurationError as error:
        refused = str(error)
    await service.close()
    assert refused is not None
    assert ("no tokens" in refused, "Cannot listen" in refused) == (proxy is None, proxy is not None)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"networks": []}, "at least 1"),
        ({"networks": ["0.0.0.0/0"]}, "every address"),
        ({"networks": ["::/0"]}, "every address"),
        ({"networks": ["proxy.example.org"]}, "networks"),
        ({"networks": ["10.0.0.1"], "user_header": "Cookie"}, "says something else"),
        ({"networks": ["10.0.0.1"], "user_header": "X User:"}, "user_header"),
        ({"networks": ["10.0.0.1"], "header": "X"}, "unknown setting 'header' in server.trusted_proxy"),
        ({"networks": ["10.0.0.1"], "role_header": "x-forwarded-user"}, "a name would be a role"),
    ],
)
def test_wrong_proxy_is_refused_in_a_line(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text) as refused:
        Settings.read(server={"trusted_proxy": wrong})
    assert "\n" not in str(refused.value)
