"""Send a message to the agents of a run, or stop it after a step: refused, or stored for whoever works on it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from upcall import identity
from upcall.agents.message_filter import FilteringAgent
from upcall.agents.parts import look_behind
from upcall.agents.tool_loop.pausable import PausableAgent
from upcall.autogen.api import AssistantAgent
from upcall.autogen.internals import has_stock_turn
from upcall.autogen.messages import USER
from upcall.errors import CallerError, RunNotWaiting, UpcallError, require_type
from upcall.execution.access import RunAccess
from upcall.execution.compatibility import list_workers
from upcall.execution.team_factory import TeamFactory
from upcall.runs.events import MessageSent, StopRequested
from upcall.runs.run import Run
from upcall.runs.run_page import is_storable
from upcall.runs.states import RunStatus
from upcall.runs.steering import SentMessage

MAX_MESSAGE_CHARS = 100_000

MAX_DEPTH = 20
"""How deep agents are looked for in one another: an agent may be nested in itself."""


async def send_message(
    access: RunAccess, teams: TeamFactory, run_id: str, text: str, to: str | None, new_id: str | None
) -> SentMessage:
    """Store a message for an agent of a run; see `Upcall.say`."""
    run = (await access.load_owned(run_id, "say")).run
    _check_text(text)
    if new_id is not None and await access.store.events.is_sent(run.id, new_id):
        return SentMessage(run.id, new_id, to, await _describe_future(access, run, to))
    if run.is_final:
        raise _refuse_final(run)
    if run.config.is_external:
        raise CallerError(f"The askers of run {run.id} are other programs, and read answers to their questions only.")
    if to is not None:
        require_type("to", to, str, "the name of an agent")
    agents = await _list_agents(teams, run)
    _check_agent(run, agents, to)
    message = MessageSent(user=access.user, message=new_id or identity.new_id(), text=text, to=to)
    now = await access.store.events.append_open(run.id, message)
    if now.is_final:
        raise _refuse_final(now)
    note = await _describe_future(access, now, to)
    if to is not None and agents is None:
        note += f" Whether there is an agent {to!r}, this program cannot say: it does not have the run's team."
    return SentMessage(run.id, message.message, to, note)


async def request_stop(access: RunAccess, run_id: str) -> Run:
    """Store that a run is to stop after the step that its agents are at; see `Upcall.stop`."""
    run = (await access.load_owned(run_id, "stop")).run
    if not run.working or await access.store.leases.find_interrupted([run]):
        state = "interrupted" if run.working else run.status.value
        raise RunNotWaiting(f"Run {run.id} is {state}; nobody works on it, so there is nothing to stop.")
    now = await access.store.events.append_open(run.id, StopRequested(user=access.user))
    if not now.working:
        raise RunNotWaiting(f"Run {now.id} is {now.status.value} meanwhile; there is nothing to stop.")
    return now


def _check_text(text: object) -> None:
    require_type("text", text, str, "what the agents are to read")
    assert isinstance(text, str)
    if not text.strip():
        raise CallerError("The message is empty. Write what the agents are to read.")
    if len(text) > MAX_MESSAGE_CHARS or not is_storable(text):
        raise CallerError(f"A message has {MAX_MESSAGE_CHARS} characters at most, and neither NUL nor half characters.")


def _refuse_final(run: Run) -> RunNotWaiting:
    return RunNotWaiting(
        f"Run {run.id} is {run.status.value}, and its agents read nothing any more. Give your message as the task of a "
        f"run that follows it: upcall chat {run.id}"
    )


async def _describe_future(access: RunAccess, run: Run, to: str | None) -> str:
    """Return in one line what becomes of a message."""
    who = to or "the next agent that calls its model"
    if run.is_final:
        return f"Run {run.id} is {run.status.value}. The message was stored before that."
    if run.waiting:
        return f"Run {run.id} waits for an answer. The message is kept; {who} reads it when the run continues."
    if run.status is RunStatus.QUEUED:
        return f"Run {run.id} is queued. The message is kept; {who} reads it when a worker has taken the run."
    if run.status is RunStatus.FAILED or await access.store.leases.find_interrupted([run]):
        return f"Nobody works on run {run.id}. The message is kept; {who} reads it after: upcall resume {run.id}"
    return f"Run {run.id} is at work. The message is stored; {who} reads it after the present step."


# -- agents -----------------------------------------------------------------------------------------------------------


async def _list_agents(teams: TeamFactory, run: Run) -> Mapping[str, bool] | None:
    """Return the paths of a run's agents, and whether each reads messages while it works; None if this program does
    not have the run's team."""
    if teams.is_own is (run.config.team is not None):
        return None
    try:
        team = await asyncio.to_thread(teams.preview_of, run)
    except UpcallError:
        return None
    found: dict[str, bool] = {}
    _walk(list_workers(team), (), found)
    return found


def _walk(agents: Sequence[object], above: tuple[str, ...], found: dict[str, bool]) -> None:
    for each in agents:
        if isinstance(each, FilteringAgent):  # The journal knows the agent inside beside it, not below.
            _walk([each.inner], above, found)
            continue
        path = (*above, getattr(each, "name", type(each).__name__))
        if "/".join(path) not in found and len(path) <= MAX_DEPTH and path[-1] != USER:
            found["/".join(path)] = _reads_messages(each)
            _walk(list_workers(each), path, found)


def _reads_messages(agent: object) -> bool:
    """Return whether an agent reads messages between two calls of its model: its turn is one that we know."""
    stock = look_behind(agent)
    return isinstance(agent, PausableAgent) or (isinstance(stock, AssistantAgent) and has_stock_turn(stock))


def _check_agent(run: Run, agents: Mapping[str, bool] | None, to: str | None) -> None:
    """Refuse a message that no agent reads.

    Raises:
        CallerError: names the agents that there are.
    """
    readers = [path for path, reads in (agents or {}).items() if reads]
    if to is None:
        if agents is not None and not readers:
            raise CallerError(
                f"No agent of run {run.id} reads messages while it works. Answer its questions, or give your message "
                "as the task of a run that follows it."
            )
        return
    if agents is None:
        return  # The program that works on it has its team; what nobody reads is in the warnings of the run.
    named = [path for path in agents if to in (path, path.rpartition("/")[2])]
    if not named:
        raise CallerError(f"Run {run.id} has no agent {to!r}. Known: {', '.join(agents)}.")
    if not any(agents[path] for path in named):
        others = f" These do: {', '.join(readers)}." if readers else ""
        raise CallerError(f"{to} reads no messages while it works.{others}")
