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
from sandboxed import alive, needs_bubblewrap

from upcall.workspace.limits import Limits
from upcall.workspace.sandboxes.base import Execution
from upcall.workspace.sandboxes.bubblewrap import Bubblewrap
from upcall.workspace.sandboxes.local import Local
from upcall.workspace.sandboxes.views import make_view

pytestmark = needs_bubblewrap

SMALL = Limits(
    seconds=20, memory_mb=200, processes=40, disk_mb=100, file_mb=30, tmp_mb=10, output_chars=2_000, max_output_mb=5
)
SECRET = f"secret-{secrets.token_hex(8)}"
"""What is not to be read: in a file of the user's home, in the environment, in a file beside the workspace."""

READ = {
    "a file beside the workspace": "cat ../outside.txt",
    "by its absolute path": "cat {outside}",
    "through a symlink": "ln -s {outside} link; cat link",
    "through a symlink to the folder": "ln -s {beside} door; cat door/outside.txt; cat door/*",
    "through a hard link": "ln {outside} hard; cat hard",
    "through the working directory of the first process": "cat /proc/1/cwd/{outside} /proc/1/cwd/../outside.txt",
    "through the root of the first process": "cat /proc/1/root/{outside}",
    "through the root of any process": "cat /proc/*/root{outside} /proc/self/root{outside}",
    "through any descriptor": "for f in /proc/*/fd/*; do timeout 0.1 head -c 500 $f; done",
    "the user's home": "cat {home}/.secret ~/.secret; ls -la {home} /root /home",
    "the environment": "env; printenv SECRET_KEY_OF_TEST; set",
    "the environment of any process": "cat /proc/*/environ /proc/self/environ | tr '\\0' '\\n'",
    "the command lines of any process": "cat /proc/*/cmdline | tr '\\0' '\\n'",
    "by mounting": "mkdir m; mount --bind / m; mount -t proc proc m; cat m/{outside}",
    "in a user namespace of its own": "unshare -Ur sh -c 'mount --bind / /mnt; cat /mnt/{outside}'; cat {outside}",
    "in the namespaces of the first process": "nsenter -t 1 -a cat {outside}",
    "by changing the root": "chroot /proc/1/root cat {outside}",
    "the disk itself": "cat /dev/sda /dev/vda /dev/nvme0n1 | head -c 1000; mknod d b 254 0; head -c 1000 d",
    "the memory of the machine": "head -c 100 /dev/mem /dev/kmem /proc/kcore",
    "passwords": "cat /etc/shadow /etc/ssh/* /etc/gshadow",
    "by a shell with setuid": "cp /bin/sh s; chmod 4755 s; ./s -p -c 'cat {outside}'; su -c 'cat {outside}'",
    "through the socket of Docker": "ls /var/run/docker.sock; docker run -v /:/h alpine cat /h/{outside}",
}

WRITE = {
    "beside the workspace": "echo x > ../written",
    "by its absolute path": "echo x > {beside}/written",
    "through a symlink": "ln -s {beside} way; echo x > way/written",
    "a file beside it": "echo x >> {outside}; truncate -s 0 {outside}; rm -f {outside}",
    "through the root of the first process": "echo x > /proc/1/root{beside}/written",
    "by renaming": "echo x > written; mv written ../written; ln written ../written",
    "by unpacking": "mkdir -p a; tar -P -cf t.tar --transform 's,^a,../written,' a; tar -P -xf t.tar",
    "the system": "echo x > /usr/written; echo x > /etc/written; echo x > /written; touch /bin/written",
    "the kernel's settings": "for f in /proc/sys/kernel/hostname /proc/sys/vm/swappiness; do cat $f > $f; done && "
    "test -w /proc/sys/kernel/core_pattern && touch {beside}/written; find /proc -maxdepth 4 -path '/proc/[0-9]*' "
    "-prune -o -type f -writable -print | grep -v self",
    "the kernel's own trigger": "test -w /proc/sysrq-trigger && echo CAN-WRITE; ls /sys/kernel",
    "the interpreter of upcall": "touch {prefix}/written {prefix}/bin/python",
    "devices": "echo x > /dev/written; mkdir /dev/shm/../written",
    "git's hooks": "echo 'touch {beside}/written' > .git/hooks/pre-commit; mv .git/hooks .git/old; ls .git/old",
    "git's folder": "mv .git old; mkdir -p .git/hooks; echo 'touch {beside}/written' > .git/hooks/pre-commit; "
    "echo '[core]\\nfsmonitor=x' > .git/config; rm -rf .git; ls -a",
    "git's settings": "git config core.fsmonitor 'touch {beside}/written'; echo '[core]' >> .git/config",
}

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

NETWORK = {
    "by its address": "python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 2).send(b'x')\"",
    "by its name": "python3 -c \"import socket; socket.create_connection(('localhost', {port}), 2).send(b'x')\"",
    "by another address": 'for a in {addresses}; do timeout 1 bash -c "echo x > /dev/tcp/$a/{port}"; done',
    "with curl": "curl -m 2 -s http://127.0.0.1:{port}/ http://0.0.0.0:{port}/",
    "by bash": "timeout 2 bash -c 'echo x > /dev/tcp/127.0.0.1/{port}'",
    "by an abstract socket": "python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('\\0{abstract}')\"",
    "in a network namespace of its own": "unshare -rn ip link set lo up; ip link add x type dummy; "
    "ip a | grep inet | grep -v ' 127.0.0.1/8 ' | grep -v ' ::1/128 '",
}

LIMITS = {
    "a fork bomb": (":(){ :|:& };:; sleep 10", "processes"),
    "a fork bomb in Python": ('python3 -c "import os\nwhile True: os.fork()"', "processes"),
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
    """A process of the user, outside."""
    with subprocess.Popen(["sleep", "300"]) as process:
        yield process
        process.kill()


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that is a git repository, with secrets around it."""
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


@pytest.mark.parametrize("way", READ)
async def test_nothing_outside_can_be_read(way: str, workspace: Path) -> None:
    execution = await run(READ[way], workspace)
    assert SECRET not in execution.output


@pytest.mark.parametrize("way", WRITE)
async def test_nothing_outside_can_be_written(way: str, workspace: Path) -> None:
    execution = await run(WRITE[way], workspace)
    beside = workspace.parent
    assert sorted(each.name for each in beside.iterdir()) == ["outside.txt", "workspace"]
    assert (beside / "outside.txt").read_text() == SECRET
    assert (workspace / ".git" / "config").read_text() == "[core]\n"
    assert not list((workspace / ".git" / "hooks").iterdir())
    assert not any(Path(each, "written").exists() for each in ("/", "/usr", "/etc", "/bin", "/dev", sys.prefix))
    assert "CAN-WRITE" not in execution.output
    assert not [line for line in execution.output.splitlines() if line.startswith("/proc/sys")]


@pytest.mark.parametrize("way", SIGNAL)
async def test_no_process_outside_can_be_touched(
    way: str, workspace: Path, victim: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    previous = signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    try:
        execution = await run(SIGNAL[way], workspace, pid=os.getpid(), victim=victim.pid)
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert not told
    assert victim.poll() is None
    assert execution.stopped is None


@pytest.mark.parametrize("way", NETWORK)
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
        execution = await run(NETWORK[way], workspace, port=port, abstract=name, addresses=" ".join(addresses))
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


@pytest.mark.parametrize("way", ["a file beside the workspace", "through a symlink", "the environment of any process"])
async def test_the_same_ways_lead_out_without_a_sandbox(way: str, workspace: Path) -> None:
    """Else the tests above would say nothing."""
    command = READ[way].replace("{outside}", str(workspace.parent / "outside.txt"))
    with subprocess.Popen(["sleep", "30"]) as other:
        execution = await Local().run(
            command, folder=workspace, limits=SMALL.model_copy(update={"output_chars": 10**7})
        )
        other.kill()
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
async def test_the_kernel_refuses(way: str, workspace: Path) -> None:
    execution = await Bubblewrap().run(["python3", "-"], folder=workspace, limits=SMALL, stdin=ASK.format(KERNEL[way]))
    assert "REACHED" not in execution.output
    assert "PermissionError" in execution.output or "Address family not supported" in execution.output


async def test_a_command_that_makes_very_many_files_is_stopped(workspace: Path) -> None:
    code = "import itertools\nfor n in itertools.count(): open(f'f{n}', 'w').close()"
    limits = SMALL.model_copy(update={"files": 2_000, "open_files": 100})
    execution = await Bubblewrap().run(["python3", "-c", code], folder=workspace, limits=limits)
    assert execution.stopped == "files"
