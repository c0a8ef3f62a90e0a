"""The notebooks, run by real kernels of the running interpreter."""

from __future__ import annotations

import asyncio
import re
import sys
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest
from docx import Document
from guests import is_here
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode
from places import ROOT
from sandboxed import needs_bubblewrap

FOLDER = ROOT / "notebooks"
NOTEBOOKS = [
    each
    for each in sorted(FOLDER.glob("*.ipynb"))
    if all(is_here(guest) or f"upcall.{guest}" not in each.read_text() for guest in ("experiments", "research"))
]
TIMEOUT_S = 120


class OwnKernelManager(AsyncKernelManager):
    """Starts kernels with the interpreter that runs the tests, whatever kernels are installed on the machine."""

    def _kernel_spec_manager_default(self) -> KernelSpecManager:
        return KernelSpecManager(kernel_dirs=[])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder; what the machine says of models and of IPython does not reach the kernels, and they
    have the settings that a user has."""
    monkeypatch.delenv("UPCALL_QUESTIONS__CHECK_QUESTIONS")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("OPENAI_API_KEY", "no-key")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


# nbformat has no annotations, so its functions are called here only.


def read(path: Path) -> NotebookNode:
    notebook: NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    return notebook


def notebook_of(cells: list[NotebookNode]) -> NotebookNode:
    notebook: NotebookNode = nbformat.v4.new_notebook(cells=cells)  # type: ignore[no-untyped-call]
    return notebook


def code(source: str) -> NotebookNode:
    cell: NotebookNode = nbformat.v4.new_code_cell(source)  # type: ignore[no-untyped-call]
    return cell


def client_of(notebook: NotebookNode, folder: Path) -> NotebookClient:
    resources = {"metadata": {"path": str(folder)}}
    return NotebookClient(notebook, timeout=TIMEOUT_S, kernel_manager_class=OwnKernelManager, resources=resources)


def run(client: NotebookClient) -> None:
    """Run all cells. The client's own `execute` leaves an event loop open, whose warning another test gets."""
    asyncio.run(client.async_execute())


def execute(notebook: NotebookNode, folder: Path) -> str:
    """Return what the cells print and give, from a new kernel in `folder` that is gone afterwards."""
    run(client_of(notebook, folder))
    return "".join(shown(cell) for cell in notebook.cells if cell.cell_type == "code")


def executed(name: str, folder: Path, **before: str) -> dict[str, NotebookNode]:
    """Return the cells of a notebook by id, run in `folder`; `before` are cells to be run before those with these
    ids, or at the ``end``."""
    cells = read(FOLDER / f"{name}.ipynb").cells
    for place, source in before.items():
        at = next((number for number, cell in enumerate(cells) if cell["id"] == place), len(cells))
        cells.insert(at, code(source))
        cells[at]["id"] = f"before-{place}"
    run(client_of(notebook := notebook_of(cells), folder))
    return {cell["id"]: cell for cell in notebook.cells}


def bundle(cell: NotebookNode) -> Mapping[str, str]:
    """Return what a front end gets of the last thing that a cell shows, by MIME type."""
    data: Mapping[str, str] = cell.outputs[-1].data
    return data


WIDGETS = """
from ipywidgets import Button, RadioButtons

def found(root):
    return [root, *(each for child in getattr(root, "children", ()) for each in found(child))]
(radio,) = (each for each in found(form.widget) if type(each) is RadioButtons)
(button,) = (each for each in found(form.widget) if type(each) is Button and each.description == "Answer")
print(radio.model_id, button.model_id)
"""


SETTLED = """
import asyncio
while form.task is None:  # A click in a subshell comes beside the cells; one in the kernel came before this cell.
    await asyncio.sleep(0.01)
(await form.settle()).questions[0].question
"""


def shown(cell: NotebookNode) -> str:
    """Return what one cell prints or gives, as text."""
    return "".join(output.get("text") or output.data["text/plain"] for output in cell.outputs)


def send(client: NotebookClient, model_id: str, data: dict[str, object], subshell: str | None = None) -> None:
    """Send what a front end sends of a widget: to the kernel, or to a subshell of it, which is a thread of its own."""
    kernel = client.kc
    message = kernel.session.msg("comm_msg", {"comm_id": model_id, "data": data})
    message["header"] |= {"subshell_id": subshell} if subshell else {}
    kernel.shell_channel.send(message)


async def new_subshell(client: NotebookClient) -> str:
    kernel = client.kc
    kernel.control_channel.send(kernel.session.msg("create_subshell_request", {}))
    reply = await kernel.get_control_msg(timeout=TIMEOUT_S)
    return str(reply["content"]["subshell_id"])


@pytest.mark.needs("workspace")
@pytest.mark.parametrize("name", ["01_quickstart", pytest.param("02_questions_step_by_step", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_every_cell_of_a_notebook_runs(name: str, folder: Path) -> None:
    assert execute(read(FOLDER / f"{name}.ipynb"), folder)


def picture(cell: NotebookNode) -> str:
    """All texts of the SVG that a cell shows, which is one that can be read, with its words for those without it."""
    shows = bundle(cell)
    assert len(shows["text/plain"]) < 1000, "the picture is stored twice"
    return "\n".join(ElementTree.fromstring(shows["image/svg+xml"]).itertext())


@pytest.mark.slow
def test_notebook_team_asks_from_inside_without_repeated_work(folder: Path) -> None:
    cells = executed("03_your_own_team", folder, plain="len(model.requests), run.total_usage.model_calls")
    assert {"GraphFlow", "notes", "checker", "tester", "announcer", "asks you"} <= {
        *picture(cells["picture"]).split("\n")
    }
    both = bundle(cells["start"])["text/html"]
    assert "tester (for checker) needs to know:" in both
    assert "checker waits for tester" in both
    assert both.count("needs to know:") == 2
    one = bundle(cells["answer"])["text/html"]
    assert "Which Python must it run on? 3.13 (human)" in one
    assert "notes needs to know:" in one
    assert one.count("needs to know:") == 1
    assert shown(cells["second"]) == "It is released! Notes on 2.0.0: parse() returns a list now; faster start.\n"
    assert "checker/tester: 3\n" in shown(cells["work"])
    assert shown(cells["before-plain"]) == "(9, 9)"
    texts = [line.partition(": ") for line in shown(cells["plain"]).splitlines()]
    assert {who: text for who, _, text in texts} == {
        "notes": "Which version is this, 1.3.0 or 2.0.0?",
        "checker": "Which Python must it run on?",
        "announcer": "It is released!",
    }


SOURCE = re.compile(r'^- \[(\d)\] (\S+), (?:\w+ [\d-]+): "(.+)"$', re.MULTILINE)


@pytest.mark.slow
@pytest.mark.needs("research")
def test_notebook_report_marks_citations_missing_from_the_documents(folder: Path) -> None:
    from upcall.research.quotes import find_quote

    cells = executed("04_research_over_your_documents", folder, end="print(run.result)")
    asked = bundle(cells["ask"])["text/html"]
    assert "<b>Which edition of The Lantern?</b>" in asked
    assert '[documents] "sales.csv", rows 1-3\n<<<data' in shown(cells["found"])
    report, _, rest = shown(cells["before-end"]).partition("\n\nSources:\n")
    assert report == (
        "The second edition sold 2960 copies [1]. The author gets 9 percent [2]. It restores a lost chapter [3]. "
        "Critics called it the book of the year [unverified]."
    )
    cited = {name: quote for _, name, quote in SOURCE.findall(rest)}
    documents = folder / "upcall-work/research/lantern"
    texts = {name: (documents / name).read_bytes().decode(errors="replace") for name in cited}
    texts["contract.docx"] = "\n".join(each.text for each in Document(str(documents / "contract.docx")).paragraphs)
    texts["sales.csv"] = "; ".join(re.findall(r"second|2004|2960", texts["sales.csv"]))
    assert cited.pop("sales.csv") == "edition: second; year: 2004; copies sold: 2960"
    assert texts.pop("sales.csv") == "second; 2004; 2960"
    assert {*cited} == {"contract.docx", "review.html"}
    assert all(find_quote(quote, texts[name]) for name, quote in cited.items())
    assert not find_quote("without doubt the book of the year", texts["review.html"])
    html = bundle(cells["report"])["text/html"]
    assert len(re.findall(r'<sup title="(?:sales|contract|review)\.\w+, .*?">\[\d\]</sup>', html)) >= 3
    assert '"without doubt the book of the year" was cited, and is not in what was read' in shown(cells["fate"])
    assert "Citations: 4 checked, 3 hold, 1 removed; 1 sentence(s) marked [unverified]." in shown(cells["marked"])
    found = [line.split("'")[0].strip() for line in shown(cells["check"]).splitlines()]
    assert found == ["exact", "normalised", "fuzzy", "not there", "not there"]


TESTED = """
import subprocess, sys
ended = subprocess.run([sys.executable, "-B", "-m", "unittest", "test_prices"], cwd=folder, capture_output=True)
print(ended.returncode, (folder / "old_prices.py").exists(), (folder / "build").exists())
"""


def asked_to_delete(cells: Mapping[str, NotebookNode]) -> None:
    html = bundle(cells["start"])["text/html"]
    assert "<b>Delete old_prices.py?</b>" in html
    assert "| -VAT = 0.19" in html
    assert "don&#x27;t ask again about deleting old_prices.py in this run - " in html
    assert "They said: No, the till still imports it. Do not" in shown(cells["deny"])


@pytest.mark.needs("workspace")
@needs_bubblewrap
@pytest.mark.slow
def test_notebook_coder_fixes_runs_refuses_deletion_and_undoes(folder: Path) -> None:
    cells = executed("05_coding_with_consent", folder, execution=TESTED, undo=TESTED, end=TESTED)
    assert "bubblewrap: no network" in shown(cells["execution"])
    assert shown(cells["before-execution"]).split() == ["1", "True", "True"]
    asked_to_delete(cells)
    asked = bundle(cells["second"])["text/html"]
    assert "<b>Delete the folder build and what is in it?</b>" in asked
    assert ">| rm -r build</div>" in asked
    done = bundle(cells["allow"])["text/html"]
    assert re.search(r"python3 -B -m unittest test_prices \(exit status 0, after [\d.]+ s\): OK", done)
    assert shown(cells["before-undo"]).split() == ["0", "True", "False"]
    changes = shown(cells["changes"])
    assert "edit_file changed prices.py\n--- a/prices.py" in changes
    assert "+    return round(sum(prices), 2)" in changes
    assert "run_command changed build, build/prices.txt" in changes
    assert "return round(sum(prices))\n" in shown(cells["undo"])
    assert shown(cells["before-end"]).split() == ["1", "True", "True"]


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_notebook_coder_without_commands_fixes_code_and_reports_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    cells = executed("05_coding_with_consent", folder, undo=TESTED)
    assert "commands cannot be run" in shown(cells["execution"])
    asked_to_delete(cells)
    done = bundle(cells["second"])["text/html"]
    assert "completed" in done
    assert "no call ran python3 -B -m unittest test_prices" in done
    assert shown(cells["before-undo"]).split() == ["0", "True", "True"]


@pytest.mark.slow
def test_notebook_fork_answers_differently_without_repeating_earlier_work(folder: Path) -> None:
    counted = "print((len(model.requests), bookings))"
    cells = executed("06_what_if", folder, fork=counted, count=counted, earlier=counted)
    held = ["held a seat", "booked train", "held a room", "booked hotel"]
    assert shown(cells["before-fork"]) == f"{(11, held)}\n"
    assert shown(cells["before-count"]) == f"{(14, [*held, 'booked cabin'])}\n"
    assert shown(cells["before-earlier"]) == shown(cells["before-count"])  # Pictures and plans do nothing.
    assert shown(cells["count"]) == "first run: 11 model calls, the branch: 3\n"
    travel, sleep = shown(cells["dry"]).split("\n\n")[:2]
    assert "How do you travel? - train\nKept: 0 other answers, 3 model calls." in travel
    assert "Where do you sleep? - hotel\nKept: 1 other answer, 8 model calls." in sleep
    same, *parted = shown(cells["diff"]).splitlines()
    assert same == "The same: 1 answer."
    assert [line.strip() for line in parted if "How do you" in line or "Where do you" in line] == [
        "lodging (for planner): Where do you sleep? - hotel",
        "lodging (for planner): Where do you sleep? - cabin",
    ]
    for id_, answer in (("timeline", "hotel"), ("timeline-branch", "cabin"), ("tree-branch", "cabin")):
        text = picture(cells[id_])
        assert re.search(r"How do you travel\?\n+answered by human after .*: train", text)
        assert re.search(rf"Where do you sleep\?\n+answered by human after .*: {answer}", text)
    bars = [bundle(cells[id_])["image/svg+xml"].count(": model call") for id_ in ("timeline", "timeline-branch")]
    assert bars == [11, 3]
    assert "lodging (for planner) needs to know:" in bundle(cells["earlier"])["text/html"]
    assert shown(cells["earlier-answer"]).splitlines() == [
        "Your trip to Oslo: train, 140 EUR; hotel, 480 EUR.",
        "Your trip to Oslo: train, 140 EUR; cabin, 260 EUR.",
        "Your trip to Oslo: plane, 210 EUR; cabin, 260 EUR.",
    ]


def list_rows(shown: str) -> list[list[str]]:
    """Return the texts of a table's cells, row by row."""
    table = ElementTree.fromstring(shown[shown.index("<table") : shown.index("</table>") + len("</table>")])
    return [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]


COUNTED = """
for policy in frame["policy"].unique():
    runs = [await app.get(each) for each in frame[frame["policy"] == policy]["trial"]]
    answers = sum(answer.by == "human" for run in runs for answer in run.answers)
    right = sum(each.success for each in results.of_cell(("crew", policy, "script")))
    print(answers, sum(run.total_usage.model_calls for run in runs), right)
"""


@pytest.mark.slow
def test_notebook_compares_two_policies_by_their_results(folder: Path) -> None:
    cells = executed("07_two_policies", folder, end=f"frame = results.to_frame()\n{COUNTED}")
    rows = list_rows(bundle(cells["table"])["text/html"])
    assert rows[0][:4] == ["policy", "trials", "success", "questions a task"]
    assert (rows[1][:3], rows[1][3][:4]) == (["always", "8", "1.00 [0.68, 1.00]"], "3.00")
    assert (rows[2][:2], rows[2][2][:4], rows[2][3][:4]) == (["spare the user", "8"], "0.75", "1.00")
    human = [[int(each) for each in line.split()] for line in shown(cells["before-end"]).splitlines()]
    assert [(answers, right) for answers, _, right in human] == [(24, 8), (8, 6)]
    assert human[1][1] > human[0][1]  # The lead looks whether it knows the answer.
    image = b64decode(bundle(cells["plot"])["image/png"])
    assert image.startswith(b"\x89PNG")
    assert int.from_bytes(image[16:20], "big") > 600  # Its width.
    wrong = shown(cells["wrong"])
    assert wrong.count("Written: ") == 2
    assert "Which manual? Markdown (policy)" in wrong
    assert "Write a backup tool in Python. Written: Python, MIT, Markdown" in wrong
    assert "Which licence? MIT (facts)" in wrong
    assert "Which language? Python (parent)" in wrong


@pytest.mark.slow
def test_experiment_shows_which_questions_mattered(folder: Path) -> None:
    cells = executed("08_reading_an_experiment", folder)
    rows = list_rows(bundle(cells["experiment"])["text/html"])
    assert (rows[3][:3], rows[3][3][:4]) == (["always", "30", "1.00 [0.89, 1.00]"], "1.67")
    assert re.search(r"always - never: \+0\.33 \[\+0\.17, \+0\.50\], p 0\.0", shown(cells["differences"]))
    assert "budget 1 - never: +0.00" in shown(cells["differences"])
    mattered = shown(cells["mattered"]).splitlines()
    assert mattered[0].startswith("language: asked in 20 runs, mattered in 100%, worth +1.00")
    assert mattered[1].startswith("colour: asked in 60 runs, mattered in 0%")
    assert shown(cells["sample"]).startswith("Task 1, never: Written in Python, not exactly: Written in Rust\n")
    assert shown(cells["again"]) == "True 0\n"
    assert shown(cells["report"]) == "['report.html', 'trials.parquet']"


def test_each_notebook_has_a_test_of_what_it_shows() -> None:
    tested = Path(__file__).read_text()
    assert [path.stem for path in NOTEBOOKS if f'"{path.stem}"' not in tested] == []


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_notebook_quickstart_continues_in_another_kernel(folder: Path) -> None:
    cells = read(FOLDER / "01_quickstart.ipynb").cells
    restart = next(n for n, cell in enumerate(cells) if "restart" in cell.metadata.get("tags", []))
    process = "import os\nos.getpid()"
    *asked, first_process = execute(notebook_of([*cells[:restart], code(process)]), folder).split()
    *done, second_process = execute(notebook_of([*cells[restart:], code(process)]), folder).split()
    assert {"framework?", "FastAPI"} <= {*asked}
    assert {"server.js:", "'Express'"} <= {*done}
    assert first_process != second_process


@pytest.mark.needs("workspace")
@pytest.mark.slow
@pytest.mark.parametrize("in_subshell", [False, True], ids=["in the kernel", "in a subshell"])
async def test_notebook_click_answers_and_another_kernel_sees_the_next(folder: Path, in_subshell: bool) -> None:
    cells = read(FOLDER / "02_questions_step_by_step.ipynb").cells
    restart = next(n for n, cell in enumerate(cells) if "restart" in cell.metadata.get("tags", []))
    first = notebook_of([*cells[:restart], code(WIDGETS), code(SETTLED)])
    client = client_of(first, folder)
    async with client.async_setup_kernel():
        for at, cell in enumerate(first.cells[:-1]):
            await client.async_execute_cell(cell, at)
        radio, button = shown(first.cells[-2]).split()
        subshell = await new_subshell(client) if in_subshell else None
        send(client, radio, {"method": "update", "state": {"index": 0}, "buffer_paths": []}, subshell)
        send(client, button, {"method": "custom", "content": {"event": "click"}}, subshell)
        await client.async_execute_cell(first.cells[-1], len(first.cells) - 1)
    assert shown(first.cells[-1]) == "'Which framework?'"
    second = notebook_of(cells[restart:])
    text = await asyncio.to_thread(execute, second, folder)
    inbox = next(cell for cell in second.cells if cell["id"] == "inbox").outputs[0].data
    assert "Which framework?" in inbox["text/html"]
    assert "app.answer(" in inbox["text/html"]
    assert "lead > coder gets Express" in text
    assert "planner gets" not in text


@pytest.mark.slow
def test_kernels_run_the_interpreter_of_the_tests(folder: Path) -> None:
    notebook = notebook_of([code("import sys\nprint(sys.executable)")])
    assert execute(notebook, folder).strip() == sys.executable


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_without_outputs(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [(cell.outputs, cell.execution_count) for cell in cells] == [([], None)] * len(cells)
