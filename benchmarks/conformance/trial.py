"""Play one case with one adapter, as a human and a client would, and note what goes wrong.

The adapter is a process behind pipes. What it did is known from outside alone: by the requests that reached the model,
by the effects that its tool had, and by what it replied.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from cases import Case, Play
from model_server import ModelServer
from scenarios import ANSWER, KEY, TOOLS_URL, answer, conversation

Json = dict[str, Any]
AGAIN = " once more"
"""What the answers of a second human carry, so that they are others."""

RACES = 5
"""How often two answers race: who reads what the other one has written is chance, and the verdict is that of all."""


class Problem(StrEnum):
    """What goes wrong in a case."""

    LOST = "lost"  # The run ends without what was answered, or does not end.
    HUNG = "hung"  # It does not reply.
    FAILED = "failed"  # It replies with an error to what is right.
    ASKED_AGAIN = "asked again"  # A question that was answered is asked again.
    REPEATED = "effect twice"
    MISSED = "no effect"
    BOTH = "both counted"  # Of two answers to one question both take effect, or the later one does.
    WORKED = "works again"  # An answer to a run that is over has it call the model.
    UNSAFE = "wrong id taken"  # An answer to no question takes effect.
    LATE = "late answer taken"


class Ended(Exception):
    """The case is over: the adapter hangs, fails or does not support it."""


class Died(Exception):
    """The adapter's process was killed, as planned, before it replied."""


@dataclass(frozen=True)
class Adapter:
    """A program that runs one system. `command` speaks the protocol."""

    name: str
    command: Sequence[str]


class Process:
    """One process of an adapter."""

    def __init__(self, adapter: Adapter, folder: Path, url: str, patience: float) -> None:
        self._patience = patience
        self._errors = (folder / "stderr.txt").open("ab")
        self.popen = subprocess.Popen(
            adapter.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=folder,
            env=clean_environment() | {TOOLS_URL: url},
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self._lines.put(line)
        self._lines.put("")

    def send(self, request: Json) -> None:
        assert self.popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.write(json.dumps(request) + "\n")
            self.popen.stdin.flush()

    def receive(self) -> Json | None:
        """Return the reply; None where none comes in time."""
        try:
            line = self._lines.get(timeout=self._patience)
        except queue.Empty:
            return None
        if not line:
            raise Died
        return json.loads(line)  # type: ignore[no-any-return]

    def kill(self) -> None:
        self.popen.kill()
        self._close()

    def end(self) -> None:
        """Let it end by itself, in the time it has."""
        assert self.popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.close()
        try:
            self.popen.wait(timeout=self._patience)
        except subprocess.TimeoutExpired:
            self.popen.kill()
        self._close()

    def _close(self) -> None:
        self.popen.wait()
        self._reader.join()
        for each in (self.popen.stdin, self.popen.stdout, self._errors):
            assert each is not None
            with contextlib.suppress(BrokenPipeError):
                each.close()

    def cpu(self) -> float:
        """Return the seconds of CPU that it has used."""
        fields = Path(f"/proc/{self.popen.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_memory(self) -> int:
        """Return the most bytes that were resident."""
        lines = Path(f"/proc/{self.popen.pid}/status").read_text().splitlines()
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def clean_environment() -> dict[str, str]:
    """Nothing of the user's settings reaches a system: no keys, no tracing, no proxy."""
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "SYSTEMROOT", "PYTHONPATH")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"NO_PROXY": "127.0.0.1"}


@dataclass
class Watch:
    """What happened outside the adapter: the boundaries in their order, and the effects."""

    events: list[str] = field(default_factory=list)
    effects: Counter[str] = field(default_factory=Counter)
    kill_at: int | None = None
    victim: Process | None = None
    gate: threading.Barrier | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def calls(self) -> int:
        return self.events.count("request")

    def see(self, kind: str, text: str) -> bool:
        """Note what happens; return whether it may continue."""
        with self.lock:
            number = len(self.events)
            self.events.append(kind)
            if kind == "effected":
                self.effects[text.split()[0]] += 1
            if number == self.kill_at and self.victim is not None:
                os.kill(self.victim.popen.pid, signal.SIGKILL)
                return False
        if kind == "request" and self.gate is not None:
            with contextlib.suppress(threading.BrokenBarrierError):
                self.gate.wait()
        return True


@dataclass
class Outcome:
    """How a case went."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    calls: int = 0
    least: int = 0
    tries: int = 1
    right: int = 0
    refused: bool = False
    unsupported: bool = False
    paths: dict[str, int] = field(default_factory=dict)
    """How many questions came with their whole path, with their asker alone, with none."""

    def add(self, problem: Problem, note: str = "") -> None:
        if problem not in self.problems:
            self.problems.append(problem)
        if note and note not in self.notes:
            self.notes.append(note)

    @property
    def verdict(self) -> str:
        """Return the words in the table."""
        if self.unsupported:
            return "—"
        words = ", ".join(sorted(self.problems)) or ("refused" if self.refused else "right")
        return f"{self.right} of {self.tries} right: {words}" if self.problems and self.tries > 1 else words


class Trial:
    """One run of one case."""

    def __init__(self, adapter: Adapter, case: Case, folder: Path, patience: float, kill_at: int | None = None) -> None:
        self.case, self.scenario, self.outcome = case, case.scenario, Outcome(least=case.scenario.least_calls())
        self._adapter, self._folder, self._patience = adapter, folder, patience
        self.watch = Watch(kill_at=kill_at)
        self._run = "r1"
        self._given: dict[str, str] = {}
        self._last: Json = {}

    def play(self) -> Outcome:
        """Play it to its end."""
        with ModelServer(self.watch.see) as server:
            self._url = server.url
            self._process = self._new_process()
            try:
                self._play()
            except Ended:
                pass
            except Died:
                self.outcome.add(Problem.FAILED, f"the process ended by itself: {self._last_error()}")
            finally:
                self._process.kill()
        self.outcome.calls = self.watch.calls
        self.outcome.notes += server.failures[:1]
        self.outcome.right = int(not self.outcome.problems)
        return self.outcome

    def _play(self) -> None:
        match self.case.play:
            case Play.ALL | Play.KILLS:
                self._finish(self._drive(self._start()))
            case Play.ONE_BY_ONE | Play.OTHER_FIRST:
                self._finish(self._drive(self._start(), one=True))
            case Play.RESTARTS:
                self._finish(self._drive(self._start(), one=True, restart=True))
            case Play.SAME_TWICE | Play.OTHER_AFTERWARDS:
                self._play_afterwards()
            case Play.WRONG_ID:
                self._play_wrong_id()
            case Play.RACE:
                self._play_race()
            case Play.EXPIRY:
                self._play_expiry()
            case Play.CHANGED:
                self._play_changed()

    def _play_afterwards(self) -> None:
        rest = self._start()
        items = self._questions(rest)
        self._finish(self._drive(rest))
        if not items or self.outcome.problems:
            return
        salt = "" if self.case.play is Play.SAME_TWICE else AGAIN
        calls, effects = self.watch.calls, self.watch.effects.copy()
        self._ask("answer", answers={items[0]["id"]: answer(items[0]["text"], salt)}, allow_error=True)
        rest = self._ask("pending", allow_error=True)
        if self.watch.effects != effects:
            self.outcome.add(Problem.REPEATED)
        if AGAIN in str(rest.get("result")):
            self.outcome.add(Problem.BOTH)
        if self.watch.calls != calls:
            self.outcome.add(Problem.WORKED, f"{self.watch.calls - calls} model calls after the second answer")

    def _play_wrong_id(self) -> None:
        rest = self._start()
        items = self._questions(rest)
        if items:
            wrong = self._ask(
                "answer", answers={_wrong_id(items[0]["id"]): answer(items[0]["text"], AGAIN)}, allow_error=True
            )
            if self.watch.effects or AGAIN in str(wrong.get("result")):
                self.outcome.add(Problem.UNSAFE)
                return
            rest = self._ask("pending")
        self._finish(self._drive(rest))

    def _play_race(self) -> None:
        """Two processes answer; the model replies to none of them before the other has been refused or got as far."""
        items = self._questions(self._start())
        if not items:
            self.outcome.add(Problem.LOST, "it did not ask")
            return
        text, key = items[0]["text"], items[0]["id"]
        second = self._new_process()
        try:
            self._ask_process(second, "pending")
            gate = self.watch.gate = threading.Barrier(2, timeout=5)
            racers = [(self._process, ""), (second, AGAIN)]
            for process, salt in racers:
                process.send(self._request("answer", answers={key: answer(text, salt)}))
            replies: list[Json | None] = [None, None]

            def receive(number: int, process: Process) -> None:
                with contextlib.suppress(Died):
                    replies[number] = process.receive()
                gate.abort()  # Nobody need wait for it any more.

            threads = [threading.Thread(target=receive, args=(i, each)) for i, (each, _) in enumerate(racers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.watch.gate = None
            if None in replies:
                self.outcome.add(Problem.HUNG)
                return
        finally:
            second.kill()
        results = {str(each["result"]) for each in replies if each is not None and each.get("result")}
        rest = self._settle(self._ask("pending", allow_error=True))
        results |= {str(rest["result"])} if rest.get("result") else set()
        if not results:
            self.outcome.add(Problem.LOST, str(rest)[:200])
        answers = {value for each in results for _, value in ANSWER.findall(each)}
        effects = sum(self.watch.effects.values())
        if effects > 1:
            self.outcome.add(Problem.REPEATED)
        if len(answers) > 1:
            self.outcome.add(Problem.BOTH, f"{effects} effects, {len(answers)} answers")

    def _settle(self, rest: Json) -> Json:
        """Wait until a run that somebody still works on has its result."""
        for _ in range(20):
            if rest.get("result") or rest.get("open"):
                break
            time.sleep(0.25)
            rest = self._ask("pending", allow_error=True)
        return rest

    def _play_expiry(self) -> None:
        items = self._questions(self._start())
        if not items:
            self.outcome.add(Problem.LOST, "it did not ask")
            return
        time.sleep(self.scenario.expires + 0.5)
        self._ask("pending", allow_error=True)
        self._ask("answer", answers={items[0]["id"]: answer(items[0]["text"])}, allow_error=True)
        rest = self._ask("pending", allow_error=True)
        if self.watch.effects or ANSWER.search(str(rest.get("result"))):
            self.outcome.add(Problem.LATE)
        elif rest.get("open"):
            self.outcome.add(Problem.HUNG, "it waits for ever")
        self.outcome.least = self.watch.calls

    def _play_changed(self) -> None:
        self._start()
        old = self.scenario
        self._restart()
        self.scenario = replace(old, changed=True)
        rest = self._ask("pending", allow_error=True)
        first = rest if "error" in rest or not rest.get("open") else self._answer(rest["open"], allow_error=True)
        if "error" not in first:
            self._finish(self._drive(first))
            return
        self.outcome.refused = True
        self.outcome.notes.append(first["error"])
        self._given.clear()
        self._restart()
        self.scenario = old
        self._finish(self._drive(self._ask("pending")))

    # What a client does.

    def _start(self) -> Json:
        """Start the run; where the process dies in it, look what became of it."""
        history = conversation(self._run, self.scenario.history)
        more = {"task": self.scenario.task(self._run), "history": history}
        try:
            return self._ask("start", **more)
        except Died:
            self._expect_kill()
            self._restart()
            rest = self._ask("pending")
            return self._ask("start", **more) if rest.get("unknown") else rest

    def _drive(self, rest: Json, one: bool = False, restart: bool = False) -> Json:
        """Answer until no question is open. One by one, the first that is answered is as the case says."""
        for _ in range(3 + 2 * len(self.scenario.keys(self._run))):
            self._note_questions(rest)
            if not rest.get("open"):
                break
            if restart:
                self._restart()
                again = self._ask("pending")
                if _keys(again) != _keys(rest):
                    self.outcome.add(Problem.LOST, f"open after the kill: {_keys(again)} instead of {_keys(rest)}")
                rest = again if again.get("open") else rest
            items = rest["open"]
            if one:
                items = items[-1:] if self.case.play is Play.OTHER_FIRST else items[:1]
            rest = self._answer(items, one=one)
        return rest

    def _answer(self, items: list[Json], one: bool = False, allow_error: bool = False) -> Json:
        """Answer questions; where the process dies in it, look what became of the run."""
        answers = {each["id"]: self._say(each, one) for each in items}
        try:
            rest = self._ask("answer", answers=answers, allow_error=allow_error)
        except Died:
            self._expect_kill()
            self._note_given(answers)
            self._restart()
            rest = self._ask("pending")
            if rest.get("unknown"):
                self.outcome.add(Problem.LOST, "the run is unknown after the kill")
                raise Ended from None
            return rest
        if "error" not in rest:
            self._note_given(answers)
        return rest

    def _expect_kill(self) -> None:
        """Raise again where nobody has killed the process."""
        if self.watch.kill_at is None:
            raise

    def _say(self, item: Json, one: bool) -> str:
        if item.get("again"):  # About a call that was cut off: the human looks whether it took effect.
            done = [f"Saved it for {name}" for name, times in self.watch.effects.items() if times]
            return done[-1] if done else item["again"]
        keys = [each for each in dict.fromkeys(KEY.findall(item["text"])) if each not in self._given]
        if one:
            keys = keys[-1:] if self.case.play is Play.OTHER_FIRST else keys[:1]
        return answer(" ".join(f"Q<{each}>" for each in keys or KEY.findall(item["text"])))

    def _note_given(self, answers: dict[str, str]) -> None:
        self._given |= {key: value for text in answers.values() for key, value in ANSWER.findall(text)}

    def _note_questions(self, rest: Json) -> None:
        """Note what is asked of the human, and whether he knows of whom it comes."""
        for each in rest.get("open") or ():
            keys = KEY.findall(each["text"])
            if not each.get("again") and not keys:
                self.outcome.add(Problem.LOST, f"the question is not shown: {each['text'][:100]!r}")
                raise Ended
            for key in keys:
                if key in self._given:
                    self.outcome.add(Problem.ASKED_AGAIN)
                asker = key.split(".")[1]
                path = tuple(each.get("path") or ())
                known = "whole" if path == (*self.scenario.chain, asker) else "asker" if asker in path[-1:] else "none"
                self.outcome.paths[known] = self.outcome.paths.get(known, 0) + 1

    def _questions(self, rest: Json) -> list[Json]:
        self._note_questions(rest)
        return rest.get("open") or []

    def _finish(self, rest: Json) -> None:
        """Compare what came out with what was answered."""
        result = rest.get("result")
        if result is None or rest.get("open"):
            self.outcome.add(Problem.LOST, f"no result: {str(rest)[:200]}")
            return
        keys = self.scenario.keys(self._run)
        if dict(ANSWER.findall(result)) != {key: self._given.get(key) for key in keys}:
            self.outcome.add(Problem.LOST, f"the result is {result[:300]}")
        askers = len(self.scenario.askers)
        if any(times > 1 for times in self.watch.effects.values()):
            self.outcome.add(Problem.REPEATED)
        if len(self.watch.effects) < askers:
            self.outcome.add(Problem.MISSED)

    # What goes over the pipes.

    def _new_process(self) -> Process:
        return Process(self._adapter, self._folder, self._url, self._patience)

    def _restart(self) -> None:
        """Kill the process, and start another one."""
        self._process.kill()
        self._process = self._new_process()

    def _request(self, do: str, **more: Any) -> Json:
        where = {"folder": str(self._folder), "url": self._url, "scenario": self.scenario.as_json()}
        return {"do": do, "run": self._run, **where, **more}

    def _ask(self, do: str, *, allow_error: bool = False, **more: Any) -> Json:
        self.watch.victim = self._process
        return self._ask_process(self._process, do, allow_error=allow_error, **more)

    def _ask_process(self, process: Process, do: str, *, allow_error: bool = False, **more: Any) -> Json:
        process.send(self._request(do, **more))
        reply = process.receive()
        if reply is None:
            self.outcome.add(Problem.HUNG, f"no reply to {do}")
            raise Ended
        if "unsupported" in reply:
            self.outcome.unsupported = True
            self.outcome.notes.append(reply["unsupported"])
            raise Ended
        if "error" in reply and not allow_error:
            self.outcome.add(Problem.FAILED, reply["error"])
            raise Ended
        return reply

    def _last_error(self) -> str:
        return (self._folder / "stderr.txt").read_text()[-300:]


def _wrong_id(key: str) -> str:
    """Return an id that no question has, in the form of those that the system gives."""
    return key[:-1] + ("0" if key[-1:] != "0" else "1")


def _keys(rest: Json) -> list[str]:
    return sorted({key for each in rest.get("open") or () for key in KEY.findall(each["text"])})


def play(adapter: Adapter, case: Case, patience: float) -> Outcome:
    """Play a case: one of kills as often as there are boundaries in a run that is not killed, a race several times."""
    if case.play is Play.RACE:
        return _play_races(adapter, case, patience)
    if case.play is not Play.KILLS:
        return _play_once(adapter, case, patience)[0]
    plain, events = _play_once(adapter, case, patience)
    whole = Outcome(tries=0, paths=plain.paths)
    if plain.problems:
        return plain
    for number, kind in enumerate(events):
        each, _ = _play_once(adapter, case, patience, kill_at=number)
        whole.tries += 1
        whole.right += each.right
        whole.calls += each.calls
        whole.least += each.least + (kind == "request")  # The model call that was under way is made again.
        for problem in each.problems:
            whole.add(problem)
            whole.notes.append(f"killed at {number + 1} ({kind}): {problem}; {'; '.join(each.notes)}")
    return whole


def _play_races(adapter: Adapter, case: Case, patience: float) -> Outcome:
    """Play a race, with the model calls of the first one alone."""
    whole, _ = _play_once(adapter, case, patience)
    while not whole.unsupported and whole.tries < RACES:
        each, _ = _play_once(adapter, case, patience)
        whole.tries += 1
        whole.right += each.right
        for problem in each.problems:
            whole.add(problem)
        whole.notes += [note for note in each.notes if note not in whole.notes]
    return whole


def _play_once(adapter: Adapter, case: Case, patience: float, kill_at: int | None = None) -> tuple[Outcome, list[str]]:
    with folder_for(adapter) as folder:
        trial = Trial(adapter, case, folder, patience, kill_at)
        return trial.play(), trial.watch.events


@contextlib.contextmanager
def folder_for(adapter: Adapter) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=f"{adapter.name}-") as folder:
        yield Path(folder)
