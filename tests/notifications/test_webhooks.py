"""Webhooks, from the change of a run in a real store to a real receiver on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from postgres import Server as Postgres
from receivers import SECRET, Hooks, receiving, verify
from scenario import TASK, upcall
from settings_files import write_settings
from stores import FIRST
from web_servers import Request, Sent

from upcall import Settings
from upcall.errors import ConfigurationError
from upcall.notifications import sender
from upcall.notifications.attempt import Attempt
from upcall.notifications.config import NotificationsSettings
from upcall.notifications.outbox import DeliveryState, Outbox
from upcall.run_reader import RunReader
from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.storage.connection import Connection
from upcall.storage.export import export_run
from upcall.storage.maintenance import prune
from upcall.subjects.external import describe_question

LONG = 100_000.0
"""Longer than any wait between two attempts."""


async def test_change_is_delivered_signed(location: str) -> None:
    other = "whsec_" + "A" * 44
    with receiving() as server:
        hooks = Hooks(location, server, secret=f"{SECRET} {other}")
        stored = await hooks.store.create(Run(id="r1", task="do it", user="alice"), FIRST)
        assert await hooks.send() == 1
        (request,) = server.requests
        body = verify(request)
        assert verify(request, other) == body
        assert body["data"] == {"run_id": stored.run.id, "status": "initializing", "user": "alice"}
        assert (await hooks.send(later=LONG), len(server.requests)) == (0, 1)
        assert [each.state for each in await Outbox(hooks.store.database).list()] == [DeliveryState.DELIVERED]


async def test_question_of_an_asker_outside_is_delivered(location: str) -> None:
    with receiving() as server:
        hooks = Hooks(location, server)
        external = RunReader(Settings.read(None), hooks.store).external
        ticket = await external.ask(describe_question("Which port?", path=["lead", "coder"]), run="shop")
        await external.answer(ticket, "80")
        await hooks.send()
        assert hooks.events == ["run.started", "question.asked", "question.answered", "run.completed"]
        asked = verify(server.requests[1])["data"]["question"]
    assert (asked["id"], asked["path"]) == (ticket.question_id, ["lead", "coder"])


async def test_webhook_delivery_and_change_are_stored_together(location: str) -> None:
    def fail(_: Connection) -> None:
        raise KeyboardInterrupt

    with receiving() as server:
        hooks = Hooks(location, server)
        stored = await hooks.store.create(Run(id="r1", task="do it"), FIRST)
        with pytest.raises(KeyboardInterrupt):
            await hooks.store.save(stored, stored.run.model_copy(update={"status": RunStatus.FAILED}), also=fail)
        assert [each.event for each in await Outbox(hooks.store.database).list()] == ["run.started"]


async def test_webhook_deliveries_of_a_run_keep_their_order(location: str) -> None:
    with receiving([Sent(status=500), Sent()]) as server:
        hooks = Hooks(location, server)
        stored = await hooks.store.create(Run(id="r1", task="do it"), FIRST)
        await hooks.store.save(stored, stored.run.model_copy(update={"status": RunStatus.FAILED}))
        await hooks.send()
        await hooks.store.create(Run(id="r2", task="do it"), FIRST)
        await hooks.send()
        assert [verify(each)["data"]["run_id"] for each in server.requests] == ["r1", "r2"]
        await hooks.send(later=LONG)
        assert hooks.events == ["run.started", "run.started", "run.started", "run.failed"]
        first, _, again, _ = (each.headers["webhook-id"] for each in server.requests)
        assert first == again


@pytest.mark.parametrize(
    ("sent", "state", "problem", "waits"),
    [
        (Sent(status=500), "pending", "HTTP 500", 5),
        (Sent(status=404), "pending", "HTTP 404", 5),
        (Sent(status=410), "failed", "HTTP 410", 0),
        (Sent(status=429, headers={"Retry-After": "3600"}), "pending", "HTTP 429", 3600),
        (Sent(status=503, headers={"Retry-After": "1e99"}), "pending", "HTTP 503", 86_400),
        (Sent(status=429, headers={"Retry-After": "nan"}), "pending", "HTTP 429", 5),
        (Sent(status=429, headers={"Retry-After": "1 Jan 99999999999999999999 00:00 GMT"}), "pending", "429", 5),
        (Sent(status=302, headers={"Location": "/elsewhere"}), "pending", "redirects are not followed", 5),
    ],
)
async def test_what_was_not_taken_is_tried_again_later(sent: Sent, state: str, problem: str, waits: float) -> None:
    with receiving(sent) as server:
        hooks = Hooks("runs.db", server)
        await hooks.store.create(Run(id="r1", task="do it"), FIRST)
        await hooks.send()
        (found,) = await Outbox(hooks.store.database).list()
        assert (found.state, problem in (found.problem or "")) == (state, True)
        assert [each.path for each in server.requests] == ["/hook"]
        assert waits <= found.due_at - hooks.clock.now <= waits * 1.2 + 6


async def test_fault_in_one_attempt_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> Attempt:
        raise ValueError(SECRET)

    with receiving() as server:
        hooks = Hooks("runs.db", server, tries=1)
        stored = await hooks.store.create(Run(id="r1", task="do it"), FIRST)
        await hooks.store.save(stored, stored.run.model_copy(update={"status": RunStatus.FAILED}))
        with monkeypatch.context() as patched:
            patched.setattr(sender, "post_webhook", fail)
            assert await hooks.send() == 2
        assert {each.problem for each in await Outbox(hooks.store.database).list()} == {"a fault in upcall: ValueError"}


async def test_webhook_host_that_is_impossible_is_one_line() -> None:
    with receiving() as server:
        hooks = Hooks("runs.db", server, url="http://xn--zzzzzz/")
        await hooks.store.create(Run(id="r1", task="do it"), FIRST)
        await hooks.send()
    assert [each.problem for each in await Outbox(hooks.store.database).list()] == ["cannot be reached: IDNAError"]


@pytest.mark.parametrize("hangs", [True, False])
async def test_webhook_receiver_without_an_answer_is_one_line(hangs: bool) -> None:
    silent = socket.create_server(("127.0.0.1", 0))  # It accepts nothing; the kernel does.
    port = silent.getsockname()[1]
    if not hangs:
        silent.close()
    with silent, receiving() as server:
        hooks = Hooks("runs.db", server, url=f"http://127.0.0.1:{port}/", timeout=0.2)
        await hooks.store.create(Run(id="r1", task="do it"), FIRST)
        await hooks.send()
    (found,) = await Outbox(hooks.store.database).list()
    assert found.problem == ("no answer within 0.2 s" if hangs else "cannot be reached: ConnectError")


async def test_webhook_given_up_spares_the_next_and_retries(location: str) -> None:
    with receiving([*[Sent(status=500)] * 2, Sent()]) as server:
        hooks = Hooks(location, server, tries=2)
        stored = await hooks.store.create(Run(id="r1", task="do it"), FIRST)
        await hooks.store.save(stored, stored.run.model_copy(update={"status": RunStatus.FAILED}))
        for _ in range(3):
            await hooks.send(later=LONG)
        assert hooks.events == ["run.started", "run.started", "run.failed"]
        assert await Outbox(hooks.store.database).retry() == 1
        await hooks.send()
        assert (hooks.events[-1], len({each.headers["webhook-id"] for each in server.requests})) == ("run.started", 2)


async def test_two_senders_do_not_send_the_same(location: str) -> None:
    with receiving() as server:
        hooks = Hooks(location, server)
        for number in range(20):
            await hooks.store.create(Run(id=f"r{number}", task="do it"), FIRST)
        attempts = await asyncio.gather(*(hooks.send() for _ in range(4)))
        assert [each.problem for each in await Outbox(hooks.store.database).list()] == [None] * 20
        assert (sum(attempts), len({each.headers["webhook-id"] for each in server.requests})) == (20, 20)


@pytest.mark.slow
async def test_webhook_killed_before_recording_resends_its_id() -> None:
    workers = list[subprocess.Popen[bytes]]()

    def kill(_: Request) -> Sent:
        if workers:
            workers.pop().kill()
        return Sent()

    with receiving(kill) as server:
        write_settings(f"notifications: {{webhooks: {{crm: {{url: '{server.url}', secret: {SECRET}}}}}}}\n")
        hooks = Hooks("upcall.db", server)
        await hooks.store.create(Run(id="r1", task="do it"), FIRST)
        workers.append(subprocess.Popen([sys.executable, "-m", "upcall", "deliveries", "send"]))
        assert await asyncio.to_thread(workers[0].wait) == -signal.SIGKILL
        hooks.clock.now = 0  # The claim of who died stands: it may still be at it.
        assert await hooks.send() == 0
        hooks.clock.now = 2e9
        assert await hooks.send() == 1
        first, again = server.requests
        assert (first.headers["webhook-id"], first.body) == (again.headers["webhook-id"], again.body)


async def test_run_takes_its_deliveries_along() -> None:
    with receiving() as server:
        hooks = Hooks("runs.db", server)
        await hooks.store.create(Run(id="r1", task="do it", status=RunStatus.CANCELLED), FIRST)
        assert [each.event for each in await Outbox(hooks.store.database).list()] == ["run.started"]
        assert "webhook" not in json.dumps(await export_run(hooks.store, "r1"), default=str)
        assert (await prune(hooks.store, statuses={RunStatus.CANCELLED})).runs == ["r1"]
        assert await Outbox(hooks.store.database).list() == []


@pytest.mark.parametrize("texts", [True, False])
@pytest.mark.slow
async def test_service_shows_a_run_from_start_to_end(texts: bool) -> None:
    pytest.importorskip("upcall.server")
    from services import ASK, one_agent, serving, settle, start

    with receiving() as server:
        webhook = {"url": server.url, "secret": SECRET, "texts": texts}
        async with (
            serving(one_agent(ASK, "Done."), notifications={"webhooks": {"crm": webhook}}) as site,
            await site.caller("alice") as alice,
        ):
            asked = await start(alice)
            given = {"answers": {asked["questions"][0]["id"]: "Express yourself"}}
            await alice.post(f"/api/runs/{asked['run_id']}/answers", json=given)
            await settle(alice, asked["run_id"])
            async with asyncio.timeout(20):
                while len(server.requests) < 5:
                    await asyncio.sleep(0.05)
            await site.service.store.close()
        bodies = [verify(each) for each in server.requests]
        assert [each["type"] for each in bodies] == [
            *("run.started", "question.asked", "run.waiting", "question.answered", "run.completed")
        ]
        text = json.dumps(bodies)
        assert ("Which framework?" in text, "Express yourself" in text) == (texts, False)
        assert bodies[3]["data"]["answer"] == {"outcome": "answered", "by": "human", "user": "alice"}
        kept = b"".join(each.read_bytes() for each in Path().glob("*.db*"))
        assert (b"run.completed" in kept, SECRET.encode() in kept) == (True, False)


@pytest.mark.slow
def test_workers_of_a_fleet_send_each_delivery_once(postgres: Postgres) -> None:
    pytest.importorskip("upcall.workers")
    location = postgres.new_database()
    with receiving() as server:
        write_settings(
            f"store: {{path: '{location}', lease_seconds: 2}}\n"
            f"notifications: {{webhooks: {{crm: {{url: '{server.url}', secret: {SECRET}}}}}}}\n"
        )
        for _ in range(4):
            upcall("run", TASK, "--submit", "--model", "demo")
        command = [sys.executable, "-m", "upcall", "worker"]
        workers = [subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ}) for _ in range(2)]
        try:
            for _ in range(400):
                if len(server.requests) >= 12:  # Of each run: started, asked, waiting.
                    break
                signal.sigtimedwait([], 0.1)
        finally:
            for each in workers:
                each.terminate()
                each.wait(30)
        ids = [each.headers["webhook-id"] for each in server.requests]
        assert len(ids) == len({*ids}) >= 12


@pytest.mark.slow
def test_command_lists_retries_and_sends() -> None:
    with receiving([Sent(status=410), Sent()]) as server:
        write_settings(
            "notifications: {webhooks: {crm: "
            f"{{url: '{server.url}', secret: {SECRET}, events: [question.asked]}}}}}}\n"
        )
        upcall("run", TASK, "--detach", "--model", "demo")
        (waiting,) = upcall("deliveries", "list", "--state", "pending", "--json").json
        assert isinstance(waiting, dict)
        assert (waiting["event"], waiting["target"]) == ("question.asked", "webhook:crm")
        listed = upcall("deliveries", "list", "--run", str(waiting["run_id"])[:6], "--json").json
        assert listed == [waiting]
        assert "Unknown run" in upcall("deliveries", "list", "--run", "mistyped").err
        assert "less than or equal" in upcall("deliveries", "list", "--limit", "9" * 20).err
        assert upcall("deliveries", "send").out == "Attempts made: 1\n"
        assert "failed, tried 1 times (HTTP 410)" in upcall("deliveries", "list").out
        assert "none was changed" in upcall("deliveries", "retry", "msg_other").err
        assert upcall("deliveries", "retry", waiting["id"], "--json").json == {"retried": 1}
        upcall("deliveries", "send")
        assert [each.headers["webhook-id"] for each in server.requests] == [waiting["id"]] * 2


@pytest.mark.parametrize(
    ("webhook", "text"),
    [
        ({"url": "https://a:hunter2@example.org"}, "without user and password"),
        ({"url": "file:///etc/passwd"}, "not an address"),
        ({"url": "http://"}, "not an address"),
        ({"secret": "hunter2hunter2"}, "whsec_"),
        ({"secret": "whsec_aGk="}, "24 to 64 random bytes"),
        ({"events": ["run.sleeping"]}, "run.started"),
        ({"sercet": "x"}, "unknown setting 'sercet' in notifications.webhooks.crm; did you mean"),
    ],
)
def test_webhook_that_is_wrong_is_refused_without_secrets(webhook: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text) as refused:
        Settings.read(notifications={"webhooks": {"crm": {"url": "https://example.org", "secret": SECRET, **webhook}}})
    assert not {"hunter2", SECRET} & {word for word in ("hunter2", SECRET) if word in str(refused.value)}
    assert "\n" not in str(refused.value)


def test_secret_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    write_settings("notifications: {webhooks: {crm: {url: 'https://example.org'}}}\n")
    monkeypatch.setenv("UPCALL_NOTIFICATIONS__WEBHOOKS__CRM__SECRET", SECRET)
    settings = Settings.read()
    assert settings.section(NotificationsSettings).webhooks["crm"].secret.get_secret_value() == SECRET
    assert (SECRET in repr(settings), settings.warnings) == (False, ())
