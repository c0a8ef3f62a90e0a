"""The log of a run on both databases: one number for each event, whatever it is and whoever writes it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import pytest
from stores import FIRST, execute

from upcall.runs.events import EntryAdded, FolderMissing, LogEntry, RunResumed, RunStarted, SegmentTimed, UnknownEvent
from upcall.runs.run import Run
from upcall.runs.transcript import EntryKind, TranscriptEntry
from upcall.storage.event_log import append_events, copy_entries, read_segment
from upcall.storage.export import export_run, import_run
from upcall.storage.store import RunStore
from upcall.storage.transcripts import load_transcript, write_transcript

AT = datetime(2026, 11, 27, 9, 30, tzinfo=UTC)
KINDS = [EntryKind.MESSAGE, EntryKind.CALL, EntryKind.RESULT, EntryKind.THOUGHT]


def entry(number: int) -> TranscriptEntry:
    kind = KINDS[number % len(KINDS)]
    count = len([each for each in range(1, number + 1) if KINDS[each % len(KINDS)].is_text]) if kind.is_text else 0
    return TranscriptEntry(kind, ("lead", "coder"), AT, f"text {number}", "", number=count)


async def write(store: RunStore, run_id: str, first: int, last: int, *, segment: int = 0, merge: bool = False) -> None:
    entries = [entry(each) for each in range(first, last + 1)]
    await store.database.write(write_transcript(run_id, segment, entries, merge=merge))


async def write_mixed(store: RunStore, run_id: str) -> None:
    """Write a segment in four parts among other events, merged at its end, and the beginning of the next."""
    for first, last in [(1, 3), (4, 4), (5, 7)]:
        await write(store, run_id, first, last)
        await store.events.append(run_id, RunResumed(user=f"after {last}"))
    await write(store, run_id, 8, 9, merge=True)
    await store.events.append(run_id, SegmentTimed(ended_ms=1, took_ms=1))
    await write(store, run_id, 1, 2, segment=1)


def describe(entries: Sequence[LogEntry]) -> list[str]:
    return [each.event.entry.text if isinstance(each.event, EntryAdded) else each.kind for each in entries]


async def test_position_at_any_event_has_the_rest_after_it(location: str) -> None:
    store = RunStore(location)
    run_id = (await store.create(Run(task="do it"), FIRST)).run.id
    await write_mixed(store, run_id)
    whole = await store.events.read(run_id)
    assert [each.id for each in whole] == sorted({each.id for each in whole})
    for index, each in enumerate(whole):
        assert await store.events.read(run_id, each.id) == whole[index + 1 :]
        assert await store.events.read(run_id, each.id, limit=2) == whole[index + 1 :][:2]


async def test_position_holds_while_a_segment_grows_and_is_merged(location: str) -> None:
    store, emitted = RunStore(location), list[LogEntry]()
    run_id = (await store.create(Run(task="do it"), FIRST)).run.id
    parts = [partial(write, store, run_id, first, last) for first, last in [(1, 3), (4, 4), (5, 7)]]
    parts.insert(1, partial(store.events.append, run_id, RunResumed()))
    parts += [partial(write, store, run_id, 8, 9, merge=True), partial(write, store, run_id, 10, 9, merge=True)]
    for part in parts:
        await part()
        emitted += await store.events.read(run_id, emitted[-1].id if emitted else 0)
    assert emitted == await store.events.read(run_id)
    texts = [f"text {number}" for number in range(1, 10)]
    assert describe(emitted) == ["started", *texts[:3], "resumed", *texts[3:]]
    assert execute(location, "select count(*) from upcall_log where kind = 'entry'") == [(1,)]


async def test_transcript_is_the_entries_of_the_log(location: str) -> None:
    store = RunStore(location)
    run_id = (await store.create(Run(task="do it"), FIRST)).run.id
    await write_mixed(store, run_id)
    assert await load_transcript(store, run_id) == [*map(entry, range(1, 10)), entry(1), entry(2)]
    found = await store.database.read(partial(read_segment, run_id=run_id, segment=1))
    assert [each for _, each in found] == [entry(1), entry(2)]
    assert await store.database.read(partial(read_segment, run_id=run_id, segment=2)) == []


async def test_fork_copies_shared_segments_in_order(location: str) -> None:
    store = RunStore(location)
    run_id = (await store.create(Run(task="do it"), FIRST)).run.id
    await write_mixed(store, run_id)
    fork = Run(task="do it")
    await store.create(fork, FIRST, also=partial(copy_entries, run_id=run_id, new_id=fork.id, before=1))
    await store.events.append(fork.id, RunResumed())
    whole = await store.events.read(fork.id)
    assert describe(whole) == ["started", *(f"text {number}" for number in range(1, 10)), "resumed"]
    assert await store.events.read(fork.id, whole[4].id) == whole[5:]


async def test_exported_log_is_the_same_after_import(location: str) -> None:
    store, other = RunStore(location), RunStore("other.db")
    run_id = (await store.create(Run(task="do it", user="ada"), FIRST)).run.id
    await write_mixed(store, run_id)
    await store.events.append(run_id, UnknownEvent(type="paid", detail={"cents": 3}))
    await import_run(other, await export_run(store, run_id))
    whole, copied = await store.events.read(run_id), await other.events.read(run_id)
    assert [(each.at, each.event) for each in copied[:-1]] == [(each.at, each.event) for each in whole]
    assert copied[-1].kind == "imported"


async def test_readers_miss_nothing_while_several_write(location: str) -> None:
    """On PostgreSQL a number is taken before its event is visible: without a lock a lower one may appear later."""
    store, writers, count = RunStore(location), 4, 12
    ids = [(await store.create(Run(task="do it"), FIRST)).run.id for _ in range(2)]
    emitted: dict[str, list[LogEntry]] = {each: [] for each in ids}

    async def write_events(machine: str) -> None:
        own = RunStore(location)
        for number in range(count):
            for run_id in ids:
                await own.events.append(run_id, FolderMissing(machine=machine, folder=str(number)))

    work = asyncio.gather(*(write_events(str(each)) for each in range(writers)))
    is_last = False
    while not is_last:
        is_last = work.done()
        for run_id, found in emitted.items():
            found += await store.events.read(run_id, found[-1].id if found else 0)
    await work
    for run_id, found in emitted.items():
        assert found == await store.events.read(run_id)


@pytest.mark.parametrize("damage", ["block = null", "detail = 'x'", "block = 'no block'"])
async def test_damaged_transcript_leaves_the_rest_readable(damage: str, location: str) -> None:
    store = RunStore(location)
    run_id = (await store.create(Run(task="do it"), FIRST)).run.id
    await write_mixed(store, run_id)
    execute(location, f"update upcall_log set {damage} where kind = 'entry'")
    with pytest.raises(Exception, match=f"The transcript of run {run_id} is damaged.*upcall store check"):
        await store.events.read(run_id)
    assert len(await store.events.read(run_id, without=(EntryAdded,))) == 5


async def test_damaged_transcript_does_not_stop_a_pause(location: str) -> None:
    store = RunStore(location)
    run_id = (await store.create(Run(task="do it"), FIRST)).run.id
    await write(store, run_id, 1, 3)
    execute(location, "update upcall_log set block = null where kind = 'entry'")
    await write(store, run_id, 4, 5, merge=True)
    await write(store, run_id, 6, 5, merge=True)
    assert execute(location, "select count(*) from upcall_log where kind = 'entry'") == [(2,)]


async def test_entries_in_a_list_of_events_share_a_row(location: str) -> None:
    store = RunStore(location)
    run_id = (await store.create(Run(task="do it"), FIRST)).run.id
    events = [EntryAdded(segment=0, entry=entry(1)), EntryAdded(segment=0, entry=entry(2)), RunResumed()]
    await store.database.write(partial(append_events, run_id=run_id, events=events))
    assert [each.event for each in (await store.events.read(run_id))[1:]] == events
    assert isinstance((await store.events.read(run_id, types=(RunStarted,)))[0].event, RunStarted)
    assert execute(location, "select count(*) from upcall_log") == [(3,)]
