"""The folders of the machine that serves, which no error or warning of a run names to those who do not run the service:
they read what the folder is instead.

Only these texts are changed. What agents, tools and people wrote is shown as they wrote it: a person decides on it, and
a command whose folder is hidden cannot be judged. What is wrong with a request is not changed either: it repeats what
the caller gave, and a folder hidden there would confirm a guess.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from upcall.runs.run import Run
from upcall.settings import Settings
from upcall.state_folder import find_state_folder
from upcall.teams import load_roles

OF_RUN = "(the run's folder)"

_BEFORE = r"(?<![^\s'\"`(\[{<=,;|])"
_AFTER = r"(?!\.*[^\s/\\.,;:!?'\"`)\]}>|])"
"""Around a folder: what is no part of a longer path, of a name or of an address."""


def name_folders(settings: Settings, store_file: Path | None, workspaces: Mapping[str, Path]) -> Mapping[Path, str]:
    """Return the folders of a service, each with a name of its own to be shown instead."""
    pinned = [kind.pin(settings).get("workspace") for kind in load_roles()]
    known = {
        "(the home folder)": Path.home(),
        "(the state folder)": find_state_folder(),
        "(the store's folder)": store_file and store_file.parent,
        "(the service's folder)": Path.cwd(),
        "(the workspace)": next((each for each in pinned if each is not None), None),
        **{f"(the folder {name})": folder for name, folder in workspaces.items()},
    }
    return {Path(os.path.abspath(folder)): name for name, folder in known.items() if folder is not None}


def hide_folders(text: str, folders: Mapping[Path, str], run: Run | None = None) -> str:
    """Return a text with the names of these folders, and of that of a run, instead of the folders. Those at the top of
    the file system stay: their names are words."""
    shown = {**folders, run.workspace: OF_RUN} if run is not None and run.workspace is not None else folders
    names = {str(folder): name for folder, name in shown.items() if len(folder.parts) > 2}
    longest_first = sorted(names, key=len, reverse=True)
    pattern = rf"{_BEFORE}({'|'.join(map(re.escape, longest_first))}){_AFTER}"
    return re.sub(pattern, lambda found: names[found[1]], text) if names else text
