"""The agents of autogen-agentchat, what they are made of, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autogen_agentchat.agents import (
    ApprovalRequest,
    ApprovalResponse,
    BaseChatAgent,
    CodeExecutorAgent,
    MessageFilterAgent,
    MessageFilterConfig,
    PerSourceFilter,
    SocietyOfMindAgent,
    UserProxyAgent,
)
from autogen_agentchat.base import ChatAgent, Handoff, Response, Team
from autogen_agentchat.messages import (
    BaseChatMessage,
    HandoffMessage,
    MultiModalMessage,
    StopMessage,
    StructuredMessage,
    TextMessage,
    ThoughtEvent,
    ToolCallSummaryMessage,
)
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core import CancellationToken, Image
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor
from PIL import Image as Pictures
from pydantic import BaseModel

from shelf.rows import Build, Outcome, Row
from shelf.world import ANSWER, World, describe
from upcall.testing import Call

AGENTS, BASE, MESSAGES = "autogen_agentchat.agents", "autogen_agentchat.base", "autogen_agentchat.messages"


class Paint(BaseModel):
    colour: str


class Diary(BaseChatAgent):
    """An agent of one's own, which says all that it has received."""

    def __init__(self, say: Any = None) -> None:
        super().__init__("member", "Writes a diary.")
        self._received: list[str] = []
        self._say, self._has_sent = say, False

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage, *([type(self._say)] if self._say is not None else []))

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        self._received += [f"{each.source}: {each.to_text()}" for each in messages]
        emitted = TextMessage(content=f"told {self._received}", source=self.name)
        if self._say is None or self._has_sent:
            return Response(chat_message=emitted)
        self._has_sent = True
        return Response(chat_message=self._say, inner_messages=[ThoughtEvent(content="Hm.", source=self.name)])

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        self._received.clear()


def says(message: BaseChatMessage) -> Build:
    def build(world: World) -> Team:
        """Return a team whose member begins with the message, and whose reader tells what it was given."""
        members = [Diary(message), world.asker(), world.member("reader")]
        return RoundRobinGroupChat(members, max_turns=6, custom_message_types=[StructuredMessage[Paint]])

    return build


def approve(request: ApprovalRequest) -> ApprovalResponse:
    return ApprovalResponse(approved="echo" in request.code, reason="harmless")


def coding(world: World, **options: Any) -> Team:
    executor = LocalCommandLineCodeExecutor(work_dir="code")
    code = "```sh\necho painted | tee -a ../notes.txt\n```"
    model = world.model(lambda request: code if "painted" not in str(request.messages[-1]) else "told painted")
    return world.beside(CodeExecutorAgent("member", executor, model_client=model, description="Codes.", **options))


def handing(world: World) -> Team:
    model = world.model(
        lambda request: describe(request) if "blue" in str(request.messages) else Call("transfer_to_asker")
    )
    member = world.member(model=model, handoffs=[Handoff(target="asker")])
    return world.beside(member)


def society(world: World) -> Team:
    inner = RoundRobinGroupChat([world.member("inner"), world.asker()], max_turns=2)
    return RoundRobinGroupChat([SocietyOfMindAgent("member", inner, world.echo()), world.member("reader")], max_turns=4)


def filtering(world: World) -> Team:
    last = MessageFilterConfig(per_source=[PerSourceFilter(source="asker", position="last", count=1)])
    return world.beside(MessageFilterAgent("member", world.member(), last), turns=5)


def proxied(world: World) -> Team:
    user = UserProxyAgent("user") if world.asks else UserProxyAgent("user", input_func=lambda _: ANSWER)
    return RoundRobinGroupChat([world.member(), user], max_turns=3)


def calling(tool: Callable[[ChatAgent], Any]) -> Build:
    """Return a team whose member calls the one that asks."""

    def build(world: World) -> Team:
        made = tool(world.asker("expert"))
        member = world.member(model=world.caller(made.name, task="Which?"), tools=[made], reflect_on_tool_use=True)
        return RoundRobinGroupChat([member, world.member("reader")], max_turns=3)

    return build


def team_tool(agent: ChatAgent) -> TeamTool:
    return TeamTool(RoundRobinGroupChat([agent], max_turns=1), "experts", "Know.", return_value_as_last_message=True)


PICTURE = Image.from_pil(Pictures.new("RGB", (1, 1)))

GIVEN_TEXT: Mapping[str, BaseChatMessage] = {
    "TextMessage": TextMessage(content="Hello.", source="member", metadata={"a": "b"}),
    "StopMessage": StopMessage(content="Enough.", source="member"),
    "HandoffMessage": HandoffMessage(content="Go on.", target="asker", source="member"),
    "MultiModalMessage": MultiModalMessage(content=["Look:", PICTURE], source="member"),
    "StructuredMessage": StructuredMessage[Paint](content=Paint(colour="red"), source="member"),
    "ToolCallSummaryMessage": ToolCallSummaryMessage(content="3", tool_calls=[], results=[], source="member"),
}

MESSAGE_PARTS = {
    "TextMessage": ("ChatMessage", "BaseMessage", "BaseChatMessage", "BaseTextChatMessage", "MessageFactory"),
    "StructuredMessage": ("StructuredContentType", "StructuredMessageFactory"),
}

ROWS = [
    Row(
        f"{AGENTS}.AssistantAgent",
        lambda world: world.beside(
            world.member(model=world.caller("note", text="dry"), tools=[world.note], reflect_on_tool_use=True)
        ),
        "calls a tool and says what it was given, before the question and after the answer",
        parts=[
            "autogen_agentchat.state.AssistantAgentState",
            "autogen_agentchat.state.BaseState",
            *(
                f"{MESSAGES}.{each}"
                for each in ("AgentEvent", "BaseAgentEvent", "ToolCallExecutionEvent", "ToolCallRequestEvent")
            ),
        ],
    ),
    Row(
        f"{AGENTS}.BaseChatAgent",
        lambda world: world.beside(Diary()),
        "an agent of one's own without `save_state`, which keeps what it hears in an attribute",
        parts=[f"{BASE}.ChatAgent", f"{BASE}.TaskRunner", f"{BASE}.Response", f"{MESSAGES}.ThoughtEvent"],
    ),
    Row(
        f"{AGENTS}.CodeExecutorAgent",
        lambda world: coding(world, approval_func=approve),
        "writes code, has it approved by a function, runs it",
        parts=[
            *(f"{AGENTS}.{each}" for each in ("ApprovalRequest", "ApprovalResponse", "ApprovalFuncType")),
            *(f"{MESSAGES}.{each}" for each in ("CodeGenerationEvent", "CodeExecutionEvent")),
        ],
    ),
    Row(
        f"{AGENTS}.SocietyOfMindAgent",
        society,
        "its inner team is asked",
        parts=["autogen_agentchat.state.SocietyOfMindAgentState"],
    ),
    Row(
        f"{AGENTS}.UserProxyAgent",
        proxied,
        "its turn is the question",
        parts=[f"{MESSAGES}.UserInputRequestedEvent"],
        outcome=Outcome.REMARKED,
        remark="with an `input_func` of its own it asks in the program, at once",
    ),
    Row(
        f"{AGENTS}.MessageFilterAgent",
        filtering,
        "hears only the last message of the one that asks",
        parts=[f"{AGENTS}.MessageFilterConfig", f"{AGENTS}.PerSourceFilter"],
    ),
    Row(f"{BASE}.Handoff", handing, "hands off to the one that asks"),
    Row("autogen_agentchat.tools.AgentTool", calling(AgentTool), "the agent in the tool asks"),
    Row("autogen_agentchat.tools.TeamTool", calling(team_tool), "a member of the team in the tool asks"),
    *(
        Row(
            f"{MESSAGES}.{name}",
            says(message),
            "sent by an agent, read by another after the answer",
            parts=[f"{MESSAGES}.{each}" for each in MESSAGE_PARTS.get(name, ())],
        )
        for name, message in GIVEN_TEXT.items()
    ),
    Row(
        f"{MESSAGES}.ModelClientStreamingChunkEvent",
        lambda world: world.beside(world.member(model_client_stream=True)),
        "the pieces of a streamed reply",
    ),
]
