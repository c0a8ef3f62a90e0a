"""The coder's tools: everything inside one folder, nothing outside it, and no crash whatever a model passes."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from autogen_core import ComponentModel
from autogen_core.tools import ToolResult, Workbench
from tables import rows

from upcall.agents import WorkspaceWorkbench
from upcall.autogen.workbenches import MAX_READ_CHARS
from upcall.workspace.workbench import MAX_LISTED, TOOLS

SECRET = "do not read me"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a workspace ``work`` with two files, beside a folder and a file that are none of the coder's business."""
    folder = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    (folder / "README.md").write_text("# Hello\n")
    (folder / "src" / "app.py").write_text("print()\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text(SECRET)
    (tmp_path / "work-other").mkdir()
    (tmp_path / "work-other" / "secret.txt").write_text(SECRET)
    return folder


async def call(folder: Path, name: str, **arguments: Any) -> ToolResult:
    return await WorkspaceWorkbench(folder).call_tool(name, arguments)


async def text(folder: Path, name: str, **arguments: Any) -> str:
    result = await call(folder, name, **arguments)
    assert not result.is_error, result.to_text()
    return result.to_text()


async def error(folder: Path, name: str, **arguments: Any) -> str:
    result = await call(folder, name, **arguments)
    assert result.is_error, result.to_text()
    return result.to_text()


# -- what it is for ---------------------------------------------------------------------------------------------------


async def test_it_offers_its_tools() -> None:
    tools = await WorkspaceWorkbench("work").list_tools()
    assert [tool["name"] for tool in tools] == [
        "list_files",
        "read_file",
        "search_files",
        "write_file",
        "edit_file",
        "apply_patch",
        "delete_file",
        "show_diff",
    ]


async def test_server_may_hold_the_model_to_the_schemas() -> None:
    """As OpenAI's strict mode wants it: all arguments required, no others, what may be left out may be null"""
    for tool in await WorkspaceWorkbench("work").list_tools():
        parameters = tool["parameters"]
        assert tool["strict"] is True
        assert parameters["additionalProperties"] is False
        assert set(parameters["required"]) == set(parameters["properties"])
        optional = {name for name, of in parameters["properties"].items() if {"type": "null"} in of.get("anyOf", ())}
        assert optional == TOOLS[tool["name"]].optional


FULL, LEFT = "x" * MAX_READ_CHARS, f"\n[cut: only the first {MAX_READ_CHARS} characters are shown]"
FILES = "README.md\nsrc/app.py"


@pytest.mark.parametrize(
    ("given", "tool", "arguments", "output"),
    [
        ({}, "list_files", {}, FILES),
        ({".git/config": "x", ".gitignore": "x", ".write-0123": "half"}, "list_files", {}, f".gitignore\n{FILES}"),
        ({}, "read_file", {"path": "src/app.py"}, "print()\n"),
        *[
            ({}, "read_file", {"path": path}, "# Hello\n")
            for path in ("./README.md", "src/../README.md", "src//..//README.md", "src\\..\\README.md")
        ],
        ({}, "read_file", {"path": "src/main.py"}, f"There is no file 'src/main.py'. Files:\n{FILES}"),
        (
            {"image.png": b"\x89PNG\r\n\x00\x00\x00\rIHDR"},
            "read_file",
            {"path": "image.png"},
            "'image.png' is not a text file.",
        ),
        ({"latin.txt": "Größe".encode("latin-1")}, "read_file", {"path": "latin.txt"}, "Gr\ufffd\ufffde"),
        ({"big.txt": f"{FULL}x"}, "read_file", {"path": "big.txt"}, FULL + LEFT),
        ({"big.txt": "ä" * MAX_READ_CHARS}, "read_file", {"path": "big.txt"}, "ä" * MAX_READ_CHARS),
        ({"link": Path("src")}, "read_file", {"path": "link/app.py"}, "print()\n"),
        *[
            ({"loop": Path("loop")}, tool, {"path": path, **content}, "failed: Too many levels of symbolic links.")
            for tool, path, content in [
                ("read_file", "loop", {}),
                ("read_file", "loop/x", {}),
                ("write_file", "loop/x", {"content": ""}),
            ]
        ],
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_files_are_listed_and_read(
    root: Path, given: dict[str, str | bytes | Path], tool: str, arguments: dict[str, str], output: str
) -> None:
    for name, content in given.items():
        (root / name).parent.mkdir(exist_ok=True)
        if isinstance(content, Path):
            (root / name).symlink_to(content)
        else:
            (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    result = await call(root, tool, **arguments)
    assert result.is_error is (output.startswith("There is no") or output.endswith(("text file.", "symbolic links.")))
    assert result.to_text().removeprefix(f"{tool} ") == output


async def test_file_is_written_with_its_folders(root: Path) -> None:
    assert await text(root, "write_file", path="a/b/c.txt", content="hi\n") == "Wrote a/b/c.txt (3 characters)."
    assert (root / "a/b/c.txt").read_text() == "hi\n"


async def test_overwritten_file_is_reported_with_its_lost_lines(root: Path) -> None:
    (root / "many").write_text("".join(f"- {number}\n" for number in range(23)))
    emitted = await text(root, "write_file", path="many", content="- 7\nhi\n")
    assert emitted.startswith("Wrote many (7 characters). These lines were in it and are gone:\n- 0\n- 1\n")
    assert emitted.endswith("\n- 20\n[and 2 more lines]")
    assert await text(root, "write_file", path="many", content="- 7\nhi\nyou\n") == "Wrote many (11 characters)."


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes")
async def test_pipe_does_not_block(root: Path) -> None:
    os.mkfifo(root / "pipe")
    assert await error(root, "read_file", path="pipe") == "'pipe' is not a regular file."


async def test_absolute_path_that_lies_outside_is_refused(root: Path) -> None:
    path = str(root.parent / "outside" / "secret.txt")
    assert "outside the workspace" in await error(root, "read_file", path=path)


async def test_empty_workspace_says_so(tmp_path: Path) -> None:
    assert await text(tmp_path / "new", "list_files") == "The workspace is empty."


async def test_listing_does_not_make_the_folder(tmp_path: Path) -> None:
    await text(tmp_path / "new", "list_files")
    assert not (tmp_path / "new").exists()


async def test_long_list_is_cut_and_says_so(root: Path) -> None:
    for number in range(MAX_LISTED):
        (root / f"{number}.txt").touch()
    lines = (await text(root, "list_files")).splitlines()
    assert (len(lines), lines[-1]) == (MAX_LISTED + 1, "... and 2 more files")


async def test_first_file_makes_the_workspace(tmp_path: Path) -> None:
    await text(tmp_path / "new" / "work", "write_file", path="a.txt", content="")
    assert (tmp_path / "new" / "work" / "a.txt").read_text() == ""


@pytest.mark.parametrize(
    "name",
    rows("workspace/any_name_of_a_file_goes_in_and_out"),
)
async def test_any_name_of_a_file_goes_in_and_out(root: Path, name: str) -> None:
    await text(root, "write_file", path=name, content=name)
    assert await text(root, "read_file", path=name) == name
    assert name in (await text(root, "list_files")).splitlines()


@pytest.mark.parametrize("content", ["a\r\nb\r\n", "a\nb", "\ufeffa", "tab\tnull-free\x1b"], ids=repr)
async def test_what_is_written_is_read_unchanged(root: Path, content: str) -> None:
    await text(root, "write_file", path="x.txt", content=content)
    assert await text(root, "read_file", path="x.txt") == content
    assert (root / "x.txt").read_bytes() == content.encode()


# -- nothing outside --------------------------------------------------------------------------------------------------


async def test_workspace_that_is_a_link_itself_works(root: Path) -> None:
    (root.parent / "link").symlink_to("work")
    assert await text(root.parent / "link", "read_file", path="README.md") == "# Hello\n"
    await error(root.parent / "link", "read_file", path="../outside/secret.txt")


# -- what is not a text file ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", ".", "src", "src/", "src/.."])
async def test_folder_is_neither_read_nor_written(root: Path, path: str) -> None:
    assert "There is no file" in await error(root, "read_file", path=path)
    assert "is a folder; name a file" in await error(root, "write_file", path=path, content="x")


@pytest.mark.parametrize("path", ["", ".", "a/.."])
async def test_workspace_itself_is_never_written_as_a_file(tmp_path: Path, path: str) -> None:
    """The folder is made with the first file, so that its own path is free until then"""
    await error(tmp_path / "new", "write_file", path=path, content="x")
    assert not (tmp_path / "new").is_file()


async def test_file_is_no_folder(root: Path) -> None:
    assert await error(root, "write_file", path="README.md/x.txt", content="x") in (
        "write_file failed: Not a directory.",
        "write_file failed: File exists.",
    )


async def test_file_of_many_gigabytes_is_not_loaded(root: Path) -> None:
    (root / "huge.log").write_text("x" * 100_000)
    os.truncate(root / "huge.log", 1 << 36)
    assert "[cut:" in await text(root, "read_file", path="huge.log")


@pytest.mark.skipif(sys.platform != "linux", reason="names of arbitrary bytes")
async def test_name_of_odd_bytes_does_not_spoil_lists(root: Path) -> None:
    Path(os.fsdecode(os.fsencode(root) + b"/\xff.txt")).touch()
    lines = (await text(root, "list_files")).splitlines()
    assert lines[:2] == ["README.md", "src/app.py"]
    assert len(lines) == 3


# -- arguments --------------------------------------------------------------------------------------------------------


READ = "read_file takes path (text), first_line (integer, may be left out), last_line (integer, may be left out)."
EDIT = "edit_file takes path (text), old (text), new (text), all (flag, may be left out)."


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("list_files", {"path": "."}, "list_files takes folder (text, may be left out), glob (text, may be left out)."),
        ("read_file", {}, READ),
        ("read_file", {"path": None}, READ),
        ("read_file", {"path": 5}, READ),
        ("read_file", {"path": ["a"]}, READ),
        ("read_file", {"file": "README.md"}, READ),
        ("read_file", {"path": "README.md", "mode": "r"}, READ),
        ("read_file", {"path": "README.md", "first_line": "one"}, READ),
        ("read_file", {"path": "README.md", "first_line": 1.5}, READ),
        ("read_file", {"path": "README.md", "first_line": True}, READ),
        ("read_file", {"path": "README.md", "first_line": 1e400}, READ),
        ("write_file", {"path": "x"}, "write_file takes path (text), content (text)."),
        ("write_file", {"path": "x", "content": {"a": 1}}, "write_file takes path (text), content (text)."),
        ("edit_file", {"path": "README.md", "old": "H", "new": "h", "all": 1}, EDIT),
        ("apply_patch", {"patch": None}, "apply_patch takes patch (text)."),
        ("run_command", {"command": "ls"}, "There is no tool 'run_command'."),
        ("__init__", {}, "There is no tool '__init__'."),
    ],
)
async def test_wrong_arguments_are_an_error_naming_the_right(
    root: Path, name: str, arguments: Mapping[str, Any], expected: str
) -> None:
    assert await error(root, name, **arguments) == expected


async def test_arguments_may_be_missing_where_none_are_needed(root: Path) -> None:
    assert not (await WorkspaceWorkbench(root).call_tool("list_files", None)).is_error


async def test_content_that_is_no_text_leaves_nothing(root: Path) -> None:
    await error(root, "write_file", path="x.txt", content="\ud800")
    assert sorted(path.name for path in root.iterdir()) == ["README.md", "src"]


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("x" * 300, ""),
        ("/".join(["d" * 200] * 40), ""),
        ("README.md/x", ""),
        ("../x", ""),
        ("src", ""),
        ("x", "\ud800"),
    ],
    ids=lambda value: value[:10].encode("ascii", "replace").decode(),
)
async def test_no_error_shows_where_the_workspace_is(root: Path, path: str, content: str) -> None:
    for output in (
        await error(root, "write_file", path=path, content=content),
        await error(root, "read_file", path=path),
    ):
        assert str(root.parent) not in output


async def test_workspace_that_is_a_file_hides_its_place(root: Path) -> None:
    output = await error(root / "README.md", "write_file", path="x/y.txt", content="")
    assert output.startswith("write_file failed: ")
    assert str(root) not in output


async def test_write_that_fails_leaves_only_the_old_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: object, target: object, **_: object) -> None:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(os, "replace", full)
    assert await error(root, "write_file", path="README.md", content="new") == (
        "write_file failed: No space left on device."
    )
    assert (root / "README.md").read_text() == "# Hello\n"
    assert sorted(path.name for path in root.iterdir()) == ["README.md", "src"]


async def test_file_that_others_have_open_is_replaced(root: Path) -> None:
    """Atomic: a reader sees the old text or the new one, never half of each"""
    with (root / "README.md").open() as reader:
        await text(root, "write_file", path="README.md", content="new")
        assert reader.read() == "# Hello\n"


@pytest.mark.skipif(sys.platform == "win32", reason="no file modes")
async def test_file_mode_is_kept_and_new_ones_follow_umask(root: Path) -> None:
    (root / "run.sh").write_text("")
    (root / "run.sh").chmod(0o750)
    before = os.umask(0o027)
    try:
        await text(root, "write_file", path="run.sh", content="new")
        await text(root, "write_file", path="new.txt", content="new")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((root / name).stat().st_mode) for name in ("run.sh", "new.txt")]
    assert modes == [0o750, 0o640]


async def test_link_inside_is_written_through(root: Path) -> None:
    (root / "link.md").symlink_to("README.md")
    await text(root, "write_file", path="link.md", content="new")
    assert (root / "README.md").read_text() == "new"
    assert (root / "link.md").is_symlink()


async def test_file_linked_outside_keeps_its_content_there(root: Path) -> None:
    """A hard link leads out too; the file is replaced, not written into"""
    (root / "hard.txt").hardlink_to(root.parent / "outside" / "secret.txt")
    await text(root, "write_file", path="hard.txt", content="mine")
    assert (root.parent / "outside" / "secret.txt").read_text() == SECRET


# -- as a component ---------------------------------------------------------------------------------------------------


async def test_it_dumps_and_loads_as_a_component(root: Path) -> None:
    dumped = WorkspaceWorkbench(root).dump_component()
    loaded = Workbench.load_component(ComponentModel.model_validate_json(dumped.model_dump_json()))
    assert dumped.provider == "upcall.agents.WorkspaceWorkbench"
    assert (await loaded.call_tool("read_file", {"path": "README.md"})).to_text() == "# Hello\n"


async def test_its_state_is_the_files(root: Path) -> None:
    workbench = WorkspaceWorkbench(root)
    state = await workbench.save_state()
    await workbench.load_state(state)
    await workbench.reset()
    assert (state, await text(root, "list_files")) == ({}, "README.md\nsrc/app.py")


def test_folder_that_is_relative_is_fixed_at_creation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workbench = WorkspaceWorkbench("work")
    monkeypatch.chdir("/")
    assert workbench.folder == tmp_path / "work"
