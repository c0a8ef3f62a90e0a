"""The section of the settings about the service, and the trusted proxy that says who calls it."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, IPvAnyNetwork, model_validator
from pydantic_core import PydanticCustomError

from upcall.setting_types import About, AtLeastOne, Section, Url, no_flag

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_TAKEN = {"authorization", "cookie", "host", "origin", "x-csrf-token"}


def _refuse_everybody(value: Network) -> Network:
    if value.prefixlen == 0:
        raise PydanticCustomError("network", "it is every address there is: name those of the proxy")
    return value


def _refuse_taken(value: str) -> str:
    if value.lower() in _TAKEN:
        raise PydanticCustomError("header", "this header says something else")
    return value


HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{1,60}$"), AfterValidator(_refuse_taken)]
ChoiceName = Annotated[str, Field(pattern=r"^\S(.{0,58}\S)?$")]
"""What people see of something that they may choose: one line of at most 60 characters."""


class TrustedProxySettings(BaseModel, extra="forbid"):
    """A trusted proxy: it authenticates users, and says in a header who calls.

    Attributes:
        networks: the addresses that it calls from. Nobody else's headers count.
        user_header: the header with the user's name. The proxy sets it in each request, or takes it out.
        role_header: the header with what they may do beyond what is theirs; none if not given.
    """

    networks: Annotated[list[Annotated[IPvAnyNetwork, AfterValidator(_refuse_everybody)]], Field(min_length=1)]
    user_header: HeaderName = "X-Forwarded-User"
    role_header: HeaderName | None = None

    @model_validator(mode="after")
    def _has_two_headers(self) -> Self:
        if self.role_header is not None and self.role_header.lower() == self.user_header.lower():
            raise PydanticCustomError("header", "user_header and role_header are the same: a name would be a role")
        return self


class ServerSettings(Section):
    """Where the service listens, and whom it believes."""

    host: Annotated[
        str,
        About(
            "the address that `upcall serve` listens on",
            when="to let other machines in, behind a proxy",
            shown="",
            short="The address to listen on [127.0.0.1].",
            effect="the service listens there",
        ),
    ] = "127.0.0.1"
    port: Annotated[
        Annotated[int, BeforeValidator(no_flag), Field(ge=0, le=65535)],
        About(
            "its port; 0 for any free one",
            when="when it is taken",
            shown="",
            short="The port to listen on; 0 for any free one [8765].",
        ),
    ] = 8765
    origins: Annotated[
        list[str],
        About(
            "origins whose pages may call the service: `https://app.example.org`",
            when="with a front end of your own",
            short="An origin whose pages may call the service; repeatable.",
            effect="pages of these sites may call the service",
        ),
    ] = []
    public_url: Annotated[
        Url | None,
        About(
            "where browsers find the service: `https://inbox.example.org`; for links, and as the host name that it "
            "accepts",
            when="with mail, or behind a proxy",
        ),
    ] = None
    trusted_proxy: Annotated[
        TrustedProxySettings | None,
        About(
            "a proxy that authenticates: `networks`, `user_header`, `role_header`; see [Behind a "
            "proxy](guides/service.md#behind-a-proxy-that-authenticates)",
            when="to log in once, at the proxy",
            effect="the service believes this proxy who somebody is",
        ),
    ] = None
    models: Annotated[
        list[ChoiceName],
        About(
            "models of the common server that a start may [choose](guides/service.md#what-a-start-may-choose), besides "
            "`models.model`",
            when="when some tasks need a larger model",
        ),
    ] = []
    teams: Annotated[
        dict[ChoiceName, Annotated[str, Field(pattern=r"^[\w.]+:[\w.]+$")]],
        About(
            'teams that may be chosen, by the names that people see: `{shop: "teams.shop:make_team"}`',
            when="when one service has several teams",
            effect="imports these functions, whose code runs with your rights",
        ),
    ] = {}
    workspaces: Annotated[
        dict[ChoiceName, Path],
        About(
            "folders that may be chosen for the coder's files, by the names that people see: `{website: "
            "/srv/website}`; everybody who is let in may choose each",
            when="when tasks are about existing projects",
            effect="everybody who is let in may have the coder change the files in these folders",
        ),
    ] = {}
    uploads_limit: Annotated[
        AtLeastOne,
        About(
            "total bytes of the documents sent to the [service](guides/service.md), over all runs; a start that "
            "exceeds it is refused",
            when="when the disk is smaller, or the documents are larger",
        ),
    ] = 5_000_000_000
    open_metrics: Annotated[
        bool,
        About(
            "whether `/metrics` needs no token: numbers of all users together, no names and no texts",
            when="where only your monitoring reaches the service",
            effect="everybody who reaches the service may read how many questions are open, and what was spent",
        ),
    ] = False
