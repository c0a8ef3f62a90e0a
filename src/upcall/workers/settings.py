"""The section of the settings about workers."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from upcall.setting_types import About, Section, no_flag


class WorkersSettings(Section):
    """How a worker stops, and what it shows."""

    grace_seconds: Annotated[
        Annotated[float, BeforeValidator(no_flag), Field(ge=0, allow_inf_nan=False)],
        About(
            "seconds that a worker's runs have to reach a pause when it is stopped; runs that take longer continue "
            "elsewhere",
            when="as long as your service manager waits",
            short="How many seconds runs get to pause when the worker is stopped [30].",
        ),
    ] = 30.0
    open_metrics: Annotated[
        bool,
        About(
            "whether `/metrics` on a worker's health port shows what it counts of all runs: numbers alone",
            when="where only your monitoring reaches that port",
        ),
    ] = False
