"""Overruling an assumption over MCP and AG-UI: the plan is shown first, and nothing is done without its digest."""

from __future__ import annotations

import pytest
from mcp import ClientSession
from services import serving
from test_agui import find, post, resume
from test_mcp_command import call, connected
from test_overruling_page import ASSUME, booking


async def begin(session: ClientSession) -> dict[str, str]:
    """Let a run continue under an assumption; return the arguments of another answer."""
    run = await call(session, "start", task="Build it")
    assert run["result"] == "Built with Express."
    (entry,) = (await call(session, "inbox"))["questions"]
    return {"run_id": run["run_id"], "question_id": entry["id"], "answer": "FastAPI"}


@pytest.mark.slow
async def test_mcp_client_overrules_by_the_plan_that_was_shown() -> None:
    booked: list[str] = []
    async with serving(booking(booked), **ASSUME) as site, connected(site, "alice") as session:
        other = await begin(session)
        for consent in ({}, {"consent": "of another plan"}):
            shown = await call(session, "overrule", **other, **consent)
            assert (shown["plan"]["taken_back"], shown["run"]) == (['agent: book({"name": "Express"})'], None)
            assert booked == ["Express"]
        changed = await call(session, "overrule", **{**other, "answer": "Express"}, consent=shown["consent"])
        assert (changed["run"], booked) == (None, ["Express"])
        done = await call(session, "overrule", **other, consent=shown["consent"])
        assert (done["run"]["result"], booked) == ("Built with FastAPI.", ["FastAPI"])
        assert (await call(session, "show", run_id=other["run_id"]))["replaced_by"] == done["run"]["run_id"]


@pytest.mark.slow
async def test_no_model_lets_effects_stay() -> None:
    booked: list[str] = []
    async with serving(booking(booked, can_cancel=False), **ASSUME) as site, connected(site, "alice") as session:
        refused = await call(session, "overrule", **await begin(session))
        assert "no model lets it stay" in refused
        assert booked == ["Express"]


@pytest.mark.slow
async def test_mcp_client_overrules_no_word_of_the_user() -> None:
    booked: list[str] = []
    async with serving(booking(booked)) as site, connected(site, "alice") as session:
        run = await call(session, "start", task="Build it")
        given = {"run_id": run["run_id"], "question_id": run["questions"][0]["id"]}
        assert (await call(session, "answer", **given, answer="Express"))["result"] == "Built with Express."
        assert "nothing to overrule" in await call(session, "overrule", **given, answer="FastAPI")
        assert booked == ["Express"]


async def test_agui_overrules_by_the_plan_that_was_shown() -> None:
    booked: list[str] = []
    async with serving(booking(booked, can_cancel=False), **ASSUME) as site, await site.caller() as client:
        done = await post(client, "Build it")
        (assumed,) = find(done, "STATE_SNAPSHOT")[-1]["snapshot"]["assumptions"]
        run_id = find(done, "STATE_SNAPSHOT")[-1]["snapshot"]["run_id"]
        answers = resume([{"id": f"{run_id}:{assumed['id']}"}], "FastAPI")
        for consent in ({}, {"upcall": {"consent": "of another plan"}}):
            refused = await post(client, run="2", resume=answers, forwardedProps=consent)
            (plan,) = [each["value"] for each in find(refused, "CUSTOM") if each["name"] == "upcall.plan"]
            assert (refused[-1]["type"], plan["again"]["effects"]) == (
                "RUN_ERROR",
                ['agent: book({"name": "Express"})'],
            )
            assert booked == ["Express"]
        given = {"upcall": {"consent": plan["consent"]}}
        branch = await post(client, run="3", resume=answers, forwardedProps=given)
        assert (branch[-1]["result"], booked) == ("Built with FastAPI.", ["Express", "FastAPI"])
