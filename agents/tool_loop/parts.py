"""What a `PausableAgent` is made of, as one value with a declarative form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autogen_agentchat.base import ChatAgent
from autogen_core.memory import Memory
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool, Workbench
from pydantic import BaseModel

from upcall.agents.approve import read_approve
from upcall.agents.tool_loop.options import (
    PausableAgentConfig,
    PausableSettings,
    dump_output_type,
    load_output_type,
)
from upcall.agents.toolset import Toolset
from upcall.errors import ConfigurationError
from upcall.prompts import PROMPTS, Prompts


@dataclass(frozen=True, eq=False)
class PausableParts:
    """What a `PausableAgent` is made of. Nothing of it changes in a turn, so twins of an agent share it."""

    name: str
    settings: PausableSettings
    model_client: ChatCompletionClient
    toolset: Toolset
    memory: Sequence[Memory] = ()
    model_context: ChatCompletionContext | None = None
    output_type: type[BaseModel] | None = None
    small_client: ChatCompletionClient | None = None
    prompts: Prompts = PROMPTS

    @property
    def calls_tools(self) -> bool:
        """Whether the model can call tools at all."""
        return self.model_client.model_info.get("function_calling") is not False

    def require_calls(self) -> None:
        """Check that the model can call what there is to call.

        Raises:
            ConfigurationError: it calls no tools.
        """
        if not self.calls_tools and self.toolset.has_tools:
            raise ConfigurationError(
                f"Agent {self.name!r}: its model calls no tools (function_calling is false in its model_info), so it "
                "can have no tools, agents, workbenches or hand-offs. Use another model, or correct the model_info."
            )

    def to_config(self) -> PausableAgentConfig:
        """Return the declarative form."""
        toolset = self.toolset
        return PausableAgentConfig(
            name=self.name,
            model_client=self.model_client.dump_component(),
            small_client=self.small_client.dump_component() if self.small_client else None,
            tools=[tool.dump_component() for tool in toolset.tools.values()],
            workbench=[workbench.dump_component() for workbench in toolset.workbenches],
            agents=[agent.dump_component() for agent in toolset.agents.values()],
            handoffs=list(toolset.handoffs.values()),
            approve=toolset.approval.dump(toolset.workbenches),
            memory=[memory.dump_component() for memory in self.memory],
            model_context=self.model_context.dump_component() if self.model_context else None,
            output_type=dump_output_type(self.output_type),
            prompts=str(self.prompts.folder) if self.prompts.folder else None,
            **self.settings.model_dump(),
        )


def load_arguments(config: PausableAgentConfig) -> dict[str, Any]:
    """Return the arguments that make the agent of a declarative form."""
    context, small = config.model_context, config.small_client
    workbenches = [Workbench.load_component(each) for each in config.workbench]
    return {
        "name": config.name,
        "model_client": ChatCompletionClient.load_component(config.model_client),
        "tools": [BaseTool.load_component(tool) for tool in config.tools],
        "workbench": workbenches,
        "agents": [ChatAgent.load_component(agent) for agent in config.agents],
        "handoffs": config.handoffs,
        "approve": read_approve(config.name, config.approve, workbenches).loosen(),
        "memory": [Memory.load_component(memory) for memory in config.memory],
        "model_context": None if context is None else ChatCompletionContext.load_component(context),
        "output_type": load_output_type(config.output_type),
        "small_client": None if small is None else ChatCompletionClient.load_component(small),
        "prompts": Prompts(config.prompts) if config.prompts else PROMPTS,
        **{option: getattr(config, option) for option in PausableSettings.model_fields},
    }
