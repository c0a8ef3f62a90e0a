"""What a terminal draws while an agent writes."""

from __future__ import annotations

import io

from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from rich.console import Console

from upcall.autogen.messages import ThoughtChunkEvent
from upcall.ui.terminal.live_region import LiveRegion


def test_terminal_draws_thoughts_apart_from_text() -> None:
    region = LiveRegion(Console(file=io.StringIO(), width=60, height=20))
    region.texts.add(ThoughtChunkEvent(source="a", thought="Hm, so.", full_message_id="1"))
    region.texts.add(ModelClientStreamingChunkEvent(source="a", content='{"a": 1}', full_message_id="2"))
    assert [str(line) for line in region._draw()][:4] == ["a  thinks", "  Hm, so.", "a", '  {"a": 1}']
