"""Which answer belongs to which question, and what a question accepts (DESIGN: Question and Answer)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from upcall.autogen.messages import answer_message, message_answers
from upcall.errors import AlreadyAnswered, AnswerError, AnswerRefused, UnknownQuestion
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.choices import OwnWords, read_numbers
from upcall.questions.matching import MAX_ANSWER_CHARS, AnswerValue, match_answers, parse_answer
from upcall.questions.question import Question

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


def question(question_id: str = "aaaa1111", options: Any = ("Express", "FastAPI"), **fields: Any) -> Question:
    return Question(id=question_id, question="Which framework?", options=options, **fields)


def whole(question_id: str = "aaaa1111", **fields: Any) -> Answer:
    return Answer(question_id=question_id, **fields)


OPEN = question()
TWO = [question("aaaa1111"), question("bbbb2222")]
FREE = question(options=())
CLOSED = question(allow_free_text=False)
SIZES = question(options=("4", "8", "16"))
SEVERAL = question(options=("Tests", "Docs", "Types"), multi_select=True)
ONLY_THESE = question(options=("Tests", "Docs"), multi_select=True, allow_free_text=False)
WITH_IDS = question(options=["Express", {"label": "FastAPI", "id": "fa"}], allow_free_text=False)
CROSSED = question(options=[{"label": "Keep", "id": "2"}, {"label": "Delete", "id": "1"}])
RISK = question(options=("Delete", "Keep"), clarification_type="risk_confirmation", allow_free_text=False)
EARLIER = whole("eeee9999", text="Express", selected=("Express",), user="alice", answered_at=NOON)


# -- which question ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turn", [1, -1], ids=["in order", "in reverse"])
def test_answers_are_matched_by_id_and_never_by_order(turn: int) -> None:
    given = dict([("aaaa1111", "mine"), ("bbbb2222", "yours")][::turn])
    matched = match_answers(given, TWO[::-1])
    assert {answer.question_id: answer.text for answer in matched} == {"aaaa1111": "mine", "bbbb2222": "yours"}


@pytest.mark.parametrize(
    ("given", "asked", "answered"),
    [
        ("Use Express", [FREE], ["aaaa1111"]),
        ({}, TWO, []),
        ({"bbbb2222": "Express"}, TWO, ["bbbb2222"]),
        ({"aaaa": "Express"}, TWO, ["aaaa1111"]),
        ({"aaaa": "Express"}, [question("aaaa"), question("aaaa2222")], ["aaaa"]),
        (whole("bbbb2222", text="x"), TWO, ["bbbb2222"]),
        ({"aaaa1111": whole("", outcome=Outcome.DECLINED)}, [CLOSED], ["aaaa1111"]),
        (whole("", outcome=Outcome.DECLINED), [CLOSED], ["aaaa1111"]),
        ({"aaaa1111": "1", "aaaa": "express"}, [OPEN], ["aaaa1111"]),
        ("2. yes", [FREE, question("bbbb2222")], ["bbbb2222"]),
    ],
    ids=["one", "none", "some", "prefix", "whole id", "named", "no id", "no id, alone", "one twice", "numbered"],
)
def test_answer_finds_its_question_and_others_stay_open(given: Any, asked: list[Question], answered: list[str]) -> None:
    assert [answer.question_id for answer in match_answers(given, asked)] == answered


@pytest.mark.parametrize(
    ("given", "asked", "expected"),
    [
        ("Express", TWO, r"2 questions are open.*aaaa1111, bbbb2222"),
        ("Express", [], "No question is open"),
        ({"cccc3333": "x"}, TWO, r"'cccc3333'.*aaaa1111, bbbb2222"),
        ({"aaaa1111": "Express", "cccc3333": "x"}, [OPEN], "cccc3333"),
        ({None: "Express"}, [OPEN], "None.*aaaa1111"),
        *[({prefix: "x"}, [OPEN, question("aaaa2222")], "aaaa1111, aaaa2222") for prefix in ("", "a", "aaa", "aaaa")],
        ({"aaaa1111": "Express", "aaaa": "FastAPI"}, [OPEN], "two different answers"),
    ],
)
def test_answer_to_no_open_question_is_refused_with_ids(given: Any, asked: list[Question], expected: str) -> None:
    with pytest.raises(AnswerError, match=expected) as refused:
        match_answers(given, asked)
    if isinstance(refused.value, UnknownQuestion):
        assert refused.value.open_ids == tuple(each.id for each in asked)


@pytest.mark.parametrize("outcome", [Outcome.ANSWERED, Outcome.DECLINED])
@pytest.mark.parametrize("mapped", [True, False], ids=["under another id", "alone"])
def test_answer_to_one_question_never_answers_another(outcome: Outcome, mapped: bool) -> None:
    """Authority: an answer to one question cannot approve another"""
    other = whole("bbbb2222", text="Delete", outcome=outcome)
    with pytest.raises(AnswerError, match="bbbb2222"):
        match_answers({RISK.id: other} if mapped else other, [RISK])


# -- twice ------------------------------------------------------------------------------------------------------------

CHOSEN = parse_answer(SEVERAL, "Tests, Docs")


@pytest.mark.parametrize(
    ("again", "earlier"),
    [
        *[
            (each, EARLIER)
            for each in ("Express", " express ", ["EXPRESS"], whole("eeee9999", text="express"), EARLIER)
        ],
        *[(each, CHOSEN) for each in ("Tests, Docs", "docs,tests", ["Docs", "Tests"])],
        *[
            (whole(outcome=each, user="bob"), parse_answer(question(required=False), whole(outcome=each)))
            for each in (Outcome.SKIPPED, Outcome.DECLINED)
        ],
    ],
)
def test_same_answer_twice_is_harmless(again: AnswerValue, earlier: Answer) -> None:
    """In any case and order, as a text or whole; a refusal too."""
    assert match_answers({earlier.question_id: again}, [], [earlier]) == []


@pytest.mark.parametrize("again", ["FastAPI", "Express, FastAPI", "", [], whole("eeee9999", outcome=Outcome.DECLINED)])
def test_answer_that_differs_is_refused_with_the_first_answerer(again: AnswerValue) -> None:
    with pytest.raises(AlreadyAnswered, match=r"eeee9999.*alice at 2026-01-02T12:00:00.*'Express'"):
        match_answers({"eeee9999": again, "aaaa1111": "Express"}, [OPEN], [EARLIER])


@pytest.mark.parametrize(
    ("again", "earlier", "expected"),
    [
        ("yes", whole(outcome=Outcome.DECLINED), r"by human at .*'declined'"),
        ("B, not A", parse_answer(FREE, "not A, B"), "not A, B"),
    ],
    ids=["declined before", "other order of words"],
)
def test_what_was_answered_otherwise_stays(again: str, earlier: Answer, expected: str) -> None:
    with pytest.raises(AlreadyAnswered, match=expected):
        match_answers({"aaaa1111": again}, [], [earlier])


# -- what a question accepts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "given", "text", "selected"),
    [
        *[
            pytest.param(WITH_IDS, each, "FastAPI", ("FastAPI",), id=f"S1-32 {each!r}")
            for each in ("FastAPI", "  FASTAPI ", "2", "fa", ["2"], ["FastAPI", "fa"])
        ],
        *[(question(options=("3", "1", "2")), each, each, (each,)) for each in "123"],
        (CROSSED, "1", "Keep", ("Keep",)),
        (OPEN, " Use Express, version 5 ", "Use Express, version 5", ()),
        pytest.param(FREE, "skip", "skip", (), id="X6 never interpreted"),
        (OPEN, whole(selected=("Express",), text="but version 5"), "Express, but version 5", ("Express",)),
        *[
            (SEVERAL, each, "Tests, Types", ("Tests", "Types"))
            for each in ("Tests, Types", "1,3", ["tests", "3"], ["Tests", "1", "Types"], " 1 , types,")
        ],
        (SEVERAL, ["2", "and a changelog"], "Docs, and a changelog", ("Docs",)),
        (question(options=("Yes, all", "No"), multi_select=True), "yes, all", "Yes, all", ("Yes, all",)),
        (CLOSED, 2, "FastAPI", ("FastAPI",)),
        (CLOSED, [2], "FastAPI", ("FastAPI",)),
        (FREE, 8080, "8080", ()),
        (SIZES, OwnWords(" 2 "), "2", ()),
        (SIZES, OwnWords("2, 3"), "2, 3", ()),
        (SIZES, OwnWords("8"), "8", ("8",)),
        (question(options=("4", "8"), multi_select=True), OwnWords("2"), "2", ()),
        (FREE, "x" * MAX_ANSWER_CHARS, "x" * MAX_ANSWER_CHARS, ()),
    ],
    ids=lambda value: repr(value)[:20] if not isinstance(value, Question) else "",
)
def test_answer_is_read_by_its_question(
    asked: Question, given: AnswerValue, text: str, selected: tuple[str, ...]
) -> None:
    """By label in any case, number as shown, or id; own words stay as they are."""
    answer = parse_answer(asked, given)
    assert (answer.text, answer.selected, answer.outcome) == (text, selected, Outcome.ANSWERED)


CITIES = question(options=("Paris, Texas", "Rome", "Paris", "Texas"), multi_select=True)
RULES = question(options=("Yes, always", "No", "Ask, then do", 'Say "no", or "yes"'), multi_select=True)
CLOSED_RULES = RULES.model_copy(update={"allow_free_text": False})


@pytest.mark.parametrize(
    ("asked", "given", "selected", "text"),
    [
        (CITIES, ["Paris, Texas", "Rome"], ("Paris, Texas", "Rome"), '"Paris, Texas", "Rome"'),
        (CITIES, ["Paris", "Texas", "Rome"], ("Paris", "Texas", "Rome"), '"Paris", "Texas", "Rome"'),
        (CITIES, ["Paris", "Texas"], ("Paris", "Texas"), '"Paris", "Texas"'),
        (CITIES, ["Paris, Texas"], ("Paris, Texas",), "Paris, Texas"),
        (CITIES, "paris,texas", ("Paris, Texas",), "Paris, Texas"),
        (CITIES, "Paris, Texas, Rome", ("Paris, Texas", "Rome"), '"Paris, Texas", "Rome"'),
        (CITIES, "Texas, Paris, Rome", ("Texas", "Paris", "Rome"), '"Texas", "Paris", "Rome"'),
        (CITIES, 'Rome, "Paris", "Texas"', ("Rome", "Paris", "Texas"), '"Rome", "Paris", "Texas"'),
        (CITIES, '["Paris", "Texas"]', ("Paris", "Texas"), '"Paris", "Texas"'),
        (CITIES, "1, 2", ("Paris, Texas", "Rome"), '"Paris, Texas", "Rome"'),
        (CITIES, "1; Rome", ("Paris, Texas", "Rome"), '"Paris, Texas", "Rome"'),
        (CITIES, ["Rome", "near the sea, if it can be"], ("Rome",), "Rome, near the sea, if it can be"),
        (CITIES, "Rome, or near it", (), "Rome, or near it"),
        *[
            (asked, each, ("Yes, always", "Ask, then do"), '"Yes, always", "Ask, then do"')
            for asked in (RULES, CLOSED_RULES)
            for each in (
                "Yes, always, Ask, then do",
                "YES,ALWAYS; ask , then do",
                "Yes, always\nAsk, then do",
                "1, 3",
                [1, "Ask, then do"],
                '["Yes, always", 3]',
            )
        ],
        (RULES, 'No, Say "no", or "yes"', ("No", 'Say "no", or "yes"'), '"No", "Say ""no"", or ""yes"""'),
        (SEVERAL, "Tests; Types", ("Tests", "Types"), "Tests, Types"),
    ],
    ids=lambda value: repr(value)[:30] if not isinstance(value, Question) else "",
)
def test_choices_with_commas_in_their_labels_stay_apart(
    asked: Question, given: AnswerValue, selected: tuple[str, ...], text: str
) -> None:
    answer = parse_answer(asked, given)
    assert (answer.selected, answer.text) == (selected, text)
    assert parse_answer(asked, answer).is_equivalent(answer)
    assert text.endswith("can be") or parse_answer(asked, text).is_equivalent(answer)


@pytest.mark.parametrize(("first", "again"), [("Paris, Texas", ["Paris", "Texas"]), (["Paris", "Texas"], "1")])
def test_choices_whose_texts_look_alike_are_two_answers(first: AnswerValue, again: AnswerValue) -> None:
    answer = parse_answer(CITIES, first)
    with pytest.raises(AlreadyAnswered):
        match_answers({"aaaa1111": again}, [], [answer], closed=[CITIES])
    assert match_answers({"aaaa1111": [*reversed(answer.selected)]}, [], [answer], closed=[CITIES]) == []


def test_choices_of_many_commas_are_read_at_once() -> None:
    asked = question(options=("a", "a, a", "a, a, a"), multi_select=True)
    assert parse_answer(asked, "a, " * 20_000 + "b").selected == ()
    assert parse_answer(asked, ", ".join("a" * 20_000)).selected[0] == "a, a, a"


BAD = r"is not an option of aaaa1111. Options: 1. Express, 2. FastAPI\.$"
SKIPPED = whole(outcome=Outcome.SKIPPED)
TOO_LONG = r"has 10,000,000 characters; at most 100,000 are taken"


@pytest.mark.parametrize(
    ("asked", "given", "expected"),
    [
        *[(CLOSED, each, BAD) for each in ("-1", "²", "1.0", "Expres", "x" * 100_000)],
        (CLOSED, whole(selected=("Express",), text="but version 5"), "'but version 5' is not an option"),
        (CLOSED, OwnWords("2"), "not an option"),
        *[(each, ["Express", "FastAPI"], "takes one option, not 2") for each in (OPEN, CLOSED)],
        *[(ONLY_THESE, each, "is not an option") for each in ("Tests, Perf", ["Tests", "Perf"])],
        *[
            (asked, empty, "is empty")
            for asked in (FREE, CLOSED, SEVERAL)
            for empty in ("", " \n", [], ["", " "], whole(), whole(text=" "))
        ],
        *[
            (OPEN, each, "give text, a number, a list of them, or an Answer")
            for each in (True, None, 1.5, [True], range(3), {"text": "Express"}, b"Express")
        ],
        (FREE, "\udcff", "UTF-8"),
        *[
            (asked, beyond, r"There is no option .*: choose 1 to 2")
            for asked in (OPEN, CLOSED)
            for beyond in ("0", "3", "7", 7, "9" * 5_000, "option 7", "Option 0", "#3", "7.")
        ],
        (FREE, "x" * 10_000_000, TOO_LONG),
        (FREE, whole(outcome=Outcome.DECLINED, text="x" * 10_000_000), TOO_LONG),
        (OPEN, SKIPPED, "required and cannot be skipped"),
        (question(clarification_type="risk_confirmation", required=False), SKIPPED, "cannot be skipped"),
        *[
            (FREE, whole(outcome=each, text="Express"), f"'{each.value}' cannot be given")
            for each in (Outcome.EXPIRED, Outcome.CANCELLED, Outcome.ASSUMED)
        ],
    ],
    ids=lambda value: repr(value)[:20] if not isinstance(value, Question) else "",
)
def test_answer_not_accepted_is_refused_in_a_short_line(asked: Question, given: Any, expected: str) -> None:
    with pytest.raises(AnswerRefused, match=expected) as refused:
        parse_answer(asked, given)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("typed", ["2", "Option 2", "option2", "#2", "2.", "2)"])
def test_number_of_an_option_is_read_in_common_spellings(typed: str) -> None:
    assert parse_answer(OPEN, read_numbers(OPEN, typed)).selected == (OPEN.options[1].label,)


def test_in_quotes_a_number_is_typed_as_itself() -> None:
    assert [parse_answer(SIZES, read_numbers(SIZES, typed)).text for typed in ("2", '"2"', '"3"')] == ["8", "2", "3"]


def test_answer_that_was_read_reads_the_same_again() -> None:
    once = parse_answer(SEVERAL, "1, 3")
    assert parse_answer(SEVERAL, once).is_equivalent(once)


def test_own_words_repeated_are_the_same_answer_when_closed() -> None:
    answer = parse_answer(SIZES, OwnWords("2"))
    assert match_answers({"aaaa1111": OwnWords("2")}, (), [answer], closed=[SIZES]) == []


def test_what_is_not_required_can_be_skipped() -> None:
    assert parse_answer(question(required=False), whole(outcome=Outcome.SKIPPED)).outcome is Outcome.SKIPPED


@pytest.mark.parametrize("asked", [FREE, CLOSED, RISK], ids=["free", "closed", "risk"])
def test_everything_can_be_declined_with_a_reason(asked: Question) -> None:
    answer = parse_answer(asked, whole(outcome=Outcome.DECLINED, text=" none of these "))
    assert (answer.outcome, answer.text) == (Outcome.DECLINED, "none of these")


def test_model_may_give_options_as_numbers() -> None:
    assert [option.label for option in question(options=[8080, {"label": 3000}]).options] == ["8080", "3000"]


# -- authority --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [each for each in AnsweredBy if each is not AnsweredBy.HUMAN])
@pytest.mark.parametrize("outcome", [Outcome.ANSWERED, Outcome.SKIPPED, Outcome.DECLINED])
def test_answer_of_any_shape_is_the_known_answering_human(by: AnsweredBy, outcome: Outcome) -> None:
    claimed = whole(by=by, outcome=outcome, text="Express", user="mallory", answered_at=NOON)
    asked = question(required=False)
    for answer in (parse_answer(asked, claimed, "alice"), *match_answers({asked.id: claimed}, [asked], user="alice")):
        assert (answer.by, answer.user, answer.answered_at != NOON) == (AnsweredBy.HUMAN, "alice", True)


def test_secret_answer_reaches_its_asker_and_not_the_group() -> None:
    asked = Question(id="aaaa1111", question="Which password?", secret=True)
    message = answer_message([whole(text="hunter2")], target="lead", questions=[asked])
    assert "hunter2" not in message.content
    assert message_answers(message)[0].text == "hunter2"


# -- one reply to several questions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", ["1. Express; 2. yes", "2) yes\n1) Express", " 1: Express ；2: yes"], ids=repr)
def test_numbered_reply_answers_several_questions(reply: str) -> None:
    matched = match_answers(reply, [question("bbbb2222"), question("aaaa1111", options=())])
    assert {answer.question_id: answer.text for answer in matched} == {"bbbb2222": "Express", "aaaa1111": "yes"}


@pytest.mark.parametrize(
    "reply", ["1. Express; 3. yes", "0. a; 1. b", "1. a; 1. b", "yes", "1", "Express, then 2. yes"], ids=repr
)
def test_reply_that_fits_any_question_is_refused_with_advice(reply: str) -> None:
    with pytest.raises(AnswerRefused, match=r"'1\. Express; 2\. yes'.*aaaa1111, bbbb2222"):
        match_answers(reply, TWO)


def aspect(question_id: str, **fields: Any) -> Question:
    return question(question_id, **{"options": (), "path": ("planner",), **fields})


def test_sentence_answers_aspects_one_agent_asks_together() -> None:
    """S3-38"""
    reply = "Renewable energy, recent advancements in solar technology"
    matched = match_answers(reply, [aspect("aaaa1111"), aspect("bbbb2222", options=("summary", "report"))])
    assert [answer.text for answer in matched] == [reply, reply]


@pytest.mark.parametrize(
    "other",
    [
        {"path": ("clarifier",)},
        {"calls": ("call_1",)},
        {"secret": True},
        {"clarification_type": "risk_confirmation"},
        {"options": ("solar", "wind")},
        {"options": ("a", "b"), "allow_free_text": False},
        {"assignee": "bob"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_sentence_does_not_answer_all_where_that_guesses(other: dict[str, Any]) -> None:
    with pytest.raises(AnswerRefused, match="2 questions are open"):
        match_answers("solar", [aspect("aaaa1111"), aspect("bbbb2222", **other)])
