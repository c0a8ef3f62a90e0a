"""The classifier: one model call gives intent, meta reply and depth (seed S2)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Self

from autogen_agentchat.messages import BaseAgentEvent
from autogen_core import CancellationToken, Component, ComponentModel
from autogen_core.models import ChatCompletionClient, SystemMessage, UserMessage
from pydantic import BaseModel

from upcall import identity
from upcall.agents.reading import schema_text
from upcall.agents.structured import HandOver, Say, Step, StructuredAgent
from upcall.handoffs import CLASSIFICATION
from upcall.prompts import ClassifierContext, ReplyFormatContext, ToolInfo, render
from upcall.replies import Classification, Depth, Intent

META_FALLBACK = "I'm here to help."
"""What a meta query gets where the model wrote no reply (S2-39)."""


class ClassifierConfig(BaseModel):
    """The declarative form of a `Classifier`."""

    model_client: ComponentModel
    name: str = "classifier"
    tools: list[tuple[str, str]] = []
    llm_timeout: float = 90
    deep_target: str = "clarifier"
    user_proxy: str = "user"


class Classifier(StructuredAgent, Component[ClassifierConfig]):
    """Answers meta queries at once; hands shallow tasks to researcher or coder, deep ones to the clarifier.

    Args:
        tools: what the team can use, shown to the model so that it can judge how much work a task is (S2-22).
        llm_timeout: seconds for the one call (S2-24).
        deep_target: who gets deep tasks: the clarifier, or the planner where there is no clarifier.
    """

    component_config_schema = ClassifierConfig
    component_provider_override = "upcall.agents.Classifier"

    def __init__(
        self,
        model_client: ChatCompletionClient,
        *,
        name: str = "classifier",
        tools: Sequence[ToolInfo] = (),
        llm_timeout: float = 90,
        deep_target: str = "clarifier",
        user_proxy: str = "user",
    ) -> None:
        super().__init__(
            name,
            model_client,
            description="Decides whether a message is small talk, research or coding, and how much work it is.",
            user_proxy=user_proxy,
            timeout=llm_timeout,
        )
        self._tools = tuple(tools)
        self._deep_target = deep_target

    async def decide(self, token: CancellationToken) -> AsyncGenerator[BaseAgentEvent | Step, None]:
        """One call. What cannot be read after one repair, or says nothing, is deep research (S2-37, S2-38)."""
        task = self.task()
        classification = Classification(intent=Intent.RESEARCH, research_depth=Depth.DEEP)
        if not task.strip():
            yield self._route(classification, task)
            return
        async for item in self._reply(self._prompt(task), Classification, token):
            if isinstance(item, Classification):
                classification = item
            elif isinstance(item, BaseAgentEvent):
                yield item
        yield self._route(classification, task)

    def _prompt(self, task: str) -> list[SystemMessage | UserMessage]:
        now = identity.now().strftime("%Y-%m-%d %H:%M UTC")
        prompt = render(ClassifierContext(query=task, current_datetime=now, tools=self._tools))
        form = render(ReplyFormatContext(reply_schema=schema_text(Classification), final=False))
        return [SystemMessage(content=f"{prompt}\n\n{form}"), UserMessage(content=task, source="user")]

    def _route(self, classification: Classification, task: str) -> Step:
        metadata = {CLASSIFICATION: classification.model_dump_json()}
        if classification.intent is Intent.META:
            return Say(classification.meta_response or META_FALLBACK, metadata)
        shallow = "coder" if classification.intent is Intent.CODING else "researcher"
        target = self._deep_target if classification.depth is Depth.DEEP else shallow
        return HandOver(target, f"{classification.depth.value} {classification.intent.value} task: {task}", metadata)

    def _to_config(self) -> ClassifierConfig:
        return ClassifierConfig(
            model_client=self._model_client.dump_component(),
            name=self.name,
            tools=[(tool.name, tool.description) for tool in self._tools],
            llm_timeout=self._timeout or 90,
            deep_target=self._deep_target,
            user_proxy=self.user_proxy,
        )

    @classmethod
    def _from_config(cls, config: ClassifierConfig) -> Self:
        return cls(
            ChatCompletionClient.load_component(config.model_client),
            name=config.name,
            tools=[ToolInfo(*tool) for tool in config.tools],
            llm_timeout=config.llm_timeout,
            deep_target=config.deep_target,
            user_proxy=config.user_proxy,
        )
