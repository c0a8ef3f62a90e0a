"""The report of an experiment as one self-contained HTML page: tables, plots, and its samples with their conversations.

The template escapes everything that models and users wrote, and draws the plots as SVG. All of it can be read without
scripts; the page's own script filters and sorts. The page's policy lets it run that script, by its hash, and lets it
fetch nothing.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from types import MappingProxyType

from jinja2 import Environment
from markupsafe import Markup

from upcall import identity
from upcall.experiments.arguments import read_arguments
from upcall.experiments.measures import MEASURES
from upcall.experiments.results import Results
from upcall.experiments.samples import Comparison, SampleChange, match_samples, name_entry, weigh_trial
from upcall.experiments.statistics import Estimate
from upcall.experiments.tables import (
    DIFFERENCES,
    comparison_lines,
    difference_lines,
    format_estimate,
    make_table,
    note_lines,
)
from upcall.experiments.what_if import branch_lines, value_questions
from upcall.html_templates import load_templates
from upcall.text import escape_controls, replace_surrogates
from upcall.ui.markdown_html import markdown_html

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#000000")
"""Colours that are distinguished by those who see few (Okabe and Ito); a cell has its number beside it, too."""


CUTS = (4_000, 2_000, 1_000, 500, 200)
"""After how many characters a message may be cut; the first with which all of them fit."""

MAX_PAGE_CHARS = 8_000_000
"""How many characters of messages a page holds, unless the shortest cut needs more."""


@dataclass(frozen=True)
class Point:
    """A cell in a plot, with its intervals; all values are fractions of the plot's width and height."""

    number: int
    label: str
    colour: str
    x: Estimate
    y: Estimate


@dataclass(frozen=True)
class Plot:
    """A plot of two measures."""

    title: str
    x_title: str
    y_title: str
    points: Sequence[Point]

    @property
    def x_max(self) -> float:
        """The end of its axis: the largest point, or 1 for shares."""
        return max(1.0, *(each.x.high or 0 for each in self.points))

    @property
    def y_max(self) -> float:
        """See `x_max`."""
        return max(1.0, *(each.y.high or 0 for each in self.points))

    def at_x(self, value: float) -> float:
        """Return where a value is, in the units of the drawing."""
        return round(50 + 290 * value / self.x_max, 2)

    def at_y(self, value: float) -> float:
        """Return where a value is, in the units of the drawing, from the top."""
        return round(210 - 190 * value / self.y_max, 2)


def render_page(results: Results, other: Results | None = None, links: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the page, optionally beside another experiment, sample by sample; with links to other pages, by what they
    are called."""
    cells = list(results.cells)
    compared = sort_comparisons(match_samples(results.samples, other.samples if other is not None else ()))
    return _templates().get_template("report.html").render(
        results=results,
        now=f"{identity.now():%Y-%m-%d %H:%M:%S} UTC",
        other=other,
        names=[cell.name for cell in cells],
        colours=[_colour(at) for at in range(len(cells))],
        measures=MEASURES,
        table=[[format_estimate(results.cells[cell][each.name], each) for each in MEASURES] for cell in cells],
        sizes=[len(results.of_cell(cell)) for cell in cells],
        plots=list(_plots(results)),
        differences=difference_lines(results),
        compared_lines=comparison_lines(results.compare(other), other.name)[2:] if other is not None else [],
        questions=value_questions(results.branches),
        samples=compared,
        only_there=len(other.samples) - sum(each.other is not None for each in compared) if other is not None else 0,
        changes=Counter(each.change for each in compared),
        columns=[name for name in ("team", "policy", "model", "seed") if name == "policy" or _differs(results, name)],
        has_prices=any(each.money for each in results.records),
        most=_choose_cut(compared),
        link=link_run,
        links=links,
        script=Markup(_script()),
        policy=page_policy(),
    )  # fmt: skip


def page_policy() -> str:
    """Return the Content-Security-Policy of the page: it runs its own script, by its hash, and fetches nothing."""
    script_hash = b64encode(sha256(_script().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{script_hash}'"


@cache
def _script() -> str:
    return files("upcall.experiments").joinpath("templates/report.js").read_text("utf-8")


def sort_comparisons(compared: Sequence[Comparison]) -> list[Comparison]:
    """Sort samples: first those that are worse than in the other experiment, and those that say the most."""
    order = list(SampleChange)
    return sorted(compared, key=lambda each: (order.index(each.change), -weigh_trial(each.sample.record)[0]))


def _differs(results: Results, name: str) -> bool:
    return len({getattr(each, name) for each in results.records}) > 1


def _choose_cut(compared: Sequence[Comparison]) -> int:
    """Return after how many characters a message is cut, so that a page of many samples still opens."""
    samples = [one for each in compared for one in (each.sample, each.other) if one is not None]
    lengths = [len(entry.text) for each in samples for entry in each.entries]
    fits = (most for most in CUTS if sum(min(length, most) for length in lengths) <= MAX_PAGE_CHARS)
    return next(fits, CUTS[-1])


def render_table(results: Results) -> str:
    """Return the measures and differences as HTML for a notebook, which has its own styles for tables."""
    return _templates().get_template("notebook.html").render(
        notes=note_lines(results),
        table=make_table(results),
        heading=DIFFERENCES,
        differences=difference_lines(results),
        branches=branch_lines(results.branches) if results.branches else [],
    )  # fmt: skip


def _plots(results: Results) -> Sequence[Plot]:
    """Return the frontier of success against questions, and the plot of questions against missing details."""
    titles = {each.name: each.title for each in MEASURES}
    plots = []
    for x, y, title in (
        ("questions", "success", "Success against questions"),
        ("needless", "hits", "Missing details hit against needless questions"),
        ("tokens", "success", "Success against tokens"),
    ):
        points = [
            Point(at + 1, cell.name, _colour(at), of[x], of[y])
            for at, (cell, of) in enumerate(results.cells.items())
            if of[x].value is not None and of[y].value is not None
        ]
        plots += [Plot(title, titles[x], titles[y], points)] if points else []
    return [*plots, *_calibration(results)]


def _calibration(results: Results) -> Sequence[Plot]:
    """Return how many questions were asked by number of missing details: equally many on the diagonal."""
    points = []
    for at, cell in enumerate(results.cells):
        records = results.of_cell(cell)
        for missing in sorted({each.missing for each in records}):
            of = [each.questions for each in records if each.missing == missing]
            mean, exact = sum(of) / len(of), float(missing)
            x, y = Estimate(exact, exact, exact), Estimate(mean, mean, mean)
            points.append(Point(at + 1, f"{cell.name}, {len(of)} trials", _colour(at), x, y))
    plot = Plot("Questions against what is missing", "missing details", "questions asked", points)
    return [plot] if points else []


def _colour(at: int) -> str:
    return COLOURS[at % len(COLOURS)]


@cache
def _templates() -> Environment:
    return load_templates(
        "upcall.experiments",
        plain=escape_controls,
        number=lambda value: f"{value:,.4g}",
        markdown=lambda text: Markup(markdown_html(text)),
        arguments=_indent_json,
        who=name_entry,
        why=lambda record: weigh_trial(record)[1],
    )


def _indent_json(text: str) -> str:
    """Return the arguments of a call with a line each; a text that is no JSON, or nested too deep, as it is."""
    try:
        return replace_surrogates(json.dumps(read_arguments(text), indent=2, ensure_ascii=False))
    except ValueError:
        return text


def link_run(results: Results, run_id: str) -> str | None:
    """Return the address of a run's page; None if the address of the pages is missing or invalid."""
    pages = results.pages or ""
    return f"{pages.rstrip('/')}/runs/{run_id}" if pages.startswith("http") else None
