"""What a reply means depends on the stage of the run: a table of replies, read as they come from the human."""

from __future__ import annotations

from typing import Any

import pytest
from tables import rows

from upcall.errors import AnswerRefused
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.matching import match_answers
from upcall.questions.question import ClarificationType, Question
from upcall.questions.reply_intents import (
    APPROVAL_WORDS,
    REJECTION_WORDS,
    SKIP_WORDS,
    ReplyIntent,
    ends_clarification,
    is_dismissed,
    read_verdict,
    unwrap_reply,
)

CLARIFYING = Question(question="Which countries?", path=("clarifier",))
REVIEW = Question(
    question="Do you approve this plan?",
    clarification_type=ClarificationType.RISK_CONFIRMATION,
    options=("Approve", "Reject"),
    path=("planner",),
)
CHOICE = Question(question="Include archives?", options=("Yes", "No", "Continue"), path=("clarifier",))

READ: list[tuple[str, bool, ReplyIntent]] = [
    (reply, means == "skips", verdict)
    for means in ("skips", "answers")
    for verdict in ReplyIntent
    for reply in rows(f"reply_intents/{means}, {verdict}")
]
"""A reply, whether it ends the clarification, and what it says of a plan."""


def wording(reply: Any, question: Question) -> Answer:
    """Return the answer that the human gives with this reply."""
    (answer,) = match_answers(reply, [question])
    return answer


def test_table_is_long_and_has_every_reply_once() -> None:
    replies = [reply for reply, _, _ in READ]
    assert len(replies) == len(set(replies)) >= 60


@pytest.mark.parametrize(("reply", "skips"), [(reply, skips) for reply, skips, _ in READ], ids=repr)
def test_reply_while_clarifying_answers_unless_it_skips(reply: str, skips: bool) -> None:
    """S0-60, S0-61, X6"""
    assert ends_clarification(wording(reply, CLARIFYING)) is skips


@pytest.mark.parametrize(("reply", "expected"), [(reply, expected) for reply, _, expected in READ], ids=repr)
def test_reply_at_plan_review_is_feedback_unless_a_command(reply: str, expected: ReplyIntent) -> None:
    """S0-58 to S0-60, X6"""
    assert read_verdict(wording(reply, REVIEW)) is expected


def test_words_are_those_of_the_seed() -> None:
    """S0-58, S0-59, S0-61"""
    assert {
        "approve",
        "approved",
        "yes",
        "ok",
        "proceed",
        "continue",
        "go ahead",
        "looks good",
        "y",
        "accept",
    } == APPROVAL_WORDS
    assert {"reject", "rejected", "no", "cancel", "stop", "abort", "n"} == REJECTION_WORDS
    assert {"skip", "done", "exit", "quit", "proceed", "continue", "no", "n", ""} == SKIP_WORDS


@pytest.mark.parametrize("reply", ["", " ", "\n\t", "\u00a0", "\u3000\r\n"], ids=repr)
def test_reply_that_is_blank_skips_and_answers_nothing_else(reply: str) -> None:
    """S0-61, X7: it neither approves nor rejects a plan"""
    with pytest.raises(AnswerRefused, match="is empty"):
        wording(reply, REVIEW)
    assert ends_clarification(Answer(question_id="q", text=reply))
    assert read_verdict(Answer(question_id="q", text=reply)) is ReplyIntent.FEEDBACK


@pytest.mark.parametrize("reply", ["Approve", "APPROVE", " approve ", "1", [" 1 "], ["approve", "1"]], ids=repr)
def test_option_to_approve_is_chosen_by_label_or_number(reply: Any) -> None:
    answer = wording(reply, REVIEW)
    assert (answer.selected, read_verdict(answer)) == (("Approve",), ReplyIntent.APPROVED)


@pytest.mark.parametrize("reply", ["Reject", "rEJECT", "2", ["2", "Reject"]], ids=repr)
def test_option_to_reject_is_chosen_by_label_or_number(reply: Any) -> None:
    answer = wording(reply, REVIEW)
    assert (answer.selected, read_verdict(answer)) == (("Reject",), ReplyIntent.REJECTED)


@pytest.mark.parametrize(
    "reply", [["Approve", "but add costs"], ["2", "too long"], ["1", "yes"], ["yes", "no"]], ids=repr
)
def test_option_with_a_remark_is_feedback(reply: list[str]) -> None:
    assert read_verdict(wording(reply, REVIEW)) is ReplyIntent.FEEDBACK


@pytest.mark.parametrize("reply", ["0", "3", 3])
def test_number_that_is_neither_option_is_refused(reply: Any) -> None:
    with pytest.raises(AnswerRefused, match="choose 1 to 2"):
        wording(reply, REVIEW)


def test_both_options_at_once_are_refused() -> None:
    with pytest.raises(AnswerRefused, match="takes one option, not 2"):
        wording(["1", "2"], REVIEW)


@pytest.mark.parametrize("reply", ["no", "NO", "2", "continue", "3", "yes"])
def test_option_that_resembles_a_skip_word_is_an_answer(reply: str) -> None:
    """X6"""
    answer = wording(reply, CHOICE)
    assert answer.selected
    assert not ends_clarification(answer)


@pytest.mark.parametrize("reply", ["skip", "no.", "n", "proceed", '{"query": "no"}'])
def test_skip_word_that_is_no_option_skips_beside_options(reply: str) -> None:
    assert ends_clarification(wording(reply, CHOICE))


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.ANSWERED])
@pytest.mark.parametrize("text", ["", "yes", "Approve"])
def test_reply_without_an_answer_ends_clarification_without_approval(outcome: Outcome, text: str) -> None:
    """X7"""
    answer = Answer(question_id="q", outcome=outcome, text=text)
    assert ends_clarification(answer) is (not text or outcome is not Outcome.ASSUMED)  # More may have to be assumed.
    assert read_verdict(answer) is ReplyIntent.REJECTED


def test_no_answer_at_all_ends_the_clarification_and_rejects() -> None:
    """X7"""
    assert ends_clarification(None)
    assert read_verdict(None) is ReplyIntent.REJECTED


@pytest.mark.parametrize("reply", rows("reply_intents/leaves it to the agent"), ids=repr)
def test_reply_leaving_it_to_the_agent_dismisses_the_question(reply: str) -> None:
    assert is_dismissed(wording(reply, CLARIFYING))


@pytest.mark.parametrize("reply", rows("reply_intents/is an answer"), ids=repr)
def test_reply_that_adds_or_denies_is_an_answer(reply: str) -> None:
    assert not is_dismissed(wording(reply, CLARIFYING))


@pytest.mark.parametrize(("reply", "dismisses"), [("2", True), ("skip it", False), ("Continue", False)])
def test_option_dismisses_where_its_label_says_so(reply: str, dismisses: bool) -> None:
    choice = Question(question="Which tone?", options=("Formal", "No preference", "Continue"), path=("clarifier",))
    assert is_dismissed(wording(reply, choice)) is dismisses


@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("by", list(AnsweredBy))
def test_only_the_human_dismisses(outcome: Outcome, by: AnsweredBy) -> None:
    answer = Answer(question_id="q", outcome=outcome, by=by, text="whatever")
    by_human = outcome in (Outcome.ANSWERED, Outcome.SKIPPED, Outcome.DECLINED)
    assert is_dismissed(answer) is (by is AnsweredBy.HUMAN and by_human)


@pytest.mark.parametrize("by", list(AnsweredBy))
@pytest.mark.parametrize("text", ["Approve", "yes", "ok"])
def test_only_the_human_approves(by: AnsweredBy, text: str) -> None:
    """X7"""
    answer = Answer(question_id="q", text=text, by=by)
    assert (read_verdict(answer) is ReplyIntent.APPROVED) == (by is AnsweredBy.HUMAN)


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("  a b ", "a b"),
        ('{"query": " a b "}', "a b"),
        ('\n{"query": "x"}\n', "x"),
        ('{"query": 5}', '{"query": 5}'),
        ("[" * 100_000, "[" * 100_000),
        ("9" * 10_000, "9" * 10_000),
    ],
    ids=["bare", "wrapped", "wrapped with blanks", "a number in it", "deep", "long number"],
)
def test_reply_that_is_wrapped_is_unwrapped_others_are_trimmed(reply: str, text: str) -> None:
    """S0-60"""
    assert unwrap_reply(reply) == text
