"""The planner: checks for what it cannot plan with, asks about all of it at once, then makes the plan (seed S3)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Self

from autogen_agentchat.messages import BaseAgentEvent
from autogen_core import CancellationToken, Component, ComponentModel
from autogen_core.models import ChatCompletionClient, SystemMessage, UserMessage
from pydantic import BaseModel

from upcall.agents.reading import schema_text
from upcall.agents.structured import Ask, HandOver, Step, StructuredAgent
from upcall.handoffs import PLAN
from upcall.prompts import AmbiguityContext, PlanContext, ReplyFormatContext, ToolInfo, render
from upcall.replies import AmbiguityCheck, Plan

FALLBACK_SECTIONS = ("Background", "Main points", "Comparison", "Open points", "Conclusion")
"""The sections of the plan that stands in where the model's cannot be read (S0-62)."""

CLEAR = AmbiguityCheck(needs_clarification=False)


class PlannerConfig(BaseModel):
    """The declarative form of a `Planner`."""

    model_client: ComponentModel
    name: str = "planner"
    max_clarifications: int = 3
    handlers: list[tuple[str, str]] = []
    tools: list[tuple[str, str]] = []
    target: str = "lead"
    user_proxy: str = "user"


class Planner(StructuredAgent, Component[PlannerConfig]):
    """Restarts planning with the merged context after every round of answers, at most `max_clarifications` rounds.

    Args:
        max_clarifications: rounds of questions (S3-34); a round may hold several questions.
        handlers: the agents that steps can be given to, with their descriptions.
        tools: what they can use.
        target: who works off the plan.
    """

    component_config_schema = PlannerConfig
    component_provider_override = "upcall.agents.Planner"

    def __init__(
        self,
        model_client: ChatCompletionClient,
        *,
        name: str = "planner",
        max_clarifications: int = 3,
        handlers: Sequence[ToolInfo] = (),
        tools: Sequence[ToolInfo] = (),
        target: str = "lead",
        user_proxy: str = "user",
    ) -> None:
        super().__init__(name, model_client, description="Makes the plan for a task.", user_proxy=user_proxy)
        self._max_clarifications = max_clarifications
        self._handlers, self._tools = tuple(handlers), tuple(tools)
        self._target = target

    async def decide(self, token: CancellationToken) -> AsyncGenerator[BaseAgentEvent | Step, None]:
        """Check for ambiguity, ask about it, plan."""
        if not self._state.checked and self._state.rounds < self._max_clarifications:
            check = CLEAR  # A check that fails does not block planning (S3-41).
            async for item in self._reply(self._check_prompt(), AmbiguityCheck, token):
                if isinstance(item, AmbiguityCheck):
                    check = item
                elif isinstance(item, BaseAgentEvent):
                    yield item
            if check.needs_clarification:
                yield Ask([aspect.question((self.name,)) for aspect in check.ambiguity_details])
                return
            self._state.checked = True
        plan = Plan(title=_first_line(self.task()), sections=FALLBACK_SECTIONS)
        async for reply in self._reply(self._plan_prompt(), Plan, token):
            if isinstance(reply, Plan):
                plan = reply
            elif isinstance(reply, BaseAgentEvent):
                yield reply
        yield HandOver(self._target, plan.as_markdown(), {PLAN: plan.model_dump_json()})

    def _request(self) -> str:
        """The original request and everything the user said since (S3-36)."""
        return "\n".join([self.task(), *(f"The user was asked and said: {line}" for line in self.answered())])

    def _check_prompt(self) -> list[SystemMessage | UserMessage]:
        context = AmbiguityContext(
            user_request=self._request(), available_tools=self._tools, available_handlers=self._handlers
        )
        return self._messages(render(context), AmbiguityCheck)

    def _plan_prompt(self) -> list[SystemMessage | UserMessage]:
        context = PlanContext(clarifier_context=self._request(), feedback_history=(), available_handlers=self._handlers)
        return self._messages(render(context), Plan)

    def _messages(self, prompt: str, kind: type[BaseModel]) -> list[SystemMessage | UserMessage]:
        form = render(ReplyFormatContext(reply_schema=schema_text(kind), final=False))
        request = UserMessage(content=self.task(), source="user")
        return [SystemMessage(content=f"{prompt}\n\n{form}"), request]

    def _to_config(self) -> PlannerConfig:
        return PlannerConfig(
            model_client=self._model_client.dump_component(),
            name=self.name,
            max_clarifications=self._max_clarifications,
            handlers=[(handler.name, handler.description) for handler in self._handlers],
            tools=[(tool.name, tool.description) for tool in self._tools],
            target=self._target,
            user_proxy=self.user_proxy,
        )

    @classmethod
    def _from_config(cls, config: PlannerConfig) -> Self:
        return cls(
            ChatCompletionClient.load_component(config.model_client),
            name=config.name,
            max_clarifications=config.max_clarifications,
            handlers=[ToolInfo(*handler) for handler in config.handlers],
            tools=[ToolInfo(*tool) for tool in config.tools],
            target=config.target,
            user_proxy=config.user_proxy,
        )


def _first_line(text: str, limit: int = 80) -> str:
    line = text.strip().splitlines()[0] if text.strip() else "Plan"
    return line if len(line) <= limit else line[: limit - 1] + "…"
