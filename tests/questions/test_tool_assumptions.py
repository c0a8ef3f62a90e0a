"""`ask(on_ask=...)`: the code of a tool says whether its call waits; rules of the settings come before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from autogen_agentchat.base import Team
from trips import TRIP, Trip
from worlds import pausing

from upcall import Answer, PausableAgent, Settings, Upcall, UserInputRequired, ask
from upcall.questions.question import OnAsk
from upcall.testing import Call, ScriptedModelClient

COLORS = ["red", "blue"]


async def run_tool(
    tool: Callable[[], str], for_run: OnAsk | None = None, **questions: Any
) -> tuple[str | None, list[str | None]]:
    """Run a team whose agent calls the tool once; return its result, if it does not wait, and what was assumed."""
    model = ScriptedModelClient([Call(tool.__name__), "Done."])

    def make() -> Team:
        return pausing(PausableAgent("solo", model, tools=[tool]))

    app = Upcall(store="runs.db", team=make, settings=Settings.read(None, questions=questions))
    run = await app.start("Go", on_ask=for_run)
    result = None if run.waiting else next(iter(model.requests[-1].tool_results.values()))
    return result, [each.assumed for each in await app.inbox()]


def paint() -> str:
    """Paint it."""
    return f"painted {ask('Which color?', COLORS, on_ask='assume').text}"


async def test_tool_continues_under_an_assumption() -> None:
    assert await run_tool(paint) == ("painted red", ["red"])


async def test_default_of_a_tool_is_assumed() -> None:
    def name() -> str:
        """Name it."""
        return f"named {ask('Which name?', default='Ada', on_ask='assume').text}"

    assert await run_tool(name) == ("named Ada", ["Ada"])


async def test_tool_waits_where_others_assume() -> None:
    def paint() -> str:
        """Paint it."""
        return ask("Which color?", COLORS, on_ask="wait").text

    assert await run_tool(paint, on_ask="assume") == (None, [None])


@pytest.mark.parametrize(("do", "result"), [("wait", None), ("assume", "painted red")])
async def test_rule_of_the_user_comes_before_the_tool(do: str, result: str | None) -> None:
    assert (await run_tool(paint, ask_rules=[{"words": "color", "do": do}]))[0] == result


@pytest.mark.parametrize(("rules", "result"), [([], None), ([{"words": "color", "do": "assume"}], "painted red")])
async def test_wait_for_one_run_comes_before_the_tool(rules: list[dict[str, str]], result: str | None) -> None:
    assert (await run_tool(paint, for_run="wait", ask_rules=rules))[0] == result


async def test_wait_of_the_settings_leaves_it_to_the_tool() -> None:
    assert (await run_tool(paint, on_ask="wait"))[0] == "painted red"


async def test_raised_question_assumes_as_well() -> None:
    def paint() -> str:
        """Paint it."""
        raise UserInputRequired("Which color?", COLORS, on_ask="assume")

    assert await run_tool(paint) == ("red", ["red"])


@pytest.mark.parametrize(
    ("options", "kind"), [(COLORS, "risk_confirmation"), (["Yes", "No"], "approach_choice"), ([], "missing_info")]
)
async def test_tool_assumes_nothing_only_humans_know(options: list[str], kind: str) -> None:
    def paint() -> str:
        """Paint it."""
        return ask("Which color?", options, clarification_type=kind, on_ask="assume").text

    assert await run_tool(paint) == (None, [None])


async def test_form_of_a_tool_is_assumed_as_an_instance() -> None:
    def book() -> str:
        """Book it."""
        trip = ask("Which trip?", schema=Trip, default=Trip.model_validate(TRIP), on_ask="assume")
        assert not isinstance(trip, Answer)
        return f"{trip.traveller}, {trip.nights} nights"

    result, assumed = await run_tool(book)
    assert (result, len(assumed)) == ("Ada Byron, 2 nights", 1)


async def test_default_that_its_type_refuses_waits() -> None:
    def book() -> str:
        """Book it."""
        return str(ask("Which trip?", schema=Trip, default=Trip.model_construct(**{**TRIP, "traveller": "Ada"})))

    result, (waits, refused) = await run_tool(book, on_ask="assume")
    assert (result, waits) == (None, None)
    assert refused is not None
