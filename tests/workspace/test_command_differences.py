"""Random command lines, in the sandbox beside the same on a plain copy: the same comes of them, and nothing unasked."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sandboxed import needs_bubblewrap, read_tree, skip_without_overlay

from upcall.errors import UserInputRequired
from upcall.sandboxes import Bubblewrap
from upcall.sandboxes.limits import Limits
from upcall.sandboxes.views import ViewName
from upcall.workspace.commands import ExecutionWorkbench
from upcall.workspace.consent import Consent

pytestmark = needs_bubblewrap

NAMES = st.sampled_from(["a", "b", "d", "d/x", "d/e", "d/e/y", "l", "n", "n/z", "d/n", "*", "d/*", "."])
ACTS = st.one_of(
    st.builds("{} {}".format, st.sampled_from(["rm -f", "rm -rf", "mkdir -p", "touch", "rmdir", "unlink"]), NAMES),
    st.builds("{} {} {}".format, st.sampled_from(["mv", "mv -T", "cp", "cp -rT", "ln", "ln -sfn"]), NAMES, NAMES),
    st.builds("{} {}".format, st.sampled_from(["chmod 700", "chmod 750", "truncate -s 1", "sed -i s/1/2/"]), NAMES),
    st.builds("echo {} {} {}".format, st.sampled_from("123"), st.sampled_from([">", ">>", ">|"]), NAMES),
    st.builds("find {} -name '{}' -delete".format, NAMES, st.sampled_from("abxyz*")),
    st.builds("cd {}".format, st.sampled_from(["d", "d/e", "n", "..", "-"])),
)
JOINS = st.sampled_from(["; ", " && ", " || ", "\n"])


@st.composite
def lines(draw: st.DrawFn) -> str:
    acts = draw(st.lists(ACTS, min_size=1, max_size=6))
    return "".join(part for act in acts for part in (act, draw(JOINS))) + "true"


def make_folder(place: Path) -> Path:
    (place / "d" / "e").mkdir(parents=True)
    for name in ("a", "b", "d/x", "d/e/y"):
        (place / name).write_text("1\n")
        (place / name).chmod(0o644)
    (place / "l").symlink_to("a")
    return place


async def compare(line: str, overlay: ViewName) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        plain, kept, asked = (make_folder(Path(temporary, name)) for name in ("plain", "kept", "asked"))
        before = read_tree(asked)
        await Bubblewrap().run(line, folder=plain, limits=Limits())  # Without a view it changes the folder itself.
        allowed = Consent(allow_changes=["overwrite", "delete"])
        bench = ExecutionWorkbench(kept, Bubblewrap(), consent=allowed, overlay=overlay)
        emitted = (await bench.call_tool("run_command", {"command": line})).to_text()
        wanted, came = before if "leads out" in emitted else read_tree(plain), read_tree(kept)
        if overlay == "fuse":
            # fuse-overlayfs leaves no mark where a file that was renamed over an old one is deleted: the old one stays.
            came = {name: each for name, each in came.items() if name in wanted or before.get(name) != each}
        assert came == wanted, emitted
        with suppress(UserInputRequired):
            await ExecutionWorkbench(asked, Bubblewrap(), overlay=overlay).call_tool("run_command", {"command": line})
        after = read_tree(asked)
        assert {name: after.get(name) for name in before} == before


def explore(overlay: ViewName, examples: int, folder: Path) -> None:
    skip_without_overlay(overlay, folder)

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(lines())
    def search(line: str) -> None:
        asyncio.run(compare(line, overlay))

    search()


@pytest.mark.slow
@pytest.mark.parametrize("overlay", ["kernel", "fuse", "copy"])
def test_command_comes_to_the_same_in_the_sandbox(overlay: ViewName, tmp_path: Path) -> None:
    explore(overlay, 8, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("overlay", ["kernel", "fuse", "copy"])
def test_many_commands_come_to_the_same_in_the_sandbox(overlay: ViewName, tmp_path: Path) -> None:
    explore(overlay, 150, tmp_path)
