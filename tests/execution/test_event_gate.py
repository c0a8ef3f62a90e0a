"""Nobody learns of a question before it is stored, and then in the order call, request, answer."""

from __future__ import annotations

from autogen_agentchat.messages import ModelClientStreamingChunkEvent, ToolCallRequestEvent
from autogen_core import FunctionCall

from upcall import Question
from upcall.autogen.messages import asked_event, question_message
from upcall.execution.event_gate import EventGate
from upcall.questions.record import QuestionRecord, QuestionRecords

ASKED = [Question(question=f"What is {name}?", path=("solo",), calls=(name,)) for name in ("a", "b")]
CALL = ToolCallRequestEvent(
    source="solo", content=[FunctionCall(id=each, name="ask_user", arguments="{}") for each in ("a", "b")]
)
REQUESTS = [asked_event(each, source="solo") for each in ASKED]
RECORDS = QuestionRecords.build(ASKED)


def test_call_is_emitted_with_the_last_of_its_questions() -> None:
    gate = EventGate()
    assert gate.let_through(CALL, RECORDS) == []
    assert gate.let_through(REQUESTS[0], RECORDS) == [REQUESTS[0]]
    assert gate.let_through(REQUESTS[1], RECORDS) == [CALL, REQUESTS[1]]
    assert gate.open(RECORDS) == []


def test_call_whose_questions_were_reported_passes() -> None:
    gate = EventGate()
    for request in REQUESTS:
        gate.let_through(request, RECORDS)
    assert gate.let_through(CALL, RECORDS) == [CALL]


def test_handoff_with_questions_waits_for_the_end() -> None:
    gate, handoff = EventGate(), question_message(ASKED, source="solo", user_proxy="user")
    assert gate.let_through(handoff, RECORDS) == []
    assert gate.open(RECORDS) == [handoff]


def test_what_has_no_question_passes() -> None:
    chunk = ModelClientStreamingChunkEvent(source="solo", content="Hm")
    assert EventGate().let_through(chunk, RECORDS) == [chunk]


def test_nothing_is_reported_of_a_duplicate() -> None:
    duplicate = QuestionRecord(question=ASKED[1]).attach_to(ASKED[0].id)
    records = QuestionRecords.build(ASKED[:1]).add([duplicate])
    assert EventGate().let_through(REQUESTS[1], records) == []


def test_gate_that_is_closed_keeps_events_until_stored() -> None:
    gate, chunk = EventGate(), ModelClientStreamingChunkEvent(source="solo", content="Hm")
    gate.close()
    assert [gate.let_through(each, RECORDS) for each in (CALL, *REQUESTS, chunk)] == [[]] * 4
    assert gate.open(RECORDS) == [REQUESTS[0], CALL, REQUESTS[1], chunk]
