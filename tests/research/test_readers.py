"""Files as text, each with the units that a passage of it is named by; what cannot be read says why."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
from files_to_read import pdf, word, zip_bomb

from upcall.research.sources import isolated
from upcall.research.sources.isolated import IsolatedReader
from upcall.research.sources.passages import PASSAGE_CHARS, cut_into_parts
from upcall.research.sources.readers import NotReadable, Text, decode, read_file, read_html
from upcall.sandboxes.bubblewrap import explain_unusable

PAGE = """<html><head><title>Wind &amp; sun</title><script>alert(1)</script></head><body>
<nav><a href="/">Home</a><a href="/about">About</a></nav>
<article><h1>Wind power</h1><p>Wind power grew by ten percent in <b>Germany</b> last year, says the agency.</p>
<p>Solar power grew more, and storage grew most of all, the same report says on its third page. In the north new cables
carried the power to the cities, and in the south the roofs of schools were covered with panels, so that less coal was
burned than in any year since the war.</p>
<p>The agency expects the same for the coming year, if the permits are given in time and the grid is built as it was
planned, which the operators doubt. They ask for shorter procedures and for more people in the offices.</p></article>
<footer>Imprint</footer></body></html>"""


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def why_not(path: Path) -> str:
    with pytest.raises(NotReadable) as refused:
        read_file(path)
    return str(refused.value)


# -- kinds ------------------------------------------------------------------------------------------------------------


def test_pdf_is_pages(tmp_path: Path) -> None:
    text = read_file(pdf(tmp_path / "a.pdf", ["Wind power grew.\nSolar too.", "Page two"], title="Energy 2024"))
    assert text == Text("page", ["Wind power grew.\nSolar too.", "Page two"], "Energy 2024")
    assert (text.place(2, 2), text.place(1, 2)) == ("page 2", "pages 1-2")


def test_docx_is_paragraphs_and_rows_of_its_tables(tmp_path: Path) -> None:
    rows = [("Country", "Wind"), ("Germany", "52 %")]
    text = read_file(word(tmp_path / "a.docx", ["Energy", "Wind grew."], rows, title="Report"))
    assert text == Text("paragraph", ["Energy", "Wind grew.", "Country | Wind", "Germany | 52 %"], "Report")


def test_page_is_its_own_text_without_its_surroundings() -> None:
    text = read_html(PAGE)
    assert text.title == "Wind & sun"
    output = "\n".join(text.units)
    assert "Wind power grew by ten percent in Germany last year, says the agency." in output
    assert not any(word in output for word in ("Imprint", "About", "alert"))


def test_page_without_the_package_is_all_of_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trafilatura", None)
    text = "\n".join(read_html(PAGE).units)
    assert "Wind power grew by ten percent in Germany last year, says the agency." in text
    assert "alert" not in text


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_table_is_rows_with_column_names(tmp_path: Path, separator: str) -> None:
    rows = [["country", "wind", "note"], ["Germany", "52", ""], ["Japan", "2", "new"]]
    path = written(tmp_path / "a.csv", "\n".join(separator.join(row) for row in rows) + "\n")
    text = read_file(path)
    assert text.units == ["country, wind, note", "country: Germany; wind: 52", "country: Japan; wind: 2; note: new"]
    assert text.summary() == "Table of country, wind, note"


def test_quoted_cells_with_line_breaks_are_one_row(tmp_path: Path) -> None:
    text = read_file(written(tmp_path / "a.csv", 'a,b\n"x\ny, z",2\n3,4\n'))
    assert text.units == ["a, b", "a: x y, z; b: 2", "a: 3; b: 4"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
def test_text_in_another_encoding_is_read(encoding: str) -> None:
    assert decode("Größe: 5 €".encode(encoding)) == "Größe: 5 €"


def test_encoding_of_a_longer_text_is_guessed() -> None:
    text = "Возобновляемая энергия в Европе выросла, сообщает агентство. " * 10
    assert decode(text.encode("cp1251")) == text


# -- what cannot be read ----------------------------------------------------------------------------------------------


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    damaged = written(tmp_path / "damaged.pdf", pdf(tmp_path / "whole.pdf", ["text"]).read_bytes()[:300])
    assert why_not(damaged).startswith("is damaged or no PDF")
    assert why_not(written(tmp_path / "no.pdf", b"hello")).startswith("is damaged or no PDF")
    assert why_not(pdf(tmp_path / "locked.pdf", ["secret"], password="x")) == "is encrypted"
    assert why_not(pdf(tmp_path / "scan.pdf", ["", ""])) == "holds no text (scanned pages?)"
    assert why_not(written(tmp_path / "no.docx", b"PK\x03\x04")).startswith("is damaged or no DOCX")
    assert why_not(written(tmp_path / "empty.md", "")) == "is empty"
    assert why_not(written(tmp_path / "binary.txt", os.urandom(2_000) + b"\0")) == "is not text"


@pytest.mark.slow
def test_zip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    bomb = zip_bomb(tmp_path / "bomb.docx")
    assert bomb.stat().st_size < 3_000_000
    assert why_not(bomb) == "unpacks to more than 300 MB"


def test_file_that_is_too_large_is_not_opened(tmp_path: Path) -> None:
    with (tmp_path / "huge.txt").open("wb") as file:
        file.truncate(500_000_000)
    assert why_not(tmp_path / "huge.txt") == "is larger than 100 MB"


@pytest.mark.parametrize(("name", "package"), [("a.pdf", "pypdf"), ("a.docx", "docx")])
def test_without_the_package_the_remedy_is_reported(
    tmp_path: Path, name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(NotReadable, match=r"needs: pip install '\.\[research\]'"):
        read_file(written(tmp_path / name, b"x"))


# -- in another process -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_reader_of_a_slow_file_ends_before_the_next(tmp_path: Path) -> None:
    page = written(tmp_path / "page.html", PAGE)
    with IsolatedReader(seconds=0.005) as reader:  # No Python starts in that time.
        with pytest.raises(NotReadable, match=r"took more than 0\.005 seconds"):
            reader.read(page)
        with pytest.raises(TimeoutError):  # The caller's own limit says nothing of the file.
            reader.read(page, seconds=0.005)
        assert reader.read(page, seconds=60).title == "Wind & sun"


@pytest.mark.slow
def test_reader_that_is_killed_is_replaced(tmp_path: Path) -> None:
    page = written(tmp_path / "page.html", PAGE)
    with IsolatedReader() as reader:
        reader.read(page)
        assert reader._process is not None
        reader._process.kill()
        reader._process.wait()
        with pytest.raises(NotReadable, match="was too much for its reader"):
            reader.read(page)
        assert reader.read(page).title == "Wind & sun"


@pytest.fixture(params=["sandbox", "process"])
def isolation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return how a reader is kept apart: in the sandbox, or by its process alone."""
    if request.param == "process":
        monkeypatch.setattr(isolated, "explain_unusable", lambda: "no bubblewrap")
    elif explain_unusable() is not None:
        pytest.skip("no bubblewrap")
    return str(request.param)


@pytest.mark.slow
def test_reader_imports_nothing_from_the_current_folder(
    isolation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "trafilatura", "upcall", "sitecustomize", "readers"):
        written(tmp_path / f"{name}.py", f"open({str(tmp_path / 'canary')!r}, 'w')\nraise SystemExit")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with IsolatedReader() as reader:
        assert reader.read(written(tmp_path / "page.html", PAGE)).title == "Wind & sun"
    assert not (tmp_path / "canary").exists()


def look_around(code: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what code prints that runs in the place of the reader."""
    monkeypatch.setattr(isolated, "_START", f"import os, socket\n{code}")
    process = isolated._start()
    text = process.communicate(timeout=60)[0].decode()
    isolated._close(process)
    return text


def test_reader_has_no_environment(isolation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    text = look_around("print(open('/proc/self/environ').read(), os.environ, os.getcwd())", monkeypatch)
    assert text
    assert "sk-secret" not in text
    assert os.getcwd() not in text


@pytest.mark.parametrize(
    "code",
    [
        "print(os.listdir({folder!r}))",
        "print(open({folder!r} + '/page.html').read())",
        "print(socket.create_connection(('127.0.0.1', {port}), 5))",
        "print(open('/proc/{pid}/environ').read())",
        "print(os.fork())",
        "import subprocess; print(subprocess.run(['true']))",
        "print(os.memfd_create('a'))",
    ],
)
def test_reader_in_the_sandbox_reaches_nothing(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if explain_unusable() is not None:
        pytest.skip("no bubblewrap")
    written(tmp_path / "page.html", PAGE)
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = code.format(folder=str(tmp_path), port=server.getsockname()[1], pid=os.getpid())
        assert look_around(f"print('here', flush=True)\n{code}", monkeypatch) == "here\n"


def test_limits_of_a_reader_are_for_good(isolation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code = isolated._START.replace("serve", "limit_process") + (
        "import resource, threading\nthreading.Thread(target=print).start()\n"
        "print([resource.getrlimit(getattr(resource, f'RLIMIT_{name}')) for name in ('AS', 'FSIZE')])"
    )
    assert look_around(code, monkeypatch) == "\n[(2000000000, 2000000000), (0, 0)]\n"


@pytest.mark.parametrize(
    "code",
    [
        "print('not json')",
        """print('{"a": 1}')""",
        """print('{"unit": "page", "units": [1], "title": ""}')""",
        """print('{"unit": "order", "units": ["a"], "title": ""}')""",
        "while True: print('x' * 65536, end='')",
    ],
)
@pytest.mark.slow
def test_reader_that_says_anything_else_is_replaced(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = written(tmp_path / "page.html", PAGE)
    with IsolatedReader() as reader, monkeypatch.context() as taken_over:
        taken_over.setattr(isolated, "_START", f"input()\n{code}")
        with pytest.raises(NotReadable, match="its reader"):
            reader.read(page)
        taken_over.undo()
        assert reader.read(page).title == "Wind & sun"


# -- passages ---------------------------------------------------------------------------------------------------------


def test_passages_cover_a_document_and_know_their_place() -> None:
    lines = [f"Sentence {number} says something about wind." for number in range(100)]
    parts = list(cut_into_parts(Text("line", lines)))
    assert [line for part in parts for line in part.text.splitlines()] == lines
    assert all(part.text == "\n".join(lines[part.first - 1 : part.last]) for part in parts)
    assert max(len(part.text) for part in parts) <= PASSAGE_CHARS


def test_heading_begins_a_passage_with_all_below_it() -> None:
    text = Text("line", ["# Wind", "", "It grew.", "## Offshore", "", *["It grew more."] * 100])
    parts = list(cut_into_parts(text))
    assert [(part.first, part.heading) for part in parts[:2]] == [(1, "Wind"), (4, "Offshore")]
    assert {part.heading for part in parts[1:]} == {"Offshore"}


def test_page_is_one_passage_or_several_if_long() -> None:
    long = "Wind grew a lot in this year. " * 100
    parts = list(cut_into_parts(Text("page", ["Short.", long, "", "Last."])))
    assert [(part.first, part.last) for part in parts[:2]] == [(1, 1), (2, 2)]
    assert (parts[-1].first, parts[-1].text) == (4, "Last.")
    assert max(len(part.text) for part in parts) <= PASSAGE_CHARS


def test_one_endless_line_is_cut_into_passages() -> None:
    parts = list(cut_into_parts(Text("line", ["x" * 10_000])))
    assert {(part.first, part.last) for part in parts} == {(1, 1)}
    assert "".join(part.text for part in parts) == "x" * 10_000
