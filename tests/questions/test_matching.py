"""Which answer belongs to which question, and what a question accepts (DESIGN: Question and Answer)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from upcall.autogen.messages import answer_message, message_answers
from upcall.errors import AlreadyAnswered, AnswerError, AnswerRefused, UnknownQuestion
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.matching import MAX_ANSWER_CHARS, AnswerValue, OwnWords, match_answers, parse_answer, read_numbers
from upcall.questions.question import Question

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


def question(question_id: str = "aaaa1111", options: Any = ("Express", "FastAPI"), **fields: Any) -> Question:
    return Question(id=question_id, question="Which framework?", options=options, **fields)


FREE = question(options=())
CLOSED = question(allow_free_text=False)
SEVERAL = question(options=("Tests", "Docs", "Types"), multi_select=True)
RISK = question(options=("Delete", "Keep"), clarification_type="risk_confirmation", allow_free_text=False)
EARLIER = Answer(question_id="eeee9999", text="Express", selected=("Express",), user="alice", answered_at=NOON)


def whole(**fields: Any) -> Answer:
    return Answer(**{"question_id": "aaaa1111", **fields})


# -- which question ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turn", [1, -1], ids=["in order", "in reverse"])
def test_answers_are_matched_by_id_and_never_by_order(turn: int) -> None:
    given = dict([("aaaa1111", "mine"), ("bbbb2222", "yours")][::turn])
    matched = match_answers(given, [question("bbbb2222"), question("aaaa1111")])
    assert {answer.question_id: answer.text for answer in matched} == {"aaaa1111": "mine", "bbbb2222": "yours"}


def test_one_value_answers_the_one_open_question() -> None:
    assert match_answers("Use Express", [FREE])[0].question_id == FREE.id


def test_one_value_with_several_open_questions_is_refused_with_their_ids() -> None:
    with pytest.raises(AnswerRefused, match=r"2 questions are open.*aaaa1111, bbbb2222"):
        match_answers("Express", [question("aaaa1111"), question("bbbb2222")])


def test_one_value_with_no_open_question_is_refused() -> None:
    with pytest.raises(AnswerRefused, match="No question is open"):
        match_answers("Express", [])


def test_an_unknown_id_is_refused_with_the_open_ids() -> None:
    with pytest.raises(UnknownQuestion, match=r"'cccc3333'.*aaaa1111, bbbb2222") as refused:
        match_answers({"cccc3333": "x"}, [question("aaaa1111"), question("bbbb2222")])
    assert refused.value.open_ids == ("aaaa1111", "bbbb2222")


def test_one_unknown_id_refuses_the_known_ones_with_it() -> None:
    with pytest.raises(UnknownQuestion):
        match_answers({"aaaa1111": "Express", "cccc3333": "x"}, [question()])


def test_what_is_not_answered_stays_open() -> None:
    matched = match_answers({"bbbb2222": "Express"}, [question("aaaa1111"), question("bbbb2222")])
    assert [answer.question_id for answer in matched] == ["bbbb2222"]


def test_no_answers_are_no_error() -> None:
    assert match_answers({}, [question()]) == []


def test_the_first_four_characters_of_an_id_are_enough() -> None:
    matched = match_answers({"aaaa": "Express"}, [question("aaaa1111"), question("bbbb2222")])
    assert matched[0].question_id == "aaaa1111"


@pytest.mark.parametrize("prefix", ["", "a", "aaa", "aaaa"], ids=repr)
def test_a_prefix_that_is_short_or_fits_two_ids_names_neither(prefix: str) -> None:
    with pytest.raises(UnknownQuestion, match=r"aaaa1111, aaaa2222"):
        match_answers({prefix: "Express"}, [question("aaaa1111"), question("aaaa2222")])


def test_a_whole_id_wins_over_longer_ones() -> None:
    matched = match_answers({"aaaa": "Express"}, [question("aaaa"), question("aaaa2222")])
    assert matched[0].question_id == "aaaa"


def test_an_answer_that_names_its_question_is_matched_by_that_name() -> None:
    matched = match_answers(whole(question_id="bbbb2222", text="x"), [question("aaaa1111"), question("bbbb2222")])
    assert matched[0].question_id == "bbbb2222"


@pytest.mark.parametrize("outcome", [Outcome.ANSWERED, Outcome.DECLINED])
@pytest.mark.parametrize("mapped", [True, False], ids=["under another id", "alone"])
def test_an_answer_to_one_question_never_answers_another(outcome: Outcome, mapped: bool) -> None:
    """Authority: an answer to one question cannot approve another"""
    other = whole(question_id="bbbb2222", text="Delete", outcome=outcome)
    with pytest.raises(AnswerError, match="bbbb2222"):
        match_answers({RISK.id: other} if mapped else other, [RISK])


def test_an_answer_without_an_id_is_for_the_question_it_is_given_to() -> None:
    declined = whole(question_id="", outcome=Outcome.DECLINED)
    assert match_answers({"aaaa1111": declined}, [CLOSED])[0].question_id == "aaaa1111"
    assert match_answers(declined, [CLOSED])[0].question_id == "aaaa1111"


# -- twice ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "again",
    ["Express", " express ", ["EXPRESS"], Answer(question_id="eeee9999", text="express"), EARLIER],
    ids=["the same", "any case", "as a list", "a whole answer", "the recorded one"],
)
def test_the_same_answer_twice_is_harmless(again: AnswerValue) -> None:
    assert match_answers({"eeee9999": again}, [], [EARLIER]) == []


@pytest.mark.parametrize("again", ["Tests, Docs", "docs,tests", ["Docs", "Tests"]], ids=repr)
def test_the_same_choices_in_another_order_are_the_same_answer(again: AnswerValue) -> None:
    earlier = parse_answer(SEVERAL, "Tests, Docs")
    assert match_answers({SEVERAL.id: again}, [], [earlier]) == []


def test_the_same_words_in_another_order_are_another_answer() -> None:
    with pytest.raises(AlreadyAnswered):
        match_answers({FREE.id: "B, not A"}, [], [parse_answer(FREE, "not A, B")])


@pytest.mark.parametrize("outcome", [Outcome.SKIPPED, Outcome.DECLINED], ids=["skipped twice", "declined twice"])
def test_the_same_refusal_twice_is_harmless(outcome: Outcome) -> None:
    earlier = parse_answer(question(required=False), whole(outcome=outcome))
    assert match_answers(whole(outcome=outcome, user="bob"), [], [earlier]) == []


@pytest.mark.parametrize(
    "again",
    ["FastAPI", "Express, FastAPI", "", [], Answer(question_id="eeee9999", outcome=Outcome.DECLINED)],
    ids=["another", "two", "empty", "none", "declined"],
)
def test_a_different_second_answer_is_refused_and_says_who_answered_what_and_when(again: AnswerValue) -> None:
    with pytest.raises(AlreadyAnswered, match=r"eeee9999.*alice at 2026-01-02T12:00:00.*'Express'"):
        match_answers({"eeee9999": again}, [], [EARLIER])


def test_a_second_answer_to_a_declined_question_says_that_it_was_declined() -> None:
    earlier = whole(question_id="eeee9999", outcome=Outcome.DECLINED)
    with pytest.raises(AlreadyAnswered, match=r"by human at .*'declined'"):
        match_answers({"eeee9999": "yes"}, [], [earlier])


def test_a_refused_second_answer_refuses_the_new_one_with_it() -> None:
    with pytest.raises(AlreadyAnswered):
        match_answers({"aaaa1111": "Express", "eeee9999": "FastAPI"}, [question()], [EARLIER])


def test_one_question_named_twice_at_once_must_be_answered_the_same() -> None:
    assert len(match_answers({"aaaa1111": "1", "aaaa": "express"}, [question()])) == 1
    with pytest.raises(AnswerRefused, match="two different answers"):
        match_answers({"aaaa1111": "Express", "aaaa": "FastAPI"}, [question()])


# -- which option -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["FastAPI", "fastapi", "  FASTAPI ", "2", "fa", ["2"], ["FastAPI", "fa"]], ids=repr)
def test_an_option_is_named_by_label_in_any_case_number_or_id(named: AnswerValue) -> None:
    """S1-32"""
    asked = question(options=["Express", {"label": "FastAPI", "id": "fa"}], allow_free_text=False)
    answer = parse_answer(asked, named)
    assert (answer.text, answer.selected) == ("FastAPI", ("FastAPI",))


@pytest.mark.parametrize(("named", "chosen"), [("1", "1"), ("2", "2"), ("3", "3")])
def test_a_label_that_is_a_number_names_that_option(named: str, chosen: str) -> None:
    assert parse_answer(question(options=("3", "1", "2")), named).text == chosen


@pytest.mark.parametrize("several", [False, True])
def test_a_number_in_own_words_is_that_number_and_no_option(several: bool) -> None:
    asked = question(options=("4", "8", "16"), multi_select=several)
    answer = parse_answer(asked, OwnWords(" 2 "))
    assert (answer.text, answer.selected) == ("2", ())
    assert match_answers({"aaaa1111": OwnWords("2")}, (), [answer], closed=[asked]) == []
    assert parse_answer(asked, OwnWords("2, 3")).selected == ()
    assert parse_answer(asked, OwnWords("8")).selected == ("8",)
    with pytest.raises(AnswerRefused, match="not an option"):
        parse_answer(CLOSED, OwnWords("2"))


def test_in_quotes_a_number_is_typed_as_itself() -> None:
    asked = question(options=("4", "8"))
    assert [parse_answer(asked, read_numbers(asked, typed)).text for typed in ("2", '"2"', '"3"')] == ["8", "2", "3"]


def test_the_number_that_is_shown_wins_over_an_id_that_is_not() -> None:
    asked = question(options=[{"label": "Keep", "id": "2"}, {"label": "Delete", "id": "1"}])
    assert parse_answer(asked, "1").text == "Keep"


@pytest.mark.parametrize("wrong", ["-1", "²", "1.0", "Expres"])
def test_where_only_options_count_anything_else_is_refused_and_they_are_listed(wrong: str) -> None:
    with pytest.raises(AnswerRefused, match=r"is not an option of aaaa1111. Options: 1. Express, 2. FastAPI\.$"):
        parse_answer(CLOSED, wrong)


def test_a_refusal_does_not_repeat_a_whole_book() -> None:
    with pytest.raises(AnswerRefused) as refused:
        parse_answer(CLOSED, "x" * 100_000)
    assert len(str(refused.value)) < 300


def test_own_words_are_an_answer_where_they_are_allowed() -> None:
    answer = parse_answer(question(), " Use Express, version 5 ")
    assert (answer.text, answer.selected) == ("Use Express, version 5", ())


def test_an_answer_to_an_ordinary_question_is_never_interpreted() -> None:
    """X6"""
    assert parse_answer(FREE, "skip").text == "skip"
    assert parse_answer(FREE, "skip").outcome is Outcome.ANSWERED


def test_own_words_beside_an_option_are_kept() -> None:
    answer = parse_answer(question(), whole(selected=("Express",), text="but version 5"))
    assert (answer.text, answer.selected) == ("Express, but version 5", ("Express",))


def test_own_words_beside_an_option_are_refused_where_only_options_count() -> None:
    with pytest.raises(AnswerRefused, match="'but version 5' is not an option"):
        parse_answer(CLOSED, whole(selected=("Express",), text="but version 5"))


def test_an_answer_that_was_read_reads_the_same_again() -> None:
    once = parse_answer(SEVERAL, "1, 3")
    assert parse_answer(SEVERAL, once).says_the_same(once)


@pytest.mark.parametrize("named", ["Tests, Types", "1,3", ["tests", "3"], ["Tests", "1", "Types"], " 1 , types,"])
def test_several_options_are_chosen_where_several_may_be(named: AnswerValue) -> None:
    answer = parse_answer(SEVERAL, named)
    assert (answer.selected, answer.text) == (("Tests", "Types"), "Tests, Types")


def test_a_label_with_a_comma_is_one_choice() -> None:
    asked = question(options=("Yes, all", "No"), multi_select=True)
    assert parse_answer(asked, "yes, all").selected == ("Yes, all",)


def test_a_number_beside_own_words_becomes_its_label() -> None:
    answer = parse_answer(SEVERAL, ["2", "and a changelog"])
    assert (answer.text, answer.selected) == ("Docs, and a changelog", ("Docs",))


@pytest.mark.parametrize("asked", [question(), CLOSED], ids=["free", "closed"])
def test_several_options_are_refused_where_one_is_to_be_chosen(asked: Question) -> None:
    with pytest.raises(AnswerRefused, match="takes one option, not 2"):
        parse_answer(asked, ["Express", "FastAPI"])


@pytest.mark.parametrize("several_closed", ["Tests, Perf", ["Tests", "Perf"]], ids=repr)
def test_one_wrong_choice_refuses_the_right_ones(several_closed: AnswerValue) -> None:
    with pytest.raises(AnswerRefused, match="is not an option"):
        parse_answer(question(options=("Tests", "Docs"), multi_select=True, allow_free_text=False), several_closed)


@pytest.mark.parametrize(
    "empty",
    ["", "  ", "\n", [], ["", " "], whole(), whole(text=" ")],
    ids=["nothing", "blank", "a line", "no text", "blank texts", "whole", "whole and blank"],
)
@pytest.mark.parametrize("asked", [FREE, CLOSED, SEVERAL], ids=["free", "closed", "several"])
def test_an_empty_answer_is_refused(asked: Question, empty: AnswerValue) -> None:
    with pytest.raises(AnswerRefused, match="is empty"):
        parse_answer(asked, empty)


@pytest.mark.parametrize("value", [True, None, 1.5, [True], range(3), {"text": "Express"}, b"Express"], ids=repr)
def test_what_is_no_text_is_refused_and_not_a_crash(value: Any) -> None:
    with pytest.raises(AnswerRefused, match="give text, a number, a list of them, or an Answer"):
        parse_answer(question(), value)


def test_bytes_that_are_no_text_are_refused() -> None:
    """`upcall answer RUN $'\\xff'`: such an answer could be taken, but never be stored"""
    with pytest.raises(AnswerRefused, match="UTF-8"):
        parse_answer(FREE, "\udcff")


# -- outcomes ---------------------------------------------------------------------------------------------------------


def test_what_is_not_required_can_be_skipped() -> None:
    assert parse_answer(question(required=False), whole(outcome=Outcome.SKIPPED)).outcome is Outcome.SKIPPED


def test_what_is_required_cannot_be_skipped() -> None:
    with pytest.raises(AnswerRefused, match="required and cannot be skipped"):
        parse_answer(question(), whole(outcome=Outcome.SKIPPED))


@pytest.mark.parametrize("asked", [FREE, CLOSED, RISK], ids=["free", "closed", "risk"])
def test_everything_can_be_declined_with_a_reason(asked: Question) -> None:
    answer = parse_answer(asked, whole(outcome=Outcome.DECLINED, text=" none of these "))
    assert (answer.outcome, answer.text) == (Outcome.DECLINED, "none of these")


@pytest.mark.parametrize("outcome", [Outcome.EXPIRED, Outcome.CANCELLED, Outcome.ASSUMED])
def test_an_outcome_that_no_human_gives_is_refused(outcome: Outcome) -> None:
    with pytest.raises(AnswerRefused, match=f"'{outcome.value}' cannot be given"):
        parse_answer(FREE, whole(outcome=outcome, text="Express"))


# -- authority --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [each for each in AnsweredBy if each is not AnsweredBy.HUMAN])
@pytest.mark.parametrize("outcome", [Outcome.ANSWERED, Outcome.SKIPPED, Outcome.DECLINED])
def test_whatever_comes_in_is_recorded_as_the_humans(by: AnsweredBy, outcome: Outcome) -> None:
    asked = question(required=False)
    given = whole(by=by, outcome=outcome, text="Express")
    assert parse_answer(asked, given).by is AnsweredBy.HUMAN
    assert match_answers({asked.id: given}, [asked])[0].by is AnsweredBy.HUMAN


def test_a_risk_cannot_be_skipped_even_where_the_asker_allows_it() -> None:
    asked = question(clarification_type="risk_confirmation", required=False)
    with pytest.raises(AnswerRefused, match="cannot be skipped"):
        parse_answer(asked, whole(outcome=Outcome.SKIPPED, by=AnsweredBy.POLICY))


def test_an_answer_cannot_say_when_it_was_given() -> None:
    given = whole(outcome=Outcome.DECLINED, answered_at=NOON)
    assert parse_answer(FREE, given).answered_at != NOON


def test_who_is_known_to_answer_wins_over_who_claims_to() -> None:
    claimed = whole(text="Express", user="mallory")
    assert match_answers({"aaaa1111": claimed}, [question()], user="alice")[0].user == "alice"
    assert parse_answer(question(), whole(outcome=Outcome.DECLINED, user="mallory"), "alice").user == "alice"


def test_the_answer_to_a_secret_question_reaches_its_asker_and_not_the_group() -> None:
    asked = Question(id="aaaa1111", question="Which password?", secret=True)
    message = answer_message([whole(text="hunter2")], target="lead", questions=[asked])
    assert "hunter2" not in message.content
    assert message_answers(message)[0].text == "hunter2"


# -- numbers, sizes, and one reply to several questions ---------------------------------------------------------------


@pytest.mark.parametrize("beyond", ["0", "3", "7", 7, "9" * 5_000], ids=lambda value: str(value)[:8])
@pytest.mark.parametrize("asked", [question(), CLOSED], ids=["free", "closed"])
def test_a_number_beyond_the_options_is_refused(asked: Question, beyond: AnswerValue) -> None:
    with pytest.raises(AnswerRefused, match=r"There is no option .*: choose 1 to 2") as refused:
        parse_answer(asked, beyond)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("named", [2, [2]], ids=repr)
def test_an_integer_is_the_number_of_an_option(named: AnswerValue) -> None:
    assert parse_answer(CLOSED, named).selected == ("FastAPI",)


def test_an_integer_without_options_is_itself() -> None:
    assert parse_answer(FREE, 8080).text == "8080"


def test_a_model_may_give_options_as_numbers() -> None:
    assert [option.label for option in question(options=[8080, {"label": 3000}]).options] == ["8080", "3000"]


@pytest.mark.parametrize("outcome", [Outcome.ANSWERED, Outcome.DECLINED])
def test_an_answer_that_is_too_long_is_refused_with_the_limit(outcome: Outcome) -> None:
    assert parse_answer(FREE, "x" * MAX_ANSWER_CHARS).text
    with pytest.raises(AnswerRefused, match=r"has 10,000,000 characters; at most 100,000 are taken"):
        parse_answer(FREE, whole(outcome=outcome, text="x" * 10_000_000))


@pytest.mark.parametrize("reply", ["1. Express; 2. yes", "2) yes\n1) Express", " 1: Express ；2: yes"], ids=repr)
def test_a_numbered_reply_answers_several_questions(reply: str) -> None:
    matched = match_answers(reply, [question("bbbb2222"), question("aaaa1111", options=())])
    assert {answer.question_id: answer.text for answer in matched} == {"bbbb2222": "Express", "aaaa1111": "yes"}


def test_a_numbered_reply_may_leave_questions_open() -> None:
    assert [each.question_id for each in match_answers("2. yes", [FREE, question("bbbb2222")])] == ["bbbb2222"]


@pytest.mark.parametrize("reply", ["1. Express; 3. yes", "1. a; 1. b", "yes", "1", "Express, then 2. yes"], ids=repr)
def test_a_reply_that_may_be_for_any_question_is_refused_with_how_to_say_it(reply: str) -> None:
    with pytest.raises(AnswerRefused, match=r"'1\. Express; 2\. yes'.*aaaa1111, bbbb2222"):
        match_answers(reply, [question("aaaa1111"), question("bbbb2222")])


def aspect(question_id: str, **fields: Any) -> Question:
    return question(question_id, **{"options": (), "path": ("planner",), **fields})


def test_one_sentence_answers_the_aspects_that_one_agent_asks_about_together() -> None:
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
def test_one_sentence_is_not_taken_for_all_where_that_is_a_guess(other: dict[str, Any]) -> None:
    with pytest.raises(AnswerRefused, match="2 questions are open"):
        match_answers("solar", [aspect("aaaa1111"), aspect("bbbb2222", **other)])
