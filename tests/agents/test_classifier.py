"""The classifier: one structured call decides who gets a message (seed S2)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import pytest
from autogen_agentchat.messages import BaseChatMessage, HandoffMessage, TextMessage, ThoughtEvent
from autogen_ext.models.replay import ReplayChatCompletionClient
from conversation import cancelled_while, resumed_as, send
from pydantic import ValidationError
from tables import rows

from upcall.agents import Classifier
from upcall.agents.asking.ask_policy import AskPolicy, AskVerdict, ClarifierTask
from upcall.agents.asking.task_judge import TaskJudge
from upcall.agents.classifier import HISTORY_CHARS, REPAIR_TIMEOUT_S, ClassifierConfig
from upcall.autogen.messages import CLASSIFICATION, ERROR, answer_message
from upcall.execution.model_clients import ModelClients
from upcall.prompts.contexts import ToolInfo
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.runs.outputs import Classification, Depth, DepthDecision, Intent, IntentResult
from upcall.settings import Settings
from upcall.testing import Call, Fail, Hang, LoopbackServer, Reply, Request, ScriptedModelClient

QUERY = TextMessage(source="user", content="What is CUDA?")
META = '{"intent": "meta", "meta_response": "Hi!"}'
SHALLOW = '{"intent": "research", "meta_response": null, "research_depth": "shallow"}'
DEEP = '{"intent": "research", "research_depth": "deep"}'


class FailsOnce(AskPolicy):
    """Says nothing about a task, and cannot even do that at first."""

    def __init__(self) -> None:
        self.is_broken = True

    async def judge(self, task: ClarifierTask) -> AskVerdict | None:
        if self.is_broken:
            self.is_broken = False
            raise RuntimeError("no")
        return None


def text(content: str, source: str = "user") -> TextMessage:
    return TextMessage(source=source, content=content)


async def turn(agent: Classifier, *messages: BaseChatMessage) -> BaseChatMessage:
    """Return the message that ends the agent's turn."""
    return (await send(agent, *messages)).message


async def system_message_of(replies: Sequence[Reply], **settings: Any) -> BaseChatMessage:
    """Return what a classifier whose model replies so says to QUERY; every reply must be used."""
    with ScriptedModelClient(replies) as client:
        return await turn(Classifier(client, **settings), QUERY)


def found_in(message: BaseChatMessage) -> Classification:
    """Return the classification that goes along with a message."""
    return Classification.model_validate_json(message.metadata[CLASSIFICATION])


# -- routing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("intent", "depth", "target"),
    rows("classifier/intent_and_depth_decide_who_gets_the_task"),
)
async def test_intent_and_depth_decide_who_gets_the_task(intent: str, depth: str | None, target: str) -> None:
    """S2-01, S2-08, S2-12, S2-39: one call is all that it takes."""
    message = await system_message_of([json.dumps({"intent": intent, "research_depth": depth})])
    assert isinstance(message, HandoffMessage)
    assert message.target == target


@pytest.mark.parametrize("intent", ["research", "coding"])
async def test_deep_task_without_clarifier_goes_to_the_planner(intent: str) -> None:
    """S0-06."""
    message = await system_message_of([json.dumps({"intent": intent, "research_depth": "deep"})], deep_target="planner")
    assert isinstance(message, HandoffMessage)
    assert message.target == "planner"


@pytest.mark.parametrize(
    ("meta", "shown"),
    [
        ({"meta_response": "Hi! I plan and write code."}, "Hi! I plan and write code."),
        ({"meta_response": ""}, "I'm here to help."),
        ({"meta_response": " \n"}, "I'm here to help."),
        ({"meta_response": None}, "I'm here to help."),
        ({}, "I'm here to help."),
    ],
)
async def test_meta_query_is_answered_at_once(meta: dict[str, Any], shown: str) -> None:
    """S2-01, S2-03, S2-11, S2-39."""
    message = await system_message_of([json.dumps({"intent": "meta", **meta})])
    assert isinstance(message, TextMessage)
    assert message.content == shown


@pytest.mark.parametrize(
    ("replies", "intent", "depth"),
    [
        ([META], Intent.META, None),
        (['{"intent": "meta", "research_depth": "deep"}'], Intent.META, None),
        ([SHALLOW], Intent.RESEARCH, Depth.SHALLOW),
        ([DEEP], Intent.RESEARCH, Depth.DEEP),
        (['{"intent": "coding"}'], Intent.CODING, Depth.SHALLOW),
        (["no idea", "no idea"], Intent.RESEARCH, Depth.DEEP),
    ],
    ids=["meta", "meta with a depth", "shallow", "deep", "coding", "unreadable"],
)
async def test_intent_is_typed_everywhere_with_depth_for_work(
    replies: Sequence[Reply], intent: Intent, depth: Depth | None
) -> None:
    """S2-13, S2-17, S2-19, S2-20."""
    found = found_in(await system_message_of(replies))
    assert found.user_intent == IntentResult(intent=intent)
    assert found.depth_decision == (DepthDecision(decision=depth) if depth else None)


@pytest.mark.parametrize(("reply", "texts"), [(META, ["Hi!"]), (SHALLOW, []), (DEEP, [])])
async def test_text_is_added_only_to_meta_queries(reply: str, texts: Sequence[str]) -> None:
    """S2-11, S2-18: its own reply is in the thread for the next query, a hand-over is not."""
    with ScriptedModelClient([reply, META]) as client:
        agent = Classifier(client)
        message = await turn(agent, QUERY)
        if texts:
            await turn(agent, text("And OpenCL?"))
            assert [each["content"] for each in client.requests[1].messages if each["role"] == "assistant"] == texts
        else:
            assert not isinstance(message, TextMessage)
            await turn(agent, text("CUDA is a platform.", "researcher"), text("And OpenCL?"))
            assert "shallow research task" not in str(client.requests[1].messages)


@pytest.mark.parametrize("messages", [[], [text("")], [text(" \n")]], ids=["none", "empty", "blank"])
async def test_empty_message_is_deep_research_without_a_call(messages: Sequence[TextMessage]) -> None:
    """S2-37."""
    with ScriptedModelClient([]) as client:
        message = await turn(Classifier(client), *messages)
    assert isinstance(message, HandoffMessage)
    assert message.target == "clarifier"
    assert found_in(message).depth_decision == DepthDecision(decision=Depth.DEEP)


# -- the call ---------------------------------------------------------------------------------------------------------


async def test_prompt_shows_the_query_time_and_tools() -> None:
    """S2-05, S2-22, S2-26, S2-27, S2-29."""
    with ScriptedModelClient([SHALLOW]) as client:
        await turn(Classifier(client, tools=[ToolInfo("search_documents", "Finds lines.")]), QUERY)
    system = client.requests[0].system
    assert "-----\nWhat is CUDA?\n-----" in system
    assert re.search(r"Today is \d{4}-\d\d-\d\d \d\d:\d\d UTC\.", system)
    assert "- search_documents: Finds lines." in system


@pytest.mark.parametrize(
    ("user_info", "emitted"),
    [
        ({"name": "Ada", "email": "ada@example.org"}, "The user is Ada (ada@example.org)."),
        ({"name": "Ada"}, "The user is Ada."),
        ({"email": "ada@example.org"}, "The user is unknown (ada@example.org)."),
        ({}, None),
    ],
)
async def test_prompt_names_the_user_where_that_is_known(user_info: Mapping[str, str], emitted: str | None) -> None:
    """S2-15, S2-28."""
    with ScriptedModelClient([SHALLOW]) as client:
        await turn(Classifier(client, user_info=user_info), QUERY)
    system = client.requests[0].system
    assert emitted in system if emitted else "The user is " not in system


async def test_prompt_lists_each_file_in_one_short_line() -> None:
    with ScriptedModelClient([SHALLOW, SHALLOW]) as client:
        await turn(Classifier(client, files=["a.py", "b\n-----\nc.md", "\udcff.txt", "n" * 5_000]), QUERY)
        await turn(Classifier(client), QUERY)
    (emitted,) = (line for line in client.requests[0].system.splitlines() if line.startswith("These files"))
    assert "a.py, b ----- c.md, " in emitted
    assert len(emitted) < 500
    json.dumps(client.requests[0].body).encode()
    assert "These files" not in client.requests[1].system


async def test_prompt_asks_for_intent_reply_and_depth_as_json() -> None:
    """S2-04, S2-30."""
    with ScriptedModelClient([SHALLOW]) as client:
        await turn(Classifier(client), QUERY)
    system = client.requests[0].system
    assert 'intent:\n- "meta"' in system
    assert "Answer them yourself in meta_response" in system
    assert 'research_depth (null when intent is "meta"):\n- "shallow"' in system
    schema, _ = json.JSONDecoder().raw_decode(system, system.index('{"', system.index("It must fit this JSON schema:")))
    assert list(schema["properties"]) == ["intent", "meta_response", "research_depth", "missing"]
    assert system.endswith("-----\nWhat is CUDA?\n-----")  # Last: what stands before it is the same for each message.


async def test_latest_query_is_classified() -> None:
    """S2-05, S2-14: a team that is given one task after another has the earlier ones in its thread."""
    with ScriptedModelClient(['{"intent": "meta", "meta_response": "Hi!"}', SHALLOW]) as client:
        agent = Classifier(client)
        await turn(agent, TextMessage(source="user", content="Hello!"))
        await turn(agent, QUERY)
    assert client.requests[1].messages[-1]["content"] == "What is CUDA?"


def talk(length: int) -> list[TextMessage]:
    """So many messages of a conversation, the user's and the assistant's by turns."""
    return [text(f"said {number}", ("user", "assistant")[number % 2]) for number in range(length)]


@pytest.mark.parametrize(
    ("before", "settings", "shown"),
    [
        (4, {}, 4),
        (30, {}, 19),
        (30, {"max_history": 20}, 19),
        (30, {"max_history": 5}, 4),
        (30, {"max_history": 1}, 0),
        (30, {"max_history": 0}, 0),
    ],
)
async def test_history_keeps_the_latest_messages_and_the_query(
    before: int, settings: dict[str, int], shown: int
) -> None:
    """S2-06, S2-14, S2-40: 20 by default, the query included."""
    output = talk(before)
    with ScriptedModelClient([SHALLOW]) as client:
        await turn(Classifier(client, **settings), *output, QUERY)  # type: ignore[arg-type]
    system, *history, query = [(each["role"], each["content"]) for each in client.requests[0].messages]
    kept = output[before - shown :]
    assert system[0] == "system"
    assert history == [(each.source, each.content) for each in kept]
    assert query == ("user", "What is CUDA?")


async def test_history_holds_messages_and_answers_but_no_handoffs() -> None:
    """S2-06."""
    asked = Question(question="Which GPU?", path=("researcher",))
    answered = answer_message([Answer(question_id=asked.id, text="Mine")], target="researcher", questions=[asked])
    handed = HandoffMessage(source="researcher", target="clarifier", content="too large")
    with ScriptedModelClient([SHALLOW, SHALLOW]) as client:
        agent = Classifier(client)
        await turn(agent, text("Is it fast?"))
        await turn(agent, handed, answered, text(" "), text("It is.", "lead"), QUERY)
    assert [(each["role"], each["content"]) for each in client.requests[1].messages[1:]] == [
        ("user", "Is it fast?"),
        ("user", "Which GPU? - Mine"),
        ("assistant", "It is."),
        ("user", "What is CUDA?"),
    ]


async def test_history_marks_where_a_long_message_is_cut() -> None:
    with ScriptedModelClient([SHALLOW]) as client:
        await turn(Classifier(client), text("Read this"), text("x" * 50_000, "assistant"), QUERY)
    shown = client.requests[0].messages[2]["content"]
    assert len(shown) <= HISTORY_CHARS
    assert "of 50000 characters are left out here" in shown


async def test_query_too_long_is_cut_but_handed_off_whole() -> None:
    long = f"Summarise this: {'x' * 50_000}"
    with ScriptedModelClient([SHALLOW]) as client:
        message = await turn(Classifier(client, max_context_chars=1_000), text(long))
    assert len(client.requests[0].messages[-1]["content"]) <= 1_000
    assert long in message.to_model_text()


@pytest.mark.parametrize(("verbose", "level"), [(False, "DEBUG"), (True, "INFO")])
async def test_verbose_classifier_logs_what_the_model_wrote(
    verbose: bool, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    """S2-23."""
    caplog.set_level(logging.DEBUG, "upcall")
    await system_message_of([SHALLOW], verbose=verbose)
    assert [(each.levelname, each.getMessage()) for each in caplog.records if each.name == "upcall"] == [
        (level, f"classifier replied: {SHALLOW}")
    ]


async def test_call_is_emitted_as_a_thought_with_its_tokens() -> None:
    agent = Classifier(ScriptedModelClient([SHALLOW]))
    thoughts = [event for event in (await send(agent, QUERY)).events if isinstance(event, ThoughtEvent)]
    assert [thought.content for thought in thoughts] == ["a shallow research task"]
    assert thoughts[0].models_usage is not None
    assert thoughts[0].models_usage.prompt_tokens > 0


# -- what models reply ------------------------------------------------------------------------------------------------


async def test_repair_shows_the_model_its_reply_and_error() -> None:
    with ScriptedModelClient(['{"depth": "deep"}', SHALLOW]) as client:
        await turn(Classifier(client), QUERY)
    reply, problem = client.requests[1].messages[-2:]
    assert reply == {"role": "assistant", "content": '{"depth": "deep"}'}
    assert "intent: Field required" in problem["content"]


@pytest.mark.parametrize("nothing", ["", " ", Call("search_web", {"query": "CUDA"})])
async def test_repair_holds_no_empty_message_and_no_call(nothing: Reply) -> None:
    """S0-65: servers refuse both."""
    with ScriptedModelClient([nothing, SHALLOW]) as client:
        await turn(Classifier(client), QUERY)
    assert [each["role"] for each in client.requests[1].messages] == ["system", "user", "user"]
    assert all(each["content"].strip() for each in client.requests[1].messages)


# -- what goes wrong --------------------------------------------------------------------------------------------------

KEY = "sk-very-secret"
READ_NO_REPLY = "sent a reply that cannot be read"

FAILURES: list[Any] = [
    pytest.param(Fail(401, KEY), "refused the key (HTTP 401). Check OPENAI_API_KEY", id="401"),
    pytest.param(Fail(404, KEY), "(HTTP 404). Check the model name, the base URL and the API key.", id="S2-31 404"),
    pytest.param(Fail(429, KEY), "limits the rate or the quota (HTTP 429). Try again later.", id="429"),
    pytest.param(Fail(500, KEY), "failed (HTTP 500). Try again later.", id="S2-10 500"),
    pytest.param(
        Fail(504, KEY), "did not answer in time. Raise models.timeout in the settings (team.llm_timeout", id="S2-32 504"
    ),
    pytest.param(
        Hang(), "did not answer in time. Raise models.timeout in the settings (team.llm_timeout", id="S2-32 hangs"
    ),
    pytest.param(TypeError(KEY), f"{READ_NO_REPLY} (TypeError). Check that the base URL", id="S2-41 TypeError"),
    pytest.param(
        RuntimeError(f"{KEY}\nTraceback"), "the model call failed (RuntimeError). Try again.", id="S2-41 other"
    ),
]


class Failing:
    """Fails in one way, then says the rest."""

    def __init__(self, failure: Reply | Exception, *then: Reply) -> None:
        self.left = [failure, *then]

    def __call__(self, request: Request) -> Reply:
        reply = self.left.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def assert_friendly(message: BaseChatMessage) -> None:
    """Check that it is a text of one line that says what to do, marked as an error, without traceback and key."""
    assert isinstance(message, TextMessage)
    assert message.metadata == {ERROR: message.content}
    assert len(message.content.splitlines()) == 1
    assert "Check" in message.content or "ry again" in message.content
    assert "Traceback" not in message.content
    assert KEY not in message.content


@pytest.mark.parametrize(("failure", "words"), FAILURES)
async def test_failed_call_ends_the_turn_with_a_friendly_message(failure: Reply | Exception, words: str) -> None:
    """S2-07, S2-09, S2-10, S2-13, S2-24, S2-31 to S2-33, S2-41."""
    model = Failing(failure)
    message = await turn(Classifier(ScriptedModelClient(model), llm_timeout=0.05), QUERY)
    assert_friendly(message)
    assert words in message.to_text()
    assert model.left == []


@pytest.mark.parametrize(("status", "emitted"), [(401, True), (404, True), (429, True), (500, True), (504, False)])
async def test_server_error_is_quoted_without_the_key(status: int, emitted: bool) -> None:
    """S2-31, S2-32."""
    with LoopbackServer([Fail(status, f"No model for {KEY}\nhere")], api_key=KEY) as server:
        settings = Settings.read(
            None, models={"model": "m", "base_url": server.base_url, "api_key": KEY, "max_retries": 0}
        )
        client = ModelClients(settings)
        message = await turn(Classifier(client("classifier")), QUERY)
        await client.close()
    assert_friendly(message)
    assert ("No model for [key] here" in message.to_text()) is emitted


class Odd(ScriptedModelClient):
    """A client that cannot even say what it is."""

    @property
    def model_info(self) -> NoReturn:  # type: ignore[override]
        raise KeyError(f"{KEY}\nTraceback")


async def test_whatever_else_is_raised_is_apologised_for() -> None:
    """S2-41."""
    message = await turn(Classifier(Odd([])), QUERY)
    assert_friendly(message)
    assert message.to_text().startswith("I'm sorry, something went wrong while I read your message (KeyError).")


@pytest.mark.parametrize(("failure", "words"), FAILURES)
async def test_state_lets_a_new_object_continue_after_a_failure(failure: Reply | Exception, words: str) -> None:
    """And the model is not shown what was written of the failure."""
    client = ScriptedModelClient(Failing(failure, SHALLOW))
    first = Classifier(client, llm_timeout=0.05)
    failed = await turn(first, QUERY)
    message = await turn(await resumed_as(first, Classifier(client)), failed)
    assert isinstance(message, HandoffMessage)
    assert message.target == "researcher"
    assert client.requests[1].messages[1:] == [{"role": "user", "content": "What is CUDA?"}]


def test_repair_may_take_fifteen_seconds() -> None:
    """S2-38."""
    assert REPAIR_TIMEOUT_S == 15


@pytest.mark.parametrize(
    ("failure", "repair_seconds", "llm_timeout"),
    [(Hang(), 0.05, 90), (Hang(), 3600, 0.5), (Fail(500), 15, 90), (Fail(401), 15, 90)],
    ids=["too slow for a repair", "too slow for any call", "500", "401"],
)
async def test_repair_that_fails_falls_back_to_deep_research(
    failure: Reply, repair_seconds: float, llm_timeout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2-38: two calls, never a third."""
    monkeypatch.setattr("upcall.agents.classifier.REPAIR_TIMEOUT_S", repair_seconds)
    message = await system_message_of(["no idea", failure], llm_timeout=llm_timeout)
    assert isinstance(message, HandoffMessage)
    assert message.target == "clarifier"
    assert found_in(message).depth_decision == DepthDecision(decision=Depth.DEEP)


async def test_first_call_has_the_whole_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """S2-24: the cap on the repair is for the repair alone."""
    monkeypatch.setattr("upcall.agents.classifier.REPAIR_TIMEOUT_S", 0.0)
    message = await system_message_of([SHALLOW])
    assert isinstance(message, HandoffMessage)
    assert message.target == "researcher"


async def test_message_repeated_after_a_failure_is_taken_once() -> None:
    """AutoGen's container clears its buffer only after a turn that ends well."""
    with ScriptedModelClient([Fail(500), SHALLOW]) as client:
        agent = Classifier(client)
        await turn(agent, QUERY)
        await turn(agent, QUERY)
    assert client.requests[1].messages[-1]["content"] == "What is CUDA?"


@pytest.mark.parametrize(("more", "calls"), [([], 1), ([text("And what is CUDNN?")], 2)], ids=["again", "new text"])
async def test_classification_is_that_of_the_newest_text(more: Sequence[BaseChatMessage], calls: int) -> None:
    """The judge of the first text fails."""
    with ScriptedModelClient([SHALLOW, DEEP][:calls]) as client:
        agent = Classifier(client, judge=TaskJudge(FailsOnce()))
        assert ERROR in (await turn(agent, QUERY)).metadata
        message = await turn(agent, QUERY, *more)
    assert found_in(message).depth is (Depth.DEEP if more else Depth.SHALLOW)


async def test_repair_of_an_earlier_text_is_forgotten() -> None:
    """It is cancelled, and the user writes something else."""
    with ScriptedModelClient(["no JSON", Hang(), DEEP]) as client:
        agent = Classifier(client)
        await cancelled_while(agent, lambda: len(client.requests) == 2, "token", QUERY)
        await turn(agent, text("Compare CUDA and Metal"))
    assert "no JSON" not in json.dumps(client.requests[-1].messages)


# -- state and component ----------------------------------------------------------------------------------------------


async def test_dumped_classifier_loads_and_works() -> None:
    client = ReplayChatCompletionClient([DEEP])
    made = Classifier(
        client,
        name="door",
        tools=[ToolInfo("a", "b")],
        user_info={"name": "Ada"},
        llm_timeout=5,
        max_history=7,
        deep_target="planner",
    )
    loaded = Classifier.load_component(json.loads(made.dump_component().model_dump_json()))
    assert loaded.dump_component() == made.dump_component()
    config = ClassifierConfig.model_validate(made.dump_component().config)
    assert (config.llm_timeout, config.max_history, config.user_info) == (5, 7, {"name": "Ada"})
    message = await turn(loaded, QUERY)
    assert isinstance(message, HandoffMessage)
    assert (message.source, message.target) == ("door", "planner")


def test_classifier_needs_only_a_model_and_has_other_defaults() -> None:
    """S2-21 to S2-24, S2-40."""
    with pytest.raises(ValidationError, match="model_client"):
        ClassifierConfig.model_validate({})
    made = Classifier(ReplayChatCompletionClient([]))
    config = ClassifierConfig.model_validate(made.dump_component().config)
    assert (config.tools, config.verbose, config.llm_timeout, config.max_history) == ((), False, 90, 20)
