"""What each Python process of a test loads at its start."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
import loopback_only  # noqa: F401
