"""The user's documents: exactly the files and folders that were named."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count, islice
from pathlib import Path
from typing import TypeVar

from upcall.errors import ConfigurationError
from upcall.lazy_pattern import LazyPattern
from upcall.prompts.contexts import Document
from upcall.research.sources.base import Hit, Passage
from upcall.research.sources.index import UNSPACED, DamagedIndex, DocumentIndex, IndexHit, Known
from upcall.research.sources.passages import TextPart, take_passage
from upcall.research.sources.readers import SUFFIXES, NotReadable, Text
from upcall.text import replace_surrogates
from upcall.trees import MAX_DEPTH, MAX_NAME_BYTES, MAX_PLACE_BYTES, walk_tree
from upcall.words import SEARCH, cut_to_stem

T = TypeVar("T")

DOCUMENTS = "documents"
"""The id of the user's documents as a source."""

MAX_TERMS = 32
CANDIDATES = 200
CLOSE = 25
"""The maximum distance in words of terms that count as close together."""

HITS_PER_DOCUMENT = 3
"""How many hits of one document a search returns while others have any."""

MAX_LISTED = 50
"""How many documents a prompt names, each with its summary."""

LIST_TIMEOUT_S = 3.0
"""How long reading the listed documents may take if the index does not know them yet."""

MAX_NAMED = 10
MAX_NAME_CHARS = 300
SAME = 0.7
"""The share of equal word triples from which one of two passages stands for both."""

_NO_SPACES = LazyPattern(f"{UNSPACED}+")


class Documents:
    """The documents under `paths`: files by name, and folders with all their contents at any depth.

    Hidden files and folders are skipped, and so are links that lead out of a folder. The index is kept in the user's
    cache folder, or in `index`. Unreadable files are named with the results.

    Raises:
        ConfigurationError: a path does not exist, or names a file of an unsupported kind.
    """

    id = DOCUMENTS
    description = "the user's documents"

    def __init__(self, paths: Sequence[str | Path], index: Path | None = None) -> None:
        self.paths = [Path(path).expanduser().absolute() for path in paths]
        for path in self.paths:
            _refuse_unusable(path)
        self._index_folder = index
        self._opened_index: DocumentIndex | None = None
        self._look()

    @property
    def names(self) -> list[str]:
        """The names of all documents, as `read` takes them."""
        return list(self._files)

    def list_first(self) -> list[Document]:
        """List the first documents with their summaries; if there are more, the last entry says how many."""
        if not self._files:
            return []
        files = dict(islice(self._files.items(), MAX_LISTED))

        def list_known() -> list[Document]:
            self._index.refresh(files.values(), all_files=False, seconds=LIST_TIMEOUT_S)
            read = self._index.list_known()
            return [Document(name, _about(read[path]) if path in read else "") for name, path in files.items()]

        listed = self._retry_anew(list_known)
        if more := len(self._files) - len(files):
            listed.append(Document(f"... and {more} more documents", "search_documents finds what is in them"))
        return listed

    def problem(self) -> str | None:
        """Return None: files need neither a network nor a key."""
        return None

    async def search(self, query: str, limit: int = 10) -> Sequence[Hit]:
        """Find the best passages for the words of a query, of any form: near-duplicates are one hit."""
        terms = choose_terms(query)
        if not terms:
            raise ValueError("Give at least one word to look for.")
        given_up = threading.Event()
        try:
            return await asyncio.to_thread(self._retry_anew, lambda: self._search(terms, limit, given_up))
        except asyncio.CancelledError:
            given_up.set()  # A thread cannot be cancelled, and the program would wait until it has indexed the rest.
            raise

    async def read(self, ref: str, start: int = 1) -> Passage:
        """Read the document of that name, from a line, page, paragraph or row on."""
        return await asyncio.to_thread(self._retry_anew, lambda: self._passage(ref, start))

    async def remarks(self) -> str:
        """Return in one line how many documents there are, and which are unreadable."""
        return await asyncio.to_thread(self._retry_anew, self._remarks)

    def _search(self, terms: list[str], limit: int, given_up: threading.Event) -> list[Hit]:
        self._look()
        self._index.refresh(self._files.values(), given_up=given_up)
        names = {path: name for name, path in self._files.items()}
        found = self._index.search(terms, CANDIDATES, HITS_PER_DOCUMENT)
        there = [each for each in found if any(path in names for path in each.paths)]
        there = _spread(sorted(there, key=lambda each: -each.score * _closeness(terms, each.part)))
        return [_hit(each, names, also) for each, also in _merge_alike(there[: 5 * limit], names, limit)]

    def _passage(self, ref: str, start: int) -> Passage:
        if ref not in self._files:
            self._look()
        path = self._files.get(ref)
        if path is None:
            raise ValueError(f"There is no document {ref!r}. {self._some_names()}")
        self._index.refresh([path], all_files=False)
        if path in self._index.unread:
            raise ValueError(f"{ref} {self._index.unread[path]}.")
        try:
            text = self._index.text(path)
        except NotReadable as problem:
            raise ValueError(f"{ref} cannot be read: it {problem}.") from problem
        return take_passage(DOCUMENTS, ref, text, start)

    def _remarks(self) -> str:
        known = self._index.list_known()
        problems = {name: known[path].problem for name, path in self._files.items() if path in known}
        problems |= {name: self._index.unread.get(path) for name, path in self._files.items() if path not in known}
        unread = [f"{name} ({why})" for name, why in chain(problems.items(), self._outside.items()) if why]
        more = f" and {len(unread) - MAX_NAMED} more" if len(unread) > MAX_NAMED else ""
        notice = f" Not readable: {', '.join(unread[:MAX_NAMED])}{more}." if unread else ""
        return f"{len(self._files)} documents.{notice}"

    def _some_names(self) -> str:
        names = self.names
        more = f", and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
        return f"Documents: {', '.join(names[:MAX_LISTED]) or 'none'}{more}."

    @property
    def _index(self) -> DocumentIndex:
        if self._opened_index is None:
            self._opened_index = DocumentIndex(self.paths, self._index_folder)
        return self._opened_index

    def _retry_anew(self, work: Callable[[], T]) -> T:
        """Repeat the work with a new index if the old one turns out to be damaged."""
        try:
            return work()
        except DamagedIndex:
            return work()

    def _look(self) -> None:
        """Update the list of files."""
        self._files, self._outside = _collect(self.paths)


def choose_terms(query: str) -> list[str]:
    """Choose the search terms: each word of a query once, without the most common ones if there are others.

    In a language without spaces, each pair of adjacent characters is a term; a word in which case hides letters is
    included in both forms.
    """
    words = list(dict.fromkeys(SEARCH.cut(query)))
    significant = [word for word in words if word.casefold() not in SEARCH.stop_words] or words
    terms = (form for word in significant for piece in _split(word) for form in (piece.lower(), piece.casefold()))
    return list(islice(dict.fromkeys(terms), MAX_TERMS))


def _split(word: str) -> Iterator[str]:
    end = 0
    for run in _NO_SPACES.finditer(word):
        if run.start() > end:
            yield word[end : run.start()]
        yield from (run[0][at : at + 2] for at in range(max(1, len(run[0]) - 1)))
        end = run.end()
    if end < len(word):
        yield word[end:]


# -- hits and passages ------------------------------------------------------------------------------------------------


def _closeness(terms: Sequence[str], part: TextPart) -> float:
    """Rate from 1, with the terms far apart, to 2, with all close together: BM25 ignores this."""
    # FTS5 found the words by their Porter stems, which are unavailable here: without its last letters, a term is also
    # the beginning of its other forms.
    starts = tuple(map(cut_to_stem, terms))
    if len(starts) < 2:
        return 1.0
    words = SEARCH.split(f"{part.heading} {part.text}")
    if not part.text.isascii():
        words = [piece for word in words for piece in _split(word)]
    at = [
        (number, start)
        for number, word in enumerate(words)
        if word.startswith(starts)
        for start in starts
        if word.startswith(start)
    ]
    best = 0
    for first, (number, _) in enumerate(at):
        near = {term for other, term in at[first : first + 4 * len(starts)] if other - number < CLOSE}
        best = max(best, len(near))
    return 1.0 + max(0, best - 1) / (len(starts) - 1)


def _spread(found: Sequence[IndexHit]) -> list[IndexHit]:
    """Move the hits of a document with enough better ones to the end."""
    number = Counter[Path]()
    crowding: list[bool] = []
    for each in found:
        number[each.paths[0]] += 1
        crowding.append(number[each.paths[0]] > HITS_PER_DOCUMENT)
    return [each for _, each in sorted(zip(crowding, found, strict=True), key=lambda pair: pair[0])]


def _merge_alike(found: Sequence[IndexHit], names: Mapping[Path, str], limit: int) -> list[tuple[IndexHit, list[str]]]:
    """Merge hits: each gets the names and places of those that say nearly the same."""
    kept: list[tuple[IndexHit, list[str], frozenset[object]]] = []
    for each in found:
        rows = _rows_of_words(each.part.text)
        twin = next((also for _, also, other in kept if _alike(rows, other)), None)
        if twin is not None:
            twin.append(_where(each, names))
        elif len(kept) < limit:
            copies = [replace(each, paths=(path,)) for path in each.paths if path in names][1:]
            kept.append((each, [_where(copy, names) for copy in copies], rows))
    return [(each, also[:MAX_NAMED]) for each, also, _ in kept]


def _rows_of_words(text: str) -> frozenset[object]:
    words = SEARCH.split(text)
    return frozenset(zip(words, words[1:], words[2:], strict=False)) or frozenset(words)


def _alike(one: frozenset[object], other: frozenset[object]) -> bool:
    return len(one & other) >= SAME * max(1, len(one | other))


def _where(found: IndexHit, names: Mapping[Path, str]) -> str:
    name = next(names[path] for path in found.paths if path in names)
    return f"{name}, {Text(found.unit, []).place(found.part.first, found.part.last)}"


def _hit(found: IndexHit, names: Mapping[Path, str], also: Sequence[str]) -> Hit:
    name = next(names[path] for path in found.paths if path in names)
    part: TextPart = found.part
    return Hit(
        source=DOCUMENTS,
        ref=name,
        title=name,
        text=part.text,
        place=Text(found.unit, []).place(part.first, part.last),
        start=part.first,
        score=found.score,
        also=tuple(also),
    )


def _about(known: Known) -> str:
    return f"cannot be read: it {known.problem}" if known.problem else known.summary


# -- the files --------------------------------------------------------------------------------------------------------


def _refuse_unusable(path: Path) -> None:
    if path.is_dir():
        return
    if not path.is_file():
        raise ConfigurationError(f"Document {path} does not exist. Name files or folders that do.")
    if path.suffix.lower() not in SUFFIXES:
        readable = ", ".join(sorted(SUFFIXES))
        raise ConfigurationError(f"Document {path} cannot be read as text. Readable: {readable}.")
    if not os.access(path, os.R_OK):
        raise ConfigurationError(f"Document {path} cannot be read: permission denied.")


def _collect(paths: Sequence[Path]) -> tuple[dict[str, Path], dict[str, str]]:
    """Collect the documents by name, and the links among them that lead elsewhere.

    A file that is named twice, or by itself and through a folder, is one document.
    """
    found: dict[str, Path] = {}
    outside: dict[str, str] = {}
    real: set[str] = set()
    for path in paths:
        root = os.path.realpath(path) if path.is_dir() else None
        for name, file, at in _files_in(root, outside) if root else [(path.name, str(path), os.path.realpath(path))]:
            if at not in real:
                real.add(at)
                found[_free_name(_one_line(name), path if root else path.parent, found)] = Path(file)
    return found, outside


def _files_in(root: str, outside: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """List the documents in a folder, sorted: the name within it, the path, and the real path.

    The real path is only resolved for links, since that is slow.
    """
    files = sorted(_walk(root, outside), key=lambda each: each[0].split("/"))
    for name, entry in files:
        at = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
        if at == entry.path or at.startswith(os.path.join(root, "")):
            yield name, entry.path, at
        else:
            outside[_one_line(name)] = "is a link that leads out of the folder"


def _walk(folder: str, outside: dict[str, str]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    def enters(entry: os.DirEntry[str]) -> bool:
        if entry.name.startswith("."):
            return False
        within = os.path.relpath(entry.path, folder)
        if within.count(os.sep) + 1 < MAX_DEPTH and len(os.fsencode(within)) < MAX_PLACE_BYTES - MAX_NAME_BYTES:
            return True
        outside[_one_line(within)] = "is too deep in other folders"
        return False

    for name, entry in walk_tree(folder, enters):  # An unreadable folder contributes nothing.
        known = os.path.splitext(entry.name)[1].lower() in SUFFIXES and not entry.name.startswith(".")
        if known and not entry.is_dir(follow_symlinks=False) and _is_file(entry):
            yield name, entry


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # A link to itself.
        return False


def _one_line(name: str) -> str:
    """Return a name that can be shown and passed back, without unprintable characters."""
    if name.isascii() and name.isprintable():
        return name[-MAX_NAME_CHARS:]
    shown = "".join(char if char.isprintable() else "?" for char in replace_surrogates(name))
    return shown[-MAX_NAME_CHARS:]


def _free_name(name: str, folder: Path, taken: Mapping[str, Path]) -> str:
    if name not in taken:
        return name
    names = chain((f"{_one_line(folder.name)}/{name}",), (f"{name} ({number})" for number in count(2)))
    return next(each for each in names if each not in taken)
