"""The clarifier: asks about the scope of a deep task before it is planned (seed S0)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Self

from autogen_agentchat.messages import BaseAgentEvent
from autogen_core import CancellationToken, Component, ComponentModel
from autogen_core.models import ChatCompletionClient, SystemMessage, UserMessage
from pydantic import BaseModel

from upcall.agents.reading import UnreadableReply, schema_text
from upcall.agents.structured import Ask, HandOver, Step, StructuredAgent
from upcall.prompts import ClarifierContext, ReplyFormatContext, ToolInfo, render
from upcall.prompts.contexts import Document
from upcall.questions import Answer, Outcome
from upcall.replies import ClarificationResponse

SKIP_WORDS = frozenset({"skip", "done", "exit", "quit", "proceed", "continue", "no", "n"})
"""Whole replies that end the clarification (S0-61). They mean this here only; elsewhere an answer is an answer (X6)."""


class ClarifierConfig(BaseModel):
    """The declarative form of a `Clarifier`."""

    model_client: ComponentModel
    name: str = "clarifier"
    max_turns: int = 3
    documents: list[tuple[str, str]] = []
    tools: list[tuple[str, str]] = []
    target: str = "planner"
    user_proxy: str = "user"


class Clarifier(StructuredAgent, Component[ClarifierConfig]):
    """Asks one question at a time, at most `max_turns`, until nothing that matters is missing.

    Args:
        max_turns: questions a task; then clarification is complete whatever the model says (S0-11).
        documents: the user's documents, which the task may refer to (S0-21).
        tools: what the agents can find out themselves, and the user need not be asked.
        target: who gets the clarified task.
    """

    component_config_schema = ClarifierConfig
    component_provider_override = "upcall.agents.Clarifier"

    def __init__(
        self,
        model_client: ChatCompletionClient,
        *,
        name: str = "clarifier",
        max_turns: int = 3,
        documents: Sequence[Document] = (),
        tools: Sequence[ToolInfo] = (),
        target: str = "planner",
        user_proxy: str = "user",
    ) -> None:
        super().__init__(
            name, model_client, description="Asks the user about the scope of a task.", user_proxy=user_proxy
        )
        self._max_turns = max_turns
        self._documents, self._tools = tuple(documents), tuple(tools)
        self._target = target

    async def decide(self, token: CancellationToken) -> AsyncGenerator[BaseAgentEvent | Step, None]:
        """Ask what the model wants to know, or hand the clarified task on."""
        if self._complete():
            yield self._done()
            return
        response: ClarificationResponse | None = None
        async for item in self._reply(self._prompt(), ClarificationResponse, token):
            if isinstance(item, ClarificationResponse):
                response = item
            elif isinstance(item, UnreadableReply):
                response = self._fallback()
            else:
                yield item
        if response is None or not response.needs_clarification:
            yield self._done()
        else:
            # Any skip word would do to skip it (S0-61), and so the blank reply of a terminal does.
            yield Ask([response.question((self.name,)).model_copy(update={"required": False})])

    def _complete(self) -> bool:
        dialog = self._state.dialog
        return len(dialog) >= self._max_turns or (bool(dialog) and _skipped(dialog[-1].answer))

    def _prompt(self) -> list[SystemMessage | UserMessage]:
        prompt = render(
            ClarifierContext(
                clarifier_result="\n".join(self.answered()),
                available_documents=self._documents,
                tools=self._tools,
                tool_names=tuple(tool.name for tool in self._tools),
                remaining_questions=self._max_turns - len(self._state.dialog),
            )
        )
        form = render(ReplyFormatContext(reply_schema=schema_text(ClarificationResponse), final=False))
        return [
            SystemMessage(content=f"{prompt}\n\n{form}"),
            UserMessage(content=self.task(), source="user"),
        ]

    def _fallback(self) -> ClarificationResponse:
        """A reply that cannot be read counts as a need to clarify (S0-62), once: then the task goes on as it is."""
        return ClarificationResponse(
            needs_clarification=not self._state.dialog,
            clarification_question=f'What matters most to you in "{_short(self.task())}"?',
        )

    def _log(self) -> str:
        lines = []
        for entry in self._state.dialog:
            if entry.answer is not None:
                lines += [f"Question: {entry.question.question}", f"Answer: {entry.answer.as_text()}"]
        return "\n".join(lines)

    def _done(self) -> HandOver:
        log = self._log()
        return HandOver(self._target, f"Clarified:\n{log}" if log else "Nothing needs to be clarified.")

    def _to_config(self) -> ClarifierConfig:
        return ClarifierConfig(
            model_client=self._model_client.dump_component(),
            name=self.name,
            max_turns=self._max_turns,
            documents=[(document.file_name, document.summary) for document in self._documents],
            tools=[(tool.name, tool.description) for tool in self._tools],
            target=self._target,
            user_proxy=self.user_proxy,
        )

    @classmethod
    def _from_config(cls, config: ClarifierConfig) -> Self:
        return cls(
            ChatCompletionClient.load_component(config.model_client),
            name=config.name,
            max_turns=config.max_turns,
            documents=[Document(*document) for document in config.documents],
            tools=[ToolInfo(*tool) for tool in config.tools],
            target=config.target,
            user_proxy=config.user_proxy,
        )


def _skipped(answer: Answer | None) -> bool:
    """Whether this reply ends the clarification. An option that was chosen is an answer, "No" and "Continue" too."""
    if answer is None or answer.outcome is not Outcome.ANSWERED:
        return True
    return not answer.selected and answer.text.strip().casefold() in SKIP_WORDS


def _short(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
