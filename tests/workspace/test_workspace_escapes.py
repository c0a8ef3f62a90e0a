"""Ways out of the workspace, each tried with every tool: each is refused, and nothing outside is read or changed."""

from __future__ import annotations

import os
import socket
import stat
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from autogen_core.tools import ToolResult
from tables import rows

from upcall.agents import WorkspaceWorkbench
from upcall.runs.file_changes import FileState
from upcall.workspace.consent import Consent
from upcall.workspace.folder import Content, Folder, Write
from upcall.workspace.paths import OutsideWorkspace

SECRET = "do not read me"
FREE = Consent(allow_changes=["delete"])


@dataclass(frozen=True)
class Trick:
    """A path, and what was put into the workspace beforehand: a link by its name and target, or something else."""

    path: str
    link: tuple[str, str] | None = None
    make: Callable[[Path], None] | None = None


def _pipe(root: Path) -> None:
    os.mkfifo(root / "pipe")


def _socket(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(root / "socket"))


def _device(root: Path) -> None:
    try:
        os.mknod(root / "zero", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes devices")


def _chain(root: Path) -> None:
    for number in range(60):
        (root / f"l{number}").symlink_to(f"l{number + 1}")
    (root / "l60").symlink_to("../outside/secret.txt")


PLAIN = rows("workspace_escapes/plain")
"""Names that something else might decode: here they are names, of files in the workspace."""

WORDS = [
    "../outside/secret.txt",
    "src/../../outside/secret.txt",
    "./.././outside/secret.txt",
    "src/./../.././outside/secret.txt",
    "../work-other/secret.txt",
    "../work/../outside/secret.txt",
    "..",
    "../",
    "src/../..",
    "../../../../../../../../../../etc/passwd",
    "..//outside//secret.txt",
    "..\\outside\\secret.txt",
    "src/..\\../outside/secret.txt",
    "src\\..\\..\\outside\\secret.txt",
    "/etc/passwd",
    "//etc/passwd",
    "///etc/passwd",
    "\\etc\\passwd",
    "/proc/self/root/etc/passwd",
    "/proc/self/cwd/outside/secret.txt",
    "/dev/stdin",
    "/dev/zero",
    "/dev/fd/0",
    "~",
    "~/secret.txt",
    "$HOME/secret.txt",
    "${HOME}/secret.txt",
    "a\0b",
    "../outside/secret.txt\0.md",
    "README.md\0",
    "\udcff.txt",
    "\ud800/secret.txt",
    "a\nb",
    "\x1b[2Ja",
    "gpj.\u202etxt.exe",
    "x" * 300,
    "x" * 100_000,
    "/".join(["d" * 200] * 40),
    "a/" * 500 + "x",
    "src/" * 30 + "../" * 31 + "outside/secret.txt",
    ".git/hooks/pre-commit",
    ".git/config",
    ".GIT/config",
    "src/.git/config",
    ".GiT",
]
LINKS = [
    Trick("link.txt", ("link.txt", "../outside/secret.txt")),
    Trick("link/secret.txt", ("link", "../outside")),
    Trick("link/new/file.txt", ("link", "../outside")),
    Trick("link/outside/secret.txt", ("link", "..")),
    Trick("link.txt", ("link.txt", "../outside/not-there-yet.txt")),
    Trick("link/secret.txt", ("link", "../work-other")),
    Trick("src/link/secret.txt", ("src/link", "../../outside")),
    Trick("link/../../outside/secret.txt", ("link", "src")),
    Trick("link/../outside/secret.txt", ("link", "src/..")),
    Trick("link", ("link", "/etc/passwd")),
    Trick("link/etc/passwd", ("link", "/")),
    Trick("link/etc/passwd", ("link", "/proc/self/root")),
    Trick("link/outside/secret.txt", ("link", "/proc/self/cwd")),
    Trick("link/0", ("link", "/proc/self/fd")),
    Trick("link", ("link", "/proc/self/environ")),
    Trick("link", ("link", "/dev/zero")),
    Trick("link", ("link", "/dev/tty")),
    Trick("link", ("link", "src/../../outside/secret.txt")),
    Trick("link", ("link", "../work/../outside/secret.txt")),
    Trick("loop", ("loop", "loop")),
    Trick("loop/x", ("loop", "loop")),
    Trick("l0", make=_chain),
    Trick("pipe", make=_pipe),
    Trick("pipe/x", make=_pipe),
    Trick("socket", make=_socket),
    Trick("zero", make=_device),
]
TRICKS = [*(Trick(path) for path in WORDS), *LINKS]
TOOLS = rows("workspace_escapes/tools")
NOTHING = ("search_files", "show_diff")
"""What does not go by a path says that there is nothing."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    (folder / "README.md").write_text("# Hello\n")
    for name in ("outside", "work-other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "secret.txt").write_text(SECRET)
    (tmp_path / "home").mkdir()
    return folder


def everything(root: Path) -> dict[str, Any]:
    """All that is outside of the workspace, and the workspace's own names."""
    found: dict[str, Any] = {}
    for path in sorted(root.parent.rglob("*")):
        is_ = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(is_.st_mode) else None
        found[str(path)] = (is_.st_mode, is_.st_ino, content)
    return found


def arguments(tool: str, path: str) -> dict[str, Any]:
    patch = f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{SECRET}\n+mine\n"
    return {
        "read_file": {"path": path},
        "write_file": {"path": path, "content": "mine"},
        "edit_file": {"path": path, "old": SECRET, "new": "mine"},
        "apply_patch": {"patch": patch},
        "delete_file": {"path": path},
        "list_files": {"folder": path},
        "search_files": {"pattern": "read me|root:", "glob": path},
        "show_diff": {"path": path},
    }[tool]


def lay_out(number: int, root: Path) -> Trick:
    """Prepare a workspace for a trick, and return it."""
    trick = TRICKS[number]
    if trick.link:
        (root / trick.link[0]).symlink_to(trick.link[1])
    if trick.make:
        trick.make(root)
    return trick


@pytest.mark.parametrize("number", range(len(TRICKS)), ids=lambda number: ascii(TRICKS[number].path[:40]))
async def test_no_tool_is_led_out(root: Path, number: int) -> None:
    trick = lay_out(number, root)
    before = everything(root)
    refused = []
    for tool in TOOLS:
        result = await WorkspaceWorkbench(root, consent=FREE).call_tool(tool, arguments(tool, trick.path))
        text = result.to_text()
        if result.is_error or (tool in NOTHING and text.startswith(("Nothing found", "Nothing was changed"))):
            refused.append(tool)
        assert everything(root) == before, tool
        assert SECRET not in text, tool
        assert "root:" not in text.replace("read me|root:", ""), tool
        assert str(root.parent) not in text, tool
    assert refused == TOOLS


@pytest.mark.parametrize("number", range(len(TRICKS)), ids=lambda number: ascii(TRICKS[number].path[:40]))
def test_nor_where_names_cannot_be_opened_from_a_folder(root: Path, number: int) -> None:
    """As on Windows, where there is no ``openat``"""
    trick = lay_out(number, root)
    before = everything(root)
    folder = Folder(root, openat=False)
    with pytest.raises((ValueError, OSError)), folder.open(trick.path):
        pass
    with pytest.raises((ValueError, OSError)):
        folder.write([Write.of_contents(folder.place_of(trick.path), None, Content(b"mine", 0))])
    assert everything(root) == before


def test_what_is_fine_is_fine_without_openat_too(root: Path) -> None:
    folder = Folder(root, openat=False)
    (root / "link").symlink_to("src")
    new = [Write("src/new", None, FileState(kind="folder")), Write.of_contents("src/new/a.txt", None, Content(b"a", 0))]
    folder.write(new)
    folder.write([Write.of_contents("README.md", folder.read("README.md"), None)])
    assert (root / "src" / "new" / "a.txt").read_text() == "a"
    assert list(folder.walk()) == ["link", "src/new/a.txt"]


@pytest.mark.parametrize("path", PLAIN)
async def test_nothing_in_a_name_is_decoded(root: Path, path: str) -> None:
    before = {each for each in everything(root) if not each.startswith(f"{root}/")}
    result = await WorkspaceWorkbench(root).call_tool("write_file", {"path": path, "content": "mine"})
    assert not result.is_error, result.to_text()
    assert {each for each in everything(root) if not each.startswith(f"{root}/")} == before


def test_path_refusal_is_an_error_of_its_own(root: Path) -> None:
    with pytest.raises(OutsideWorkspace, match=r"'\.\./x' is outside the workspace"):
        Folder(root).place_of("../x")


# -- what changes while it is looked at -------------------------------------------------------------------------------


async def call(root: Path, tool: str, path: str) -> ToolResult:
    return await WorkspaceWorkbench(root, consent=FREE).call_tool(tool, arguments(tool, path))


def _swap(name: Path, target: str) -> None:
    if name.is_dir() and not name.is_symlink():
        name.rename(name.with_name("aside"))
    else:
        name.unlink(missing_ok=True)
    name.symlink_to(target)


@pytest.mark.parametrize("tool", TOOLS[:6])
@pytest.mark.parametrize("look", ["stat", "open"])
@pytest.mark.parametrize("swapped", ["new", "new/secret.txt"])
async def test_what_becomes_a_link_at_any_look_leads_nowhere(
    root: Path, monkeypatch: pytest.MonkeyPatch, tool: str, look: str, swapped: str
) -> None:
    """As a command of the agent's own could do it: right after the n-th look, and before what is done upon it"""
    looked, count, swaps = getattr(os, look), 0, 0
    for nth in range(1, 13):
        work = root / str(nth)
        (work / "new").mkdir(parents=True)
        (work / "new" / "secret.txt").write_text("inside")

        def swapping(*given: Any, nth: int = nth, work: Path = work, **more: Any) -> Any:
            nonlocal count, swaps
            found = looked(*given, **more)
            count += 1
            if count == nth:
                target = os.path.relpath(root.parent / "outside", (work / swapped).parent)
                _swap(work / swapped, target if swapped == "new" else f"{target}/secret.txt")
                swaps += 1
            return found

        count = 0
        monkeypatch.setattr(os, look, swapping)
        result = await call(work, tool, "new/secret.txt" if tool != "list_files" else "new")
        monkeypatch.undo()
        assert SECRET not in result.to_text()
        assert [path.name for path in (root.parent / "outside").iterdir()] == ["secret.txt"]
        assert (root.parent / "outside" / "secret.txt").read_text() == SECRET
    assert swaps


@pytest.mark.slow
async def test_search_does_not_read_a_files_replacement(root: Path) -> None:
    """Links come and go all the while; ripgrep reads what was opened for it, and no paths"""
    (root / "x.txt").write_text("nothing here")
    for number in range(50):
        (root / f"{number}.txt").write_text("nothing here")
    over = threading.Event()

    def flip() -> None:
        while not over.wait(0.0005):
            (root / "y").symlink_to("../outside/secret.txt")
            os.replace(root / "y", root / "x.txt")
            (root / "z").write_text("nothing here")
            os.replace(root / "z", root / "x.txt")

    flipping = threading.Thread(target=flip)
    flipping.start()
    try:
        for _ in range(20):
            assert "secret" not in (await call(root, "search_files", "*.txt")).to_text()
            assert SECRET not in (await call(root, "read_file", "x.txt")).to_text()
            await call(root, "write_file", "x.txt")
    finally:
        over.set()
        flipping.join()
    assert (root.parent / "outside" / "secret.txt").read_text() == SECRET


# -- hard links -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["write_file", "edit_file", "apply_patch", "delete_file"])
async def test_file_with_an_outside_name_keeps_it_there(root: Path, tool: str) -> None:
    """A second name of a file cannot be distinguished from its first; the name in the workspace gets a new file"""
    (root / "hard.txt").hardlink_to(root.parent / "outside" / "secret.txt")
    result = await call(root, tool, "hard.txt")
    assert not result.is_error, result.to_text()
    assert (root.parent / "outside" / "secret.txt").read_text() == SECRET


@pytest.mark.parametrize("tool", ["write_file", "apply_patch"])
async def test_python_of_upcall_stays_unchanged_in_the_workspace(tool: str) -> None:
    prefix = Path(os.path.realpath(sys.prefix))
    new = f"{prefix.name}/lib/upcall_test_of_escapes.pth"
    given: dict[str, dict[str, str]] = {
        "write_file": {"path": new, "content": "import os"},
        "apply_patch": {"patch": f"--- /dev/null\n+++ b/{new}\n@@ -0,0 +1 @@\n+import os\n"},
    }
    result = await WorkspaceWorkbench(prefix.parent).call_tool(tool, given[tool])
    assert result.is_error
    assert "belongs to the Python that runs this" in result.to_text()
    assert not (prefix.parent / new).exists()
