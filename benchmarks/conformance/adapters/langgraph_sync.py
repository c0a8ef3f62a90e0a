"""LangGraph as in `langgraph_.py`, with `durability="sync"`: "Changes are persisted synchronously before the next step
starts." The default is "async": "Changes are persisted asynchronously while the next step executes."

Where from: reference.langchain.com, `langgraph.types.Durability`.
"""

from __future__ import annotations

import langgraph_


class System(langgraph_.System):
    """The same system with the setting."""

    durability = "sync"
