"""Research end to end: 200 documents, sections researched at the same time, two who ask, a report that holds.

The command line in a process of its own for each step, the scripted model behind HTTP. The model finds its quotes as a
real one does, in the results of its searches and reads.
"""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import wrap

import pytest
from docx import Document
from reportlab.pdfgen.canvas import Canvas
from scenario import CLEAR, upcall

from upcall.research.cited import UNVERIFIED
from upcall.research.normalization import split_words
from upcall.research.sources.fences import parse_fenced
from upcall.testing import Call, Calls, LoopbackServer, Reply, Request

TASK = "Compare what the archive says of four books, and write a page about it"
BOOKS = ("Harbour", "Orchard", "Lantern", "Glacier")
EDITIONS = ("first", "second", "third")
PLAN = json.dumps(
    {
        "title": "Four books",
        "sections": list(BOOKS),
        "steps": [
            *(
                {"step_id": str(n), "description": f"Find out about {book}", "name": "researcher"}
                for n, book in enumerate(BOOKS)
            ),
            {"step_id": "9", "description": "Write the page", "name": "coder", "depends_on": []},
        ],
    }
)


def paragraph(text: str) -> str:
    return f"# Notes\n\n{text}\n\nMore on this elsewhere.\n"


def pdf(text: str) -> bytes:
    file = io.BytesIO()
    page = Canvas(file)
    for number, line in enumerate(wrap(text, 60)):
        page.drawString(72, 720 - 16 * number, line)
    page.save()
    return file.getvalue()


def docx(text: str) -> bytes:
    file, document = io.BytesIO(), Document()
    document.add_heading("Notes")
    document.add_paragraph(text)
    document.save(file)
    return file.getvalue()


KINDS: dict[str, Callable[[str], str | bytes]] = {
    ".md": paragraph,
    ".json": lambda text: json.dumps({"note": text}, indent=1) + "\n",
    ".txt": lambda text: "\n".join(wrap(text, 60)) + "\n",
    ".docx": docx,
    ".rst": lambda text: f"Notes\n=====\n\n{text}\n",
    ".html": lambda text: f"<html><body><h1>Notes</h1>\n<p>{text}</p>\n</body></html>\n",
    ".csv": lambda text: f'id,note\n1,"{text}"\n',
    ".pdf": pdf,
    ".yaml": lambda text: f"note: >-\n  {text}\n",
    ".py": lambda text: f'"""{text}"""\n\nNOTE = True\n',
}


def fact(book: str, edition: str) -> str:
    """Return what exactly one of the documents says."""
    copies = 1_000 + 37 * (BOOKS.index(book) * 3 + EDITIONS.index(edition))
    return f"The {edition} edition of {book} sold {copies} copies before the printer closed."


def archive(folder: Path) -> dict[str, str]:
    """200 documents of all kinds that can be read, twelve of which say something of the books; their texts by name."""
    folder.mkdir()
    fields: dict[str, str] = {}
    dice, facts = random.Random(7), [fact(book, edition) for book in BOOKS for edition in EDITIONS]
    words = re.findall(r"\w+", "ledger of the reading room with dates and names that nobody has put in order")
    for number in range(200):
        kind = list(KINDS)[number % len(KINDS)]
        filler = " ".join(dice.choices(words, k=40)).capitalize() + "."
        text = f"{facts[number // 16]} {filler}" if number % 16 == 5 and number // 16 < len(facts) else filler
        name, content = f"box {number % 9}/sheet-{number}{kind}", KINDS[kind](text)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        fields[name] = text
    return fields


class Model:
    """Each agent as a model would play it; who speaks, and how far they are, is read from the request."""

    def __call__(self, request: Request) -> Reply:
        agent = re.match(r"You are the (\w+) ", request.system)
        assert agent is not None, request.system[:100]
        return getattr(self, agent[1])(request)  # type: ignore[no-any-return]

    def classifier(self, request: Request) -> Reply:
        return '{"intent": "research", "research_depth": "deep"}'

    def clarifier(self, request: Request) -> Reply:
        return CLEAR

    def planner(self, request: Request) -> Reply:
        return PLAN if "sections" in request.system else CLEAR

    def lead(self, request: Request) -> Reply:
        results = list(request.tool_results.values())
        if not results:
            tasks = [Call("researcher", {"task": f"Section {book}: how many copies were sold?"}) for book in BOOKS]
            return Calls([*tasks, Call("coder", {"task": "Write the page"})])
        sections = [
            f"## {book}\n\n{result.partition(chr(10))[0]}" for book, result in zip(BOOKS, results[:-1], strict=True)
        ]
        return json.dumps(
            {"summary": "\n\n".join(["# Four books", *sections]), "left_open": ["The page has no style."]}
        )

    def researcher(self, request: Request) -> Reply:
        """Search; ask which edition where several are found; read what was found; quote from it."""
        (book,) = re.findall(r"Section (\w+):", str(request.messages[1]["content"]))
        results = list(request.tool_results.values())
        if not results:
            return Call("search_documents", {"words": f"{book} edition copies"})
        if book == "Lantern" and len(results) == 1:
            return Call("ask_user", {"question": "Which edition of Lantern?", "options": list(EDITIONS)})
        edition = results[1] if book == "Lantern" else "first"
        read = 3 if book == "Lantern" else 2
        if len(results) < read:
            wanted = f"The {edition} edition of {book}"
            (name,) = (each.ref for each in parse_fenced(results[0]) if wanted in normal(each.text))
            return Call("read_document", {"name": name, "start": 1})
        output = re.search(rf"The {edition} edition of {book} sold (\d+)", normal(results[-1]))
        assert output is not None
        name = next(iter(self._read(request)))
        summary = f"{book} sold {output[1]} copies [1]."
        cited = [{"ref": name, "place": f"the {edition} edition", "quote": fact(book, edition)}]
        if book == "Glacier":  # One that makes things up, and sticks to it.
            summary += " It was the best of its year [2]."
            cited.append({"ref": name, "place": "", "quote": "the best book of its year by far"})
        return json.dumps({"summary": summary, "citations": cited, "not_found": ["Who printed it."]})

    def coder(self, request: Request) -> Reply:
        results = list(request.tool_results.values())
        steps: list[Reply] = [
            Call("list_files"),
            Call("ask_user", {"question": "Which framework?", "options": ["Express", "FastAPI"]}),
        ]
        if len(results) < len(steps):
            return steps[len(results)]
        if len(results) == 2:
            return Call("write_file", {"path": "page.txt", "content": f"Made with {results[1]}"})
        return '{"summary": "The page is written.", "files": ["page.txt"]}'

    def _read(self, request: Request) -> Iterator[str]:
        for message in request.messages:
            for call in message.get("tool_calls") or []:
                if call["function"]["name"] == "read_document":
                    yield json.loads(call["function"]["arguments"])["name"]


def normal(text: str) -> str:
    return " ".join(text.split())


SOURCE = re.compile(r'^- \[(\d+)\] (.+?), ((?:line|page|paragraph)s? [\d-]+): "(.+)"$', re.MULTILINE)


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_archive_becomes_a_report_whose_citations_hold(tmp_path: Path) -> None:
    documents = archive(tmp_path / "archive")
    with LoopbackServer(Model()) as server:
        model = ("--model", "m", "--base-url", server.base_url, "--json")
        files = ("--docs", "archive", "--workspace", "work")
        asked = upcall("run", TASK, *files, *model).json
        open_ids = {each["question"]: each["id"] for each in asked["questions"]}
        paths = {each["question"]: each["path"] for each in asked["questions"]}
        assert paths == {"Which edition of Lantern?": ["lead", "researcher"], "Which framework?": ["lead", "coder"]}
        still = upcall("answer", asked["run_id"], f"{open_ids['Which framework?']}=FastAPI", *model).json
        assert [each["question"] for each in still["questions"]] == ["Which edition of Lantern?"]
        done = upcall("answer", asked["run_id"], f"{open_ids['Which edition of Lantern?']}=second", *model).json
        assert server.errors == []
    assert (done["status"], done["error"]) == ("completed", None)
    report = done["result"]
    sections, _, sources = report.partition("\n\nSources:\n")
    assert re.findall(r"^## (\w+)", sections, re.MULTILINE) == list(BOOKS)
    cited = SOURCE.findall(sources)
    assert [re.findall(r"The (\w+) edition", quote) for *_, quote in cited] == [
        ["first"],
        ["first"],
        ["second"],
        ["first"],
    ]
    assert [place for _, _, place, _ in cited] == ["line 1", "paragraphs 1-2", "page 1", "lines 1-3"]
    assert [int(number) for number, *_ in cited] == [1, 2, 3, 4]
    assert [Path(name).suffix for _, name, _, _ in cited] == [".html", ".docx", ".pdf", ".py"]
    for number, name, _, quote in cited:
        assert split_words(quote).joined.rstrip(" .") in split_words(documents[name]).joined, name
        assert f"[{number}]" in sections
    assert f"It was the best of its year {UNVERIFIED}." in sections
    assert "the best book of its year" not in sources.partition("Left open:")[0]
    assert "Citations: 4 checked, 4 hold" in report
    assert (tmp_path / "work" / "page.txt").read_text() == "Made with FastAPI"
    researched_at_once(server)


def researched_at_once(server: LoopbackServer) -> None:
    """Check that the lead made two calls of its model, its agents worked on one, and nothing was done twice."""
    lead = [each for each in server.requests if each.system.startswith("You are the lead ")]
    assert len(lead) == 2
    nested = [
        each for each in server.requests if each.system.startswith(("You are the researcher ", "You are the coder "))
    ]
    asked = [(str(each.messages[1]["content"]), len(each.messages)) for each in nested]
    assert len(asked) == len(set(asked))
