"""Experiments that were run before: where their results are, and their pages in a browser."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from upcall.added_pages import AddedPage, PageEntry
from upcall.errors import ConfigurationError, UpcallError
from upcall.experiments.settings import ExperimentsSettings
from upcall.text import first_line

if TYPE_CHECKING:
    from upcall.experiments.experiment import Experiment
    from upcall.experiments.results import Results
    from upcall.settings import Settings

BESIDE = "beside"
"""The parameter of a page's address that names another experiment, to be shown beside this one."""


def read_stored(file: Path, store: str | None = None) -> Experiment:
    """Read an experiment, and find its results: where its own start keeps them, which is the current folder, or that
    of its file.

    Args:
        file: its YAML file.
        store: the store of its runs, instead of the one that it names.

    Raises:
        ConfigurationError: there are none.
    """
    from upcall.experiments.experiment import Experiment

    found = Experiment.read(file, imports=False)
    found = found.model_copy(update={"store": store}) if store else found
    if found.store is not None and "://" in found.store:
        return found
    places = dict.fromkeys([found.home, file.parent / found.home])
    for place in places:
        at = file.parent / found.store if found.store and place != found.home else found.store
        if (Path(at) if at else place / "runs.db").exists():
            return found.model_copy(update={"folder": place, "store": str(at) if at else None})
    looked = " and ".join(str(each) for each in places)
    raise ConfigurationError(
        f"There are no results of {found.name}: no runs in {looked}. Run it first: upcall experiment {file}"
    )


def make_pages(settings: Settings) -> StoredExperiments | None:
    """Make the pages of the experiments that the settings name; None if they name none.

    Raises:
        ConfigurationError: two files have the same name.
    """
    files = settings.section(ExperimentsSettings).files
    by_name = {each.stem: each for each in files}
    if twice := [each for each in files if by_name[each.stem] != each]:
        raise ConfigurationError(f"experiments.files: {twice[0]} and {by_name[twice[0].stem]} have the same name.")
    return StoredExperiments(by_name) if files else None


class StoredExperiments:
    """Experiments as pages: the samples of one with their conversations, also beside those of another one.

    One is loaded at a time: it reads all runs. The page that was shown last is kept, because what is under way is
    looked at again and again.
    """

    title = "Experiments"

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files
        self._turn = asyncio.Lock()
        self._shown: tuple[object, AddedPage] | None = None

    async def list(self) -> Sequence[PageEntry]:
        """See `AddedPages`."""
        return [PageEntry(name, await asyncio.to_thread(_describe, file)) for name, file in self._files.items()]

    async def render(self, name: str, address: str, query: Mapping[str, str]) -> AddedPage | None:
        """See `AddedPages`."""
        beside = query.get(BESIDE)
        if name not in self._files or (beside is not None and beside not in self._files):
            return None
        from upcall.experiments.page import page_policy, render_page

        links = {"All experiments": address}
        for other in self._files.keys() - {name, beside}:
            links[f"Beside {other}"] = f"{address}/{quote(name, '')}?{urlencode({BESIDE: other})}"
        async with self._turn:
            results = await self._load(name)
            compared = await self._load(beside) if beside is not None else None
            parts = [(each.name, each.records, each.progress, each.broken) for each in (results, compared) if each]
            if self._shown is None or self._shown[0] != (links, parts):
                html = await asyncio.to_thread(render_page, results, compared, links)
                self._shown = (links, parts), AddedPage(html, page_policy())
            return self._shown[1]

    async def _load(self, name: str) -> Results:
        from upcall.experiments.folder import is_held
        from upcall.experiments.progress import ExperimentProgress

        experiment = await asyncio.to_thread(read_stored, self._files[name])
        results = await experiment.load()
        if not await asyncio.to_thread(is_held, experiment.home):
            return results
        failed = sum(each.status == "failed" for each in results.records)
        done, total = len(results.records), results.total
        return replace(results, progress=ExperimentProgress(done, total, failed, results.cost, results.to_come))


def _describe(file: Path) -> str:
    try:
        found = read_stored(file)
    except UpcallError as error:
        return first_line(error)
    parts = {"task": found.all_tasks, "team": found.teams, "policy": found.policies, "model": found.models}
    return f"{', '.join(_count(name, len(each)) for name, each in parts.items())}: {len(found.trials)} trials"


def _count(name: str, number: int) -> str:
    many = f"{name.removesuffix('y')}ies" if name.endswith("y") else f"{name}s"
    return f"{number} {name if number == 1 else many}"
