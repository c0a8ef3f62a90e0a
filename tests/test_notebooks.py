"""The notebooks, run by real kernels of the running interpreter."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SECONDS = 120


class OwnKernelManager(AsyncKernelManager):
    """Starts kernels with the interpreter that runs the tests, whatever kernels are installed on the machine."""

    def _kernel_spec_manager_default(self) -> KernelSpecManager:
        return KernelSpecManager(kernel_dirs=[])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder; what the machine says of models and of IPython does not reach the kernels."""
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
    return NotebookClient(notebook, timeout=SECONDS, kernel_manager_class=OwnKernelManager, resources=resources)


def execute(notebook: NotebookNode, folder: Path) -> str:
    """What the cells print and give, from a new kernel in `folder` that is gone afterwards."""
    client_of(notebook, folder).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.get("text") or output.data["text/plain"] for output in outputs)


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
(await form.settled()).questions[0].question
"""


def shown(cell: NotebookNode) -> str:
    """What one cell prints or gives."""
    return "".join(output.get("text") or output.data["text/plain"] for output in cell.outputs)


def send(client: NotebookClient, model_id: str, data: dict[str, object], subshell: str | None = None) -> None:
    """What a front end sends of a widget: to the kernel, or to a subshell of it, which is a thread of its own."""
    kernel = client.kc
    message = kernel.session.msg("comm_msg", {"comm_id": model_id, "data": data})
    message["header"] |= {"subshell_id": subshell} if subshell else {}
    kernel.shell_channel.send(message)


async def new_subshell(client: NotebookClient) -> str:
    kernel = client.kc
    kernel.control_channel.send(kernel.session.msg("create_subshell_request", {}))
    reply = await kernel.get_control_msg(timeout=SECONDS)
    return str(reply["content"]["subshell_id"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_of_a_notebook_runs(path: Path, folder: Path) -> None:
    assert execute(read(path), folder)


@pytest.mark.slow
def test_the_quickstart_goes_on_in_another_kernel_after_a_restart(folder: Path) -> None:
    cells = read(FOLDER / "01_quickstart.ipynb").cells
    restart = next(n for n, cell in enumerate(cells) if "restart" in cell.metadata.get("tags", []))
    process = "import os\nos.getpid()"
    *asked, first_process = execute(notebook_of([*cells[:restart], code(process)]), folder).split()
    *done, second_process = execute(notebook_of([*cells[restart:], code(process)]), folder).split()
    assert {"framework?", "FastAPI"} <= {*asked}
    assert {"server.js:", "'Express'"} <= {*done}
    assert first_process != second_process


@pytest.mark.slow
@pytest.mark.parametrize("in_subshell", [False, True], ids=["in the kernel", "in a subshell"])
async def test_a_click_answers_and_another_kernel_finds_the_next_question(folder: Path, in_subshell: bool) -> None:
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
    said = await asyncio.to_thread(execute, second, folder)
    inbox = next(cell for cell in second.cells if cell["id"] == "inbox").outputs[0].data
    assert "Which framework?" in inbox["text/html"]
    assert "app.answer(" in inbox["text/html"]
    assert "lead > coder gets Express" in said
    assert "planner gets" not in said


def test_kernels_run_the_interpreter_of_the_tests(folder: Path) -> None:
    notebook = notebook_of([code("import sys\nprint(sys.executable)")])
    assert execute(notebook, folder).strip() == sys.executable


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [(cell.outputs, cell.execution_count) for cell in cells] == [([], None)] * len(cells)
