"""A run that follows another one knows what was written there."""

from __future__ import annotations

from pathlib import Path

import pytest
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import PausableAgent, Settings, Upcall
from upcall.errors import CallerError
from upcall.testing import Call, Fail, ScriptedModelClient


def make_app(model: ScriptedModelClient) -> Upcall:
    def make_team() -> Team:
        return RoundRobinGroupChat([PausableAgent("helper", model, system_message="You help.")], max_turns=1)

    return Upcall(store="runs.db", team=make_team)


async def test_follow_up_has_the_whole_conversation_before_its_task() -> None:
    with ScriptedModelClient(["Blue.", "Green.", "Red."]) as model:
        app = make_app(model)
        first = await app.start("A colour, please", user="ada")
        second = await app.start("Another one", follows=first)
        third = await app.start("And one more", follows=second.id[:6])
        texts = [str(each["content"]) for each in model.requests[-1].messages[1:]]
    places = [next(at for at, text in enumerate(texts) if words in text) for words in ("A colour", "Blue", "Green")]
    assert places == sorted(places)
    assert "And one more" in texts[-1]
    assert (third.follows, third.user, third.result) == (second.id, "ada", "Red.")


async def test_follow_up_knows_that_its_run_failed() -> None:
    with ScriptedModelClient([Fail(400), "Blue."]) as model:
        app = make_app(model)
        await app.start("Try again", follows=await app.start("A colour, please"))
        assert "This ended without a result" in str(model.requests[-1].messages)


async def test_run_that_waits_has_no_follow_up_yet() -> None:
    app = make_app(ScriptedModelClient([Call("ask_user", {"question": "Which?"})]))
    run = await app.start("A colour, please")
    with pytest.raises(CallerError, match=f"First: upcall answer {run.id}"):
        await app.start("Another one", follows=run)


@pytest.mark.needs("workspace")
async def test_follow_up_of_the_root_team_keeps_its_folder(tmp_path: Path) -> None:
    app = Upcall(
        store="runs.db", settings=Settings.read(None, models={"model": "demo"}, workspace={"executor": "none"})
    )
    first = await app.start("Hello! What can you do?", workspace=tmp_path / "files")
    second = await app.start("Hello! What can you do?", follows=first)
    assert second.workspace == tmp_path / "files"
