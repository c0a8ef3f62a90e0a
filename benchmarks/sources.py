"""The documents' index beside plain FTS5: times, and how often the right document is found.

    python benchmarks/sources.py [--documents 4000] [--rounds 3]

60 labelled queries (data/sources.jsonl) ask for 60 short texts, each of which stands within a longer document among
thousands of others. These are made of the words of all the texts, so that each word of a query, names too, is in a few
hundred documents that do not answer it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from upcall.research.sources.documents import CANDIDATES, HITS_PER_DOCUMENT, Documents, choose_terms
from upcall.research.sources.index import DocumentIndex

DATA = Path(__file__).with_name("data") / "sources.jsonl"
LONG_AGO = 1_600_000_000
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Labelled:
    """A text, the name of the document that holds it, and a question that it answers."""

    name: str
    text: str
    query: str


def labelled() -> list[Labelled]:
    return [Labelled(**json.loads(line)) for line in DATA.read_text(encoding="utf-8").splitlines()]


# -- the documents ----------------------------------------------------------------------------------------------------

FRAMES = (
    "In the weekly report the {} was compared with the {}, and {} came up next to {}.",
    "According to the minutes, {} and {} depend on {}; nobody spoke of {}.",
    "As agreed last time, the {} is checked before the {}, then {} and {} follow.",
    "For the record: {} rose to {number} and {} fell to {other}, with {} and {} unchanged.",
    "The department asked whether {} or {} should be told about {} and {}.",
    "Annex {number} lists {}, {}, {} and {} without further remarks.",
)


def other_sentence(pick: random.Random, words: Sequence[str]) -> str:
    """Four words of any of the texts, in a sentence that answers none of the queries."""
    numbers = {"number": pick.randrange(2, 5_000), "other": pick.randrange(2, 5_000)}
    return pick.choice(FRAMES).format(*pick.sample(words, 4), **numbers)


def write_documents(folder: Path, count: int) -> dict[str, str]:
    """Documents of 1 to 8 KB; the labelled ones among them by name, each with its file."""
    pick = random.Random(7)
    texts = labelled()
    words = sorted({word[:2] if word > "\u3000" else word for each in texts for word in _WORD.findall(each.text)})
    held: dict[str, str] = {}
    for number in range(count):
        lines = [f"# Note {number}", ""]
        for _ in range(pick.randrange(6, 40)):
            lines += [other_sentence(pick, words), *([""] if pick.random() < 0.4 else [])]
        if number % (count // len(texts)) == 0 and len(held) < len(texts):
            each = texts[len(held)]
            lines.insert(pick.randrange(2, len(lines)), each.text)
            held[each.name] = f"{number:05}.md"
        (folder / f"{number:05}.md").write_text("\n".join(lines), encoding="utf-8")
    return held


# -- plain FTS5 -------------------------------------------------------------------------------------------------------


class PlainFts:
    """What one would write first: a row a document, all of it in one transaction."""

    def __init__(self, file: Path) -> None:
        self.db = sqlite3.connect(file)
        self.db.execute("CREATE VIRTUAL TABLE documents USING fts5(name UNINDEXED, body)")

    def index(self, folder: Path) -> None:
        with self.db:
            rows = ((path.name, path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.md")))
            self.db.executemany("INSERT INTO documents VALUES (?, ?)", rows)

    def search(self, query: str, operator: str) -> list[str]:
        match = f" {operator} ".join(f'"{word}"' for word in _WORD.findall(query))
        rows = self.db.execute("SELECT name FROM documents WHERE documents MATCH ? ORDER BY rank LIMIT 10", (match,))
        return [name for (name,) in rows]


# -- measuring --------------------------------------------------------------------------------------------------------


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def place_of(name: str, found: Sequence[str]) -> int | None:
    distinct = list(dict.fromkeys(found))
    return distinct.index(name) + 1 if name in distinct else None


def rates(places: Sequence[int | None]) -> tuple[str, ...]:
    return tuple(f"{sum(place is not None and place <= at for place in places)} of {len(places)}" for at in (1, 3, 10))


def measure(folder: Path, work: Path, held: dict[str, str], number: int) -> dict[str, object]:
    plain = PlainFts(work / f"plain{number}.db")
    files = sorted(folder.glob("*.md"))
    index = DocumentIndex([folder], work / f"index{number}")
    documents = Documents([folder], work / f"index{number}")
    figures: dict[str, object] = {
        "plain index": seconds(lambda: plain.index(folder)),
        "our index": seconds(lambda: index.refresh(files)),
        "our refresh": seconds(lambda: index.refresh(files)),
    }
    kept = {name: files[0].with_name(file) for name, file in held.items()}
    asked = [each for each in labelled() if each.name in kept]
    times: dict[str, list[float]] = {"plain OR": [], "plain AND": [], "ours": [], "ours with a look at all files": []}
    places: dict[str, list[int | None]] = {name: [] for name in times}
    for each in asked:
        file = held[each.name]
        for operator in ("OR", "AND"):
            start = time.perf_counter()
            found = plain.search(each.query, operator)
            times[f"plain {operator}"].append(time.perf_counter() - start)
            places[f"plain {operator}"].append(place_of(file, found))
        terms = choose_terms(each.query)
        start = time.perf_counter()
        index.search(terms, CANDIDATES, HITS_PER_DOCUMENT)
        times["ours"].append(time.perf_counter() - start)
        start = time.perf_counter()
        hits = asyncio.run(documents.search(each.query))
        times["ours with a look at all files"].append(time.perf_counter() - start)
        places["ours with a look at all files"].append(place_of(file, [hit.ref for hit in hits]))
    figures |= {f"query {name}": statistics.median(each) for name, each in times.items()}
    figures["places"] = {name: each for name, each in places.items() if each}
    figures["bytes"] = index.file.stat().st_size / max(1, (work / f"plain{number}.db").stat().st_size)
    return figures


def formats(work: Path, count: int = 50) -> str:
    """Milliseconds a file of each kind takes, read in a process of its own: five pages or a hundred paragraphs each."""
    import docx
    from reportlab.pdfgen.canvas import Canvas

    lines = [f"{number}: {each.text}" for number, each in enumerate(labelled() * 2) if each.text.isascii()][:100]
    rows = ["| kind | ms a file |", "|---|---:|"]
    for kind in ("pdf", "docx", "html", "md"):
        folder = work / kind
        folder.mkdir()
        for number in range(count):
            file = folder / f"{number}.{kind}"
            if kind == "pdf":
                canvas = Canvas(str(file))
                for at, line in enumerate(lines):
                    canvas.drawString(40, 800 - at % 20 * 14, line[:100])
                    if at % 20 == 19:
                        canvas.showPage()
                canvas.save()
            elif kind == "docx":
                document = docx.Document()
                for line in lines:
                    document.add_paragraph(line)
                document.save(str(file))
            else:
                before, after = ("<p>", "</p>") if kind == "html" else ("", "\n")
                file.write_text(f"{number}\n" + "\n".join(f"{before}{line}{after}" for line in lines))
        index = DocumentIndex([folder], work / f"index-{kind}")
        taken = seconds(lambda index=index, folder=folder: index.refresh(sorted(folder.iterdir())))
        rows.append(f"| {kind} | {1_000 * taken / count:.1f} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work, folder = Path(temporary), Path(temporary, "documents")
        folder.mkdir()
        held = write_documents(folder, options.documents)
        for file in folder.iterdir():
            os.utime(file, (LONG_AGO, LONG_AGO))
        size = sum(file.stat().st_size for file in folder.iterdir())
        kinds = formats(work)
        rounds = [measure(folder, work, held, number) for number in range(options.rounds)]

    def middle(name: str) -> float:
        return statistics.median(float(each[name]) for each in rounds)  # type: ignore[arg-type]

    plain, query = middle("plain index"), middle("query plain OR")
    versions = f"Python {sys.version.split()[0]}, SQLite {sqlite3.sqlite_version}"
    print(f"{options.documents} documents, {size / 1e6:.1f} MB; {versions}")
    print(f"| | seconds | to plain FTS5 |\n|---|---:|---:|\n| plain FTS5: index | {plain:.2f} | 1.0 |")
    for name, label in (("our index", "index"), ("our refresh", "look again, nothing changed")):
        print(f"| upcall: {label} | {middle(name):.3f} | {middle(name) / plain:.2f} |")
    for name in ("plain OR", "plain AND", "ours", "ours with a look at all files"):
        print(f"| {name}: query | {middle(f'query {name}'):.4f} | {middle(f'query {name}') / query:.2f} |")
    print(f"| index file, bytes | | {middle('bytes'):.2f} |\n")
    print("| found among the first | 1 | 3 | 10 |\n|---|---:|---:|---:|")
    for name, places in rounds[0]["places"].items():  # type: ignore[attr-defined]
        print(f"| {name} | {' | '.join(rates(places))} |")
    print(f"\n{kinds}")
    missed = [each.query for each, at in zip(labelled(), places, strict=False) if at is None]
    print("\nNot among the first ten:", "; ".join(missed) or "none")


if __name__ == "__main__":
    main()
