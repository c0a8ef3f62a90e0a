"""Stand-ins for guests that were taken out: packages in `stand_ins/`, one folder a guest, found on the path.

Child processes find them too, by ``PYTHONPATH``.
"""

from __future__ import annotations

import os
import sys

from guests import is_here
from places import SUPPORT


def install() -> None:
    """Put those on the path whose guests are not here."""
    for folder in sorted((SUPPORT / "stand_ins").iterdir()):
        if not is_here(folder.name) and str(folder) not in sys.path:
            sys.path.append(str(folder))
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(folder)]))
