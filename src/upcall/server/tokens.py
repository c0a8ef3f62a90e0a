"""Access to the service: tokens and browser sessions. Only a hash of each is stored, so that readers of the
store cannot use them."""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Any

from upcall import identity
from upcall.errors import CallerError
from upcall.runs.events import LoggedIn, LoggedOut, TokenCreated, TokenRevoked
from upcall.runs.run_page import is_storable
from upcall.storage.connection import Connection
from upcall.storage.event_log import append_events
from upcall.storage.schema import Table, is_made
from upcall.storage.store import RunStore

PREFIX = "upcall_"
"""How a token begins: those who look for secrets in files find it."""

TOKENS = Table(
    "upcall_tokens",
    {
        "digest": "TEXT",
        "id": "TEXT NOT NULL",
        "actor": "TEXT",
        "role": "TEXT",
        "session_of": "TEXT",
        "created_at": "NUMBER NOT NULL",
        "expires_at": "NUMBER",
    },
    "digest",
)
"""Who may use the service, by the hash of what they show."""

_COLUMNS = "id, actor, role, session_of, created_at, expires_at"


@dataclass(frozen=True)
class Token:
    """A token or session that lets somebody in, without its secret.

    Attributes:
        id: its id, for `revoke_token`.
        user: its user; None for the operator of the service, on the machine itself.
        role: what they may do besides their own runs: ``admin``, or a role from the settings.
        session_of: the token that a browser logged in with, if this is a session.
    """

    id: str
    user: str | None
    role: str | None
    session_of: str | None
    created_at: datetime
    expires_at: datetime | None

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        at = {"created_at": self.created_at.isoformat(), "expires_at": self.expires_at and self.expires_at.isoformat()}
        return {**asdict(self), **at}


async def create_token(
    store: RunStore, user: str, role: str | None = None, lifetime: timedelta | None = None
) -> tuple[Token, str]:
    """Store a new token; return it and the secret, which is not available again. Without a lifetime it does not expire.

    Raises:
        CallerError: the user is empty, or the name of user or role is not text.
    """
    if not user.strip():
        raise CallerError("The user of a token is empty. Give a name.")
    if not all(map(is_storable, (user, role or ""))):
        raise CallerError("The user or the role of a token holds a NUL, or bytes that are not text in UTF-8.")
    return await _store_token(store, user, role, None, lifetime, TokenCreated)


async def open_session(store: RunStore, token: Token | None, lifetime: timedelta) -> tuple[Token, str]:
    """Store a session for a token's user or the operator; it ends with the token at the latest."""
    if token is None:
        return await _store_token(store, None, None, "", lifetime, LoggedIn)
    left = None if token.expires_at is None else token.expires_at - identity.now()
    lifetime = lifetime if left is None else min(lifetime, left)
    return await _store_token(store, token.user, token.role, token.id, lifetime, LoggedIn)


async def _store_token(
    store: RunStore,
    user: str | None,
    role: str | None,
    session_of: str | None,
    lifetime: timedelta | None,
    act: type[TokenCreated | LoggedIn],
) -> tuple[Token, str]:
    now = identity.now()
    expires_at = None if lifetime is None else now + lifetime
    token = Token(identity.new_id(), user, role, session_of, now, expires_at)
    secret = PREFIX + secrets.token_urlsafe(32)
    row = {
        "digest": hash_secret(secret),
        "id": token.id,
        "actor": user,
        "role": role,
        "session_of": session_of,
        "created_at": int(now.timestamp()),
        "expires_at": expires_at and int(expires_at.timestamp()),
    }

    def work(connection: Connection) -> None:
        connection.execute("DELETE FROM upcall_tokens WHERE expires_at <= :now", {"now": int(now.timestamp())})
        connection.execute(
            f"INSERT INTO upcall_tokens (digest, {_COLUMNS}) "
            "VALUES (:digest, :id, :actor, :role, :session_of, :created_at, :expires_at)",
            row,
        )
        append_events(connection, "", [act(user=user, token=session_of or token.id, role=role or None)])

    await store.database.write(work)
    return token, secret


async def find_token(store: RunStore, secret: str) -> Token | None:
    """Find the token or session of a secret; None if there is none, or it has expired."""
    values = {"digest": hash_secret(secret), "now": int(identity.now().timestamp())}
    query = f"SELECT {_COLUMNS} FROM upcall_tokens WHERE digest = :digest AND (expires_at IS NULL OR expires_at > :now)"
    rows = await _read(store, query, values)
    return _read_token(rows[0]) if rows else None


async def list_tokens(store: RunStore) -> list[Token]:
    """List the valid tokens, oldest first, without sessions."""
    query = (
        f"SELECT {_COLUMNS} FROM upcall_tokens WHERE session_of IS NULL AND (expires_at IS NULL OR expires_at > :now) "
        "ORDER BY created_at, id"
    )
    return [_read_token(row) for row in await _read(store, query, {"now": int(identity.now().timestamp())})]


async def _read(store: RunStore, query: str, values: dict[str, Any]) -> list[Any]:
    def work(connection: Connection) -> list[Any]:
        return connection.execute(query, values).fetchall() if is_made(connection, TOKENS) else []

    return await store.database.read(work) if await store.exists() else []


async def revoke_token(store: RunStore, token_id: str) -> None:
    """Remove a token, and the sessions that were opened with it.

    Raises:
        CallerError: there is none with this id.
    """
    known = [token.id for token in await list_tokens(store)]
    if token_id not in known:
        raise CallerError(f"There is no token {token_id!r}. See them with: upcall token list")
    await store.database.write(partial(_delete, token_id=token_id))


async def close_session(store: RunStore, session: Token) -> None:
    """Remove a session."""

    def work(connection: Connection) -> None:
        connection.execute("DELETE FROM upcall_tokens WHERE id = :id", {"id": session.id})
        append_events(connection, "", [LoggedOut(user=session.user, token=session.session_of or session.id)])

    await store.database.write(work)


def hash_secret(secret: str) -> str:
    """Hash a secret. It has 256 random bits: nobody finds it by trying, so that a fast hash is enough."""
    return sha256(secret.encode(errors="replace")).hexdigest()


def _delete(connection: Connection, *, token_id: str) -> None:
    connection.execute("DELETE FROM upcall_tokens WHERE id = :id OR session_of = :id", {"id": token_id})
    append_events(connection, "", [TokenRevoked(token=token_id)])


def _read_token(row: Any) -> Token:
    token_id, user, role, session_of, created_at, expires_at = row
    ends = None if expires_at is None else datetime.fromtimestamp(expires_at, UTC)
    return Token(token_id, user, role, session_of, datetime.fromtimestamp(created_at, UTC), ends)
