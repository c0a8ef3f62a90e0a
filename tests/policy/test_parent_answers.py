"""An agent answers what its nested agents ask, as far as it was given the answer (S4-23)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from autogen_agentchat.base import Team
from autogen_agentchat.messages import TextMessage, ThoughtEvent, UserInputRequestedEvent
from autogen_core import CancellationToken
from autogen_core.models import ModelFamily, ModelInfo
from scenario import TASK, script
from worlds import app_of, model_of, pausing

from upcall import AnsweredBy, PausableAgent, Run, RunStatus, Settings, Upcall
from upcall.autogen.messages import message_questions
from upcall.testing import Call, Calls, Fail, Hang, Reply, Request, ScriptedModelClient

FRAMEWORKS = ["Express", "FastAPI"]
ASK = Call("ask_user", {"question": "Which framework should I use?", "options": FRAMEWORKS, "context": "It decides."})
KNOWN = {
    "quote": "Framework: Express.js",
    "known_from": "instructions",
    "weight": "low",
    "user_must_choose": False,
    "answer": "express",
}
STANDARDS = "<lead> Project standards: Framework: Express.js"


def knows(**changed: Any) -> str:
    return json.dumps(KNOWN | changed)


def tree(model: ScriptedModelClient, *, boss: bool = False, **options: Any) -> Callable[[], Team]:
    """Return a lead with a nested coder, or below a boss."""

    def make() -> Team:
        coder = PausableAgent("coder", model, system_message="<coder>")
        top = PausableAgent(
            "lead", model, system_message=STANDARDS, agents=[coder], **({"answers_nested": True} | options)
        )
        if boss:
            top = PausableAgent("boss", model, system_message="<boss>", agents=[top], answers_nested=True)
        return pausing(top)

    return make


def of(model: ScriptedModelClient, name: str) -> list[Request]:
    return [each for each in model.requests if f"<{name}>" in each.system]


BUILD = Call("coder", {"task": "Build the login"})


async def test_parent_that_knows_the_answer_gives_it() -> None:
    """S4-23"""
    model = model_of(lead=[BUILD, knows(), "All done."], coder=[ASK, "Built."])
    done = await app_of(tree(model)).start("Build it")
    (answer,) = done.answers
    assert (done.status, done.result) == (RunStatus.COMPLETED, "All done.")
    assert (answer.by, answer.text, answer.selected) == (AnsweredBy.PARENT, "Express", ("Express",))
    assert answer.reason == "lead knew it (instructions): Framework: Express.js"
    assert done.answered_questions[0].path == ("lead", "coder")
    assert list(of(model, "coder")[-1].tool_results.values()) == ["Express"]
    assert done.usage["lead"].model_calls == 3
    model.assert_used_up()


async def test_parent_decides_by_its_context_question_options_and_task() -> None:
    model = model_of(lead=[BUILD, knows(), "."], coder=[ASK, "Built."])
    await app_of(tree(model)).start("Build it with care")
    looked = of(model, "lead")[1]
    shown = str(looked.messages[-1]["content"])
    assert STANDARDS in looked.system
    assert "Build it with care" in str(looked.messages[1]["content"])
    assert all(each in shown for each in ("Build the login", ASK.arguments["question"], "1. Express", "It decides."))
    assert looked.list_unpaired() == []
    assert not looked.body["tools"]


async def test_without_the_option_the_question_goes_to_the_human() -> None:
    model = model_of(lead=[BUILD, "."], coder=[ASK, "Built."])
    run = await app_of(tree(model, answers_nested=False)).start("Build it")
    assert (run.waiting, len(model.requests)) == (True, 2)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(knows(known_from="nowhere"), id="S4-23 it lacks the information"),
        pytest.param(knows(quote=""), id="S4-23 it cannot say where it has it from"),
        pytest.param(knows(quote="The client ordered Django"), id="it was never told what it quotes"),
        pytest.param(knows(weight="high"), id="S4-23 the decision matters much"),
        pytest.param(knows(user_must_choose=True), id="S4-23 the user must choose"),
        pytest.param(knows(answer=""), id="no answer"),
        pytest.param('{"answer": "Express"}', id="only an answer"),
        pytest.param(knows(known_from="a hunch"), id="from somewhere else"),
        pytest.param("Take Express.", id="prose"),
        pytest.param("", id="nothing"),
        pytest.param(Call("coder", {"task": "x"}), id="a call instead"),
        pytest.param(Fail(500), id="the server fails"),
    ],
)
async def test_in_doubt_the_question_is_passed_up(reply: Reply) -> None:
    model = model_of(lead=[BUILD, reply, "All done."], coder=[ASK, "Built."])
    asked = await app_of(tree(model)).start("Build it")
    assert (asked.questions[0].path, asked.answers) == (("lead", "coder"), ())
    done = await app_of(tree(model)).answer(asked.id, "FastAPI")
    assert (done.result, [answer.by for answer in done.answers]) == ("All done.", [AnsweredBy.HUMAN])
    model.assert_used_up()  # The parent was asked once, also over the pause.


async def test_parent_answer_that_is_no_option_is_passed_up() -> None:
    strict = Call("ask_user", {**ASK.arguments, "allow_free_text": False})  # type: ignore[dict-item]  # a mapping here
    model = model_of(lead=[BUILD, knows(answer="Flask"), "."], coder=[strict, "Built."])
    assert (await app_of(tree(model)).start("Build it")).waiting


async def test_risk_confirmation_is_not_shown_to_the_parent() -> None:
    risk = Call("ask_user", {"question": "Drop the table?", "clarification_type": "risk_confirmation"})
    model = model_of(lead=[BUILD], coder=[risk])
    assert (await app_of(tree(model)).start("Build it")).waiting
    assert len(model.requests) == 2


async def test_ledger_and_facts_come_before_the_parent() -> None:
    again = Call("ask_user", {"question": "What framework do you want?"})
    model = model_of(lead=[BUILD, BUILD, "."], coder=[ASK, "1", again, "2"])
    done = await app_of(tree(model), questions={"facts": {"framework": "FastAPI"}}).start("Build it")
    assert [answer.by for answer in done.answers] == [AnsweredBy.FACTS] * 2
    assert len(of(model, "lead")) == 3


async def test_parent_answer_is_reused_for_those_it_speaks_for() -> None:
    again = Call("ask_user", {"question": "What framework do you want?"})
    model = model_of(lead=[BUILD, knows(), BUILD, "."], coder=[ASK, "1", again, "2"])
    done = await app_of(tree(model)).start("Build it")
    assert [answer.by for answer in done.answers] == [AnsweredBy.PARENT, AnsweredBy.LEDGER]
    model.assert_used_up()


async def test_parent_answer_is_not_given_to_the_parent_itself() -> None:
    own = Call("ask_user", {"question": "What framework do you want?"})
    model = model_of(lead=[BUILD, knows(), own, "."], coder=[ASK, "1"])
    assert (await app_of(tree(model)).start("Build it")).questions[0].path == ("lead",)


async def test_parent_levels_are_asked_one_after_the_other() -> None:
    delegate = Call("lead", {"task": "Lead it"})
    model = model_of(
        boss=[delegate, knows(known_from="user", quote="Use FastAPI", answer="FastAPI"), "The end."],
        lead=[BUILD, knows(known_from="nowhere"), "Led."],
        coder=[ASK, "Built."],
    )
    done = await app_of(tree(model, boss=True)).start("Use FastAPI")
    (answer,) = done.answers
    assert (done.result, answer.text, answer.reason) == ("The end.", "FastAPI", "boss knew it (user): Use FastAPI")
    assert done.answered_questions[0].path == ("boss", "lead", "coder")
    assert len(done.answered_questions[0].calls) == 3
    assert list(of(model, "coder")[-1].tool_results.values()) == ["FastAPI"]
    model.assert_used_up()


async def test_parent_that_knows_spares_the_levels_above() -> None:
    model = model_of(boss=[Call("lead", {"task": "x"}), "."], lead=[BUILD, knows(), "Led."], coder=[ASK, "Built."])
    done = await app_of(tree(model, boss=True)).start("Build it")
    assert (done.result, done.answered_questions[0].path) == (".", ("boss", "lead", "coder"))


async def test_parent_answers_the_known_of_two_questions() -> None:
    """The one that waits is not looked at again when its sibling's answer goes down."""
    two = Calls([ASK, Call("ask_user", {"question": "Which database?"})])
    model = model_of(lead=[BUILD, knows(), knows(known_from="nowhere"), "Done."], coder=[two, "Built."])
    asked = await app_of(tree(model)).start("Build it")
    assert [question.question for question in asked.questions] == ["Which database?"]
    done = await app_of(tree(model)).answer(asked.id, "SQLite")
    assert list(of(model, "coder")[-1].tool_results.values()) == ["Express", "SQLite"]
    assert (done.result, [answer.by.value for answer in done.answers]) == ("Done.", ["parent", "human"])
    model.assert_used_up()


async def test_unattended_the_default_comes_after_the_parent() -> None:
    with_default = Call("ask_user", {**ASK.arguments, "default": "FastAPI"})  # type: ignore[dict-item]  # a mapping
    model = model_of(lead=[BUILD, knows(), BUILD, "."], coder=[with_default, "1", "2"])
    done = await app_of(tree(model)).start("Build it", unattended=True)
    assert [(answer.by.value, answer.text) for answer in done.answers] == [("parent", "Express")]


async def test_parent_look_that_is_cut_off_is_repeated_alone() -> None:
    model = model_of(lead=[BUILD, Hang(), knows(), "All done."], coder=[ASK, "Built."])
    task = asyncio.create_task(app_of(tree(model)).start("Build it"))
    while len(of(model, "lead")) < 2:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (run,) = await app_of(tree(model)).list()
    done = await app_of(tree(model)).resume(run.id)
    assert (done.result, [answer.by for answer in done.answers]) == ("All done.", [AnsweredBy.PARENT])
    assert len(of(model, "coder")) == 2


async def test_parent_look_and_answer_are_streamed_without_a_request() -> None:
    model = model_of(lead=[BUILD, knows(), "."], coder=[ASK, "Built."])
    items = [item async for item in app_of(tree(model)).start_stream("Build it")]
    thoughts = [item for item in items if isinstance(item, ThoughtEvent)]
    assert [each.content for each in thoughts] == [
        "(looks whether it can answer coder: yes)",
        "Which framework should I use? - Express (parent: lead knew it (instructions): Framework: Express.js)",
    ]
    assert not any(isinstance(item, UserInputRequestedEvent) for item in items)


async def test_it_works_in_a_plain_autogen_script() -> None:
    model = model_of(lead=[BUILD, knows(), "All done."], coder=[ASK, "Built."])
    result = await tree(model)().run(task="Build it")
    assert isinstance(result.messages[-1], TextMessage)
    assert result.messages[-1].content == "All done."


async def test_server_without_json_is_asked_in_words() -> None:
    info = ModelInfo(
        vision=False,
        function_calling=True,
        json_output=False,
        structured_output=False,
        family=ModelFamily.UNKNOWN,
        multiple_system_messages=False,
    )
    replies = {"<lead>": [BUILD, f"Well: {knows()}", "."], "<coder>": [ASK, "Built."]}
    model = ScriptedModelClient(replies, model_info=info)
    assert (await app_of(tree(model)).start("Build it")).answers[0].by is AnsweredBy.PARENT


@pytest.mark.needs("workspace")
async def test_lead_of_the_root_team_answers_where_configured() -> None:
    lead = [Call("coder", {"task": "Build"}), knows(known_from="user", quote=TASK), '{"summary": "All done."}']
    coder = [ASK, "Built.", "Built."]

    async def run_with(**settings: Any) -> Run:
        model = ScriptedModelClient(script(lead=lead, coder=coder))
        return await Upcall(model, settings=Settings.read(None, **settings)).start(TASK)

    assert [answer.by for answer in (await run_with(questions={"parent_answers": True})).answers] == [AnsweredBy.PARENT]
    assert (await run_with()).waiting


async def test_state_from_before_a_look_still_loads() -> None:
    model = model_of(lead=[BUILD, knows(known_from="nowhere")], coder=[ASK])
    agent = PausableAgent(
        "lead",
        model,
        system_message="<lead>",
        agents=[PausableAgent("coder", model, system_message="<coder>")],
        answers_nested=True,
    )
    response = await agent.on_messages([TextMessage(source="user", content="x")], CancellationToken())
    state = json.loads(json.dumps(await agent.save_state()))
    assert state["frames"][0]["passed_up"] == [message_questions(response.chat_message)[0].id]
    del state["frames"][0]["passed_up"]
    await agent.load_state(state)
