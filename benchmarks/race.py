"""Many processes do the same to one run at the same moment: the work must be done once, and the others learn that.

    python benchmarks/race.py                       # each race, 8 processes, 5 rounds
    python benchmarks/race.py --race resume --rounds 20 --store postgresql://...

``same`` answer: all give the same answers. ``other``: each gives answers of its own. ``resume``: all resume a run whose
worker was killed. ``mixed``: half of them answer, half resume. ``busy``: all resume a run whose worker is alive, but
stopped (SIGSTOP); nobody may take it over, and it continues afterwards. The status is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from killing.forks import ended, fork
from killing.model_server import model_server
from killing.points import EFFECTS, Points, append, lines, reached
from killing.scenarios import SCENARIOS
from killing.trial import MAX_COMMANDS, calls_again, warm_up
from killing.worker import FINAL, OUTPUT, Job, app_for, work

from upcall.errors import UpcallError

OUTCOMES, QUESTIONS = "outcomes.jsonl", "questions.json"
SCENARIO = "streamed"
RACES = ("same", "other", "resume", "mixed", "busy")
LEASE_SECONDS = 60.0
"""Longer than a race."""

BEFORE: dict[str, dict[str, Any]] = {
    "resume": {"kill_at": "start/held right:3"},
    "busy": {"kill_at": "start/held lead:1", "signal": signal.SIGSTOP},
}
"""What becomes of the first worker. Where it is killed no tool is in doubt; where it is stopped it alone is at work."""

EXPECTED_TEXTS = {"RunConflict", "RunBusy", "AlreadyAnswered", "RunNotWaiting"}
"""What those are given who come too late."""


@dataclass(frozen=True)
class Outcome:
    """What one process did (``answer`` or ``resume``), and what it got: the class of an error, or ``Run``."""

    did: str
    got: str
    text: str


@dataclass(frozen=True)
class Race:
    """What one race came to. ``faults`` are the lines that must not be there."""

    race: str
    outcomes: dict[str, int]
    model_calls: int
    faults: Sequence[str]


def run_race(race: str, job: Job, processes: int) -> Race:
    """Bring a run to the start of the race, let all processes go at once, and then take the run to its end."""
    first = replace(job, **BEFORE.get(race, {}))
    worker = fork(lambda: work(first), job.folder / OUTPUT)
    ended(worker)
    ended(fork(lambda: _note_questions(job), job.folder / OUTPUT))
    before = len(reached(job.folder))
    ready, gate = os.pipe()
    racers = [_racer(race, job, number, ready, gate) for number in range(processes)]
    os.close(ready)
    os.close(gate)  # Each racer reads until nobody has the other end: the race begins.
    faults = [f"a racer ended with status {status}" for status in map(ended, racers) if status]
    if race == "busy":
        os.kill(worker, signal.SIGCONT)
        ended(worker)
    raced = reached(job.folder)[before:]
    for _ in range(MAX_COMMANDS):
        if (job.folder / FINAL).exists():
            break
        if ended(fork(lambda: work(job), job.folder / OUTPUT)):
            faults.append(f"the run does not go on after the race: {lines(job.folder / OUTPUT)[-1]}")
            break
    outcomes = [Outcome(**json.loads(line)) for line in lines(job.folder / OUTCOMES)]
    got = Counter(f"{each.did}: {each.got}" for each in outcomes)
    calls = sum(each.kind == "held" for each in raced)
    return Race(race, dict(got), calls, [*faults, *_twice(race, job), *_find_wrong_outcomes(race, job, outcomes)])


def _note_questions(job: Job) -> None:
    run = asyncio.run(app_for(job, None).get(job.run_id))
    (job.folder / QUESTIONS).write_text(json.dumps({each.id: each.question for each in run.questions}))


def _racer(race: str, job: Job, number: int, ready: int, gate: int) -> int:
    def take_part() -> None:
        os.close(gate)
        os.read(ready, 1)
        asyncio.run(_act(race, job, number))

    return fork(take_part, job.folder / OUTPUT)


async def _act(race: str, job: Job, number: int) -> None:
    app = app_for(job, Points(job.folder, None, f"racer-{number}"))
    did = "resume" if race in BEFORE or (race == "mixed" and number % 2) else "answer"
    try:
        run = await (app.resume(job.run_id) if did == "resume" else app.answer(job.run_id, _answers(race, job, number)))
        outcome = Outcome(did, "Run", run.status)
    except UpcallError as error:
        outcome = Outcome(did, type(error).__name__, str(error))
    append(job.folder / OUTCOMES, json.dumps(asdict(outcome)))


def _answers(race: str, job: Job, number: int) -> dict[str, str]:
    questions: dict[str, str] = json.loads((job.folder / QUESTIONS).read_text())
    output = SCENARIOS[job.scenario].answer_to
    return {key: f"racer {number}" if race == "other" else output(text) or "" for key, text in questions.items()}


def _twice(race: str, job: Job) -> list[str]:
    """Return what was done more than once, but for the calls in flight at the kill before the race."""
    in_flight, recorded = calls_again(reached(job.folder), SCENARIOS[job.scenario])
    twice = recorded if race == "resume" else [*recorded, *in_flight]
    if race == "resume":
        twice += [token for token, times in Counter(in_flight).items() if times > 1]
    effects = Counter(lines(job.folder / EFFECTS))
    return [f"model call made again: {token}" for token in twice] + [
        f"side effect {times} times: {effect}" for effect, times in effects.items() if times > 1
    ]


def _find_wrong_outcomes(race: str, job: Job, outcomes: Sequence[Outcome]) -> list[str]:
    """Losers that got no clear line, and winners beside the one."""
    faults = [
        f"{each.did} ended with {each.got}: {each.text}"
        for each in outcomes
        if each.got not in ("Run", *EXPECTED_TEXTS)
    ]
    faults += [f"not one line: {each.text!r}" for each in outcomes if len(each.text.splitlines()) != 1]
    winners = sum(each.got == "Run" for each in outcomes)
    if race == "busy":
        return faults + [f"ended with {each.got}" for each in outcomes if each.got != "RunBusy"]
    if winners == 0 or (winners > 1 and race in ("other", "resume")):
        faults.append(f"{winners} processes were told that they did it")
    if race == "other" and (job.folder / FINAL).exists():
        answers = [each["answer"] for each in json.loads((job.folder / FINAL).read_text())["records"]]
        if len({each["text"] for each in answers}) != 1 or len(answers) != len(SCENARIOS[job.scenario].answers):
            faults.append(f"the answers of several processes stand: {answers}")
    return faults


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--race", action="append", choices=RACES, help="one of them, or several; all")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5, help="how often each race is held")
    parser.add_argument("--store", help="a database URL, instead of an SQLite file a race")
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    return parser.parse_args()


def main() -> int:
    """Hold the races; 1 if anything was wrong."""
    given = arguments()
    folder = Path(tempfile.mkdtemp(prefix="upcall-race-"))
    races: list[Race] = []
    with model_server(folder) as base_url:

        def job(name: str) -> Job:
            place = folder / name
            place.mkdir()
            return Job(
                SCENARIO,
                place,
                base_url,
                given.store or str(place / "runs.db"),
                f"{name}-{os.getpid()}",
                lease_seconds=LEASE_SECONDS,
            )

        warm_up(job("warm-up"))
        for race in given.race or RACES:
            for number in range(given.rounds):
                races.append(run_race(race, job(f"{race}-{number}"), given.processes))
                if not given.json:
                    emitted = ", ".join(f"{times} {what}" for what, times in sorted(races[-1].outcomes.items()))
                    print(f"{race}: {emitted}; model calls {races[-1].model_calls}", *races[-1].faults, sep="\n  ")
    if given.json:
        print(json.dumps([asdict(each) for each in races], indent=1))
    faulty = any(each.faults for each in races)
    if faulty:
        print(f"What is left of the races is in {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder)
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
