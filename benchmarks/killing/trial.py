"""One trial: a run whose worker is killed at one point (or at two), which others take to its end; and the verdict.

What the verdict rests on: the requests that the server got, the lines that the tools wrote, and the tokens that are
held by a request, or by the journal right after the kill. Whoever holds a token has got the reply or the result it
belongs to, so that this was done, and recorded, before; to do it again is a fault. Without such evidence it was in
flight.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from killing.forks import ended, fork
from killing.points import EFFECTS, Reached, lines, note, reached
from killing.scenarios import SCENARIOS, Scenario, workspace
from killing.worker import FINAL, OUTPUT, Job, answer_early, note_what_is_recorded, work

MAX_COMMANDS = 60
VERDICT = "verdict.json"
CONTINUED = "continued"


@dataclass
class Verdict:
    """What became of one trial. ``faults`` are the lines that must not be there."""

    kill_at: Sequence[str]
    kills: int = 0
    calls_in_flight: list[str] = field(default_factory=list)
    """Model calls that were made again, nobody having got the reply."""
    tools_again: list[str] = field(default_factory=list)
    """Tool calls that were made again, as was declared or chosen."""
    doubts: int = 0
    """How often the human was asked about a tool in doubt."""
    locked: bool = False
    """Whether a stopped worker kept the others from writing, so that there is nothing to judge."""
    faults: list[str] = field(default_factory=list)


def warm_up(job: Job) -> None:
    """Run it in this process: what is imported or built at the first use need not be in each child."""
    while not (job.folder / FINAL).exists():
        work(job)
    until = time.monotonic() + 2
    while threading.active_count() > 1 and time.monotonic() < until:
        time.sleep(0.01)  # The threads of closed connections are about to end.
    gc.collect()
    gc.freeze()  # So that a child does not copy what is here by counting references.


def attempt(job: Job, kills: Sequence[str]) -> Verdict:
    """Take a run to its end, through kills at these points, one after the other.

    A point ``STAGE/LABEL`` is waited for in whatever process comes to it; ``#3`` is the third point of the next one.
    """
    verdict = Verdict(kills)
    human = fork(lambda: answer_early(job), job.folder / OUTPUT) if job.eager else None
    stopped: list[int] = []
    try:
        _advance(verdict, job, list(kills), stopped)
        for child in stopped:
            _resume(child, verdict, job)
    finally:
        if human is not None:
            os.kill(human, signal.SIGKILL)
            os.waitpid(human, 0)
    return verdict


def _resume(stopped: int, verdict: Verdict, job: Job) -> None:
    """Let a worker continue that stood still while others did its work."""
    note(job.folder, Reached(stopped, "", CONTINUED))
    os.kill(stopped, signal.SIGCONT)
    if ended(stopped) and not verdict.locked:
        verdict.faults.append(f"fails when it goes on: {lines(job.folder / OUTPUT)[-1]}")


def _advance(verdict: Verdict, job: Job, left: list[str], stopped: list[int]) -> None:
    """One command after the other, until the run is over."""
    for _ in range(MAX_COMMANDS):
        child = fork(lambda: work(replace(job, kill_at=left[0] if left else None)), job.folder / OUTPUT)
        try:
            status = ended(child)
        except TimeoutError as error:
            verdict.locked = bool(stopped)
            verdict.faults += [] if stopped else [f"hangs: {error}"]
            return
        if status > 0 and stopped and "database is locked" in lines(job.folder / OUTPUT)[-1]:
            verdict.locked = True
            return
        if status > 0:
            verdict.faults.append(f"fails: {lines(job.folder / OUTPUT)[-1]}")
            return
        if status < 0:
            verdict.kills += 1
            stopped += [child] if status == -signal.SIGSTOP else []
            left.pop(0)
            if status == -signal.SIGKILL:
                ended(fork(lambda: note_what_is_recorded(job), job.folder / OUTPUT))
        elif (job.folder / FINAL).exists():
            return
        elif left and left[0].startswith("#"):
            left.pop(0)  # That process came to its rest before the point.
    verdict.faults.append(f"does not end in {MAX_COMMANDS} commands")


def judge(verdict: Verdict, job: Job, expected: State) -> None:
    """Compare what happened with what `expected` says, and add what is wrong to the verdict."""
    if verdict.locked:
        return
    scenario, log = SCENARIOS[job.scenario], reached(job.folder)
    log, late = _parted(log)
    again, skipped = (_doubts(log, choice) for choice in ("again", "skip"))
    verdict.doubts = sum(each.kind == "doubt" for each in log)
    verdict.calls_in_flight, known = calls_again(log, scenario)
    verdict.faults += [f"model call {token} made again, though its reply was recorded" for token in known]
    for position, each in _repeated(log, "tool"):
        token = each.subject
        if f"R={token}" in _held(log[:position]):
            verdict.faults.append(f"tool call {token} made again, though its result was recorded")
        elif token in again or scenario.idempotent(token):
            verdict.tools_again.append(token)
        else:
            verdict.faults.append(f"tool call {token} made again, and nobody was asked")
    for position, each in enumerate(log):
        if each.kind == "doubt" and f"R={each.subject}" in _held(log[:position]):
            verdict.faults.append(f"tool call {each.subject} put in doubt, though its result was recorded")
    late_calls = [each.subject for each in late if each.kind == "held"]
    verdict.calls_in_flight += late_calls
    for agent, times in Counter(token.partition(":")[0] for token in late_calls).items():
        if times > 1:
            verdict.faults.append(f"model call of {agent} made {times} times by a worker that had lost the run")
    for each in late:
        if each.label.endswith("before") and each.kind == "tool" and each.subject not in again:
            verdict.faults.append(f"tool call {each.subject} made by a worker that had lost the run")
    if not verdict.faults or (job.folder / FINAL).exists():
        verdict.faults += _differences(expected, state(job), again, skipped)


def calls_again(log: Sequence[Reached], scenario: Scenario) -> tuple[list[str], list[str]]:
    """Return the model calls that were made again: those that were in flight at a kill, and those whose reply was
    recorded."""
    in_flight: list[str] = []
    recorded: list[str] = []
    for position, each in _repeated(log, "held"):
        (recorded if _known(each.subject, log[:position], scenario) else in_flight).append(each.subject)
    return in_flight, recorded


@dataclass(frozen=True)
class State:
    """What a run has come to, without what may differ from run to run: ids, times, and questions about doubts."""

    run: dict[str, Any]
    effects: Counter[str]


def state(job: Job) -> State:
    """Return the state in which a run ended."""
    final = json.loads((job.folder / FINAL).read_text())
    kept = ("status", "result", "error", "classification", "clarifier_log", "plan", "execution_path", "usage")
    run = {name: final.get(name) for name in kept}
    # Who asked without `ask_user` asks again under a new id where it was killed just before its pause; the first one is
    # cancelled then.
    closed = [each for each in final["records"] if each["answer"] and each["answer"]["outcome"] != "cancelled"]
    pairs = [(each["question"], each["answer"]) for each in closed]
    asked = [pair for pair in pairs if SCENARIOS[job.scenario].answer_to(pair[0]["question"])]
    run["answers"] = sorted(_describe_answer(*pair) for pair in asked)
    if SCENARIOS[job.scenario].branches:
        run["execution_path"] = sorted(set(run["execution_path"]))
    for name in SCENARIOS[job.scenario].timed:
        run["usage"][name].pop("prompt_tokens")
    run["open"] = sum(each["answer"] is None for each in final["records"])
    files = workspace(job.folder)
    run["files"] = {str(each.relative_to(files)): each.read_text() for each in files.rglob("*") if each.is_file()}
    return State(run, Counter(lines(job.folder / EFFECTS)))


def _describe_answer(question: dict[str, Any], answer: dict[str, Any]) -> list[str]:
    parts = (question["question"], *question["path"], *question["calls"], answer["outcome"], answer["by"])
    return [*parts, answer.get("text", ""), *answer.get("selected", [])]


def _doubts(log: Sequence[Reached], choice: str) -> set[str]:
    """Return the calls in doubt of which the human chose this."""
    return {each.subject for each in log if each.kind == "doubt" and each.label.endswith(choice)}


def _differences(expected: State, found: State, again: set[str], skipped: set[str]) -> Iterator[str]:
    for name, value in expected.run.items():
        if name == "usage" and skipped:
            continue  # Who is informed that a call was skipped is given more.
        if found.run[name] != value:
            yield f"ends with another {name}: {found.run[name]!r}, not {value!r}"
    for effect in expected.effects.keys() | found.effects.keys():
        times, usual = found.effects[effect], expected.effects[effect]
        if times < usual and effect.split()[1] not in skipped:
            yield f"side effect lost: {effect}"
        elif times > usual and effect.split()[1] not in again:
            yield f"side effect {times} times: {effect}"


def _repeated(log: Sequence[Reached], kind: str) -> Iterator[tuple[int, Reached]]:
    """Yield the second and later beginnings of the same model call or tool call, with their places in the log."""
    seen: set[str] = set()
    for position, each in enumerate(log):
        if each.kind != kind or (kind == "tool" and not each.label.endswith("before")):
            continue
        if each.subject in seen:
            yield position, each
        seen.add(each.subject)


def _parted(log: Sequence[Reached]) -> tuple[Sequence[Reached], Sequence[Reached]]:
    """Return the points before, and those after a worker that stood still continues. It learns that it has lost the run
    when it writes next, so that each of its agents may still make one model call, and begin what the
    human was asked about."""
    place = next((place for place, each in enumerate(log) if each.kind == CONTINUED), len(log))
    return log[:place], log[place + 1 :]


def _held(log: Sequence[Reached]) -> set[str]:
    """Return the tokens that were held by anybody."""
    return {token for each in log for token in each.holds}


def _known(reply: str, log: Sequence[Reached], scenario: Scenario) -> bool:
    """Whether somebody had got this reply: its token or a call of it was sent on, or a call of it was made."""
    tools = {each.subject for each in log if each.kind == "tool"}
    if any(token == reply or token.startswith(f"{reply}:") for token in _held(log) | tools):
        return True
    agent = reply.partition(":")[0]
    if agent not in scenario.in_turn[:-1]:
        return False
    acted = {each.subject.partition(":")[0] for each in log if each.kind in ("request", "tool")}
    return bool(acted - set(scenario.in_turn[: scenario.in_turn.index(agent) + 1]))
