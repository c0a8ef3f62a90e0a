"""What is wrong with an agent's parts is one line that says what to do."""

from __future__ import annotations

from typing import Any

import pytest

from upcall import PausableAgent, idempotent
from upcall.autogen.tool_calls import is_idempotent
from upcall.errors import ConfigurationError
from upcall.testing import ScriptedModelClient


class Shop:
    """A tool that is a method."""

    def pay(self, amount: str) -> str:
        """Pay."""
        return f"paid {amount}"


def untyped(amount):  # type: ignore[no-untyped-def]
    """Pay."""
    return amount


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tools": [untyped]}, "The tool 'untyped' cannot be described to a model: "),
        ({"tools": Shop().pay}, "Agent 'a': tools must be a list, not method: tools="),
        (
            {"agents": PausableAgent("b", ScriptedModelClient([]))},
            "Agent 'a': agents must be a list, not PausableAgent",
        ),
        ({"handoffs": "b"}, "Agent 'a': handoffs must be a list, not str"),
    ],
)
def test_wrong_part_is_reported_in_one_line(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        PausableAgent("a", ScriptedModelClient([]), **options)
    assert str(refused.value).startswith(text)
    assert "\n" not in str(refused.value)


def test_method_is_declared_idempotent() -> None:
    assert is_idempotent(idempotent(Shop().pay))
