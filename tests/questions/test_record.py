"""One record a question: its states are a literal table, and nothing that happens to questions leads out of it."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pydantic import ValidationError

from upcall.options import ResolutionOptions
from upcall.policy.duplicates import answer_duplicates
from upcall.policy.resolver import AnswerResolver, Moment
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecord, QuestionRecords
from upcall.questions.states import TRANSITIONS, QuestionEvent, QuestionState, is_closed, next_state
from upcall.transitions import IllegalTransition

ASKED = Question(id="q1", question="Which framework?", path=("lead", "coder"), calls=("c1", "c2"))
RISK = Question(id="r1", question="Delete it?", clarification_type="risk_confirmation", path=("lead",), calls=("c1",))
CLOSED = {QuestionState(outcome.value) for outcome in Outcome}
ILLEGAL = [(s, e) for s, e in product(QuestionState, QuestionEvent) if e not in TRANSITIONS[s]]


def answer(question_id: str = "q1", outcome: Outcome = Outcome.ANSWERED, by: AnsweredBy = AnsweredBy.HUMAN) -> Answer:
    return Answer(question_id=question_id, outcome=outcome, text="Express", by=by)


# -- the table --------------------------------------------------------------------------------------------------------


def test_table_has_a_row_for_every_state() -> None:
    """S4-48: a declared state machine."""
    assert set(TRANSITIONS) == set(QuestionState)


def test_every_event_happens_somewhere_and_every_state_is_reached() -> None:
    assert {event for moves in TRANSITIONS.values() for event in moves} == set(QuestionEvent)
    reached = {target for moves in TRANSITIONS.values() for target in moves.values()}
    assert set(QuestionState) - reached == {QuestionState.RAISED}


def test_closed_are_just_the_states_of_an_outcome() -> None:
    assert {state for state in QuestionState if is_closed(state)} == CLOSED


@pytest.mark.parametrize(("state", "event"), ILLEGAL, ids=lambda each: each.value)
def test_illegal_event_raises_and_names_state_and_event(state: QuestionState, event: QuestionEvent) -> None:
    with pytest.raises(IllegalTransition, match=f"q1 is {state.value}; it cannot be {event.value}") as refused:
        next_state(state, event, "q1")
    assert (refused.value.state, refused.value.event) == (state, event)


# -- one record -------------------------------------------------------------------------------------------------------


def test_illegal_move_changes_nothing() -> None:
    closed = QuestionRecord(question=ASKED).publish().close(answer())
    before = closed.model_dump()
    for move in (closed.publish, closed.separate, lambda: closed.close(answer()), lambda: closed.attach_to("q2")):
        with pytest.raises(IllegalTransition):
            move()
    assert closed.model_dump() == before


@pytest.mark.parametrize("outcome", [Outcome.ANSWERED, Outcome.SKIPPED, Outcome.ASSUMED])
@pytest.mark.parametrize("by", [each for each in AnsweredBy if each is not AnsweredBy.HUMAN])
def test_risk_is_settled_by_the_human_alone(outcome: Outcome, by: AnsweredBy) -> None:
    with pytest.raises(IllegalTransition):
        QuestionRecord(question=RISK).publish().close(answer("r1", outcome, by))


@pytest.mark.parametrize("outcome", [Outcome.EXPIRED, Outcome.CANCELLED, Outcome.DECLINED])
def test_risk_can_end_without_consent(outcome: Outcome) -> None:
    assert QuestionRecord(question=RISK).publish().close(answer("r1", outcome, AnsweredBy.POLICY)).is_closed


@pytest.mark.parametrize("outcome", [Outcome.ASSUMED, Outcome.EXPIRED, Outcome.SKIPPED])
def test_call_in_doubt_is_never_settled_by_time(outcome: Outcome) -> None:
    with pytest.raises(IllegalTransition):
        QuestionRecord(question=RISK).doubt("a/call").close(answer("r1", outcome))


@pytest.mark.parametrize(
    "contradiction",
    [
        {"state": "answered"},
        {"state": "open", "answer": answer()},
        {"state": "declined", "answer": answer()},
        {"state": "duplicate"},
        {"state": "in_doubt"},
    ],
    ids=lambda each: each["state"],
)
def test_stored_record_that_contradicts_itself_is_refused(contradiction: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        QuestionRecord.model_validate({"question": ASKED, **contradiction})


# -- the records of a run ---------------------------------------------------------------------------------------------


def test_answers_are_in_the_order_of_their_arrival() -> None:
    asked = [ASKED.model_copy(update={"id": each}) for each in ("a", "b", "c")]
    records = QuestionRecords.build(asked).close([answer("c")]).close([answer("a")])
    assert [each.question_id for each in records.answers] == ["c", "a"]
    assert [each.id for each in records.shown] == ["b"]


def test_duplicate_without_its_original_is_shown_before_the_others() -> None:
    others = [QuestionRecord(question=ASKED.model_copy(update={"id": each})).attach_to("q1") for each in ("a", "b")]
    records = QuestionRecords.build([ASKED]).add(others).close([answer()])
    assert [each.id for each in records.shown] == ["a"]
    assert [each.id for each in records.duplicates_of("a")] == ["b"]


def test_records_survive_json() -> None:
    records = QuestionRecords.build([ASKED], [(RISK, answer("r1"))])
    assert QuestionRecords.model_validate_json(records.model_dump_json(exclude_none=True)) == records


# -- whatever happens -------------------------------------------------------------------------------------------------

TEXTS = ["Which framework?", "What framework should I use?", "Which database?", "Should I continue?"]

questions = st.builds(
    Question,
    question=st.sampled_from(TEXTS),
    clarification_type=st.sampled_from(["missing_info", "approach_choice", "risk_confirmation"]),
    options=st.sampled_from([(), ("Express", "FastAPI"), ("Django",)]),
    allow_free_text=st.just(True),
    default=st.sampled_from([None, "Express"]),
    assignee=st.none(),
    path=st.sampled_from([("lead",), ("lead", "coder"), ("crew", "writer", "helper")]),
    calls=st.just(("c1", "c2", "c3")),
)

rules = st.builds(
    ResolutionOptions, ledger=st.booleans(), unattended=st.booleans(), max_questions_run=st.integers(0, 5)
)


def publish(resolver: AnswerResolver, asked: list[Question]) -> list[QuestionRecord]:
    return asyncio.run(resolver.decide(asked, Moment.AT_DRIVER))


class QuestionsOfARun(RuleBasedStateMachine):
    """A team asks, the human answers, time passes, checkpoints are written: in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.resolver = AnswerResolver(ResolutionOptions(), QuestionRecords())
        self.ended: dict[str, Answer] = {}

    @property
    def records(self) -> QuestionRecords:
        return self.resolver.records

    @rule(rules=rules)
    def begin_another_segment(self, rules: ResolutionOptions) -> None:
        stored = QuestionRecords.model_validate_json(self.records.model_dump_json(exclude_none=True))
        assert stored == self.records
        self.resolver = AnswerResolver(rules, stored)

    @rule(asked=st.lists(questions, min_size=1, max_size=4))
    def ask(self, asked: list[Question]) -> None:
        new = publish(self.resolver, asked)
        assert [each.id for each in new] == list(dict.fromkeys(each.id for each in asked))
        assert publish(self.resolver, asked) == []

    @precondition(lambda self: self.records.open)
    @rule(data=st.data(), outcome=st.sampled_from([Outcome.ANSWERED, Outcome.DECLINED]))
    def answer(self, data: st.DataObject, outcome: Outcome) -> None:
        chosen = data.draw(st.sampled_from(self.records.open))
        self.resolver.close(answer_duplicates([answer(chosen.id, outcome)], self.records))
        assert self.records[chosen.id].is_closed

    @precondition(lambda self: self.records.open)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(self.records.open))
        self.resolver.close([answer(chosen.id, Outcome.CANCELLED, AnsweredBy.POLICY)])

    @precondition(lambda self: self.records.closed)
    @rule(data=st.data(), outcome=st.sampled_from(Outcome))
    def answer_again(self, data: st.DataObject, outcome: Outcome) -> None:
        before, chosen = self.records, data.draw(st.sampled_from(self.records.closed))
        with pytest.raises(IllegalTransition):
            self.resolver.close([answer(chosen.id, outcome)])
        assert self.records == before

    @rule()
    def write_a_checkpoint(self) -> None:
        self.resolver.records = self.records.enter_checkpoint([each.id for each in self.records.open])
        assert not any(each.asked_since_checkpoint for each in self.records)

    @invariant()
    def each_question_is_in_one_place(self) -> None:
        shown, duplicates = self.records.shown, self.records.duplicates
        ids = [*(each.id for each in self.records.closed), *(each.id for each in shown + duplicates)]
        assert sorted(ids) == sorted(each.id for each in self.records)
        assert len(set(ids)) == len(ids) == len(self.records)

    @invariant()
    def a_duplicate_has_an_original_that_is_shown(self) -> None:
        shown = {each.id for each in self.records.shown}
        assert {each.duplicate_of for each in self.records.open if each.id not in shown} <= shown

    @invariant()
    def what_ended_stays_as_it_ended(self) -> None:
        now = {each.question_id: each for each in self.records.answers}
        assert now.items() >= self.ended.items()
        self.ended = now

    @invariant()
    def only_the_human_takes_a_risk(self) -> None:
        risks = [each for each in self.records.closed if each.question.is_risk and each.answer]
        assert all(
            each.answer.by is AnsweredBy.HUMAN or each.answer.outcome in (Outcome.EXPIRED, Outcome.CANCELLED)
            for each in risks
            if each.answer
        )


TestQuestionsOfARun = QuestionsOfARun.TestCase
TestQuestionsOfARun.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@given(asked=st.lists(questions, max_size=12))
@pytest.mark.slow
def test_no_two_shown_questions_share_an_answer(asked: list[Question]) -> None:
    from upcall.policy.duplicates import share_answer

    resolver = AnswerResolver(ResolutionOptions(max_questions_run=100), QuestionRecords())
    publish(resolver, asked)
    shown = resolver.records.shown
    assert not [(a.id, b.id) for i, a in enumerate(shown) for b in shown[:i] if share_answer(a, b)]
