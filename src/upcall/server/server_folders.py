"""The folders of the machine that serves, which no page shows: whoever reads one sees what the folder is instead.

They are replaced in the finished page, so that no text passes by: what models wrote, results of tools, errors. What
stands in a form and is sent back stays as it is, and so do attributes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from markupsafe import escape

from upcall.lazy_pattern import LazyPattern
from upcall.runs.run import Run
from upcall.settings import Settings
from upcall.state_folder import find_state_folder
from upcall.teams import load_roles

OF_RUN = "(the run's folder)"
OF_SERVICE = "(a folder of this service)"

_KEPT = LazyPattern(r"(<textarea\b.*?</textarea>|<[^>]*>)", re.DOTALL)


def name_folders(settings: Settings, store_file: Path | None, workspaces: Mapping[str, Path]) -> Mapping[Path, str]:
    """Return the folders of a service, and what is shown in their place. Those at the top of the file system are none:
    their names are words."""
    named = [kind.pin(settings).get("workspace") for kind in load_roles()]
    known = [Path.cwd(), Path.home(), find_state_folder(), store_file and store_file.parent, *named]
    found = {Path(os.path.abspath(each)): OF_SERVICE for each in known if each is not None}
    found |= {folder: f"(the folder {name})" for name, folder in workspaces.items()}
    return {folder: words for folder, words in found.items() if len(folder.parts) > 2}


def hide_folders(html: str, folders: Mapping[Path, str], runs: Iterable[Run] = ()) -> str:
    """Return a page with what its texts name of these folders, and of those of runs, replaced."""
    names = {str(folder): words for folder, words in folders.items()}
    names |= {str(run.workspace): OF_RUN for run in runs if run.workspace is not None}
    shown = {str(escape(folder)): str(escape(words)) for folder, words in names.items()}
    if not any(folder in html for folder in shown):
        return html
    longest_first = sorted(shown, key=len, reverse=True)
    pattern = re.compile(rf"({'|'.join(map(re.escape, longest_first))})(?![\w-])")
    parts = _KEPT.split(html)
    parts[::2] = [pattern.sub(lambda match: shown[match[1]], text) for text in parts[::2]]
    return "".join(parts)
