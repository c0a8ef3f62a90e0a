"""The deliveries for a change of a run: made with the change, stored with it, sent later."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from upcall import identity
from upcall.notifications.config import EventName, Notifications, NotifiedSettings, notifications_of
from upcall.notifications.outbox import Message, insert_messages
from upcall.policy.routing import ROLE
from upcall.questions.question import Question
from upcall.runs.events import (
    LogEvent,
    QuestionAnswered,
    QuestionAsked,
    QuestionAssigned,
    QuestionOverdue,
    QuestionReminded,
    RunStarted,
    StatusChanged,
)
from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.storage.connection import Work
from upcall.storage.store import Listener

MAIL = "mail"
WEBHOOK = "webhook:"

_STATUSES: dict[str, EventName] = {
    RunStatus.AWAITING_CLARIFICATION: "run.waiting",
    RunStatus.COMPLETED: "run.completed",
    RunStatus.FAILED: "run.failed",
    RunStatus.CANCELLED: "run.cancelled",
    RunStatus.EXPIRED: "run.expired",
}
_EVENTS: dict[type[LogEvent], EventName] = {
    RunStarted: "run.started",
    QuestionAsked: "question.asked",
    QuestionAssigned: "question.assigned",
    QuestionAnswered: "question.answered",
    QuestionOverdue: "question.overdue",
    QuestionReminded: "question.reminded",
}


def make_listener(settings: NotifiedSettings) -> Listener | None:
    """Return the listener that stores the messages about a change with it; None if nobody is to be notified."""
    return listen_for(notifications_of(settings))


def listen_for(notifications: Notifications) -> Listener | None:
    """Return the listener for these notifications; None if nobody is to be notified."""
    if not notifications.is_any:
        return None

    def announce(run: Run, events: Iterable[LogEvent]) -> Work[object]:
        found = list[Message]()
        for event in () if run.config.trial else events:
            if (name := name_event(event)) is not None:
                found += _make_webhooks(notifications, run, name, event)
                found += _make_mails(notifications, run, name, event)
        return partial(insert_messages, run_id=run.id, messages=found)

    return announce


def name_event(event: LogEvent) -> EventName | None:
    """Return the name under which others are notified of an event; None if they are not."""
    return _STATUSES.get(event.after) if isinstance(event, StatusChanged) else _EVENTS.get(type(event))


def _make_webhooks(notifications: Notifications, run: Run, name: EventName, event: LogEvent) -> Iterator[Message]:
    for target, webhook in notifications.webhooks.items():
        if name in webhook.events:
            yield Message(WEBHOOK + target, "", name, _dump(run, name, event, texts=webhook.texts))


def _make_mails(notifications: Notifications, run: Run, name: EventName, event: LogEvent) -> Iterator[Message]:
    mail, question = notifications.mail, _find_question(run, event)
    if mail is None or question is None or name not in mail.events:
        return
    for user in _list_recipients(run, question, notifications.roles):
        if user in mail.addresses:
            yield Message(MAIL, user, name, question.id)


def _find_question(run: Run, event: LogEvent) -> Question | None:
    match event:
        case (
            QuestionAsked(question=found)
            | QuestionAssigned(question=found)
            | QuestionAnswered(question=found)
            | QuestionOverdue(question=found)
            | QuestionReminded(question=found)
        ):
            record = run.records.get(found)
            return record.question if record is not None else None
        case _:
            return None


def _list_recipients(run: Run, question: Question, roles: Mapping[str, Collection[str]]) -> Collection[str]:
    """List the users that a question is for."""
    if question.assignee is None:
        return [run.user] if run.user is not None else []
    if question.assignee.startswith(ROLE):
        return dict.fromkeys(roles.get(question.assignee.removeprefix(ROLE), ()))
    return [question.assignee]


def _dump(run: Run, name: EventName, event: LogEvent, *, texts: bool) -> str:
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
    if isinstance(event, QuestionAnswered):
        data["answer"] = {"outcome": event.outcome.value, "by": event.by.value, "user": event.user}
    body = {"type": name, "timestamp": identity.now().isoformat(), "data": data}
    return json.dumps(body, separators=(",", ":"))
