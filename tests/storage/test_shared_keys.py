"""Keys that the processes of a store share."""

from __future__ import annotations

import asyncio

from upcall.storage.shared_keys import share_key
from upcall.storage.store import RunStore


async def test_key_is_shared_by_all_and_distinct_by_name(location: str) -> None:
    stores = [RunStore(location) for _ in range(4)]
    first, *others = await asyncio.gather(*(share_key(each, "seal") for each in stores))
    assert {first} == {*others}
    assert (len(first) >= 32, await share_key(RunStore(location), "other") != first) == (True, True)
