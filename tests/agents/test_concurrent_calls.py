"""The calls of one reply are served at the same time, and each continues when its answer is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from autogen_core import FunctionCall

from upcall.agents.tool_loop.concurrent_calls import serve_at_once
from upcall.agents.tool_loop.turn import Frame, Turn
from upcall.autogen.answer_queue import AnswerQueue
from upcall.autogen.concurrency import Emit
from upcall.autogen.journal import Journal
from upcall.autogen.messages import Event
from upcall.autogen.scope import RunScope, enter_scope
from upcall.questions.answer import Answer
from upcall.questions.question import Question

QUESTION = Question(question="Which framework?", path=("lead", "coder"), calls=("call_1", "call_2"))


async def test_answer_stays_out_until_the_journal_has_it() -> None:
    """The other call ends meanwhile: nobody would continue the one that is answered, and the turn pauses instead."""
    coder = Frame(call=FunctionCall(id="call_1", name="coder", arguments="{}"), questions=[QUESTION], nested={})
    search = Frame(call=FunctionCall(id="call_2", name="search", arguments="{}"))
    turn, writing = Turn(frames=[coder, search]), asyncio.Event()

    async def write(records: Mapping[str, str | None]) -> None:
        writing.set()
        for _ in range(20):  # As many passes of the loop as the end of the other call needs.
            await asyncio.sleep(0)

    async def serve(frame: Frame, emit: Emit[Event]) -> None:
        await writing.wait()
        frame.finish("Found.")

    answers = AnswerQueue([Answer(question_id=QUESTION.id, text="Express")])
    with enter_scope(RunScope(journal=Journal("run", "0", {}, write), answers=answers)):
        assert [event async for event in serve_at_once(turn, serve)] == []
    assert (turn.open_questions(), coder.result) == ([QUESTION], None)
