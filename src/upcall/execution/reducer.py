"""Pure functions from a team's events to new values of its run, and from the end of its work to the next checkpoint.

Nothing here stores, reports or asks anything: `RunSegment` does that with the results.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from autogen_agentchat.messages import (
    BaseChatMessage,
    HandoffMessage,
    StopMessage,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
)

from upcall.agents.tool_loop.ask_user import ASK_USER
from upcall.autogen.empty_replies import explain_empty
from upcall.autogen.messages import (
    ANSWERS,
    CLARIFIER_LOG,
    CLASSIFICATION,
    ERROR,
    NOTES,
    OUTCOME,
    PATH,
    PLAN,
    REPEATED,
    STEERING,
    STOPPED,
    USER,
    Event,
    answer_message,
    event_path,
    event_warnings,
    extract_questions,
    message_questions,
)
from upcall.progress import PROGRESS
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecord
from upcall.runs.budget import settle as settle_budget
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.outputs import Classification
from upcall.runs.plan import ReviewedPlan
from upcall.runs.run import Run, add_usage
from upcall.runs.states import RunEvent, RunStatus
from upcall.runs.unknown_outcomes import resolve_record
from upcall.storage.stored_run import StoredRun
from upcall.text import first_line, is_blank

Phase: TypeAlias = Callable[[str], RunEvent]
"""What happens to a run when the named agent gets the turn."""

NO_RESULT = "The team stopped without a result"
"""How the error of such a run begins; why the team stopped, if AutoGen says so, comes next."""


@dataclass(frozen=True)
class SegmentState:
    """The accumulated result of a segment's events so far.

    Attributes:
        run: the run according to the events.
        last: the last message of a member of the outermost team.
        stop_reason: why the team stopped, in AutoGen's words.
    """

    run: Run
    last: BaseChatMessage | None = None
    stop_reason: str | None = None


def reduce_event(state: SegmentState, event: Event, phase: Phase) -> SegmentState:
    """Update the run from an event: tokens, tools, classification, plan, and whose turn it is."""
    run, path = state.run, "/".join(event_path(event))
    changes = _count_tools(run, event, path)
    if event.models_usage is not None:
        changes["usage"] = add_usage(run.usage, path, event.models_usage)
    if warned := event_warnings(event):
        changes["warnings"] = tuple(dict.fromkeys((*run.warnings, *(f"{path}: {each}" for each in warned))))
    if isinstance(event, BaseChatMessage) and PATH not in event.metadata:
        # A user proxy of the user's name may have the last word.
        state = replace(state, last=state.last if ANSWERS in event.metadata else event)
        if event.source != USER:
            changes |= _read_message(run, event)
            if isinstance(event, HandoffMessage) and not extract_questions(event, USER):
                run = run.apply(phase(event.target))
    return replace(state, run=run.update(**changes)) if changes else state


def _count_tools(run: Run, event: Event, path: str) -> dict[str, Any]:
    if not isinstance(event, ToolCallExecutionEvent):
        return {}
    repeated = set(json.loads(event.metadata.get(REPEATED, "[]")))
    results = [each for each in event.content if each.name != ASK_USER and each.call_id not in repeated]
    made = Counter(f"{path}/{each.name}" for each in results)
    failed = Counter(f"{path}/{each.name}" for each in results if each.is_error)
    return {"tools": dict(Counter(run.tools) + made), "failed_tools": dict(Counter(run.failed_tools) + failed)}


def _read_message(run: Run, message: BaseChatMessage) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    turns = [message.source]
    if text := message.metadata.get(CLASSIFICATION):
        changes["classification"] = Classification.model_validate_json(text)
    if text := message.metadata.get(CLARIFIER_LOG):
        changes["clarifier_log"] = text
    if text := message.metadata.get(PLAN):
        changes["plan"] = ReviewedPlan.model_validate_json(text).after(run.plan)
    if isinstance(message, HandoffMessage) and not extract_questions(message, USER):
        turns.append(message.target)
    executed = run.execution_path
    for agent in turns:
        executed = executed if agent in executed[-1:] else (*executed, agent)
    return changes | {"execution_path": executed}


def find_text_of(event: Event) -> str:
    """Return what an agent writes to a person in an event, or thinks; empty where it does not."""
    match event:
        case ThoughtEvent() if not {PROGRESS, STEERING, NOTES} & event.metadata.keys():
            return event.content
        case TextMessage() | StopMessage() if event.source != USER:
            return event.content
        case _:
            return ""


# -- the end of the team's work ---------------------------------------------------------------------------------------


def explain_loss(last: BaseChatMessage | None, loss: str) -> str:
    """Explain how a question was lost: it was handed to somebody else, or swallowed."""
    if isinstance(last, HandoffMessage) and last.target != USER and message_questions(last):
        return f"A question was handed to {last.target!r}; under Upcall the user proxy is called {USER!r}."
    return loss


def end_segment(
    state: SegmentState,
    waiting: Sequence[str],
    team_state: dict[str, Any],
    journal: Mapping[str, str],
    phase: Phase,
) -> tuple[Run, Checkpoint]:
    """Return the run in its final state - waiting, failed or completed - and the checkpoint to continue from.

    `waiting` has the ids of the questions that the team waits for. If some of them have answers that came too late for
    the team, the run is to continue at once with them.
    """
    questions = [state.run.records[question_id].question for question_id in waiting]
    run = state.run.model_copy(update={"records": state.run.records.enter_checkpoint(waiting)})
    checkpoint, last = Checkpoint(team_state=team_state, journal=dict(journal)), state.last
    if questions:
        run = run.apply(RunEvent.ASKED)
        if answers := [answer for each in questions if (answer := run.records[each.id].answer) is not None]:
            checkpoint, target = deliver_answers(checkpoint, answers, questions)
            run = run.apply(phase(target))
    elif last is not None and (error := last.metadata.get(ERROR)):
        run = run.apply(RunEvent.FAILED, error=first_line(error))
    elif last is None or is_blank(last.to_model_text()):
        why = f" ({state.stop_reason.rstrip('.')})" if state.stop_reason else ""
        whose = "." if last is None else f": {explain_empty(last)}"
        run = run.apply(RunEvent.FAILED, error=f"{NO_RESULT}{why}{whose} Resume the run to try again.")
    else:
        reason = last.metadata.get(OUTCOME) or last.metadata.get(STOPPED) or state.stop_reason
        run = run.apply(RunEvent.COMPLETED, result=last.to_model_text(), stop_reason=reason, error=None)
    return run, checkpoint


def take_answers(
    stored: StoredRun, answers: Sequence[Answer], reached: RunEvent, phase: Phase
) -> tuple[Run, Checkpoint, dict[str, str | None]]:
    """Return a run that continues with answers, the checkpoint with them, and the records of the calls they decide.

    An answer about a call in doubt is the journal's, any other the team's; while calls are in doubt the run waits. A
    question that the checkpoint does not know is asked again, and the resolver then has its answer.

    Args:
        stored: the run, at the checkpoint it continues from.
        answers: answers to its open questions.
        reached: with which event it continues, unless the answers say whose turn it is.
        phase: what happens to it when an agent gets the turn.
    """
    run, checkpoint, event, doubts = stored.run, stored.checkpoint, reached, stored.run.records.unknown_outcomes
    brought = [
        each for each in answers if each.question_id not in doubts and not _is_known(run.records[each.question_id])
    ]
    if brought:
        checkpoint, target = deliver_answers(checkpoint, brought, run.open_questions)
        event = phase(target)
    decided: dict[str, str | None] = {}
    for answer in answers:
        if (key := doubts.get(answer.question_id)) is not None:
            decided[key] = resolve_record(answer, stored.records[key])
    if len(decided) < len(doubts):
        event = RunEvent.ASKED
    return settle_budget(run.record_answers(answers), answers, event), checkpoint, decided


def _is_known(record: QuestionRecord) -> bool:
    """Return whether a run's team needs no message with the answer: it asks again, or continued with an assumption."""
    return record.asked_since_checkpoint or record.is_provisional


def lacks_result(run: Run) -> bool:
    """Return whether a run failed because its team stopped without a result."""
    return run.status is RunStatus.FAILED and (run.error or "").startswith(NO_RESULT)


def deliver_answers(
    checkpoint: Checkpoint, answers: Sequence[Answer], questions: Iterable[Question]
) -> tuple[Checkpoint, str]:
    """Return the checkpoint with answers to some of `questions` in its inbox, and the outermost agent they go to."""
    asked, answered = list(questions), {answer.question_id for answer in answers}
    target = next(question.path[0] for question in asked if question.id in answered)
    message = answer_message(answers, target=target, questions=asked, source=USER)
    return checkpoint.model_copy(update={"inbox": (*checkpoint.inbox, message)}), target
