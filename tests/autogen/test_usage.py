"""What a reply takes from a budget: as its server counts, of the half that it does not count an estimate."""

from __future__ import annotations

import pytest
from autogen_core.models import CreateResult, RequestUsage, UserMessage

from upcall.autogen.token_odds import NO_CALL
from upcall.autogen.usage import usage_to_count

SENT = [UserMessage(content="x" * 400, source="user")]


def count(
    content: str, thought: str | None, prompt: int = 0, completion: int = 0, *, cached: bool = False
) -> tuple[int, int]:
    used = RequestUsage(prompt_tokens=prompt, completion_tokens=completion)
    reply = CreateResult(finish_reason="stop", content=content, thought=thought, usage=used, cached=cached)
    counted = usage_to_count(SENT, reply)
    return counted.prompt_tokens, counted.completion_tokens


@pytest.mark.parametrize(
    ("content", "thought", "reported", "counted"),
    [
        ("", "t" * 4000, (0, 0), (100, 1000)),
        ("c" * 40, "t" * 40, (0, 0), (100, 20)),
        ("c" * 40, None, (90, 0), (90, 10)),
        ("c" * 40, None, (0, 7), (100, 7)),
        ("c" * 40, None, (90, 7), (90, 7)),
    ],
    ids=["thought alone", "neither half", "prompt alone", "completion alone", "both"],
)
def test_usage_that_no_server_reports_is_estimated(
    content: str, thought: str | None, reported: tuple[int, int], counted: tuple[int, int]
) -> None:
    assert count(content, thought, *reported) == counted


def test_usage_of_no_call_stays_zero() -> None:
    assert usage_to_count(SENT, NO_CALL) == NO_CALL.usage
    assert count("c" * 40, None, cached=True) == (0, 0)
