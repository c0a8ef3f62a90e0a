"""Where the parts of the repository are, for tests in any folder."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
SUPPORT = TESTS / "support"
TEST_DATA = TESTS / "data"
GOLDEN = TESTS / "golden"
