"""Ids: what a process gives to messages is given once, also where it has a child."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import PausableAgent, Upcall, identity
from upcall.state_folder import find_state_folder
from upcall.storage.store import RunStore
from upcall.testing import Call, ScriptedModelClient

FORK = """
import os
from upcall import identity
print(identity.new_message_id(), flush=True)
child = os.fork()
if child:
    os.waitpid(child, 0)
print(identity.new_message_id(), flush=True)
"""


def test_ids_of_a_process_share_their_own_beginning() -> None:
    ids = [identity.new_message_id() for _ in range(1000)]
    assert (len(set(ids)), {each[:10] for each in ids}) == (1000, {ids[0][:10]})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_child_that_was_forked_gives_ids_of_its_own() -> None:
    command = [sys.executable, "-c", textwrap.dedent(FORK)]
    before, *after = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert [each[:10] == before[:10] for each in after] == [False, True]
    assert len({before, *after}) == 3


async def test_messages_that_the_library_makes_have_short_ids(tmp_path: Path) -> None:
    ask = Call("ask_user", {"question": "Which framework?"})
    with ScriptedModelClient([Call("coder", {"task": "Build it"}), ask, "Built.", "Done."]) as client:
        coder = PausableAgent("coder", client)
        app = Upcall(team=lambda: _team(client, coder), store=str(tmp_path / "runs.db"))
        run = await app.start("Build me a user authentication system")
        done = await app.answer(run.id, "Express")
    thread = (await RunStore(tmp_path / "runs.db").load(done.id)).checkpoint.thread()
    ids = [str(each["id"]) for each in thread]
    assert (len(set(ids)), max(map(len, ids)) < 20) == (len(ids), True)


def _team(client: ScriptedModelClient, coder: PausableAgent) -> RoundRobinGroupChat:
    return RoundRobinGroupChat([PausableAgent("lead", client, agents=[coder])], max_turns=1)


def test_account_has_a_part_that_only_it_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    named = identity.account()
    assert named == identity.account()
    (path,) = find_state_folder().iterdir()
    assert (path.stat().st_mode & 0o777, path.read_text()) == (0o600, named.partition("#")[2])
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("elsewhere").resolve()))
    assert identity.account() != named


def test_account_is_named_anew_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("file").resolve()))
    assert len(identity.account().partition("#")[2]) == 32
