"""A transcript as a conversation, and its agents as rows: who did what for whom, and who waits."""

from __future__ import annotations

from upcall import Run, identity
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecords
from upcall.runs.states import RunStatus
from upcall.runs.transcript import EntryKind, TranscriptEntry
from upcall.server.agent_rows import list_rows
from upcall.server.conversation import ConversationPart, ConversationTree, read_arguments

CALL, RESULT, MESSAGE, THOUGHT = EntryKind.CALL, EntryKind.RESULT, EntryKind.MESSAGE, EntryKind.THOUGHT
LEAD, CODER, WRITER = ("lead",), ("lead", "coder"), ("lead", "writer")
BOTH = [(CALL, LEAD, "coder"), (CALL, LEAD, "writer")]


def entry(kind: EntryKind, path: tuple[str, ...], name: str = "", text: str = "") -> TranscriptEntry:
    return TranscriptEntry(kind, path, identity.now(), text, name)


def converse(*steps: tuple[EntryKind, tuple[str, ...], str]) -> ConversationTree:
    return ConversationTree.of([entry(kind, path, name) for kind, path, name in steps])


def outline(parts: list[ConversationPart]) -> list[object]:
    return [[part.agent[-1], *outline(part.parts)] if part.agent else part.kind.value for part in parts]


def test_nested_agents_at_once_stay_apart() -> None:
    made = converse(*BOTH, (THOUGHT, CODER, ""), (THOUGHT, WRITER, ""), (MESSAGE, CODER, ""), (MESSAGE, LEAD, ""))
    assert outline([*made.parts]) == [["coder", "thought", "message"], ["writer", "thought"], "message"]


def test_second_call_of_an_agent_is_another_part() -> None:
    once = [(CALL, LEAD, "coder"), (MESSAGE, CODER, ""), (RESULT, LEAD, "coder")]
    made = converse(*once, *once)
    assert outline([*made.parts]) == [["coder", "message"], ["coder", "message"]]
    assert [part.number for part in made.parts] == [0, 3]


def test_nested_agent_that_nobody_called_has_its_part() -> None:
    deep = ("society", "team", "writer")
    made = converse((MESSAGE, deep, ""), (MESSAGE, deep, ""))
    assert outline([*made.parts]) == [["team", ["writer", "message", "message"]]]


def test_result_stands_with_its_call() -> None:
    made = converse((CALL, LEAD, "look"), (CALL, LEAD, "look"), (RESULT, LEAD, "look"))
    assert [part.is_pending for part in made.parts] == [False, True]


def test_answer_stands_with_its_question() -> None:
    made = converse((EntryKind.QUESTION, CODER, "q1"), (MESSAGE, LEAD, ""), (EntryKind.ANSWER, ("user",), "q1"))
    asked = made.parts[0].parts[0]
    assert asked.answer is not None
    assert len(made.parts) == 2


def test_window_keeps_what_an_agent_does_after_its_beginning() -> None:
    made = converse((CALL, LEAD, "coder"), (THOUGHT, CODER, ""), (MESSAGE, CODER, ""), (MESSAGE, LEAD, ""))
    assert outline(made.window(2, 4)) == [["coder", "message"], "message"]
    assert outline(made.window(0, 2)) == [["coder", "thought"]]


def test_arguments_are_read_as_text_with_its_lines() -> None:
    assert read_arguments('{"path": "a.py", "content": "a\\nb", "n": 2}') == [
        ("path", "a.py"),
        ("content", "a\nb"),
        ("n", "2"),
    ]
    assert read_arguments("no JSON") == [("", "no JSON")]


def test_rows_say_who_works_and_who_waits_for_whom() -> None:
    run = Run(task="do it", status=RunStatus.EXECUTING, execution_path=("lead",))
    made = converse(*BOTH, (CALL, CODER, "write_file"), (THOUGHT, WRITER, ""))
    rows = {row.path: row.doing for row in list_rows(run, made, ())}
    assert rows == {LEAD: "waits for coder, writer", CODER: "runs write_file", WRITER: "works"}


def test_rows_say_who_waits_for_the_human() -> None:
    mine, theirs = Question(question="Which?", path=CODER), Question(question="When?", path=WRITER, assignee="bob")
    records = QuestionRecords.build([mine, theirs])
    run = Run(task="do it", status=RunStatus.AWAITING_CLARIFICATION, records=records)
    rows = {row.path: row.doing for row in list_rows(run, converse(*BOTH), [mine])}
    assert rows == {LEAD: "waits for coder, writer", CODER: "waits for you", WRITER: "waits for bob"}


def test_rows_of_a_run_that_is_over_do_nothing() -> None:
    run = Run(
        task="do it", status=RunStatus.CANCELLED, records=QuestionRecords.build([Question(question="A?", path=CODER)])
    )
    assert {row.doing for row in list_rows(run, converse(*BOTH), ())} == {""}
