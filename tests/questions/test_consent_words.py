"""Words for yes and no choose an option of a consent; whatever says more than that approves nothing."""

from __future__ import annotations

import pytest

from upcall.errors import AnswerRefused
from upcall.questions.approval import approval_fields, find_choice, read_decision
from upcall.questions.matching import match_answers, parse_answer
from upcall.questions.question import ClarificationType, Option, Question, Side
from upcall.questions.tool_call import PendingCall
from upcall.runs.unknown_outcomes import RUN_AGAIN, list_options, resolve_record

CALL = PendingCall(tool="send", arguments={"to": "Ann"})
APPROVAL = Question(**approval_fields(CALL), path=("agent",), calls=("1",))
DELETION = Question(
    question="Delete a.py?",
    clarification_type=ClarificationType.RISK_CONFIRMATION,
    options=(
        Option(label="Yes, delete it", id="consent:once", side=Side.YES),
        Option(label="Yes, and don't ask again about deleting a.py in this run", id="consent:run"),
        Option(label="No, keep the file", id="consent:deny", side=Side.NO),
    ),
)

YES = """yes|Yes.|YES!|y|Y|ok|OK.|okay|approve|approved|I approve.|sure|go ahead|Go ahead!|yes, please
Yes please.|ok, go ahead|do it|yes, do it|allow|allow once|accept|confirm|“yes”|'yes'|yeah|yep
of course|ja|oui|sí|Да|是的|はい|ｙｅｓ|👍|  yes  |1|1.|#1|option 1|yes, yes|ok thanks|agreed|That's fine""".replace(
    "\n", "|"
).split("|")

NO = """no|No.|NO!|n|nope|don't|Don’t|dont do it|do not|deny|denied|reject|cancel|stop|abort|no, thanks
No thank you.|never|not now|no way|nein|non|нет|不要|いいえ|no, no|no, stop|3|3.""".replace("\n", "|").split("|")

NEITHER = """yes but only a.py|!yes|please !delete it
ok?|yes?|yes? no|yes no|no, yes|not ok|no problem|no objections|yes, always
yes to all|all|always|yes, and don't ask again|okay but later|sure?|why|approve?
if the tests pass, yes|yes if it is backed up|not yes|don't stop|maybe|i guess|please|thanks|once
yes unless it is used|yesterday|okra|go|go ahead with b.py|delete b.py|no idea|yes I said no|why not
approve the other one|not approved yet|do not go ahead, do it later|can you say yes?
would you approve|yes or no|yes/no|y/n|[yes]|<yes>|**yes**|ok...?|1 or 3|1?|-1|0x1|true|1.5|one""".replace(
    "\n", "|"
).split("|")


@pytest.mark.parametrize("question", [APPROVAL, DELETION], ids=["approval", "deletion"])
@pytest.mark.parametrize(
    ("words", "side"), [(YES, Side.YES), (NO, Side.NO), (NEITHER, None)], ids=["yes", "no", "neither"]
)
def test_consent_takes_words_that_say_nothing_else(question: Question, words: list[str], side: Side | None) -> None:
    chosen = {word: find_choice(parse_answer(question, word), question.options) for word in words}
    assert {word: each.side if each else None for word, each in chosen.items()} == dict.fromkeys(words, side)


@pytest.mark.parametrize(
    ("reply", "label"),
    [
        ("yes delete it", 0),
        ("YES, DELETE IT!", 0),
        ("delete it", 0),
        ("Yes, and don’t ask again about deleting a.py in this run.", 1),
        ("2", 1),
        ("keep the file", 2),
        ("No. Keep the file.", 2),
    ],
)
def test_consent_takes_a_label_with_any_punctuation(reply: str, label: int) -> None:
    assert parse_answer(DELETION, reply).text == DELETION.options[label].label


@pytest.mark.parametrize(
    "labels", [("Yes", "No"), ("Approve", "Deny"), ("Yes, publish", "No, wait"), ("Go ahead", "Stop!")]
)
def test_consent_of_a_tool_takes_words_by_its_labels(labels: tuple[str, str]) -> None:
    asked = Question(
        question="Publish?", options=labels, clarification_type="risk_confirmation", path=["a"], calls=["b"]
    )  # type: ignore[arg-type]
    assert [parse_answer(asked, each).text for each in ("ok", "nope", "ok?")] == [*labels, "ok?"]


def test_consent_words_choose_neither_of_two_yes_options() -> None:
    labels = ("Yes, all of it", "Yes, a part", "No")
    asked = Question(
        question="Publish?", options=labels, clarification_type="risk_confirmation", path=["a"], calls=["b"]
    )  # type: ignore[arg-type]
    assert [parse_answer(asked, each).selected for each in ("yes", "no")] == [(), ("No",)]


def test_consent_words_choose_nothing_of_other_questions() -> None:
    asked = Question(question="Which?", options=("Yes, both", "No, one"), path=["a"], calls=["b"])  # type: ignore[arg-type]
    assert parse_answer(asked, "ok").selected == ()


def test_consent_in_a_json_object_is_only_arguments() -> None:
    with pytest.raises(AnswerRefused, match="cannot be used"):
        parse_answer(APPROVAL.model_copy(update={"approval": strict()}), '{"query": "yes"}')


def strict() -> PendingCall:
    return CALL.model_copy(
        update={"parameters": {"type": "object", "properties": {"to": {}}, "additionalProperties": False}}
    )


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("1. yes 2. no", [Side.YES, Side.NO]),
        ("1) yes, 2) no", [Side.YES, Side.NO]),
        ("1: ok; 2: nope", [Side.YES, Side.NO]),
        ("2. yes 1. no", [Side.NO, Side.YES]),
        ("1. yes\n2. no", [Side.YES, Side.NO]),
        ("1. yes 2. only on Sundays", [Side.YES, None]),
        ("1. no 2. 1", [Side.NO, Side.YES]),
    ],
)
def test_consents_are_answered_in_one_line(reply: str, text: list[Side | None]) -> None:
    asked = [APPROVAL, DELETION]
    by_id = {each.question_id: each for each in match_answers(reply, asked)}
    chosen = [find_choice(by_id[each.id], each.options) for each in asked]
    assert [each.side if each else None for each in chosen] == text


def test_consent_in_one_line_is_not_cut_out() -> None:
    free = Question(question="Where to?")
    found = match_answers("1. To room 2. yes", [free, DELETION])
    assert [(each.question_id, each.text) for each in found] == [(free.id, "To room 2. yes")]


def test_consent_to_a_call_in_doubt_takes_words() -> None:
    asked = Question(
        question="Run it again?", options=list_options(), clarification_type=ClarificationType.RISK_CONFIRMATION
    )
    assert parse_answer(asked, "yes").text == RUN_AGAIN
    assert resolve_record(parse_answer(asked, "yes"), "") is None


def test_refusal_informs_the_model_that_the_human_wrote_no() -> None:
    emitted = str(read_decision(CALL, parse_answer(APPROVAL, "No, she has it already")))
    assert "The user said no. Nothing was done. They said: No, she has it already." in emitted
    assert "fail" not in emitted
