"""The queues of a run: nothing in them is lost."""

from __future__ import annotations

import asyncio

import pytest

from upcall.autogen.concurrency import Inbox


# -- Inbox ------------------------------------------------------------------------------------------------------------


async def test_reader_gets_the_items_in_their_order() -> None:
    inbox = Inbox[int]()
    inbox.put_nowait(1)
    inbox.put_nowait(2)
    first = await inbox.get()
    await inbox.put(3)
    assert [first, await inbox.get(), await inbox.get()] == [1, 2, 3]
    assert inbox.empty()


async def test_reader_that_waits_is_woken_by_an_item() -> None:
    inbox = Inbox[str]()
    reader = asyncio.create_task(inbox.get())
    await asyncio.sleep(0)
    inbox.put_nowait("first")
    inbox.put_nowait("second")
    assert [await reader, inbox.get_nowait()] == ["first", "second"]


async def test_reader_begins_while_a_cancelled_one_still_ends() -> None:
    inbox = Inbox[str]()
    cancelled = asyncio.create_task(inbox.get())
    await asyncio.sleep(0)
    following = asyncio.create_task(inbox.get())
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    inbox.put_nowait("only")
    assert await asyncio.wait_for(following, 5) == "only"


async def test_item_is_kept_whose_reader_was_cancelled() -> None:
    inbox = Inbox[str]()
    reader = asyncio.create_task(inbox.get())
    await asyncio.sleep(0)
    inbox.put_nowait("kept")
    reader.cancel()
    await asyncio.wait([reader])
    assert inbox.get_nowait() == "kept"


def test_empty_inbox_gives_nothing_at_once() -> None:
    with pytest.raises(asyncio.QueueEmpty):
        Inbox[str]().get_nowait()
