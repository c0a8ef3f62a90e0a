"""The names of AutoGen's public API that values, storage, tools and front ends use: their one seam to it.

Beside it, `upcall.autogen`, the agents, teams and the engine that runs them (`upcall.execution`) use AutoGen itself:
that is what they are for. Whatever takes its place has to offer these names; see decision 12.
"""

from __future__ import annotations

from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.messages import (
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    MultiModalMessage,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    UserInputRequestedEvent,
)
from autogen_agentchat.teams import BaseGroupChat
from autogen_core import CancellationToken, Component, FunctionCall, Image
from autogen_core.code_executor import CodeBlock
from autogen_core.models import ChatCompletionClient, CreateResult
from autogen_core.tools import BaseTool, ParametersSchema, ToolResult, ToolSchema, Workbench

__all__ = [
    "AssistantAgent",
    "BaseGroupChat",
    "BaseTool",
    "CancellationToken",
    "ChatAgent",
    "ChatCompletionClient",
    "CodeBlock",
    "Component",
    "CreateResult",
    "FunctionCall",
    "HandoffMessage",
    "Image",
    "ModelClientStreamingChunkEvent",
    "MultiModalMessage",
    "ParametersSchema",
    "Team",
    "TextMessage",
    "ThoughtEvent",
    "ToolCallExecutionEvent",
    "ToolCallRequestEvent",
    "ToolResult",
    "ToolSchema",
    "UserInputRequestedEvent",
    "UserProxyAgent",
    "Workbench",
]
