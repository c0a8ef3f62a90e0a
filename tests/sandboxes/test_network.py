"""The network of a command: by a proxy to the hosts that are allowed, and nothing of this machine beside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from sandboxed import needs_bubblewrap

from upcall import addresses
from upcall.sandboxes import Bubblewrap, NetworkAccess
from upcall.sandboxes.limits import Limits

pytestmark = needs_bubblewrap

ASK = """
import http.client, os, urllib.parse
there = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
line = http.client.HTTPConnection(there.hostname, there.port, timeout=20)
line.set_tunnel({host!r}, {port})
try:
    line.connect()
    line.sock.sendall(b"?")
    print(line.sock.recv(99))
except OSError as error:
    print(error)
"""


SAY = "exec 3<>/dev/tcp/127.0.0.1/${{{{HTTPS_PROXY##*:}}}}; printf '{} HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3"
"""What is written to the proxy word by word."""


class Server:
    """A server of this machine that greets who asks, and counts them."""

    port = 0
    reached = 0

    async def greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reached += 1
        await reader.read(1)
        writer.write(b"hello")
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    async with await asyncio.start_server(made.greet, "127.0.0.1", 0) as listening:
        made.port = listening.sockets[0].getsockname()[1]
        yield made


async def ask(folder: Path, access: NetworkAccess | None, host: str, port: int) -> str:
    code = ASK.format(host=host, port=port)
    command = ["python3", "-c", code]
    return (await Bubblewrap().run(command, folder=folder, limits=Limits(seconds=30), network=access)).output


async def test_host_that_is_named_is_reached(server: Server, tmp_path: Path) -> None:
    access = NetworkAccess([f"127.0.0.1:{server.port}"])
    assert await ask(tmp_path, access, "127.0.0.1", server.port) == "b'hello'\n"
    assert server.reached == 1


async def test_connection_goes_to_an_address_that_was_checked(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second look-up may give another one. Here this machine stands for one of a private network."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    monkeypatch.setattr(addresses, "resolve", resolve)
    monkeypatch.setattr(addresses, "is_of_this_machine", lambda address: False)
    access = NetworkAccess([f"corp.test:{server.port}"])
    assert await ask(tmp_path, access, "corp.test", server.port) == "b'hello'\n"


@pytest.mark.parametrize(
    ("hosts", "asked", "resolved", "emitted"),
    [
        (["pypi.org"], "example.org", ["93.184.215.14"], "403 example.org:PORT is none of the hosts"),
        (["127.0.0.1"], "127.0.0.1", ["127.0.0.1"], "403 127.0.0.1:PORT is none"),
        (["local.test:PORT"], "local.test", ["127.0.0.1"], "403 local.test is in a private network"),
        (["cloud.test:PORT"], "cloud.test", ["169.254.169.254"], "403 cloud.test is in a private network"),
        (["cloud.test:PORT"], "cloud.test", ["fd00:ec2::254"], "403 cloud.test is in a private network"),
        (["cloud.test:PORT"], "cloud.test", ["100.100.100.200"], "403 cloud.test is in a private network"),
        (None, "127.0.0.1", ["127.0.0.1"], "403 127.0.0.1 is in a private network or this machine"),
        (None, "localhost", ["::1", "127.0.0.1"], "403 localhost is in a private network"),
        (None, "mapped.test", ["::ffff:127.0.0.1"], "403 mapped.test is in a private"),
        (None, "both.test", ["93.184.215.14", "127.0.0.1"], "403 both.test is in a private"),
        (None, "corp.test", ["10.0.0.5"], "403 corp.test is in a private"),
        (None, "unknown.test", [], "502 unknown.test is not known"),
    ],
)
async def test_any_other_host_is_refused(
    hosts: Sequence[str] | None,
    asked: str,
    resolved: Sequence[str],
    emitted: str,
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return resolved

    monkeypatch.setattr(addresses, "resolve", resolve)
    named = [each.replace("PORT", str(server.port)) for each in hosts or ()]
    text = await ask(tmp_path, NetworkAccess(named, public=hosts is None), asked, server.port)
    assert emitted.replace("PORT", str(server.port)) in text
    assert server.reached == 0


@pytest.mark.parametrize(
    "way",
    [
        "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 5)'",
        "exec 3<>/dev/tcp/127.0.0.1/{port}",
        "curl -s --noproxy '*' http://127.0.0.1:{port}",
        "curl -s http://127.0.0.1:{port}; curl -sp --proxy $HTTPS_PROXY telnet://127.0.0.1:{port} < /dev/null",
        SAY.format("GET http://127.0.0.1:{port}/"),
        SAY.format("CONNECT 127.1:{port}"),
        SAY.format("CONNECT 0:{port}"),
        SAY.format("CONNECT :{port}"),
        "getent hosts localhost.; cat /etc/resolv.conf /etc/hosts; ip addr; exit 1",
    ],
)
async def test_no_way_leads_to_this_machine(way: str, server: Server, tmp_path: Path) -> None:
    command = way.format(port=server.port)
    access = NetworkAccess(public=True)
    execution = await Bubblewrap().run(command, folder=tmp_path, limits=Limits(seconds=20), network=access)
    assert execution.stopped is None
    assert (server.reached, "hello" in execution.output) == (0, False)


async def test_what_the_proxy_holds_ends_with_the_command(server: Server, tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    await ask(tmp_path, NetworkAccess([f"127.0.0.1:{server.port}"]), "127.0.0.1", server.port)
    assert asyncio.all_tasks() <= before


async def test_connection_that_is_still_open_ends_quietly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ended = asyncio.Event()

    async def stay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"hello")
        await ended.wait()
        writer.close()

    async with await asyncio.start_server(stay, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        assert await ask(tmp_path, NetworkAccess([f"127.0.0.1:{port}"]), "127.0.0.1", port) == "b'hello'\n"
        ended.set()
        await asyncio.sleep(0)  # What asyncio calls at a task's end comes after it.
    assert caplog.text == ""


MANY = """
import os, socket, urllib.parse
there = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
lines = [socket.create_connection((there.hostname, there.port)) for _ in range(140)]
print({line.recv(1) for line in lines[128:]})
lines[0].sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
print(lines[0].recv(12))
"""


async def test_no_more_connections_than_the_bound_are_open(tmp_path: Path) -> None:
    limits = Limits(seconds=20)
    command = ["python3", "-c", MANY]
    execution = await Bubblewrap().run(command, folder=tmp_path, limits=limits, network=NetworkAccess())
    assert execution.output.startswith("{b''}\nb'HTTP/1.1 405'\n")


async def test_network_failures_are_named_to_the_outputs_reader(tmp_path: Path) -> None:
    text = await ask(tmp_path, NetworkAccess(["pypi.org"]), "example.org", 443)
    assert text.endswith(
        "\n[Not connected: example.org:443 is none of the hosts that the user allows (workspace.network_hosts)]"
    )
    long = await Bubblewrap().run(
        SAY.format(f"CONNECT \\x9b2J{'x' * 900}:443").replace("{{", "{").replace("}}", "}"),
        folder=tmp_path,
        limits=Limits(seconds=20),
        network=NetworkAccess(),
    )
    assert len(long.output.splitlines()[-1]) < 300
    assert long.output.splitlines()[-1].startswith("[Not connected: \\x9b2Jxxx")
