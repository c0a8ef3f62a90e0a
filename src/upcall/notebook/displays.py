"""Values of upcall for a notebook: self-contained HTML without scripts.

Text of models, documents and users is data: it is escaped, and only markdown that cannot load or run anything is
rendered.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from importlib.util import find_spec
from itertools import groupby
from typing import TYPE_CHECKING

from upcall.lazy_pattern import LazyPattern
from upcall.policy.deadlines import explain_lapsed
from upcall.questions.question import Question
from upcall.questions.secrets import HIDDEN
from upcall.runs.call_timings import WorkPeriod
from upcall.runs.plan import Plan, ReviewedPlan
from upcall.runs.plan_edits import FIELDS_HINT, ask_for_review
from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.runs.transcript import Transcript
from upcall.text import QUOTE_MARK, escape_controls, one_line
from upcall.ui import diagrams as pictures
from upcall.ui.columns import LINE_CHARS
from upcall.ui.listings import name_status
from upcall.ui.markdown_html import markdown_html
from upcall.ui.plan_ticks import list_steps
from upcall.ui.run_report import list_assumptions, list_warnings
from upcall.ui.transcript_text import transcript_markdown
from upcall.ui.value_text import NO_QUESTIONS, answer_code, label_resume, resume_code

if TYPE_CHECKING:
    from upcall.policy.authorization import InboxEntry

_COLOURS = {
    RunStatus.AWAITING_CLARIFICATION: "#b26a00",
    RunStatus.COMPLETED: "#2e7d32",
    RunStatus.FAILED: "#c62828",
    RunStatus.CANCELLED: "#616161",
    RunStatus.EXPIRED: "#616161",
}
_WORKING_COLOUR = "#1565c0"
_RISK_COLOUR = "#c62828"
_ERROR_COLOUR = f"var(--jp-error-color1, var(--vscode-errorForeground, {_RISK_COLOUR}))"
_BORDER = "var(--jp-border-color1, #9e9e9e)"
_TINTS = {"+": "background:rgba(46,160,67,.2);", "-": "background:rgba(248,81,73,.2);"}
"""The colours of diff lines."""

STYLE = f"""<style>
.upcall-form .widget-html-content {{ line-height: 1.5 }}
.upcall-form .widget-radio-box label {{
  display: flex; flex-direction: row-reverse; justify-content: flex-end; gap: .5em;
  height: auto; line-height: 1.5; white-space: normal;
}}
.upcall-form .widget-radio-box input {{ flex: none; float: none; height: auto; margin: .35em 0 auto 1px }}
.upcall-form .widget-checkbox, .upcall-form .widget-label-basic {{
  height: auto; line-height: 1.5; white-space: normal;
}}
.upcall-form .widget-label-basic {{ align-items: flex-start; display: flex }}
.upcall-question {{
  border-left: 3px solid {_COLOURS[RunStatus.AWAITING_CLARIFICATION]}; margin: 6px 0; padding-left: 8px;
}}
.upcall-question.upcall-risk {{ border-color: {_RISK_COLOUR} }}
</style>"""
"""The style of a form's widgets: ipywidgets truncates an option to one line, and spaces lines of text too far apart."""

_NO_MATH = "tex2jax_ignore mathjax_ignore"
"""Jupyter treats text between two dollar signs as a formula, and would show a different command."""
_ITEM = LazyPattern(r"\s*(?:\d+\.|-|\[[ x]\]) ")


def hide(name: str) -> str:
    """Return the style that hides elements of this class and the output that contains them."""
    return f"<style>.{name}, .jp-OutputArea-child:has(.{name}) {{ display: none }}</style>"


# -- what Jupyter asks for ---------------------------------------------------------------------------------------------


def display_run(run: Run) -> dict[str, str]:
    """Return a run by MIME type."""
    return {"text/html": run_html(run)}


def display_transcript(transcript: Transcript) -> dict[str, str]:
    """Return a transcript by MIME type, in a scrolling field."""
    shown = markdown_html(transcript_markdown(transcript))
    return {"text/html": _box(f'<div style="max-height:40em;overflow:auto">{shown}</div>')}


def display_inbox(entries: Sequence[InboxEntry]) -> dict[str, str]:
    """Return open questions of several runs by MIME type."""
    return {"text/html": "".join(map(_entry_html, entries)) if entries else _box(f"<div>{NO_QUESTIONS}</div>")}


def _entry_html(entry: InboxEntry) -> str:
    task = f'<div style="opacity:.7">{_escape(one_line(entry.task, LINE_CHARS))}</div>' if entry.task else ""
    return _box(f"{question_html(entry.question)}{task}{_hint(entry.run_id, [entry.question])}")


def as_written(text: str) -> str:
    """Return inline text as HTML that Jupyter does not read as a formula."""
    return f'<span class="{_NO_MATH}">{_escape(text)}</span>'


def run_html(run: Run) -> str:
    """Return a run as HTML: status, open questions and how to answer them, plan with ticks, answers, result."""
    questions = "".join(question_html(each, run.records.duplicates_of(each.id)) for each in run.questions)
    late = "".join(f"<div>{_escape(line)}</div>" for line in explain_lapsed(run))
    return _box(f"{head_html(run)}{questions}{late}{_next_step_html(run)}{known_html(run)}")


def lost_form_html(run: Run | None) -> str:
    """Return what a form leaves in a notebook that is reopened: why it has no buttons, how to get them back, and the
    run in the state of its last pause, if it has paused."""
    if run is None:
        lost = "A form was here. Its buttons are gone with its kernel, but the run is stored. Make the app again, then"
        return _box(_code_line(f"{lost} find the run with", "await app.list()"))
    if run.is_final:
        return run_html(run)
    lost = "The buttons of this form are gone with its kernel, but the run is stored. Make the app again, then"
    return _box(_code_line(f"{lost} get them back with", f"app.form({run.id!r})")) + run_html(run)


# -- parts, for the form too -------------------------------------------------------------------------------------------


def head_html(run: Run) -> str:
    """Return the task, the status, the owner, and the error of a run."""
    colour = _COLOURS.get(run.status, _WORKING_COLOUR)
    badge = (
        f'<span style="background:{colour};color:#fff;border-radius:3px;padding:1px 6px">'
        f"{name_status(run).replace('_', ' ')}</span>"
    )
    whose = f" &middot; {_escape(run.user)}" if run.user else ""
    caption = f'<span style="opacity:.7">run {_escape(run.id)}{whose}</span>'
    error = error_html(f"Error: {run.error}") if run.error else ""
    return f"<div>{badge} <b>{_escape(one_line(run.task, LINE_CHARS))}</b> {caption}</div>{error}"


def question_html(question: Question, also: Sequence[Question] = (), *, in_form: bool = False) -> str:
    """Return a question with its asker, reason and options. A form adds its own frame and fields."""
    if in_form and not question.secret:
        question = question.model_copy(update={"options": (), "multi_select": False})
    inner = (
        f"<div>{_escape(question.introduce())}:</div>{_format_question(question.question)}"
        f"{_list([line for detail in question.details() for line in detail.split(chr(10))])}"
        f'<div style="opacity:.7">{_list(question.who_waits(also))}</div>'
    )
    colour = _RISK_COLOUR if question.is_risk else _COLOURS[RunStatus.AWAITING_CLARIFICATION]
    frame = f'<div style="border-left:3px solid {colour};padding-left:8px;margin:6px 0">'
    return inner if in_form else f"{frame}{inner}</div>"


def review_html(question: Question, plan: Plan, also: Sequence[Question] = ()) -> str:
    """Return the head of a form in which a plan is reviewed: its title, sections and remark, above a field a step."""
    asked = question.model_copy(update={"question": ask_for_review(plan)})
    remark = f"<div>Remark: {_escape(plan.remark)}</div>" if isinstance(plan, ReviewedPlan) and plan.remark else ""
    return (
        f"{question_html(asked, also, in_form=True)}{remark}{_list([f'- {section}' for section in plan.sections])}"
        f'<div style="opacity:.7">{FIELDS_HINT}</div>'
    )


def known_html(run: Run) -> str:
    """Return everything about a run except its questions: result, plan, answers, assumptions, tokens."""
    result = f'<div style="margin:8px 0">{markdown_html(run.result)}</div>' if run.result else ""
    rest = "".join([_plan(run), _answers(run), _list(list_assumptions(run)), _list(list_warnings(run)), _tokens(run)])
    if not (result and rest):
        return result or rest
    return f'{result}<div style="border-top:1px solid {_BORDER};padding-top:6px">{rest}</div>'


def log_html(lines: Iterable[str], *, folded: bool = False) -> str:
    """Return lines of text, oldest first, in a field scrolled to the newest; if `folded`, a click shows them."""
    lines = [*lines]
    if not lines:
        return ""
    field = (
        '<div style="max-height:14em;overflow:auto;display:flex;flex-direction:column-reverse">'
        f'<pre style="margin:0;font-size:85%;white-space:pre-wrap">{_escape(chr(10).join(lines))}</pre></div>'
    )
    return _fold("Events", field) if folded else field


def pictures_html(run: Run, worked: Sequence[WorkPeriod]) -> str:
    """Return a run's timeline and tree, each folded; as images, so that nothing in them is part of the page."""
    drawn = {"Timeline": pictures.timeline(run, worked), "Agents and questions": pictures.tree(run)}
    return "".join(_fold(title, _image(svg, title)) for title, svg in drawn.items())


def _image(svg: str, title: str) -> str:
    data = b64encode(svg.encode()).decode()
    return f'<img alt="{escape(title)}" style="max-width:100%" src="data:image/svg+xml;base64,{data}">'


def _fold(title: str, inner: str) -> str:
    return f'<details><summary style="cursor:pointer">{escape(title)}</summary>{inner}</details>'


def error_html(text: str) -> str:
    """Return an error in one line."""
    return f'<div style="color:{_ERROR_COLOUR}">{_escape(one_line(text))}</div>'


def _plan(run: Run) -> str:
    plan = run.plan
    if plan is None or any(plan.title in each.question for each in run.questions):
        return ""  # Where the planner asks about it, the question holds it.
    lines = [*(f"- {section}" for section in plan.sections), *list_steps(run)]
    lines += [f"Remark: {plan.remark}"] if plan.remark else []
    caption = f'<span style="opacity:.7">plan {plan.status.value}, version {len(plan.history) + 1}</span>'
    return _put_below(f"<b>{_escape(plan.title)}</b> {caption}", lines)


def _answers(run: Run) -> str:
    lines = []
    for question, answer in run.clarification_history:
        shown = HIDDEN if answer.sealed else answer.text or answer.outcome.value
        who = answer.user or answer.by.value
        lines.append(f"{one_line(question.question, LINE_CHARS)} {shown} ({who})")
    return _put_below("<b>Answered</b>", [f"- {line}" for line in lines]) if lines else ""


def _tokens(run: Run) -> str:
    if not run.usage:
        return ""
    used = run.total_usage
    return f'<div style="margin:6px 0 0;opacity:.7">{used.model_calls:,} model calls, {used.tokens:,} tokens</div>'


# -- how to continue
# ----------------------------------------------------------------------------------------------------


def _next_step_html(run: Run) -> str:
    if run.waiting:
        return _hint(run.id, run.questions)
    return _code_line(label_resume(run), resume_code(run)) if label_resume(run) else ""


def _hint(run_id: str, questions: Sequence[Question]) -> str:
    if not questions:
        return ""
    form = _code_line("Or with buttons", f"app.form({run_id!r})") if find_spec("ipywidgets") else ""
    return _code_line("Answer with", answer_code(run_id, questions)) + form


# -- text --------------------------------------------------------------------------------------------------------------


def _escape(text: str) -> str:
    return escape(escape_controls(text.replace("\r\n", "\n")))


def _box(inner: str) -> str:
    style = f"border:1px solid {_BORDER};border-radius:4px;padding:8px;margin:2px 0"
    return f'<div class="{_NO_MATH}" style="{style}">{inner}</div>'


def _format_question(text: str) -> str:
    """Return the text of a question; a plan in it is not all bold, and quotes are blocks."""
    shown, lines = [], text.split("\n")
    bold = sum(not line.startswith(QUOTE_MARK) for line in lines) == 1
    for quoted, block in groupby(lines, key=lambda line: line.startswith(QUOTE_MARK)):
        words = [*block]
        escaped = _escape("\n".join(words))
        shown.append(_quote(words) if quoted else f"<b>{escaped}</b>" if bold else escaped)
    return f'<div style="white-space:pre-wrap">{"".join(shown)}</div>'


def _put_below(title: str, lines: Sequence[str]) -> str:
    """Return lines below a title, which is HTML."""
    return f'<div style="margin:6px 0 0">{title}</div>{_list(lines)}'


def _list(lines: Sequence[str]) -> str:
    """Return lines one below the other; a quote in them (a command, a diff) is a separate block."""
    blocks = groupby(lines, key=lambda line: line.lstrip().startswith(QUOTE_MARK))
    return "".join(_quote([*block]) if quoted else "".join(map(_line, block)) for quoted, block in blocks)


def _line(line: str) -> str:
    """Return a line with a hanging indent after its number or tick."""
    hanging = "padding-left:2.5em;text-indent:-1.5em" if _ITEM.match(line) else "padding-left:1em"
    return f'<div style="white-space:pre-wrap;overflow-wrap:anywhere;{hanging}">{_escape(line.strip())}</div>'


def _quote(lines: Sequence[str]) -> str:
    """Return lines in a monospaced font, untruncated, since users consent to them. Only diff lines are coloured."""
    is_diff = any(line.lstrip().startswith(f"{QUOTE_MARK}@@") for line in lines)
    shown = []
    for line in lines:
        code = line.lstrip().removeprefix(QUOTE_MARK) if is_diff else ""
        tint = "" if code.startswith(("+++", "---")) else _TINTS.get(code[:1], "")
        hanging = "padding-left:4ch;text-indent:-4ch"
        shown.append(
            f'<div style="{tint}white-space:pre-wrap;overflow-wrap:anywhere;{hanging}">{_escape(line.lstrip())}</div>'
        )
    font = "font-family:var(--jp-code-font-family, monospace);font-size:90%"
    frame = f"background:rgba(128,128,128,.12);border-radius:3px;margin:4px 0 4px 1em;padding:4px 8px;{font}"
    return f'<div style="{frame}">{"".join(shown)}</div>'


def _code_line(comment: str, code: str) -> str:
    return (
        f'<div style="margin:4px 0">{comment}: '
        f'<code style="white-space:pre-wrap;overflow-wrap:anywhere">{_escape(code)}</code></div>'
    )
