"""The index of the documents: up to date with the files, and a cache that may be lost or damaged at any time."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from files_to_read import pdf, word, zip_bomb
from tables import rows

from upcall.autogen.scope import RunScope, enter_scope
from upcall.progress import Progress
from upcall.research.sources.documents import MAX_LISTED, Documents, choose_terms
from upcall.research.sources.index import DocumentIndex
from upcall.research.sources.readers import NotReadable

LONG_AGO = time.time() - 3_600


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with three texts that were written long ago."""
    (tmp_path / "docs").mkdir()
    for name, text in (("wind", "Wind grew in Norway."), ("sun", "Sun grew in Spain."), ("coal", "Coal fell.")):
        write(tmp_path / "docs" / f"{name}.md", text)
    return tmp_path / "docs"


def write(path: Path, text: str, when: float = LONG_AGO) -> Path:
    path.write_text(text, encoding="utf-8")
    os.utime(path, (when, when))
    return path


def index_of(folder: Path) -> DocumentIndex:
    return DocumentIndex([folder], folder.parent / "index")


def read(folder: Path) -> int:
    """How many files a refresh reads."""
    return index_of(folder).refresh(sorted(folder.iterdir()))


async def found(documents: Documents, words: str) -> list[str]:
    return [hit.ref for hit in await documents.search(words)]


# -- up to date -------------------------------------------------------------------------------------------------------


def test_only_what_is_new_or_changed_is_read(folder: Path) -> None:
    assert (read(folder), read(folder)) == (3, 0)
    write(folder / "gas.md", "Gas stayed.")
    write(folder / "sun.md", "Sun doubled in Spain.", LONG_AGO + 1)
    assert (read(folder), read(folder)) == (2, 0)


def test_index_does_not_read_a_touched_file_again(folder: Path) -> None:
    read(folder)
    os.utime(folder / "sun.md", (LONG_AGO + 5, LONG_AGO + 5))
    assert read(folder) == 0


def test_index_notices_changes_of_equal_size_and_time(tmp_path: Path) -> None:
    now = time.time()
    write(tmp_path / "a.md", "Wind: 1", now)
    index = DocumentIndex([tmp_path], tmp_path / "index")
    index.refresh([tmp_path / "a.md"])
    write(tmp_path / "a.md", "Wind: 2", now)
    assert index.refresh([tmp_path / "a.md"]) == 1
    assert index.text(tmp_path / "a.md").units == ["Wind: 2"]


async def test_search_sees_what_became_of_the_files_meanwhile(folder: Path) -> None:
    documents = Documents([folder])
    assert await found(documents, "grew") == ["sun.md", "wind.md"]
    (folder / "sun.md").unlink()
    write(folder / "wind.md", "Wind fell.", LONG_AGO + 9)
    write(folder / "new.md", "Tides grew.")
    assert await found(documents, "grew") == ["new.md"]


def test_what_no_file_holds_any_more_leaves_the_index(folder: Path) -> None:
    index = index_of(folder)
    index.refresh(sorted(folder.iterdir()))
    index.refresh([])
    with closing(sqlite3.connect(index.file)) as db, db:
        for table in ("files", "contents", "passages"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_index_reads_a_file_again_that_had_left(folder: Path) -> None:
    index = index_of(folder)
    index.refresh(sorted(folder.iterdir()))
    index.refresh([])  # As another process does that sees the folder without its files.
    with pytest.raises(NotReadable, match="read it again"):
        index.text(folder / "sun.md")


async def test_files_of_one_content_are_one_hit(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / name).mkdir()
        write(folder / name / "wind.md", "Wind grew in Norway.")
    (hit,) = await Documents([folder]).search("Norway")
    assert (hit.ref, hit.also) == ("a/wind.md", ("b/wind.md, line 1", "wind.md, line 1"))


async def test_passages_that_say_nearly_the_same_are_one_hit(folder: Path) -> None:
    text = "The grid operator of the north said that wind power had grown by {} percent in the whole of last year."
    for number in (10, 11, 12):
        write(folder / f"{number}.md", text.format(number))
    (hit,) = await Documents([folder]).search("grid operator")
    assert len(hit.also) == 2


async def test_one_long_document_does_not_crowd_out_the_others(folder: Path) -> None:
    write(folder / "long.md", "\n\n".join(f"# Wind {n}\nwind wind wind {n} {'x' * 40}{n}" for n in range(100)))
    hits = await Documents([folder]).search("wind", limit=5)
    assert "wind.md" in [hit.ref for hit in hits]


# -- lost, damaged, shared --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [b"no database at all", b""])
async def test_damaged_index_is_made_anew(folder: Path, damage: bytes) -> None:
    documents = Documents([folder])
    await documents.search("wind")
    file = documents._index.file
    for part in file.parent.glob(f"{file.name}-*"):
        part.unlink()
    file.write_bytes(damage)
    assert await found(documents, "Norway") == ["wind.md"]


async def test_index_that_is_damaged_is_rebuilt(folder: Path) -> None:
    for number in range(200):
        write(folder / f"{number}.md", f"Text {number} of something else. " * 20)
    documents = Documents([folder])
    await documents.search("wind")
    file = documents._index.file
    whole = bytearray(file.read_bytes())
    whole[8_192 : len(whole) - 4_096] = b"\xa5" * (len(whole) - 12_288)
    file.write_bytes(whole)
    assert await found(documents, "Norway") == ["wind.md"]


async def test_index_of_another_version_is_made_anew(folder: Path) -> None:
    documents = Documents([folder])
    await documents.search("wind")
    with closing(sqlite3.connect(documents._index.file)) as db, db:
        db.execute("PRAGMA user_version = 99")
    assert await found(documents, "Norway") == ["wind.md"]


@pytest.mark.skipif(os.name != "posix", reason="permissions")
async def test_index_works_where_folder_and_cache_are_read_only(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file where the folder would be")
    folder.chmod(0o500)
    try:
        documents = Documents([folder], index=tmp_path / "cache" / "documents")
        assert await found(documents, "Norway") == ["wind.md"]
        assert sorted(each.name for each in folder.iterdir()) == ["coal.md", "sun.md", "wind.md"]
    finally:
        folder.chmod(0o700)


def test_index_that_nobody_used_for_long_is_deleted(folder: Path) -> None:
    index = index_of(folder)
    index.refresh([])
    old = index.file.with_name("old.db")
    old.write_bytes(b"")
    os.utime(old, (1, 1))
    index_of(folder)
    assert (index.file.exists(), old.exists()) == (True, False)


INDEX = """
import sys; from pathlib import Path; from upcall.research.sources.index import DocumentIndex
folder = Path(sys.argv[1])
print(DocumentIndex([folder], folder.parent / "index").refresh(sorted(folder.iterdir())), flush=True)
"""


def many(folder: Path, count: int) -> None:
    for number in range(count):
        write(folder / f"{number:04}.md", f"Document {number} speaks of wind.\n" * 50)


def indexing(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", INDEX, str(folder)], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
async def test_two_processes_index_the_same_folder_at_once(folder: Path) -> None:
    many(folder, 300)
    processes = [indexing(folder), indexing(folder)]
    assert [process.wait(60) for process in processes] == [0, 0]
    for process in processes:
        process.communicate()
    index = index_of(folder)
    assert index.refresh(sorted(folder.iterdir())) == 0
    with closing(sqlite3.connect(index.file)) as db, db:
        assert db.execute("SELECT count(*), count(DISTINCT content) FROM files").fetchone() == (303, 303)
        assert db.execute("SELECT count(*) FROM contents").fetchone() == (303,)
        db.execute("INSERT INTO passages(passages) VALUES ('integrity-check')")


@pytest.mark.slow
async def test_index_continues_after_a_kill_in_the_middle(folder: Path) -> None:
    many(folder, 2_000)
    process = indexing(folder)
    index = index_of(folder)
    while not index.file.exists() or len(index.list_known()) == 0:
        await asyncio.sleep(0.01)
        assert process.poll() is None, "it was done before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.communicate()
    done = len(index.list_known())
    assert 0 < done < 2_003
    assert index.refresh(sorted(folder.iterdir())) == 2_003 - done
    with closing(sqlite3.connect(index.file)) as db, db:
        db.execute("INSERT INTO passages(passages) VALUES ('integrity-check')")


# -- odd files --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_index_names_unreadable_files_and_handles_the_rest(folder: Path) -> None:
    pdf(folder / "report.pdf", ["Wind grew in Norway, the report says."], title="Energy")
    word(folder / "letter.docx", ["A letter on Norway."])
    pdf(folder / "locked.pdf", ["secret"], password="x")
    (folder / "damaged.pdf").write_bytes(b"%PDF-1.4 and no more")
    zip_bomb(folder / "bomb.docx")
    (folder / "empty.md").write_text("")
    (folder / "binary.txt").write_bytes(bytes(range(256)) * 10)
    with (folder / "huge.txt").open("wb") as file:
        file.truncate(500_000_000)
    (folder.parent / "outside.md").write_text("Norway outside")
    (folder / "link.md").symlink_to("../outside.md")
    documents = Documents([folder])
    assert sorted(await found(documents, "Norway")) == ["letter.docx", "report.pdf", "wind.md"]
    text = await documents.remarks()
    for part in (
        "locked.pdf (is encrypted)",
        "damaged.pdf (is damaged or no PDF",
        "bomb.docx (unpacks to more than 300 MB)",
        "empty.md (is empty)",
        "binary.txt (is not text)",
        "huge.txt (is larger than 100 MB)",
        "link.md (is a link that leads out of the folder)",
    ):
        assert part in text
    with pytest.raises(ValueError, match=r"locked\.pdf cannot be read: it is encrypted"):
        await documents.read("locked.pdf")


@pytest.mark.slow
async def test_pdf_is_found_and_read_by_its_pages(folder: Path) -> None:
    pdf(folder / "report.pdf", [f"Page {number} on {topic}." for number, topic in enumerate("abcdefg", start=1)])
    documents = Documents([folder])
    (hit, *_) = await documents.search("Page 3")
    assert (hit.ref, hit.place, hit.start, hit.text) == ("report.pdf", "page 3", 3, "Page 3 on c.")
    passage = await documents.read("report.pdf", hit.start)
    assert (passage.place, passage.next, passage.note) == ("pages 3-6", 7, "1 more page.")


async def test_document_is_found_by_name_and_headings(folder: Path) -> None:
    write(folder / "tariff-review_2024.md", "# Offshore cables\n\nThey cost more.")
    documents = Documents([folder])
    assert await found(documents, "tariff review") == ["tariff-review_2024.md"]
    assert await found(documents, "offshore") == ["tariff-review_2024.md"]


@pytest.mark.slow
def test_documents_are_listed_with_summaries_or_counted(folder: Path) -> None:
    pdf(folder / "a.pdf", ["Wind grew by ten percent."], title="Energy review")
    many(folder, 200)
    listed = Documents([folder]).list_first()
    assert len(listed) == MAX_LISTED + 1
    assert listed[-1].file_name == "... and 154 more documents"
    few = {each.file_name: each.summary for each in Documents([folder / "a.pdf", folder / "wind.md"]).list_first()}
    assert few == {"a.pdf": "Energy review: Wind grew by ten percent.", "wind.md": "Wind grew in Norway."}


# -- queries ----------------------------------------------------------------------------------------------------------

ODD = ["wind AND", "NOT", "NEAR(wind", "wind*", "title:wind", "-wind", "wind OR OR", "'; DROP TABLE files; --", "^wind"]
ODD += [
    "风 wind",
    "wind 🚀",
    "wind + {norway}",
    "\x00wind",
    "a" * 100_000,
    "wind " * 10_000,
    "\ud800 wind",
    '"wind',
    "a.b",
]


@pytest.mark.parametrize("query", ODD, ids=lambda query: repr(query)[:20])
async def test_no_query_breaks_the_search(folder: Path, query: str) -> None:
    hits = await Documents([folder]).search(query)
    assert ("wind.md" in [hit.ref for hit in hits]) == ("wind" in query)


@pytest.mark.parametrize(
    ("query", "terms"),
    rows("document_index/a_query_is_its_telling_words"),
)
def test_query_is_its_distinctive_words(query: str, terms: list[str]) -> None:
    assert choose_terms(query) == terms


# -- progress ---------------------------------------------------------------------------------------------------------


async def test_indexing_reports_progress_only_for_new_documents(folder: Path) -> None:
    emitted: list[Progress] = []
    documents = Documents([folder])
    with enter_scope(RunScope(progress=emitted.append)):
        await documents.search("wind")
        assert emitted == [Progress("files indexed", 3, 3)]
        assert emitted[0].to_text() == "files indexed: 3 of 3"
        await documents.search("sun")
        assert len(emitted) == 1


@pytest.mark.slow
async def test_search_that_is_abandoned_stops_indexing(folder: Path) -> None:
    """The program would not end before, and Ctrl-C seem to do nothing."""
    for number in range(2_000):
        write(folder / f"{number}.md", f"Item {number}.")
    documents = Documents([folder], folder.parent / "index")
    searching = asyncio.create_task(documents.search("item"))
    await asyncio.sleep(0)
    searching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await searching
    await asyncio.get_running_loop().shutdown_default_executor()
    assert len(index_of(folder).list_known()) < 2_000
    assert index_of(folder).refresh(folder.iterdir()) > 0
    assert len(index_of(folder).list_known()) == 2_003


def test_how_far_indexing_came_is_reported_as_it_is(folder: Path) -> None:
    emitted: list[Progress] = []
    given_up = threading.Event()
    given_up.set()
    with enter_scope(RunScope(progress=emitted.append)):
        assert index_of(folder).refresh(folder.iterdir(), given_up=given_up) == 0
    assert emitted == []
