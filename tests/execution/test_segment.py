"""How a segment ends, and what its publisher holds open meanwhile."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from autogen_agentchat.base import Team
from autogen_agentchat.messages import TextMessage
from worlds import app_of, solo

from upcall.autogen.messages import Event, question_message
from upcall.autogen.published import Published
from upcall.execution import driver
from upcall.execution.outcomes import Completed, Failed, SegmentOutcome, Waiting
from upcall.execution.publisher import QuestionPublisher
from upcall.execution.segment import RunSegment
from upcall.options import ResolutionOptions
from upcall.policy.resolver import AnswerResolver
from upcall.questions.answer import Answer, Outcome
from upcall.questions.question import Question
from upcall.runs.run import Run
from upcall.testing import Call, Fail, Reply, ScriptedModelClient

ASK = Call("ask_user", {"question": "Which framework?"})
ASKED = Question(question="Which framework?", path=("solo",), calls=("c1",))


class Noted(RunSegment):
    """A segment that notes how it ended."""

    ends: list[SegmentOutcome]

    async def work(self, team: Team, *, loaded: bool) -> AsyncGenerator[Event | SegmentOutcome, None]:
        """Note the outcome."""
        async for item in super().work(team, loaded=loaded):
            if isinstance(item, SegmentOutcome):
                self.ends.append(item)
            yield item


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[SegmentOutcome]:
    Noted.ends = []
    monkeypatch.setattr(driver, "RunSegment", Noted)
    return Noted.ends


@pytest.mark.parametrize(
    ("reply", "kind"),
    [(ASK, Waiting), ("Done.", Completed), (Fail(401), Failed)],
    ids=["ask", "end", "error"],
)
async def test_segment_ends_waiting_completed_or_failed(
    reply: Reply, kind: type[Any], ends: Sequence[SegmentOutcome]
) -> None:
    run = await app_of(solo(ScriptedModelClient([reply]))).start("Build it")
    assert [(type(each), each.stored.run.status) for each in ends] == [(kind, run.status)]


def _publisher() -> QuestionPublisher:
    run = Run(id="r1", task="Build it")
    return QuestionPublisher(run, AnswerResolver(ResolutionOptions(), run.records))


async def test_publisher_waits_for_what_a_message_asks() -> None:
    publisher = _publisher()
    publisher.read(question_message([ASKED], source="solo", user_proxy="user"))
    await publisher.decide_waiting()
    assert (publisher.waiting, [each.id for each in publisher.records.open]) == ([ASKED.id], [ASKED.id])


async def test_publisher_finds_a_question_that_nobody_waits_for() -> None:
    publisher = _publisher()
    publisher.sightings.add(Published(ASKED))
    assert [each.question for each in publisher.find_lost()] == [ASKED]


async def test_publisher_delivers_an_answer_after_it_was_taken() -> None:
    publisher = _publisher()
    publisher.read(question_message([ASKED], source="solo", user_proxy="user"))
    await publisher.decide_waiting()
    answer = Answer(question_id=ASKED.id, outcome=Outcome.ANSWERED, text="Flask")
    assert publisher.take([answer])
    assert publisher.has_undelivered
    assert publisher.queue.there_for([ASKED.id]) == []
    publisher.deliver()
    assert publisher.queue.there_for([ASKED.id]) == [answer]


async def test_publisher_takes_a_late_answer_once() -> None:
    publisher = _publisher()
    publisher.read(question_message([ASKED], source="solo", user_proxy="user"))
    await publisher.decide_waiting()
    answer = Answer(question_id=ASKED.id, outcome=Outcome.ANSWERED, text="Flask")
    assert [publisher.take([answer]), publisher.take([answer])] == [True, False]


def _fail_to_store(publisher: QuestionPublisher) -> None:
    with publisher.undo_on_error():
        publisher.cancel_unwaited()
        raise TimeoutError([each.id for each in publisher.records.open])


async def test_publisher_restores_its_records_after_a_failed_write() -> None:
    publisher = _publisher()
    publisher.read(question_message([ASKED], source="solo", user_proxy="user"))
    await publisher.decide_waiting()
    publisher.read(TextMessage(source="solo", content="Done."))
    with pytest.raises(TimeoutError, match=r"\[\]"):
        _fail_to_store(publisher)
    assert [each.id for each in publisher.records.open] == [ASKED.id]
