"""The inbox of a person: their open questions, and which of them they look for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Self
from urllib.parse import parse_qsl, urlencode

from upcall.app import Upcall
from upcall.policy.authorization import InboxEntry, OpenQuestions
from upcall.runs.run_filter import parse_age
from upcall.runs.run_page import DamagedRun
from upcall.server.run_names import read_names
from upcall.storage.run_rows import as_searched

RUNS_AT_ONCE = 100
"""Of how many runs one page of the inbox shows the open questions."""

MAX_LOOKED_AT = 500
"""In how many runs one page of a search looks. The page then names where the next one begins."""

ENOUGH = 30
"""How many questions that fit are enough for a page of a search."""


@dataclass(frozen=True)
class InboxFilter:
    """Which open questions are wanted: those that fit all that is given, as in the address of the page.

    Attributes:
        text: in the question, its header or context, in the task, its name or its asker; or the beginning of the run's
            id.
        owner: of a run that this user started.
        asker: asked by this agent.
        older_than: asked before this time: ``30d``, ``12h``, ``90m``.
        newer_than: asked within this time.
        several: ``1`` to answer many in one form.
    """

    text: str = ""
    owner: str = ""
    asker: str = ""
    older_than: str = ""
    newer_than: str = ""
    several: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """Return the filter that the parameters of an address ask for; others are ignored."""
        return cls(**{each.name: given.get(each.name, "").strip() for each in fields(cls)})

    @classmethod
    def parse(cls, query: str) -> Self:
        """Return the filter in the query of an address."""
        return cls.of(dict(parse_qsl(query.removeprefix("?"))))

    @property
    def query(self) -> str:
        """The filter as the query of an address."""
        return urlencode({each.name: value for each in fields(self) if (value := getattr(self, each.name))})

    @property
    def together(self) -> str:
        """The address of the same questions in one form."""
        return f"/?{replace(self, several='1').query}"

    @property
    def alone(self) -> str:
        """The address of the same questions, each with a form of its own."""
        return f"/?{replace(self, several='').query}"

    @property
    def is_search(self) -> bool:
        """Whether some questions are not wanted."""
        return any((self.text, self.owner, self.asker, self.older_than, self.newer_than))

    def at(self, now: datetime) -> Condition:
        """Return the filter as a condition, its ages counted from a time.

        Raises:
            CallerError: an age is none.
        """
        return Condition(
            self, parse_age(self.older_than, "older_than", now), parse_age(self.newer_than, "newer_than", now)
        )


@dataclass(frozen=True)
class Condition:
    """Which open questions are wanted, with the times that the filter's ages mean."""

    wanted: InboxFilter
    before: datetime | None
    since: datetime | None

    def allows(self, entry: InboxEntry, name: str) -> bool:
        """Return whether a question is wanted."""
        question, wanted = entry.question, self.wanted
        texts = (question.question, question.header or "", question.context or "", *question.path, entry.task, name)
        return (
            (not wanted.text or _holds(wanted.text, texts) or _is_id(wanted.text, entry.run_id))
            and (not wanted.owner or entry.user == wanted.owner)
            and (not wanted.asker or wanted.asker in question.path)
            and (self.before is None or question.asked_at < self.before)
            and (self.since is None or question.asked_at >= self.since)
        )


@dataclass(frozen=True)
class InboxPage:
    """A page of the inbox, and the names of its runs."""

    found: OpenQuestions
    names: Mapping[str, str]


async def find_questions(
    app: Upcall, user: str | None, wanted: InboxFilter, after: str | None, now: datetime
) -> InboxPage:
    """Find the open questions of a user that are wanted, oldest first, after what another page names as its next. A
    search looks into some hundred runs at most.

    Raises:
        CallerError: an age is none, or no page names this place.
    """
    condition = wanted.at(now)
    shown, names, damaged = list[InboxEntry](), dict[str, str](), list[DamagedRun]()
    for _ in range(MAX_LOOKED_AT // RUNS_AT_ONCE):
        page = await app.inbox(user, limit=RUNS_AT_ONCE, after=after)
        names |= await read_names(app.store, [*{entry.run_id for entry in page if entry.task}])
        shown += [entry for entry in page if condition.allows(entry, names.get(entry.run_id, ""))]
        damaged += page.damaged
        after = page.next
        if after is None or not wanted.is_search or len(shown) >= ENOUGH:
            break
    found = OpenQuestions(shown)
    found.damaged, found.next = damaged, after
    return InboxPage(found, names)


def _holds(text: str, texts: tuple[str, ...]) -> bool:
    wanted = as_searched(text)
    return any(wanted in as_searched(each) for each in texts)


def _is_id(text: str, run_id: str) -> bool:
    return len(text) >= 4 and run_id.lower().startswith(text.lower())
