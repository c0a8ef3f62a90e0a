"""An open call as it is stored: nothing of it is lost, and what it does not say is not written."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResult

from upcall import identity
from upcall.agents.tool_loop.turn import Frame
from upcall.autogen.messages import QUESTIONS, question_message
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.questions.tool_call import PendingCall

CALL = FunctionCall(id="call_1", name="coder", arguments="{}")
QUESTION = Question(question="Which framework?", path=("lead", "coder"), calls=("call_1", "call_2"))


def stored(frame: Frame) -> Frame:
    return Frame.model_validate(json.loads(json.dumps(frame.model_dump(mode="json"))))


def test_new_call_is_written_as_the_call_alone() -> None:
    assert Frame(call=CALL).model_dump(mode="json") == {"call": {"id": "call_1", "name": "coder", "arguments": "{}"}}


def test_call_with_everything_comes_back_as_it_was() -> None:
    approval = PendingCall(tool="run", arguments={"cwd": None, "command": ["npm", None]})
    later = datetime(2030, 1, 1, tzinfo=UTC)
    asked = QUESTION.model_copy(update={"approval": approval, "expires_at": later, "weight": 0.0})
    frame = Frame(
        call=CALL,
        result=FunctionExecutionResult(content="", name="coder", call_id="call_1", is_error=False),
        questions=[asked, QUESTION],
        answers=[Answer(question_id=asked.id, text="")],
        nested={},
        interrupted=True,
        passed_up=[asked.id],
        problem="",
        invalid="",
        report="",
        given={"": Answer(question_id=asked.id)},
        approved=True,
        edited=True,
    )
    assert stored(frame) == frame


def test_question_asked_a_day_ago_keeps_its_time() -> None:
    asked = QUESTION.model_copy(update={"asked_at": identity.now() - timedelta(days=1)})
    assert stored(Frame(call=CALL, questions=[asked])).questions == [asked]


def test_questions_are_written_like_the_asking_message() -> None:
    message = question_message([QUESTION], source="lead", user_proxy="user")
    dumped = Frame(call=CALL, questions=[QUESTION]).model_dump(mode="json")
    assert dumped["questions"] == message.metadata[QUESTIONS]
