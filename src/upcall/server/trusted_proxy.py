"""Who calls, according to a trusted proxy that has authenticated them. Only configured addresses count as one."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import Scope

from upcall.errors import NotAllowed
from upcall.policy.authorization import ADMIN
from upcall.policy.routing import ROLE
from upcall.server.settings import TrustedProxySettings

MAX_NAME_CHARS = 200


class TrustedProxyRefused(NotAllowed):
    """The trusted proxy's header does not say who calls."""


@dataclass(frozen=True)
class TrustedProxyUser:
    """Who calls, and what they may do beyond what is theirs."""

    user: str
    role: str | None


class TrustedProxy:
    """Reads the headers of the proxy that the settings trust.

    Args:
        settings: its addresses, and the names of its headers.
        roles: those of the settings.
    """

    def __init__(self, settings: TrustedProxySettings, roles: Collection[str]) -> None:
        self._settings, self._roles = settings, {ADMIN, *roles}

    def find_user(self, scope: Scope) -> TrustedProxyUser | None:
        """Find out whom the proxy has let in; None if the request is not from it, or names nobody.

        Raises:
            TrustedProxyRefused: the header is repeated or contains no name, or there is no such role.
        """
        if not self._is_from(scope):
            return None
        user = self._read(scope, self._settings.user_header)
        if user is None:
            return None
        role = self._read(scope, self._settings.role_header) if self._settings.role_header is not None else None
        if role is not None and role not in self._roles:
            raise TrustedProxyRefused(
                f"{self._settings.role_header}: there is no role {role!r}. Name it in the settings."
            )
        return TrustedProxyUser(user, role)

    def name_origin(self, scope: Scope) -> str:
        """Name the origin of a request, for counting: behind the proxy each user is one origin."""
        address = str((scope.get("client") or ("",))[0])
        if not self._is_from(scope):
            return address
        return "\n".join([address, *Headers(scope=scope).getlist(self._settings.user_header)])

    def _is_from(self, scope: Scope) -> bool:
        """Return whether the other end of the connection is the proxy, whatever a header says."""
        client = scope.get("client")
        try:
            address = ipaddress.ip_address(client[0]) if client else None
        except ValueError:  # A Unix socket has no address.
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return address is not None and any(address in network for network in self._settings.networks)

    def _read(self, scope: Scope, name: str) -> str | None:
        found = Headers(scope=scope).getlist(name)
        if not any(found):
            return None
        if len(found) > 1 or "," in found[0]:  # One of them may be the caller's own claim.
            raise TrustedProxyRefused(
                f"The header {name} is there several times. Let the proxy set it anew in each request."
            )
        try:
            value = found[0].encode("latin-1").decode().strip()
        except UnicodeDecodeError:
            value = ""
        if not value or len(value) > MAX_NAME_CHARS or not value.isprintable() or value.startswith(ROLE):
            raise TrustedProxyRefused(f"The header {name} holds no name. Look at what the proxy sends.")
        return value
