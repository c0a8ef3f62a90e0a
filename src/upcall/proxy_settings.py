"""The proxy that says who calls the service, as the settings name it."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, Field, IPvAnyNetwork, model_validator
from pydantic_core import PydanticCustomError

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


class ProxySettings(BaseModel, extra="forbid"):
    """A proxy that authenticates.

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
