"""What a start may choose of what whoever runs the service lists: model, team, workspace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from lab import CHROMIUM, chromium
from looks import look
from scenario import TASK, script
from services import one_agent, serving, settle, start
from test_inbox_page import read
from test_start_page import begin, begin_run
from test_web_browser import log_in

from upcall import Settings
from upcall.errors import ConfigurationError
from upcall.server.service import Service
from upcall.testing import LoopbackServer

DEMO = {"model": "demo"}
MODELS = {"model": "gpt-4o", "api_key": "none"}
MODULE = """
from autogen_agentchat.teams import RoundRobinGroupChat
from upcall import PausableAgent
from upcall.testing import Call, ScriptedModelClient
from upcall.testing.script import Script

def reply(request):
    if request.messages[-1]["role"] == "tool":
        return "Tested on " + request.messages[-1]["content"]
    return Call("ask_user", {"question": "Which Python?", "options": ["3.11", "3.12"]})

def make_team():
    tester = PausableAgent("tester", ScriptedModelClient(Script(reply)), system_message="You test.")
    return RoundRobinGroupChat([tester], max_turns=1)
"""
TESTERS = {"testers": "testers_of_choice:make_team"}


@pytest.fixture(autouse=True)
def testers() -> None:
    """Make a module in the current folder."""
    Path("testers_of_choice.py").write_text(MODULE)


async def answer(api: httpx.AsyncClient, run: Any, value: str) -> Any:
    """Answer the question of a run, and wait until it is pausing."""
    answers = {"answers": {run["questions"][0]["id"]: value}}
    assert (await api.post(f"/api/runs/{run['run_id']}/answers", json=answers)).status_code == 200
    return await settle(api, run["run_id"])


@pytest.mark.needs("workspace")
@pytest.mark.slow
async def test_chosen_model_works_before_and_after_the_question() -> None:
    with LoopbackServer(script()) as server:
        models = {"model": "small", "base_url": server.base_url}
        async with serving(models=models, server={"models": ["large"]}) as site, await site.caller("bob") as api:
            async with await site.browser("bob") as bob:
                run = await begin_run(bob, api, task=TASK, model="large")
            before = len(server.requests)
            done = await answer(api, run, "Express")
        used = {request.body["model"] for request in server.requests}
        assert (done["status"], used, 0 < before < len(server.requests)) == ("completed", {"large"}, True)


async def test_chosen_team_works_on_follow_ups_too() -> None:
    async with serving(models=DEMO, server={"teams": TESTERS}) as site, await site.caller("bob") as api:
        async with await site.browser("bob") as bob:
            run = await begin_run(bob, api, task="Test it", team="testers")
        done = await answer(api, run, "3.12")
        after = await start(api, "Test it again", follows=run["run_id"])
    assert (done["result"], after["questions"][0]["question"]) == ("Tested on 3.12", "Which Python?")


async def test_follow_up_of_a_chosen_team_takes_no_workspace() -> None:
    listed = {"teams": TESTERS, "workspaces": {"site": "site"}}
    async with serving(models=DEMO, server=listed) as site, await site.caller("bob") as api:
        run = await start(api, "Test it", team="testers")
        await answer(api, run, "3.12")
        more = {"task": "Again", "follows": run["run_id"], "workspace": "site"}
        refused = await api.post("/api/runs", json=more)
        begun = (await api.get("/api/runs")).json()["runs"]
    assert (refused.status_code, len(begun)) == (400, 1)
    assert refused.json()["detail"].startswith("The team 'testers' has models and folders of its own.")


async def test_page_repeats_a_refused_folder_without_confirming_it(tmp_path: Path) -> None:
    listed = {"workspaces": {"The website": tmp_path / "website"}}
    async with serving(models=DEMO, server=listed) as site, await site.browser("bob") as bob:
        refused = [await begin(bob, task=TASK, workspace=str(each)) for each in (tmp_path / "website", "/srv/none")]
    assert [each.status_code for each in refused] == [400, 400]
    assert f"There is no workspace &#39;{tmp_path}/website&#39; to choose." in refused[0].text
    assert "There is no workspace &#39;/srv/none&#39; to choose." in refused[1].text


@pytest.mark.needs("workspace")
async def test_chosen_workspace_is_shown_by_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "website"
    listed = {"workspaces": {"The website": folder}}
    async with (
        serving(models=DEMO, server=listed) as site,
        await site.caller("bob") as api,
        await site.browser("bob") as bob,
    ):
        form = await read(bob, "/start")
        run = await begin_run(bob, api, task=TASK, workspace="The website")
        await answer(api, run, "Express")
        page = await read(bob, f"/runs/{run['run_id']}")
    assert (folder / "server.js").is_file()
    assert ('<option value="The website">' in form, "workspace The website" in page) == (True, True)
    assert str(tmp_path) not in form + page


SERVER = {"models": ["gpt-4.1"], "teams": TESTERS, "workspaces": {"site": "site"}}


REFUSED_CHOICES: list[tuple[dict[str, Any], str]] = [
    ({"model": "gpt-4.2"}, "There is no model 'gpt-4.2' to choose; did you mean 'gpt-4.1'?"),
    ({"team": "os:getcwd"}, "There is no team 'os:getcwd' to choose. Known: testers."),
    ({"team": TESTERS["testers"]}, "There is no team"),
    ({"workspace": "/etc"}, "There is no workspace '/etc' to choose. Known: site."),
    ({"workspace": "../site"}, "There is no workspace '../site' to choose"),
    ({"team": "testers", "model": "gpt-4.1"}, "has models and folders of its own. Leave out model and workspace."),
    ({"team": "testers", "review_plan": True}, "This team makes no plan to review. Leave review_plan out."),
]


async def test_start_refuses_what_the_service_does_not_list() -> None:
    async with serving(models=MODELS, server=SERVER) as site, await site.caller("bob") as api:
        for chosen, problem in REFUSED_CHOICES:
            refused = await api.post("/api/runs", json={"task": "Build it", **chosen})
            assert (refused.status_code, problem in refused.json()["detail"]) == (400, True), chosen
            assert len(refused.json()["detail"].splitlines()) == 1
        assert (await api.get("/api/runs")).json()["runs"] == []


async def test_start_refuses_choices_of_a_service_with_none() -> None:
    async with serving(models=DEMO) as site, await site.caller("bob") as api:
        for chosen in ("model", "team", "workspace"):
            refused = await api.post("/api/runs", json={"task": "Build it", chosen: "any"})
            assert refused.json()["detail"] == f"This service has no {chosen} to choose. Leave {chosen} out."


async def test_page_offers_what_has_several_choices() -> None:
    listed = {"models": ["gpt-4o", "gpt-4.1"]}
    async with serving(models=MODELS, server=listed) as site, await site.browser("bob") as bob:
        page = await read(bob, "/start")
        refused = await begin(bob, task=" ", model="gpt-4.1")
    assert [name for name in ("model", "team", "workspace") if f'<select name="{name}">' in page] == ["model"]
    assert ("<dt>Model</dt>" in page, "<dt>Team</dt>" in page) == (False, True)
    assert (refused.status_code, '<option value="gpt-4.1" selected>' in refused.text) == (400, True)


async def test_service_with_its_own_team_offers_other_teams_only() -> None:
    async with serving(one_agent(), server=SERVER, models=MODELS) as site, await site.browser("bob") as bob:
        page = await read(bob, "/start")
    assert [name for name in ("model", "team", "workspace") if f'<select name="{name}">' in page] == ["team"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"models": DEMO, "server": {"models": ["gpt-4o"]}}, "server.models lists models of the common server"),
        ({"models": MODELS, "server": {"models": ["demo"]}}, "server.models names 'demo'"),
        ({"server": {"teams": {"shop": "no_such_module:make"}}}, "The team 'no_such_module:make' cannot be imported"),
        ({"server": {"teams": {"shop": "/srv/shop.py"}}}, "server.teams.shop"),
        ({"server": {"workspaces": {"site": "/proc/site"}}}, "The workspace /proc/site cannot be used"),
        ({"server": {"workspaces": {"a\nb": "site"}}}, "server.workspaces"),
    ],
)
def test_service_refuses_choices_that_nobody_could_use(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem.replace(".", "[.]")):
        Service(Settings.read(None, **settings))


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
async def test_person_chooses_team_and_workspace_in_a_browser() -> None:
    async with chromium() as browser, serving(models=MODELS, server=SERVER) as site:
        page = await log_in(browser, f"{site.url}/login?token=the-operator")
        await page.goto(f"{site.url}/start")
        await look(page, "start-choices")
        await page.get_by_label("What is to be done?").fill("Test it")
        await page.get_by_label("Team").select_option("testers")
        await page.get_by_role("button", name="Start", exact=True).click()
        await page.get_by_text("Which Python?").first.wait_for()
