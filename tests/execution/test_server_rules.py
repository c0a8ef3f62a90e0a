"""What model servers do not take is learned by one run and known to the next ones of its store."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from stores import execute, history
from zoo_cells import Cell, CellServer, make_app

from upcall import identity
from upcall.autogen.openai_client import client as openai_client
from upcall.runs.run import Run
from upcall.storage.server_rules import MAX_AGE, ServerRules
from upcall.storage.store import RunStore
from upcall.testing.zoo import ZOO

CELL = Cell("ours", stream=False, tools=False, resume=False)
BEHAVIOUR = ZOO["no name in messages"]
NAMES = "names in messages"


async def run_in_a_new_process(url: str) -> None:
    openai_client._rules.clear()
    run = await make_app(BEHAVIOUR, CELL, url, Path()).start("Go.")
    assert (run.result, run.error) == ("Done.", None)


async def test_server_rule_is_learned_once_for_a_store(caplog: pytest.LogCaptureFixture) -> None:
    with CellServer(BEHAVIOUR, CELL) as server:
        for _ in range(3):
            await run_in_a_new_process(server.base_url)
        assert (server.refused, len(server.bodies)) == (1, 4)
    assert len([each for each in caplog.messages if "does not take" in each]) == 1


@pytest.mark.slow
async def test_server_rule_is_requested_again_after_its_age() -> None:
    with CellServer(BEHAVIOUR, CELL) as server:
        await run_in_a_new_process(server.base_url)
        old = (identity.now() - MAX_AGE - timedelta(days=1)).isoformat()
        value = json.dumps({"rules": ["name"], "at": old})
        execute("runs.db", "UPDATE upcall_meta SET value = ? WHERE key LIKE 'server_rules %'", value)
        for _ in range(2):
            await run_in_a_new_process(server.base_url)
        assert server.refused == 2


async def test_rules_of_a_server_are_merged_and_kept(location: str) -> None:
    """On both databases."""
    store = RunStore(location)
    await store.create(Run(task="Go."), history(1))
    first, second = ServerRules(store.database), ServerRules(store.database)
    assert await second.read() == {}
    await first.keep({"http://h m": ["b"]})
    await first.keep({"http://h m": ["b"]})
    await second.keep({"http://h m": ["a"]})
    await first.keep({"http://h m": ["a"], "http://i m": ["c"]})
    known = await ServerRules(store.database).read()
    assert known == {"http://h m": ["a", "b"], "http://i m": ["c"]}
    await store.close()
