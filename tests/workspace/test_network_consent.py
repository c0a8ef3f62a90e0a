"""Who allows a command the network: the settings, or the human with the command."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import ValidationError
from sandboxed import needs_bubblewrap

from upcall import Settings
from upcall.errors import ConfigurationError, UserInputRequired
from upcall.sandboxes import Bubblewrap, NetworkAccess
from upcall.workspace.commands import ExecutionWorkbench
from upcall.workspace.consent import Consent

CONNECT = """
import http.client, os, urllib.parse
there = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
line = http.client.HTTPConnection(there.hostname, there.port, timeout=20)
line.set_tunnel("127.0.0.1", PORT)
line.connect()
line.sock.sendall(b"?")
print(line.sock.recv(99))
"""


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"hello")
    writer.close()


@pytest.mark.slow
@needs_bubblewrap
async def test_hosts_that_the_settings_name_need_no_question(tmp_path: Path) -> None:
    async with await asyncio.start_server(greet, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        consent = Consent(network_hosts=[f"127.0.0.1:{port}"])
        bench = ExecutionWorkbench(tmp_path, Bubblewrap(), consent=consent)
        code = CONNECT.replace("PORT", str(port))
        emitted = await bench.call_tool("run_python", {"code": code, "network": True})
        assert emitted.to_text().endswith("b'hello'\n")
        emitted = await bench.call_tool("run_python", {"code": code})
        assert "KeyError: 'HTTPS_PROXY'" in emitted.to_text()


def test_what_a_command_may_reach() -> None:
    named = Consent(allow_commands=["pip install x"], network_hosts=["pypi.org"])
    assert named.request_network("anything") == NetworkAccess(["pypi.org"])
    assert named.request_network("pip install x") == NetworkAccess(["pypi.org"], public=True)
    assert Consent(["git push"]).request_network("git push") == NetworkAccess(public=True)


@pytest.mark.parametrize(
    ("command", "emitted"),
    [
        ("anything", "It could reach pypi.org, and send"),
        ("pip install x", "It could reach pypi.org, any host of the public internet, and send"),
    ],
)
def test_network_command_cut_off_is_asked_with_its_reach(command: str, emitted: str) -> None:
    named = Consent(allow_commands=["pip install x"], network_hosts=["pypi.org"])
    with pytest.raises(UserInputRequired) as asked:
        named.request_network(command, begun=1)
    assert emitted in (asked.value.context or "")
    assert [each.label for each in asked.value.options] == ["Yes, run it", "No, do not run it"]


@pytest.mark.parametrize("host", ["https://pypi.org", "*.pypi.org", "pypi.org/simple", "me@pypi.org", "", "pypi.org:x"])
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises((ConfigurationError, ValidationError), match=r"is not a host: name one like pypi\.org"):
        Settings.read(None, workspace={"network_hosts": [host]})
