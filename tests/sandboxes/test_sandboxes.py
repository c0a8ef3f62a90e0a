"""The executors on real processes: status, output, limits, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sandboxed import alive, needs_bubblewrap
from tables import rows

from upcall.errors import ConfigurationError
from upcall.sandboxes import (
    Bubblewrap,
    Docker,
    Executor,
    ExecutorUnavailable,
    Local,
    NetworkAccess,
    Unavailable,
    executor_for,
)
from upcall.sandboxes import choice as choosing
from upcall.sandboxes.base import Execution, Output
from upcall.sandboxes.limits import Limits

LIMITS = Limits(seconds=20, output_chars=1_000, max_output_mb=5)

EXECUTORS = [pytest.param(Bubblewrap(), marks=needs_bubblewrap, id="bubblewrap"), pytest.param(Local(), id="local")]
both = pytest.mark.parametrize("executor", EXECUTORS)


@both
@pytest.mark.parametrize(
    ("command", "status", "output"),
    [
        ("echo out; echo err >&2; exit 3", 3, "out\nerr\n"),
        (["echo", "a b", "$HOME"], 0, "a b $HOME\n"),
        ("cat", 0, "given"),
        ("kill -TERM $$", 128 + signal.SIGTERM, ""),
        ("printf '\\377x'", 0, "\ufffdx"),
        ("no-such-program", 127, None),
        ("pwd", 0, None),
    ],
)
async def test_what_came_of_a_command(
    executor: Executor, command: str | list[str], status: int, output: str | None, tmp_path: Path
) -> None:
    execution = await executor.run(command, folder=tmp_path, limits=LIMITS, stdin="given")
    assert (execution.exit_status, execution.stopped) == (status, None)
    assert output is None or execution.output == output
    assert command != "pwd" or execution.output == f"{tmp_path.resolve()}\n"


@both
async def test_python_of_upcall_is_the_one_that_runs(executor: Executor, tmp_path: Path) -> None:
    if executor.name == "local":
        pytest.skip("there it is that of the user's PATH")
    code = ["python3", "-c", "import sys; print(sys.version_info[:3], sys.prefix)"]
    execution = await executor.run(code, folder=tmp_path, limits=LIMITS)
    assert execution.output == f"{sys.version_info[:3]} {sys.prefix}\n"


RUN_PYTHON = """
import asyncio, pathlib
from upcall.sandboxes import Bubblewrap
from upcall.sandboxes.limits import Limits
run = Bubblewrap().run(["python3", "-c", "import sys; print(sys.prefix)"], folder=pathlib.Path("."), limits=Limits())
print(asyncio.run(run).output, end="")
"""


@needs_bubblewrap
def test_python_reached_by_links_is_found(tmp_path: Path) -> None:
    """As where uv puts its links: from the environment through a folder of links, and a link in place of a folder."""
    base = Path(sys._base_executable)  # type: ignore[attr-defined]
    (tmp_path / "installed").symlink_to(base.parent)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to(f"../installed/{base.name}")
    environment = tmp_path / "env"
    subprocess.run([tmp_path / "bin/python3", "-m", "venv", "--without-pip", environment], check=True)
    (tmp_path / "work").mkdir()
    packages = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    program = [environment / "bin/python3", "-c", RUN_PYTHON]
    found = subprocess.run(program, env=packages, cwd=tmp_path / "work", capture_output=True, text=True, check=True)
    assert found.stdout == f"{environment}\n"


@both
async def test_of_long_output_head_and_tail_are_kept(executor: Executor, tmp_path: Path) -> None:
    execution = await executor.run("seq 1 9999; echo end", folder=tmp_path, limits=LIMITS)
    assert execution.output.startswith("1\n2\n3\n")
    assert execution.output.endswith("9999\nend\n")
    left_out = len("".join(f"{n}\n" for n in range(1, 10_000))) + 4 - 1_000
    assert f"\n[... {left_out} bytes left out ...]\n" in execution.output


@both
@pytest.mark.parametrize("started", ["sleep {0}", "setsid sleep {0} & setsid sleep {0} & sleep {0}"])
@pytest.mark.slow
async def test_sandbox_timeout_kills_all_processes(executor: Executor, started: str, tmp_path: Path) -> None:
    mark = str(secrets.randbelow(10**9) + 10**9)
    execution = await executor.run(started.format(mark), folder=tmp_path, limits=LIMITS, seconds=0.3)
    assert (execution.stopped, execution.exit_status) == ("time", 137)
    assert alive(mark) == []


@both
async def test_sandbox_cancel_kills_all_processes(executor: Executor, tmp_path: Path) -> None:
    mark = str(secrets.randbelow(10**9) + 10**9)
    command = f"setsid sleep {mark} & echo begun > begun; sleep {mark}"
    running = asyncio.create_task(executor.run(command, folder=tmp_path, limits=LIMITS))
    while len(alive(mark)) < 2:  # The file tells that the shell has begun, not that its commands have.
        assert not running.done()
        await asyncio.sleep(0.01)
    assert (tmp_path / "begun").exists()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert alive(mark) == []


@both
async def test_sandbox_end_kills_processes_that_left_their_group(executor: Executor, tmp_path: Path) -> None:
    mark = str(secrets.randbelow(10**9) + 10**9)
    command = f"(setsid setsid sleep {mark} > /dev/null 2>&1 &) & sleep 0.1; echo done"
    execution = await executor.run(command, folder=tmp_path, limits=LIMITS)
    assert execution.output == "done\n"
    assert alive(mark) == []


@both
@pytest.mark.parametrize(
    ("command", "stopped"),
    rows("sandboxes/limits_stop_it"),
)
async def test_limits_stop_it(executor: Executor, command: str, stopped: str, tmp_path: Path) -> None:
    limits = LIMITS.model_copy(update={"processes": 50, "memory_mb": 250, "disk_mb": 80})
    assert (await executor.run(command, folder=tmp_path, limits=limits)).stopped == stopped


@both
@pytest.mark.slow
async def test_no_descriptor_is_left_open(executor: Executor, tmp_path: Path) -> None:
    await executor.run("true", folder=tmp_path, limits=LIMITS)  # The event loop opens some of its own.
    before = len(os.listdir("/proc/self/fd"))
    for command in ("true", "sleep 9", "yes"):
        await executor.run(command, folder=tmp_path, limits=LIMITS, seconds=0.2)
    assert len(os.listdir("/proc/self/fd")) == before


@both
async def test_several_commands_run_at_the_same_time(executor: Executor, tmp_path: Path) -> None:
    runs = [executor.run(f"sleep 0.1; echo {n}", folder=tmp_path, limits=LIMITS) for n in range(8)]
    assert [each.output for each in await asyncio.gather(*runs)] == [f"{n}\n" for n in range(8)]


@needs_bubblewrap
@pytest.mark.slow
async def test_sandbox_commands_die_with_the_upcall_process(tmp_path: Path) -> None:
    mark = str(secrets.randbelow(10**9) + 10**9)
    code = (
        "import asyncio, pathlib\nfrom upcall.sandboxes.limits import Limits\n"
        "from upcall.sandboxes import Bubblewrap\n"
        f"asyncio.run(Bubblewrap().run('echo > begun; sleep {mark}', folder=pathlib.Path('.'), limits=Limits()))"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path) as process:
        while not (tmp_path / "begun").exists() and process.poll() is None:
            await asyncio.sleep(0.02)
        process.kill()
    for _ in range(200):
        if not alive(mark):
            break
        await asyncio.sleep(0.02)
    assert alive(mark) == []


@needs_bubblewrap
async def test_folder_can_be_made_readable(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("seen")
    (tmp_path / "work").mkdir()
    command = f"cat {tmp_path}/data/x; echo no > {tmp_path}/data/x"
    for executor, seen in ((Bubblewrap(), False), (Bubblewrap([tmp_path / "data"]), True)):
        execution = await executor.run(command, folder=tmp_path / "work", limits=LIMITS)
        assert ("seen" in execution.output) is seen
        assert (tmp_path / "data" / "x").read_text() == "seen"


async def test_docker_without_its_engine_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("docker")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    executor = Docker()
    with pytest.raises(ExecutorUnavailable, match=r"Docker cannot be used .*start its engine"):
        await executor.run("true", folder=tmp_path / "work", limits=LIMITS)
    with pytest.raises(ExecutorUnavailable, match="cannot be given the network"):
        await executor.run("true", folder=tmp_path / "work", limits=LIMITS, network=NetworkAccess())
    await executor.close()


def test_which_executor_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert executor_for("none") is None
    assert isinstance(executor_for("auto", unsafe_local=True), Local)
    assert isinstance(executor_for("docker"), Docker)
    with pytest.raises(ConfigurationError, match=r"unsafe_local is true and workspace\.executor is 'docker'"):
        executor_for("docker", unsafe_local=True)
    for why, kind in ((None, Bubblewrap), ("bwrap cannot be found", Unavailable)):
        monkeypatch.setattr(choosing, "explain_unusable", lambda why=why: why)
        assert isinstance(executor_for("auto"), kind)


async def test_sandbox_that_is_missing_runs_nothing_and_explains_it(tmp_path: Path) -> None:
    executor = Unavailable("bwrap cannot be found")
    with pytest.raises(ExecutorUnavailable, match="bwrap cannot be found"):
        await executor.run("touch x", folder=tmp_path, limits=LIMITS)
    assert not list(tmp_path.iterdir())


def test_output_keeps_head_and_tail_whatever_the_pieces() -> None:
    whole = bytes(range(65, 91)) * 4
    for piece in (1, 3, 7, 200):
        output = Output(21)
        for start in range(0, len(whole), piece):
            output.write(whole[start : start + piece])
        assert output.text() == f"{whole[:11].decode()}\n[... 83 bytes left out ...]\n{whole[-10:].decode()}"


def test_sandbox_limit_fails_the_command_whatever_its_shell() -> None:
    """Where its children are killed first, a shell that only waits for them ends by itself, with status 0."""
    assert Execution(0, "").stop_at("memory") == Execution(128 + signal.SIGKILL, "", stopped="memory")
    assert Execution(3, "").stop_at("time") == Execution(3, "", stopped="time")
    assert Execution(0, "").stop_at(None) == Execution(0, "")
