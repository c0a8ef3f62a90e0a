"""The index of a set of documents: SQLite's FTS5, kept between runs, and updated from the contents of the files.

It is only a cache: it can be deleted at any time, and one that is damaged or of another version is rebuilt. The text of
a file is stored in one transaction, so that a kill keeps what was done until then.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import tempfile
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path

from upcall.autogen.scope import report_progress
from upcall.lazy_pattern import LazyPattern
from upcall.research.sources.base import SourceUnavailable
from upcall.research.sources.isolated import FILE_TIMEOUT_S, IsolatedReader
from upcall.research.sources.passages import TextPart, cut_into_parts
from upcall.research.sources.readers import INSTALL, MAX_FILE_BYTES, NotReadable, Text, is_isolated, read_file

VERSION = 2
"""The version of the tables, the readers and the splitting of texts: an index of another version is rebuilt."""

FILES_PER_TRANSACTION = 64
CHARS_PER_TRANSACTION = 4_000_000
TRANSACTION_TIME_S = 1.0
REPORT_INTERVAL_S = 1.0
WAIT_TIMEOUT_S = 30.0
"""How long to wait for another process that is writing."""

CANDIDATES = 1_000
"""From how many of the best passages the ones to show are chosen."""

NS_RACY = 2_000_000_000
"""A file changed this shortly before it was read may change again without a new modification time."""

RETENTION_DAYS = 90
"""An index unused for this long is deleted."""

_TABLES = """
CREATE TABLE contents (
    id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, unit TEXT, title TEXT, summary TEXT, problem TEXT,
    units BLOB, first_passage INTEGER, last_passage INTEGER
);
CREATE TABLE files (
    path BLOB PRIMARY KEY, size INTEGER NOT NULL, mtime INTEGER NOT NULL, read_at INTEGER NOT NULL,
    content INTEGER NOT NULL REFERENCES contents
) WITHOUT ROWID;
CREATE INDEX files_content ON files(content);
CREATE VIRTUAL TABLE passages USING fts5(
    title, body, content UNINDEXED, first UNINDEXED, last UNINDEXED, tokenize = 'porter unicode61 remove_diacritics 2'
);
INSERT INTO passages(passages, rank) VALUES ('rank', 'bm25(2.0, 1.0)');
"""

_UNUSED = "SELECT id, first_passage, last_passage FROM contents WHERE id NOT IN (SELECT content FROM files)"

UNSPACED = "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
"""A character of a language without spaces between words, as a pattern."""

_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_NO_SPACES = LazyPattern(f"({UNSPACED})")
_APART = "\u200b"
"""Put between the characters of languages without spaces, so that each is a word to FTS5; it is invisible."""


@dataclass(frozen=True)
class Known:
    """What the index knows of a file: its subject, or why it cannot be read."""

    summary: str
    problem: str | None = None


@dataclass(frozen=True)
class IndexHit:
    """A passage found by a search, better if its score is higher, and the files that contain it."""

    paths: tuple[Path, ...]
    part: TextPart
    unit: str
    score: float


class DocumentIndex:
    """The index of the documents under some paths, in a file of a folder (by default one in the user's cache).

    Every method may be called from any thread, and several processes may use the same index.
    """

    def __init__(self, paths: Iterable[Path], folder: Path | None = None) -> None:
        named = "\0".join(sorted(os.path.realpath(path) for path in paths))
        name = blake2b(os.fsencode(named), digest_size=12).hexdigest()
        self.file = _usable(folder) / f"{name}.db"
        with suppress(OSError):
            os.utime(self.file)  # It is in use.
        self._writing = threading.Lock()
        self._tried_again = False
        self.unread: dict[Path, str] = {}
        """The files that could not be opened at the last look, and why."""

    # -- bringing it up to date ---------------------------------------------------------------------------------------

    def refresh(
        self,
        files: Iterable[Path],
        *,
        all_files: bool = True,
        seconds: float | None = None,
        given_up: threading.Event | None = None,
    ) -> int:
        """Read new and changed files, and count them; files outside of `all_files` leave the index.

        It stops after `seconds`, if given, or once it is `given_up`; the rest is read the next time.
        """
        until = None if seconds is None else time.monotonic() + seconds
        with self._writing, self._delete_damaged():
            return self._refresh(list(files), all_files, until, given_up or threading.Event())

    def _refresh(self, files: list[Path], all_files: bool, until: float | None, given_up: threading.Event) -> int:
        with self._open() as db:
            self._try_again(db)
            known = {row[0]: row[1:] for row in db.execute("SELECT path, size, mtime, read_at FROM files")}
            stale: list[Path] = []
            self.unread = {}
            for path in files:
                with self._note_unread(path):
                    now, was = path.stat(), known.get(os.fsencode(path))
                    same = was is not None and was[:2] == (now.st_size, now.st_mtime_ns)
                    if not same or (was is not None and was[2] - was[1] < NS_RACY):
                        stale.append(path)
            if all_files and (gone := known.keys() - {os.fsencode(path) for path in files} - set(self._list_closed())):
                with _transaction(db):
                    db.executemany("DELETE FROM files WHERE path = ?", ((path,) for path in gone))
            read = self._read(db, stale, until, given_up)
            if db.execute(_UNUSED).fetchone():
                with _transaction(db):
                    _drop_unused(db)
        return read

    def _list_closed(self) -> Iterator[bytes]:
        """List the existing files that cannot be opened now: what is known about them stays."""
        return (os.fsencode(path) for path in self.unread if path.exists())

    def _read(self, db: sqlite3.Connection, files: list[Path], until: float | None, given_up: threading.Event) -> int:
        batch: list[_ReadFile] = []
        chars = 0
        read, done, reported_at, written = 0, 0, time.monotonic(), time.monotonic()
        with IsolatedReader() as reader:
            for number, path in enumerate(files, start=1):
                left = None if until is None else until - time.monotonic()
                if given_up.is_set() or (left is not None and left <= 0):
                    break
                with self._note_unread(path), suppress(TimeoutError):
                    each = _read(db, path, reader, left)
                    batch.append(each)
                    chars += each.chars
                    read += each.text is not None
                done = number
                now = time.monotonic()
                if (
                    len(batch) >= FILES_PER_TRANSACTION
                    or chars > CHARS_PER_TRANSACTION
                    or (now - written > TRANSACTION_TIME_S)
                ):
                    _store(db, batch)
                    batch, chars, written = [], 0, now
                if now - reported_at > REPORT_INTERVAL_S:
                    report_progress("files indexed", number, len(files))
                    reported_at = now
            _store(db, batch)
        if read:
            report_progress("files indexed", done, len(files))
        return read

    def _try_again(self, db: sqlite3.Connection) -> None:
        """Read what could not be read without a package, once the package is installed."""
        if not self._tried_again and all(map(find_spec, ("pypdf", "docx"))):
            with _transaction(db):
                lacking = "SELECT id FROM contents WHERE problem = ?"
                db.execute(f"DELETE FROM files WHERE content IN ({lacking})", (INSTALL,))
        self._tried_again = True

    @contextmanager
    def _note_unread(self, path: Path) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise
        except OSError as error:
            self.unread[path] = f"cannot be opened ({error.strerror or type(error).__name__})"

    # -- what it knows ------------------------------------------------------------------------------------------------

    def list_known(self) -> dict[Path, Known]:
        """Return what it knows of each file."""
        rows = "SELECT path, summary, problem FROM files JOIN contents ON contents.id = files.content"
        with self._delete_damaged(), self._open() as db:
            return {Path(os.fsdecode(path)): Known(summary or "", why) for path, summary, why in db.execute(rows)}

    def text(self, path: Path) -> Text:
        """Return the text of a file.

        Raises:
            NotReadable: it could not be read, or has left the index meanwhile.
        """
        row = (
            "SELECT unit, units, title, problem FROM files JOIN contents ON contents.id = files.content WHERE path = ?"
        )
        with self._delete_damaged(), self._open() as db:
            found = db.execute(row, (os.fsencode(path),)).fetchone()
        if found is None:  # Another thread or process did not see the file in the same folder.
            raise NotReadable("is not in the index any more; read it again")
        unit, units, title, problem = found
        if problem is not None:
            raise NotReadable(problem)
        return Text(unit, json.loads(zlib.decompress(units)), title)

    def search(self, terms: Iterable[str], limit: int, of_one: int) -> list[IndexHit]:
        """Find the passages that contain some of the terms, best first. A term is a word, or several adjacent ones.

        Passages of a document with `of_one` better ones come last.
        """
        query = " OR ".join(f'"{_apart(term).replace(chr(34), " ")}"' for term in terms)
        # Only for a query that asks for nothing else does FTS5 sort by rank while reading and keep just the best: so
        # the other tables are joined to its result (https://www.sqlite.org/fts5.html, section 5.1).
        best = "SELECT rowid, rank AS score FROM passages WHERE passages MATCH ? ORDER BY rank LIMIT ?"
        numbered = (
            "SELECT best.rowid, score, row_number() OVER (PARTITION BY content ORDER BY score) AS number "
            f"FROM ({best}) AS best JOIN passages ON passages.rowid = best.rowid"
        )
        rows = (
            "SELECT first, last, body, passages.title, unit, score, "
            "(SELECT json_group_array(hex(path)) FROM (SELECT path FROM files WHERE content = contents.id ORDER BY 1)) "
            f"FROM ({numbered}) AS best JOIN passages ON passages.rowid = best.rowid "
            "JOIN contents ON contents.id = passages.content ORDER BY number > ?, score LIMIT ?"
        )
        with self._delete_damaged(), self._open() as db:
            found = db.execute(rows, (query, CANDIDATES, of_one, limit)).fetchall()
        return [
            IndexHit(
                paths=tuple(Path(os.fsdecode(bytes.fromhex(path))) for path in json.loads(paths)),
                part=TextPart(first, last, body.replace(_APART, ""), title.replace(_APART, "")),
                unit=unit,
                score=-score,
            )
            for first, last, body, title, unit, score, paths in found
        ]

    # -- the file -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self.file, timeout=WAIT_TIMEOUT_S, isolation_level=None)
        try:
            if _version(db) != VERSION:
                with suppress(sqlite3.OperationalError):  # Another process is doing it; the file keeps it.
                    db.execute("PRAGMA journal_mode = WAL")
                _make_tables(db)
            db.execute("PRAGMA synchronous = NORMAL")  # What a power cut loses is read again.
            yield db
        finally:
            db.close()

    @contextmanager
    def _delete_damaged(self) -> Iterator[None]:
        """Delete a damaged index, and report it: the next call makes a new one."""
        try:
            yield
        except sqlite3.Error as error:
            if (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF not in _CORRUPT:
                raise SourceUnavailable(f"The index of the documents, {self.file}, cannot be used: {error}.") from error
            _delete(self.file)
            raise DamagedIndex from error


class DamagedIndex(SourceUnavailable):
    """The index was damaged and has been deleted."""

    def __init__(self) -> None:
        super().__init__("The index of the documents was damaged and is being rebuilt. Try again.")


@dataclass(frozen=True)
class _ReadFile:
    """What to store of a file. If its content is in the index already, there is neither text nor problem."""

    path: Path
    size: int
    mtime: int
    read_at: int
    digest: bytes
    text: Text | None = None
    problem: str | None = None

    @property
    def chars(self) -> int:
        return sum(map(len, self.text.units)) if self.text else 0


def _read(db: sqlite3.Connection, path: Path, reader: IsolatedReader, seconds: float | None) -> _ReadFile:
    now, read_at = path.stat(), time.time_ns()
    if now.st_size > MAX_FILE_BYTES:  # Not read to the end, not even for its digest.
        digest = blake2b(f"{path.name}\0{now.st_size}\0{now.st_mtime_ns}".encode(errors="replace")).digest()
    else:
        digest = _digest(path)
    file = (path, now.st_size, now.st_mtime_ns, read_at, digest)
    if db.execute("SELECT 1 FROM contents WHERE digest = ?", (digest,)).fetchone():
        return _ReadFile(*file)
    try:
        if is_isolated(path) and now.st_size:
            allowed = None if seconds is None or seconds > FILE_TIMEOUT_S else seconds
            return _ReadFile(*file, text=reader.read(path, allowed))
        return _ReadFile(*file, text=read_file(path))
    except NotReadable as problem:
        return _ReadFile(*file, problem=str(problem))


def _digest(path: Path) -> bytes:
    """Hash the content of a file together with its name, which is searched too."""
    digest = blake2b(path.name.encode(errors="replace") + b"\0", digest_size=20)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.digest()


def _store(db: sqlite3.Connection, batch: list[_ReadFile]) -> None:
    if not batch:
        return
    with _transaction(db):
        for each in batch:
            row = (os.fsencode(each.path), each.size, each.mtime, each.read_at, _content(db, each))
            if row[-1] is not None:
                db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", row)


def _content(db: sqlite3.Connection, read: _ReadFile) -> int | None:
    """Store what was read unless it exists, and return its id; None if another process has dropped it since."""
    there = db.execute("SELECT id FROM contents WHERE digest = ?", (read.digest,)).fetchone()
    if there is not None:
        return int(there[0])
    if read.text is None:
        if read.problem is None:
            return None
        added = db.execute("INSERT INTO contents(digest, problem) VALUES (?, ?)", (read.digest, read.problem))
        return added.lastrowid
    text = read.text
    units = zlib.compress(json.dumps(text.units).encode(), 1)
    added = db.execute(
        "INSERT INTO contents(digest, unit, title, summary, units) VALUES (?, ?, ?, ?, ?)",
        (read.digest, text.unit, text.title, text.summary(), units),
    )
    (last,) = db.execute("SELECT coalesce(max(rowid), 0) FROM passages").fetchone()
    about = f"{' '.join(re.split(r'[^0-9A-Za-z]+', read.path.stem))} {text.title}".strip()
    rows = [
        (last + number, _apart(f"{about} {part.heading}"), _apart(part.text), added.lastrowid, part.first, part.last)
        for number, part in enumerate(cut_into_parts(text), start=1)
    ]
    db.executemany("INSERT INTO passages(rowid, title, body, content, first, last) VALUES (?, ?, ?, ?, ?, ?)", rows)
    span = (last + 1, last + len(rows), added.lastrowid)
    db.execute("UPDATE contents SET first_passage = ?, last_passage = ? WHERE id = ?", span)
    return added.lastrowid


def _drop_unused(db: sqlite3.Connection) -> None:
    """Delete contents that no file has any more."""
    for content, first, last in db.execute(_UNUSED).fetchall():
        if first is not None:
            db.execute("DELETE FROM passages WHERE rowid BETWEEN ? AND ?", (first, last))
        db.execute("DELETE FROM contents WHERE id = ?", (content,))


def _apart(text: str) -> str:
    """Write a text as FTS5 should see it. Half of a surrogate pair (a broken name) cannot be stored."""
    if text.isascii():
        return text
    return _NO_SPACES.sub(rf"{_APART}\1{_APART}", text.replace(_APART, "")).encode(errors="replace").decode()


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _make_tables(db: sqlite3.Connection) -> None:
    with _transaction(db):
        if _version(db) == VERSION:  # Another process was faster.
            return
        for table in ("passages", "files", "contents"):
            db.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in _TABLES.split(";\n"):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {VERSION}")


def _usable(folder: Path | None) -> Path:
    """Make the folder for the index; a temporary one for the life of the process if that is not writable."""
    if folder is None:
        from platformdirs import user_cache_path

        folder = user_cache_path("upcall", appauthor=False) / "documents"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        return Path(_make_temporary().name)
    _delete_old(folder)
    return folder


@cache
def _make_temporary() -> tempfile.TemporaryDirectory[str]:
    """Make a temporary folder that is deleted with the process."""
    return tempfile.TemporaryDirectory(prefix="upcall-documents-")


def _delete_old(folder: Path) -> None:
    now = time.time()
    for file in folder.glob("*.db"):
        with suppress(OSError):
            last = max(each.stat().st_mtime for each in (file, Path(f"{file}-wal")) if each.exists())
            if now - last > RETENTION_DAYS * 86_400:
                _delete(file)


def _delete(file: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{file}{suffix}").unlink(missing_ok=True)
