"""The report of an experiment: a page that needs nothing else, and the command that writes it."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest
from trial_world import experiment, reply, task

from upcall.errors import ConfigurationError
from upcall.experiments.page import sort_comparisons
from upcall.experiments.results import Results
from upcall.experiments.samples import SampleChange, match_samples, name_entry, weigh_trial
from upcall.experiments.tables import format_table
from upcall.runs.transcript import EntryKind, TranscriptEntry

HOSTILE = "<script>alert(1)</script>\x1b[31m"


class Tags(HTMLParser):
    """Collects what a page is made of."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.policy = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name == "href"]
        self.sources += [value or "" for name, value in attrs if name in ("src", "srcset", "action", "data", "poster")]
        if ("http-equiv", "Content-Security-Policy") in attrs:
            self.policy = dict(attrs)["content"] or ""


def with_call(results: Results, arguments: str) -> Results:
    """Return results whose only sample is a tool call."""
    sample = results.samples[0]
    call = TranscriptEntry(EntryKind.CALL, ("coder",), sample.entries[0].at, arguments, "save")
    return replace(results, samples=[replace(sample, entries=[call])])


async def page_of(results: Results, path: Path) -> str:
    results.write(str(path / "report.html"))
    return (path / "report.html").read_text()


async def test_page_needs_nothing_else_and_links_each_run(tmp_path: Path) -> None:
    results = await experiment(4, pages="http://127.0.0.1:8000/").run(what_if=True)
    page = await page_of(results, tmp_path)
    tags = Tags(page)
    runs = {f"http://127.0.0.1:8000/runs/{each.trial}" for each in results.records}
    assert {each for each in tags.links if not each.startswith("#")} == runs
    assert not {"link", "img", "iframe", "object", "embed", "base"} & {*tags.tags}
    assert not tags.sources
    assert "default-src 'none'" in tags.policy
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
    assert Tags(page).tags.count("script") == 1  # The page's own.
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page


async def test_script_of_the_page_is_the_only_one_allowed(tmp_path: Path) -> None:
    page = await page_of(await experiment(1).run(), tmp_path)
    [script] = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    allowed = b64encode(sha256(script.encode()).digest()).decode()
    assert Tags(page).policy.endswith(f"script-src 'sha256-{allowed}'")


async def test_page_has_each_conversation_and_the_reason(tmp_path: Path) -> None:
    results = await experiment(4).run()
    page = await page_of(results, tmp_path)
    for record in results.records:
        [sample] = re.findall(rf'<article class="sample" id="s-{record.trial}".*?</article>', page, re.DOTALL)
        assert "exactly: Written:" in sample
        assert sample.count('<li class="question"') == sample.count('<li class="answer"') > 0
        assert f'<strong class="{"right" if record.success else "wrong"}">' in sample


async def test_tool_calls_of_nested_agents_are_folded(tmp_path: Path) -> None:
    results = await experiment(1, policies=["never"]).run()
    place, at = ("lead", "coder"), results.samples[0].entries[0].at
    entries = [
        TranscriptEntry(EntryKind.CALL, place, at, '{"path": "a.py"}', "write_file"),
        TranscriptEntry(EntryKind.RESULT, place, at, f"no such folder {HOSTILE}", "write_file", failed=True),
        TranscriptEntry(EntryKind.MESSAGE, place, at, f"It is **not** done. {HOSTILE} ![](http://127.0.0.1/a.png)"),
    ]
    changed = replace(results, samples=[replace(results.samples[0], entries=entries)])
    page = await page_of(changed, tmp_path)
    assert (
        "<details><summary><b>lead &gt; coder calls write_file</b> {&#34;path&#34;: &#34;a.py&#34;}</summary>" in page
    )
    assert "<b>lead &gt; coder gets from write_file, failed</b> no such folder &lt;script&gt;" in page
    assert "It is <strong>not</strong> done. &lt;script&gt;" in page
    assert not {"img", "iframe"} & {*Tags(page).tags}
    assert Tags(page).tags.count("script") == 1


async def test_long_message_is_cut_where_the_page_says(tmp_path: Path) -> None:
    results = await experiment(1, models={"long": lambda request: "word " * 2_000}, policies=["never"]).run()
    page = await page_of(results, tmp_path)
    assert "A message is cut after 4,000 characters" in page
    assert f"6,000 more characters in run {results.records[0].trial}" in page
    assert f"upcall transcript RUN --store {results.store}" in page


async def test_page_without_samples_is_refused(tmp_path: Path) -> None:
    results = await experiment(1).run(samples=False)
    with pytest.raises(ConfigurationError, match="loaded without: samples=True"):
        results.write(tmp_path / "report.html")
    results.write(tmp_path / "rows.csv")


async def test_samples_of_two_experiments_are_matched(tmp_path: Path) -> None:
    here = await experiment(4, policies=["always", "never"]).run()
    there = await experiment(4, policies=["always"], name="other", user={"unknown": 1}, models={"b": reply}).run()
    compared = match_samples(here.samples, there.samples)
    changes = {(each.sample.record.task, each.sample.record.policy): each.change for each in compared}
    assert {changes[f"task-{at}", "never"] for at in range(4)} == {SampleChange.UNMATCHED}
    assert changes["task-1", "always"] is SampleChange.BETTER
    [back] = [each for each in match_samples(there.samples, here.samples) if each.sample.record.task == "task-1"]
    assert back.change is SampleChange.WORSE
    here.write(tmp_path / "report.html", compared=there)
    assert "Against other: " in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("depth", [500, 1_500])
async def test_page_shows_arguments_nested_too_deep_as_text(tmp_path: Path, depth: int) -> None:
    deep = "[" * depth + "]" * depth
    page = await page_of(with_call(await experiment(1, policies=["never"]).run(), deep), tmp_path)
    assert f"<pre>{deep}</pre>" in page


async def test_page_shows_half_a_character_as_question_mark(tmp_path: Path) -> None:
    results = await experiment(1, policies=["never"]).run()
    page = await page_of(with_call(results, '{"name": "a\\ud800"}'), tmp_path)
    assert "&#34;name&#34;: &#34;a?&#34;" in page


async def test_report_that_cannot_be_written_leaves_the_earlier_one(tmp_path: Path) -> None:
    results, path = await experiment(2, policies=["never"]).run(), tmp_path / "reports" / "rows.csv"
    results.write(path)
    earlier = path.read_bytes()
    half = results.records[1].model_copy(update={"note": "\ud800"})
    with pytest.raises(ConfigurationError, match=r"rows\.csv cannot be written: .*surrogates not allowed"):
        replace(results, records=[results.records[0], half]).write(path)
    assert (path.read_bytes(), [*path.parent.iterdir()]) == (earlier, [path])


async def test_names_in_a_notebooks_table_are_escaped() -> None:
    results = await experiment(
        2, policies=["always", {"name": HOSTILE, "settings": {"questions": {"unattended": True}}}]
    ).run()
    assert "&lt;script&gt;" in results._repr_html_()
    assert "<script>" not in results._repr_html_()
    assert "\x1b" not in results._repr_html_()


async def test_samples_shown_first_are_those_that_failed() -> None:
    results = await experiment(8).run()
    first, *_ = sort_comparisons(match_samples(results.samples, ()))
    assert weigh_trial(first.sample.record)[1] == "a wrong assumption spoiled it"
    assert any(name_entry(entry) == "coder asks" for entry in first.sample.entries)


async def test_two_experiments_are_compared_on_their_common_tasks() -> None:
    one = await experiment(4, policies=["always", "never"]).run()
    other = await experiment(6, policies=["always"], name="other", user={"unknown": 1}).run()
    differences = one.compare(other)["solo", "always", "script"]
    assert differences["success"].estimate.value == 1
    assert differences["success"].p is not None
    assert one.compare(one)["solo", "never", "script"]["success"].estimate.value == 0
