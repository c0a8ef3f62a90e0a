"""What other libraries bring, as little of it as AutoGen asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseChatMessage, HandoffMessage, TextMessage
from autogen_core import CancellationToken
from autogen_core.tools import Workbench


class ForeignAgent(BaseChatAgent):
    """An agent of another library, which keeps nothing. `speak` returns what it says."""

    produced_message_types = (TextMessage, HandoffMessage)

    async def speak(self, messages: Sequence[BaseChatMessage]) -> BaseChatMessage | str:
        raise NotImplementedError

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        text = await self.speak(messages)
        return Response(chat_message=TextMessage(source=self.name, content=text) if isinstance(text, str) else text)

    async def on_reset(self, cancellation_token: CancellationToken) -> None: ...


class ForeignWorkbench(Workbench):
    """A workbench of another library, whose tools nobody sees into, and which keeps nothing."""

    component_type = "workbench"

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def reset(self) -> None: ...

    async def save_state(self) -> Mapping[str, Any]:
        return {}

    async def load_state(self, state: Mapping[str, Any]) -> None: ...
