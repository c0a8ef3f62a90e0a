"""Tokens and sessions in the store, and ``upcall token``."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from scenario import upcall
from stores import execute

from upcall import identity
from upcall.errors import CallerError
from upcall.server.requests import KeyReused, reserve_request
from upcall.server.tokens import close_session, create_token, find_token, list_tokens, open_session, revoke_token
from upcall.storage.store import RunStore

DAY = timedelta(days=1)


async def test_token_names_its_user_and_role(location: str) -> None:
    store = RunStore(location)
    token, secret = await create_token(store, "alice", "admin", DAY)
    assert await find_token(store, secret) == token
    assert (token.user, token.role, await list_tokens(store)) == ("alice", "admin", [token])
    assert await find_token(store, secret + "x") is None


async def test_secret_is_not_in_the_store() -> None:
    store = RunStore("runs.db")
    _, secret = await create_token(store, "alice")
    await store.close()
    assert all(secret.encode() not in file.read_bytes() for file in Path().glob("runs.db*"))


async def test_expired_token_is_unknown(monkeypatch: pytest.MonkeyPatch, location: str) -> None:
    store = RunStore(location)
    _, secret = await create_token(store, "alice", None, DAY)
    later = identity.now() + DAY
    monkeypatch.setattr(identity, "now", lambda: later)
    assert (await find_token(store, secret), await list_tokens(store)) == (None, [])


async def test_revoked_token_ends_its_sessions(location: str) -> None:
    store = RunStore(location)
    token, secret = await create_token(store, "alice", None, DAY)
    session, cookie = await open_session(store, token, timedelta(days=30))
    assert (session.user, session.expires_at, await find_token(store, cookie)) == ("alice", token.expires_at, session)
    await revoke_token(store, token.id)
    assert (await find_token(store, secret), await find_token(store, cookie)) == (None, None)
    with pytest.raises(CallerError, match="no token"):
        await revoke_token(store, token.id)
    acts = [(entry.kind, entry.user) for entry in await store.events.read_all()]
    assert acts == [("token created", "alice"), ("logged in", "alice"), ("token revoked", None)]


async def test_closed_session_leaves_the_token(location: str) -> None:
    store = RunStore(location)
    token, secret = await create_token(store, "alice")
    session, cookie = await open_session(store, token, DAY)
    await close_session(store, session)
    assert (await find_token(store, cookie), await find_token(store, secret)) == (None, token)


async def test_repeated_request_is_for_the_same_run(location: str) -> None:
    store = RunStore(location)
    assert await reserve_request(store, "alice", "k", {"task": "a"}, "one") == "one"
    assert await reserve_request(store, "alice", "k", {"task": "a"}, "two") == "one"
    assert await reserve_request(store, "bob", "k", {"task": "b"}, "three") == "three"
    with pytest.raises(KeyReused):
        await reserve_request(store, "alice", "k", {"task": "b"}, "four")


async def read_digest(store: RunStore) -> str:
    found = await store.database.read(lambda each: each.execute("SELECT content FROM upcall_requests", {}).fetchone())
    return str(found[0])


async def test_repeated_request_is_known_under_another_key(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, plain = RunStore(location), sha256(b'{"q": "1234"}').hexdigest()
    assert await reserve_request(store, "alice", "k", {"q": "1234"}, "one") == "one"
    assert await read_digest(store) == plain
    for keys in ("first", "second,first"):
        monkeypatch.setenv("UPCALL_SECRET_KEY", keys)
        assert await reserve_request(store, "alice", "k", {"q": "1234"}, "two") == "one"
        with pytest.raises(KeyReused):
            await reserve_request(store, "alice", "k", {"q": "1235"}, "three")


async def test_stored_request_cannot_be_guessed(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RunStore(location)
    monkeypatch.setenv("UPCALL_SECRET_KEY", "first")
    assert await reserve_request(store, "alice", "k", {"q": "1234"}, "one") == "one"
    assert await read_digest(store) != sha256(b'{"q": "1234"}').hexdigest()
    monkeypatch.setenv("UPCALL_SECRET_KEY", "second,first")
    assert await reserve_request(store, "alice", "k", {"q": "1234"}, "two") == "one"


@pytest.mark.slow
def test_token_is_made_listed_and_revoked_by_command() -> None:
    made = upcall("token", "create", "alice", "--role", "admin", "--json").json
    assert made["secret"].startswith("upcall_")
    assert upcall("token", "create", "bob", "--expires-after", "never").out.startswith("upcall_")
    listed = upcall("token", "list")
    assert f"{made['id']}  alice (admin), until " in listed.out
    assert made["secret"] not in listed.out
    assert upcall("token", "revoke", made["id"]).status == 0
    assert [each["user"] for each in upcall("token", "list", "--json").json] == ["bob"]  # type: ignore[index]
    assert "Roles: admin." in upcall("token", "create", "eve", "--role", "root").error
    assert "--expires-after 'soon' is wrong" in upcall("token", "create", "eve", "--expires-after", "soon").error


@pytest.mark.parametrize("name", ["\udcff", "a\0"])
async def test_token_for_a_name_without_text_is_refused(name: str) -> None:
    with pytest.raises(CallerError, match="holds a NUL, or bytes"):
        await create_token(RunStore("runs.db"), name)


async def test_token_in_a_store_made_without_tokens_is_unknown(location: str) -> None:
    await create_token(RunStore(location), "alice")
    execute(location, "drop table upcall_tokens")
    store = RunStore(location)
    assert (await find_token(store, "x"), await list_tokens(store)) == (None, [])
    _, secret = await create_token(store, "bob")
    assert await find_token(store, secret) is not None
