"""The results of an experiment: a row per trial, the measures of each cell, and how the policies differ."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upcall.errors import ConfigurationError, missing_extra
from upcall.experiments.budget import Cost
from upcall.experiments.progress import ExperimentProgress
from upcall.experiments.records import TrialRecord
from upcall.experiments.samples import Sample
from upcall.experiments.trial import Cell
from upcall.experiments.what_if import Branch, branches_json
from upcall.text import first_line

if TYPE_CHECKING:
    import pandas as pd

    from upcall.experiments.statistics import Difference, Estimate


@dataclass(frozen=True)
class Results:
    """The results of an experiment so far.

    Attributes:
        name: the experiment's name.
        total: how many trials it has.
        records: a row for each trial that is done, in the order of the trials.
        cost: the total cost.
        to_come: the cost of the rest if it is similar; None if unknown.
        requested: replies that were requested from models in this call.
        found: replies that were recorded before.
        stopped: why it stopped before its end.
        pages: the address of the runs' pages.
        branches: the effect of other answers, if requested.
        samples: the trials that are done with their conversations, if requested.
        store: the store of the runs, by the name that commands take.
        progress: how far it is, while it runs; None for the results of a call that has ended.
        broken: why trials of a team were left out, by the team's name: it cannot be built.
    """

    name: str
    total: int
    records: Sequence[TrialRecord]
    cost: Cost
    to_come: Cost | None = None
    requested: int = 0
    found: int = 0
    stopped: str | None = None
    pages: str | None = None
    branches: Sequence[Branch] = ()
    samples: Sequence[Sample] = ()
    store: str = ""
    progress: ExperimentProgress | None = None
    broken: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def cells(self) -> Mapping[Cell, Mapping[str, Estimate]]:
        """The measures by team, policy and model."""
        from upcall.experiments.statistics import estimate_all

        return {cell: estimate_all(self.of_cell(cell)) for cell in dict.fromkeys(each.cell for each in self.records)}

    @cached_property
    def differences(self) -> Mapping[tuple[Cell, Cell], Mapping[str, Difference]]:
        """How each pair of policies differs with the same team and model, the second minus the first."""
        from upcall.experiments.statistics import compare_all

        return {
            (one, other): compare_all(self.of_cell(other), self.of_cell(one))
            for one, other in combinations(self.cells, 2)
            if one.team == other.team and one.model == other.model
        }

    def of_cell(self, cell: Cell) -> Sequence[TrialRecord]:
        """Return the rows of one team, policy and model."""
        return [each for each in self.records if each.cell == cell]

    def compare(self, other: Results) -> Mapping[Cell, Mapping[str, Difference]]:
        """Return how cells differ from those of the same name in another experiment, these minus those."""
        from upcall.experiments.statistics import compare_all

        return {
            cell: compare_all(self.of_cell(cell), other.of_cell(cell)) for cell in self.cells if cell in other.cells
        }

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return {
            "experiment": self.name,
            "trials": self.total,
            "done": len(self.records),
            "failed": sum(each.status == "failed" for each in self.records),
            "cut_off": sum(each.cut_off for each in self.records),
            "broken": dict(self.broken),
            "cost": self.cost.model_dump(),
            "to_come": None if self.to_come is None else self.to_come.model_dump(),
            "replies": {"requested": self.requested, "recorded": self.found},
            "stopped": self.stopped,
            **self.figures(),
            **({"what_if": branches_json(self.branches)} if self.branches else {}),
        }

    def figures(self) -> dict[str, Any]:
        """Return the measures and differences as plain JSON, which a replay reproduces bit for bit."""
        return {
            "cells": [
                {
                    **cell._asdict(),
                    "trials": len(self.of_cell(cell)),
                    "measures": {name: vars(each) for name, each in of.items()},
                }
                for cell, of in self.cells.items()
            ],
            "differences": [
                {
                    **one._asdict(),
                    "than": one.policy,
                    "policy": other.policy,
                    "measures": {name: each.as_json() for name, each in of.items()},
                }
                for (one, other), of in self.differences.items()
            ],
        }  # fmt: skip

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame, one row per trial.

        Raises:
            ConfigurationError: pandas is not installed.
        """
        require_packages("pandas")
        import pandas as pd

        return pd.DataFrame([each.model_dump() for each in self.records], columns=list(TrialRecord.model_fields))

    def write(self, path: Path | str, *, compared: Results | None = None) -> None:
        """Write the rows as CSV or Parquet, the report as an HTML page, or a log for ``inspect view`` (``.eval``),
        depending on the file's extension. The page shows the samples beside those of the experiment that it is
        `compared` with.

        Raises:
            ConfigurationError: it has another extension, cannot be written, or shows samples that were not loaded.
        """
        path = Path(path)
        check_report(path, str(path))
        if REPORTS[path.suffix].has_samples and len(self.samples) < len(self.records):
            raise ConfigurationError(f"{path} shows the samples, and these results were loaded without: samples=True.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _write_beside(path) as written:
                REPORTS[path.suffix].write(self, written, compared)
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}.") from error
        except (ValueError, RecursionError) as error:  # Something in it that its format cannot hold.
            raise ConfigurationError(f"{path} cannot be written: {first_line(error)}") from error

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from upcall.experiments.page import render_table

        return render_table(self)

    def lines(self, width: int | None = None) -> list[str]:
        """Return the tables for a terminal of `width` characters; None for one without limits."""
        from upcall.experiments.tables import result_lines

        return result_lines(self, width)


@contextmanager
def _write_beside(path: Path) -> Iterator[Path]:
    """Give a file to write, which takes the place of a report once it is whole: whoever opens the report meanwhile, or
    after an error, sees the earlier one."""
    path = path.resolve()
    written = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield written
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)


def _write_page(results: Results, path: Path, compared: Results | None) -> None:
    from upcall.experiments.page import render_page

    path.write_text(render_page(results, compared), encoding="utf-8")


def _write_csv(results: Results, path: Path, compared: Results | None) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(TrialRecord.model_fields))
        writer.writeheader()
        writer.writerows(each.model_dump() for each in results.records)


def _write_parquet(results: Results, path: Path, compared: Results | None) -> None:
    results.to_frame().to_parquet(path, index=False)


def _write_log(results: Results, path: Path, compared: Results | None) -> None:
    from upcall.experiments.inspect_log import write_log

    write_log(results, path)


@dataclass(frozen=True)
class ReportKind:
    """How to write results to a file, beside those compared with where it shows them, and the packages required, which
    the `extra` brings. One that is live is also written while the experiment runs."""

    write: Callable[[Results, Path, Results | None], None]
    needs: tuple[str, ...]
    has_samples: bool = False
    is_live: bool = False
    extra: str = "experiments"


REPORTS: Mapping[str, ReportKind] = {
    ".html": ReportKind(_write_page, ("numpy",), has_samples=True, is_live=True),
    ".csv": ReportKind(_write_csv, ()),
    ".eval": ReportKind(_write_log, ("inspect_ai",), has_samples=True, extra="inspect"),
    ".parquet": ReportKind(_write_parquet, ("pandas", "pyarrow")),
}
"""The kinds of reports, by the ending of the file."""


def check_report(path: Path, named: str) -> None:
    """Refuse a file that cannot become a report, and say how it was `named`.

    Raises:
        ConfigurationError: its extension is unknown, or a required package is not installed.
    """
    kind = REPORTS.get(path.suffix)
    if kind is None:
        *others, last = REPORTS
        raise ConfigurationError(f"{named}: it ends with none of {', '.join(others)} and {last}.")
    require_packages(*kind.needs, extra=kind.extra)


def require_packages(*packages: str, extra: str = "experiments") -> None:
    """Refuse to continue without packages of an extra.

    Raises:
        ConfigurationError: one of them cannot be loaded.
    """
    for package in packages:
        try:
            import_module(package)
        except ImportError as error:
            raise missing_extra(f"{package} cannot be loaded ({first_line(error)})", extra) from error
