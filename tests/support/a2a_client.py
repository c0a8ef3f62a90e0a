"""The A2A client of that protocol's own package, and short ways to what a task says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, create_client
from a2a.helpers import get_data_parts, get_message_text, get_text_parts, new_data_part, new_text_part
from a2a.types import GetTaskRequest, Message, Part, Role, SendMessageRequest, StreamResponse, Task, TaskState
from services import TIMEOUT_S, Site

from upcall.server.tokens import create_token

OLDER = "0.3"
"""Stands for JSON-RPC as the protocol was before 1.0."""

INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED
COMPLETED = TaskState.TASK_STATE_COMPLETED
WORKING = TaskState.TASK_STATE_WORKING


@dataclass
class A2A:
    """One client of an agent.

    Attributes:
        client: the client of the protocol's package.
        http: what it sends by.
        events: what the last message brought, in order.
    """

    client: Client
    http: httpx.AsyncClient
    events: list[StreamResponse] = field(default_factory=list)

    async def send(self, *content: object, task: Task | None = None, at_once: bool = False, **more: Any) -> Task:
        """Send a message of texts and data, about a task or as a new one; return the task as it is then."""
        parts = [
            each if isinstance(each, Part) else new_text_part(each) if isinstance(each, str) else new_data_part(each)
            for each in content
        ]
        named = {"message_id": uuid4().hex, "task_id": task.id if task is not None else None, **more}
        request = SendMessageRequest(message=Message(role=Role.ROLE_USER, parts=parts, **named))
        request.configuration.return_immediately = at_once
        self.events = []
        async for event in self.client.send_message(request):
            self.events.append(event)
        return await self.get(self.events[0].task)

    async def answer(self, task: Task, **answers: object) -> Task:
        """Answer questions of a task by their ids."""
        return await self.send({"answers": answers}, task=task)

    async def get(self, task: Task) -> Task:
        """Return a task as it is now."""
        return await self.client.get_task(GetTaskRequest(id=task.id))


@asynccontextmanager
async def connected(url: str, secret: str, *, streaming: bool = False, binding: str = "JSONRPC") -> AsyncIterator[A2A]:
    """Yield a client of the agent at a URL, which shows this token."""
    headers = {"Authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(headers=headers, timeout=TIMEOUT_S) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        kept = [each for each in card.supported_interfaces if (each.protocol_version == "0.3") is (binding == OLDER)]
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(kept)
        bindings = ["JSONRPC" if binding == OLDER else binding]
        config = ClientConfig(streaming=streaming, httpx_client=http, supported_protocol_bindings=bindings)
        yield A2A(await create_client(card, config), http)


@asynccontextmanager
async def as_user(site: Site, user: str, **options: Any) -> AsyncIterator[A2A]:
    """Yield a client with a token of a user."""
    _, secret = await create_token(site.service.store, user)
    async with connected(site.url, secret, **options) as client:
        yield client


def questions_of(task: Task) -> list[dict[str, Any]]:
    """Return the questions of a task as data."""
    return get_data_parts(task.status.message.parts)


def text_of(task: Task) -> str:
    """Return what the status of a task says."""
    return get_message_text(task.status.message)


def result_of(task: Task) -> str:
    """Return the text of a task's artifacts."""
    return "\n".join(text for each in task.artifacts for text in get_text_parts(each.parts))
