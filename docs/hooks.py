"""What mkdocs does beside writing pages: pictures of a real run, and files that are not in `docs/`.

Pictures: ``<!-- picture: timeline -->`` (or ``tree``, ``team``) in a page becomes that picture of the run that `played`
makes, ``<!-- picture: recording -->`` a terminal session (see `recording.py`).
Nothing of it is kept: each build draws it anew.
"""

from __future__ import annotations

import re
import sys
import time
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from upcall import Settings, Upcall, run_sync
from upcall.ui.diagrams import team_svg, timeline, tree

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_PICTURE = re.compile(r"<!-- picture: (\w+) -->")
_LINK_OUT = re.compile(r"\]\((\.\./[^)#\s]+)\)")
_BOOSTS = {
    "guides/": 4.0,
    "start.md": 3.0,
    "settings.md": 3.0,
    "reference/": 1.5,
    "architecture": 0.3,
    "decisions/": 0.1,
    "contributing/": 0.1,
    "changelog.md": 0.1,
    "requirements.md": 0.1,
    "benchmarks.md": 0.5,
    "coming-from/autogen-bugs.md": 0.3,
    "coming-from/autogen-shelf.md": 0.5,
    "glossary.md": 0.5,
}
"""How much a page counts in the search, by the beginning of its path: who searches wants to do something first, and to
know how it came about last."""
_SECONDS = 2.0
"""How long the human of `played` takes to answer: enough to be seen as a wait."""


@cache
def played() -> dict[str, str]:
    """Return the pictures of a run of the demo, by name: it is started and answered in a folder that is then
    removed."""
    with TemporaryDirectory() as folder:
        files = Path(folder, "files")
        settings = Settings(models={"model": "demo"}, workspace={"executor": "none", "path": files})
        app = Upcall(store=Path(folder, "runs.db"), settings=settings)
        run = run_sync(app.start("Build me a user authentication system", run_id="demo"))
        time.sleep(_SECONDS)
        run = run_sync(app.answer(run.id, "Express"))
        if run.result is None:
            raise PluginError(f"The run for the pictures did not end: {run.status}. {run.error or ''}")
        return {
            "timeline": timeline(run, run_sync(app.log.call_timings(run.id))),
            "tree": tree(run),
            "team": team_svg(app.team.build()),
        }


@cache
def recorded() -> str:
    """Return the recording of the main journey."""
    sys.path.insert(0, str(Path(__file__).parent))
    from recording import make_recording

    return make_recording()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the changelog is a page too."""
    changelog = _root(config) / "CHANGELOG.md"
    files.append(File.generated(config, "changelog.md", abs_src_path=str(changelog)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links out of `docs/` (examples, notebooks, tests) to copies of these files in the site, and let the page
    count in the search by what it is for."""
    boost = next((each for place, each in _BOOSTS.items() if page.file.src_uri.startswith(place)), 1.0)
    page.meta.setdefault("search", {"boost": boost})
    here = Path(config.docs_dir, page.file.src_uri).parent

    def copied(found: re.Match[str]) -> str:
        source = (here / found[1]).resolve()
        if source.is_relative_to(Path(config.docs_dir).resolve()):
            return found[0]
        if not source.is_file() or source.suffix == ".md":
            raise PluginError(
                f"{page.file.src_uri}: {found[1]} is no file that can be copied. Link to a file or a page."
            )
        place = f"files/{source.relative_to(_root(config)).as_posix()}"
        if files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, abs_src_path=str(source)))
        return f"]({'../' * page.file.src_uri.count('/')}{place})"

    return _LINK_OUT.sub(copied, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Return the pictures come in last, so that what is written in them is not searched."""

    def drawn(found: re.Match[str]) -> str:
        if found[1] == "recording":
            return recorded()
        if found[1] not in (pictures := played()):
            raise PluginError(f"{page.file.src_uri}: no picture {found[1]!r}. There are: {', '.join(pictures)}.")
        return pictures[found[1]]

    return _PICTURE.sub(drawn, output)


def _root(config: MkDocsConfig) -> Path:
    return Path(config.docs_dir).resolve().parent
