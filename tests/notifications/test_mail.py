"""Mail about questions, to a real SMTP server on loopback."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from html import unescape
from typing import Any

import httpx
import pytest
from aiosmtpd.controller import Controller
from receivers import Clock
from scenario import TASK, upcall
from settings_files import write_settings
from stores import FIRST

from upcall import Settings
from upcall.errors import ConfigurationError
from upcall.notifications.announcement import listen_for
from upcall.notifications.config import Notifications, NotificationsSettings, notifications_of
from upcall.notifications.outbox import Outbox
from upcall.notifications.sender import Sender
from upcall.questions.question import Option, Question
from upcall.questions.record import QuestionRecord, QuestionRecords
from upcall.questions.states import QuestionState
from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.storage.store import RunStore

PUBLIC = "https://inbox.example.org"
WRITTEN = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></blockquote><a href=https://evil.example>Answer here</a>",
    "{{ 7 * 7 }}{% for each in question %}x{% endfor %}",
    "x\r\nBcc: eve@example.org\r\n\r\nspoofed",
    "x\nFrom: eve@example.org",
    "=?utf-8?b?PHNjcmlwdD4=?= =?utf-8?q?=0ABcc:_eve@example.org?=",
    "a\u202e\x1b[2J\u2028Bcc: eve@example.org",
    "x" * 300,
]


class Postbox:
    """An SMTP server's handler: what it took, and what it says to each mail."""

    def __init__(self, says: Sequence[str]) -> None:
        self.says, self.recipients = [*says], list[str]()
        self.mails = list[EmailMessage]()

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        text = self.says.pop(0) if self.says else "250 OK"
        if text.startswith("250"):
            self.recipients += envelope.rcpt_tos
            found = message_from_bytes(envelope.content, policy=policy.default)
            assert isinstance(found, EmailMessage)
            self.mails.append(found)
        return text


class OnAnyPort(Controller):
    """A server that finds a free port itself."""

    def _trigger_server(self) -> None:
        assert isinstance(self.server, asyncio.Server)
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()  # type: ignore[no-untyped-call]  # aiosmtpd has no annotation there


@contextmanager
def postbox(*expected: str) -> Iterator[tuple[Postbox, dict[str, Any]]]:
    """Yield a server, and the setting that names it."""
    box = Postbox(expected)
    server = OnAnyPort(box, hostname="127.0.0.1", port=0, server_hostname="localhost")
    server.start()
    setting = {"host": "127.0.0.1", "port": server.port, "security": "none", "sender": "upcall@example.org"}
    try:
        yield box, {**setting, "addresses": {"alice": "alice@example.org", "bob": "bob@example.org"}}
    finally:
        server.stop()


class Letters:
    """A store that sends mail of its runs."""

    def __init__(self, setting: dict[str, Any], location: str = "runs.db", public_url: str | None = PUBLIC) -> None:
        roles = {"legal": ["bob", "carol"]}
        self.settings = Settings.read(
            notifications={"mail": setting}, users={"roles": roles}, server={"public_url": public_url}
        )
        self.delivered: Notifications = notifications_of(self.settings)
        self.store, self.clock = (
            RunStore(location, listeners=lambda: [each] if (each := listen_for(self.delivered)) else []),
            Clock(),
        )

    async def ask(self, question: Question, run_id: str = "r1", task: str = "do it") -> None:
        """Store a run of alice that asks this."""
        records = QuestionRecords((QuestionRecord(question=question, state=QuestionState.OPEN),))
        run = Run(id=run_id, task=task, user="alice", status=RunStatus.AWAITING_CLARIFICATION, records=records)
        await self.store.create(run, FIRST)

    async def send(self) -> int:
        """Send what is due, after a long time."""
        self.clock.now += 100_000
        return await Sender(self.store, self.delivered, clock=self.clock).send_due()


def parts(mail: EmailMessage) -> tuple[str, str]:
    """Return the text and the HTML of a mail."""
    found = [mail.get_body([kind]) for kind in ("plain", "html")]
    text, html = (each.get_content() for each in found if each is not None)
    return text, html


@pytest.mark.parametrize(
    ("assignee", "whom"), [(None, "alice"), ("bob", "bob"), ("role:legal", "bob"), ("carol", None), ("role:x", None)]
)
async def test_question_goes_to_whom_it_is_for(location: str, assignee: str | None, whom: str | None) -> None:
    with postbox() as (box, setting):
        letters = Letters(setting, location)
        await letters.ask(Question(id="q1", question="Which?", assignee=assignee), task="the task")
        await letters.send()
        assert box.recipients == ([f"{whom}@example.org"] if whom else [])
        for mail in box.mails:
            assert (mail["subject"], "Which?" in parts(mail)[0]) == ("agent asks: Which?", True)
            assert ["the task" in each for each in parts(mail)] == [whom == "alice"] * 2
            assert all(f"{PUBLIC}/runs/r1#q-q1" in each for each in parts(mail))


async def test_question_that_was_answered_meanwhile_is_not_sent() -> None:
    with postbox() as (box, setting):
        letters = Letters(setting)
        await letters.ask(Question(id="q1", question="Which?"))
        stored = await letters.store.load("r1")
        await letters.store.save(stored, stored.run.model_copy(update={"records": QuestionRecords(())}))
        await letters.send()
        assert ([each.state for each in await Outbox(letters.store.database).list()], box.mails) == (["dropped"], [])


@pytest.mark.parametrize(
    ("expected", "mails", "state"),
    [
        (["451 later"], 1, "delivered"),
        (["554 no"] * 10, 0, "failed"),
    ],
)
async def test_mail_that_was_refused_is_resent_unchanged(expected: list[str], mails: int, state: str) -> None:
    with postbox(*expected) as (box, setting):
        letters = Letters(setting)
        await letters.ask(Question(id="q1", question="Which?"))
        for _ in range(11):
            await letters.send()
        (found,) = await Outbox(letters.store.database).list()
        assert (len(box.mails), found.state) == (mails, state)
        assert all(each["message-id"] == f"<{found.id}@example.org>" for each in box.mails)


@pytest.mark.parametrize("written", WRITTEN)
async def test_nothing_written_becomes_a_header_or_markup(written: str) -> None:
    with postbox() as (box, setting):
        letters = Letters({**setting, "addresses": {written: "alice@example.org"}})
        options = (Option(label=f"l {written}"[:400]), Option(label="other"))
        fields = {"question": f"Q {written}", "context": f"C {written}", "options": options, "assignee": written}
        question = Question(id="q1", path=(f"agent {written}",), **fields)
        await letters.ask(question, task=written)
        await letters.send()
        (mail,) = box.mails
        assert box.recipients == ["alice@example.org"]
        assert sorted({each.lower() for each in mail}) == sorted(
            ["from", "to", "subject", "message-id", "auto-submitted", "mime-version", "content-type"]
        )
        text, html = parts(mail)
        tags = {each.lower() for each in re.findall(r"<\s*/?\s*([a-z!]+)", html, re.IGNORECASE)}
        assert tags <= {"!doctype", "html", "head", "meta", "title", "body", "p", "blockquote", "a"}
        assert re.findall(r'href="([^"]*)"', html) == [f"{PUBLIC}/runs/r1#q-q1"]
        assert not {"\u202e", "\x1b"} & {*text, *unescape(html), *mail["subject"]}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_link_scanner_answers_nothing(method: str) -> None:
    pytest.importorskip("upcall.server")
    from services import ASK, one_agent, serving, settle, start

    with postbox() as (box, setting):
        async with serving(
            one_agent(ASK, "Done."), notifications={"mail": setting}, server={"public_url": PUBLIC}
        ) as site:
            async with await site.caller("alice") as alice:
                asked = await start(alice)
                while not box.mails:
                    await settle(alice, asked["run_id"])
            links = {each for part in parts(box.mails[0]) for each in re.findall(r'https?://[^\s"<]+', part)}
            assert links
            assert not any("token" in each or "answer" in each for each in links)
            async with await site.browser("alice") as browser, httpx.AsyncClient() as stranger:
                for link in links:
                    path = link.removeprefix(PUBLIC)
                    seen = await browser.request(method, path)
                    assert (await stranger.request(method, site.url + path)).status_code in (303, 401, 405)
                    assert seen.status_code in (200, 405)
                run = (await browser.get(f"/api/runs/{asked['run_id']}")).json()
                assert (run["status"], len(run["questions"])) == ("awaiting_clarification", 1)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"sender": "x@example.org\r\nBcc: eve@example.org"}, "mail address"),
        ({"addresses": {"alice": "alice"}}, "mail address"),
        ({"addresses": {"alice": "a@b.org, eve@b.org"}}, "mail address"),
        ({"password": "hunter2"}, "a user and a password"),
        ({"port": 0}, "port"),
        ({"hots": "x"}, "unknown setting 'hots' in notifications.mail; did you mean"),
    ],
)
def test_wrong_mail_setting_is_refused_in_a_line(wrong: dict[str, Any], text: str) -> None:
    right = {"host": "localhost", "sender": "upcall@example.org", "addresses": {}}
    with pytest.raises(ConfigurationError, match=text) as refused:
        Settings.read(notifications={"mail": {**right, **wrong}})
    assert "hunter2" not in str(refused.value)


def test_password_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    write_settings("notifications: {mail: {host: localhost, user: me, sender: a@example.org, addresses: {}}}\n")
    monkeypatch.setenv("UPCALL_NOTIFICATIONS__MAIL__PASSWORD", "hunter2")
    settings = Settings.read()
    mail = settings.section(NotificationsSettings).mail
    assert mail is not None
    password = mail.password
    assert password is not None
    assert (password.get_secret_value(), "hunter2" in repr(settings)) == ("hunter2", False)
    assert settings.warnings == ()


def test_damaged_setting_is_refused_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPCALL_NOTIFICATIONS__MAIL", '{"password": "hunter2"')
    with pytest.raises(ConfigurationError, match="written as JSON") as refused:
        Settings.read()
    assert "hunter2" not in str(refused.value)


@pytest.mark.slow
def test_mail_is_sent_by_the_command() -> None:
    with postbox() as (box, setting):
        given = {"UPCALL_NOTIFICATIONS__MAIL": json.dumps(setting), "UPCALL_USERS__USER": "alice"}
        upcall("run", TASK, "--detach", "--model", "demo", **given)
        upcall("deliveries", "send", **given)
        assert [each["to"] for each in box.mails] == ["alice@example.org"]
        assert "upcall inbox" in parts(box.mails[0])[0]
