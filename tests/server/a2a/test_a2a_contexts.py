"""What is kept of a client's own ids, on both databases, and the way by which the routes are found."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

import pytest

pytest.importorskip("a2a", reason="the extra a2a is not installed")

from services import serving

from upcall import Run, RunStore
from upcall.errors import ConfigurationError
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.run_filter import EVERY_RUN, RunFilter
from upcall.runs.states import RunEvent, RunStatus
from upcall.server.a2a import routes
from upcall.server.a2a.contexts import (
    TaskNames,
    count_runs,
    forget_names,
    keep_names,
    keep_shown,
    list_in_context,
    read_names,
    read_shown,
)
from upcall.storage.export import export_run, import_run


async def make_store(location: str) -> RunStore:
    """Return a store with a run of Alice and one of Bob."""
    store = RunStore(location)
    for user in ("alice", "bob"):
        run = Run(id=f"{user}-run", task="Do it", user=user)
        await store.create(run.apply(RunEvent.FAILED), Checkpoint())
    return store


def sign(exported: dict[str, Any]) -> dict[str, Any]:
    """Return an exported run with the digest that it would have."""
    content = {name: each for name, each in exported.items() if name != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return {**content, "digest": blake2b(text.encode(), digest_size=16).hexdigest()}


async def test_ids_of_a_client_are_those_that_came_first(location: str) -> None:
    store = await make_store(location)
    assert await read_names(store, ["alice-run"]) == {}
    assert (await list_in_context(store, "ours"), await read_shown(store, "alice-run", "m2")) == (["ours"], None)
    for message in ("m1", "m9"):
        await keep_names(store, "alice-run", TaskNames("ours", message))
    assert await read_names(store, ["alice-run", "bob-run"]) == {"alice-run": TaskNames("ours", "m1")}
    assert await list_in_context(store, "ours") == ["ours", "alice-run"]
    assert await keep_shown(store, "alice-run", "m2", ["q1", "q 2"]) == ["q1", "q 2"]
    assert await keep_shown(store, "alice-run", "m2", ["q3"]) == ["q1", "q 2"]
    assert await read_shown(store, "alice-run", "m2") == ["q1", "q 2"]
    await store.close()


async def test_ids_of_a_client_are_removed_with_their_run(location: str) -> None:
    store = await make_store(location)
    for run_id in ("alice-run", "bob-run"):
        await keep_names(store, run_id, TaskNames("ours"))
        await keep_shown(store, run_id, "m2", ["q1"])
    await store.delete("alice-run")
    await forget_names(store, "bob-run")
    assert await list_in_context(store, "ours") == ["ours"]
    assert [await read_shown(store, each, "m2") for each in ("alice-run", "bob-run")] == [None, ["q1"]]
    await store.close()


async def test_ids_of_a_client_are_exported_with_their_run(location: str) -> None:
    store, other = await make_store("first.db"), RunStore(location)
    await keep_names(store, "alice-run", TaskNames("ours", "m1"))
    await keep_shown(store, "alice-run", "m2", ["q1"])
    exported = await export_run(store, "alice-run")
    await import_run(other, exported)
    copy = await import_run(other, exported, as_new=True)
    assert await read_names(other, ["alice-run", copy.id]) == {"alice-run": TaskNames("ours", "m1")}
    assert await read_shown(other, "alice-run", "m2") == ["q1"]
    assert (await export_run(other, "alice-run"))["added"] == exported["added"]
    await store.close()
    await other.close()


@pytest.mark.parametrize("row", [{"run_id": ""}, {"run_id": "", "context_id": ["ours"], "message_id": "m1"}, "row"])
async def test_damaged_ids_of_a_client_are_not_imported(row: object) -> None:
    store, other = await make_store("first.db"), RunStore("other.db")
    exported = {**await export_run(store, "alice-run"), "added": {"upcall_a2a_tasks": [row]}}
    with pytest.raises(ConfigurationError, match="cannot be read: it is damaged"):
        await import_run(other, sign(exported))
    assert not await other.find("alice-run")
    await store.close()


async def test_unknown_tables_of_an_exported_run_are_left_out() -> None:
    store, other = await make_store("first.db"), RunStore("other.db")
    exported = {**await export_run(store, "alice-run"), "added": {"of_a_package_elsewhere": [{"run_id": "alice-run"}]}}
    await import_run(other, sign(exported))
    assert "added" not in await export_run(other, "alice-run")
    await store.close()
    await other.close()


async def test_tasks_are_counted_by_owner_status_and_time(location: str) -> None:
    store = await make_store(location)
    [run] = [each for each in await store.list(only=EVERY_RUN) if each.user == "alice"]
    filters = {
        RunFilter(): 2,
        RunFilter(owner="alice"): 1,
        RunFilter(owner="eve"): 0,
        RunFilter(statuses=frozenset({RunStatus.FAILED})): 2,
        RunFilter(statuses=frozenset({RunStatus.COMPLETED})): 0,
        RunFilter(changed_after=run.updated_at): 2,
        RunFilter(changed_after=run.updated_at.replace(year=2999)): 0,
    }
    assert {each: await count_runs(store, each) for each in filters} == filters
    await store.close()


async def test_service_without_the_package_serves_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "find_spec", lambda _: None)
    async with serving() as site, await site.caller("alice") as client:
        paths = ("/a2a", "/.well-known/agent-card.json", "/api/runs")
        assert [(await client.get(each)).status_code for each in paths] == [404, 404, 200]
