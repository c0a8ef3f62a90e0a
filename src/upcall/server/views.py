"""What the pages show, and how a template becomes a page. The templates escape all texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from upcall import identity
from upcall.errors import FieldsRefused
from upcall.execution.prices import Prices
from upcall.html_templates import load_templates
from upcall.questions.answer_form import FormField, find_given, is_long
from upcall.questions.question import Question, format_time
from upcall.questions.question_form import QuestionForm
from upcall.runs.events import RunResumed, SegmentTimed, StatusChanged, StopRequested
from upcall.runs.file_changes import Change, count_lines, list_standing
from upcall.runs.plan_edits import FIELDS_HINT, ask_for_review, can_edit, find_review, shows_plan
from upcall.runs.plan_steps import find_basis, find_done_steps_of
from upcall.runs.run import Run, Usage
from upcall.runs.transcript import EntryKind, TranscriptEntry
from upcall.server.agent_rows import list_rows
from upcall.server.callers import csrf_of
from upcall.server.code_html import diff_rows, message_html
from upcall.server.completing import SECRET_AMONG, has_secret, is_cut_off, list_replaced
from upcall.server.conversation import SUMMARY_CHARS, ConversationPart, ConversationTree
from upcall.server.events import read_position
from upcall.server.many_answers import Filled
from upcall.server.page_words import name_page_actions
from upcall.server.run_names import name_task, read_names
from upcall.server.server_folders import hide_folders
from upcall.server.service import Caller, Service
from upcall.text import escape_controls, one_line, shorten
from upcall.ui.listings import name_status
from upcall.ui.plan_ticks import explain_basis
from upcall.ui.stop_reasons import explain_stop

MAX_ENTRIES = 100
"""How many entries of a transcript a page shows: the last ones, or those before them."""

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))
MAX_DAYS = 30
"""Up to how many days a time is written as so many days ago."""

MAX_TEXT_CHARS = 20_000
"""How much of one text a page shows."""


@dataclass(frozen=True)
class PageFrame:
    """What every page knows: who is looking at it, whether the scripted demo plays the models, what packages add to
    the navigation (titles and addresses), and the folders that it does not name (`None`: it names all)."""

    caller: Caller | None
    is_demo: bool
    added: Sequence[tuple[str, str]] = ()
    folders: Mapping[Path, str] | None = None

    @property
    def csrf(self) -> str:
        """The token that its forms contain."""
        return csrf_of(self.caller) if self.caller is not None else ""

    @property
    def who(self) -> str | None:
        """Who is looking at it, in words; None before login."""
        return None if self.caller is None else self.caller.user or "you"

    def hide_folders(self, text: str, run: Run | None = None) -> str:
        """Return an error or a warning of a run without folders of this machine."""
        return text if self.folders is None else hide_folders(text, self.folders, run)


def render(template: str, page: PageFrame, **values: Any) -> str:
    """Render a page."""
    return _templates().get_template(template).render(page=page, **values)


def prepare_pages() -> None:
    """Compile the templates and load what colours code, so that no page waits for it."""
    made = _templates()
    for name in made.list_templates(extensions=["html"]):
        made.get_template(name)
    message_html("```python\n1\n```")


async def run_view(service: Service, caller: Caller, run_id: str, before: int | None = None) -> dict[str, Any]:
    """Return what the page of a run shows: everything, or to a mere assignee only their questions.

    Args:
        service: the service that has the run.
        caller: who looks.
        run_id: the run.
        before: the place in the transcript before which the shown entries end; None for its end.
    """
    app = service.app_for(caller)
    position = await read_position(service, run_id)  # Before all else: what comes later is streamed.
    run = await app.get(run_id, user=caller.user)
    is_asking = (run.waiting or run.under_way) and not run.replacing
    mine = app.access.answerable(run, caller.user) if is_asking else ()
    entries: Sequence[TranscriptEntry] = ()
    changes: Sequence[Change] = ()
    if not run.restricted:
        entries = (await app.log.transcript(run.id, user=caller.user)).entries
        changes = await app.changes.list(run.id, user=caller.user)
    conversation = ConversationTree.of(entries)
    end = min(before or len(entries), len(entries))
    first = max(0, end - MAX_ENTRIES)
    shown = {each.name for each in entries[first:end] if each.kind is EntryKind.QUESTION}
    return {
        "run": run,
        "chosen": service.choices.name_chosen(run),
        "name": "" if run.restricted else (await read_names(service.store, [run.id])).get(run.id, ""),
        "owned": app.access.owns(run, caller.user),
        "mine": mine,
        "is_cut_off": await is_cut_off(service, run),
        "replaced": list_replaced(run),
        "secret_among": SECRET_AMONG if has_secret(run) else "",
        "others": [each for each in run.questions if each not in mine] if not run.is_final else [],
        "answered": [pair for pair in run.clarification_history if pair[0].id not in shown],
        "parts": _without_result(conversation.window(first, end), run),
        "first": first,
        "following": min(end + MAX_ENTRIES, len(entries)) if end < len(entries) else None,
        "position": position,
        "agents": () if run.restricted else list_rows(run, conversation, mine),
        "changes": changes,
        "branches": () if run.restricted else await app.forks.tree(run.id, user=caller.user),
        "worth": () if run.restricted else await app.worth.list_known(run.id, user=caller.user),
        "undoes": _find_undone(list_standing(changes)),
        "usage": _cost(service, run),
        "done": find_done_steps_of(run, run.plan) if run.plan is not None else (),
        "basis": {step: [(each, explain_basis(each)) for each in found] for step, found in find_basis(run).items()},
        "review": find_review(run),
        "unread": () if run.restricted or run.is_final else await app.log.unread(run.id, user=caller.user),
        "is_stopping": await _is_stopping(service, run),
        "key": identity.new_id(),
        "now": identity.now(),
    }


async def _is_stopping(service: Service, run: Run) -> bool:
    """Return whether somebody wanted the run to stop after the present step, and it works on."""
    if not run.working or run.interrupted or run.restricted:
        return False
    entries = await service.store.events.read(run.id, types=(StopRequested, StatusChanged, RunResumed, SegmentTimed))
    return bool(entries) and isinstance(entries[-1].event, StopRequested)


def _without_result(parts: list[ConversationPart], run: Run) -> list[ConversationPart]:
    """Return the parts without the last message, if it is the result, which the page shows below them."""
    is_result = parts and parts[-1].kind is EntryKind.MESSAGE and parts[-1].entry.text == run.result
    return parts[:-1] if is_result else parts


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

    def format_cost(cost: float | None) -> str:
        return "" if cost is None else f"{cost:.4f} {prices.currency}"

    rows = [(path, used, format_cost(prices.cost(path, used))) for path, used in run.usage.items()]
    return [*rows, ("in all", run.total_usage, format_cost(prices.total(run.usage).cost))]


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
    # It escapes everything but Markdown, and leaves images out.
    return Markup(message_html(_cut(text)))


def _cut(text: str) -> str:
    return shorten(text, MAX_TEXT_CHARS, "… [{left} more characters]")


def _brief(text: str) -> str:
    return one_line(_clean(text[: 2 * SUMMARY_CHARS]), SUMMARY_CHARS)


def _is_long(text: str) -> bool:
    return len(text) > SUMMARY_CHARS or "\n" in text


def name_topic(question: Question) -> str:
    """Return a question in one line, or what it is about if it has more."""
    return _brief((question.header or "") if "\n" in question.question else question.question) or "Question"


def _list_filled(field: FormField, given: object) -> list[str]:
    """List what stands in a field: what was filled in and refused, else what does at first."""
    value = find_given(given.given, field.name) if isinstance(given, FieldsRefused | Filled) else field.begun
    if field.choices:
        return field.list_labels(value)
    return [field.show(value)]


def _find_problem(field: FormField, wrong: object) -> str | None:
    return wrong.problems.get(field.name) if isinstance(wrong, FieldsRefused) else None


def _hint(text: object) -> str:
    return name_page_actions(_clean(text))


def _when(at: datetime) -> Markup:
    """Return a time as it is from now, with the time itself for those who point at it and for scripts."""
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at.isoformat(), format_time(at), format_distance(at, identity.now())
    )


def format_distance(at: datetime, now: datetime) -> str:
    """Write how far a time is from now: ``5 minutes ago``, ``in 2 hours``; the day, if that is more than a month."""
    seconds = (at - now).total_seconds()
    size, unit = next((each for each in _UNITS if abs(seconds) >= each[0]), _UNITS[-1])
    number = round(abs(seconds) / size)
    if unit == "day" and number > MAX_DAYS:
        return f"{at.astimezone():%Y-%m-%d}"
    if number == 0:
        return "now"
    words = f"{number} {unit}{'' if number == 1 else 's'}"
    return f"{words} ago" if seconds < 0 else f"in {words}"


def _who(path: Sequence[str]) -> str:
    return " > ".join(path)


@cache
def _templates() -> Environment:
    made = load_templates(
        "upcall.server",
        brief=_brief,
        can_edit=can_edit,
        clean=_clean,
        cut=_cut,
        diff=diff_rows,
        filled=_list_filled,
        form=QuestionForm.of,
        hint=_hint,
        is_long=_is_long,
        is_long_value=is_long,
        name_task=name_task,
        lines=count_lines,
        markdown=_markdown,
        problem=_find_problem,
        topic=name_topic,
        shows_plan=shows_plan,
        when=_when,
        who=_who,
        status=name_status,
        stopped=explain_stop,
        review_question=ask_for_review,
    )
    made.globals["fields_hint"] = FIELDS_HINT
    return made
