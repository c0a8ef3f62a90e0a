"""The results as tables of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from upcall.experiments.measures import MEASURES, Measure
from upcall.experiments.trial import Cell
from upcall.experiments.what_if import branch_lines

if TYPE_CHECKING:
    from upcall.experiments.results import Results
    from upcall.experiments.statistics import Difference, Estimate


DIFFERENCES = "Differences on the same tasks, 95 % interval, p by permutation:"


@dataclass(frozen=True)
class ResultTable:
    """The measures of the cells, as text.

    Attributes:
        heads: the names of the columns.
        rows: a row for each cell.
        names: how many columns, the first ones, name the cell.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: int

    def as_lines(self, width: int | None = None) -> list[str]:
        """Return a line for each cell; where that is wider than `width`, a line for each measure, with a column for
        each cell."""
        lines = format_table([self.heads, *self.rows], names=self.names)
        if width is None or max(map(len, lines)) <= width:
            return lines
        return format_table([*zip(self.heads, *self.rows, strict=True)], names=1)


def make_table(results: Results) -> ResultTable:
    """Return the measures that say anything, of all cells."""
    shown = [each for each in MEASURES if each.in_table and _is_known(results, each)]
    names = _heads(results)
    rows = [
        [*_select(cell, names), str(len(results.of_cell(cell))), *(format_estimate(of[m.name], m) for m in shown)]
        for cell, of in results.cells.items()
    ]
    return ResultTable([*names, "trials", *(each.title for each in shown)], rows, len(names))


def result_lines(results: Results, width: int | None = None) -> list[str]:
    """Return a line per cell with its measures, then how the policies differ; a column per cell in a narrow terminal of
    `width` characters."""
    lines, table = note_lines(results), make_table(results)
    if table.rows:
        lines += ["", *table.as_lines(width)]
    if results.differences:
        lines += ["", DIFFERENCES, *difference_lines(results)]
    return [*lines, *branch_lines(results.branches)] if results.branches else lines


def note_lines(results: Results) -> list[str]:
    """Return how much is done, at what cost, and what was left out or cut off."""
    lines = [f"{results.name}: {len(results.records)} of {results.total} trials, {results.cost.to_text()}"]
    if results.stopped:
        lines.append(results.stopped)
    lines += [f"Team {team} is left out: {why}" for team, why in results.broken.items()]
    if cut := sum(each.cut_off for each in results.records):
        lines.append(f"{cut} trials were cut off at a limit, so their results are unfinished; their notes give it.")
    return lines


def difference_lines(results: Results) -> list[str]:
    """Return the differences between each pair of policies that are not due to chance."""
    lines = []
    names = [each for each in _heads(results) if each != "policy"]
    for (one, other), of in results.differences.items():
        named = ", ".join(_select(other, names))
        differing = [
            f"{m.title} {format_difference(of[m.name], m)}" for m in MEASURES if m.name in of and of[m.name].is_sure
        ]
        where = f" ({named})" if named else ""
        lines.append(f"  {other.policy} - {one.policy}{where}: {'; '.join(differing) or 'nothing beyond chance'}")
    return lines


def comparison_lines(of: Mapping[Cell, Mapping[str, Difference]], other: str) -> list[str]:
    """Return how the cells differ from those of another experiment."""
    lines = ["", f"Against {other}, on the same tasks:"]
    for cell, differences in of.items():
        differing = [f"{m.title} {format_difference(differences[m.name], m)}" for m in MEASURES if m.name in differences
                and differences[m.name].estimate.value is not None and m.in_table]  # fmt: skip
        lines.append(f"  {cell.name}: {'; '.join(differing) or 'no task in common'}")
    return lines if of else [*lines, "  no team, policy and model of the same names"]


def format_estimate(estimate: Estimate, measure: Measure) -> str:
    """Render a value with its interval: ``0.57 [0.48, 0.65]``."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "-"
    value, low, high = (f"{each:.{measure.digits}f}" for each in (estimate.value, estimate.low, estimate.high))
    return value if low == high else f"{value} [{low}, {high}]"


def format_difference(difference: Difference, measure: Measure) -> str:
    """Render a difference: ``+0.12 [0.03, 0.20], p 0.004``."""
    estimate = difference.estimate
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "-"
    low, high = (f"{each:+.{measure.digits}f}" for each in (estimate.low, estimate.high))
    p = "" if difference.p is None else ", p < 0.001" if difference.p < 0.001 else f", p {difference.p:.3f}"
    return f"{estimate.value:+.{measure.digits}f} [{low}, {high}]{p}"


def format_table(rows: Sequence[Sequence[str]], names: int) -> list[str]:
    """Return rows in columns of the required width: first columns of names, then numbers, aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    forms = [f"{'<' if at < names else '>'}{width}" for at, width in enumerate(widths)]
    return ["  ".join(format(cell, form) for cell, form in zip(row, forms, strict=True)) for row in rows]


def _is_known(results: Results, measure: Measure) -> bool:
    """Whether a measure says anything: nothing costs money without prices, nothing succeeds without expectations."""
    values = [of[measure.name].value for of in results.cells.values()]
    return any(values) if measure.name in ("money", "seconds") else any(value is not None for value in values)


def _heads(results: Results) -> list[str]:
    """Name the columns that distinguish cells; the policy always."""
    return [
        name for name in Cell._fields if name == "policy" or len({getattr(cell, name) for cell in results.cells}) > 1
    ]


def _select(cell: Cell, names: Sequence[str]) -> list[str]:
    return [getattr(cell, name) for name in names]


def comparison_json(of: Mapping[Cell, Mapping[str, Difference]], other: str) -> dict[str, object]:
    """Return how the cells differ from those of another experiment, as plain JSON."""
    cells = [
        {"cell": list(cell), "measures": {name: each.as_json() for name, each in found.items()}}
        for cell, found in of.items()
    ]
    return {"other": other, "cells": cells}
