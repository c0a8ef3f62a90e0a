"""AutoGen's own tests, as they are, with every group chat made resumable, and with every `AssistantAgent` converted.

The tests come from the sdist of autogen-agentchat, or of autogen-ext, which pip downloads; nothing of it is kept. What
fails in plain AutoGen counts for nothing, nor does what cannot be imported here. With group chats made resumable
nothing else may fail, with agents converted only what `DIFFERENCES` lists. The module is its own pytest plugin.

    python benchmarks/autogen_suite.py                                           # of autogen-agentchat, 3 minutes
    python benchmarks/autogen_suite.py --package autogen-ext                     # 6 minutes
    python benchmarks/autogen_suite.py --tests autogen/python/packages/autogen-agentchat/tests   # of a checkout
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

VERSION = "0.7.5"
MODE, RESULTS = "AUTOGEN_SUITE_MODE", "AUTOGEN_SUITE_RESULTS"
DIFFERENCES = Path(__file__).with_name("data") / "autogen_suite.json"
"""The tests that fail with converted agents, by name from the folder of the tests on, below the reason why."""

OFFLINE = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")


def download(package: str, folder: Path, seconds: float) -> Path | None:
    """Return where the tests are; None, with a word on it, where the sdist cannot be had."""
    command = [sys.executable, "-m", "pip", "download", "--no-binary", ":all:", "--no-deps", "--no-build-isolation"]
    try:
        subprocess.run(
            [*command, "--dest", str(folder), f"{package}=={VERSION}"],
            check=True,
            capture_output=True,
            timeout=seconds,
        )
    except (subprocess.SubprocessError, OSError) as error:
        print(f"MISSING: the sdist of {package} {VERSION} cannot be had ({type(error).__name__})")
        return None
    name = f"{package.replace('-', '_')}-{VERSION}"
    with tarfile.open(folder / f"{name}.tar.gz") as packed:
        packed.extractall(folder, filter="data")
    return folder / name / "tests"


def run(tests: Path, mode: str, seconds: float, extra: list[str], folder: Path) -> dict[str, str]:
    """Return the outcome of each test, by its name from the folder of the tests on, wherever that is."""
    results, words = folder / f"{mode}.json", folder / f"{mode}.log"
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, **OFFLINE, MODE: mode, RESULTS: str(results), "PYTHONPATH": path}
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "autogen_suite", "-p", "no:cacheprovider"]
    command += ["-o", "asyncio_mode=auto", "-W", "ignore", "--tb=short", "--continue-on-collection-errors"]
    command += ["--rootdir", str(tests), *extra, "."]
    with words.open("w") as log:
        subprocess.run(command, cwd=tests, env=environment, stdout=log, stderr=log, timeout=seconds, check=False)
    if not results.exists():
        sys.exit(words.read_text())
    return json.loads(results.read_text())  # type: ignore[no-any-return]


def explain(log: str, mode: str, failed: list[str]) -> None:
    """Print what failed, with pytest's words on each."""
    print(f"{mode}: {len(failed)} new failures")
    for name in failed:
        text = next((line for line in log.splitlines() if line.startswith(f"FAILED {name}")), "")
        print(f"  {text or name}")


def main() -> None:
    """Run the tests three times and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timeout", type=float, default=600, help="seconds for each run (default: %(default)s)")
    packages = ("autogen-agentchat", "autogen-ext")
    parser.add_argument("--package", choices=packages, default=packages[0], help="default: %(default)s")
    parser.add_argument("--tests", type=Path, help="the folder of the tests, where it is there already")
    parser.add_argument("-k", help="as pytest's")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tests = arguments.tests or download(arguments.package, Path(folder), arguments.timeout)
        if tests is not None:
            extra = ["-k", arguments.k] if arguments.k else []
            sys.exit(compare(tests.resolve(), arguments.timeout, extra, Path(folder)))


def compare(tests: Path, seconds: float, extra: list[str], folder: Path) -> bool:
    """Print what fails that must not; return whether anything does. What pytest says is kept in `folder`."""
    plain = run(tests, "plain", seconds, extra, folder)
    passed = {name for name, outcome in plain.items() if outcome == "passed"}
    listed = read_differences(tests)
    print(f"plain: {len(passed)} of {len(plain)} pass", flush=True)
    bad = False
    for mode, allowed in (("resumable", set[str]()), ("converted", listed)):
        outcomes = run(tests, mode, seconds, extra, folder)
        failed = sorted(name for name in passed if outcomes.get(name) != "passed")
        new = [name for name in failed if name not in allowed]
        stale = sorted(allowed - {*failed}) if not extra else []
        explain((folder / f"{mode}.log").read_text(), mode, new)
        print(f"{mode}: {len(passed) - len(failed)} of {len(passed)} pass, {len(failed) - len(new)} are listed")
        if stale:
            print(f"  listed, and pass: {', '.join(stale)}")
        bad = bad or bool(new or stale)
    return bad


def read_differences(tests: Path) -> set[str]:
    """Return the names that `DIFFERENCES` lists, of those files that are among the tests."""
    names = (name for names in json.loads(DIFFERENCES.read_text()).values() for name in names)
    return {name for name in names if (tests / name.partition("::")[0]).is_file()}


# -- the plugin -------------------------------------------------------------------------------------------------------

_outcomes: dict[str, str] = {}


def pytest_configure() -> None:
    """Change AutoGen before its tests import it."""
    if find_spec("anthropic") is None:  # The tests import it, for one test that needs a key.
        stub: Any = ModuleType("autogen_ext.models.anthropic")
        stub.AnthropicChatCompletionClient = None
        sys.modules[stub.__name__] = stub
    {"plain": lambda: None, "resumable": make_all_resumable, "converted": convert_all}[os.environ[MODE]]()


def make_all_resumable() -> None:
    """Make every group chat resumable, before anything is done with it."""
    from autogen_agentchat.teams import BaseGroupChat

    for method in (BaseGroupChat.run_stream, BaseGroupChat.save_state, BaseGroupChat.load_state, BaseGroupChat.reset):
        setattr(BaseGroupChat, method.__name__, make_resumable_first(method))


def make_resumable_first(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of a group chat that makes it resumable and then is itself."""
    from upcall import make_resumable

    @wraps(method)
    def made(self: Any, *args: Any, **options: Any) -> Any:
        if hasattr(self, "_keeps_turns"):
            return method(self, *args, **options)
        return getattr(make_resumable(self), method.__name__)(*args, **options)

    return made


def convert_all() -> None:
    """Let a call of `AssistantAgent` make a `PausableAgent`."""
    from autogen_agentchat.agents import AssistantAgent

    from upcall import with_questions

    def new(cls: type[AssistantAgent], *args: Any, **options: Any) -> object:
        stock = object.__new__(cls)
        if cls is not AssistantAgent:
            return stock
        stock.__init__(*args, **options)  # type: ignore[misc]  # the class itself, as its call does
        return with_questions(stock)

    AssistantAgent.__new__ = new  # type: ignore[method-assign, assignment]


def pytest_runtest_logreport(report: Any) -> None:
    """Note the outcome of each test: that of its call, or of what failed before or after."""
    if report.when == "call" or report.outcome != "passed":
        _outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish() -> None:
    """Write the outcomes down."""
    Path(os.environ[RESULTS]).write_text(json.dumps(_outcomes))


if __name__ == "__main__":
    main()
