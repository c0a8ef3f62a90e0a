"""Serve the open calls of a turn: all at the same time, and continue each as its answer arrives."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import TypeAlias

from upcall.agents.tool_loop.turn import Frame, Turn
from upcall.autogen.answer_queue import AnswerQueue
from upcall.autogen.concurrency import Emit, EmittingWork, merge_streams
from upcall.autogen.messages import Event
from upcall.autogen.scope import current_scope

Serve: TypeAlias = Callable[[Frame, Emit[Event]], Awaitable[None]]
"""Works on one call until it has its result, or waits for an answer."""


def serve_at_once(turn: Turn, serve: Serve) -> AsyncGenerator[Event, None]:
    """Work on every call that can continue, all at the same time.

    A call that fails does not stop the others; one that waits for an answer continues when it arrives, without
    waiting for them. Where a call asks, those that repeat it are no longer held back; they are left to the next time.
    """
    scope, busy = current_scope(), set[str]()
    box = scope.answers

    async def serve_one(frame: Frame, emit: Emit[Event]) -> None:
        try:
            await serve(frame, emit)
        finally:
            busy.discard(frame.call.id)
            if frame.questions:
                turn.release_repeats(frame.call.id)

    def start_runnable() -> list[EmittingWork[Event]]:
        frames = [frame for frame in turn.frames if frame.runnable and frame.call.id not in busy]
        busy.update(frame.call.id for frame in frames)
        return [partial(serve_one, frame) for frame in frames]

    def waiting() -> set[str]:
        still = [frame for frame in turn.frames if frame.call.id not in busy and not frame.answers]
        return {question.id for frame in still for question in frame.questions}

    async def take_answers(came_in: AnswerQueue) -> list[EmittingWork[Event]]:
        answers = await came_in.answers_to(waiting)
        if scope.journal is not None:
            await scope.journal.record_delivery([answer.question_id for answer in answers])
        turn.deliver(answers)
        return start_runnable()

    # While the only call is at work none waits, and when it does, the turn pauses.
    is_alone = sum(frame.result is None for frame in turn.frames) == 1
    return merge_streams(start_runnable(), None if box is None or is_alone else partial(take_answers, box))


def redeliver_answers(turn: Turn) -> bool:
    """Deliver the answers that arrived during the turn before it was interrupted; return whether there are any.

    Its calls end in another order now, and a pause would tell the others what they were not given then.
    """
    scope = current_scope()
    box, journal = scope.answers, scope.journal
    if box is None or journal is None:
        return False
    answers = box.there_for([each.id for each in turn.open_questions() if journal.was_delivered(each.id)])
    turn.deliver(answers)
    journal.report_delivery([each.question_id for each in answers])
    return bool(answers)
