"""A run as a notebook shows it: HTML that stands alone, without scripts, and plain text.

Text of models, documents and users is data: it is escaped, and of markdown only what cannot load or run anything is
rendered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from upcall.errors import one_line
from upcall.expiry import what_now
from upcall.ladder import is_risk
from upcall.plan_ticks import ticked
from upcall.questions import Question, sendable, visible
from upcall.run_report import Prices, assumptions, report, steps_done
from upcall.runs import Run, RunStatus
from upcall.sealing import HIDDEN
from upcall.shown import MARK, safe, short

if TYPE_CHECKING:
    from upcall.access import InboxEntry

_COLOURS = {
    RunStatus.AWAITING_CLARIFICATION: "#b26a00",
    RunStatus.COMPLETED: "#2e7d32",
    RunStatus.FAILED: "#c62828",
    RunStatus.CANCELLED: "#616161",
    RunStatus.EXPIRED: "#616161",
}
_WORKING_COLOUR = "#1565c0"
_RISK_COLOUR = "#c62828"
_BORDER = "var(--jp-border-color1, #9e9e9e)"

_REPAINTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters besides tab and newline, and those that turn the reading direction."""
_NO_MATH = "tex2jax_ignore mathjax_ignore"
"""Jupyter takes what stands between two dollar signs for a formula: of a command it would show another one."""
_CITED = re.compile(r"\[(\d{1,3})\]")
_SOURCE_LINE = re.compile(r"^(?:[-*] )?\[(\d{1,3})\] (.+)$", re.MULTILINE)
"""A line of the source list at the end of a report; the last one with a number counts."""
_SAFE_LINK = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)


# -- what Jupyter asks for ---------------------------------------------------------------------------------------------


def run_bundle(run: Run) -> dict[str, str]:
    """A run by MIME type."""
    return {"text/plain": run_text(run), "text/html": run_html(run)}


def inbox_bundle(entries: Sequence[InboxEntry]) -> dict[str, str]:
    """Open questions of several runs by MIME type."""
    texts = [f"{entry.question.as_text()}\n{_how_to(entry.run_id, [entry.question])}" for entry in entries]
    parts = [f"{question_html(entry.question)}{_hint(entry.run_id, [entry.question])}" for entry in entries]
    nothing = "No question waits for you."
    return {
        "text/plain": safe(_clean("\n\n".join(texts))) if texts else nothing,
        "text/html": "".join(map(_box, parts)) if parts else _box(f"<div>{nothing}</div>"),
    }


def run_text(run: Run) -> str:
    """A run as plain text: the report, then the open questions and how to answer them."""
    lines = report(run, (), Prices())
    for question in run.questions:
        lines += ["", question.as_text()]
    lines += what_now(run)
    if how := _next_step(run):
        lines += ["", how]
    return safe(_clean("\n".join(lines)))


def run_html(run: Run) -> str:
    """A run as HTML: status, open questions and how to answer them, plan with ticks, answers, result."""
    questions = "".join(question_html(each, run.also_waiting(each)) for each in run.questions)
    late = "".join(f"<div>{_escaped(line)}</div>" for line in what_now(run))
    hint = _hint(run.id, run.questions) if run.waiting else _code_line(_next_step(run))
    return _box(f"{head_html(run)}{questions}{late}{hint}{known_html(run)}")


# -- parts, for the form too -------------------------------------------------------------------------------------------


def head_html(run: Run) -> str:
    """The task, the status, and whose run it is."""
    colour = _COLOURS.get(run.status, _WORKING_COLOUR)
    badge = (
        f'<span style="background:{colour};color:#fff;border-radius:3px;padding:1px 6px">'
        f"{run.status.value.replace('_', ' ')}</span>"
    )
    whose = f" &middot; {_escaped(run.user)}" if run.user else ""
    told = f'<span style="opacity:.7">run {_escaped(run.id)}{whose}</span>'
    return f"<div>{badge} <b>{_escaped(short(run.task))}</b> {told}</div>"


def question_html(question: Question, also: Sequence[Question] = (), *, listed: bool = True) -> str:
    """A question with who asks, why, and what it accepts; the options only where they are to be `listed`."""
    if not listed:
        question = question.model_copy(update={"options": (), "multi_select": False})
    colour = _RISK_COLOUR if is_risk(question) else _COLOURS[RunStatus.AWAITING_CLARIFICATION]
    lines = [line for detail in question.details() for line in detail.split("\n")]
    chain = [f"{above} waits for {below}" for above, below in zip(question.path, question.path[1:], strict=False)]
    lines += [f"  Until it is answered, {', '.join(chain)}."] if chain else []
    lines += [f"  {', '.join(each.asker_for_whom() for each in also)} waits for this too."] if also else []
    lines += [f"  For {question.assignee}."] if question.assignee else []
    return (
        f'<div style="border-left:3px solid {colour};padding-left:8px;margin:6px 0">'
        f"<div>{_escaped(question.asked_by())}:</div>"
        f'<div style="white-space:pre-wrap"><b>{_escaped(question.question)}</b></div>'
        f"{''.join(map(_detail, lines))}</div>"
    )


def known_html(run: Run) -> str:
    """What a run has come to besides its questions: plan, answers, what was assumed, error, result, tokens."""
    result = f"<div>{markdown_html(run.result)}</div>" if run.result else ""
    return "".join([_plan(run), _answers(run), _list(assumptions(run)), _error(run), result, _tokens(run)])


def log_html(lines: Iterable[str]) -> str:
    """Lines of text, oldest first, in a field that stays scrolled to the newest one."""
    text = _escaped("\n".join(lines))
    return (
        '<div style="max-height:14em;overflow:auto;display:flex;flex-direction:column-reverse">'
        f'<pre style="margin:0;font-size:85%;white-space:pre-wrap">{text}</pre></div>'
        if text
        else ""
    )


def error_html(text: str) -> str:
    """An error in one line."""
    return f'<div style="color:{_RISK_COLOUR}">{_escaped(one_line(text))}</div>'


def markdown_html(text: str) -> str:
    """Markdown of a model as HTML. Raw HTML is shown as text, images are left out (they would tell their server that
    somebody looks), links lead to the web or to mail only, and a number that cites has its source as a tooltip."""
    text = _clean(text)
    sources = {number: short(line, 400) for number, line in _SOURCE_LINE.findall(text)}
    rendered: str = _markdown().render(text, {"sources": sources})
    return rendered


class _Markdown(MarkdownIt):
    def validateLink(self, url: str) -> bool:
        """Whether a link stays one, and not text."""
        return bool(_SAFE_LINK.match(url.strip()))


@cache
def _markdown() -> MarkdownIt:
    made = _Markdown("commonmark", {"html": False, "breaks": True})
    made.enable(["table", "strikethrough"]).disable("image")
    made.add_render_rule("text", _text_with_citations)
    made.add_render_rule("link_open", _link_to_elsewhere)
    return made


def _text_with_citations(renderer: Any, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    def cited(found: re.Match[str]) -> str:
        source = env["sources"].get(found[1])
        return f'<sup title="{escape(source)}">{found[0]}</sup>' if source else found[0]

    return _CITED.sub(cited, escape(tokens[at].content))


def _link_to_elsewhere(renderer: Any, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    tokens[at].attrs |= {"target": "_blank", "rel": "noopener noreferrer"}
    opened: str = renderer.renderToken(tokens, at, options, env)
    return opened


def _plan(run: Run) -> str:
    plan = run.plan
    if plan is None:
        return ""
    done = steps_done(run, plan)
    steps = [ticked(step, done=step.step_id in done) for step in plan.steps]
    lines = [*(f"- {section}" for section in plan.sections), *steps]
    lines += [f"Remark: {plan.remark}"] if plan.remark else []
    told = f'<span style="opacity:.7">plan {plan.status.value}, version {len(plan.history) + 1}</span>'
    return f'<div style="margin:6px 0"><b>{_escaped(plan.title)}</b> {told}</div>{_list(lines)}'


def _answers(run: Run) -> str:
    lines = []
    for question, answer in run.clarification_history:
        said = HIDDEN if answer.sealed else answer.text or answer.outcome.value
        who = answer.user or answer.by.value
        lines.append(f"{short(question.question)} {said} ({who})")
    return _list(["Answered:", *(f"- {line}" for line in lines)]) if lines else ""


def _error(run: Run) -> str:
    return error_html(f"Error: {run.error}") if run.error else ""


def _tokens(run: Run) -> str:
    if not run.usage:
        return ""
    used = run.usage.values()
    tokens = sum(each.prompt_tokens + each.completion_tokens for each in used)
    calls = sum(each.model_calls for each in used)
    return f'<div style="opacity:.7">{calls:,} model calls, {tokens:,} tokens</div>'


# -- how to go on ------------------------------------------------------------------------------------------------------


def _next_step(run: Run) -> str:
    if run.waiting and run.questions:
        return _how_to(run.id, run.questions)
    return f"Try again: run = await app.resume({run.id!r})" if run.status is RunStatus.FAILED else ""


def _hint(run_id: str, questions: Sequence[Question]) -> str:
    form = f" Or with buttons: app.form({run_id!r})" if find_spec("ipywidgets") else ""
    return _code_line(_how_to(run_id, questions) + form) if questions else ""


def _how_to(run_id: str, questions: Sequence[Question]) -> str:
    """The line of Python that answers."""
    said = [_example(question) for question in questions]
    given = said[0]
    if len(questions) > 1:
        given = f"{{{', '.join(f'{each.id!r}: {text}' for each, text in zip(questions, said, strict=True))}}}"
    return f"Answer with: run = await app.answer({run_id!r}, {given})"


def _example(question: Question) -> str:
    """A value to begin with; a risk is never agreed to by a line that is only copied."""
    if question.secret:
        return "getpass.getpass()"  # Typed into the cell it would be stored with the notebook.
    return repr(question.options[0].label) if question.options and not is_risk(question) else repr("...")


# -- text --------------------------------------------------------------------------------------------------------------


def _clean(text: str) -> str:
    return _REPAINTS.sub(lambda found: visible(found[0]), sendable(text).replace("\r\n", "\n"))


def _escaped(text: str) -> str:
    return escape(_clean(text))


def _box(inner: str) -> str:
    style = f"border:1px solid {_BORDER};border-radius:4px;padding:8px;margin:2px 0"
    return f'<div class="{_NO_MATH}" style="{style}">{inner}</div>'


def _detail(line: str) -> str:
    """A line below a question; what is quoted (a command, a diff) stands in columns."""
    shown = _escaped(line.strip() if not line.lstrip().startswith(MARK) else line)
    mono = "font-family:monospace;" if line.lstrip().startswith(MARK) else ""
    return f'<div style="{mono}white-space:pre-wrap;padding-left:1em">{shown}</div>'


def _list(lines: Sequence[str]) -> str:
    return "".join(map(_detail, lines))


def _code_line(text: str) -> str:
    return f'<div style="margin:6px 0"><code style="white-space:pre-wrap">{_escaped(text)}</code></div>' if text else ""
