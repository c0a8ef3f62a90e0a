"""A question with several fields at the doors of the service: HTTP, AG-UI, and the command line beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import trips
from scenario import upcall
from services import serving, settle, start
from trips import BAD_VALUES, BOOKED, TRIP, Trip, make_team


def flatten(values: dict[str, Any]) -> dict[str, Any]:
    """Return a trip with the address in fields of its own."""
    rest = {name: value for name, value in values.items() if name != "address"}
    return {**rest, **{f"address.{name}": value for name, value in values["address"].items()}}


@pytest.fixture
def own_team() -> None:
    """Put the team into a module of the current folder, where each process finds it."""
    Path("own_trips.py").write_text(Path(trips.__file__).read_text())


@pytest.mark.slow
async def test_typed_answer_over_http_is_refused_by_field() -> None:
    async with serving(make_team) as site, await site.caller("alice") as alice:
        asked = await start(alice)
        (question,) = asked["questions"]
        assert question["answer_schema"] == Trip.model_json_schema()
        path = f"/api/runs/{asked['run_id']}/answers"
        for name, value, message in BAD_VALUES:
            given = {"answers": {question["id"]: {**TRIP, name: value}}}
            refused = await alice.post(path, json=given)
            assert (refused.status_code, refused.json()["fields"]) == (422, {name: message})
        assert (await alice.post(path, json={"answers": {question["id"]: TRIP}})).status_code == 200
        assert (await settle(alice, asked["run_id"]))["result"] == BOOKED


async def post(me: httpx.AsyncClient, run: str, **more: Any) -> dict[str, Any]:
    """Make one run of AG-UI; its last event."""
    body = {"threadId": "thread", "runId": run, "messages": [], **more}
    response = await me.post("/agui", json=body)
    last: dict[str, Any] = [json.loads(each[6:]) for each in response.text.splitlines() if each.startswith("data: ")][
        -1
    ]
    return last


@pytest.mark.slow
async def test_typed_question_is_an_interrupt_with_its_schema() -> None:
    async with serving(make_team) as site, await site.caller() as me:
        asked = await post(me, "1", messages=[{"id": "m", "role": "user", "content": "Book it"}])
        (interrupt,) = asked["outcome"]["interrupts"]
        assert interrupt["responseSchema"] == Trip.model_json_schema()
        answer = {"interruptId": interrupt["id"], "status": "resolved"}
        for name, value, message in [*BAD_VALUES, ("", 5, "is not an answer: send an object of its fields")]:
            payload = {**TRIP, name: value} if name else value
            refused = await post(me, "2", resume=[{**answer, "payload": payload}])
            assert refused["code"] == ("fields-refused" if name else "answer-refused")
            assert message in refused["message"]
        done = await post(me, "3", resume=[{**answer, "payload": TRIP}])
        assert done["result"] == BOOKED


@pytest.mark.slow
def test_typed_answer_is_json_on_the_command_line(own_team: None) -> None:
    asked = upcall("run", "Book it", "--team", "own_trips:make_team", "--store", "runs.db", "--json").json
    run_id, (question,) = asked["run_id"], asked["questions"]
    assert question["answer_schema"]["required"] == ["traveller", "start", "address"]
    for given in ('{"start": "soon"}', "soon"):
        refused = upcall("answer", run_id, given, "--store", "runs.db", "--json")
        assert refused.status == 2
        assert "address" in refused.err
    by_id = upcall("answer", run_id, f"{question['id']}={json.dumps(TRIP)}", "--store", "runs.db", "--json")
    assert by_id.json["result"] == BOOKED


@pytest.mark.slow
def test_typed_answer_is_read_from_standard_input(own_team: None) -> None:
    run_id = upcall("run", "Book it", "--team", "own_trips:make_team", "--store", "runs.db", "--json").json["run_id"]
    given = json.dumps(flatten(TRIP), indent=1)
    assert upcall("answer", run_id, "-", "--store", "runs.db", "--json", given=given).json["result"] == BOOKED
