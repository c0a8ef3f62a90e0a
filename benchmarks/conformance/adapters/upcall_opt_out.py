"""upcall as in `upcall_.py`, but AutoGen's client makes its calls itself: ``take_over_clients`` is off."""

from __future__ import annotations

from pathlib import Path

import upcall_
from scenarios import Scenario

from upcall import Settings, Upcall


class System(upcall_.System):
    """The same system with the setting."""

    def __init__(self, base_url: str, http_client: object, store: Path, scenario: Scenario) -> None:
        super().__init__(base_url, http_client, store, scenario)
        settings = Settings.read(
            models={"model": "demo", "take_over_clients": False}, questions={"max_questions_run": 1000}
        )
        self._app = Upcall(store=store, team=self._team, settings=settings)
