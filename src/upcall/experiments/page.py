"""The report of an experiment as one self-contained HTML page: tables, plots, transcripts.

The template escapes everything that models and users said, and draws the plots as SVG.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial

from jinja2 import Environment

from upcall.experiments.measures import MEASURES
from upcall.experiments.results import Results
from upcall.experiments.statistics import Estimate
from upcall.experiments.tables import DIFFERENCES, difference_lines, format_estimate, make_table, note_lines
from upcall.experiments.what_if import branch_lines, value_questions
from upcall.html_templates import load_templates
from upcall.text import escape_controls

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#000000")
"""Colours that are distinguished by those who see few (Okabe and Ito); a cell has its number beside it, too."""


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


def render_page(results: Results) -> str:
    """Return the page."""
    cells = list(results.cells)
    return _templates().get_template("report.html").render(
        results=results,
        names=[cell.name for cell in cells],
        colours=[_colour(at) for at in range(len(cells))],
        measures=MEASURES,
        table=[[format_estimate(results.cells[cell][each.name], each) for each in MEASURES] for cell in cells],
        sizes=[len(results.of_cell(cell)) for cell in cells],
        plots=list(_plots(results)),
        differences=difference_lines(results),
        questions=value_questions(results.branches),
        highlights=results.highlights,
        link=partial(link_run, results),
    )  # fmt: skip


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
    return load_templates("upcall.experiments", plain=escape_controls, number=lambda value: f"{value:,.4g}")


def link_run(results: Results, run_id: str) -> str | None:
    """Return the address of a run's page; None if the address of the pages is missing or invalid."""
    pages = results.pages or ""
    return f"{pages.rstrip('/')}/runs/{run_id}" if pages.startswith("http") else None
