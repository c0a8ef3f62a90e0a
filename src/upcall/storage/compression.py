"""Compression, with a checksum: of short texts by a dictionary of common ones, of older checkpoints by a prefix.

A dictionary has a number, which stands in what it compressed: one that was ever released is never changed and stays,
the newest is written with.

A text that resembles another one - a checkpoint and its successor - takes almost no space with that other one as its
prefix: common parts are references. It can then be read only with the same prefix.
"""

from __future__ import annotations

import threading
from base64 import b85decode
from functools import cache
from importlib.resources import files

import zstandard

from upcall import identity
from upcall.errors import NewerFormat, SchemaMismatch

SHORT = 64_000
"""From this many bytes on, speed counts for more than the last few percent, and the dictionary for nothing."""
_SMALL = 4_095
"""Up to this many bytes one compressor serves all texts. There are some twenty a run, and it begins each with cold
tables: small ones and a simple search take half the time, for one byte in a hundred."""
_MAX_WINDOW_LOG = 27
_MOST_NEWER = 16
"""Dictionaries are numbered one after the other: a number further on is damage, and no later version's."""


class Damaged(Exception):
    """Stored data is not what was written: it cannot be decompressed, its checksum differs, or a part is missing."""

    def explain(self, what: str, advice: str) -> SchemaMismatch:
        """Return the error that says of what it is, and what to do."""
        return SchemaMismatch(f"{what} is damaged: {self}. {advice}")


class UnknownDictionary(Damaged):
    """Stored data was compressed with a dictionary that this version of upcall does not have."""

    def __init__(self, number: int) -> None:
        super().__init__(f"it was compressed with dictionary {number}, and the newest one here is {max(TABLES)}")

    def explain(self, what: str, advice: str) -> SchemaMismatch:
        """See `Damaged`."""
        return NewerFormat(f"{what} needs a later version of upcall than {identity.version()}: {self}.")


def encode(text: bytes, prefix: bytes | None = None) -> bytes:
    """Compress a text, with a similar text as prefix if there is one."""
    if prefix is None and len(text) < SHORT:
        return _short(len(text)).compress(text)
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
    """Return the text that `encode` compressed, given the same prefix.

    Raises:
        Damaged: it is not what was written, or the prefix differs.
    """
    try:
        if prefix is None:
            return _local.find_reader(_find_number(stored)).decompress(stored)
        raw = zstandard.ZstdCompressionDict(prefix, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        return zstandard.ZstdDecompressor(dict_data=raw, format=zstandard.FORMAT_ZSTD1_MAGICLESS).decompress(stored)
    except (zstandard.ZstdError, MemoryError) as error:
        raise Damaged("it cannot be decompressed") from error


def _find_number(stored: bytes) -> int:
    """Return the number of the dictionary that a text was compressed with; what needs none is read with any.

    Raises:
        UnknownDictionary: it is not among those here.
    """
    number = zstandard.get_frame_parameters(stored, format=zstandard.FORMAT_ZSTD1_MAGICLESS).dict_id
    if number > max(TABLES) + _MOST_NEWER:
        raise Damaged("it cannot be decompressed")
    if number and number not in TABLES:
        raise UnknownDictionary(number)
    return number or max(TABLES)


def measure(stored: bytes) -> int:
    """Return the length in bytes of the text that `encode` compressed; the first 18 bytes are enough.

    Raises:
        Damaged: it does not begin like a result of `encode`.
    """
    try:
        return zstandard.get_frame_parameters(stored, format=zstandard.FORMAT_ZSTD1_MAGICLESS).content_size
    except zstandard.ZstdError as error:
        raise Damaged("it cannot be decompressed") from error


_FRAME = {
    "format": zstandard.FORMAT_ZSTD1_MAGICLESS,
    "write_checksum": 1,
    "write_dict_id": 1,
    "write_content_size": 1,
}


class _Local(threading.local):
    """The compressors of short texts, by text size, and what reads them, by dictionary; two threads must not use one
    at once."""

    def __init__(self) -> None:
        self.short: dict[tuple[int, int], zstandard.ZstdCompressor] = {}
        self.readers: dict[int, zstandard.ZstdDecompressor] = {}

    def find_reader(self, number: int) -> zstandard.ZstdDecompressor:
        """Return what reads the texts of a dictionary."""
        if number not in self.readers:
            self.readers[number] = zstandard.ZstdDecompressor(
                dict_data=_load_dictionary(number), format=zstandard.FORMAT_ZSTD1_MAGICLESS
            )
        return self.readers[number]


_local = _Local()


def _short(size: int) -> zstandard.ZstdCompressor:
    """Return the compressor for texts of about this size. Its window has to reach from their end to the beginning of
    the dictionary."""
    about, newest = 1 << max(size, _SMALL).bit_length(), max(TABLES)
    if (newest, about) not in _local.short:
        dictionary = _load_dictionary(newest)
        search: dict[str, int] = {"strategy": zstandard.STRATEGY_LAZY2, "search_log": 4}
        if size <= _SMALL:
            search = {"strategy": zstandard.STRATEGY_GREEDY, "search_log": 5, "hash_log": 13, "chain_log": 13}
        parameters = zstandard.ZstdCompressionParameters.from_level(
            6, source_size=about, dict_size=len(dictionary.as_bytes()), **search, **_FRAME
        )
        _local.short[newest, about] = zstandard.ZstdCompressor(dict_data=dictionary, compression_params=parameters)
    return _local.short[newest, about]


@cache
def _load_dictionary(number: int) -> zstandard.ZstdCompressionDict:
    """Return the dictionary of a number: its tables, and a sample of typical states."""
    text = files("upcall.storage").joinpath("dictionaries", f"{number}.txt").read_bytes()
    return zstandard.ZstdCompressionDict(b85decode(TABLES[number]) + text, dict_type=zstandard.DICT_TYPE_FULLDICT)


TABLES = {
    1: (
        "H>5D^0RR91I}orUX*w_r!!QiPFbu=MQKS9#+uerjUR$fXEs<>nnW51SWDledsKzUxicTV|n~2bou5JPWAppSf0|5XO7zu_$W8!>t"
        "4FCinOALv|L<2*DLIlL((0D8khJv6#AS4cgf#CoQ24W1!!YIyS&Hw-aRM3U9iA)?#f*b~P$Vg-iCjtNf00031000C4000O8000"
    ),
}
"""How often each byte and each length comes in what is stored beside the text: a short text brings no tables of its
own. By dictionary; `python benchmarks/dictionary.py` makes them, with the dictionary's number in them."""
