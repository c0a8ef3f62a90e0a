"""The section of the settings about experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from upcall.setting_types import About, Section


class ExperimentsSettings(Section):
    """Which experiments are shown in a browser."""

    files: Annotated[
        list[Path],
        About(
            "the files of experiments whose results `upcall serve` shows to the operator and to admins; see [In the "
            "service](guides/experiments.md#in-the-service)",
            when="to look at results together, and while they come in",
            effect="imports the functions that these files name, whose code runs with your rights",
        ),
    ] = []
