"""What autogen-core gives to the agents: contexts, memories, tools and workbenches."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from autogen_agentchat.base import Team
from autogen_core import CancellationToken
from autogen_core.memory import ListMemory, MemoryContent, MemoryMimeType
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    ChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)
from autogen_core.models import LLMMessage
from autogen_core.tools import (
    BaseStreamTool,
    BaseTool,
    BaseToolWithState,
    FunctionTool,
    StaticStreamWorkbench,
    StaticWorkbench,
    ToolOverride,
)
from pydantic import BaseModel

from shelf.rows import Build, Row
from shelf.world import World

CONTEXT, MEMORY, TOOLS = "autogen_core.model_context", "autogen_core.memory", "autogen_core.tools"


class OwnContext(ChatCompletionContext):
    """A context of one's own, which shows each message but the system's twice."""

    async def get_messages(self) -> list[LLMMessage]:
        return [*self._messages]


def context(make: Callable[[World], ChatCompletionContext]) -> Build:
    return lambda world: world.beside(world.member(model_context=make(world)), turns=5)


class Text(BaseModel):
    text: str


class Notes(BaseTool[Text, str]):
    """A tool of one's own."""

    def __init__(self, world: World) -> None:
        super().__init__(Text, str, "note", "Take a note.")
        self._world = world

    async def run(self, args: Text, cancellation_token: CancellationToken) -> str:
        return self._world.note(args.text)


class StreamedNotes(BaseStreamTool[Text, str, str]):
    """A tool of one's own that reports as it works."""

    def __init__(self, world: World) -> None:
        super().__init__(Text, str, "note", "Take a note.")
        self._world = world

    async def run(self, args: Text, cancellation_token: CancellationToken) -> str:
        return self._world.note(args.text)

    async def run_stream(self, args: Text, cancellation_token: CancellationToken) -> AsyncGenerator[str, None]:
        yield "working"
        yield self._world.note(args.text)


class Counted(BaseModel):
    count: int = 0


class Counter(BaseToolWithState[Text, str, Counted]):
    """A tool that counts its calls and saves its count."""

    def __init__(self) -> None:
        super().__init__(Text, str, Counted, "note", "Take a note.")
        self._count = 0

    async def run(self, args: Text, cancellation_token: CancellationToken) -> str:
        self._count += 1
        return f"call {self._count}"

    def save_state(self) -> Counted:
        return Counted(count=self._count)

    def load_state(self, state: Counted) -> None:
        self._count = state.count


def calls(make: Callable[[World], Any], **options: Any) -> Build:
    """Return a team whose member calls ``note`` before the question and after the answer."""

    def build(world: World) -> Team:
        made = make(world)
        parts = {"workbench": made} if isinstance(made, StaticWorkbench) else {"tools": [made]}
        model = world.caller("note", text="dry")
        return world.beside(world.member(model=model, reflect_on_tool_use=True, **parts, **options))

    return build


def remembering(world: World) -> Team:
    memory = ListMemory()
    memory.content = [MemoryContent(content="It rains.", mime_type=MemoryMimeType.TEXT)]
    return world.beside(world.member(memory=[memory]))


def adding(world: World) -> Team:
    """Return a team whose tool adds to a memory, before the question."""
    memory = ListMemory()

    async def note(text: str) -> str:
        """Take a note."""
        await memory.add(MemoryContent(content=f"{text} {len(memory.content)}", mime_type=MemoryMimeType.TEXT))
        return "added"

    member = world.member(
        model=world.caller("note", text="dry"), tools=[note], memory=[memory], reflect_on_tool_use=True
    )
    return world.beside(member)


ROWS = [
    Row(
        f"{CONTEXT}.ChatCompletionContext",
        context(lambda _: OwnContext()),
        "a context of one's own",
        parts=[f"{CONTEXT}.ChatCompletionContextState"],
    ),
    Row(f"{CONTEXT}.UnboundedChatCompletionContext", context(lambda _: UnboundedChatCompletionContext()), "shows all"),
    Row(
        f"{CONTEXT}.BufferedChatCompletionContext",
        context(lambda _: BufferedChatCompletionContext(buffer_size=2)),
        "shows the last messages",
    ),
    Row(
        f"{CONTEXT}.TokenLimitedChatCompletionContext",
        context(lambda world: TokenLimitedChatCompletionContext(world.echo(), token_limit=12)),
        "leaves messages out",
    ),
    Row(
        f"{CONTEXT}.HeadAndTailChatCompletionContext",
        context(lambda _: HeadAndTailChatCompletionContext(head_size=1, tail_size=1)),
        "shows the first and the last message",
    ),
    Row(
        f"{MEMORY}.ListMemory",
        remembering,
        "is looked into in each turn",
        parts=[
            *(
                f"{MEMORY}.{each}"
                for each in ("Memory", "MemoryContent", "MemoryQueryResult", "UpdateContextResult", "MemoryMimeType")
            ),
            "autogen_agentchat.messages.MemoryQueryEvent",
        ],
    ),
    Row(
        f"{MEMORY}.ListMemory (filled by a tool)", adding, "a tool adds to it before the question and after the answer"
    ),
    Row(
        f"{TOOLS}.FunctionTool",
        calls(lambda world: FunctionTool(world.note, "Take a note.")),
        "called before the question and after the answer",
        parts=[f"{TOOLS}.{each}" for each in ("Tool", "ToolSchema", "ParametersSchema")],
    ),
    Row(f"{TOOLS}.BaseTool", calls(Notes), "a tool of one's own"),
    Row(f"{TOOLS}.BaseToolWithState", calls(lambda _: Counter()), "a tool that counts its calls"),
    Row(
        f"{TOOLS}.BaseStreamTool",
        calls(StreamedNotes),
        "a tool that reports as it works",
        parts=[f"{TOOLS}.StreamTool"],
    ),
    Row(
        f"{TOOLS}.StaticWorkbench",
        calls(lambda world: StaticWorkbench([Notes(world)], {"note": ToolOverride(description="Note it.")})),
        "lists tools of one's own, one with another description",
        parts=[
            f"{TOOLS}.{each}"
            for each in ("Workbench", "ToolOverride", "ToolResult", "TextResultContent", "ImageResultContent")
        ],
    ),
    Row(
        f"{TOOLS}.StaticWorkbench (with state)",
        calls(lambda _: StaticWorkbench([Counter()])),
        "its tool counts its calls",
    ),
    Row(
        f"{TOOLS}.StaticStreamWorkbench", calls(lambda world: StaticStreamWorkbench([StreamedNotes(world)])), "streams"
    ),
]
