"""The card of the agent, and the application behind its address: JSON-RPC, and the same as plain HTTP."""

from __future__ import annotations

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH as CARD_PATH
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, TransportProtocol
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp

import upcall
from upcall.server.a2a.handler import CALLER, RECEIVE, RunHandler
from upcall.server.callers import Authenticator
from upcall.server.events import Streams
from upcall.server.service import Service
from upcall.server.tokens_only import SCOPE_CALLER, TokensOnly

__all__ = ["CARD_PATH", "make_endpoint", "show_card"]

TOKEN = "token"
"""How the card calls the only way to be let in."""

MEDIA_TYPES = ["text/plain", "application/json"]


class _CallerContext(DefaultServerCallContextBuilder):
    """Passes on who calls, as the way in has found it, and what says that they hang up."""

    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        context.state[CALLER] = request.scope[SCOPE_CALLER]
        context.state[RECEIVE] = request.receive
        return context


def make_endpoint(service: Service, authenticator: Authenticator, streams: Streams, path: str) -> ASGIApp:
    """Make the application below a path."""
    handler, builder = RunHandler(service, authenticator, streams), _CallerContext()
    routes = [
        *create_jsonrpc_routes(handler, path, context_builder=builder, enable_v0_3_compat=True),
        *create_rest_routes(handler, context_builder=builder, path_prefix=path),
    ]
    return TokensOnly(Starlette(routes=routes), authenticator)


def show_card(service: Service, request: Request) -> JSONResponse:
    """Describe the agent, at the address by which it was found."""
    url = f"{str(service.server_settings.public_url or request.base_url).rstrip('/')}/a2a"
    bindings = (TransportProtocol.JSONRPC.value, TransportProtocol.HTTP_JSON.value)
    skill = AgentSkill(
        id="run",
        name="Do a task",
        description="Does a task, and asks in the middle of it what it does not know.",
        tags=["task", "human-in-the-loop"],
    )
    card = AgentCard(
        name="upcall",
        description="Agents that may ask in the middle of their work, at any depth: questions are required input.",
        version=upcall.__version__,
        supported_interfaces=[
            *(
                AgentInterface(url=url, protocol_binding=each, protocol_version=PROTOCOL_VERSION_1_0)
                for each in bindings
            ),
            AgentInterface(url=url, protocol_binding=bindings[0], protocol_version=PROTOCOL_VERSION_0_3),
        ],
        capabilities=AgentCapabilities(streaming=True),
        security_schemes={TOKEN: SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="bearer"))},
        security_requirements=[SecurityRequirement(schemes={TOKEN: StringList()})],
        default_input_modes=MEDIA_TYPES,
        default_output_modes=MEDIA_TYPES,
        skills=[skill],
    )
    return JSONResponse(agent_card_to_dict(card))
