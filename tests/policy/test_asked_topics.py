"""What a topic weighs by how its user answered it before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upcall.agents.asking import AskVerdict, Memory, PolicyChain, Proposal, Weights
from upcall.options import AskFor
from upcall.questions.question import Detail
from upcall.runs.asked_topics import LEAST, MIN_DISMISSED, MIN_DISMISSED_HIGH, AskedTopic
from upcall.runs.outputs import Candidate, ClarificationResponse, KnownFrom, Weight

COUNTS = st.integers(0, 60)
POLICIES = st.sampled_from(["essential", "preferences"])


def topic(answered: int, dismissed: int, detail: Detail = Detail.LEVEL) -> AskedTopic:
    return AskedTopic(detail=detail, asked=answered + dismissed, dismissed=dismissed)


def weight_of(spoils: Weight, ask: AskFor, *topics: AskedTopic) -> float:
    candidate = Candidate(detail=Detail.LEVEL, question="Which level?", known_from=KnownFrom.USER, weight=spoils)
    reply = ClarificationResponse(candidates=(candidate,), needs_clarification=True)
    policy = PolicyChain(Weights(ask, checks_quotes=True), Memory(topics))
    (weighed,) = policy.weigh(Proposal.of("Teach me Go", reply, AskVerdict(), 0.5)).candidates
    return weighed.weight


@pytest.mark.parametrize(
    ("answered", "dismissed", "factor"),
    [(0, 0, 1.0), (0, 1, 1.0), (0, 2, 0.5), (0, 3, 0.4), (1, 3, 2 / 3), (3, 3, 1.0), (9, 2, 1.0), (0, 50, LEAST)],
)
def test_topic_weighs_twice_the_chance_of_an_answer(answered: int, dismissed: int, factor: float) -> None:
    assert topic(answered, dismissed).factor() == pytest.approx(factor)


@given(answered=st.integers(0, 3), dismissed=st.integers(0, MIN_DISMISSED_HIGH - 1), ask=POLICIES)
def test_essential_question_keeps_its_weight_until_three_dismissals(answered: int, dismissed: int, ask: AskFor) -> None:
    assert weight_of(Weight.HIGH, ask, topic(answered, dismissed)) == weight_of(Weight.HIGH, ask)


@given(answered=COUNTS, dismissed=COUNTS, spoils=st.sampled_from(Weight), ask=POLICIES)
def test_memory_only_lowers_and_never_to_nothing(answered: int, dismissed: int, spoils: Weight, ask: AskFor) -> None:
    alone, remembered = weight_of(spoils, ask), weight_of(spoils, ask, topic(answered, dismissed))
    assert LEAST * alone <= remembered <= alone
    assert remembered == alone or dismissed >= MIN_DISMISSED


@given(answered=COUNTS, dismissed=COUNTS)
def test_weight_never_falls_with_answers_nor_rises_with_dismissals(answered: int, dismissed: int) -> None:
    now = topic(answered, dismissed).factor()
    assert topic(answered, dismissed + 1).factor() <= now <= topic(answered + 1, dismissed).factor()


def test_dismissals_silence_middling_questions_sooner_than_essential_ones() -> None:
    assert weight_of(Weight.MEDIUM, "essential", topic(0, 2)) < 0.5
    assert weight_of(Weight.HIGH, "essential", topic(0, 2)) == 1
    assert weight_of(Weight.HIGH, "essential", topic(0, 3)) < 0.5


def test_another_topic_says_nothing_of_this_one() -> None:
    assert weight_of(Weight.MEDIUM, "essential", topic(0, 9, Detail.PERIOD)) == weight_of(Weight.MEDIUM, "essential")
