"""What the plain `pip install .` can do: nothing of an extra is needed for a run with a model."""

from __future__ import annotations

import json

import pytest
from forked import run_code

from upcall.testing import LoopbackServer

EXTRAS = (
    "httpx",
    "mcp",
    "psycopg",
    "procrastinate",
    "fastapi",
    "starlette",
    "numpy",
    "pandas",
    "spellchecker",
)

CODE = """
import sys
for name in {extras}:
    sys.modules[name] = None
sys.argv = ["upcall", "run", "Who are you?", "--model", "m", "--base-url", {url!r}, "--json"]
from upcall.ui.cli.main import main
main()
"""


@pytest.mark.slow
def test_run_with_a_model_needs_no_extra() -> None:
    pytest.importorskip("httpx2", reason="an older openai needs httpx itself")
    with LoopbackServer(['{"intent": "meta", "meta_response": "I am upcall."}']) as server:
        done = run_code(CODE.format(extras=EXTRAS, url=server.base_url))
    assert json.loads(done.stdout)["result"] == "I am upcall.", done.stderr
