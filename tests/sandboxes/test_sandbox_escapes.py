"""Ways out of the sandbox, tried by real commands: each is refused, and what they were after is as it was."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attacks import list_attacks
from sandboxed import alive, needs_bubblewrap

from upcall import identity
from upcall.sandboxes import processes
from upcall.sandboxes.base import Execution
from upcall.sandboxes.bubblewrap import Bubblewrap
from upcall.sandboxes.limits import Limits
from upcall.sandboxes.local import Local
from upcall.sandboxes.views import make_view
from upcall.state_folder import find_state_folder

pytestmark = needs_bubblewrap

SMALL = Limits(
    seconds=20, memory_mb=200, processes=40, disk_mb=100, file_mb=30, tmp_mb=10, output_chars=2_000, max_output_mb=5
)
SECRET = f"secret-{secrets.token_hex(8)}"
"""What is not to be read: in a file of the user's home, in the environment, in a file beside the workspace."""

SIGNAL = {
    "the parent": "kill -9 $PPID; kill -9 1",
    "the test": "kill -9 {pid}; kill -TERM {pid}",
    "another process of the user": "kill -9 {victim}; kill {victim}",
    "all processes": "kill -9 -1",
    "its process group": "kill -9 0",
    "by its name": "pkill -9 python; killall -9 python; pkill -9 sleep",
    "by tracing": 'strace -p {victim}; gdb -p {victim} -batch; python3 -c "import ctypes; print(ctypes.CDLL(None)'
    ".ptrace(16, {victim}, 0, 0))\" | grep -v '^-1'",
    "its memory": "echo x > /proc/{victim}/mem; ls /proc/{victim}",
    "by its limits": "prlimit --pid {victim} --cpu=1; renice 19 -p {victim}",
}

LIMITS = {
    "a fork bomb": (":(){ :|:& };:; sleep 10", "processes"),
    "a fork bomb in Python": (
        'python3 -c "import os\nwhile True:\n try: os.fork()\n except OSError: pass"',  # It does not end by itself.
        "processes",
    ),
    "many sleepers": ("for i in $(seq 200); do setsid sleep 9 & done; wait", "processes"),
    "memory": ("python3 -c 'x = bytearray(400_000_000)'", None),
    "memory of many": (
        "for i in 1 2 3 4 5; do python3 -c 'import time; x = bytearray(90_000_000); time.sleep(9)' & done; wait",
        "memory",
    ),
    "shared memory": (
        "python3 -c 'import mmap, time; m = mmap.mmap(-1, 400_000_000); "
        "[m.write(bytes(1_000_000)) for _ in range(400)]; time.sleep(9)'",
        "memory",
    ),
    "memory of nobody": (
        'python3 -c "import os, time\nfor i in range(20):\n f = os.memfd_create(str(i))\n'
        ' for _ in range(20): os.write(f, bytes(1_000_000))\ntime.sleep(9)"',
        "memory",
    ),
    "a large file": ("head -c 60000000 /dev/zero > f; test $(stat -c %s f) -le 30000000", "exit"),
    "many files": ("for i in $(seq 20); do head -c 25000000 /dev/zero > f$i; done; sleep 9", "disk"),
    "files that are only reserved": ("for i in $(seq 20); do fallocate -l 25000000 f$i; done; sleep 9", "disk"),
    "a full /tmp": ("head -c 50000000 /dev/zero > /tmp/f; test $(stat -c %s /tmp/f) -le 10100000", "exit"),
    "a full /dev/shm": ("head -c 50000000 /dev/zero > /dev/shm/f; test $(stat -c %s /dev/shm/f) -le 10100000", "exit"),
    "endless output": ("yes", "output"),
    "endless output on both": ("yes >&2 & yes", "output"),
    "open files": ("python3 -c 'fs = [open(\"/dev/null\") for _ in range(2000)]'", None),
}


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process of the user, outside."""
    with subprocess.Popen(["sleep", "300"]) as process:
        yield process
        process.kill()


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a workspace that is a git repository, with secrets around it."""
    home = tmp_path / "home"
    folder = tmp_path / "beside" / "workspace"
    for each in (home, folder, folder / ".git" / "hooks"):
        each.mkdir(parents=True)
    (folder / ".git" / "config").write_text("[core]\n")
    (home / ".secret").write_text(SECRET)
    (folder.parent / "outside.txt").write_text(SECRET)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SECRET_KEY_OF_TEST", SECRET)
    return folder


async def run(command: str, folder: Path, **more: object) -> Execution:
    beside = folder.parent
    given = {"beside": beside, "outside": beside / "outside.txt", "home": os.environ["HOME"], "prefix": sys.prefix}
    for name, value in {**given, **more}.items():
        command = command.replace(f"{{{name}}}", str(value))
    view = make_view(folder, Path(os.environ["XDG_STATE_HOME"]) / secrets.token_hex(4))
    view.prepare()
    return await Bubblewrap().run(command, folder=folder, limits=SMALL, view=view)


@pytest.mark.parametrize("way", list_attacks("reads"))
async def test_nothing_outside_can_be_read(way: str, workspace: Path) -> None:
    execution = await run(way, workspace)
    assert SECRET not in execution.output


@pytest.mark.parametrize("way", list_attacks("writes"))
async def test_nothing_outside_can_be_written(way: str, workspace: Path) -> None:
    execution = await run(way, workspace)
    beside = workspace.parent
    assert sorted(each.name for each in beside.iterdir()) == ["outside.txt", "workspace"]
    assert (beside / "outside.txt").read_text() == SECRET
    assert (workspace / ".git" / "config").read_text() == "[core]\n"
    assert not list((workspace / ".git" / "hooks").iterdir())
    assert not any(Path(each, "written").exists() for each in ("/", "/usr", "/etc", "/bin", "/dev", sys.prefix))
    assert "CAN-WRITE" not in execution.output
    assert not [line for line in execution.output.splitlines() if line.startswith("/proc/sys")]


async def test_what_this_account_agreed_to_is_out_of_reach(workspace: Path) -> None:
    name = identity.account()
    state = find_state_folder()
    execution = await run(
        "mkdir -p {state}/agreements; echo CAN > {state}/agreements/x; cat {state}/*", workspace, state=state
    )
    assert [each.name for each in state.iterdir()] == ["account"]
    assert name.partition("#")[2] not in execution.output


@pytest.mark.parametrize("way", SIGNAL)
async def test_no_process_outside_can_be_touched(
    way: str, workspace: Path, victim: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    emitted: list[int] = []
    previous = signal.signal(signal.SIGTERM, lambda number, _: emitted.append(number))
    try:
        execution = await run(SIGNAL[way], workspace, pid=os.getpid(), victim=victim.pid)
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert not emitted
    assert victim.poll() is None
    assert execution.stopped is None


@pytest.mark.parametrize("way", list_attacks("connects"))
async def test_no_server_can_be_reached(way: str, workspace: Path) -> None:
    name = f"upcall-{secrets.token_hex(4)}"
    with socket.create_server(("0.0.0.0", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{name}")
        abstract.listen()
        port = server.getsockname()[1]
        listed = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout.split()
        addresses = {"127.0.0.1", *listed}
        socket.create_connection(("127.0.0.1", port)).close()  # It can be, from outside.
        server.accept()[0].close()
        execution = await run(way, workspace, port=port, abstract=name, addresses=" ".join(addresses))
        for each in (server, abstract):
            each.setblocking(False)
            with pytest.raises(BlockingIOError):
                each.accept()
    assert "inet " not in execution.output


@pytest.mark.parametrize("way", LIMITS)
async def test_what_is_used_has_an_end(way: str, workspace: Path) -> None:
    command, stopped = LIMITS[way]
    execution = await run(command, workspace)
    if stopped == "exit":
        assert (execution.exit_status, execution.stopped) == (0, None)
    elif stopped is None:
        assert execution.exit_status == 1
        assert "MemoryError" in execution.output or "Too many open files" in execution.output
    else:
        assert execution.stopped == stopped
        assert execution.exit_status == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    "way",
    [
        "sleep {mark} & echo ok",
        "setsid sleep {mark} & echo ok",
        "nohup sleep {mark} > /dev/null 2>&1 < /dev/null & disown; echo ok",
        "(setsid setsid sleep {mark} > /dev/null 2>&1 &) & echo ok",
        "python3 -c 'import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  os.closerange(0, 99)\n"
        '  os.execvp("sleep", ["sleep", "{mark}"])\' ; echo ok',
    ],
)
async def test_no_process_is_left_behind(way: str, workspace: Path) -> None:
    mark = str(secrets.randbelow(10**9) + 10**9)
    execution = await run(way, workspace, mark=mark)
    assert "ok" in execution.output
    assert alive(mark) == []


@pytest.mark.parametrize("way", ["cat ../outside.txt", "ln -s {outside} link; cat link", "cat /proc/*/environ"])
async def test_same_ways_lead_out_without_a_sandbox(way: str, workspace: Path) -> None:
    """Else the tests above would say nothing."""
    command = way.replace("{outside}", str(workspace.parent / "outside.txt"))
    with subprocess.Popen(["sleep", "30"]) as other:
        execution = await Local().run(command, folder=workspace, limits=Limits(output_chars=10**7))
        other.kill()
    assert execution.stopped is None
    assert SECRET in execution.output


KERNEL = {
    "the host of a virtual machine": "socket.socket(40, socket.SOCK_STREAM)",
    "any odd kind of socket": "[socket.socket(each, socket.SOCK_RAW) for each in (17, 29, 31, 38, 39, 44)]",
    "work that passes filters by": "call(425, 8, ctypes.create_string_buffer(120))",
    "page faults": "call(323, 0)",
    "other processes": "call(101, 16, os.getppid(), 0, 0)",
    "the memory of others": "call(310, os.getppid(), 0, 0, 0, 0, 0)",
    "the keys of the session": "call(250, 0, -3, 0)",
    "new keys": "call(248, b'user', b'upcall', b'x', 1, -3)",
    "a namespace": "call(272, 0x10000000)",
    "a mount": "call(165, b'none', b'/tmp', b'tmpfs', 0, 0)",
    "programs in the kernel": "call(321, 0, 0, 0)",
    "counters": "call(298, 0, 0, -1, -1, 0)",
}
ASK = """
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(*given):
    if libc.syscall(*given) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
{0}
print("REACHED")
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of the calls are those of x86-64")
@pytest.mark.parametrize("way", KERNEL)
async def test_kernel_refuses_the_escape(way: str, workspace: Path) -> None:
    execution = await Bubblewrap().run(["python3", "-"], folder=workspace, limits=SMALL, stdin=ASK.format(KERNEL[way]))
    assert "REACHED" not in execution.output
    assert "PermissionError" in execution.output or "Address family not supported" in execution.output


async def test_command_that_makes_very_many_files_is_stopped(workspace: Path) -> None:
    code = "import itertools\nfor n in itertools.count(): open(f'f{n}', 'w').close()"
    limits = SMALL.model_copy(update={"files": 2_000, "open_files": 100})
    execution = await Bubblewrap().run(["python3", "-c", code], folder=workspace, limits=limits)
    assert execution.stopped == "files"


@pytest.mark.slow
async def test_what_others_write_to_the_disk_is_not_counted(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = iter([10**9, *[8 * 10**8] * 99])
    monkeypatch.setattr(processes, "_free", lambda _: next(free))
    assert (await run("sleep 0.2; echo x > f", workspace)).stopped is None
