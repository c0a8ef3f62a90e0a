"""Compression: whatever was stored comes back, or is known to be damaged."""

from __future__ import annotations

import os
import random

import pytest

from upcall.storage.compression import Damaged, decode, encode, measure

TEXTS = [
    b"",
    b"x",
    b'{"type":"TeamState"}' * 9,
    os.urandom(100_000),
    random.Random(1).randbytes(1500).hex().encode() * 900,
]


@pytest.mark.parametrize("text", TEXTS, ids=len)
@pytest.mark.parametrize("prefix", [None, *TEXTS[1:]], ids=lambda each: len(each or b""))
def test_text_comes_back(text: bytes, prefix: bytes | None) -> None:
    stored = encode(text, prefix)
    assert decode(stored, prefix) == text
    assert measure(stored[:18]) == len(text)


@pytest.mark.parametrize("size", [1_000, 100_000, 3_000_000])
def test_resembling_text_takes_next_to_nothing(size: int) -> None:
    text = random.Random(size).randbytes(size // 2).hex().encode()
    assert len(encode(text, prefix=text[: size // 3] + b"more" + text[size // 3 :])) < 500


def test_text_finds_its_repetitions_however_far_back() -> None:
    text = random.Random(3).randbytes(15_000).hex().encode()
    assert len(encode(text + text)) < len(encode(text)) + 50


@pytest.mark.parametrize("text", TEXTS[2:], ids=len)
def test_damage_at_any_place_is_noticed(text: bytes) -> None:
    stored = encode(text)
    for place in {*range(min(40, len(stored))), *random.Random(2).sample(range(len(stored)), min(40, len(stored)))}:
        changed = stored[:place] + bytes([stored[place] ^ 0x55]) + stored[place + 1 :]
        with pytest.raises(Damaged):
            decode(changed)


def test_another_prefix_is_noticed() -> None:
    text = os.urandom(3_000).hex().encode()
    with pytest.raises(Damaged):
        decode(encode(text, prefix=text + b"1"), prefix=b"0" + text)
