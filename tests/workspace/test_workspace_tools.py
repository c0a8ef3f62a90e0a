"""What the coder's tools do with files: lists, ranges, search, exact edits, patches, deleting, the diff of all that."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tables import rows

from upcall.agents import WorkspaceWorkbench
from upcall.errors import UserInputRequired
from upcall.runs.file_changes import FileState, MemoryChanges
from upcall.workspace.consent import Consent
from upcall.workspace.effects import FileEffect, ProposedChange
from upcall.workspace.folder import MAX_BYTES, ChangedMeanwhile, Content, Folder, Write
from upcall.workspace.searching import MAX_HITS, MAX_SEARCHED_BYTES, list_visible, search
from upcall.workspace.staging import commit
from upcall.workspace.workbench import MAX_ECHO

APP = "import os\n\n\ndef add(a, b):\n    return a - b\n\n\ndef sub(a, b):\n    return a - b\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    (folder / "README.md").write_text("# Hello\n")
    (folder / "src" / "app.py").write_text(APP)
    return folder


@pytest.fixture
def bench(root: Path) -> WorkspaceWorkbench:
    return WorkspaceWorkbench(root, consent=Consent(allow_changes=["delete"]))


async def text(bench: WorkspaceWorkbench, tool: str, **arguments: Any) -> str:
    result = await bench.call_tool(tool, arguments)
    assert not result.is_error, result.to_text()
    return result.to_text()


async def error(bench: WorkspaceWorkbench, tool: str, **arguments: Any) -> str:
    result = await bench.call_tool(tool, arguments)
    assert result.is_error, result.to_text()
    return result.to_text()


def files(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}


# -- list and ignore --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    rows("workspace_tools/a_list_can_be_narrowed"),
)
async def test_list_can_be_narrowed(bench: WorkspaceWorkbench, arguments: dict[str, Any], expected: str) -> None:
    assert await text(bench, "list_files", **arguments) == expected


async def test_folder_that_is_none_is_an_error(bench: WorkspaceWorkbench) -> None:
    assert await error(bench, "list_files", folder="lib") == "There is no folder 'lib'."
    assert await error(bench, "list_files", folder="README.md") == "There is no folder 'README.md'."


async def test_what_git_ignores_is_neither_listed_nor_searched(bench: WorkspaceWorkbench, root: Path) -> None:
    (root / ".gitignore").write_text("*.log\n/build/\n!keep.log\nnode_modules\n")
    for name in ("a.log", "keep.log", "build/x.py", "src/build/y.py", "src/node_modules/z/i.js", "src/gen/a.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("needle\n")
    (root / "src" / ".gitignore").write_text("gen/*\n!gen/b.py\n*.tmp\n")
    (root / "src" / "gen" / "b.py").write_text("needle\n")
    (root / "src" / "x.tmp").write_text("needle\n")
    listed = (await text(bench, "list_files")).splitlines()
    assert listed == [
        ".gitignore",
        "README.md",
        "keep.log",
        "src/.gitignore",
        "src/app.py",
        "src/build/y.py",
        "src/gen/b.py",
    ]
    found = await text(bench, "search_files", pattern="needle")
    assert found.splitlines() == ["keep.log:1: needle", "src/build/y.py:1: needle", "src/gen/b.py:1: needle"]
    assert await text(bench, "read_file", path="a.log") == "needle\n"


@pytest.mark.parametrize("ignored", ["\\", "[", "*.log\n\\\n", "\x00\xff", "!" * 50], ids=ascii)
async def test_odd_gitignore_is_no_error(bench: WorkspaceWorkbench, root: Path, ignored: str) -> None:
    (root / ".gitignore").write_text(ignored)
    assert "src/app.py" in await text(bench, "list_files")


async def test_gitignore_that_links_outside_is_not_read(bench: WorkspaceWorkbench, root: Path) -> None:
    (root.parent / "outside").write_text("*.py\n")
    (root / ".gitignore").symlink_to("../outside")
    assert "src/app.py" in await text(bench, "list_files")


# -- ranges -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    rows("workspace_tools/a_range_of_lines_comes_numbered"),
)
async def test_range_of_lines_comes_numbered(bench: WorkspaceWorkbench, first: Any, last: Any, expected: str) -> None:
    assert await text(bench, "read_file", path="src/app.py", first_line=first, last_line=last) == expected


async def test_long_range_says_where_to_continue(bench: WorkspaceWorkbench, root: Path) -> None:
    (root / "big.txt").write_text("x" * 99 + "\n" + "y" * 99 + "\n")
    (root / "big.txt").write_text(("x" * 99 + "\n") * 2_000)
    output = (await text(bench, "read_file", path="big.txt", first_line=1)).splitlines()
    assert output[-1] == f"[cut; read on from first_line={len(output)}]"
    on = await text(bench, "read_file", path="big.txt", first_line=len(output), last_line=len(output))
    assert on == f"{len(output)}\t" + "x" * 99


# -- search -----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["ripgrep", "python"])
def program(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which of the two searches: the same is expected of both."""
    if request.param == "python":
        yield ""
        return
    found = shutil.which("rg")
    if found is None:
        pytest.skip("ripgrep is not here")
    yield found


@pytest.mark.parametrize(
    ("pattern", "hits"),
    rows("workspace_tools/both_searches_find_the_same"),
)
def test_both_searches_find_the_same(root: Path, program: str, pattern: str, hits: list[str]) -> None:
    (root / "crlf.txt").write_bytes(b"hello\r\nworld\r\n")
    (root / "latin.txt").write_bytes(b"gr\xf6\xdfe\n")
    (root / "umlaut.txt").write_text("größe\n")
    (root / "-e.txt").write_text("a -e b\n")
    (root / "image.png").write_bytes(b"\x89PNG\r\n\x00\x00PNG\n")
    (root / "link.py").symlink_to("src/app.py")
    folder = Folder(root)
    assert search(folder, pattern, list_visible(folder), ripgrep=program).hits == hits


def test_both_bound_what_they_give(root: Path, program: str) -> None:
    (root / "many.txt").write_text("needle\n" * (MAX_HITS + 1))
    (root / "long.txt").write_text("needle" + "x" * 10_000)
    (root / "large.txt").write_text("needle\n" + "x" * MAX_SEARCHED_BYTES)
    folder = Folder(root)
    found = search(folder, "needle", list_visible(folder), ripgrep=program)
    assert (len(found.hits), found.more, found.too_large) == (MAX_HITS, True, 1)
    assert found.hits[0] == "long.txt:1: needle" + "x" * 294 + " [cut]"


def test_both_take_just_so_many_as_all(root: Path, program: str) -> None:
    (root / "many.txt").write_text("needle\n" * MAX_HITS)
    folder = Folder(root)
    found = search(folder, "needle", list_visible(folder), ripgrep=program)
    assert (len(found.hits), found.more) == (MAX_HITS, False)


def test_many_files_are_searched_in_order(root: Path, program: str) -> None:
    for number in range(450):
        (root / f"{number:03}.txt").write_text("needle\n" if number % 100 == 7 else "hay\n")
    folder = Folder(root)
    found = search(folder, "needle", list_visible(folder), ripgrep=program)
    assert found.hits == [f"{number:03}.txt:1: needle" for number in (7, 107, 207, 307, 407)]


@pytest.mark.slow
def test_pattern_that_takes_for_ever_is_given_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upcall.workspace.searching.TIMEOUT_S", 0.3)
    (root / "a.txt").write_text("a" * 300)
    with pytest.raises(ValueError, match="was stopped"):
        search(Folder(root), r"(.*)(.*)(.*)(.*)(.*)(.*)[0-9]\1", ["a.txt"], ripgrep="")


@pytest.mark.parametrize("pattern", ["[", "(", "*a", "(?P<x", "a{99999999999}"])
async def test_what_is_no_pattern_is_an_error(bench: WorkspaceWorkbench, pattern: str) -> None:
    assert "is not a regular expression" in await error(bench, "search_files", pattern=pattern)


async def test_search_can_be_narrowed(bench: WorkspaceWorkbench) -> None:
    assert await text(bench, "search_files", pattern="def", glob="*.md") == "Nothing found for 'def' in 1 files."
    assert await text(bench, "search_files", pattern="def add", glob="src/") == "src/app.py:4: def add(a, b):"


# -- edit -------------------------------------------------------------------------------------------------------------


async def test_piece_that_occurs_once_is_replaced(bench: WorkspaceWorkbench, root: Path) -> None:
    output = await text(
        bench, "edit_file", path="src/app.py", old="add(a, b):\n    return a - b", new="add(a, b):\n    return a + b"
    )
    assert (root / "src" / "app.py").read_text() == APP.replace("a - b", "a + b", 1)
    assert output.startswith("Edited src/app.py (+1 -1):\n--- a/src/app.py\n+++ b/src/app.py\n")
    assert "-    return a - b\n+    return a + b\n" in output


async def test_text_that_repeats_is_replaced_only_with_all(bench: WorkspaceWorkbench, root: Path) -> None:
    output = await error(bench, "edit_file", path="src/app.py", old="a - b", new="a + b")
    assert output == (
        "'old' occurs 2 times in 'src/app.py' (lines 5, 9); nothing was changed. Add lines around it so that it occurs "
        "once, or set 'all'."
    )
    await text(bench, "edit_file", path="src/app.py", old="a - b", new="a + b", all=True)
    assert (root / "src" / "app.py").read_text() == APP.replace("a - b", "a + b")


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        ("def add(a,b):", "The closest lines (number, tab, text):\n2\t\n3\t\n4\tdef add(a, b):\n5\t    return a - b"),
        ("def add(a, b):\n  return a - b", "It does, except for white space; the lines there are"),
        ("4\tdef add(a, b):\n5\t    return a - b", "Leave out the line numbers: they are not in the file."),
        ("4: def add(a, b):", "Leave out the line numbers: they are not in the file."),
        ("class Zebra: pass", "Nothing in it is similar; read the file."),
        ("\n\n\n\n\n\n", "Nothing in it is similar; read the file."),
    ],
)
async def test_miss_says_what_is_near(bench: WorkspaceWorkbench, root: Path, old: str, expected: str) -> None:
    output = await error(bench, "edit_file", path="src/app.py", old=old, new="x")
    assert output.startswith("'old' does not occur in 'src/app.py'; nothing was changed. ")
    assert expected in output
    assert (root / "src" / "app.py").read_text() == APP


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [("", "x", "'old' is empty"), ("add", "add", "are the same"), ("add", "\ud800", "half a character")],
)
async def test_what_is_no_edit_is_an_error(
    bench: WorkspaceWorkbench, root: Path, old: str, new: str, expected: str
) -> None:
    assert expected in await error(bench, "edit_file", path="src/app.py", old=old, new=new)
    assert (root / "src" / "app.py").read_text() == APP


async def test_edit_keeps_line_ends_bytes_and_mode(bench: WorkspaceWorkbench, root: Path) -> None:
    (root / "dos.bat").write_bytes(b"one\r\ntwo\r\ngr\xf6\xdfe\r\n")
    (root / "dos.bat").chmod(0o755)
    await text(bench, "edit_file", path="dos.bat", old="one\ntwo", new="1\n2")
    assert (root / "dos.bat").read_bytes() == b"1\r\n2\r\ngr\xf6\xdfe\r\n"
    assert (root / "dos.bat").stat().st_mode & 0o777 == 0o755


@pytest.mark.slow
async def test_edits_at_the_same_time_all_count(bench: WorkspaceWorkbench, root: Path) -> None:
    """A model may make several calls at once for one file"""
    (root / "n.txt").write_text("\n".join(f"line {number}." for number in range(20)))
    edits = [text(bench, "edit_file", path="n.txt", old=f"line {n}.", new=f"LINE {n}.") for n in range(20)]
    await asyncio.gather(*edits)
    assert (root / "n.txt").read_text() == "\n".join(f"LINE {number}." for number in range(20))


async def test_what_is_too_large_is_not_changed(bench: WorkspaceWorkbench, root: Path) -> None:
    with (root / "huge.txt").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    for tool, more in (("edit_file", {"old": "a", "new": "b"}), ("write_file", {"content": "a"}), ("delete_file", {})):
        assert "larger than 10 MB" in await error(bench, tool, path="huge.txt", **more)
    assert (root / "huge.txt").stat().st_size == MAX_BYTES + 1


async def test_long_diff_is_not_given_back(bench: WorkspaceWorkbench, root: Path) -> None:
    output = await text(bench, "edit_file", path="README.md", old="Hello", new="x\n" * MAX_ECHO)
    assert output == f"Edited README.md (+{MAX_ECHO + 1} -1)."


# -- patches ----------------------------------------------------------------------------------------------------------

CHANGE = "--- a/src/app.py\n+++ b/src/app.py\n@@ -4,2 +4,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"
NEW = "--- /dev/null\n+++ b/new/x.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n"
GONE = "--- a/README.md\n+++ /dev/null\n@@ -1 +0,0 @@\n-# Hello\n"
FIXED = APP.replace("a - b", "a + b", 1)


async def test_patch_changes_makes_and_deletes_files(bench: WorkspaceWorkbench, root: Path) -> None:
    output = await text(bench, "apply_patch", patch=CHANGE + NEW + GONE)
    assert output == "Applied to src/app.py (+1 -1), new/x.txt (+2 -0), README.md (deleted)."
    assert files(root) == {"new/x.txt": "one\ntwo\n", "src/app.py": FIXED}


@pytest.mark.parametrize(
    "patch",
    [
        CHANGE.replace("@@ -4,2 +4,2 @@", "@@ -4,99 +4,1 @@ def add(a, b):"),
        CHANGE.replace("@@ -4,2 +4,2 @@", "@@ -1,2 +1,2 @@"),
        CHANGE.replace("@@ -4,2 +4,2 @@", "@@ ... @@"),
        CHANGE.replace("@@ -4,2 +4,2 @@", "@@"),
        "diff --git a/src/app.py b/src/app.py\nindex 0123456..789abcd 100644\n" + CHANGE,
        CHANGE.replace("a/src", "src").replace("b/src", "src"),
        CHANGE.replace("--- a/src/app.py", "--- a/src/app.py\t2026-01-01 00:00:00"),
        "```diff\n" + CHANGE + "```\n",
        CHANGE.rstrip("\n"),
        CHANGE + "\n\n",
        CHANGE.replace("\n", "\r\n"),
        "I change the sign.\n\n" + CHANGE,
        CHANGE.replace(" def add", "\n def add").replace("@@\n\n", "@@\n\n"),
    ],
    ids=range(13),
)
async def test_patch_as_models_write_them_is_applied(bench: WorkspaceWorkbench, root: Path, patch: str) -> None:
    """Wrong counts, other lines, no lines, git's own lines, no prefixes, fences, ends, prose, blank lines unmarked"""
    await text(bench, "apply_patch", patch=patch)
    assert (root / "src" / "app.py").read_text() == FIXED


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        (CHANGE.replace("return a - b", "return a * b"), "Hunk 1 for 'src/app.py' does not fit: its lines are not"),
        (CHANGE.replace(" def add(a, b):\n", "").replace("-4,2", "-1,1"), "fits at several places (lines 5, 9)"),
        (CHANGE.replace("src/app.py", "src/none.py"), "There is no file 'src/none.py'. Files:"),
        (NEW.replace("new/x.txt", "README.md"), "'README.md', which is there already"),
        (GONE.replace("-# Hello", "-# Hell"), "does not fit"),
        ("--- a/src/app.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-import os\n", "which has more lines than it names"),
        (CHANGE + CHANGE, "has several parts for 'src/app.py'"),
        (CHANGE.replace("-    return", "return"), "begins with none of ' ', '+', '-': 'return a - b'"),
        ("nothing", "This is not a unified diff"),
        ("", "This is not a unified diff"),
        ("--- a/x\n+++ b/x\n", "has no hunk"),
        ("--- /dev/null\n+++ /dev/null\n@@ -0,0 +1 @@\n+x\n", "without a file name"),
        ("@@ -1 +1 @@\n-a\n+b\n", "This is not a unified diff"),
        ("--- a/README.md\n+++ b/README.md\n@@\n+x\n", "does not say where it belongs"),
        ("--- a/README.md\n+++ b/README.md\n@@ -7,0 +8 @@\n+x\n", "come after line 7, which is not there"),
        ("diff --git a/i.png b/i.png\nBinary files a/i.png and b/i.png differ\n", "binary data"),
        (
            "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc/passwd\n",
            "makes no links",
        ),
    ],
    ids=range(17),
)
async def test_patch_that_does_not_fit_changes_nothing(
    bench: WorkspaceWorkbench, root: Path, patch: str, expected: str
) -> None:
    before = files(root)
    for whole in (patch, NEW + patch) if "\n@@" in patch and "def" in patch else (patch,):
        assert expected in await error(bench, "apply_patch", patch=whole)
        assert files(root) == before


async def test_patch_that_fails_midway_is_undone(
    bench: WorkspaceWorkbench, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full at the second file"""
    import os

    before, replace, count = files(root), os.replace, 0

    def full(*given: Any, **more: Any) -> None:
        nonlocal count
        count += 1
        if count == 2:
            raise OSError(28, "No space left on device")
        replace(*given, **more)

    monkeypatch.setattr(os, "replace", full)
    assert await error(bench, "apply_patch", patch=CHANGE + NEW) == "apply_patch failed: No space left on device."
    monkeypatch.undo()
    assert files(root) == before
    assert await text(bench, "show_diff") == "Nothing was changed."


@pytest.mark.parametrize(
    ("before", "hunk", "after"),
    [
        ("a\nb", "@@ -2 +2 @@\n-b\n+c\n", "a\nc"),
        ("a\nb", "@@ -2 +2 @@\n-b\n\\ No newline at end of file\n+c\n", "a\nc\n"),
        ("a\nb\n", "@@ -2 +2 @@\n-b\n+c\n\\ No newline at end of file\n", "a\nc"),
        ("a\r\nb\r\n", "@@ -2 +2,2 @@\n-b\n+c\n+d\n", "a\r\nc\r\nd\r\n"),
        ("a\nb\n", "@@ -1,0 +2 @@\n+x\n", "a\nx\nb\n"),
        ("a\nb\n", "@@ -0,0 +1 @@\n+x\n", "x\na\nb\n"),
        ("", "@@ -0,0 +1 @@\n+x\n", "x\n"),
        ("a\nb\nc\nd\n", "@@ -1 +1,2 @@\n-a\n+A\n+AA\n@@ -4 +5 @@\n-d\n+D\n", "A\nAA\nb\nc\nD\n"),
        ("x\na\nx\na\nx\n", "@@ -4 +4 @@\n-a\n+b\n", "x\na\nx\nb\nx\n"),
        ("-- x\n++ y\n", "@@ -1,2 +1,2 @@\n--- x\n-++ y\n+--- z\n+++ w\n", "--- z\n++ w\n"),
        ("a\x0cb\nc\u2028d\n", "@@ -2 +2 @@\n-c\u2028d\n+e\n", "a\x0cb\ne\n"),
    ],
    ids=range(11),
)
async def test_hunks_are_applied_to_the_letter(
    bench: WorkspaceWorkbench, root: Path, before: str, hunk: str, after: str
) -> None:
    (root / "x.txt").write_bytes(before.encode())
    await text(bench, "apply_patch", patch=f"--- a/x.txt\n+++ b/x.txt\n{hunk}")
    assert (root / "x.txt").read_bytes() == after.encode()


async def test_patch_can_rename(bench: WorkspaceWorkbench, root: Path) -> None:
    patch = "diff --git a/README.md b/docs/index.md\nrename from README.md\nrename to docs/index.md\n"
    await text(bench, "apply_patch", patch=patch)
    assert files(root) == {"docs/index.md": "# Hello\n", "src/app.py": APP}


# -- deleting, and consent --------------------------------------------------------------------------------------------


async def test_file_is_deleted_once_that_is_allowed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def request(_: Consent, change: ProposedChange, text: str, diff: str) -> None:
        asked.append((text, [each.effect for each in change.findings], diff))
        if len(asked) == 1:
            raise ValueError("The user does not want it: keep the readme.")

    monkeypatch.setattr(Consent, "request_changes", request)
    bench = WorkspaceWorkbench(root)
    assert await error(bench, "delete_file", path="./README.md") == "The user does not want it: keep the readme."
    assert (root / "README.md").exists()
    assert await text(bench, "delete_file", path="./README.md") == "Deleted ./README.md."
    diff = "--- a/README.md\n+++ /dev/null\n@@ -1 +0,0 @@\n-# Hello\n"
    assert asked == [("", [FileEffect.DELETE], diff)] * 2


async def test_patch_that_deletes_asks_too_and_waits_whole(root: Path) -> None:
    bench, before = WorkspaceWorkbench(root), files(root)
    with pytest.raises(UserInputRequired, match=r"README\.md"):
        await bench.call_tool("apply_patch", {"patch": CHANGE + GONE})
    assert files(root) == before
    await text(bench, "apply_patch", patch=CHANGE)


async def test_what_was_confirmed_and_changed_since_is_not_deleted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def request(*_: object) -> None:
        (root / "README.md").write_text("something of worth\n")

    monkeypatch.setattr(Consent, "request_changes", request)
    assert "was changed by somebody else meanwhile" in await error(
        WorkspaceWorkbench(root), "delete_file", path="README.md"
    )
    assert (root / "README.md").read_text() == "something of worth\n"


async def test_own_file_is_deleted_without_a_question(root: Path) -> None:
    bench = WorkspaceWorkbench(root)
    await text(bench, "write_file", path="new/x.txt", content="one\n")
    await text(bench, "edit_file", path="new/x.txt", old="one", new="two")
    await text(bench, "delete_file", path="new/x.txt")
    with pytest.raises(UserInputRequired):
        await bench.call_tool("delete_file", {"path": "README.md"})


@pytest.mark.parametrize(
    "path", [".envrc", ".vscode/tasks.json", "src/sitecustomize.py", "lib/x.pth", ".husky/pre-push"]
)
async def test_later_effects_are_asked_about_by_file_tools(root: Path, path: str) -> None:
    bench = WorkspaceWorkbench(root, consent=Consent(allow_changes=["overwrite", "delete"]))
    with pytest.raises(UserInputRequired, match="which other programs act on later"):
        await bench.call_tool("write_file", {"path": path, "content": "touch owned"})
    assert not (root / path).exists()


async def test_links_and_folders_are_not_deleted(bench: WorkspaceWorkbench, root: Path) -> None:
    (root / "link.md").symlink_to("README.md")
    assert "is a link" in await error(bench, "delete_file", path="link.md")
    assert "There is no file" in await error(bench, "delete_file", path="src")
    assert "There is no file" in await error(bench, "delete_file", path="none")
    assert (root / "README.md").exists()


# -- the diff of it all -----------------------------------------------------------------------------------------------


async def test_diff_is_against_the_beginning(bench: WorkspaceWorkbench, root: Path) -> None:
    assert await text(bench, "show_diff") == "Nothing was changed."
    await text(bench, "write_file", path="x.txt", content="one\n")
    await text(bench, "edit_file", path="x.txt", old="one", new="two")
    await text(bench, "delete_file", path="README.md")
    gone = "--- a/README.md\n+++ /dev/null\n@@ -1 +0,0 @@\n-# Hello\n"
    assert await text(bench, "show_diff") == gone + "--- /dev/null\n+++ b/x.txt\n@@ -0,0 +1 @@\n+two\n"
    assert await text(bench, "show_diff", path="./README.md") == gone
    await text(bench, "write_file", path="README.md", content="# Hello\n")
    await text(bench, "delete_file", path="x.txt")
    assert await text(bench, "show_diff") == "Nothing was changed."


async def test_writing_what_is_there_is_no_change(bench: WorkspaceWorkbench) -> None:
    output = await text(bench, "write_file", path="README.md", content="# Hello\n")
    assert output == "README.md: that is what it holds already; nothing was changed."
    assert await bench.changes.list_changes() == []


async def test_change_that_failed_is_not_recorded(root: Path) -> None:
    log, stale = MemoryChanges(), Content(b"what was there before", 0o644)
    with pytest.raises(ChangedMeanwhile):
        await commit(Folder(root), log, [Write.of_contents("README.md", stale, None)], tool="delete_file")
    assert await log.list_changes() == []


def test_overlay_marks_of_a_file_stay_out(tmp_path: Path) -> None:
    staged, work = tmp_path / "staged", tmp_path / "work"
    staged.write_text("x")
    try:
        for name in ("user.overlay.opaque", "user.note"):
            os.setxattr(staged, name, b"y")
    except (AttributeError, OSError):
        pytest.skip("files have no attributes here")
    Folder(work).write([Write("a", None, FileState(mode=0o644), staged)])
    assert os.listxattr(work / "a") == ["user.note"]
