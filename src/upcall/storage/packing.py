"""JSON values as small nodes, each stored once under the hash of its content: what is repeated costs a reference.

A value becomes a graph: a message, a long text, a big object is a node of its own, and what is above it holds its hash
(a Merkle tree, as in Git). A long list is cut into groups where the hash of an element says so, and the list of groups
again: two lists that hold the same stretch share its groups wherever it stands in them, and a list that grows by one
element gets a few new nodes, not a copy.

A node is ``codec, number of references, references, text``; the text is JSON with a mark in the place of each
reference, compressed with a dictionary of what AutoGen's and our own states look like.
"""

from __future__ import annotations

import functools
import hashlib
import json
import threading
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import zstandard
from pydantic_core import to_json

from upcall.storage.dictionary import DICTIONARY

HASH_BYTES = 16
SEAL_BYTES = 8

TEXT_MIN = 500
"""From this many characters on a text is a node: it may stand in a message, in a context and in a result."""
ELEMENT_MIN = 640
"""The same for an object in a list: messages, questions, plan steps."""
BRANCH_MIN = 1200
"""The same for any other object. The state of an agent that did nothing is the same at the next pause."""
LIST_MIN = 400
"""A list with less than this is not cut into groups."""
GROUPS_MIN = 200
"""The same for a list of groups: references cannot be compressed."""
FAN_OUT = 4
"""How many elements a group has in the middle."""
WHOLE_MAX = 8_000
"""A value of at most so many bytes is not parted: its parts, compressed one by one, take more than they would save."""
LARGE = 64_000
"""From this many bytes on, speed counts for more than the last few percent."""
SMALL = 4_000
"""What a smaller text has, about."""

_REFERENCE = b'{"$":0}'
_MARKED = b'{"$":'
_PARTED = frozenset((dict, list, tuple, str))
_PLAIN, _ZSTD_1 = 0, 1
"""How a node's text is stored. Another dictionary is another codec: what was written with this one stays readable."""


class DamagedNode(Exception):
    """What is stored is not what was written: its hash does not fit, a part is missing, or it cannot be unpacked."""


class Node(NamedTuple):
    """Some JSON text, and the hashes of the nodes that belong where it has marks, in this order."""

    text: bytes
    references: tuple[bytes, ...]


@dataclass(frozen=True)
class Packed:
    """A value as its root and the other nodes by their hashes. `size` is about what it has as JSON text, in
    bytes; what is repeated counts each time."""

    root: Node
    nodes: Mapping[bytes, Node]
    size: int


def packed(value: Any) -> Packed:
    """The nodes of a plain JSON value; a short one is a single node."""
    text = _dump(value)
    if len(text) <= WHOLE_MAX and _MARKED not in text:
        return Packed(Node(text, ()), {}, len(text))
    packer = _Packer()
    root = packer.shrunk(value)
    return Packed(root, packer.nodes, packer.size)


def unpacked(root: Node, node: Callable[[bytes], Node]) -> Any:
    """The value, where `node` gives the node with a hash.

    Raises:
        DamagedNode: a node is no JSON, or `node` says so.
    """
    return _Unpacker(node).value(root)


@dataclass
class _Packer:
    nodes: dict[bytes, Node] = field(default_factory=dict)
    size: int = 0

    def shrunk(self, value: Any) -> Node:
        """The value with its larger parts taken out. Objects in dicts are walked, those in lists (there are many, and
        most are small) only where they are large: that is what makes it fast."""
        if isinstance(value, dict):
            return self._object(value)
        if isinstance(value, list | tuple):
            return self._list([self._element(each) for each in value])
        if isinstance(value, str) and len(value) >= TEXT_MIN:
            return self._apart(self._leaf(value))
        return self._leaf(value)

    def _leaf(self, value: Any) -> Node:
        text = _dump(value)
        self.size += len(text)
        return Node(text, ())

    def _object(self, value: dict[str, Any]) -> Node:
        parts: list[bytes] = []
        references: list[bytes] = []
        small: dict[str, Any] = {}
        for key, each in value.items():
            kind = type(each)
            if not each or kind not in _PARTED or (kind is str and len(each) < TEXT_MIN):
                small[key] = each  # One call for all that stand together.
                continue
            if small:
                parts.append(self._leaf(small).text[1:-1])
                small = {}
            part = self.shrunk(each)
            if kind is dict and _weight(part) >= BRANCH_MIN:
                part = self._apart(part)
            parts.append(_key(key) + part.text)
            references += part.references
        if small:
            parts.append(self._leaf(small).text[1:-1])
        text = b"{" + b",".join(parts) + b"}"
        if len(value) == 1 and "$" in value:  # Looks like a mark, and is none.
            text = _MARKED + b'{"":' + text.removeprefix(_MARKED) + b"}"
        return Node(text, tuple(references))

    def _element(self, value: Any) -> Node:
        if isinstance(value, dict):
            text = _dump(value)
            if len(text) < TEXT_MIN and _MARKED not in text:
                self.size += len(text)
                return Node(text, ())
            if len(text) > SMALL:
                return self._whole_element(value)
            element = _known.elements.get(text)
            if element is None:
                packer = _Packer()
                element = packer._whole_element(value), packer.nodes
                _known.keep(text, element)
            self.size += len(text)
            self.nodes |= element[1]
            return element[0]
        return self.shrunk(value)

    def _whole_element(self, value: dict[str, Any]) -> Node:
        part = self._object(value)
        return self._apart(part) if _weight(part) >= ELEMENT_MIN else part

    def _list(self, elements: list[Node], least: int = LIST_MIN) -> Node:
        self.size += len(elements)
        if sum(map(_weight, elements)) < least:
            return _joined(elements)
        groups, tail = _grouped(elements)
        if not groups:
            return _joined(elements)
        # Its groups are a list as well, and may be long.
        first = self._list([self._apart(_joined(group)) for group in groups], GROUPS_MIN)
        inner = _joined([first, *tail])
        return Node(_MARKED + inner.text + b"}", inner.references)

    def _apart(self, part: Node) -> Node:
        """A reference to what is now a node of its own."""
        if part.text == _REFERENCE:
            return part
        found = digest(part)
        self.nodes[found] = part
        return Node(_REFERENCE, (found,))


class _Known(threading.local):
    """Elements of lists, as they were packed last, by their text: at each pause a long history is packed again, and all
    but its end has been before."""

    MAX = 4096
    """Of at most `SMALL` characters each."""

    def __init__(self) -> None:
        self.elements: dict[bytes, tuple[Node, dict[bytes, Node]]] = {}

    def keep(self, text: bytes, element: tuple[Node, dict[bytes, Node]]) -> None:
        if len(self.elements) >= self.MAX:
            self.elements.pop(next(iter(self.elements)))
        self.elements[text] = element


_known = _Known()


def _weight(part: Node) -> int:
    return len(part.text) + HASH_BYTES * len(part.references)


def _joined(elements: Iterable[Node]) -> Node:
    elements = list(elements)
    return Node(
        b"[" + b",".join(each.text for each in elements) + b"]",
        tuple(chain.from_iterable(each.references for each in elements)),
    )


def _grouped(elements: list[Node]) -> tuple[list[list[Node]], list[Node]]:
    """The list in groups, and what follows the last one. What an element is decides whether a group ends with it."""
    groups: list[list[Node]] = []
    group: list[Node] = []
    for each in elements:
        group.append(each)
        mark = each.references[-1][-1] if each.references else zlib.crc32(each.text)
        if mark % FAN_OUT == 0 or len(group) >= 8 * FAN_OUT:
            groups.append(group)
            group = []
    return groups, group


class _Unpacker:
    def __init__(self, node: Callable[[bytes], Node]) -> None:
        self._node = node

    def value(self, node: Node) -> Any:
        references = iter(node.references)

        def read(found: dict[str, Any]) -> Any:
            if len(found) != 1 or "$" not in found:
                return found
            content = found["$"]
            if isinstance(content, list):
                return [*chain.from_iterable(content[0]), *content[1:]]
            if isinstance(content, dict):
                return {"$": content[""]}
            return self.value(self._node(next(references)))

        try:
            return json.loads(node.text, object_hook=read)
        except (ValueError, LookupError, TypeError, StopIteration, RecursionError) as error:
            raise DamagedNode("a part of it is no JSON") from error


# -- bytes ------------------------------------------------------------------------------------------------------------


def digest(node: Node) -> bytes:
    """The hash under which a node is stored: of its content, not of how that is compressed."""
    return _hash(node, HASH_BYTES)


def dump(node: Node) -> bytes:
    """The node as it is stored under its hash."""
    raw = node.text
    squeezed = _zstd(len(raw)).compress(raw)
    codec, text = (_ZSTD_1, squeezed) if len(squeezed) < len(raw) else (_PLAIN, raw)
    return bytes([codec]) + _counted(node.references) + text


def load(stored: bytes, expected: bytes) -> Node:
    """The node that was stored under the hash `expected`.

    Raises:
        DamagedNode: it is not that node.
    """
    node = read(stored)
    if digest(node) != expected:
        raise DamagedNode(f"the hash of its part {expected.hex()} does not fit")
    return node


def seal(node: Node) -> bytes:
    """The node as it is stored where nothing names its hash: that stands before it, shortened."""
    return _hash(node, SEAL_BYTES) + dump(node)


def unseal(stored: bytes) -> Node:
    """The node that `seal` wrote.

    Raises:
        DamagedNode: it is not what was written.
    """
    node = read(stored[SEAL_BYTES:])
    if _hash(node, SEAL_BYTES) != stored[:SEAL_BYTES]:
        raise DamagedNode("its hash does not fit")
    return node


def seal_text(text: str) -> bytes:
    """Any text, compressed."""
    return seal(Node(text.encode("utf-8", "surrogatepass"), ()))


def unseal_text(stored: bytes) -> str:
    """The text that `seal_text` wrote.

    Raises:
        DamagedNode: it is not what was written.
    """
    return unseal(stored).text.decode("utf-8", "surrogatepass")


def references(stored: bytes, *, sealed: bool = False) -> list[bytes]:
    """The hashes that a stored node names; its text is not unpacked."""
    return _references(stored[SEAL_BYTES:] if sealed else stored)[0]


def reachable(roots: Iterable[bytes], below: Callable[[Collection[bytes]], Iterable[bytes]]) -> Iterator[list[bytes]]:
    """The nodes under these, level by level, each once. `below` gives the references of some nodes."""
    seen: set[bytes] = set()
    level = list(dict.fromkeys(roots))
    while level:
        seen.update(level)
        yield level
        level = [each for each in dict.fromkeys(below(level)) if each not in seen]


def read(stored: bytes) -> Node:
    """What is stored, its hash not checked.

    Raises:
        DamagedNode: it cannot be unpacked.
    """
    found, at = _references(stored)
    try:
        text = stored[at:]
        if stored[0] == _ZSTD_1:
            text = _unzstd().decompress(text)
        elif stored[0] != _PLAIN:
            raise DamagedNode(f"it is stored in a form ({stored[0]}) that this version of upcall does not know")
    except (zstandard.ZstdError, MemoryError) as error:
        raise DamagedNode("it cannot be unpacked") from error
    return Node(text, tuple(found))


def _references(stored: bytes) -> tuple[list[bytes], int]:
    count, shift, at = 0, 0, 1
    while True:
        if at >= len(stored):
            raise DamagedNode("it ends too early")
        count |= (stored[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not stored[at - 1] & 0x80:
            break
    end = at + count * HASH_BYTES
    if end > len(stored):
        raise DamagedNode("it ends too early")
    return [stored[start : start + HASH_BYTES] for start in range(at, end, HASH_BYTES)], end


def _counted(found: tuple[bytes, ...]) -> bytes:
    count, head = len(found), bytearray()
    while count > 0x7F:
        head.append(count & 0x7F | 0x80)
        count >>= 7
    head.append(count)
    return bytes(head) + b"".join(found)


def _hash(node: Node, size: int) -> bytes:
    return hashlib.blake2b(_counted(node.references) + node.text, digest_size=size).digest()


def _dump(value: Any) -> bytes:
    try:
        return to_json(value, inf_nan_mode="constants")
    except ValueError:  # Half a surrogate pair: no UTF-8, but a text that Python can hold.
        return _odd(value).encode("utf-8", "surrogatepass")


@functools.lru_cache(1024)
def _key(name: str) -> bytes:
    return _dump(name) + b":"


_odd = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

_local = threading.local()
"""Compressors are not to be used by two threads at once."""


def _zstd(size: int) -> zstandard.ZstdCompressor:
    """A compressor for a text of this many bytes. There are two: made for a small text, it is good at nothing else."""
    name = "large" if size >= LARGE else "small"
    if name not in _local.__dict__:
        fit = {"source_size": SMALL, "dict_size": len(DICTIONARY)} if size < LARGE else {}
        parameters = zstandard.ZstdCompressionParameters.from_level(
            3 if size >= LARGE else 6,
            **fit,
            format=zstandard.FORMAT_ZSTD1_MAGICLESS,
            write_checksum=0,
            write_dict_id=0,
            write_content_size=1,
        )
        setattr(_local, name, zstandard.ZstdCompressor(dict_data=_dictionary(), compression_params=parameters))
    found: zstandard.ZstdCompressor = getattr(_local, name)
    return found


def _unzstd() -> zstandard.ZstdDecompressor:
    if not hasattr(_local, "unzstd"):
        _local.unzstd = zstandard.ZstdDecompressor(dict_data=_dictionary(), format=zstandard.FORMAT_ZSTD1_MAGICLESS)
    found: zstandard.ZstdDecompressor = _local.unzstd
    return found


def _dictionary() -> zstandard.ZstdCompressionDict:
    return zstandard.ZstdCompressionDict(DICTIONARY, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
