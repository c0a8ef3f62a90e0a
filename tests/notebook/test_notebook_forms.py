"""A run as a notebook shows it, and the form that answers it, with real widgets on a real loop."""

from __future__ import annotations

import asyncio
import html
import re
import sys
import threading
from base64 import b64decode
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.base import Team
from autogen_agentchat.conditions import HandoffTermination, TextMessageTermination
from autogen_agentchat.messages import ModelClientStreamingChunkEvent, TextMessage
from autogen_agentchat.teams import Swarm
from cryptography.fernet import Fernet
from IPython.core.formatters import DisplayFormatter
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display
from IPython.utils.capture import capture_output
from ipywidgets import HTML, Button, Checkbox, Password, RadioButtons, Text, Textarea, Widget
from page_tags import Tags
from scenario import TASK

from upcall import Answer, Outcome, PausableAgent, Question, Run, RunStatus, Settings, Upcall, ask_secret
from upcall.autogen.begun_texts import BegunText
from upcall.autogen.messages import PATH, Event
from upcall.errors import ConfigurationError
from upcall.notebook import forms
from upcall.notebook.displays import lost_form_html, run_html
from upcall.notebook.forms import Form
from upcall.policy.authorization import InboxEntry, OpenQuestions
from upcall.questions.record import QuestionRecords
from upcall.runs.plan import PlanStep, ReviewedPlan
from upcall.runs.states import RunEvent
from upcall.runs.transcript import EntryKind, Transcript, TranscriptEntry
from upcall.subjects.external import describe_question
from upcall.testing import Call, Calls, Fail, Reply, ScriptedModelClient
from upcall.ui.diagrams import tree

HOSTILE = "</div><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J\u202eevil"
ASK = Call("ask_user", {"question": "Which framework?", "options": ["Express", "FastAPI"]})
ASK_DATABASE = Call("ask_user", {"question": "Which database?", "required": False})


def run_with(**parts: Any) -> Run:
    return Run(**{"id": "run1", "task": "Build it", **parts})


def asking(**parts: Any) -> Question:
    return Question(**{"id": "q1", "question": "Which framework?", "path": ("lead", "coder"), **parts})


def waiting_for(*questions: Question) -> Run:
    return run_with(status=RunStatus.AWAITING_CLARIFICATION, records=QuestionRecords.build(questions))


# -- the page ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", RunStatus)
def test_run_of_every_status_shows_itself(status: RunStatus) -> None:
    bundle = run_with(status=status)._repr_mimebundle_()
    Tags(bundle["text/html"])
    assert status.value.replace("_", " ") in bundle["text/html"]
    assert f"Status   {status}" in bundle["text/plain"]
    assert ("app.resume('run1')" in html.unescape(bundle["text/html"])) == (status is RunStatus.FAILED)


def test_nothing_that_others_wrote_becomes_markup() -> None:
    plan = ReviewedPlan(
        title=HOSTILE,
        sections=[HOSTILE],
        steps=[PlanStep(step_id="1", name="coder", description=HOSTILE)],
        remark=HOSTILE,
    )
    question = asking(
        question=HOSTILE, context=HOSTILE, options=[{"label": HOSTILE, "description": HOSTILE}], path=(HOSTILE,)
    )
    answered = (asking(id="q0", question=HOSTILE), Answer(question_id="q0", text=HOSTILE, user=HOSTILE))
    run = run_with(
        status=RunStatus.AWAITING_CLARIFICATION,
        task=HOSTILE,
        user=HOSTILE,
        plan=plan,
        error=HOSTILE,
        result=HOSTILE,
        records=QuestionRecords.build([question], [answered]),
    )
    assert "Answered" in run_html(run)
    for page in (run_html(run), OpenQuestions([InboxEntry(HOSTILE, question)])._repr_mimebundle_()["text/html"]):
        seen = Tags(page)
        assert seen.tags <= {"div", "span", "b", "code", "p", "br"}
        assert {name for name, _ in seen.attributes} <= {"style", "class"}
        assert not {"\x1b", "\u202e"} & set(page)
    assert not {"\x1b", "\u202e"} & set(str(run))


def test_two_dollar_signs_are_no_formula() -> None:
    """JupyterLab's MathJax goes through all HTML that a cell shows, but for what has these classes."""
    question = asking(question="Allow it?", context="| rm -rf $HOME/a $HOME/b")
    for page in (
        run_html(waiting_for(question)),
        OpenQuestions([InboxEntry("run1", question)])._repr_mimebundle_()["text/html"],
    ):
        assert page.startswith('<div class="tex2jax_ignore mathjax_ignore"')
        assert "$HOME/a $HOME/b" in page


def test_plan_has_its_ticks_and_secrets_stay_hidden() -> None:
    steps = [PlanStep(step_id=str(n), name="coder", description=f"Part {n}") for n in (1, 2)]
    sealed = Answer(question_id="q0", text="gAAAA-sealed", sealed=True)
    run = run_with(
        status=RunStatus.EXECUTING,
        plan=ReviewedPlan(title="Plan", sections=["One"], steps=steps),
        tools={"lead/coder": 1},
        records=QuestionRecords.build([], [(asking(id="q0", question="Password?", secret=True), sealed)]),
    )
    page = run_html(run)
    assert "[x] 1. [coder] Part 1" in page
    assert "[ ] 2. [coder] Part 2" in page
    assert "gAAAA" not in page + str(run)


def test_inbox_and_its_entries_show_themselves() -> None:
    entries = OpenQuestions([InboxEntry("run1", asking()), InboxEntry("run2", asking(id="q2", question="Which port?"))])
    page = html.unescape(entries._repr_mimebundle_()["text/html"])
    assert "app.answer('run1', '...')" in page
    assert "app.form('run2')" in page
    assert "Which port?" in entries[1]._repr_mimebundle_()["text/plain"]
    assert "You have no open questions" in OpenQuestions()._repr_mimebundle_()["text/html"]
    for shown in (entries, entries[1]):  # IPython has printers of its own for lists and tuples.
        assert DisplayFormatter().format(shown)[0]["text/plain"] == shown._repr_mimebundle_()["text/plain"]


def test_transcript_in_a_notebook_holds_no_raw_html() -> None:
    entry = TranscriptEntry(EntryKind.MESSAGE, ("lead",), datetime.now(UTC), "<script>alert(1)</script> **done**")
    shown = Transcript("r", (entry,))._repr_mimebundle_()["text/html"]
    assert "<script>" not in shown
    assert "<strong>done</strong>" in shown


def test_notebook_shows_an_svg_picture_and_stores_it_once() -> None:
    formatter = DisplayFormatter()  # type: ignore[no-untyped-call]
    shows, _ = formatter.format(picture := tree(Run(id="r", task="Build it")))  # type: ignore[no-untyped-call]
    assert shows == {
        "image/svg+xml": picture,
        "text/plain": "Agents and questions of run r, initializing: 0 agents, 0 model calls, 0 tokens, 0 tool calls, "
        "0 questions.",
    }


# -- the form ---------------------------------------------------------------------------------------------------------


def app_with(*replies: Reply, **options: Any) -> tuple[Upcall, ScriptedModelClient]:
    model = ScriptedModelClient(replies)

    def team() -> Team:
        stops = HandoffTermination("user") | TextMessageTermination("solo")
        agent = PausableAgent("solo", model, **options)
        return Swarm([agent, UserProxyAgent("user")], termination_condition=stops)

    return Upcall(store="runs.db", team=team), model


def found(root: Any, kind: type[Widget]) -> list[Any]:
    """Return the widgets of a kind, from the top down."""
    here = [root] if type(root) is kind else []
    return here + [each for child in getattr(root, "children", ()) for each in found(child, kind)]


def button(form: Form, text: str, at: int = 0) -> Button:
    return [each for each in found(form.widget, Button) if each.description == text][at]


def wording(form: Form) -> str:
    return html.unescape(re.sub("<[^>]+>", " ", " ".join(each.value for each in found(form.widget, HTML))))


async def clicked(form: Form, text: str, at: int = 0) -> Run:
    """Return the run after a click, as the front end makes it."""
    button(form, text, at).click()
    await asyncio.sleep(0)  # The click is handed to the loop.
    run = await form.settle()
    assert run is not None
    return run


async def test_option_answers_and_the_form_shows_what_follows() -> None:
    app, model = app_with(ASK, "Done with *FastAPI*.")
    form = app.form(await app.start("Build it"))
    (radio,) = found(form.widget, RadioButtons)
    assert radio.index is None
    assert [label for label, _ in radio.options] == ["1. Express", "2. FastAPI", "3. Other: in your own words"]
    radio.index = 1
    done = await clicked(form, "Answer")
    assert (done.status, done.answers[0].text) == (RunStatus.COMPLETED, "FastAPI")
    assert "Done with" in wording(form)
    assert "<em>FastAPI</em>" in " ".join(each.value for each in found(form.widget, HTML))
    assert "solo  ask_user: FastAPI" in wording(form)
    assert found(form.widget, Button) == []
    assert len(model.requests) == 2


async def test_nothing_chosen_changes_nothing() -> None:
    app, model = app_with(ASK)
    form = app.form(await app.start("Build it"))
    run = await clicked(form, "Answer")
    assert run.status is RunStatus.AWAITING_CLARIFICATION
    assert "There is no answer yet" in wording(form)
    assert not button(form, "Answer").disabled
    assert len(model.requests) == 1


async def test_form_asks_back_about_words_beside_a_chosen_option() -> None:
    app, _ = app_with(ASK, "Done.")
    form = app.form(await app.start("Build it"))
    (radio,), (text,) = found(form.widget, RadioButtons), found(form.widget, Text)
    radio.index, text.value = 0, "Koa, please"
    await clicked(form, "Answer")
    assert "clear the text, or choose" in wording(form)
    radio.index = 2
    assert (await clicked(form, "Answer")).answers[0].text == "Koa, please"


async def test_number_that_is_no_option_is_a_slip() -> None:
    app, _ = app_with(ASK, "Done.")
    form = app.form(await app.start("Build it"))
    found(form.widget, Text)[0].value = "7"
    run = await clicked(form, "Answer")
    assert "There is no option 7" in wording(form)
    assert run.waiting


async def test_several_options_are_ticked() -> None:
    both = Call("ask_user", {"question": "Which?", "options": ["A", "B", "C"], "multi_select": True})
    app, _ = app_with(both, "Done.")
    form = app.form(await app.start("Build it"))
    for box in found(form.widget, Checkbox)[::2]:
        box.value = True
    assert (await clicked(form, "Answer")).answers[0].selected == ("A", "C")


@pytest.mark.parametrize(("text", "outcome"), [("Skip", Outcome.SKIPPED), ("Decline", Outcome.DECLINED)])
async def test_question_may_be_skipped_or_declined(text: str, outcome: Outcome) -> None:
    app, _ = app_with(ASK_DATABASE, "Done.")
    form = app.form(await app.start("Build it"))
    assert (await clicked(form, text)).answers[0].outcome is outcome


async def test_required_question_has_no_button_to_skip() -> None:
    app, _ = app_with(ASK)
    form = app.form(await app.start("Build it"))
    assert [each.description for each in found(form.widget, Button)] == ["Answer", "Decline", "Look again"]


# -- a plan under review ----------------------------------------------------------------------------------------------


async def reviewing() -> Form:
    """Return the form of a run whose plan waits for its review."""
    settings = Settings.read(models={"model": "demo"}, planning={"enable_plan_approval": True})
    app = Upcall(store="runs.db", settings=settings)
    return app.form(await app.start(TASK))


def steps_of(form: Form) -> list[Textarea]:
    return [each for each in found(form.widget, Textarea) if each.description.startswith("Step ")]


def added_step(form: Form) -> Textarea:
    (field,) = [each for each in found(form.widget, Textarea) if each.placeholder == "One more step at the end"]
    return field


async def test_plan_has_a_field_a_step_that_changes_it() -> None:
    form = await reviewing()
    (first,) = steps_of(form)
    assert "Do you approve this plan" in wording(form)
    first.value, added_step(form).value = "Write it small", "Test it"
    run = await clicked(form, "Answer")
    assert run.plan is not None
    assert (run.plan.version, [each.value for each in steps_of(form)]) == (2, ["Write it small", "Test it"])
    assert first.comm is None  # The fields of the earlier version are gone.
    steps_of(form)[1].value = "Test it well"
    await clicked(form, "Answer")
    assert [each.value for each in steps_of(form)] == ["Write it small", "Test it well"]


async def test_emptied_step_of_a_plan_is_removed() -> None:
    form = await reviewing()
    added_step(form).value = "Test it"
    await clicked(form, "Answer")
    steps_of(form)[0].value = ""
    await clicked(form, "Answer")
    assert [each.value for each in steps_of(form)] == ["Test it"]


async def test_approval_with_changes_shows_the_plan_again() -> None:
    form = await reviewing()
    steps_of(form)[0].value = "Write it small"
    found(form.widget, RadioButtons)[0].index = 0
    run = await clicked(form, "Answer")
    assert run.plan is not None
    assert (run.plan.status, run.plan.version) == ("proposed", 2)


async def test_rejection_beside_changes_is_asked_back() -> None:
    form = await reviewing()
    steps_of(form)[0].value = "Write it small"
    found(form.widget, RadioButtons)[0].index = 1
    run = await clicked(form, "Answer")
    assert "'Reject' is chosen and the plan is changed" in wording(form)
    assert run.waiting


async def test_unchanged_plan_is_approved_by_its_choice() -> None:
    form = await reviewing()
    found(form.widget, RadioButtons)[0].index = 0
    run = await clicked(form, "Answer")
    assert run.plan is not None
    assert run.plan.status == "approved"


# -- several questions ------------------------------------------------------------------------------------------------


async def test_several_questions_are_sent_together() -> None:
    app, model = app_with(Calls([ASK, ASK_DATABASE]), "Done.")
    form = app.form(await app.start("Build it"))
    found(form.widget, RadioButtons)[0].index = 0
    found(form.widget, Textarea)[0].value = "SQLite"
    done = await clicked(form, "Send all answers")
    assert [each.text for each in done.answers] == ["Express", "SQLite"]
    assert len(model.requests) == 2


async def test_form_keeps_typed_text_when_another_question_is_answered() -> None:
    app, _ = app_with(Calls([ASK, ASK_DATABASE]), "Done.")
    form = app.form(await app.start("Build it"))
    found(form.widget, Textarea)[0].value = "SQLi"
    found(form.widget, RadioButtons)[0].index = 0
    run = await clicked(form, "Answer", 0)
    assert [each.question for each in run.questions] == ["Which database?"]
    assert [each.value for each in found(form.widget, Textarea)] == ["SQLi"]
    assert (await clicked(form, "Answer")).status is RunStatus.COMPLETED


async def test_secret_is_a_password_field_emptied_after_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPCALL_SECRET_KEY", Fernet.generate_key().decode())
    had: list[str] = []

    def deploy() -> str:
        """Deploy."""
        had.append(ask_secret("The password?"))
        return "deployed"

    app, _ = app_with(Call("deploy", {}), "Done.", tools=[deploy])
    form = app.form(await app.start("Deploy it"))
    (field,) = found(form.widget, Password)
    field.value = "hunter2"
    done = await clicked(form, "Answer")
    assert (had, done.status, field.value) == (["hunter2"], RunStatus.COMPLETED, "")
    assert "hunter2" not in wording(form) + repr(form._page_bundle())  # type: ignore[attr-defined]


async def test_two_clicks_are_one_answer() -> None:
    app, model = app_with(ASK, "Done.")
    form = app.form(await app.start("Build it"))
    found(form.widget, RadioButtons)[0].index = 0
    send = button(form, "Answer")
    send.click()
    send.click()
    await asyncio.sleep(0)
    assert send.disabled
    done = await form.settle()
    assert done is not None
    assert (done.status, len(model.requests)) == (RunStatus.COMPLETED, 2)
    assert "error" not in wording(form).lower()


async def test_click_from_another_thread_works_on_the_cells_loop() -> None:
    app, _ = app_with(ASK, "Done.")
    form = app.form(await app.start("Build it"))
    found(form.widget, RadioButtons)[0].index = 0
    thread = threading.Thread(target=button(form, "Answer").click)
    thread.start()
    thread.join()
    await asyncio.sleep(0)
    done = await form.settle()
    assert done is not None
    assert done.status is RunStatus.COMPLETED


async def test_form_answered_elsewhere_explains_it_and_shows_the_run() -> None:
    app, _ = app_with(ASK, "Done.")
    form = app.form(await app.start("Build it", user="bob"))
    assert form.run is not None
    await app.answer(form.run.id, "Express", user="bob")
    found(form.widget, RadioButtons)[0].index = 1
    run = await clicked(form, "Answer")
    assert run.status is RunStatus.COMPLETED
    assert "was answered by bob" in wording(form)
    assert found(form.widget, RadioButtons) == []


async def test_failed_run_is_resumed_by_a_button() -> None:
    app, _ = app_with(ASK, Fail("the server is down"), "Done.")
    form = app.form(await app.start("Build it"))
    found(form.widget, RadioButtons)[0].index = 0
    assert (await clicked(form, "Answer")).status is RunStatus.FAILED
    assert (await clicked(form, "Resume")).status is RunStatus.COMPLETED


async def test_form_is_made_from_an_id_after_a_restart() -> None:
    app, _ = app_with(ASK, "Done.")
    await app.start("Build it")
    (entry,) = await app.inbox()
    form = app.form(entry.run_id)
    await form.settle()
    found(form.widget, RadioButtons)[0].index = 0
    assert (await clicked(form, "Answer")).status is RunStatus.COMPLETED


async def test_unknown_run_is_one_line() -> None:
    form = app_with()[0].form("nothing")
    assert await form.settle() is None
    assert "nothing" in wording(form)


async def test_form_answers_an_asker_outside() -> None:
    app = Upcall(store="runs.db", settings=Settings.read(None))
    asked = describe_question("Which framework?", path=["lead", "coder"], options=["Express", "FastAPI"])
    ticket = await app.external.ask(asked, run="shop")
    form = app.form("shop")
    await form.settle()
    found(form.widget, RadioButtons)[0].index = 1
    assert (await clicked(form, "Answer")).status is RunStatus.COMPLETED
    answer = await app.external.wait(ticket, 0)
    assert answer is not None
    assert answer.selected == ("FastAPI",)


async def test_form_starts_a_run_and_shows_it_live() -> None:
    app, _ = app_with(Calls([Call("look", {})]), ASK, "Done.", tools=[look])
    form = app.form(app.start_stream("Build it"))
    assert form.run is None
    run = await form.settle()
    assert run is not None
    assert run.waiting
    assert "calls look" in wording(form)
    assert found(form.widget, RadioButtons) != []


def look() -> str:
    """Look."""
    return "It is <b>empty</b>."


async def test_form_shows_tokens_until_the_text_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "TOKEN_UPDATE_INTERVAL_S", -1.0)
    events = forms._Events()

    def chunk(text: str, path: str = "lead/coder") -> ModelClientStreamingChunkEvent:
        return ModelClientStreamingChunkEvent(source="coder", content=text, metadata={PATH: path})

    assert all(events.add_event(chunk(text)) for text in ("Express ", "it is"))
    assert events.add_event(chunk('{"title": 1', path="planner"))
    assert events.list_shown() == ["lead > coder  Express it is", 'planner  {"title": 1']
    events.add_event(TextMessage(source="coder", content="Express it is.", metadata={PATH: "lead/coder"}))
    assert events.list_shown()[:2] == ["lead > coder  reports: Express it is.", 'planner  {"title": 1']


def test_form_shows_two_texts_of_one_agent_apart() -> None:
    events, path = forms._Events(), {PATH: "lead/coder"}
    for message, text in (("a", "One "), ("b", "Two "), ("a", "and a half"), ("b", "and more")):
        events.add_event(
            ModelClientStreamingChunkEvent(source="coder", content=text, full_message_id=message, metadata=path)
        )
    events.add_event(TextMessage(id="b", source="coder", content="Two and more", metadata=path))
    assert events.list_shown() == ["lead > coder  reports: Two and more", "lead > coder  One and a half"]


async def test_what_the_events_say_is_no_markup() -> None:
    app, _ = app_with(Calls([Call("look", {})]), ASK, tools=[look])
    form = app.form(app.start_stream("Build it"))
    await form.settle()
    pages = " ".join(each.value for each in found(form.widget, HTML))
    assert "&lt;b&gt;empty" in pages
    assert "<b>empty" not in pages


async def test_form_shows_widgets_or_a_page_without_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setattr(InteractiveShell, "_instance", InteractiveShell())
    app, _ = app_with(ASK, "Done.")
    form = app.form(await app.start("Build it"))
    with capture_output() as caught:
        display(form)
    buttons, page = (each.data for each in caught.outputs)
    assert {*buttons} == {"application/vnd.jupyter.widget-view+json", "text/plain"}
    assert "Which framework?" in page["text/plain"]
    assert "app.answer(" in page["text/html"]
    assert "get them back with" in page["text/html"]
    Tags(page["text/html"])
    (name,) = re.findall(r'class="(upcall-page-\w+)"', page["text/html"])
    assert any(f".{name}, " in each.value for each in found(form.widget, HTML))
    found(form.widget, RadioButtons)[0].index = 0
    with capture_output() as caught:
        await clicked(form, "Answer")
    assert "completed" in caught.outputs[-1].data["text/html"]
    assert "get them back" not in caught.outputs[-1].data["text/html"]


def test_lost_form_without_a_pause_names_app_list() -> None:
    page = html.unescape(lost_form_html(None))
    assert "Its buttons are gone with its kernel" in page
    assert "await app.list()" in page


def test_without_a_loop_a_form_says_where_it_belongs() -> None:
    with pytest.raises(ConfigurationError, match="in a notebook cell"):
        app_with()[0].form("run1")


def test_form_without_ipywidgets_explains_answering_and_installing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.delitem(sys.modules, "upcall.notebook.forms")
    page = html.unescape(run_html(waiting_for(asking())))
    assert "await app.answer('run1', '...')" in page
    assert "app.form" not in page
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[notebook\]'"):
        app_with()[0].form("run1")


async def test_form_for_somebody_else_has_no_fields() -> None:
    app, _ = app_with(ASK, "Done.")
    run = await app.start("Build it", user="alice")
    run = await app.access.assign(run.id, run.questions[0].id, "bob", user="alice")
    form = app.form(run, user="alice")
    assert "Which framework?" in wording(form)
    assert "For bob." in wording(form)
    assert found(form.widget, RadioButtons) == []
    theirs = app.form(run.id, user="bob")
    await theirs.settle()
    found(theirs.widget, RadioButtons)[0].index = 0
    await clicked(theirs, "Answer")
    assert (await clicked(form, "Look again")).answers[0].user == "bob"


async def test_form_turns_no_question_of_a_model_into_markup() -> None:
    hostile = {"question": HOSTILE, "context": HOSTILE, "options": [HOSTILE, "No"], "required": False}
    app, _ = app_with(Call("ask_user", hostile))
    form = app.form(await app.start(HOSTILE))
    for page in found(form.widget, HTML):
        assert not {"script", "img"} & Tags(page.value).tags
    assert not any(each.description_allow_html for each in found(form.widget, RadioButtons))


async def test_risk_is_not_confirmed_by_pressing_answer_alone() -> None:
    risk = {"question": "Delete it?", "options": ["Delete", "Keep"], "clarification_type": "risk_confirmation"}
    app, model = app_with(Call("ask_user", risk | {"allow_free_text": False}), "Done.")
    form = app.form(await app.start("Clean up"))
    assert [each.index for each in found(form.widget, RadioButtons)] == [None]
    assert (await clicked(form, "Answer")).answers == ()
    assert [each.description for each in found(form.widget, Button)] == ["Answer", "Decline", "Look again"]
    assert len(model.requests) == 1


# -- while others work ------------------------------------------------------------------------------------------------

CODER_ASKS: dict[str, list[Reply]] = {
    "You are the lead": [Calls([Call("coder", {"task": "Code"}), Call("searcher", {"task": "Search"})]), "All done."],
    "You are the coder": [ASK, "It is coded."],
    "You are the searcher": [Call("search", {}), "Searched."],
}


class Work:
    """A run in a form, whose searcher takes as long as the test wants."""

    def __init__(self, replies: dict[str, list[Reply]]) -> None:
        self.model, self.found, self.tested = ScriptedModelClient(replies), asyncio.Event(), asyncio.Event()
        self.app = Upcall(store="runs.db", team=self.team)
        self.form = self.app.form(self.app.start_stream("Build it"))

    async def search(self) -> str:
        """Search slowly."""
        await self.found.wait()
        return "It was found."

    async def test(self) -> str:
        """Test for long."""
        await self.tested.wait()
        return "It works."

    def team(self) -> Team:
        def worker(name: str, **options: Any) -> PausableAgent:
            wording = f"You are the {name}."
            return PausableAgent(name, self.model, description=name, system_message=wording, **options)

        helpers = [worker("coder"), worker("searcher", tools=[self.search]), worker("tester", tools=[self.test])]
        stops = HandoffTermination("user") | TextMessageTermination("lead")
        return Swarm([worker("lead", agents=helpers), UserProxyAgent("user")], termination_condition=stops)

    async def until(self, done: Callable[[], bool]) -> None:
        async def look() -> None:
            while not done():
                await asyncio.sleep(0.01)

        await asyncio.wait_for(look(), 30)

    def can(self, text: str) -> bool:
        return any(each.description == text and not each.disabled for each in found(self.form.widget, Button))

    @property
    def run(self) -> Run:
        assert self.form.run is not None
        return self.form.run


async def test_form_answers_a_question_while_others_work() -> None:
    work = Work(CODER_ASKS)
    await work.until(lambda: work.can("Answer"))
    assert (work.run.status, work.run.records.asked_since_checkpoint) == (
        RunStatus.EXECUTING,
        (work.run.questions[0].id,),
    )
    assert "Working" in wording(work.form)
    found(work.form.widget, RadioButtons)[0].index = 1
    button(work.form, "Answer").click()
    await work.until(lambda: "It is coded." in wording(work.form))
    assert found(work.form.widget, RadioButtons) == []
    assert not work.found.is_set()
    work.found.set()
    run = await work.form.settle()
    assert run is not None
    assert (run.status, run.result) == (RunStatus.COMPLETED, "All done.")
    assert [answer.text for answer in run.answers] == ["FastAPI"]
    assert "Working" not in wording(work.form)


async def test_two_clicks_while_others_work_are_one_answer() -> None:
    work = Work(CODER_ASKS)
    await work.until(lambda: work.can("Answer"))
    found(work.form.widget, RadioButtons)[0].index = 0
    send = button(work.form, "Answer")
    send.click()
    send.click()
    await work.until(lambda: found(work.form.widget, RadioButtons) == [])
    send.click()  # Made before the page had taken it away.
    work.found.set()
    run = await work.form.settle()
    assert run is not None
    assert [answer.text for answer in run.answers] == ["Express"]
    assert (run.status, wording(work.form).count("There is no answer yet")) == (RunStatus.COMPLETED, 0)


async def test_form_keeps_typed_text_while_other_questions_arrive() -> None:
    work = Work(CODER_ASKS | {"You are the searcher": [Call("search", {}), ASK_DATABASE, "Searched."]})
    await work.until(lambda: work.can("Answer"))
    (field,) = found(work.form.widget, Text)
    field.value = "Ko"
    assert not work.can("Send all answers")
    work.found.set()
    run = await work.form.settle()
    assert run is not None
    assert (run.waiting, len(run.questions)) == (True, 2)
    assert found(work.form.widget, Text) == [field]
    assert field.value == "Ko"
    field.value, found(work.form.widget, Textarea)[0].value = "Koa", "SQLite"
    run = await clicked(work.form, "Send all answers")
    assert (run.status, {answer.text for answer in run.answers}) == (RunStatus.COMPLETED, {"SQLite", "Koa"})


async def test_form_does_not_show_an_answered_question_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("upcall.execution.segment.ANSWER_POLL_INTERVAL_S", 60)
    workers = [Call(name, {"task": "Do it"}) for name in ("coder", "searcher", "tester")]
    replies: dict[str, list[Reply]] = {
        "You are the lead": [Calls(workers), "All done."],
        "You are the searcher": [Call("search", {}), ASK_DATABASE, "Searched."],
        "You are the tester": [Call("test", {}), "Tested."],
    }
    work = Work(CODER_ASKS | replies)
    await work.until(lambda: work.can("Answer"))
    found(work.form.widget, RadioButtons)[0].index = 0
    button(work.form, "Answer").click()
    await work.until(lambda: found(work.form.widget, RadioButtons) == [])
    work.found.set()
    await work.until(lambda: found(work.form.widget, Textarea) != [])
    assert found(work.form.widget, RadioButtons) == []
    work.tested.set()
    run = await work.form.settle()
    assert run is not None
    assert [question.question for question in run.questions] == ["Which database?"]
    found(work.form.widget, Textarea)[0].value = "SQLite"
    run = await clicked(work.form, "Answer")
    assert (run.status, {answer.text for answer in run.answers}) == (RunStatus.COMPLETED, {"Express", "SQLite"})


async def test_form_ignores_late_events_of_an_earlier_state() -> None:
    """An answer is left for a team, and the team is done before it arrives."""
    app, _ = app_with(ASK, "Done.")
    waiting = await app.start("Build it")
    done = await app.answer(waiting.id, "Express")
    left = waiting.record_answers(done.answers).apply(RunEvent.EXECUTING)

    async def states() -> AsyncGenerator[Event | Run, None]:
        for run in (waiting, left, done, left, waiting):
            yield run

    form = app.form(states())
    assert (await form.settle()) == done
    assert "completed" in wording(form)


@pytest.mark.slow
async def test_form_answers_the_second_question_during_the_first() -> None:
    replies = CODER_ASKS | {
        "You are the coder": [ASK, "It is coded."],
        "You are the searcher": [ASK_DATABASE, Call("search", {}), "Searched."],
    }
    work = Work(replies)
    run = await work.form.settle()  # Both wait.
    assert run is not None
    assert run.waiting
    found(work.form.widget, Textarea)[0].value = "SQLite"
    at = [question.question for question in run.questions].index("Which database?")
    button(work.form, "Answer", at).click()
    await work.until(lambda: "calls search" in wording(work.form))
    assert work.run.status is RunStatus.EXECUTING
    found(work.form.widget, RadioButtons)[0].index = 0
    await work.until(lambda: work.can("Answer"))
    button(work.form, "Answer").click()
    await work.until(lambda: found(work.form.widget, RadioButtons) == [])
    work.found.set()
    run = await work.form.settle()
    assert run is not None
    assert (run.status, [answer.text for answer in run.answers]) == (RunStatus.COMPLETED, ["SQLite", "Express"])


async def test_form_leaves_a_question_open_after_a_refused_answer() -> None:
    work = Work(CODER_ASKS)
    await work.until(lambda: work.can("Answer"))
    found(work.form.widget, Text)[0].value = "7"
    button(work.form, "Answer").click()
    await work.until(lambda: "There is no option 7" in wording(work.form))
    await work.until(lambda: work.can("Answer"))
    work.found.set()
    run = await work.form.settle()
    assert run is not None
    assert run.waiting


# -- what other front ends ask for ------------------------------------------------------------------------------------


async def test_form_is_made_of_core_widgets_without_scripts() -> None:
    """VS Code and others load no widget modules beyond ipywidgets' own, and run no script of an output."""
    work = Work(CODER_ASKS)
    await work.until(lambda: work.can("Answer"))
    shown = [
        work.form.widget,
        *(each for kind in (HTML, Button, RadioButtons, Text) for each in found(work.form.widget, kind)),
    ]
    modules = {each.get_state()[name] for each in shown for name in ("_model_module", "_view_module")}
    assert modules == {"@jupyter-widgets/controls"}
    for page in found(work.form.widget, HTML):
        seen = Tags(page.value)
        assert "script" not in seen.tags
        assert not any(name.startswith("on") for name, _ in seen.attributes)
    work.found.set()
    await work.form.settle()


async def test_form_of_a_paused_run_hides_diagrams_behind_clicks() -> None:
    app, _ = app_with(ASK, "Done.")
    form = app.form(await app.start("Build it"))
    await form.settle()
    pages = " ".join(each.value for each in found(form.widget, HTML))
    images = re.findall(r'<details><summary[^>]*>([^<]+)</summary><img [^>]*base64,([^"]+)"', pages)
    assert [title for title, _ in images] == ["Timeline", "Agents and questions"]
    assert all(b64decode(data).startswith(b"<svg ") for _, data in images)


def test_form_names_thoughts() -> None:
    thought, text = (BegunText(("a", "b"), "1", is_thought, ["x" * 700, "y"]) for is_thought in (True, False))
    assert forms.describe_writing(thought)[:16] == "a > b  thinks: x"
    assert forms.describe_writing(text)[:16] == "a > b  xxxxxxxxx"
