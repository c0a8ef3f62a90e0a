"""Compression, with a checksum: of short texts by a dictionary of common ones, of older checkpoints by a prefix.

A text that resembles another one - a checkpoint and its successor - takes next to nothing when that other one is its
prefix: what both hold is a reference. It can then only be read with the same prefix.
"""

from __future__ import annotations

import threading
from functools import cache
from importlib.resources import files

import zstandard

SHORT = 64_000
"""From this many bytes on, speed counts for more than the last few percent, and the dictionary for nothing."""
SMALL = 4_000
"""What a text with the dictionary has, about."""
_MAX_WINDOW_LOG = 27


class Damaged(Exception):
    """What is stored is not what was written: it cannot be decompressed, its checksum differs, or a part is missing."""


def encode(text: bytes, prefix: bytes | None = None) -> bytes:
    """Compress a text, with a prefix that it resembles where there is one."""
    if prefix is None and len(text) < SHORT:
        return _short().compress(text)
    total = len(text) + len(prefix or b"")
    # The window reaches the prefix from everywhere. Without larger tables zstd would index only its last megabyte.
    window = max(10, min(_MAX_WINDOW_LOG, total.bit_length()))
    tables = {"hash_log": window - 4, "chain_log": window - 4} if total > 1_000_000 else {}
    parameters = zstandard.ZstdCompressionParameters.from_level(
        6 if total < 2 * SHORT else 3,
        source_size=len(text),
        dict_size=len(prefix or b""),
        window_log=window,
        **tables,
        **_FRAME,
    )
    raw = None if prefix is None else zstandard.ZstdCompressionDict(prefix, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return zstandard.ZstdCompressor(dict_data=raw, compression_params=parameters).compress(text)


def decode(stored: bytes, prefix: bytes | None = None) -> bytes:
    """Give back the text that `encode` was given, by the same prefix.

    Raises:
        Damaged: it is not what was written, or the prefix is another one.
    """
    try:
        if prefix is None:
            return _reader().decompress(stored)
        raw = zstandard.ZstdCompressionDict(prefix, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        return zstandard.ZstdDecompressor(dict_data=raw, format=zstandard.FORMAT_ZSTD1_MAGICLESS).decompress(stored)
    except (zstandard.ZstdError, MemoryError) as error:
        raise Damaged("it cannot be decompressed") from error


def measure(stored: bytes) -> int:
    """Tell how many bytes the text has that `encode` made this of; its first 18 bytes are enough.

    Raises:
        Damaged: it does not begin like anything that `encode` gives.
    """
    try:
        return zstandard.get_frame_parameters(stored, format=zstandard.FORMAT_ZSTD1_MAGICLESS).content_size
    except zstandard.ZstdError as error:
        raise Damaged("it cannot be decompressed") from error


_FRAME = {
    "format": zstandard.FORMAT_ZSTD1_MAGICLESS,
    "write_checksum": 1,
    "write_dict_id": 0,
    "write_content_size": 1,
}

_local = threading.local()
"""A compressor is not to be used by two threads at once."""


def _short() -> zstandard.ZstdCompressor:
    if not hasattr(_local, "short"):
        dictionary = _dictionary()
        size = len(dictionary.as_bytes())
        parameters = zstandard.ZstdCompressionParameters.from_level(6, source_size=SMALL, dict_size=size, **_FRAME)
        _local.short = zstandard.ZstdCompressor(dict_data=dictionary, compression_params=parameters)
    found: zstandard.ZstdCompressor = _local.short
    return found


def _reader() -> zstandard.ZstdDecompressor:
    if not hasattr(_local, "reader"):
        # What was compressed without the dictionary is read with it as well: nothing in it leads there.
        _local.reader = zstandard.ZstdDecompressor(dict_data=_dictionary(), format=zstandard.FORMAT_ZSTD1_MAGICLESS)
    found: zstandard.ZstdDecompressor = _local.reader
    return found


@cache
def _dictionary() -> zstandard.ZstdCompressionDict:
    """Return what states look like. It is part of the schema: what was written with one cannot be read with another."""
    text = files("upcall.storage").joinpath("dictionary.txt").read_bytes()
    return zstandard.ZstdCompressionDict(text, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
