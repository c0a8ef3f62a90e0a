"""``python -P -m newer_worker COMMAND ...``: the command line of a later version, whose format is the made-up one."""

from __future__ import annotations

import made_up_format
import pytest

from upcall.ui.cli.main import main

if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        made_up_format.use(patch)
        main()
