"""Whatever a model replies, classifier, clarifier and planner continue: it is read, repaired once, or stood in for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from autogen_agentchat.messages import BaseChatMessage, HandoffMessage, TextMessage
from autogen_core.models import ChatCompletionClient
from conversation import TurnResult, answers, send
from odd_replies import ODD, Odd

from upcall.agents import Clarifier, Classifier, Planner
from upcall.agents.planner import FALLBACK_SECTIONS
from upcall.agents.structured.agent import StructuredAgent
from upcall.autogen.messages import CLASSIFICATION, PLAN
from upcall.execution.model_clients import ModelClients
from upcall.prompts.contexts import ToolInfo
from upcall.runs.outputs import Classification, Depth, Intent
from upcall.runs.plan import MAX_STEPS, Plan, PlanStep, ReviewedPlan
from upcall.settings import Settings
from upcall.testing import LoopbackServer, Raw, Reply, Request, ScriptedModelClient

TASK = "Compare solar power\nin Germany and Japan"

STANDING_PLAN = Plan(title="Compare solar power", sections=FALLBACK_SECTIONS)
STEPS = [
    {"step_id": "1", "description": "Find the numbers", "name": "researcher", "outputs": ["numbers"]},
    {"step_id": "2", "description": "Compare them", "inputs": ["${1.numbers}"], "depends_on": ["1"]},
]
PLAN_REPLY = {"title": "Solar power", "sections": ["Germany", "2030"], "steps": STEPS}


@dataclass(frozen=True)
class Asked:
    """A call that is answered in JSON: who makes it, a good reply and what comes of it, and what comes of none."""

    name: str
    agent: Callable[[ChatCompletionClient], StructuredAgent[Any, Any]]
    good: Mapping[str, Any]
    understood: Callable[[TurnResult], bool]
    stood_in_for: Callable[[TurnResult], bool]
    next_message: Callable[[TurnResult], BaseChatMessage]
    """What the agent is given after the fallback."""
    next_replies: Sequence[Reply]
    after_fallback: Sequence[Reply] = ()
    """What the model replies to the calls that follow in the same turn where there is no reply to read."""


def _planned(rest: TurnResult) -> Plan:
    return ReviewedPlan.model_validate_json(rest.message.metadata[PLAN]).plan


def _classified(rest: TurnResult) -> tuple[Intent, Depth]:
    found = Classification.model_validate_json(rest.message.metadata[CLASSIFICATION])
    return found.intent, found.depth


def _target(rest: TurnResult) -> str:
    assert isinstance(rest.message, HandoffMessage)
    return rest.message.target


def _asks(rest: TurnResult, *texts: str) -> bool:
    return [question.question for question in rest.questions] == list(texts)


def _again(_: TurnResult) -> TextMessage:
    return TextMessage(source="user", content="And wind?")


HANDLERS = [ToolInfo("researcher", "Finds things out.")]

CLASSIFIER = Asked(
    "classifier",
    Classifier,
    {"intent": "coding", "meta_response": None, "research_depth": "shallow"},
    lambda rest: (_target(rest), *_classified(rest)) == ("coder", Intent.CODING, Depth.SHALLOW),
    lambda rest: (_target(rest), *_classified(rest)) == ("clarifier", Intent.RESEARCH, Depth.DEEP),
    _again,
    ['{"intent": "meta", "meta_response": "Hi!"}'],
)
CLARIFIER = Asked(
    "clarifier",
    Clarifier,
    {
        "needs_clarification": True,
        "clarification_question": "Until when?",
        "options": ["2030", "2050"],
        "reason": "?",
    },
    lambda rest: _asks(rest, "Until when?") and [each.label for each in rest.questions[0].options] == ["2030", "2050"],
    lambda rest: _asks(rest, f'What matters most to you in "{TASK}"?'),
    lambda rest: answers(rest, "The costs"),
    ['{"needs_clarification": false}'],
)
CHECK = Asked(
    "check",
    Planner,
    {
        "needs_clarification": True,
        "ambiguity_details": [
            {
                "aspect": "time",
                "description": "",
                "clarification_question": "Until when?",
                "possible_options": ["2030"],
            },
            {"aspect": "f", "description": "", "clarification_question": "A table?", "possible_options": []},
        ],
    },
    lambda rest: _asks(rest, "Until when?", "A table?"),
    lambda rest: _target(rest) == "lead" and _planned(rest) == Plan.model_validate(PLAN_REPLY),
    _again,
    ['{"needs_clarification": false}', json.dumps(PLAN_REPLY)],
    after_fallback=[json.dumps(PLAN_REPLY)],
)
PLANNING = Asked(
    "plan",
    lambda client: Planner(client, skip_ambiguity_check=True, handlers=HANDLERS),
    PLAN_REPLY,
    lambda rest: _target(rest) == "lead" and _planned(rest) == Plan.model_validate(PLAN_REPLY),
    lambda rest: _target(rest) == "lead" and _planned(rest) == STANDING_PLAN,
    _again,
    [json.dumps(PLAN_REPLY)],
)
CALLS = [CLASSIFIER, CLARIFIER, CHECK, PLANNING]

each_call = pytest.mark.parametrize("asked", CALLS, ids=lambda asked: asked.name)


def named(*names: str) -> pytest.MarkDecorator:
    """Return some rows of the table; `test_parse_output.py` has them all."""
    rows = {odd.name: odd for odd in ODD}
    return pytest.mark.parametrize("odd", [rows[name] for name in names], ids=lambda odd: odd.name)


def assert_acceptable(requests: Sequence[Request]) -> None:
    """OpenAI takes these requests: no empty message, no two of the assistant's in a row, nothing unpaired."""
    for request in requests:
        roles = [each["role"] for each in request.messages]
        assert ("assistant", "assistant") not in pairwise(roles)
        assert roles[-1] == "user"
        assert all((each.get("content") or "").strip() or each.get("tool_calls") for each in request.messages)
        assert request.list_unpaired() == []
        json.dumps(request.body, ensure_ascii=False).encode()


async def rest_of(asked: Asked, replies: Sequence[Reply]) -> TurnResult:
    """How the turn ends where the model says just this; every reply must be used, and none may be missing."""
    with ScriptedModelClient(replies) as client:
        rest = await send(asked.agent(client), TASK)
    assert isinstance(rest.message, HandoffMessage | TextMessage)
    assert rest.text.strip()
    assert_acceptable(client.requests)
    return rest


UNUSABLE = ("empty", "prose", "cut at its half", "a tool call", "the reply as a tool call", "1 MB of text")


@each_call
@named("prose before", "thoughts before a fence", "single quotes")
async def test_odd_reply_that_is_complete_takes_one_call(asked: Asked, odd: Odd) -> None:
    """S0-63"""
    assert asked.understood(await rest_of(asked, [odd.make(asked.good)]))


@each_call
@named(*UNUSABLE)
async def test_unreadable_reply_is_repaired_in_one_more_call(asked: Asked, odd: Odd) -> None:
    assert asked.understood(await rest_of(asked, [odd.make(asked.good), json.dumps(asked.good)]))


@each_call
@named(*UNUSABLE)
async def test_unreadable_repair_is_replaced_by_the_fallback(asked: Asked, odd: Odd) -> None:
    """S0-62, S2-38, S3-41"""
    reply = odd.make(asked.good)
    assert asked.stood_in_for(await rest_of(asked, [reply, reply, *asked.after_fallback]))


@each_call
@named("empty", "a tool call", "control characters")
async def test_fallback_is_followed_by_requests_that_openai_takes(asked: Asked, odd: Odd) -> None:
    """S0-65"""
    reply = odd.make(asked.good)
    with ScriptedModelClient([reply, reply, *asked.after_fallback, *asked.next_replies]) as client:
        agent = asked.agent(client)
        rest = await send(agent, asked.next_message(await send(agent, TASK)))
    assert rest.text.strip()
    assert_acceptable(client.requests)


# -- values that do not quite fit -------------------------------------------------------------------------------------

DETAIL = CHECK.good["ambiguity_details"][1]

FITTING: list[Any] = [
    (CLASSIFIER, {"intent": " CODING\n", "research_depth": "Shallow"}),
    (CLASSIFIER, {"research_depth": None}),
    (CLASSIFIER, {"research_depth": ""}),
    (CLASSIFIER, {"research_depth": "shallow or deep"}),
    (CLASSIFIER, {"meta_response": "Not for the user."}),
    (CLARIFIER, {"options": [2030, 2050]}),
    (CLARIFIER, {"options": ["2030", " 2030", "", "2050"]}),
    (CLARIFIER, {"reason": None}),
    (CLARIFIER, {"reason": "x" * 10_000}),
    (CLARIFIER, {"clarification_question": "\x1b\x07Until when?\u202e \n"}),
    (CHECK, {"ambiguity_details": [{**CHECK.good["ambiguity_details"][0], "possible_options": None}, DETAIL]}),
    (CHECK, {"ambiguity_details": [CHECK.good["ambiguity_details"][0], {**DETAIL, "aspect": "f" * 1_000}]}),
    (CHECK, {"ambiguity_details": [CHECK.good["ambiguity_details"][0], {**DETAIL, "description": "d" * 10_000}]}),
    (PLANNING, {"sections": [{"title": "Germany"}, {"name": "2030"}]}),
    (PLANNING, {"sections": ["Germany", " ", 2030, ""]}),
    (PLANNING, {"title": "  Solar\x1b power\n"}),
    (PLANNING, {"steps": [{**STEPS[0], "name": "Researcher", "type": "AGENT"}, {**STEPS[1], "depends_on": "1"}]}),
    (PLANNING, {"steps": [{**STEPS[0], "name": None, "agent": "researcher"}, {**STEPS[1], "depends_on": [1]}]}),
]

MISFITTING: list[Any] = [
    (CLASSIFIER, {"intent": None}),
    (CLASSIFIER, {"intent": ["coding"]}),
    (CLASSIFIER, {"intent": {"coding": True}}),
    (CLASSIFIER, {"intent": 1}),
    (CLASSIFIER, {"research_depth": ["deep"]}),
    (CLASSIFIER, {"research_depth": 3}),
    (CLASSIFIER, {"meta_response": {"text": "Hi"}}),
    (CLARIFIER, {"needs_clarification": "perhaps"}),
    (CLARIFIER, {"needs_clarification": 2}),
    (CLARIFIER, {"needs_clarification": ["yes"]}),
    (CLARIFIER, {"clarification_question": None}),
    (CLARIFIER, {"clarification_question": " \n"}),
    (CLARIFIER, {"clarification_question": "\x1b\u202e"}),
    (CLARIFIER, {"clarification_question": ["Until when?", "Where?"]}),
    (CLARIFIER, {"options": True}),
    (CHECK, {"ambiguity_details": None}),
    (CHECK, {"ambiguity_details": []}),
    (CHECK, {"ambiguity_details": "The time"}),
    (CHECK, {"ambiguity_details": ["The time"]}),
    (CHECK, {"ambiguity_details": [{**DETAIL, "clarification_question": ""}]}),
    (CHECK, {"ambiguity_details": [{**DETAIL, "clarification_question": None}]}),
    (CHECK, {"ambiguity_details": [DETAIL, None]}),
    (PLANNING, {"title": None}),
    (PLANNING, {"title": " "}),
    (PLANNING, {"title": ["Solar power"]}),
    (PLANNING, {"sections": None}),
    (PLANNING, {"sections": []}),
    (PLANNING, {"sections": "Germany, 2030"}),
    (PLANNING, {"sections": [["Germany"], ["2030"]]}),
    (PLANNING, {"sections": [str(number) for number in range(MAX_STEPS + 1)]}),
]


def _row(value: Any) -> str:
    return value.name if isinstance(value, Asked) else json.dumps(value)[:60]


@pytest.mark.parametrize(("asked", "fields"), FITTING, ids=_row)
async def test_value_that_can_mean_only_one_thing_is_read(asked: Asked, fields: dict[str, Any]) -> None:
    assert asked.understood(await rest_of(asked, [json.dumps({**asked.good, **fields})]))


@pytest.mark.parametrize(("asked", "fields"), MISFITTING, ids=_row)
async def test_value_that_does_not_fit_is_repaired(asked: Asked, fields: dict[str, Any]) -> None:
    reply = json.dumps({**asked.good, **fields})
    assert asked.understood(await rest_of(asked, [reply, json.dumps(asked.good)]))


# -- plans whose steps are wrong --------------------------------------------------------------------------------------


def _step(number: int = 1, **fields: Any) -> dict[str, Any]:
    return {"step_id": str(number), "description": "Look", "name": "researcher", **fields}


LOOK = PlanStep(step_id="1", description="Look", name="researcher")
BY_LEAD = PlanStep(step_id="1", description="Look")


def _also(**fields: Any) -> PlanStep:
    return LOOK.model_copy(update={"step_id": "2", **fields})


WRONG_STEPS: list[Any] = [
    pytest.param([_step(), _step()], [LOOK, _also()], id="the same id twice"),
    pytest.param([_step(depends_on=["1"])], [LOOK], id="depends on itself"),
    pytest.param([_step(depends_on=["7"])], [LOOK], id="depends on nothing"),
    pytest.param([_step(depends_on=["2"]), _step(2)], [LOOK, _also()], id="depends on a later one"),
    pytest.param(
        [_step(inputs=["${7.text}"])], [LOOK.model_copy(update={"inputs": ("(7.text)",)})], id="uses an unknown step"
    ),
    pytest.param(
        [_step(), _step(2, inputs=["${1.text}"])], [LOOK, _also(inputs=("${1}",))], id="uses an unknown output"
    ),
    pytest.param(
        [_step(inputs=["${1.text"])], [LOOK.model_copy(update={"inputs": ("(1.text",)})], id="a broken reference"
    ),
    pytest.param([_step(name="plumber")], [BY_LEAD], id="an unknown agent"),
    pytest.param([_step(type="tool", name="saw")], [BY_LEAD], id="an unknown tool"),
    pytest.param([_step(type="robot")], [], id="an unknown type"),
    pytest.param([_step(description="")], [], id="an empty description"),
    pytest.param([{"step_id": "1"}, _step(2, depends_on=["1"])], [_also()], id="no description"),
    pytest.param(
        [_step(number) for number in range(1, MAX_STEPS + 2)],
        [_also(step_id=str(number)) for number in range(1, MAX_STEPS + 1)],
        id="too many",
    ),
    pytest.param(["Look", "Compare"], [BY_LEAD, PlanStep(step_id="2", description="Compare")], id="texts"),
    pytest.param([["1", "Look"]], [], id="lists"),
    pytest.param([None], [], id="null"),
    pytest.param("Look, then compare", [], id="one text"),
    pytest.param({"1": "Look"}, [], id="an object"),
    pytest.param(2, [], id="a number"),
    pytest.param(True, [], id="a boolean"),
]


@pytest.mark.parametrize(("steps", "usable"), WRONG_STEPS)
async def test_plan_with_wrong_steps_keeps_the_usable_ones(steps: object, usable: list[PlanStep]) -> None:
    """S0-62, S3-42"""
    reply = json.dumps({"title": "Solar power", "sections": ["Germany", "Japan"], "steps": steps})
    rest = await rest_of(PLANNING, [reply, reply])
    assert _planned(rest) == Plan(title="Solar power", sections=("Germany", "Japan"), steps=tuple(usable))


@pytest.mark.parametrize(
    "outline",
    [{"title": "Solar"}, {"title": "", "sections": ["A"]}, {"sections": ["A"]}, {"title": "T", "sections": ["", " "]}],
    ids=["no sections", "empty title", "no title", "empty sections"],
)
async def test_plan_without_a_title_or_sections_is_replaced_whole(outline: dict[str, Any]) -> None:
    """S0-62"""
    reply = json.dumps({**outline, "steps": STEPS})
    assert _planned(await rest_of(PLANNING, [reply, reply])) == STANDING_PLAN


async def test_unreadable_plan_becomes_the_task_and_five_sections() -> None:
    """S0-62"""
    plan = _planned(await rest_of(PLANNING, ["?", "?"]))
    assert plan.title == "Compare solar power"
    assert plan.sections == ("Background", "Main points", "Comparison", "Open points", "Conclusion")
    assert plan.steps == ()


@named("empty", "cut at its half", "all fields null")
async def test_revision_that_cannot_be_read_shows_the_plan_unchanged(odd: Odd) -> None:
    reply, good = odd.make(PLAN_REPLY), json.dumps(PLAN_REPLY)
    with ScriptedModelClient([good, reply, reply, good]) as client:
        agent = Planner(client, skip_ambiguity_check=True, enable_plan_approval=True)
        shown = await send(agent, TASK)
        again = await send(agent, answers(shown, "Make it shorter"))
        await send(agent, answers(again, "Then add costs"))
    assert "Title: Solar power" in again.text
    assert _planned(again) == _planned(shown) == Plan.model_validate(PLAN_REPLY)
    assert_acceptable(client.requests)


# -- odd replies that only a server can send --------------------------------------------------------------------------


def _body(*choices: Mapping[str, Any]) -> Raw:
    return Raw(json.dumps({"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": choices}))


def _choice(content: object, finish_reason: str | None = "stop", **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **fields}
    return {"index": 0, "message": message, "finish_reason": finish_reason}


HALF = '{"intent": "coding", "title": "Solar power", "needs_clarification'

SENT: list[Any] = [
    pytest.param(_body(_choice(HALF, "length")), id="cut at the token limit"),
    pytest.param(_body(_choice("", "length")), id="all tokens spent on thoughts"),
    pytest.param(_body(_choice(HALF, "content_filter")), id="cut by the filter"),
    pytest.param(_body(_choice(None, "content_filter")), id="taken by the filter"),
    pytest.param(_body(_choice(None, refusal="I can't help with that.")), id="refusal"),
    pytest.param(_body(_choice("Sorry.", refusal="I can't help with that.")), id="refusal and text"),
    pytest.param(_body(_choice(None)), id="content null"),
    pytest.param(_body(_choice("", None, tool_calls=[])), id="no finish reason"),
    pytest.param(_body(_choice(None, reasoning_content='{"intent": "meta"}')), id="only reasoning"),
    pytest.param(_body(), id="no choices"),
]

each_form = pytest.mark.parametrize("structured", [True, False], ids=["JSON schema", "JSON mode"])


async def served(asked: Asked, replies: Sequence[Reply], structured: bool) -> TurnResult:
    """How the turn ends where a server says just this."""
    with LoopbackServer(replies) as server:
        info = {"structured_output": structured}
        clients = ModelClients(
            Settings.read(None, models={"model": "m", "base_url": server.base_url, "model_info": info})
        )
        rest = await send(asked.agent(clients("classifier")), TASK)
        await clients.close()
    assert rest.text.strip()
    assert_acceptable(server.requests)
    return rest


@each_form
@pytest.mark.parametrize("sent", SENT)
async def test_reply_cut_or_withheld_by_the_server_is_repaired(sent: Raw, structured: bool) -> None:
    assert CLASSIFIER.understood(await served(CLASSIFIER, [sent, json.dumps(CLASSIFIER.good)], structured))


@each_call
@pytest.mark.parametrize("sent", SENT)
async def test_fallback_replaces_replies_always_cut_or_withheld(sent: Raw, asked: Asked) -> None:
    """S0-62, S2-38, S3-41"""
    assert asked.stood_in_for(await served(asked, [sent, sent, *asked.after_fallback], True))


@each_form
async def test_reply_beside_the_models_reasoning_is_read(structured: bool) -> None:
    good = json.dumps(CLASSIFIER.good)
    sent = _body(_choice(good, None, reasoning_content='Perhaps {"intent": "meta"}?'))
    assert CLASSIFIER.understood(await served(CLASSIFIER, [sent], structured))
