"""The deliveries for a change of a run: made with the change, stored with it, sent later."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from upcall import identity
from upcall.notifications.config import EventName, Notifications
from upcall.policy.routing import ROLE
from upcall.questions.question import Question
from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.storage.outbox import Message
from upcall.storage.store import Announce, LogEntries

MAIL = "mail"
WEBHOOK = "webhook:"

_STATUSES: dict[str, EventName] = {
    RunStatus.AWAITING_CLARIFICATION: "run.waiting",
    RunStatus.COMPLETED: "run.completed",
    RunStatus.FAILED: "run.failed",
    RunStatus.CANCELLED: "run.cancelled",
    RunStatus.EXPIRED: "run.expired",
}
_KINDS: dict[str, EventName] = {
    "started": "run.started",
    "asked": "question.asked",
    "assigned": "question.assigned",
    "answered": "question.answered",
    "overdue": "question.overdue",
    "reminded": "question.reminded",
}


@dataclass(frozen=True)
class _Event:
    name: EventName
    user: str | None
    detail: Mapping[str, Any]


def make_announce(notifications: Notifications) -> Announce | None:
    """Return the function that gives the store the messages of a change; None if nobody is to be notified."""
    if not notifications.is_any:
        return None

    def announce(run: Run, entries: LogEntries) -> Sequence[Message]:
        found = list[Message]()
        for event in _find_events(entries):
            found += _make_webhooks(notifications, run, event)
            found += _make_mails(notifications, run, event)
        return found

    return announce


def _make_webhooks(notifications: Notifications, run: Run, event: _Event) -> Iterator[Message]:
    for name, webhook in notifications.webhooks.items():
        if event.name in webhook.events:
            yield Message(WEBHOOK + name, "", event.name, _dump(run, event, texts=webhook.texts))


def _make_mails(notifications: Notifications, run: Run, event: _Event) -> Iterator[Message]:
    mail, question = notifications.mail, _find_question(run, event)
    if mail is None or question is None or event.name not in mail.events:
        return
    for user in _list_recipients(run, question, notifications.roles):
        if user in mail.addresses:
            yield Message(MAIL, user, event.name, question.id)


def _find_events(entries: LogEntries) -> Iterator[_Event]:
    for kind, user, detail in entries:
        name = _STATUSES.get(detail["to"]) if kind == "status" else _KINDS.get(kind)
        if name is not None:
            yield _Event(name, user, detail)


def _find_question(run: Run, event: _Event) -> Question | None:
    record = run.records.get(event.detail.get("question", ""))
    return record.question if record is not None else None


def _list_recipients(run: Run, question: Question, roles: Mapping[str, Collection[str]]) -> Collection[str]:
    """List the users that a question is for."""
    if question.assignee is None:
        return [run.user] if run.user is not None else []
    if question.assignee.startswith(ROLE):
        return dict.fromkeys(roles.get(question.assignee.removeprefix(ROLE), ()))
    return [question.assignee]


def _dump(run: Run, event: _Event, *, texts: bool) -> str:
    """Return the body of a webhook. It never contains answers; the question and task only with `texts`."""
    data: dict[str, Any] = {"run_id": run.id, "status": run.status.value, "user": run.user}
    if texts:
        data["task"] = run.task
    question = _find_question(run, event)
    if question is not None:
        data["question"] = {
            "id": question.id,
            "path": list(question.path),
            "assignee": question.assignee,
            "clarification_type": question.clarification_type.value,
            "secret": question.secret,
            "expires_at": question.expires_at and question.expires_at.isoformat(),
        }
        if texts:
            options = [each.label for each in question.options]
            data["question"] |= {"question": question.question, "context": question.context, "options": options}
    if event.name == "question.answered":
        data["answer"] = {"outcome": event.detail["outcome"], "by": event.detail["by"], "user": event.user}
    body = {"type": event.name, "timestamp": identity.now().isoformat(), "data": data}
    return json.dumps(body, separators=(",", ":"))
