"""Files as text: each is a list of units (lines, pages, paragraphs, rows) that people can name and find again.

A reader sees files of strangers. It has limits of its own, and any format beyond plain text is read in another process
(`upcall.research.sources.isolated`), since a file may make its reader run forever, use up all memory, or crash.
"""

from __future__ import annotations

import csv
import html
import io
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import islice
from pathlib import Path
from typing import Any

from upcall.lazy_pattern import LazyPattern
from upcall.text import find_encoding

MAX_FILE_BYTES = 100_000_000
MAX_TEXT_CHARS = 20_000_000
"""How much of one document is kept; a longer one is read up to there."""

MAX_PAGES = 5_000
MAX_UNPACKED_BYTES = 300_000_000
"""The maximum size of the contents of a DOCX file."""

MAX_SUMMARY_CHARS = 120
INSTALL = "needs: pip install '.[research]' in a checkout of upcall"

_WORDS = LazyPattern(r"\w{2,}")
_CONTROL = LazyPattern("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_BLANK = LazyPattern(r"[ \t\x0b\x0c\r\xa0]+")


class NotReadable(Exception):
    """Why a file cannot be read, in a few words that follow its name."""


@dataclass(frozen=True)
class Text:
    """A document as text. ``unit`` is the name of its parts ("line", "page", "paragraph", "row"), ``units`` are these
    parts, counted from 1. ``title`` is its own title, empty if unknown."""

    unit: str
    units: list[str]
    title: str = ""

    def summary(self) -> str:
        """Join the title and as many of the first words as fit."""
        lines = (_BLANK.sub(" ", line).strip(" #*=-|>\t") for unit in self.units[:200] for line in unit.splitlines())
        first = next((line for line in lines if _WORDS.search(line)), "")
        differ = first and self.title not in first and first not in self.title
        if self.title and differ and len(self.title) < MAX_SUMMARY_CHARS // 2:
            return f"{self.title}: {first}"[:MAX_SUMMARY_CHARS]
        return (self.title or first)[:MAX_SUMMARY_CHARS]

    def place(self, first: int, last: int) -> str:
        """Return the position in words: ``page 3``, ``lines 10-24``."""
        return f"{self.unit} {first}" if first == last else f"{self.unit}s {first}-{last}"


def read_file(path: Path) -> Text:
    """Read a file by its suffix; an unknown one is plain text.

    Raises:
        NotReadable: it is damaged, encrypted, too large, not text, or its reader is not installed.
        OSError: it cannot be opened.
    """
    return read_data(path.suffix, load(path))


def load(path: Path) -> bytes:
    """Load the content of a file.

    Raises:
        NotReadable: it is too large.
        OSError: it cannot be opened.
    """
    if path.stat().st_size > MAX_FILE_BYTES:
        raise NotReadable(f"is larger than {MAX_FILE_BYTES // 1_000_000} MB")
    return path.read_bytes()


def read_data(suffix: str, data: bytes) -> Text:
    """Read the content of a file with this suffix.

    Raises:
        NotReadable: as for `read_file`.
    """
    if not data:
        raise NotReadable("is empty")
    text = _READERS.get(suffix.lower(), _lines)(data)
    if not any(unit.strip() for unit in text.units):
        raise NotReadable("holds no text" + (" (scanned pages?)" if text.unit == "page" else ""))
    return Text(text.unit, list(_up_to(MAX_TEXT_CHARS, text.units)), _BLANK.sub(" ", text.title).strip()[:300])


def is_isolated(path: Path) -> bool:
    """Return whether a file must be read in another process."""
    return path.suffix.lower() in (".pdf", ".docx", ".html", ".htm")


def decode(data: bytes) -> str:
    """Decode bytes: UTF-8, UTF-16 or UTF-32 with a byte order mark, or the likeliest encoding.

    Raises:
        NotReadable: they are not text.
    """
    if encoding := find_encoding(data):
        return data.decode(encoding, errors="replace")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = _guess_encoding(data)
    head = text[:100_000]
    if "\0" in head or len(_CONTROL.findall(head)) > len(head) // 20:
        raise NotReadable("is not text")
    return text


def _guess_encoding(data: bytes) -> str:
    """Guess an encoding. A guess needs some text to go by; a few bytes are taken as Western."""
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return data.decode("cp1252", errors="replace")
    best = from_bytes(data[:100_000]).best() if len(data) > 200 else None
    return data.decode(best.encoding if best else "cp1252", errors="replace")


def _lines(data: bytes) -> Text:
    return Text("line", decode(data).splitlines())


def _rows(data: bytes) -> Text:
    """Write each row with the names of its columns, so that it makes sense by itself. Number 1 is the header."""
    text = decode(data)
    try:
        dialect: Any = csv.Sniffer().sniff(text[:20_000], delimiters=",;\t|")
    except csv.Error:
        dialect = csv.excel
    csv.field_size_limit(MAX_FILE_BYTES)  # By default 131,072 characters: a cell may contain a whole letter.
    rows = csv.reader(io.StringIO(text, newline=""), dialect)
    try:
        header = [name.strip() for name in next(rows, [])]
        units = [", ".join(header), *(_row(header, row) for row in rows)]
    except csv.Error as error:
        raise NotReadable(f"is not CSV ({error})") from error
    return Text("row", units, f"Table of {', '.join(filter(None, header))}")


def _row(header: list[str], row: list[str]) -> str:
    names = [*header, *[""] * (len(row) - len(header))]
    cells = ((name, " ".join(cell.split())) for name, cell in zip(names, row, strict=False))
    return "; ".join(f"{name}: {cell}" if name else cell for name, cell in cells if cell)


def _pdf(data: bytes) -> Text:
    try:
        import pypdf
    except ImportError as error:
        raise NotReadable(INSTALL) from error
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise NotReadable("is encrypted")
        pages = [_tidy(page.extract_text()) for page in islice(reader.pages, MAX_PAGES)]
        title = str(reader.metadata.title or "") if reader.metadata else ""
    except NotReadable:
        raise
    except pypdf.errors.DependencyError as error:
        raise NotReadable("is encrypted") from error
    except Exception as error:  # pypdf raises anything for a damaged file.
        raise NotReadable(f"is damaged or no PDF ({type(error).__name__})") from error
    return Text("page", pages, title)


def _docx(data: bytes) -> Text:
    try:
        import docx
    except ImportError as error:
        raise NotReadable(INSTALL) from error
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            if sum(each.file_size for each in packed.infolist()) > MAX_UNPACKED_BYTES:
                raise NotReadable(f"unpacks to more than {MAX_UNPACKED_BYTES // 1_000_000} MB")
        document = docx.Document(io.BytesIO(data))
        units = [unit for block in document.iter_inner_content() for unit in _block(block)]
        title = document.core_properties.title or ""
    except NotReadable:
        raise
    except Exception as error:  # As with pypdf.
        raise NotReadable(f"is damaged or no DOCX ({type(error).__name__})") from error
    return Text("paragraph", units, title)


def _block(block: Any) -> Iterator[str]:
    """Yield a paragraph's text, or a table's rows; merged cells appear once."""
    if hasattr(block, "rows"):
        for row in block.rows:
            yield " | ".join(dict.fromkeys(" ".join(cell.text.split()) for cell in row.cells))
    else:
        yield block.text


def _html(data: bytes) -> Text:
    return read_html(decode(data))


def read_html(page: str) -> Text:
    """Return a page's main text, without the parts around it; all of its text if that cannot be distinguished."""
    title = html.unescape(found[1]) if (found := re.search(r"<title[^>]*>(.*?)</title", page, re.I | re.S)) else ""
    text = _main_text(page) or _all_text(page)
    return Text("line", text.splitlines(), title)


def _main_text(page: str) -> str:
    try:
        import trafilatura
    except ImportError:
        return ""
    try:
        return trafilatura.extract(page, include_comments=False, include_tables=True, favor_recall=True) or ""
    except Exception:  # noqa: BLE001  (lxml raises anything for a broken page; there is a fallback)
        return ""


class _PageText(HTMLParser):
    """The text of a page, one block per line."""

    HIDDEN = frozenset({"script", "style", "template", "noscript", "head"})
    INLINE = frozenset(("a", "abbr", "b", "code", "em", "i", "q", "small", "span", "strong", "sub", "sup", "time", "u"))

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._hidden += tag in self.HIDDEN
        self.parts += [] if tag in self.INLINE else ["\n"]

    def handle_endtag(self, tag: str) -> None:
        self._hidden = max(0, self._hidden - (tag in self.HIDDEN))
        self.parts += [] if tag in self.INLINE else ["\n"]

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)


def _all_text(page: str) -> str:
    words = _PageText()
    words.feed(page)
    words.close()
    return _tidy("".join(words.parts))


def _tidy(text: str) -> str:
    lines = (_BLANK.sub(" ", line).strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def _up_to(room: int, units: Iterable[str]) -> Iterator[str]:
    for unit in units:
        if len(unit) > room:
            yield unit[:room]
            return
        yield unit
        room -= len(unit)


_READERS: dict[str, Callable[[bytes], Text]] = {
    ".pdf": _pdf,
    ".docx": _docx,
    ".html": _html,
    ".htm": _html,
    ".csv": _rows,
    ".tsv": _rows,
}

_PLAIN = (
    *(".md", ".txt", ".rst", ".tex", ".log", ".json", ".jsonl", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".xml"),
    *(".py", ".js", ".ts", ".java", ".go", ".rs", ".c", ".h", ".cpp", ".sql", ".sh"),
)

SUFFIXES = frozenset((*_READERS, *_PLAIN))
"""The suffixes of documents. Anything else in a folder is skipped."""
