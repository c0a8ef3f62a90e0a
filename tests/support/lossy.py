"""An agent of another library that loses questions."""

from __future__ import annotations

from collections.abc import Sequence

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import ChatAgent, Response
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_core import CancellationToken


class Deaf(BaseChatAgent):
    """It makes a text of whatever its agent says."""

    def __init__(self, name: str, inner: ChatAgent) -> None:
        super().__init__(name, "Passes nothing on.")
        self.inner = inner

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        response = await self.inner.on_messages(messages, cancellation_token)
        return Response(chat_message=TextMessage(source=self.name, content=response.chat_message.to_text()))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        await self.inner.on_reset(cancellation_token)
