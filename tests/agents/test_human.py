"""The human in a running group chat: live mode, in which the team asks and does not stop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    TextMessage,
    UserInputRequestedEvent,
)
from autogen_agentchat.teams import Swarm
from autogen_core import CancellationToken
from worlds import roles_in

from upcall.agents import HumanProxyAgent, PausableAgent
from upcall.autogen.messages import answer_message, message_answers, message_questions, question_message
from upcall.options import TeamOptions
from upcall.questions.answer import Answer, Outcome
from upcall.questions.question import Option, Question
from upcall.teams import TeamResources, root_team
from upcall.testing import Call, Calls, OneAfterAnother, Reply, ScriptedHuman, ScriptedModelClient

FRAMEWORK = Question(
    id="q-framework",
    question="Which framework?",
    options=(Option(label="Express"), Option(label="FastAPI", description="Python")),
    allow_free_text=False,
    path=("lead", "coder"),
)
DATABASE = Question(id="q-database", question="Which database?", required=False, path=("lead", "coder"))

ASK = Call("ask_user", {"question": "Which framework?", "options": ["Express", "FastAPI"], "allow_free_text": False})
DEEP = '{"intent": "coding", "research_depth": "deep"}'
CLEAR = '{"needs_clarification": false}'
PLAN = '{"title": "Login", "sections": ["Form"]}'


def asked(*questions: Question) -> HandoffMessage:
    return question_message(questions, source="lead", user_proxy="user")


async def reply_of(human: HumanProxyAgent, *messages: BaseChatMessage) -> HandoffMessage:
    """Return what the human sends back."""
    message = (await human.on_messages(messages, CancellationToken())).chat_message
    assert isinstance(message, HandoffMessage)
    return message


async def run(team: Swarm, task: str) -> list[BaseAgentEvent | BaseChatMessage | TaskResult]:
    """Everything that happens until the team stops, within five seconds."""
    async with asyncio.timeout(5):
        return [item async for item in team.run_stream(task=task)]


def small_team(client: ScriptedModelClient, human: UserProxyAgent) -> Swarm:
    worker = PausableAgent("worker", client, user_proxy=human.name)
    return Swarm([worker, human], termination_condition=TextMessageTermination("worker"))


def root(replies: dict[str, Sequence[Reply]], folder: Path, human: UserProxyAgent) -> tuple[ScriptedModelClient, Swarm]:
    client = ScriptedModelClient({f"You are the {agent} ": text for agent, text in replies.items()})
    options = TeamOptions(check_questions=False)
    return client, root_team(lambda _: client, TeamResources(roles_in(folder)), options, human=human)


# -- the agent alone --------------------------------------------------------------------------------------------------


async def test_prompt_shows_who_asks_the_question_and_the_options() -> None:
    """S4-08."""
    with ScriptedHuman({"framework": "express"}) as human:
        await reply_of(HumanProxyAgent("user", input_func=human.input_func), asked(FRAMEWORK))
    assert human.prompts == [
        "coder (for lead) needs to know: Which framework?\n  1. Express\n  2. FastAPI - Python\nYour answer: "
    ]


async def test_answers_reach_the_outermost_asker_by_question_id() -> None:
    with ScriptedHuman({"framework": "2", "database": "SQLite"}) as human:
        message = await reply_of(HumanProxyAgent("user", input_func=human.input_func), asked(FRAMEWORK, DATABASE))
    assert message.target == "lead"
    assert {answer.question_id: answer.text for answer in message_answers(message)} == {
        "q-framework": "FastAPI",
        "q-database": "SQLite",
    }
    assert message.content == "Which framework? - FastAPI\nWhich database? - SQLite"


async def test_event_has_its_question_and_the_questions_id() -> None:
    """X12, S4-29, S4-32."""
    human = HumanProxyAgent("user", input_func=ScriptedHuman({"framework": "1", "database": "x"}).input_func)
    items = [item async for item in human.on_messages_stream([asked(FRAMEWORK, DATABASE)], CancellationToken())]
    events = [item for item in items if isinstance(item, UserInputRequestedEvent)]
    assert [event.request_id for event in events] == ["q-framework", "q-database"]
    emitted = [Question.model_validate(json.loads(event.metadata["upcall.questions"])[0]) for event in events]
    assert emitted == [FRAMEWORK, DATABASE]


async def test_input_function_can_learn_which_question_it_asks() -> None:
    ids = []

    async def input_func(prompt: str, token: CancellationToken | None = None) -> str:
        ids.append(UserProxyAgent.InputRequestContext.request_id())
        return "1"

    await reply_of(HumanProxyAgent("user", input_func=input_func), asked(FRAMEWORK, DATABASE))
    assert ids == ["q-framework", "q-database"]


async def test_refused_answer_is_asked_for_again_with_the_reason() -> None:
    with ScriptedHuman({"framework": OneAfterAnother(["Rails", "", "Express"])}) as human:
        message = await reply_of(HumanProxyAgent("user", input_func=human.input_func), asked(FRAMEWORK))
    assert message_answers(message)[0].selected == ("Express",)
    assert human.prompts[1].startswith("'Rails' is not an option of q-framework. Options: 1. Express, 2. FastAPI.")
    assert all("Which framework?" in prompt for prompt in human.prompts)


async def test_blank_reply_skips_what_may_be_skipped() -> None:
    """S0-61."""
    with ScriptedHuman({"database": " "}) as human:
        message = await reply_of(HumanProxyAgent("user", input_func=human.input_func), asked(DATABASE))
    assert [answer.outcome for answer in message_answers(message)] == [Outcome.SKIPPED]


async def test_ordinary_function_may_ask() -> None:
    human = HumanProxyAgent("user", input_func=lambda prompt: "Express")
    assert message_answers(await reply_of(human, asked(FRAMEWORK)))[0].text == "Express"


async def test_input_function_without_text_is_an_error() -> None:
    human = HumanProxyAgent("user", input_func=lambda prompt: None)  # type: ignore[arg-type]  # on purpose
    async with asyncio.timeout(2):
        with pytest.raises(Exception, match="input_func of 'user' returned NoneType"):
            await reply_of(human, asked(FRAMEWORK))


async def test_words_after_an_open_question_do_not_hide_it() -> None:
    """A team that was stopped at a question and is started again with a plain text asks that question."""
    with ScriptedHuman({"framework": "Express"}) as human:
        message = await reply_of(
            HumanProxyAgent("user", input_func=human.input_func),
            asked(FRAMEWORK),
            TextMessage(source="user", content="Where were we?"),
        )
    assert message_answers(message)[0].question_id == "q-framework"


async def test_question_that_was_answered_is_not_asked_again() -> None:
    old = answer_message([Answer(question_id="q-framework", text="Express")], target="lead")
    plain = HandoffMessage(source="lead", target="user", content="Anything else?")
    with ScriptedHuman({"Handoff received from lead": "no"}) as human:
        message = await reply_of(HumanProxyAgent("user", input_func=human.input_func), asked(FRAMEWORK), old, plain)
    assert message.content == "no"


async def test_cancelled_prompt_ends_at_once() -> None:
    token = CancellationToken()

    async def never(prompt: str, token: CancellationToken | None = None) -> str:
        await asyncio.sleep(3600)
        return ""

    human = HumanProxyAgent("user", input_func=never)
    running = asyncio.ensure_future(human.on_messages([asked(FRAMEWORK)], token))
    await asyncio.sleep(0.01)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 1)


async def test_dumped_human_loads() -> None:
    """Its input function is not part of a dump (autogen-agentchat 0.7.5)."""
    dumped = HumanProxyAgent("alice", input_func=lambda prompt: "").dump_component()
    loaded = HumanProxyAgent.load_component(json.loads(dumped.model_dump_json()))
    assert (type(loaded), loaded.name) == (HumanProxyAgent, "alice")


# -- in a team --------------------------------------------------------------------------------------------------------


async def test_small_team_asks_and_continues_without_stopping() -> None:
    human = ScriptedHuman({"framework": OneAfterAnother(["Rails", "Express"])})
    with human, ScriptedModelClient([ASK, "Written with Express."]) as client:
        items = await run(small_team(client, HumanProxyAgent("user", input_func=human.input_func)), "Build it")
    result = items[-1]
    assert isinstance(result, TaskResult)
    assert result.messages[-1].to_text() == "Written with Express."
    assert client.requests[1].tool_results == {"call_1_1": "Express"}


async def test_stock_user_proxy_works_too() -> None:
    """Its prompt does not hold the question, so the answer is to the first open one; a refused one is asked again."""
    human = ScriptedHuman({"Handoff received from worker": OneAfterAnother(["Rails", "express"])})
    with human, ScriptedModelClient([ASK, "Written with Express."]) as client:
        items = await run(small_team(client, UserProxyAgent("user", input_func=human.input_func)), "Build it")
    notes = [item for item in items if isinstance(item, HandoffMessage) and "is not an option" in item.content]
    assert [message_questions(note)[0].question for note in notes] == ["Which framework?"]
    assert client.requests[1].tool_results == {"call_1_1": "Express"}


@pytest.mark.needs("research", "workspace")
@pytest.mark.parametrize("name", ["user", "alice"])
async def test_human_of_any_name_is_asked_for_members(tmp_path: Path, name: str) -> None:
    """Clarifier, planner, lead, and two nested agents at a time: the run never stops."""
    aspect = {"aspect": "scope", "description": "", "clarification_question": "Which pages?", "possible_options": []}
    with ScriptedHuman(
        {"For whom": "Admins", "Which pages": "All", "framework": "1", "Which laws": "GDPR", "Publish": "yes"}
    ) as human:
        client, team = root(
            {
                "classifier": [DEEP],
                "clarifier": ['{"needs_clarification": true, "clarification_question": "For whom?"}', CLEAR],
                "planner": [json.dumps({"needs_clarification": True, "ambiguity_details": [aspect]}), CLEAR, PLAN],
                "lead": [
                    Calls([Call("coder", {"task": "Write"}), Call("researcher", {"task": "Look up"})]),
                    Call("ask_user", {"question": "Publish?"}),
                    '{"summary": "Published."}',
                ],
                "coder": [ASK, "Written.", "Written."],
                "researcher": [Call("ask_user", {"question": "Which laws?"}), '{"summary": "Found."}'],
            },
            tmp_path,
            HumanProxyAgent(name, input_func=human.input_func),
        )
        with client:
            items = await run(team, "Build a login")
    shown = [item.request_id for item in items if isinstance(item, UserInputRequestedEvent) and item.source == name]
    assert len(shown) == len(set(shown)) == len(human.prompts) == 5
    assert isinstance(items[-1], TaskResult)
    assert items[-1].messages[-1].to_text() == "Published."


@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_prompt_without_an_answer_is_repeated_by_new_teams(how: str) -> None:
    """The question stays open in the state, and no finished model call is made again."""
    token = CancellationToken()

    async def gone(prompt: str, _: CancellationToken | None = None) -> str:
        if how == "cancelled":
            token.cancel()
            await asyncio.sleep(3600)
        raise EOFError("the terminal is closed")

    human = ScriptedHuman({"framework": "Express"})
    with human, ScriptedModelClient([ASK, "Written with Express."]) as client:
        first = small_team(client, HumanProxyAgent("user", input_func=gone))
        with pytest.raises((asyncio.CancelledError, RuntimeError)):
            await asyncio.wait_for(first.run(task="Build it", cancellation_token=token), 5)
        second = small_team(client, HumanProxyAgent("user", input_func=human.input_func))
        await second.load_state(json.loads(json.dumps(await first.save_state())))
        result = await second.run()
    assert result.messages[-1].to_text() == "Written with Express."


@pytest.mark.needs("workspace")
async def test_one_team_does_one_task_after_another(tmp_path: Path) -> None:
    """S2-05: the second task is the one that is classified and planned."""
    with ScriptedHuman({"framework": "Express"}) as human:
        client, team = root(
            {
                "classifier": ['{"intent": "meta", "meta_response": "Hi!"}', DEEP],
                "clarifier": [CLEAR],
                "planner": [CLEAR, PLAN],
                "lead": [Call("coder", {"task": "Write it"}), '{"summary": "Done."}'],
                "coder": [ASK, "Written.", "Written."],
            },
            tmp_path,
            HumanProxyAgent("user", input_func=human.input_func),
        )
        with client:
            await run(team, "Hello!")
            items: list[Any] = await run(team, "Build a login")
    assert items[-1].messages[-1].to_text() == "Done."
    assert [request.messages[-1]["content"] for request in client.requests[:2]] == ["Hello!", "Build a login"]
