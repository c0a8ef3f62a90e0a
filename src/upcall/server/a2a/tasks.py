"""A run as a task of A2A, as it stands in the store: nothing of a task is kept elsewhere but how a client named it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from a2a.helpers import new_data_part, new_text_artifact, new_text_part
from a2a.types import Artifact, Message, Part, Role, Task, TaskState, TaskStatus

from upcall.questions.question import Question
from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.server.a2a.contexts import TaskNames
from upcall.server.a2a.parts import OPTIONS, describe_questions

RESULT = "result"
"""The id of the artifact that holds the result."""

STATES: Mapping[RunStatus, TaskState] = {
    RunStatus.QUEUED: TaskState.TASK_STATE_SUBMITTED,
    RunStatus.INITIALIZING: TaskState.TASK_STATE_WORKING,
    RunStatus.PLANNING: TaskState.TASK_STATE_WORKING,
    RunStatus.EXECUTING: TaskState.TASK_STATE_WORKING,
    RunStatus.AWAITING_CLARIFICATION: TaskState.TASK_STATE_INPUT_REQUIRED,
    RunStatus.COMPLETED: TaskState.TASK_STATE_COMPLETED,
    RunStatus.FAILED: TaskState.TASK_STATE_FAILED,
    RunStatus.CANCELLED: TaskState.TASK_STATE_CANCELED,
    RunStatus.EXPIRED: TaskState.TASK_STATE_FAILED,
}
"""The state of a task by the status of its run."""


def make_task(run: Run, questions: Sequence[Question], names: TaskNames) -> Task:
    """Make the task of a run, with its history and, once it is completed, its result.

    Args:
        run: the run, as the client may see it.
        questions: its open questions that the client may answer.
        names: what the client named it by.
    """
    task = Task(
        id=run.id,
        context_id=names.context_id,
        status=make_status(run, questions, names),
        artifacts=list_artifacts(run),
        history=_list_history(run, names),
    )
    task.metadata.update({OPTIONS: _describe_more(run)})
    return task


def make_status(run: Run, questions: Sequence[Question], names: TaskNames) -> TaskStatus:
    """Make the status of a run's task: its state, with the open questions, or why it ended without a result."""
    status = TaskStatus(state=STATES[run.status])
    status.timestamp.FromDatetime(run.updated_at)
    parts = [*describe_questions(questions)] if run.waiting or run.under_way else []
    if not parts and (note := _explain(run)):
        parts = [new_text_part(note, media_type="text/plain")]
    if parts:
        named = "+".join(each.id for each in questions) or run.status.value
        status.message.CopyFrom(_make_message(run, names, named, Role.ROLE_AGENT, parts))
    return status


def list_artifacts(run: Run) -> list[Artifact]:
    """List what a run brought: its result, once it is completed."""
    if run.status is not RunStatus.COMPLETED or run.result is None:
        return []
    return [new_text_artifact(RESULT, run.result, media_type="text/plain", artifact_id=RESULT)]


def _explain(run: Run) -> str | None:
    """Say what no question says: why it stopped, or whom it waits for."""
    if run.interrupted:
        return "Its process is gone. Send the last message again, or subscribe to the task, and it continues."
    if run.waiting:
        others = sorted({each.assignee for each in run.questions if each.assignee is not None})
        return f"It waits for the answer of somebody else{': ' if others else ''}{', '.join(others)}."
    return run.error


def _list_history(run: Run, names: TaskNames) -> Iterator[Message]:
    """Yield the messages so far: the task, and each question with its answer. A secret stays hidden."""
    if run.restricted:
        return
    first = [new_text_part(run.task, media_type="text/plain")]
    yield _make_message(run, names, names.message_id or "task", Role.ROLE_USER, first)
    for question, answer in run.clarification_history:
        yield _make_message(run, names, question.id, Role.ROLE_AGENT, [*describe_questions([question])])
        parts = [
            new_text_part(answer.as_text(), media_type="text/plain"),
            new_data_part({"id": question.id, "outcome": answer.outcome.value, "by": answer.by.value}),
        ]
        yield _make_message(run, names, f"{question.id}-answer", Role.ROLE_USER, parts)


def _make_message(run: Run, names: TaskNames, message_id: str, role: Role, parts: Sequence[Part]) -> Message:
    """Make a message of a task; the same one has the same id, whoever reads it and when."""
    return Message(message_id=message_id, context_id=names.context_id, task_id=run.id, role=role, parts=parts)


def _describe_more(run: Run) -> dict[str, object]:
    """Describe what the protocol has no field for."""
    shown = run.as_json()
    return {name: shown[name] for name in ("status", "interrupted", "stop_reason", "assumptions", "warnings")}
