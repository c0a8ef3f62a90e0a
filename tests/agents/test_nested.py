"""Agents nested in agents: questions come up from any depth, answers go down, and nothing finished is done again."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, ClassVar, Self

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, UserProxyAgent
from autogen_agentchat.base import ChatAgent, Response
from autogen_agentchat.conditions import HandoffTermination, TextMessageTermination
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    TextMessage,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    UserInputRequestedEvent,
)
from autogen_agentchat.teams import Swarm
from autogen_core import CancellationToken, Component
from autogen_core.models import RequestUsage
from conversation import Counted, answers, cancelled_while, impatient, nothing_left_behind, resumed_as, run, send
from pydantic import BaseModel

from upcall.agents import PausableAgent
from upcall.autogen.messages import OUTCOME, event_path
from upcall.errors import (
    AgentFailed,
    ModelAuthenticationError,
    ModelError,
    ModelNotFound,
    ModelTimeout,
    ModelUnavailable,
    SchemaMismatch,
)
from upcall.runs.reports import Report
from upcall.testing import Call, Calls, Fail, Hang, Reply, Request, Say, Script, ScriptedModelClient

pytestmark = pytest.mark.usefixtures(impatient.__name__)

LEVELS = ("lead", "coder", "tester", "clerk")
ASK = Call("ask_user", {"question": "Which framework?", "options": ["Express", "FastAPI"]})
ASK_TESTER = Call("ask_user", {"question": "Which browser?"})


def script(**replies: Sequence[Reply]) -> ScriptedModelClient:
    """Return a model client with a list of replies for each agent, by name."""
    return ScriptedModelClient({f"You are the {name}.": text for name, text in replies.items()})


def agent(name: str, client: Any, *nested: ChatAgent, **options: Any) -> PausableAgent:
    return PausableAgent(name, client, system_message=f"You are the {name}.", agents=nested, **options)


def team(client: Any, **options: Any) -> PausableAgent:
    """Return a lead with two nested agents."""
    return agent("lead", client, agent("coder", client, **options), agent("tester", client, **options))


def call(name: str, task: str = "Build it") -> Call:
    return Call(name, {"task": task})


BOTH = Calls([call("coder"), call("tester")])


# -- any depth --------------------------------------------------------------------------------------------------------


def tower(client: Any, depth: int, **innermost: Any) -> PausableAgent:
    """Agents nested `depth` deep; the innermost has the options given."""
    made = agent(LEVELS[depth - 1], client, **innermost)
    for name in reversed(LEVELS[: depth - 1]):
        made = agent(name, client, made)
    return made


def tower_script(depth: int, *innermost: Reply) -> ScriptedModelClient:
    """Every level calls the next one and is done with it; the innermost says what is given."""
    pairs = pairwise(LEVELS[:depth])
    above: dict[str, Sequence[Reply]] = {name: [call(below), f"{name} done"] for name, below in pairs}
    return script(**above, **{LEVELS[depth - 1]: innermost})


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
async def test_answer_reaches_the_asking_call_and_nothing_runs_twice(depth: int) -> None:
    tool = Counted()
    with tower_script(depth, Call("note"), ASK, f"{LEVELS[depth - 1]} done") as client:
        first = tower(client, depth, tools=[tool.note])
        rest = await send(first, "Build it")
        second = await resumed_as(first, tower(client, depth, tools=[tool.note]))
        assert (await send(second, answers(rest, "Express"))).text == "lead done"
    (question,) = rest.questions
    assert question.path == LEVELS[:depth]
    assert question.calls == tuple(f"call_{level}_1" for level in [*range(1, depth), depth + 1])
    assert rest.paths(UserInputRequestedEvent) == ["/".join(LEVELS[:depth])]
    innermost = client.requests[depth + 1]
    assert innermost.tool_results == {f"call_{depth}_1": "note 1", f"call_{depth + 1}_1": "Express"}
    assert (tool.calls, len(client.requests)) == (1, 2 * depth + 1)


async def test_nested_result_is_the_text_of_the_report() -> None:
    report = Report(summary="Built.", assumptions=("No login",))
    with script(lead=[call("coder"), "done"], coder=[Say(report)]) as client:
        await send(agent("lead", client, agent("coder", client, output_type=Report)), "Build it")
    assert client.requests[-1].tool_results == {"call_1_1": report.to_text()}


async def test_nested_agent_at_its_limit_reports_to_its_parent() -> None:
    with script(lead=[call("coder"), "done"], coder=[Call("note")]) as client:
        rest = await send(agent("lead", client, agent("coder", client, tools=[Counted().note], max_rounds=1)), "Go")
    assert client.requests[-1].tool_results["call_1_1"].startswith("coder stopped after 1 model calls")
    (emitted,) = rest.events_of(TextMessage)
    assert emitted.metadata[OUTCOME] == "max_rounds"


@pytest.mark.parametrize("arguments", [{}, {"task": ""}, {"task": ["Build it"]}, {"job": "Build it"}], ids=repr)
async def test_nested_agent_without_a_task_is_an_error_result(arguments: dict[str, Any]) -> None:
    with script(lead=[Call("coder", arguments), "I see."], coder=[]) as client:
        await send(agent("lead", client, agent("coder", client)), "Build it")
    assert client.requests[-1].tool_results == {"call_1_1": "Error: call coder with its task, a non-empty text."}


async def test_nested_agent_gone_from_the_team_is_an_error() -> None:
    with script(lead=[call("coder")], coder=[ASK]) as client:
        first = agent("lead", client, agent("coder", client))
        rest = await send(first, "Build it")
        second = await resumed_as(first, agent("lead", client, agent("tester", client)))
        with pytest.raises(SchemaMismatch, match="holds work of an agent 'coder'"):
            await send(second, answers(rest, "Express"))


# -- several askers ---------------------------------------------------------------------------------------------------


async def test_nested_agent_that_waits_is_idle_until_its_answer() -> None:
    with script(lead=[BOTH, "done"], coder=[ASK, "coded"], tester=[ASK_TESTER, "tested"]) as client:
        made = team(client)
        rest = await send(made, "Build it")
        waiting = (await made.save_state())["frames"][1]
        rest = await send(made, answers(rest, "Express"))
        assert (await made.save_state())["frames"][1] == waiting
        assert "interrupted" not in waiting
        await send(made, answers(rest, "Firefox"))


async def test_nested_agents_work_at_the_same_time() -> None:
    meeting = asyncio.Barrier(2)

    async def meet() -> str:
        """Return when the other agent has come too."""
        await meeting.wait()
        return "met"

    with script(lead=[BOTH, "done"], coder=[Call("meet"), "coded"], tester=[Call("meet"), "tested"]) as client:
        assert (await send(team(client, tools=[meet]), "Meet")).text == "done"


async def test_nested_questions_take_stock_user_proxy_texts_in_turn() -> None:
    with script(lead=[BOTH, "done"], coder=[ASK, "coded"], tester=[ASK_TESTER, "tested"]) as client:
        made = team(client)
        await send(made, "Build it")
        typed = [HandoffMessage(source="user", target="lead", content=text) for text in ("2", "Firefox")]
        rest = await send(made, *typed)
    assert rest.text == "done"
    assert {value for each in client.requests[3:5] for value in each.tool_results.values()} == {"FastAPI", "Firefox"}


# -- stock agents -----------------------------------------------------------------------------------------------------


class Finding(BaseModel):
    """What a stock agent reports."""

    text: str


class OwnEvent(BaseAgentEvent):
    """An event that no group chat knows."""

    def to_text(self) -> str:
        return "something of its own"


class OwnText(TextMessage):
    """A message that no group chat knows, though it is a text."""


class OwnAgent(BaseChatAgent):
    """A stock agent with event and message types of its own, which may fail."""

    def __init__(self, name: str, error: Exception | None = None) -> None:
        super().__init__(name, "Has types of its own.")
        self.error = error
        self.resets = 0

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (OwnText,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        if self.error is not None:
            raise self.error
        event = OwnEvent(source=self.name, models_usage=RequestUsage(prompt_tokens=3, completion_tokens=2))
        return Response(chat_message=OwnText(source=self.name, content="own text"), inner_messages=[event])

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        self.resets += 1


async def test_stock_agents_events_have_their_path() -> None:
    with script(lead=[call("coder"), "led"], coder=[call("helper"), "coded"], helper=[Call("note")]) as client:
        helper = AssistantAgent("helper", client, system_message="You are the helper.", tools=[Counted().note])
        rest = await send(agent("lead", client, agent("coder", client, helper)), "Build it")
    assert rest.paths(ToolCallRequestEvent) == ["lead", "lead/coder", "lead/coder/helper"]


def swarm(*members: ChatAgent) -> Swarm:
    """Return a team that stops when the lead has its result or hands a question to the user."""
    stop = HandoffTermination("user") | TextMessageTermination("lead")
    return Swarm([*members, UserProxyAgent("user")], termination_condition=stop)


async def test_nested_message_types_unknown_outside_stay_inside() -> None:
    with script(lead=[Calls([call("helper"), call("own")]), "done"], helper=[Say(Finding(text="found"))]) as client:
        helper = AssistantAgent(
            "helper", client, system_message="You are the helper.", output_content_type=Finding, description="Helps."
        )
        rest = await run(swarm(agent("lead", client, helper, OwnAgent("own"))), "Build it")
    assert rest.text == "done"
    assert client.requests[-1].tool_results == {"call_1_1": '{"text":"found"}', "call_1_2": "own text"}


async def test_usage_of_a_stock_agent_counts_for_any_types() -> None:
    with script(lead=[Calls([call("helper"), call("own")]), "done"], helper=[Say(Finding(text="found"))]) as client:
        helper = AssistantAgent("helper", client, system_message="You are the helper.", output_content_type=Finding)
        made = agent("lead", client, helper, OwnAgent("own"))
        await send(made, "Build it")
    assert {path: used.model_calls for path, used in made.usage.items()} == {"lead": 2, "lead/helper": 1, "lead/own": 1}
    assert made.usage["lead/own"].prompt_tokens == 3


async def test_stock_agent_called_twice_keeps_its_calls_apart() -> None:
    def reply(request: Request) -> Reply:
        if "You are the lead." in request.system:
            results = list(request.tool_results.values())
            return "; ".join(results) or Calls([call("helper", "shop"), call("helper", "blog")])
        tasks = [each["content"] for each in request.messages if each["role"] == "user"]
        return f"built {tasks}" if request.tool_results else Call("note")

    with ScriptedModelClient(reply) as client:
        helper = AssistantAgent(
            "helper", client, system_message="You are the helper.", tools=[Counted().note], reflect_on_tool_use=True
        )
        rest = await send(agent("lead", client, helper), "Build both")
    assert rest.text == "built ['shop']; built ['blog']"


async def test_stock_agent_nested_in_two_keeps_their_calls_apart() -> None:
    def reply(request: Request) -> Reply:
        texts = [each["content"] for each in request.messages if each["role"] == "user"]
        results = "; ".join(request.tool_results.values())
        if "You are the lead." in request.system:
            return results or Calls([call("coder", "shop"), call("tester", "blog")])
        if "You are the helper." in request.system:
            return f"helped with {texts}" if results else Call("note")
        return results or call("helper", texts[0])

    with ScriptedModelClient(reply) as client:
        helper = AssistantAgent(
            "helper", client, system_message="You are the helper.", tools=[Counted().note], reflect_on_tool_use=True
        )
        rest = await send(agent("lead", client, agent("coder", client, helper), agent("tester", client, helper)), "Go")
    assert rest.text == "helped with ['shop']; helped with ['blog']"


@pytest.mark.parametrize("error", [ValueError("odd"), KeyError("odd"), RuntimeError("odd")], ids=repr)
async def test_stock_agents_own_fault_is_not_blamed_on_models(error: Exception) -> None:
    with (
        script(lead=[call("own")]) as client,
        pytest.raises(
            AgentFailed, match=rf"^Agent 'own' failed \(.*test_nested.py, line \d+\): {type(error).__name__}"
        ),
    ):
        await send(agent("lead", client, OwnAgent("own", error)), "Build it")


async def test_stock_agents_model_failure_restarts_its_call() -> None:
    def make() -> PausableAgent:
        return agent("lead", client, AssistantAgent("helper", client, system_message="You are the helper."))

    with script(lead=[call("helper"), "done"], helper=[Fail(429), "helped"]) as client:
        first = make()
        with pytest.raises(ModelUnavailable, match=r"^Agent 'helper': the model server limits the rate"):
            await send(first, "Build it")
        await send(await resumed_as(first, make()))
    assert client.requests[-1].tool_results == {"call_1_1": "helped"}
    assert client.requests[2].messages == client.requests[1].messages


async def test_scripted_model_error_passes_through_a_stock_agent() -> None:
    client = script(lead=[call("helper")], helper=[])
    helper = AssistantAgent("helper", client, system_message="You are the helper.")
    with pytest.raises(AssertionError, match="no reply left for 'You are the helper"):
        await send(agent("lead", client, helper), "Build it")


# -- events -----------------------------------------------------------------------------------------------------------


async def test_nested_events_keep_path_and_order_of_each_agent() -> None:
    with script(lead=[BOTH, "done"], coder=[Call("note"), "coded"], tester=[Call("note"), "tested"]) as client:
        rest = await send(team(client, tools=[Counted().note]), "Build it")
    for path in ("lead/coder", "lead/tester"):
        kinds = [type(event) for event in rest.events if "/".join(event_path(event)) == path]
        assert kinds == [ToolCallRequestEvent, ToolCallExecutionEvent, TextMessage]


async def test_nested_text_is_streamed_with_its_path() -> None:
    with tower_script(3, "It is done.") as client:
        rest = await send(tower(client, 3, stream=True), "Build it")
    assert rest.paths(ModelClientStreamingChunkEvent) == ["lead/coder/tester"] * 3


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Fail(401), ModelAuthenticationError),
        (Fail(404), ModelNotFound),
        (Fail(429), ModelUnavailable),
        (Fail(500), ModelUnavailable),
        (Hang(0.01), ModelTimeout),
    ],
    ids=repr,
)
@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_failure_at_any_depth_names_its_agent_and_resumes(
    depth: int, failure: Reply, kind: type[ModelError]
) -> None:
    tool = Counted()
    with tower_script(depth, Call("note"), failure, "done") as client:
        first = tower(client, depth, tools=[tool.note])
        with pytest.raises(kind, match=f"^Agent '{LEVELS[depth - 1]}': the model") as failed:
            await send(first, "Build it")
        await send(await resumed_as(first, tower(client, depth, tools=[tool.note])))
    assert len(str(failed.value).splitlines()) == 1
    assert (tool.calls, len(client.requests)) == (1, 2 * depth + 1)


async def test_two_failures_at_once_raise_the_first_cleanly() -> None:
    async with nothing_left_behind():
        with script(lead=[BOTH, "done"], coder=[Fail(500), "coded"], tester=[Fail(401), "tested"]) as client:
            made = team(client)
            with pytest.raises(ModelUnavailable, match="'coder'"):
                await send(made, "Build it")
            await send(made)
    assert client.requests[-1].tool_results == {"call_1_1": "coded", "call_1_2": "tested"}


# -- cancellation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["token", "task"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("depth", [1, 3])
async def test_nested_model_call_that_hangs_is_cancelled_and_repeated(depth: int, stream: bool, how: str) -> None:
    tool = Counted()
    with tower_script(depth, Call("note"), Hang(), "done") as client:
        first = tower(client, depth, tools=[tool.note], stream=stream)
        async with nothing_left_behind():
            await cancelled_while(first, lambda: len(client.requests) == depth + 1, how, "Build it")
        await send(await resumed_as(first, tower(client, depth, tools=[tool.note])))
    assert (tool.calls, len(client.requests)) == (1, 2 * depth + 1)


class Hanging:
    """A tool that hangs the first time, and perhaps ignores that it is cancelled."""

    def __init__(self, *, stubborn: bool = False) -> None:
        self.stubborn = stubborn
        self.calls = 0
        self.end = asyncio.Event()

    async def wait(self) -> str:
        """Wait."""
        self.calls += 1
        while self.calls == 1:
            try:
                await self.end.wait()
                break
            except asyncio.CancelledError:
                if not self.stubborn:
                    raise
        return "waited"


@pytest.mark.parametrize("how", ["token", "task"])
@pytest.mark.parametrize("depth", [1, 3])
async def test_nested_tool_that_hangs_is_cancelled_keeping_finished_calls(depth: int, how: str) -> None:
    tool, hanging = Counted(), Hanging()
    with tower_script(depth, Calls([Call("note"), Call("wait")]), "done") as client:
        first = tower(client, depth, tools=[tool.note, hanging.wait])
        async with nothing_left_behind():
            await cancelled_while(first, lambda: hanging.calls == 1, how, "Build it")
        await send(await resumed_as(first, tower(client, depth, tools=[tool.note, hanging.wait])))
    assert client.requests[depth].tool_results == {f"call_{depth}_1": "note 1", f"call_{depth}_2": "waited"}


@pytest.mark.parametrize("how", ["token", "task"])
async def test_stubborn_tool_three_levels_down_keeps_finished_work(how: str) -> None:
    tool, hanging = Counted(), Hanging(stubborn=True)
    with tower_script(4, Calls([Call("note"), Call("wait")]), "done") as client:
        first = tower(client, 4, tools=[tool.note, hanging.wait])
        await cancelled_while(first, lambda: hanging.calls == 1, how, "Build it")
        await send(await resumed_as(first, tower(client, 4, tools=[tool.note, hanging.wait])))
    hanging.end.set()
    assert client.requests[4].tool_results == {"call_4_1": "note 1", "call_4_2": "waited"}


@pytest.mark.parametrize("how", ["token", "task"])
@pytest.mark.parametrize("hangs", ["model", "tool"])
async def test_stock_agent_that_hangs_is_cancelled_and_restarted(hangs: str, how: str) -> None:
    def make() -> PausableAgent:
        helper = AssistantAgent("helper", client, system_message="You are the helper.", tools=[hanging.wait])
        return agent("lead", client, agent("coder", client, helper))

    hanging = Hanging()
    first_try: Reply = Hang() if hangs == "model" else Call("wait")
    with script(lead=[call("coder"), "done"], coder=[call("helper"), "coded"], helper=[first_try, "helped"]) as client:
        first = make()
        async with nothing_left_behind():
            await cancelled_while(first, lambda: len(client.requests) == 3, how, "Build it")
        assert (await send(await resumed_as(first, make()))).text == "done"
    assert client.requests[-2].tool_results == {"call_2_1": "helped"}


async def test_stock_agent_ends_with_its_token() -> None:
    class Heedless(OwnAgent):
        async def on_messages(
            self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
        ) -> Response:
            for _ in range(1000):
                if cancellation_token.is_cancelled():
                    raise asyncio.CancelledError
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.001)
            raise AssertionError("its token was never cancelled")

    with script(lead=[call("own")]) as client:
        async with nothing_left_behind():
            await cancelled_while(agent("lead", client, Heedless("own")), lambda: bool(client.requests), "token", "Go")


# -- anything at any time ---------------------------------------------------------------------------------------------

Plan = list[list[Any]]
"""What an agent does, round by round: ``"note 3"``, ``"ask 5"``, or a plan for the agent nested in it."""


def made_up(rng: random.Random, depth: int) -> Plan:
    def step() -> Any:
        kind = rng.choice(["note", "ask", "plan"] if depth else ["note", "ask"])
        return made_up(rng, depth - 1) if kind == "plan" else f"{kind} {rng.randrange(1_000_000)}"

    return [[step() for _ in range(rng.randint(1, 3))] for _ in range(rng.randint(1, 3))]


def outcome(plan: Plan) -> str:
    """Return what is reported where nothing fails: the results of all calls, in their order."""
    steps = [step for steps in plan for step in steps]
    return json.dumps([f"{step} done" if isinstance(step, str) else outcome(step) for step in steps])


def following_plans(rng: random.Random) -> Callable[[Request], Reply]:
    """Return a model that follows the plan in its task, and fails every fifth time."""

    def as_call(step: Any) -> Call:
        if not isinstance(step, str):
            return call("worker", json.dumps(step))
        return Call("note", {"text": step}) if step.startswith("note") else Call("ask_user", {"question": step})

    def reply(request: Request) -> Reply:
        plan: Plan = json.loads(request.messages[1]["content"])
        rounds = [message for message in request.messages if message.get("tool_calls")]
        if rng.random() < 0.2:
            return Fail(500)
        if len(rounds) < len(plan):
            return Calls([as_call(step) for step in plan[len(rounds)]])
        return json.dumps(list(request.tool_results.values()))

    return reply


@pytest.mark.parametrize("seed", range(20))
async def test_nested_failures_cancels_and_answers_give_one_result(seed: int) -> None:
    rng = random.Random(seed)
    plan = made_up(rng, depth=3)
    client, notes = ScriptedModelClient(following_plans(rng)), list[str]()

    async def note(text: str) -> str:
        """Take a note."""
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        notes.append(text)
        return f"{text} done"

    def make(depth: int = 3) -> PausableAgent:
        nested = [make(depth - 1)] if depth else []
        return agent("worker" if depth < 3 else "lead", client, *nested, tools=[note], mixed_batch="run")

    made, rest = make(), None
    message: BaseChatMessage = TextMessage(source="user", content=json.dumps(plan))
    while rest is None or rest.questions:
        if rest is not None:
            message = answers(rest, *(rng.choice([f"{each.question} done", None]) for each in rest.questions))
        rest, made, token = None, await resumed_as(made, make()), CancellationToken()
        turn = asyncio.create_task(send(made, message, token=token))
        if rng.random() < 0.5:
            for _ in range(rng.randrange(60)):
                await asyncio.sleep(0)
            token.cancel()
        with suppress(ModelUnavailable, asyncio.CancelledError):
            rest = await turn
    assert rest.text == outcome(plan)
    assert len(notes) == len(set(notes))


# -- counting ---------------------------------------------------------------------------------------------------------


async def test_nested_usage_is_counted_once_under_its_paths() -> None:
    with tower_script(3, ASK, Fail(500), "done") as client:
        made = tower(client, 3)
        rest = await send(made, "Build it")
        made = await resumed_as(made, tower(client, 3))
        with pytest.raises(ModelUnavailable):
            await send(made, answers(rest, "Express"))
        made = await resumed_as(made, tower(client, 3))
        await send(made)
    used = made.usage
    assert [used[path].model_calls for path in ("lead", "lead/coder", "lead/coder/tester")] == [2, 2, 2]
    assert sum(each.completion_tokens for each in used.values()) == client.total_usage().completion_tokens
    assert sum(each.prompt_tokens for each in used.values()) == client.total_usage().prompt_tokens


async def test_nested_call_has_its_own_limits() -> None:
    again: list[Reply] = [call("coder"), call("coder"), "done"]
    with script(lead=again, coder=[ASK, "coded", ASK, "coded"]) as client:
        made = agent("lead", client, agent("coder", client, max_rounds=2, max_questions=1))
        rest = await send(made, "Build it")
        rest = await send(made, answers(rest, "Express"))
        assert (await send(made, answers(rest, "FastAPI"))).text == "done"
    assert client.requests[-1].tool_results == {"call_1_1": "coded", "call_4_1": "coded"}


# -- components -------------------------------------------------------------------------------------------------------


def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


class NoOptions(BaseModel):
    """A dumped client holds nothing: all that are loaded play one script."""


class DumpedClient(ScriptedModelClient, Component[NoOptions]):
    """A scripted client that a component dump can name."""

    component_config_schema = NoOptions
    component_provider_override = f"{__name__}.DumpedClient"
    shared: ClassVar[Script]

    def _to_config(self) -> NoOptions:
        return NoOptions()

    @classmethod
    def _from_config(cls, config: NoOptions) -> Self:
        return cls(cls.shared)


@pytest.mark.slow
async def test_nested_agent_dumped_while_paused_continues_when_loaded() -> None:
    coder: list[Reply] = [Call("shout", {"text": "hey"}), ASK, "coded"]
    DumpedClient.shared = Script({"the lead.": [call("coder"), "done"], "the coder.": coder})
    with DumpedClient(DumpedClient.shared) as client:
        made = agent("lead", client, agent("coder", client, tools=[shout]))
        dumped = json.dumps(made.dump_component().model_dump(mode="json"))
        with pytest.warns(UserWarning, match="FunctionTool"):
            first, second = [PausableAgent.load_component(json.loads(dumped)) for _ in range(2)]
        rest = await send(first, "Build it")
        assert (await send(await resumed_as(first, second), answers(rest, "Express"))).text == "done"
    assert client.requests[3].tool_results == {"call_2_1": "HEY", "call_3_1": "Express"}
