"""The report of an experiment: a page that needs nothing else, and the command that writes it."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from trial_world import experiment, task

from upcall.experiments.highlights import TRANSCRIPTS, choose_highlights
from upcall.experiments.results import Results
from upcall.experiments.tables import format_table

HOSTILE = "<script>alert(1)</script>\x1b[31m"


class Tags(HTMLParser):
    """Collects what a page is made of."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]


async def page_of(results: Results, path: Path) -> str:
    results.write(str(path / "report.html"))
    return (path / "report.html").read_text()


async def test_page_needs_nothing_else_and_links_each_run(tmp_path: Path) -> None:
    results = await experiment(4, pages="http://127.0.0.1:8000/").run(what_if=True)
    page = await page_of(results, tmp_path)
    tags = Tags(page)
    assert {f"http://127.0.0.1:8000/runs/{each.trial}" for each in results.records} == {*tags.links}
    assert not {"script", "link", "img", "iframe"} & {*tags.tags}
    assert tags.tags.count("svg") == 4
    assert "Which questions mattered" in page
    assert "0.50 [0.00, 1.00]" in page


def test_numbers_of_a_table_stand_to_the_right() -> None:
    rows = [["policy", "trials"], ["never", "4"], ["budget 1", "16"]]
    assert format_table(rows, names=1) == ["policy    trials", "never          4", "budget 1      16"]


async def test_narrow_terminal_gets_a_column_a_policy() -> None:
    results = await experiment(4, policies=["always", "never"]).run()
    wide, narrow = results.lines(), results.lines(80)
    assert any(line.startswith("always") for line in wide)
    [heads] = [line.split() for line in narrow if line.startswith("policy")]
    assert heads == ["policy", "always", "never"]
    assert [line.split() for line in narrow if line.startswith("trials")] == [["trials", "4", "4"]]
    assert (
        max(map(len, narrow[: narrow.index("Differences on the same tasks, 95 % interval, p by permutation:")])) <= 80
    )
    assert results.lines(500) == wide


async def test_notebook_gets_a_table_with_a_row_a_policy() -> None:
    results = await experiment(4, policies=["always", "never"]).run(what_if=True)
    shown = results._repr_html_()
    assert Tags(shown).tags.count("tr") == 3
    assert '<th scope="row" style="text-align:left">always</th>' in shown
    assert "Differences on the same tasks" in shown
    assert "What if the answer had been another one" in shown


async def test_what_was_written_is_escaped(tmp_path: Path) -> None:
    tasks = [task(0).model_copy(update={"id": HOSTILE, "task": f"Write it {HOSTILE}"})]
    page = await page_of(await experiment(tasks=tasks).run(), tmp_path)
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page


async def test_names_in_a_notebooks_table_are_escaped() -> None:
    results = await experiment(
        2, policies=["always", {"name": HOSTILE, "settings": {"questions": {"unattended": True}}}]
    ).run()
    assert "&lt;script&gt;" in results._repr_html_()
    assert "<script>" not in results._repr_html_()
    assert "\x1b" not in results._repr_html_()


async def test_transcripts_shown_first_are_those_that_failed() -> None:
    results = await experiment(8).run()
    chosen = choose_highlights(results.records)
    assert len(chosen) == len(results.highlights) == TRANSCRIPTS
    assert chosen[0][1] == "a wrong assumption spoiled it"
    assert len({record.task for record, _ in chosen[:5]}) == 5
    assert any(who == "coder asks" for who, _ in results.highlights[0].entries)


async def test_two_experiments_are_compared_on_their_common_tasks() -> None:
    one = await experiment(4, policies=["always", "never"]).run()
    other = await experiment(6, policies=["always"], name="other", user={"unknown": 1}).run()
    differences = one.compare(other)["solo", "always", "script"]
    assert differences["success"].estimate.value == 1
    assert differences["success"].p is not None
    assert one.compare(one)["solo", "never", "script"]["success"].estimate.value == 0
