"""A conversation that nears what its model takes continues with notes; no answer is lost, and no pair broken."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import compacting_process
import pytest
from autogen_agentchat.messages import MultiModalMessage
from autogen_core import Image
from autogen_core.models import AssistantMessage, FunctionExecutionResultMessage, UserMessage
from compacting_process import CALLS, RUN, TASK, Reader, facts_in, planted
from conversation import soon
from forked import run_python
from PIL import Image as Picture

from upcall import Run, RunStatus, Upcall
from upcall.agents.tool_loop.turn import Compaction
from upcall.autogen.scope import RunScope, enter_scope
from upcall.options import ResolutionOptions
from upcall.policy.resolver import AnswerResolver
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecords
from upcall.runs.transcript import EntryKind
from upcall.testing import Fail, LoopbackServer, Raw, Reply, Request

IN_TIME = {"c2": True, "c20": False}
"""Calls, and whether their answers came before the notes were made; in a replay all answers are known."""

Serve = Callable[[Reader], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start servers of models, which refuse what OpenAI would refuse."""
    started: list[LoopbackServer] = []

    def start(reader: Reader) -> str:
        started.append(LoopbackServer(reader.reply).start())
        return started[-1].base_url

    yield start
    for server in started:
        server.stop()
        assert server.errors == []


async def answer_all(app: Upcall, run: Run) -> Run:
    """Answer each question with a colour that names its part."""
    while run.waiting:
        run = await soon(app.answer(run.id, f"COLOUR-{run.questions[0].question.split()[-1]}"))
    return run


async def read_all(reader: Reader, url: str, folder: Path) -> tuple[Upcall, Run]:
    """Let the agent read all parts; the application and the run."""
    app = Upcall(team=reader.team(url), store=folder / "runs.db")
    return app, await answer_all(app, await soon(app.start(TASK, run_id=RUN)))


def lost(reader: Reader) -> list[str]:
    """Return what the last request does not hold of what the user wrote."""
    seen = json.dumps(reader.last)
    return [each for each in ("TASK-WORD", "COLOUR-5?", "COLOUR-90?", "You are the reader.") if each not in seen]


@pytest.mark.parametrize("known", [8_000, pytest.param(None, marks=pytest.mark.slow)])
async def test_compaction_lets_two_hundred_calls_fit(tmp_path: Path, serve: Serve, known: int | None) -> None:
    reader = Reader(known=known)
    _, run = await read_all(reader, serve(reader), tmp_path)
    assert (run.status, run.result, run.error) == (RunStatus.COMPLETED, "Read.", None)
    assert reader.refused == (0 if known else 1)  # The refusal says how much the model takes.
    assert len(facts_in(json.dumps(reader.last)) & planted()) >= 0.95 * len(planted())
    assert lost(reader) == []
    assert 3 < reader.noted < CALLS / 4


@pytest.mark.parametrize(("several", "thinks"), [(1, True), (1, False), (5, False)])
@pytest.mark.slow
async def test_small_model_gets_excerpts_without_calls(
    tmp_path: Path, serve: Serve, several: int, thinks: bool
) -> None:
    reader = Reader(small=True, several=several, thinks=thinks)
    app, run = await read_all(reader, serve(reader), tmp_path)
    assert (run.result, reader.refused, reader.noted, lost(reader)) == ("Read.", 0, 0, [])
    assert len(facts_in(json.dumps(reader.last)) & planted()) >= 0.95 * len(planted())
    assert run.usage["reader"].model_calls == reader.made
    entries = (await app.log.transcript(run.id)).entries
    assert sum("Calls made: read (" in each.text for each in entries if each.kind is EntryKind.THOUGHT) > 3


IN_STREAM = 'data: {"error": {"code": "context_length_exceeded", "message": "Provider returned error"}}\n\n'
RATE = "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 33030. The input must be reduced."


@pytest.mark.parametrize(
    "refusal",
    [
        Fail(400, "tokens in request more than max tokens allowed"),
        Fail(413, "request_too_large"),
        Fail(429, RATE, retry_after=100),  # No time helps.
        Fail(500, "context shift is disabled"),
        Raw('{"error": {"message": "Context size has been exceeded."}}'),
        Raw(IN_STREAM),
    ],
    ids=["400", "413", "429", "500", "200", "stream"],
)
async def test_refusal_in_any_form_leads_to_notes(tmp_path: Path, serve: Serve, refusal: Reply) -> None:
    reader = Reader(known=None, calls=40, asks="none", refusal=refusal)
    _, run = await read_all(reader, serve(reader), tmp_path)
    assert (run.status, run.result, run.error) == (RunStatus.COMPLETED, "Read.", None)
    assert (reader.refused, reader.noted > 0) == (1, True)


async def test_compaction_off_ends_at_the_refusal(tmp_path: Path, serve: Serve) -> None:
    reader = Reader(compact_at=0)
    _, run = await read_all(reader, serve(reader), tmp_path)
    assert (run.status, reader.noted, reader.refused) == (RunStatus.FAILED, 0, 1)
    assert "longer than the model takes" in (run.error or "")


async def test_compaction_knows_the_words_beside_an_image(tmp_path: Path) -> None:
    reader, asked = Reader(calls=40, asks="none"), list[str]()

    def reply(request: Request) -> Reply:
        asked.append(str(request.messages[-1]["content"]))
        return reader.reply(request)

    with LoopbackServer(reply) as server:
        app = Upcall(team=reader.team(server.base_url), store=tmp_path / "runs.db")
        task = MultiModalMessage(content=[TASK, Image(Picture.new("RGB", (2, 2)))], source="user")
        run = await soon(app.start([task]))
    assert (run.result, reader.noted > 0) == ("Read.", True)
    assert all("TASK-WORD" in each for each in asked if "notes of an agent" in each)
    assert "TASK-WORD" in json.dumps(reader.last)


@pytest.mark.parametrize("several", [2, pytest.param(5, marks=pytest.mark.slow)])
async def test_compaction_keeps_calls_with_their_results(tmp_path: Path, serve: Serve, several: int) -> None:
    reader = Reader(several=several)
    _, run = await read_all(reader, serve(reader), tmp_path)
    assert (run.result, lost(reader), reader.refused) == ("Read.", [], 0)
    assert len(facts_in(json.dumps(reader.last)) & planted()) >= 0.95 * len(planted())


async def test_compaction_reads_a_result_longer_than_the_window(tmp_path: Path, serve: Serve) -> None:
    reader = Reader(calls=30, long=20)
    _, run = await read_all(reader, serve(reader), tmp_path)
    assert (run.result, reader.refused) == ("Read.", 0)
    assert facts_in(json.dumps(reader.last)) >= {"FACT-10 is w10", "FACT-20 is w20", "FACT-30 is w30"}


async def test_compaction_without_notes_keeps_what_happened(tmp_path: Path, serve: Serve) -> None:
    reader = Reader(calls=60, notes=False)
    _, run = await read_all(reader, serve(reader), tmp_path)
    assert (run.result, reader.refused, reader.noted > 0) == ("Read.", 0, True)
    assert "COLOUR-5?" in json.dumps(reader.last)


async def test_notes_that_go_in_circles_are_kept_once(tmp_path: Path, serve: Serve) -> None:
    reader = Reader(calls=60, circle=True)
    _, run = await read_all(reader, serve(reader), tmp_path)
    seen = json.dumps(reader.last)
    assert (run.result, reader.noted > 1, seen.count("It read on")) == ("Read.", True, 1)
    assert facts_in(seen) >= {"FACT-10 is w10", "FACT-50 is w50"}


async def test_compaction_keeps_answers_to_tools_and_nested_agents(tmp_path: Path, serve: Serve) -> None:
    reader = Reader(calls=80, asks="tool", nested=True)
    _, run = await read_all(reader, serve(reader), tmp_path)
    assert (run.result, reader.refused) == ("All read.", 0)
    assert "COLOUR-7?" in json.dumps(reader.last)


async def test_compaction_keeps_why_a_call_was_refused(tmp_path: Path, serve: Serve) -> None:
    reader = Reader(calls=60, asks="approval")
    _, run = await read_all(reader, serve(reader), tmp_path)
    assert (run.result, reader.noted > 0) == ("Read.", True)
    assert "COLOUR-deploy()" in json.dumps(reader.last)


async def test_second_refusal_keeps_the_last_call(tmp_path: Path, serve: Serve) -> None:
    reader = Reader(calls=4, long=4, words=16_000, known=None)
    _, run = await read_all(reader, serve(reader), tmp_path)
    assert (run.result, reader.refused) == ("Read.", 2)
    assert (reader.last[-1]["role"], reader.last[-1]["tool_call_id"]) == ("tool", "c4")


async def test_notes_name_no_answer_to_a_later_call(tmp_path: Path, serve: Serve) -> None:
    reader = Reader(calls=20, asks="")
    asked = [Question(question=f"Colour of {call}?", path=("reader",), calls=(call,), tool="read") for call in IN_TIME]
    records = QuestionRecords.build((), [(each, Answer(question_id=each.id, text="Blue")) for each in asked])
    with enter_scope(RunScope(resolver=AnswerResolver(ResolutionOptions(), records))):
        await soon(reader.team(serve(reader))().run(task=TASK))
    assert reader.noted > 0
    assert [each.question in json.dumps(reader.last) for each in asked] == [*IN_TIME.values()]


async def test_compaction_is_an_event_of_the_transcript(tmp_path: Path, serve: Serve) -> None:
    reader = Reader(calls=60)
    app, run = await read_all(reader, serve(reader), tmp_path)
    entries = (await app.log.transcript(run.id)).entries
    found = [each for each in entries if each.kind is EntryKind.THOUGHT and "8,000 tokens" in each.text]
    assert 0 < len(found) <= reader.noted
    assert facts_in(found[-1].text) >= {"FACT-10 is w10", "FACT-20 is w20"}
    assert run.usage["reader"].model_calls == reader.made + reader.noted


@pytest.mark.parametrize("dies", [28, 40])
@pytest.mark.slow
async def test_kill_after_compaction_makes_no_notes_again(tmp_path: Path, serve: Serve, dies: int) -> None:
    reader = Reader(calls=60, asks="")
    url = serve(reader)
    made = run_python(compacting_process.__file__, str(tmp_path), url, str(dies))
    assert made.returncode == -signal.SIGKILL, made.stderr
    noted, before = reader.noted, reader.made
    assert noted > 0
    app = Upcall(team=reader.team(url), store=tmp_path / "runs.db")
    run = await soon(app.resume(RUN))
    whole = Reader(calls=60, asks="")
    (tmp_path / "other").mkdir()
    _, other = await read_all(whole, serve(whole), tmp_path / "other")
    assert (run.result, other.result, before) == ("Read.", "Read.", dies)
    assert (reader.noted, facts_in(json.dumps(reader.last))) == (whole.noted, facts_in(json.dumps(whole.last)))


@pytest.mark.slow
async def test_compaction_goes_on_after_a_pause_elsewhere(tmp_path: Path, serve: Serve) -> None:
    reader = Reader()
    url = serve(reader)
    run = await soon(Upcall(team=reader.team(url), store=tmp_path / "runs.db").start(TASK, run_id=RUN))
    while run.waiting:  # Each time in an application that knows what is stored alone.
        app = Upcall(team=reader.team(url), store=tmp_path / "runs.db")
        run = await soon(app.answer(RUN, f"COLOUR-{run.questions[0].question.split()[-1]}"))
    assert (run.result, lost(reader), reader.refused) == ("Read.", [], 0)


def test_view_of_notes_leaves_out_what_they_stand_for() -> None:
    messages = [UserMessage(content=text, source="user") for text in "abcd"]
    shown = Compaction(notes="N", end=3, kept=[0], answers=["Which? Blue"]).view(messages)
    assert [each.content for each in (shown[0], shown[-1])] == ["a", "d"]
    assert len(shown) == 3
    assert "Which? Blue" in str(shown[1].content)


def test_view_of_notes_keeps_questions_without_other_calls() -> None:
    calls = [{"id": "1", "name": "read", "arguments": "{}"}, {"id": "2", "name": "ask_user", "arguments": "{}"}]
    results = [{"content": "r", "name": each["name"], "call_id": each["id"]} for each in calls]
    asked = AssistantMessage.model_validate({"content": calls, "source": "a"})
    given = FunctionExecutionResultMessage.model_validate({"content": results})
    first, second, *_ = Compaction(notes="N", end=2, kept=[0, 1]).view([asked, given])
    assert isinstance(first, AssistantMessage)
    assert isinstance(second, FunctionExecutionResultMessage)
    assert not isinstance(first.content, str)
    assert ([each.id for each in first.content], [each.call_id for each in second.content]) == (["2"], ["2"])
