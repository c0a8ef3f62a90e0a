"""The planner: asks about all it cannot plan with at once, then makes the plan (seed S3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from autogen_agentchat.messages import BaseChatMessage, HandoffMessage, TextMessage, UserInputRequestedEvent
from autogen_core.models import ModelFamily, ModelInfo
from autogen_ext.models.replay import ReplayChatCompletionClient
from conversation import cancelled_while, carried, say

from upcall.agents import Planner
from upcall.agents.planner import FALLBACK_SECTIONS
from upcall.answers import match_answers
from upcall.errors import ModelAuthenticationError, ModelError, ModelNotFound, ModelUnavailable
from upcall.handoffs import PLAN, answering, questions_in
from upcall.prompts import ToolInfo
from upcall.questions import ClarificationType, Question
from upcall.replies import Plan
from upcall.testing import Call, Fail, Hang, Reply, ScriptedModelClient

TASK = TextMessage(source="user", content="Search my files")
CLEAR = '{"needs_clarification": false, "ambiguity_details": []}'
PLAN_REPLY = json.dumps(
    {
        "title": "Find the files",
        "sections": ["Findings"],
        "steps": [
            {"step_id": "1", "description": "Search", "agent": "researcher"},
            {"step_id": "2", "description": "List them", "agent": "coder", "depends_on": ["1"]},
        ],
    }
)
BOTH = json.dumps(
    {
        "needs_clarification": True,
        "ambiguity_details": [
            {
                "aspect": "search_scope",
                "description": "It is not clear which documents to search",
                "clarification_question": "Which documents should be searched?",
                "possible_options": ["all_documents", "recent_documents"],
            },
            {
                "aspect": "output_format",
                "description": "The desired format is not given",
                "clarification_question": "In which format?",
                "possible_options": ["summary", "detailed_report", "bullet_points"],
            },
        ],
    }
)
"""S3-13: the example of the seed."""


def aspect(question: str) -> str:
    """A check that finds one unclear aspect."""
    details = [{"aspect": "topic", "description": "", "clarification_question": question, "possible_options": []}]
    return json.dumps({"needs_clarification": True, "ambiguity_details": details})


async def turn(agent: Planner, *messages: BaseChatMessage) -> HandoffMessage:
    """The hand-off that ends the agent's turn."""
    message = (await say(agent, *messages)).message
    assert isinstance(message, HandoffMessage)
    return message


def reply_to(asked: HandoffMessage, given: Mapping[str, str]) -> HandoffMessage:
    """The human's answers, by words of the questions in `asked`; what is left out stays open."""
    questions = questions_in(asked)
    by_id = {each.id: value for words, value in given.items() for each in questions if words in each.question}
    return answering(match_answers(by_id, questions), target=asked.source, questions=questions)


def plan_in(message: HandoffMessage) -> Plan:
    return Plan.model_validate_json(message.metadata[PLAN])


# -- planning ---------------------------------------------------------------------------------------------------------


async def test_a_clear_request_is_checked_and_planned_in_two_calls() -> None:
    """S3-31."""
    with ScriptedModelClient([CLEAR, PLAN_REPLY]) as client:
        message = await turn(Planner(client), TASK)
    assert message.target == "lead"
    assert plan_in(message) == Plan.model_validate_json(PLAN_REPLY)
    assert message.content == plan_in(message).as_markdown()


async def test_both_calls_are_shown_the_request_and_who_can_do_the_steps() -> None:
    """S3-40, S0-53."""
    handlers, tools = [ToolInfo("coder", "Writes code")], [ToolInfo("search_documents", "Finds lines")]
    with ScriptedModelClient([CLEAR, PLAN_REPLY]) as client:
        await turn(Planner(client, handlers=handlers, tools=tools), TASK)
    for request in client.requests:
        assert "Search my files" in request.system
        assert "- coder: Writes code" in request.system
    assert "- search_documents: Finds lines" in client.requests[0].system


@pytest.mark.parametrize("steps", ["not a list", [{"step_id": "1", "description": "x", "depends_on": ["9"]}]])
async def test_a_plan_that_cannot_be_worked_off_is_repaired(steps: object) -> None:
    """S3-42."""
    broken = json.dumps({"title": "T", "sections": ["S"], "steps": steps})
    with ScriptedModelClient([CLEAR, broken, PLAN_REPLY]) as client:
        message = await turn(Planner(client), TASK)
    assert plan_in(message).title == "Find the files"


# -- asking -----------------------------------------------------------------------------------------------------------


async def test_all_aspects_are_asked_about_at_once() -> None:
    """S3-06 to S3-14."""
    with ScriptedModelClient([BOTH]) as client:
        message = await turn(Planner(client), TASK)
    first, second = questions_in(message)
    assert message.target == "user"
    assert (first.header, first.question) == ("search_scope", "Which documents should be searched?")
    assert [option.label for option in second.options] == ["summary", "detailed_report", "bullet_points"]
    assert {first.clarification_type, second.clarification_type} == {ClarificationType.AMBIGUOUS_REQUIREMENT}
    assert first.path == second.path == ("planner",)


async def test_each_question_is_told_as_an_event_once() -> None:
    agent = Planner(ScriptedModelClient([BOTH]))
    rest = await say(agent, TASK)
    told = [event.request_id for event in rest.events if isinstance(event, UserInputRequestedEvent)]
    assert told == [question.id for question in rest.questions]
    assert len(told) == 2


async def test_planning_starts_again_with_the_request_and_all_answers() -> None:
    """S3-28, S3-29, S3-33, S3-36."""
    with ScriptedModelClient([BOTH, CLEAR, PLAN_REPLY]) as client:
        agent = Planner(client)
        asked = await turn(agent, TASK)
        agent = await carried(agent, Planner(client))
        message = await turn(agent, reply_to(asked, {"documents": "recent_documents", "format": "2"}))
    assert message.target == "lead"
    for request in client.requests[1:]:
        assert "Search my files" in request.system
        assert "Which documents should be searched? - recent_documents" in request.system
        assert "In which format? - detailed_report" in request.system


@pytest.mark.parametrize("order", [("documents", "format"), ("format", "documents")])
async def test_partial_answers_keep_the_rest_open(order: tuple[str, str]) -> None:
    given = {"documents": "all_documents", "format": "summary"}
    with ScriptedModelClient([BOTH, CLEAR, PLAN_REPLY]) as client:
        agent = Planner(client)
        asked = await turn(agent, TASK)
        rest = await turn(agent, reply_to(asked, {order[0]: given[order[0]]}))
        assert [order[1] in question.question for question in questions_in(rest)] == [True]
        assert len(client.requests) == 1
        agent = await carried(agent, Planner(client))
        message = await turn(agent, reply_to(rest, {order[1]: given[order[1]]}))
    assert message.target == "lead"
    assert "all_documents" in client.requests[2].system
    assert "summary" in client.requests[2].system


async def test_what_stays_open_is_not_told_again() -> None:
    agent = Planner(ScriptedModelClient([BOTH]))
    answer = reply_to(await turn(agent, TASK), {"format": "summary"})
    assert not (await say(agent, answer)).told(UserInputRequestedEvent)


async def test_at_most_three_rounds_of_questions() -> None:
    """S3-30, S3-34, X4: then there is a plan, without another check."""
    with ScriptedModelClient([*(aspect(f"Question {number}?") for number in range(3)), PLAN_REPLY]) as client:
        agent = Planner(client)
        message = await turn(agent, TASK)
        for number in range(3):
            agent = await carried(agent, Planner(client))
            message = await turn(agent, reply_to(message, {"Question": f"answer {number}"}))
    assert message.target == "lead"
    assert all(f"Question {number}? - answer {number}" in client.requests[3].system for number in range(3))


@pytest.mark.parametrize("word", ["no", "skip", "continue", "cancel", "approve"])
async def test_an_answer_to_the_planner_is_never_read_as_a_command(word: str) -> None:
    """X6."""
    with ScriptedModelClient([aspect("Include archives?"), CLEAR, PLAN_REPLY]) as client:
        agent = Planner(client)
        await turn(agent, reply_to(await turn(agent, TASK), {"archives": word}))
    assert f"Include archives? - {word}" in client.requests[2].system


async def test_what_other_agents_asked_is_part_of_the_request() -> None:
    """X11: the planner sees the whole dialog."""
    asked = Question(question="Which countries?", path=("clarifier",))
    answer = answering(match_answers("Japan", [asked]), target="clarifier", questions=[asked])
    with ScriptedModelClient([CLEAR, PLAN_REPLY]) as client:
        await turn(Planner(client), TASK, answer)
    assert all("Which countries? - Japan" in request.system for request in client.requests)


async def test_the_texts_of_a_stock_user_proxy_answer_one_question_after_the_other() -> None:
    with ScriptedModelClient([BOTH, CLEAR, PLAN_REPLY]) as client:
        agent = Planner(client)
        await turn(agent, TASK)
        rest = await turn(agent, HandoffMessage(source="user", target="planner", content="recent_documents"))
        assert ["format" in question.question for question in questions_in(rest)] == [True]
        await turn(agent, HandoffMessage(source="user", target="planner", content="3"))
    assert "Which documents should be searched? - recent_documents" in client.requests[2].system
    assert "In which format? - bullet_points" in client.requests[2].system


async def test_a_second_task_is_planned_without_the_answers_to_the_first() -> None:
    with ScriptedModelClient([aspect("Which folder?"), CLEAR, PLAN_REPLY, CLEAR, PLAN_REPLY]) as client:
        agent = Planner(client)
        await turn(agent, reply_to(await turn(agent, TASK), {"folder": "Documents"}))
        await turn(
            agent, TextMessage(source="lead", content="Done."), TextMessage(source="user", content="Write a game")
        )
    assert "Write a game" in client.requests[3].system
    assert "Which folder?" not in client.requests[3].system
    assert "Search my files" not in client.requests[4].system


# -- what models reply ------------------------------------------------------------------------------------------------

BROKEN: list[Any] = [
    pytest.param("All is clear to me.", id="prose"),
    pytest.param('{"needs_clarification": true, "ambiguity_details": []}', id="no aspect"),
    pytest.param('{"title": ', id="cut"),
    pytest.param('{"title": "T", "sections": []}', id="no sections"),
    pytest.param("", id="empty"),
    pytest.param(Call("transfer_to_lead"), id="tool call"),
]


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_check_that_cannot_be_read_is_repaired_once(broken: Reply) -> None:
    with ScriptedModelClient([broken, BOTH]) as client:
        message = await turn(Planner(client), TASK)
    assert len(questions_in(message)) == 2


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_check_that_fails_does_not_block_planning(broken: Reply) -> None:
    """S3-41."""
    with ScriptedModelClient([broken, broken, PLAN_REPLY]) as client:
        message = await turn(Planner(client), TASK)
    assert plan_in(message).title == "Find the files"


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_plan_that_cannot_be_read_is_repaired_once(broken: Reply) -> None:
    with ScriptedModelClient([CLEAR, broken, PLAN_REPLY]) as client:
        message = await turn(Planner(client), TASK)
    assert plan_in(message).title == "Find the files"


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_plan_that_cannot_be_read_after_one_repair_has_the_task_as_title(broken: Reply) -> None:
    """S0-62."""
    with ScriptedModelClient([CLEAR, broken, broken]) as client:
        message = await turn(Planner(client), TASK)
    assert plan_in(message) == Plan(title="Search my files", sections=FALLBACK_SECTIONS)


@pytest.mark.parametrize("reply", [f"```json\n{PLAN_REPLY}\n```", f"The plan: {PLAN_REPLY} - good?"])
async def test_a_plan_is_found_in_one_call(reply: str) -> None:
    with ScriptedModelClient([f"```\n{CLEAR}\n```", reply]) as client:
        message = await turn(Planner(client), TASK)
    assert plan_in(message).title == "Find the files"


@pytest.mark.parametrize(
    ("task", "title"), [("\n\n# Report\nwith details", "# Report"), ("x" * 500, "x" * 79 + "…"), ("", "Plan")]
)
async def test_the_fallback_plan_has_a_short_title(task: str, title: str) -> None:
    with ScriptedModelClient([CLEAR, "?", "?"]) as client:
        message = await turn(Planner(client), TextMessage(source="user", content=task))
    assert plan_in(message).title == title


# -- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "kind"), [(Fail(401), ModelAuthenticationError), (Fail(404), ModelNotFound), (Fail(500), ModelError)]
)
async def test_a_plan_call_that_fails_does_not_repeat_the_check(failure: Fail, kind: type[ModelError]) -> None:
    with ScriptedModelClient([CLEAR, failure, PLAN_REPLY]) as client:
        agent = Planner(client)
        with pytest.raises(kind, match=r"^Agent 'planner': [^\n]*\Z"):
            await turn(agent, TASK)
        message = await turn(await carried(agent, Planner(client)))
    assert plan_in(message).title == "Find the files"
    assert client.requests[2].messages == client.requests[1].messages


async def test_a_check_that_finds_nothing_after_answers_is_not_repeated_either() -> None:
    with ScriptedModelClient([BOTH, CLEAR, Fail(500), PLAN_REPLY]) as client:
        agent = Planner(client)
        asked = await turn(agent, TASK)
        with pytest.raises(ModelUnavailable):
            await turn(agent, reply_to(asked, {"documents": "1", "format": "1"}))
        message = await turn(await carried(agent, Planner(client)))
    assert message.target == "lead"


@pytest.mark.parametrize(
    "replies",
    [["?", Fail(500), CLEAR, PLAN_REPLY], [CLEAR, "?", Fail(500), PLAN_REPLY]],
    ids=["of the check", "of the plan"],
)
async def test_a_repair_that_fails_is_made_again_but_not_the_call_before_it(replies: list[Reply]) -> None:
    with ScriptedModelClient(replies) as client:
        agent = Planner(client)
        with pytest.raises(ModelUnavailable):
            await turn(agent, TASK)
        message = await turn(await carried(agent, Planner(client)))
    assert plan_in(message).title == "Find the files"


async def test_a_cancelled_call_ends_at_once_and_can_be_made_again() -> None:
    with ScriptedModelClient([CLEAR, Hang(), PLAN_REPLY]) as client:
        agent = Planner(client)
        await cancelled_while(agent, lambda: len(client.requests) == 2, "token", TASK.content)
        assert plan_in(await turn(await carried(agent, Planner(client)))).title == "Find the files"


async def test_messages_that_come_again_are_taken_once() -> None:
    with ScriptedModelClient([BOTH, Fail(500), CLEAR, PLAN_REPLY]) as client:
        agent = Planner(client)
        answer = reply_to(await turn(agent, TASK, TASK), {"documents": "1", "format": "1"})
        with pytest.raises(ModelUnavailable):
            await turn(agent, answer)
        await turn(await carried(agent, Planner(client)), answer, answer)
    assert client.requests[3].system.count("In which format? - summary") == 1


# -- component --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("structured", "json_object", "promises"),
    [(True, True, ["AmbiguityCheck", "Plan"]), (False, True, [True, True]), (False, False, [None, None])],
)
async def test_the_strongest_promise_of_json_is_asked_for(
    structured: bool, json_object: bool, promises: list[object]
) -> None:
    info = ModelInfo(
        vision=False,
        function_calling=True,
        json_output=json_object,
        structured_output=structured,
        family=ModelFamily.UNKNOWN,
    )
    client = ReplayChatCompletionClient([CLEAR, PLAN_REPLY], model_info=info)
    await turn(Planner(client), TASK)
    asked = [call["json_output"] for call in client.create_calls]
    assert [each.__name__ if isinstance(each, type) else each for each in asked] == promises


async def test_a_dumped_planner_loads_and_works() -> None:
    made = Planner(
        ReplayChatCompletionClient([PLAN_REPLY]),
        name="strategist",
        max_clarifications=0,
        handlers=[ToolInfo("coder", "Writes code")],
        tools=[ToolInfo("a", "b")],
        target="boss",
        user_proxy="alice",
    )
    loaded = Planner.load_component(json.loads(made.dump_component().model_dump_json()))
    assert loaded.dump_component() == made.dump_component()
    message = await turn(loaded, TASK)
    assert (message.source, message.target) == ("strategist", "boss")
