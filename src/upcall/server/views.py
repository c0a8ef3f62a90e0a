"""What the pages show, and how a template becomes a page. The templates escape all texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from upcall import identity
from upcall.execution.prices import Prices
from upcall.html_templates import load_templates
from upcall.policy.authorization import OpenQuestions
from upcall.questions.question import format_time
from upcall.questions.question_form import QuestionForm
from upcall.runs.file_changes import Change, list_standing
from upcall.runs.run import Run, Usage
from upcall.runs.transcript import TranscriptEntry
from upcall.server.callers import csrf_of
from upcall.server.service import Caller, Service
from upcall.text import escape_controls
from upcall.ui.diagrams import tree_lines
from upcall.ui.listings import name_status
from upcall.ui.markdown_html import markdown_html
from upcall.ui.plan_ticks import find_done_steps_of

MAX_ENTRIES = 500
"""How many entries of a transcript a page shows: the last ones."""


@dataclass(frozen=True)
class Page:
    """What every page knows: who is looking at it."""

    caller: Caller | None

    @property
    def csrf(self) -> str:
        """The token that its forms contain."""
        return csrf_of(self.caller) if self.caller is not None else ""

    @property
    def who(self) -> str | None:
        """Who is looking at it, in words; None before login."""
        return None if self.caller is None else self.caller.user or "you"


def render(template: str, page: Page, **values: Any) -> str:
    """Render a page."""
    return _templates().get_template(template).render(page=page, **values)


def inbox_view(found: OpenQuestions) -> dict[str, Any]:
    """Return what the inbox shows."""
    return {"entries": found, "damaged": found.damaged, "next": found.next, "now": identity.now()}


async def run_view(service: Service, caller: Caller, run_id: str) -> dict[str, Any]:
    """Return what the page of a run shows: everything, or to a mere assignee only their questions."""
    app = service.app_for(caller)
    run = await app.get(run_id, user=caller.user)
    mine = app.access.answerable(run, caller.user) if run.waiting or run.under_way else ()
    view: dict[str, Any] = {
        "run": run,
        "owned": app.access.owns(run, caller.user),
        "mine": mine,
        "others": [each for each in run.questions if each not in mine] if not run.is_final else [],
        "answered": run.clarification_history,
        "entries": (),
        "left_out": 0,
        "changes": (),
        "undoes": {},
        "usage": _cost(service, run),
        "done": find_done_steps_of(run, run.plan) if run.plan is not None else (),
        "tree": "" if run.restricted else "\n".join(tree_lines(run)),
        "key": identity.new_id(),
        "now": identity.now(),
    }
    if not run.restricted:
        entries = (await app.log.transcript(run.id, user=caller.user)).entries
        changes = await app.changes.list(run.id, user=caller.user)
        view |= {"entries": entries[-MAX_ENTRIES:], "left_out": max(0, len(entries) - MAX_ENTRIES)}
        view |= {"changes": changes, "undoes": _find_undone(list_standing(changes))}
    return view


@dataclass(frozen=True)
class Undone:
    """What undoing a change undoes: how many later ones too, and the paths of all of them."""

    later: int
    paths: tuple[str, ...]


def _find_undone(standing: Sequence[Change]) -> dict[str, Undone]:
    """Return what undoing each change undoes; the changes that stand, oldest first."""
    found, paths = dict[str, Undone](), set[str]()
    for later, change in enumerate(reversed(standing)):
        paths |= {file.path for file in change.files}
        found[change.id] = Undone(later, tuple(sorted(paths)))
    return found


def _cost(service: Service, run: Run) -> list[tuple[str, Usage, str]]:
    """List what each agent used, and the total, with the price if there is one."""
    if not run.usage:
        return []
    prices = Prices.of(service.settings, run)
    costs = {path: prices.cost(path, used) for path, used in run.usage.items()}
    known = [each for each in costs.values() if each is not None]

    def format_cost(cost: float | None) -> str:
        return "" if cost is None else f"{cost:.4f} {prices.currency}"

    rows = [(path, used, format_cost(costs[path])) for path, used in run.usage.items()]
    return [*rows, ("in all", run.total_usage, format_cost(sum(known)) if known else "")]


@dataclass(frozen=True)
class Operation:
    """One operation of the API, for its reference page."""

    method: str
    path: str
    summary: str
    parameters: tuple[str, ...]
    body: str


def list_operations(description: dict[str, Any]) -> list[Operation]:
    """List the operations of an OpenAPI description, in its order."""
    return [
        Operation(
            method.upper(),
            path,
            operation.get("description", operation.get("summary", "")),
            tuple(f"{each['name']} ({each['in']})" for each in operation.get("parameters", ())),
            ", ".join(operation.get("requestBody", {}).get("content", {})),
        )
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]


def _clean(text: object) -> str:
    """Write out characters that would reverse or hide other text; the template escapes the rest."""
    return escape_controls(str(text).replace("\r\n", "\n"))


def _markdown(text: str) -> Markup:
    return Markup(markdown_html(text))  # It escapes everything but Markdown, and leaves images out.


def _who(entry: TranscriptEntry) -> str:
    return " > ".join(entry.path)


@cache
def _templates() -> Environment:
    return load_templates(
        "upcall.server",
        clean=_clean,
        form=QuestionForm.of,
        markdown=_markdown,
        time=format_time,
        who=_who,
        status=name_status,
    )
