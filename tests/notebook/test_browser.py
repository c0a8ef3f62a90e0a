"""Notebooks in a real browser: Chromium, a real JupyterLab and the classic notebook, real kernels, no network."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from lab import CHROMIUM, Lab, Notebook, chromium, looking, serving
from playwright.async_api import Locator, expect

from upcall import Settings, Upcall

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
]

TASK = "Build me a user authentication system"
START = f"""
from upcall import Settings, Upcall
app = Upcall(store="STORE", settings=Settings.read(models={{"model": "demo"}}))
run = await app.start({TASK!r}, user="alice", workspace="STORE-files")
run
"""
FORM = "app.form(run, user='alice')"
AFTER_RESTART = """
from upcall import Settings, Upcall
app = Upcall(store="STORE", settings=Settings.read(models={"model": "demo"}))
inbox = await app.inbox(user="alice")
inbox
"""
FORM_AFTER_RESTART = "app.form(inbox[0].run_id, user='alice')"
RESULT = "server.js"
PICTURE = "from upcall.ui.diagrams import tree\ntree(run)"
FRONT_ENDS = ["lab/tree", "notebooks"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One server for all journeys of a worker."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "UPCALL_"))}
    with serving(tmp_path_factory.mktemp("lab"), own) as served:
        yield served


@pytest.fixture
async def notebook(lab: Lab) -> AsyncIterator[Notebook]:
    """Yield a page; what it did not find on this machine it was not to look for."""
    async with chromium() as browser, looking(browser) as (page, elsewhere):
        yield Notebook(page)
        assert elsewhere == []


async def opened(notebook: Notebook, lab: Lab, name: str, *cells: str, front_end: str = "lab/tree") -> Path:
    """Return the store of the notebook that stands open with these cells, in which STORE is the name of its store."""
    path = lab.notebook(name, *(cell.replace("STORE", f"{name}.db") for cell in cells))
    await notebook.open(lab.address(path, front_end))
    return lab.folder / f"{name}.db"


async def answered(store: Path) -> list[tuple[str, str | None]]:
    """Return the answers in a store, and who gave them; each was given once."""
    app = Upcall(store=store, settings=Settings.read(models={"model": "demo"}))
    (run,) = await app.list()
    entries = [entry for entry in await app.log.audit(run.id, user=run.user) if entry.kind == "answered"]
    assert len(entries) == len(run.answers)
    return [(answer.text, answer.user) for answer in run.answers]


def form_in(notebook: Notebook, at: int) -> Locator:
    """Return the widgets of a form; the page that they hide is beside them."""
    return notebook.output(at).locator(".upcall-form")


async def answer(form: Locator, option: str, *, clicks: int = 1) -> None:
    await form.get_by_text(option).click()
    await form.get_by_role("button", name="Answer", exact=True).click(click_count=clicks)


async def completed(form: Locator) -> None:
    await expect(form.get_by_text("completed", exact=True)).to_be_visible()
    await expect(form.get_by_text(RESULT).filter(visible=True).first).to_be_visible()
    await expect(form.get_by_role("button")).to_have_count(0)


async def stands_apart(rows: Locator) -> None:
    """Each row is below the one before, and has room for all of its text."""
    ends = await rows.evaluate_all(
        "rows => rows.map(row => row.getBoundingClientRect()).map(box => [box.top, box.bottom])"
    )
    assert len(ends) > 1
    assert all(bottom <= top for (_, bottom), (top, _) in pairwise(ends)), ends
    cut = await rows.evaluate_all("rows => rows.filter(row => row.scrollHeight > row.clientHeight + 1).length")
    assert cut == 0


async def drawn(image: Locator) -> None:
    await expect(image).to_be_visible()
    await expect(image).to_have_js_property("complete", True)
    await expect(image).to_have_js_property("naturalWidth", 800)


@pytest.mark.parametrize("front_end", FRONT_ENDS)
async def test_click_answers_and_the_result_is_seen(notebook: Notebook, lab: Lab, front_end: str) -> None:
    name = front_end.partition("/")[0]
    store = await opened(notebook, lab, name, START, FORM, PICTURE, front_end=front_end)
    await notebook.run(0)
    page = notebook.output(0)
    await expect(page.get_by_text("awaiting clarification")).to_be_visible()
    await expect(page.get_by_text("app.answer(")).to_be_visible()
    await notebook.run(1)
    form = form_in(notebook, 1)
    await expect(form.get_by_role("radio")).to_have_count(4)
    await expect(form.locator("input:checked")).to_have_count(0)
    await answer(form, "Express")
    await completed(form)
    assert await answered(store) == [("Express", "alice")]
    await form.get_by_text("Timeline").click()
    await drawn(form.get_by_alt_text("Timeline"))
    await notebook.run(2)
    await drawn(notebook.output(2).locator("img"))


async def test_after_a_restart_the_question_is_still_there(notebook: Notebook, lab: Lab) -> None:
    store = await opened(notebook, lab, "restart", START, AFTER_RESTART, FORM_AFTER_RESTART)
    await notebook.run(0)
    await notebook.restart()
    await notebook.run(1)
    await expect(notebook.output(1).get_by_text("Which framework")).to_be_visible()
    await notebook.run(2)
    await answer(form_in(notebook, 2), "Express")
    await completed(form_in(notebook, 2))
    assert await answered(store) == [("Express", "alice")]


async def test_double_click_answers_once(notebook: Notebook, lab: Lab) -> None:
    store = await opened(notebook, lab, "double", START, FORM)
    await notebook.run(0)
    await notebook.run(1)
    await answer(form_in(notebook, 1), "Express", clicks=2)
    await completed(form_in(notebook, 1))
    assert await answered(store) == [("Express", "alice")]


LIVE = """
import asyncio
from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.conditions import HandoffTermination, TextMessageTermination
from autogen_agentchat.teams import Swarm
from upcall import PausableAgent, Upcall
from upcall.testing import Call, Calls, ScriptedModelClient

found = asyncio.Event()
async def search() -> str:
    await found.wait()
    return "It was found."

LONG = "Django, with all that a larger application will want one day: admin pages, an ORM, sessions, forms, " * 3
ASK = Call("ask_user", {"question": "Which framework?", "options": ["Express", LONG, "FastAPI"]})
model = ScriptedModelClient({
    "You are the lead": [Calls([Call("coder", {"task": "Code"}), Call("searcher", {"task": "Search"})]), "All done."],
    "You are the coder": [ASK, "It is coded."],
    "You are the searcher": [Call("search", {}), "Searched."],
})
def worker(name, **options):
    return PausableAgent(name, model, description=name, system_message=f"You are the {name}.", **options)
def team():
    lead = worker("lead", agents=[worker("coder"), worker("searcher", tools=[search])])
    stops = HandoffTermination("user") | TextMessageTermination("lead")
    return Swarm([lead, UserProxyAgent("user")], termination_condition=stops)
app = Upcall(store="STORE", team=team)
app.form(app.start_stream("Build it", user="alice"), user="alice")
"""


async def test_question_is_answered_while_others_work(notebook: Notebook, lab: Lab) -> None:
    store = await opened(notebook, lab, "live", LIVE, "found.set()")
    await notebook.run(0)
    form = form_in(notebook, 0)
    await expect(form.get_by_text("executing", exact=True)).to_be_visible()
    await expect(form.get_by_text("calls search")).to_be_visible()
    await expect(form.locator(".widget-radio-box label").first).to_be_visible()
    await stands_apart(form.locator(".widget-radio-box label, input[type=text]"))
    await answer(form, "FastAPI")
    await expect(form.get_by_text("It is coded.")).to_be_visible()
    await expect(form.get_by_text("Working")).to_be_visible()
    await notebook.run(1)
    await expect(form.get_by_text("completed", exact=True)).to_be_visible()
    await expect(form.get_by_text("All done.", exact=True)).to_be_visible()
    assert await answered(store) == [("FastAPI", "alice")]


TOKENS = """
import asyncio
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.replay import ReplayChatCompletionClient
from upcall import PausableAgent, Upcall

more = asyncio.Event()
class Slow(ReplayChatCompletionClient):
    async def create_stream(self, messages, **options):
        yield "Once upon a time"
        await more.wait()
        async for piece in super().create_stream(messages, **options):
            yield piece

def team():
    teller = PausableAgent("teller", Slow(["The end of the tale."]), stream=True)
    return RoundRobinGroupChat([teller], max_turns=1)
app = Upcall(store="STORE", team=team)
app.form(app.start_stream("Tell a tale"))
"""


@pytest.mark.parametrize("front_end", FRONT_ENDS)
async def test_tokens_are_seen_as_they_come(notebook: Notebook, lab: Lab, front_end: str) -> None:
    await opened(notebook, lab, f"tokens-{front_end[:3]}", TOKENS, "more.set()", front_end=front_end)
    await notebook.run(0)
    form = form_in(notebook, 0)
    await expect(form.get_by_text("Once upon a time")).to_be_visible()
    await expect(form.get_by_text("Working")).to_be_visible()
    await notebook.run(1)
    await expect(form.get_by_text("completed", exact=True)).to_be_visible()
    await expect(form.get_by_text("Once upon a time")).to_have_count(0)


APPROVE = """
from autogen_agentchat.teams import RoundRobinGroupChat
from upcall import PausableAgent, Upcall
from upcall.testing import Call, Calls, ScriptedModelClient

sent = []
def send(to: str) -> str:
    sent.append(to)
    return "sent"

letters = Calls([Call("send", {"to": name}) for name in ("ann", "bob", "eve")])
mailer = PausableAgent("mailer", ScriptedModelClient([letters, "All is sent."]), tools=[send], approve=["send"])
app = Upcall(store="STORE", team=lambda: RoundRobinGroupChat([mailer], max_turns=1))
app.form(app.start_stream("Mail them", user="alice"), user="alice")
"""


@pytest.mark.parametrize("front_end", FRONT_ENDS)
async def test_tool_calls_are_approved_changed_and_refused_by_clicks(
    notebook: Notebook, lab: Lab, front_end: str
) -> None:
    name = f"approve-{front_end[:3]}"
    store = await opened(notebook, lab, name, APPROVE, "print(*sent)", front_end=front_end)
    await notebook.run(0)
    rows = form_in(notebook, 0).locator(".upcall-risk")
    await expect(rows).to_have_count(3)
    await answer(rows.filter(has_text="send(to: ann)"), "Yes, call it")
    await expect(rows).to_have_count(2)
    changed = rows.filter(has_text="send(to: bob)")
    await changed.get_by_role("textbox").fill('{"to": "joe"}')
    await changed.get_by_role("button", name="Answer", exact=True).click()
    await expect(rows).to_have_count(1)
    await rows.get_by_role("button", name="Decline", exact=True).click()
    await expect(form_in(notebook, 0).get_by_text("completed", exact=True)).to_be_visible()
    await notebook.run(1)
    await expect(notebook.output(1).get_by_text("ann joe", exact=True)).to_be_visible()
    assert [user for _, user in await answered(store)] == ["alice"] * 3


REVIEW = f"""
from upcall import Settings, Upcall
asked = Settings.read(models={{"model": "demo"}}, planning={{"enable_plan_approval": True}})
app = Upcall(store="STORE", settings=asked)
app.form(await app.start({TASK!r}, user="alice"), user="alice")
"""


async def test_plan_is_changed_step_by_step_then_approved(notebook: Notebook, lab: Lab) -> None:
    store = await opened(notebook, lab, "review", REVIEW)
    await notebook.run(0)
    form = form_in(notebook, 0)
    await form.get_by_label("Step 1 (coder)").fill("Write it small")
    await form.get_by_placeholder("One more step").fill("Test it")
    await form.get_by_role("button", name="Answer", exact=True).click()
    await expect(form.get_by_label("Step 2 (lead)")).to_have_value("Test it")
    await expect(form.get_by_label("Step 1 (coder)")).to_have_value("Write it small")
    await answer(form, "1. Approve")
    await answer(form, "Express")
    await completed(form)
    assert [text for text, _ in await answered(store)] == [
        "edit step 1: Write it small\nadd step: Test it",
        "Approve",
        "Express",
    ]


MONEY = """
from autogen_agentchat.teams import RoundRobinGroupChat
from upcall import PausableAgent, Upcall
from upcall.testing import Call, ScriptedModelClient

asked = {"question": "Remove $HOME/a or $HOME/b?", "options": ["$HOME/a and $HOME/b", "<b>none</b>"]}
kinds = [{**asked, "multi_select": True}, {**asked, "question": "Archive $HOME/a or $HOME/b?"}]
model = ScriptedModelClient([*(Call("ask_user", kind) for kind in kinds), "Done: $HOME/a and $HOME/b."])
app = Upcall(store="STORE", team=lambda: RoundRobinGroupChat([PausableAgent("agent", model)], max_turns=1))
run = await app.start("Tidy $HOME/a and $HOME/b", user="alice")
app.form(run, user="alice")
"""


async def test_what_stands_between_two_dollar_signs_is_no_formula(notebook: Notebook, lab: Lab) -> None:
    store = await opened(notebook, lab, "money", MONEY, "run = await app.get(run.id)\nrun", "await app.inbox()")
    await notebook.run(0)
    form = form_in(notebook, 0)
    for row in ("checkbox", "radio"):
        await form.get_by_role(row).first.check()  # type: ignore[arg-type]
        await expect(form.get_by_text("$HOME/a and $HOME/b").first).to_be_visible()
        await expect(form.get_by_text("<b>none</b>")).to_be_visible()
        await notebook.run(1)
        await notebook.run(2)
        await expect(notebook.page.locator(".MathJax, mjx-container")).to_have_count(0)
        await form.get_by_role("button", name="Answer", exact=True).click()
        await expect(form.get_by_role(row)).to_have_count(0)  # type: ignore[arg-type]
    await expect(form.get_by_text("Done: $HOME/a and $HOME/b.").filter(visible=True).first).to_be_visible()
    await expect(notebook.page.locator(".MathJax, mjx-container")).to_have_count(0)
    assert await answered(store) == [("$HOME/a and $HOME/b", "alice")] * 2


async def test_without_ipywidgets_the_page_says_how_to_answer(notebook: Notebook, lab: Lab) -> None:
    without = "import sys\nsys.modules['ipywidgets'] = None\n"
    store = await opened(notebook, lab, "plain", without + START, "")
    await notebook.run(0)
    page = notebook.output(0)
    await expect(page.get_by_text("app.form(")).to_have_count(0)
    line = await page.locator("code", has_text="app.answer(").inner_text()
    await notebook.write(1, f"{line}\nrun")
    await notebook.run(1)
    await expect(notebook.output(1).get_by_text("completed", exact=True)).to_be_visible()
    ((text, _),) = await answered(store)
    assert text in line


LOST = "The buttons of this form are gone with its kernel"


async def says_how_to_answer(notebook: Notebook, at: int) -> None:
    page = notebook.output(at)
    question = page.get_by_text("Which framework").filter(visible=True)  # The plan may name it, too.
    await expect(question.first).to_be_visible()
    await expect(page.get_by_text("app.answer(").filter(visible=True)).to_have_count(1)


async def test_notebook_without_its_kernel_shows_how_to_answer(notebook: Notebook, lab: Lab) -> None:
    await opened(notebook, lab, "first", START, FORM)
    await notebook.run(0)
    await notebook.run(1)
    await expect(form_in(notebook, 1).get_by_role("radio")).to_have_count(4)
    await expect(notebook.output(1).get_by_text("app.answer(").filter(visible=True)).to_have_count(0)
    await expect(notebook.output(1).get_by_text(LOST).filter(visible=True)).to_have_count(0)
    await notebook.save()
    await notebook.restart()

    await notebook.open(lab.address(lab.folder / "first.ipynb", "lab/tree"))  # Its widgets are gone with the kernel.
    await says_how_to_answer(notebook, 0)
    await says_how_to_answer(notebook, 1)
    await expect(notebook.output(0).get_by_text(LOST)).to_have_count(0)
    await expect(notebook.output(1).get_by_text(LOST).filter(visible=True)).to_have_count(1)

    received = lab.notebook("received", "")  # Not signed here, so not trusted: HTML as JupyterLab cleans it.
    received.write_text((lab.folder / "first.ipynb").read_text().replace("app.form(run", "app.form( run"))
    await notebook.open(lab.address(received, "lab/tree"))
    await says_how_to_answer(notebook, 0)
    await says_how_to_answer(notebook, 1)
    await expect(notebook.page.locator(".jp-Notebook").get_by_role("radio")).to_have_count(0)
