"""Stock AutoGen agents carry the questions of what works below them: nothing finished happens twice."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from autogen_agentchat.agents import (
    ApprovalRequest,
    ApprovalResponse,
    AssistantAgent,
    CodeExecutorAgent,
    MessageFilterAgent,
    MessageFilterConfig,
    PerSourceFilter,
    SocietyOfMindAgent,
    UserProxyAgent,
)
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.conditions import MaxMessageTermination, TextMessageTermination
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, TextMessage, UserInputRequestedEvent
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, SelectorGroupChat
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult

from upcall import Run, RunStatus, Upcall, ask, make_resumable
from upcall.agents import PausableAgent, with_questions
from upcall.testing import Call, Calls, Hang, Reply, ScriptedModelClient

ASK = Call("ask_user", {"question": "Which region?"})


class Shop:
    """A scripted model, and a tool with a side effect."""

    def __init__(self, **replies: Sequence[Reply]) -> None:
        self.client = ScriptedModelClient({f"<{name}>": list(wording) for name, wording in replies.items()})
        self.paid: list[str] = []

    def pay(self, amount: str) -> str:
        """Pay."""
        self.paid.append(amount)
        return f"paid {amount}"

    def confirm(self, amount: str) -> str:
        """Pay once the user agrees."""
        output = ask(f"Pay {amount}?").text
        return f"{self.pay(amount)}, user said {output}"

    def ours(self, name: str, **options: Any) -> PausableAgent:
        return PausableAgent(name, self.client, system_message=f"<{name}>", **{"tools": [self.pay], **options})

    def stock(self, name: str, *tools: Any, **options: Any) -> AssistantAgent:
        return AssistantAgent(name, self.client, system_message=f"<{name}>", tools=[*tools], **options)

    def team(self, *members: ChatAgent) -> Team:
        return RoundRobinGroupChat([*members], name="crew", max_turns=len(members))


async def run_to_end(make: Callable[[], Team], *answers: str, store: str = "runs.db") -> tuple[Run, list[Run]]:
    """Return a run that is answered, each time by a new team in a new `Upcall`."""
    run = await Upcall(team=make, store=store).start("Buy it")
    paused = []
    for answer in answers:
        assert (run.status, run.error) == (RunStatus.AWAITING_CLARIFICATION, None)
        paused.append(run)
        run = await Upcall(team=make, store=store).answer(run.id, {run.questions[0].id: answer})
    assert (run.status, run.error) == (RunStatus.COMPLETED, None)
    return run, paused


FILTER = MessageFilterConfig(per_source=[PerSourceFilter(source="user", position="first", count=1)])


async def test_filtered_agent_continues_with_its_answer() -> None:
    shop = Shop(clerk=[Call("pay", {"amount": "5"}), ASK, "Bought."])
    run, (paused,) = await run_to_end(lambda: shop.team(MessageFilterAgent("till", shop.ours("clerk"), FILTER)), "eu")
    assert paused.questions[0].path == ("till", "clerk")
    assert (run.result, shop.paid) == ("Bought.", ["5"])
    assert shop.client.requests[-1].tool_results["call_2_1"] == "eu"


async def test_stock_user_proxy_text_passes_a_filter() -> None:
    shop = Shop(clerk=[ASK, "Bought."])
    user = UserProxyAgent("user", input_func=lambda prompt: "eu")
    boss = MessageFilterConfig(per_source=[PerSourceFilter(source="boss", position="last", count=1)])
    stop = TextMessageTermination("clerk") | MaxMessageTermination(8)
    team = RoundRobinGroupChat(
        [MessageFilterAgent("clerk", shop.ours("clerk"), boss), user], termination_condition=stop
    )
    await make_resumable(team, live=True).run(task=[TextMessage(source="boss", content="Buy it")])
    assert shop.client.requests[-1].tool_results == {"call_1_1": "eu"}


@pytest.mark.parametrize("kind", ["AgentTool", "TeamTool", "AgentTool of a stock agent with a tool that asks"])
async def test_question_below_a_stock_agents_tool_surfaces(kind: str) -> None:
    shop = Shop(
        lead=[Calls([Call("pay", {"amount": "1"}), Call("clerk", {"task": "<clerk>"})]), "Led."],
        clerk=[Call("pay", {"amount": "5"}), ASK, "Bought."]
        if "stock" not in kind
        else [Call("confirm", {"amount": "5"}), "Bought."],
    )

    def make() -> Team:
        tool: Any = AgentTool(shop.ours("clerk"))
        if kind == "TeamTool":
            tool = TeamTool(shop.team(shop.ours("clerk")), "clerk", "Buys.")
        if "stock" in kind:
            tool = AgentTool(shop.stock("clerk", shop.confirm, reflect_on_tool_use=True))
        return shop.team(shop.stock("lead", shop.pay, tool, reflect_on_tool_use=True))

    run, (paused,) = await run_to_end(make, "eu")
    assert paused.questions[0].path == (("lead", "clerk", "clerk") if kind == "TeamTool" else ("lead", "clerk"))
    assert (run.result, sorted(shop.paid)) == ("Led.", ["1", "5"])
    assert shop.client.requests[-1].tool_results == {"call_1_1": "paid 1", "call_1_2": "clerk: Bought."}
    assert run.usage["lead"].model_calls == 2


@pytest.mark.parametrize("converted", [False, True])
async def test_function_tool_of_a_stock_agent_asks(converted: bool) -> None:
    shop = Shop(clerk=[Calls([Call("pay", {"amount": "1"}), Call("confirm", {"amount": "5"})]), "Bought."])

    def make() -> Team:
        agent = shop.stock("clerk", shop.pay, shop.confirm, reflect_on_tool_use=True)
        return shop.team(with_questions(agent) if converted else agent)

    run, (paused,) = await run_to_end(make, "yes")
    assert (paused.questions[0].question, paused.questions[0].path) == ("Pay 5?", ("clerk",))
    assert (run.result, shop.paid) == ("Bought.", ["1", "5"])
    assert shop.client.requests[-1].tool_results["call_1_2"] == "paid 5, user said yes"


async def test_two_questions_of_one_batch_are_answered_in_turn() -> None:
    shop = Shop(clerk=[Calls([Call("one", {}), Call("two", {}), Call("pay", {"amount": "1"})]), "Bought."])

    def one() -> str:
        """Ask."""
        return f"one: {ask('First?').text}"

    def two() -> str:
        """Ask."""
        return f"two: {ask('Second?').text}"

    run, _ = await run_to_end(
        lambda: shop.team(shop.stock("clerk", one, two, shop.pay, reflect_on_tool_use=True)), "a", "b"
    )
    assert sorted(shop.client.requests[-1].tool_results.values()) == ["one: a", "paid 1", "two: b"]
    assert (run.result, shop.paid, len(shop.client.requests)) == ("Bought.", ["1"], 2)


async def test_stock_rounds_of_one_turn_are_replayed_in_order() -> None:
    shop = Shop(
        clerk=[
            Call("pay", {"amount": "1"}),
            Call("confirm", {"amount": "2"}),
            Call("confirm", {"amount": "3"}),
            "Bought.",
        ]
    )
    run, _ = await run_to_end(
        lambda: shop.team(shop.stock("clerk", shop.pay, shop.confirm, max_tool_iterations=9)), "yes", "yes"
    )
    assert (run.result, shop.paid, len(shop.client.requests)) == ("Bought.", ["1", "2", "3"], 4)
    assert run.usage["clerk"].model_calls == 4


async def test_what_comes_after_a_question_is_reported() -> None:
    """A question is none of the events of AutoGen's own that are counted when the turn is repeated."""
    shop = Shop(clerk=[Calls([Call("confirm", {"amount": "1"}), Call("pay", {"amount": "2"})]), "Bought."])
    run, _ = await run_to_end(
        lambda: shop.team(shop.stock("clerk", shop.pay, shop.confirm, reflect_on_tool_use=True)), "yes"
    )
    assert dict(run.tools) == {"clerk/confirm": 1, "clerk/pay": 1}


@pytest.mark.parametrize("is_stock", [False, True])
async def test_member_that_is_a_tool_too_remembers_the_group(is_stock: bool) -> None:
    """And what it did as a tool stays there; the tool's questions reach the user through its caller."""
    shop = Shop(
        clerk=["Hello.", Call("confirm", {"amount": "5"}), "Nested.", "Bye."],
        lead=[Call("clerk", {"task": "<clerk>"}), "Led."],
    )

    def make() -> Team:
        if is_stock:
            clerk: ChatAgent = shop.stock("clerk", shop.confirm, reflect_on_tool_use=True)
            lead: ChatAgent = shop.stock("lead", AgentTool(clerk), reflect_on_tool_use=True)  # type: ignore[arg-type]
        else:
            clerk = shop.ours("clerk", tools=[shop.confirm])
            lead = shop.ours("lead", agents=[clerk])
        return RoundRobinGroupChat([clerk, lead], max_turns=3)

    run, (paused,) = await run_to_end(make, "yes")
    assert (paused.questions[0].path, run.result) == (("lead", "clerk"), "Bye.")
    emitted = json.dumps(shop.client.requests[-1].messages)
    assert ("Buy it" in emitted, "Hello." in emitted, "Nested." in emitted) == (True, True, False)


async def test_society_of_mind_carries_the_questions_of_its_team() -> None:
    shop = Shop(
        clerk=[Call("pay", {"amount": "5"}), ASK, "Bought in eu."], helper=["Helped."], society=["It was bought."]
    )

    def make() -> Team:
        team = shop.team(shop.stock("helper"), shop.ours("clerk"))
        return shop.team(SocietyOfMindAgent("society", team, shop.client, instruction="<society>"))

    run, (paused,) = await run_to_end(make, "eu")
    assert paused.questions[0].path == ("society", "crew", "clerk")
    assert (run.result, shop.paid) == ("It was bought.", ["5"])
    emitted = json.dumps(shop.client.requests[-1].messages)
    assert "Helped." in emitted
    assert "Bought in eu." in emitted


async def test_society_of_mind_sums_up_each_message_once() -> None:
    shop = Shop(helper=["Helped."], clerk=[ASK, "Bought in eu."], society=["It was bought."])

    def make() -> Team:
        team = shop.team(shop.stock("helper"), shop.ours("clerk"))
        return shop.team(SocietyOfMindAgent("society", team, shop.client, instruction="<society>"))

    await run_to_end(make, "eu")
    texts = [each["content"] for each in shop.client.requests[-1].messages]
    assert (texts.count("Helped."), texts.count("Bought in eu.")) == (1, 1)


async def test_society_of_mind_knows_earlier_turns_after_a_pause() -> None:
    shop = Shop(helper=["One.", "Two."], society=["First.", "Second."], clerk=[ASK, "Bought.", "Done."])

    def make() -> Team:
        society = SocietyOfMindAgent("society", shop.team(shop.stock("helper")), shop.client, instruction="<society>")
        return RoundRobinGroupChat([society, shop.ours("clerk")], max_turns=3)

    await run_to_end(make, "eu")
    (emitted,) = [each.messages for each in shop.client.requests if "<helper>" in each.system][1:]
    assert [each["content"] for each in emitted[1:3]] == ["Buy it", "relevant previous messages"]


async def test_stock_tool_result_holds_the_messages_below_it() -> None:
    shop = Shop(
        lead=[Call("boss", {"task": "Go"}), "Led."],
        boss=[Call("clerk", {"task": "Buy"}), "Bossed."],
        clerk=[ASK, "Bought."],
    )

    def make() -> Team:
        boss = shop.stock("boss", AgentTool(shop.ours("clerk")), reflect_on_tool_use=True)
        return shop.team(shop.stock("lead", AgentTool(boss), reflect_on_tool_use=True))

    await run_to_end(make, "eu")
    assert shop.client.requests[-1].tool_results == {"call_1_1": "clerk: Bought.\n\nboss: Bossed."}  # As in AutoGen.


async def test_selector_function_sees_neither_questions_nor_answers() -> None:
    shop = Shop(clerk=[ASK, "Bought."], helper=["Helped."])
    seen: list[list[str]] = []

    def select(thread: Sequence[BaseAgentEvent | BaseChatMessage]) -> str:
        seen.append([each.to_text() for each in thread if isinstance(each, BaseChatMessage)])
        return ["clerk", "helper"][len(seen[-1]) - 1]

    def make() -> Team:
        members: list[ChatAgent | Team] = [shop.ours("clerk"), shop.stock("helper")]
        return SelectorGroupChat(members, shop.client, selector_func=select, max_turns=2)

    run, _ = await run_to_end(make, "eu")
    assert (run.result, seen) == ("Helped.", [["Buy it"], ["Buy it", "Bought."]])


@pytest.mark.parametrize("kind", ["AgentTool", "TeamTool", "team of ours"])
async def test_called_agent_gets_its_task_as_from_the_user(kind: str) -> None:
    shop = Shop(lead=[Call("till", {"task": "Sell tea"}), "Led."], clerk=[Call("confirm", {"amount": "5"}), "Sold."])

    def make() -> Team:
        clerk = shop.stock("clerk", shop.confirm, reflect_on_tool_use=True)
        till: Any = MessageFilterAgent("till", clerk, FILTER)
        if kind == "AgentTool":
            return shop.team(shop.stock("lead", AgentTool(till), reflect_on_tool_use=True))
        team = RoundRobinGroupChat([till], name="till", max_turns=1)
        if kind == "TeamTool":
            return shop.team(shop.stock("lead", TeamTool(team, "till", "Sells."), reflect_on_tool_use=True))
        return shop.team(shop.ours("lead", agents=[team]))

    run, _ = await run_to_end(make, "yes")
    emitted = next(each.messages for each in shop.client.requests if "<clerk>" in each.system)
    assert (run.result, emitted[1]["content"]) == ("Led.", "Sell tea")


class Counting(CodeExecutor):
    """It runs nothing, and counts."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        self.ran += [block.code for block in code_blocks]
        return CodeResult(exit_code=0, output="42")

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def restart(self) -> None: ...


@pytest.mark.parametrize("is_async", [False, True])
async def test_approval_of_code_is_a_question(is_async: bool) -> None:
    executor, shop = Counting(), Shop(runner=["```python\nprint(42)\n```", "It is 42."])

    def approve(request: ApprovalRequest) -> ApprovalResponse:
        answer = ask(f"Run this?\n{request.code}", ["yes", "no"])
        return ApprovalResponse(approved=answer.selected == ("yes",), reason=answer.text)

    async def approve_later(request: ApprovalRequest) -> ApprovalResponse:
        return approve(request)

    def make() -> Team:
        return shop.team(
            CodeExecutorAgent(
                "runner",
                executor,
                model_client=shop.client,
                system_message="<runner>",
                approval_func=approve_later if is_async else approve,
            )
        )

    run, (paused,) = await run_to_end(make, "yes")
    assert "print(42)" in paused.questions[0].question
    assert (run.result, executor.ran) == ("It is 42.", ["print(42)\n"])
    assert len(shop.client.requests) == 2


async def test_approval_of_code_keeps_its_id_after_a_kill() -> None:
    """It was answered while another branch worked; what answers it may be on its way."""
    shop = Shop(start=["```python\nprint(42)\n```"], slow=[Hang(), Hang()])

    def approve(request: ApprovalRequest) -> ApprovalResponse:
        return ApprovalResponse(approved=ask("Run this?").text == "yes", reason="")

    def make() -> Team:
        start, slow = shop.stock("start"), shop.stock("slow")
        runner = CodeExecutorAgent("runner", Counting(), sources=["start"], approval_func=approve)
        builder = DiGraphBuilder().add_node(start).add_node(slow).add_node(runner)
        builder.add_edge(start, slow).add_edge(start, runner)
        return GraphFlow([start, slow, runner], builder.build())

    async def take_question(stream: AsyncGenerator[Any, None]) -> str:
        async with aclosing(stream):
            return await anext(each.request_id async for each in stream if isinstance(each, UserInputRequestedEvent))

    first = await take_question(Upcall(team=make, store="runs.db").start_stream("Go", run_id="a-run"))
    assert await take_question(Upcall(team=make, store="runs.db").resume_stream("a-run")) == first
