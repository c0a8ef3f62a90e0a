"""The transcript of a run: what its agents wrote and did, over pauses, failures, branches and stores."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.base import Team
from autogen_agentchat.messages import ModelClientStreamingChunkEvent, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from cryptography.fernet import Fernet

from upcall import PausableAgent, Run, Settings, Upcall, ask_secret, identity
from upcall.execution.driver import last
from upcall.execution.transcripts import TranscriptRecorder
from upcall.questions.secrets import KEY
from upcall.runs.transcript import EntryKind, TranscriptEntry
from upcall.storage.export import export_run, import_run
from upcall.storage.store import RunStore
from upcall.storage.transcripts import load_transcript, write_transcript
from upcall.testing import Call, Calls, Fail, Hang, ScriptedModelClient

ASK = Call("ask_user", {"question": "Which Python?", "options": ["3.11", "3.12"]})


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a key: a team whose tool asks for a secret does not start without one."""
    monkeypatch.setenv(KEY, Fernet.generate_key().decode())


def make_app(store: Path, /, *tester: Any, **settings: Any) -> Upcall:
    """Return a lead with a nested tester, which says what is given."""
    model = ScriptedModelClient(
        {"You lead": [Call("tester", {"task": "Test the parser"}), "All is well."], "You test": [*tester]}
    )

    def make_team() -> Team:
        inner = PausableAgent("tester", model, system_message="You test code.", description="Tests.", tools=[sign])
        lead = PausableAgent("lead", model, system_message="You lead a team.", agents=[inner])
        return RoundRobinGroupChat([lead], max_turns=1)

    return Upcall(store=store, team=make_team, settings=Settings.read(None, **settings))


def sign() -> str:
    """Sign the release."""
    return f"signed with {len(ask_secret('Which key?'))} characters"


async def delivered(app: Upcall, run: Run | str) -> list[tuple[str, str, str]]:
    """Who did what, and the words or the name."""
    entries = (await app.log.transcript(run)).entries
    return [("/".join(each.path), each.kind.value, each.text or each.name) for each in entries]


async def test_transcript_has_nested_agents_work_over_a_pause(tmp_path: Path) -> None:
    app = make_app(tmp_path / "runs.db", ASK, "Passed.")
    run = await app.answer((await app.start("See to it", user="ada")).id, "3.12", user="ada")
    assert await delivered(app, run) == [
        ("user", "task", "See to it"),
        ("lead", "call", '{"task": "Test the parser"}'),
        ("lead/tester", "question", "Which Python? (3.11, 3.12)"),
        ("ada", "answer", "3.12"),
        ("lead/tester", "message", "Passed."),
        ("lead", "result", "Passed."),
        ("lead", "message", "All is well."),
    ]


async def test_transcript_keeps_the_conversation_before_a_task_once(tmp_path: Path) -> None:
    texts = [TextMessage(content=f"Before, {number}", source="user") for number in range(3)]
    run = await (app := make_app(tmp_path / "runs.db", "Passed.")).start(
        [*texts, TextMessage(content="Go", source="user")]
    )
    assert (await delivered(app, run))[:2] == [("user", "task", "Go"), ("lead", "call", '{"task": "Test the parser"}')]


async def test_question_that_is_put_again_is_kept_once(tmp_path: Path) -> None:
    """A reader of a stream reads each segment by itself."""
    both = Call("ask_user", {"question": "Which OS?"})
    run = await (app := make_app(tmp_path / "runs.db", Calls([ASK, both]), "Passed.")).start("See to it")
    for question, text in zip(run.questions, ("3.12", "Linux"), strict=True):
        run = await app.answer(run.id, {question.id: text})
    kept = await load_transcript(app.store, run.id)
    assert sum(entry.kind is EntryKind.QUESTION for entry in kept) == 2


async def test_what_one_agent_did_comes_with_its_answers(tmp_path: Path) -> None:
    app = make_app(tmp_path / "runs.db", ASK, "Passed.")
    run = await app.answer((await app.start("See to it")).id, "3.12")
    own = (await app.log.transcript(run)).of_agent("tester")
    assert [each.kind.value for each in own.entries] == ["question", "answer", "message"]


async def test_transcript_keeps_a_failed_segment_once_after_resuming(tmp_path: Path) -> None:
    app = make_app(tmp_path / "runs.db", ASK, Fail(400), "Passed.")
    run = await app.answer((await app.start("See to it")).id, "3.12")
    failed = await delivered(app, run)
    assert (run.status.value, failed[-1][:2]) == ("failed", ("human", "answer"))
    run = await app.resume(run.id)
    assert (await delivered(app, run))[: len(failed)] == failed


def test_texts_that_end_in_another_order_keep_their_numbers() -> None:
    def begin(message: str) -> int:
        return recorder.number_text(ModelClientStreamingChunkEvent(source="a", content="x", full_message_id=message))

    whole = [TextMessage(id=each, source="a", content=each) for each in ("second", "first", "third")]
    recorder = TranscriptRecorder("task")
    assert [begin(each) for each in ("first", "second", "first")] == [1, 2, 1]
    for each in whole:
        recorder.add(each)
    kept = recorder.entries
    assert [(each.text, each.number) for each in kept] == [("second", 2), ("first", 1), ("third", 3)]
    recorder = TranscriptRecorder("task")  # After a kill.
    recorder.continue_from(kept)
    for each in reversed(whole):
        recorder.add(each)
    assert (recorder.entries, begin("fourth")) == (kept, 4)


async def test_nothing_is_kept_where_the_settings_say_so(tmp_path: Path) -> None:
    app = make_app(tmp_path / "runs.db", ASK, store={"transcripts": False})
    assert await delivered(app, await app.start("See to it")) == []


async def test_secret_is_not_in_the_transcript(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv(KEY, "k" * 43 + "=")
    app = make_app(tmp_path / "runs.db", Call("sign", {}), "Signed.")
    run = await app.answer((await app.start("Sign it")).id, "open sesame")
    text = await delivered(app, run)
    assert ("human", "answer", "(secret)") in text
    assert ("lead/tester", "result", "signed with 11 characters") in text
    assert "sesame" not in str(text)


async def test_branch_has_the_transcript_of_what_it_shares(tmp_path: Path) -> None:
    app = make_app(tmp_path / "runs.db", ASK, "Passed.", "Passed again.")
    run = await app.start("See to it")
    await app.answer(run.id, "3.12")
    branch = await app.fork(run.id, run.questions[0].id, "3.11")
    output = await delivered(app, branch)
    assert output[1] == ("lead", "call", '{"task": "Test the parser"}')
    assert [text for _, kind, text in output if kind == "answer"] == ["3.11"]


async def test_exported_run_brings_its_transcript_along(tmp_path: Path) -> None:
    app = make_app(tmp_path / "runs.db", ASK)
    run = await app.start("See to it")
    other = RunStore(tmp_path / "other.db")
    await import_run(other, await export_run(app.store, run.id))
    assert await delivered(Upcall(store=other, team=app.team.build), run.id) == await delivered(app, run)


async def test_removed_run_leaves_no_transcript(tmp_path: Path) -> None:
    app = make_app(tmp_path / "runs.db", ASK)
    run = await app.start("See to it")
    await app.store.delete(run.id)
    rows = await app.store.database.read(lambda each: each.execute("SELECT * FROM upcall_log").fetchall())
    assert rows == []


@pytest.mark.slow
async def test_transcript_grows_while_the_team_works(tmp_path: Path) -> None:
    app = make_app(tmp_path / "runs.db", ASK, Hang())
    run = await app.start("See to it", user="ada")
    items = app.answer_stream(run.id, "3.12", user="ada")
    work = asyncio.create_task(last(items))
    while len(text := await delivered(app, run)) < 4:
        await asyncio.sleep(0.1)
    assert text[-1] == ("ada", "answer", "3.12")
    work.cancel()
    await asyncio.wait([work])


@pytest.mark.slow
async def test_transcript_grows_beyond_an_answer_from_facts(tmp_path: Path) -> None:
    """The run is stored with such a question when an entry of the transcript waits for it."""
    app = make_app(tmp_path / "runs.db", ASK, Hang())
    work = asyncio.create_task(app.start("See to it", facts={"python": "3.12"}))
    async with asyncio.timeout(20):
        while not (found := [*await app.list()]) or len(text := await delivered(app, found[0])) < 4:
            await asyncio.sleep(0.1)
    assert [kind for _, kind, _ in text] == ["task", "call", "question", "answer"]
    version = (await app.store.load(found[0].id)).version
    await asyncio.sleep(0.5)
    assert (await app.store.load(found[0].id)).version == version
    work.cancel()
    await asyncio.wait([work])


async def test_what_a_killed_segment_wrote_keeps_its_place(tmp_path: Path) -> None:
    app = make_app(tmp_path / "runs.db", ASK, Hang())
    run = await app.start("See to it", user="ada")
    work = asyncio.create_task(app.answer(run.id, "3.12", user="ada"))
    while (await app.get(run.id)).status.value != "executing":
        await asyncio.sleep(0.05)
    work.cancel()
    await asyncio.wait([work])
    extra = TranscriptEntry(EntryKind.THOUGHT, ("lead",), identity.now(), "said before the kill")
    await app.store.database.write(write_transcript(run.id, 1, [extra]))
    before = await delivered(app, run)
    await make_app(tmp_path / "runs.db", "Passed.").resume(run.id)
    output = await delivered(app, run)
    assert (output[: len(before)], before[-1][2]) == (before, "said before the kill")
    assert [kind for _, kind, _ in output].count("answer") == 1
