"""Queues and tokens of a run: nothing in them is lost, and nothing is kept that is done."""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any
from weakref import ref

import pytest
from autogen_core import CancellationToken

from upcall.autogen.concurrency import SegmentToken, SingleReaderQueue, cancellable


class Reply:
    """What a call brings."""


async def fetch() -> Reply:
    return Reply()


async def start_waiting(token: SegmentToken) -> asyncio.Task[None]:
    """Start work that takes long, and return it when it is under way."""
    waiting = asyncio.create_task(cancellable(asyncio.sleep(60), token))
    await asyncio.sleep(0)
    return waiting


# -- SingleReaderQueue ------------------------------------------------------------------------------------------------


async def test_reader_gets_the_items_in_their_order() -> None:
    queue = SingleReaderQueue[int]()
    queue.put_nowait(1)
    queue.put_nowait(2)
    first = await queue.get()
    await queue.put(3)
    assert [first, await queue.get(), await queue.get()] == [1, 2, 3]
    assert queue.empty()


async def test_reader_that_waits_is_woken_by_an_item() -> None:
    queue = SingleReaderQueue[str]()
    reader = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.put_nowait("first")
    queue.put_nowait("second")
    assert [await reader, queue.get_nowait()] == ["first", "second"]


async def test_reader_begins_while_a_cancelled_one_still_ends() -> None:
    queue = SingleReaderQueue[str]()
    cancelled = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    following = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    queue.put_nowait("only")
    assert await asyncio.wait_for(following, 5) == "only"


async def test_item_is_kept_whose_reader_was_cancelled() -> None:
    queue = SingleReaderQueue[str]()
    reader = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.put_nowait("kept")
    reader.cancel()
    await asyncio.wait([reader])
    assert queue.get_nowait() == "kept"


def test_empty_inbox_gives_nothing_at_once() -> None:
    with pytest.raises(asyncio.QueueEmpty):
        SingleReaderQueue[str]().get_nowait()


# -- SegmentToken -----------------------------------------------------------------------------------------------------


async def test_token_cancels_what_is_linked_and_what_comes_late() -> None:
    token, called = SegmentToken(), list[str]()
    token.add_callback(lambda: called.append("callback"))
    linked, late = asyncio.Future[None](), asyncio.Future[None]()
    token.link_future(linked)
    token.cancel()
    token.link_future(late)
    assert (called, linked.cancelled(), late.cancelled()) == (["callback"], True, True)


@dataclass
class Handle:
    """What user code may link: something of its own with `cancel`, which cannot be hashed, and may fail."""

    token: CancellationToken
    fails: bool = False
    cancels: int = 0

    def cancel(self) -> None:
        assert self.token.is_cancelled()
        self.cancels += 1
        if self.fails:
            raise ConnectionError("the device is gone")


@pytest.mark.parametrize("is_late", [False, True])
async def test_token_cancels_once_whatever_can_be_cancelled(is_late: bool) -> None:
    token = SegmentToken()
    handles = [Handle(token), Handle(token, fails=True), Handle(token)]
    futures: list[Any] = [thread := Future[None](), asyncio.create_task(asyncio.sleep(60)), asyncio.Future[None]()]
    link: Any = token.link_future
    if is_late:
        token.cancel()
    assert [link(each) is each for each in (*handles, *futures)] == [True] * 6
    token.cancel()
    token.cancel()
    await asyncio.wait(futures[1:], timeout=5)
    assert [each.cancels for each in handles] == [1, 1, 1]
    assert [each.cancelled() for each in (thread, *futures[1:])] == [True] * 3


@pytest.mark.parametrize("is_late", [False, True])
async def test_token_takes_coroutines_and_leaves_them_alone(is_late: bool) -> None:
    token, reply = SegmentToken(), fetch()
    link: Any = token.link_future
    if is_late:
        token.cancel()
    link(reply)
    token.cancel()
    assert isinstance(await reply, Reply)


async def test_token_forgets_thread_futures_and_those_of_closed_loops() -> None:
    token, reply = SegmentToken(), Future[str]()
    link: Any = token.link_future
    elsewhere = asyncio.new_event_loop()
    done = elsewhere.create_future()
    done.set_result(None)
    elsewhere.close()
    link(done)
    link(reply)
    reply.set_result("done")
    assert not token._linked


@pytest.mark.parametrize("kind", [SegmentToken, CancellationToken])
async def test_only_our_token_lets_go_of_replies(kind: type[CancellationToken]) -> None:
    token = kind()
    task = asyncio.create_task(fetch())
    token.link_future(task)
    reply = ref(await task)
    del task
    await asyncio.sleep(0)
    gc.collect()
    assert (reply() is None) is (kind is SegmentToken)


async def test_token_lets_go_of_cancellable_work() -> None:
    token = SegmentToken()
    await cancellable(fetch(), token)
    await asyncio.sleep(0)
    assert not token._linked


async def test_cancellable_work_ends_with_its_token() -> None:
    token = SegmentToken()
    waiting = await start_waiting(token)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_cancelled_caller_is_not_taken_for_the_token() -> None:
    token = SegmentToken()
    waiting = await start_waiting(token)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not token.is_cancelled()


async def test_result_stands_that_comes_while_the_work_is_cancelled() -> None:
    token = SegmentToken()

    async def work() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "done all the same"
        return ""

    waiting = asyncio.create_task(cancellable(work(), token))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    token.cancel()
    assert await waiting == "done all the same"


async def test_work_that_cancels_itself_is_an_error() -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="cancelled itself"):
        await cancellable(work(), SegmentToken())
