"""What every test gets: a folder of its own, and an environment that names no model and no key."""

from __future__ import annotations

import gc
import itertools
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import loopback_only
import pytest
from guests import is_here
from places import SUPPORT
from postgres import NoPostgres, Server, running

# Some images keep Python from storing what it compiled; then each process of a test compiles everything anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell's background job ignores SIGINT, and so would every process that a test starts and stops with it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_CHILDREN = str(SUPPORT / "child_processes")
if _CHILDREN not in (paths := os.environ.get("PYTHONPATH", "").split(os.pathsep)):
    os.environ["PYTHONPATH"] = os.pathsep.join([_CHILDREN, *filter(None, paths)])

_NUMBERS = itertools.count()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--at-least", type=int, default=0, metavar="N", help="fail if fewer tests pass: CI ran next to nothing"
    )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    wanted = session.config.getoption("--at-least")
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not wanted or reporter is None:
        return
    passed = len(reporter.stats.get("passed", []))
    if passed < wanted:
        reporter.write_line(f"ERROR: {passed} tests passed; --at-least says {wanted}", red=True)
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_collection_finish() -> None:
    """Leave modules and collected tests out of every search for garbage, which some tests ask for themselves."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out a test of the core that shows something by a guest which was taken out; forget what others left."""
    needed = [guest for mark in item.iter_markers("needs") for guest in mark.args]
    if missing := [guest for guest in needed if not is_here(guest)]:
        pytest.skip(f"without {', '.join(missing)}")
    _forget_servers()
    _restore_log()
    _leave_clients()


def _forget_servers() -> None:
    """Forget what servers of other tests reported of themselves: another one may listen at their port now."""
    for module, name in (("model_size", "_known_sizes"), ("openai_client.client", "_rules")):
        if loaded := sys.modules.get(f"upcall.autogen.{module}"):
            getattr(loaded, name).clear()


def _restore_log() -> None:
    """Take the log back from a command line that ran in this process, which keeps it until its end."""
    for name in ("upcall", "autogen_core", "autogen_core.events", "autogen_agentchat"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    logging.getLogger("upcall").propagate = True
    logging.getLogger("upcall").handlers.clear()


def _leave_clients() -> None:
    """Keep a client that a test left open from closing itself when it is collected: OpenAI's and Anthropic's do so in
    whichever loop runs then, which is another test's, and that test's log gets the traceback."""
    for package in ("openai", "anthropic"):
        if loaded := sys.modules.get(f"{package}._base_client"):
            vars(loaded)["AsyncHttpxClientWrapper"].__del__ = lambda _: None


@pytest.fixture(autouse=True)
def _no_network() -> Iterator[None]:
    """Fail a test that tried to leave this machine, even where the code under test swallowed the refusal."""
    loopback_only.refused.clear()
    yield
    assert not loopback_only.refused


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new folder. pytest's own looks for its number through the folders of all tests before it."""
    folder = tmp_path_factory.getbasetemp() / f"{next(_NUMBERS)}" / "folder"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("cache", "state"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path.parent / "home" / name))
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "UPCALL_", "TAVILY_", "BRAVE_"))]:
        if name.startswith("UPCALL_UPDATE_"):
            continue
        monkeypatch.delenv(name)
    # A script has the replies of the agents; what the second look at a question does has tests of its own.
    monkeypatch.setenv("UPCALL_QUESTIONS__CHECK_QUESTIONS", "false")


@pytest.fixture(autouse=True)
def _no_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every new OpenAI client reads the certificates of the machine, which takes longer than most tests; a server on
    loopback has none."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))


@pytest.fixture(scope="session")
def _postgres() -> Iterator[Server | str]:
    """Yield a private PostgreSQL, started when the first test needs it; or why there is none."""
    try:
        with running() as server:
            yield server
    except NoPostgres as reason:
        yield str(reason)


@pytest.fixture
def postgres(_postgres: Server | str) -> Server:
    """Return the PostgreSQL server of the tests."""
    if isinstance(_postgres, str):
        pytest.skip(f"no PostgreSQL: {_postgres}")
    return _postgres


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def location(request: pytest.FixtureRequest) -> str:
    """Where a new store can be: each test that asks for it runs on both databases."""
    if request.param == "sqlite":
        return "runs.db"
    server: Server = request.getfixturevalue("postgres")
    return server.new_database()
