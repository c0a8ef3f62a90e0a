"""The first look: the odds of one token decide whether something is asked, the model what."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from ask_replies import CLEAR_LOOK, LACKING_LOOK, for_run, list_needs, look, write_question
from autogen_agentchat.messages import ThoughtEvent
from autogen_core.models import (
    ChatCompletionTokenLogprob,
    CreateResult,
    RequestUsage,
    TopLogprob,
)
from autogen_ext.models.openai import OpenAIChatCompletionClient
from conversation import TurnResult, answers, resumed_as, send
from scenario import CLEAR, TASK, upcall
from settings_files import write_settings

from upcall import RunStatus, Settings, Upcall, UserInputRequired
from upcall.agents import Clarifier
from upcall.agents.asking.first_token import find_probability, find_shift, read_first_look
from upcall.agents.clarifier import MAX_QUESTION_TOKENS
from upcall.options import AskFor
from upcall.prompts.contexts import Document
from upcall.questions.question import Detail
from upcall.runs.asked_topics import AskedTopic
from upcall.testing import Call, Fail, LoopbackServer, Reply, Say
from upcall.testing.model import MODEL_INFO
from upcall.words import count_words

UNWEIGHTY, WEIGHTY = list_needs(area="low"), list_needs(area="high")
SAME = '{"first": "the IEA", "second": "the IEA", "effect": "nothing"}'
NONE_LISTED = '{"candidates": [], "needs_clarification": false}'

Build = Callable[..., Clarifier]


NAMED = "the area"
"""What the model names as missing."""

WRITTEN = write_question()
"""What it then writes."""


@pytest.fixture
def servers() -> Iterator[Callable[..., LoopbackServer]]:
    """Start servers that tell log probabilities; all they are scripted to say must be asked for."""
    with ExitStack() as stack:
        yield lambda *replies, owned_by="llamacpp": stack.enter_context(LoopbackServer(replies, owned_by=owned_by))


@pytest.fixture
async def build() -> Any:
    """Build clarifiers whose model is behind a server."""
    made: list[OpenAIChatCompletionClient] = []

    def build_one(server: LoopbackServer, *, small: bool = True, **options: Any) -> Clarifier:
        info = {**MODEL_INFO, "small": small}
        made.append(
            OpenAIChatCompletionClient(
                model="m", base_url=server.base_url, api_key="k", model_info=info, timeout=10, max_retries=0
            )
        )
        return Clarifier(made[-1], **{"check_questions": False, **options})

    yield build_one
    for client in made:
        await client.close()


def thoughts(rest: TurnResult) -> list[str]:
    return [each.to_text() for each in rest.events_of(ThoughtEvent) if each.to_text().startswith("(first look")]


# -- what it decides --------------------------------------------------------------------------------------------------


async def test_look_below_threshold_asks_and_calls_nothing(servers: Any, build: Build) -> None:
    rest = await send(build(server := servers(CLEAR_LOOK)), "Add two and two")
    assert rest.text == "Nothing needs to be clarified."
    assert thoughts(rest) == ["(first look: 0.10, threshold 0.50: nothing has to be asked)"]
    assert server.requests[0].messages[-1]["content"] == "Add two and two"


async def test_look_at_threshold_asks_for_what_is_missing(servers: Any, build: Build) -> None:
    rest = await send(build(servers(LACKING_LOOK, NAMED, WRITTEN)), "Summarise the report")
    assert [each.question for each in rest.questions] == ["Which area?"]
    assert thoughts(rest) == ["(first look: 0.90, threshold 0.50: something has to be asked)"]


async def test_look_asks_the_weightiest_where_nothing_is_named(servers: Any, build: Build) -> None:
    rest = await send(build(servers(LACKING_LOOK, "nothing", UNWEIGHTY)), "Summarise the report")
    assert [each.question for each in rest.questions] == ["Which area?"]


async def test_no_second_look_drops_what_has_to_be_asked(servers: Any, build: Build) -> None:
    agent = build(servers(LACKING_LOOK, "nothing", UNWEIGHTY, SAME), check_questions=True)
    assert (await send(agent, "Summarise the report")).questions


async def test_question_that_is_written_gets_no_second_look(servers: Any, build: Build) -> None:
    agent = build(server := servers(LACKING_LOOK, NAMED, WRITTEN), check_questions=True)
    assert (await send(agent, "Summarise the report")).questions
    assert server.calls == 3


@pytest.mark.parametrize(("threshold", "asks"), [(0.3, True), (0.7, False)])
async def test_its_threshold_is_the_setting(threshold: float, asks: bool, servers: Any, build: Build) -> None:
    replies = [look(0.5), *([NAMED, WRITTEN] if asks else [])]
    assert bool((await send(build(servers(*replies), ask_threshold=threshold), TASK)).questions) is asks


async def test_it_sees_the_documents_and_what_was_tried(servers: Any, build: Build) -> None:
    agent = build(server := servers(CLEAR_LOOK), documents=[Document("report.pdf", "a report")])
    await send(agent, "Summarise the report")
    assert "report.pdf" in server.requests[0].messages[-1]["content"]


async def test_its_tokens_are_those_of_the_run(servers: Any, build: Build) -> None:
    (thought,) = (await send(build(servers(CLEAR_LOOK)), "Add two and two")).events_of(ThoughtEvent)
    assert isinstance(thought, ThoughtEvent)
    assert thought.models_usage is not None
    assert thought.models_usage.completion_tokens == 1


# -- what is missing --------------------------------------------------------------------------------------------------


async def test_missing_aspects_are_named_to_the_model_that_writes(servers: Any, build: Build) -> None:
    server = servers(LACKING_LOOK, NAMED, WRITTEN)
    await send(build(server), "Summarise the report")
    assert server.requests[2].messages[-1]["content"] == (
        "Summarise the report\n\n(What only the user can tell: the area)"
    )


async def test_small_model_cannot_write_without_end(servers: Any, build: Build) -> None:
    await send(build(server := servers(LACKING_LOOK, NAMED, WRITTEN)), "Summarise the report")
    assert [each.body.get("max_tokens") for each in server.requests] == [1, None, MAX_QUESTION_TOKENS]


@pytest.mark.parametrize(
    "named",
    [
        "taste: tone of the letter.",
        "Before I begin, I need to know your taste: tone of the letter.",
        "Before I begin, I need to know tone of the letter. Please tell me.\nThank you.",
    ],
)
async def test_missing_aspects_are_read_from_a_sentence(named: str, servers: Any, build: Build) -> None:
    await send(build(server := servers(LACKING_LOOK, named, WRITTEN)), "Write the letter")
    assert "(What only the user can tell: tone of the letter)" in server.requests[2].messages[-1]["content"]


async def test_look_asks_nothing_where_nothing_is_listed_or_named(servers: Any, build: Build) -> None:
    server = servers(LACKING_LOOK, "nothing", NONE_LISTED)
    assert (await send(build(server), "Answer the letter")).text == "Nothing needs to be clarified."


@pytest.mark.parametrize(("ask", "shown"), [("essential", False), ("preferences", True)])
async def test_tastes_are_named_to_users_who_want_them_asked(
    ask: AskFor, shown: bool, servers: Any, build: Build
) -> None:
    server = servers(look(0.9, ask), NAMED, WRITTEN)
    await send(build(server, ask=ask), "Summarise the report")
    examples = [each["content"] for each in server.requests[1].messages if each["role"] == "assistant"]
    assert all(each.startswith("Before I begin, I need to know ") for each in examples)
    assert not any("nothing" in each for each in examples)
    assert any("your taste: " in each for each in examples) is shown


@pytest.mark.parametrize(
    "text", ["nothing", "Nothing.", "Nothing is missing.", "", "long " * 40, Fail(400, "too long")]
)
async def test_what_names_nothing_leaves_the_question_as_it_is(text: Reply, servers: Any, build: Build) -> None:
    server = servers(LACKING_LOOK, text, WEIGHTY)
    rest = await send(build(server), "Write the letter")
    assert [each.question for each in rest.questions] == ["Which area?"]
    assert server.requests[2].messages[-1]["content"] == "Write the letter"


@pytest.mark.parametrize(
    ("replies", "asked"),
    [
        ([Call("search", {"query": "letter"}), WEIGHTY], ["Which area?"]),
        ([Call("search", {"query": "letter"}), NONE_LISTED], []),
        ([NONE_LISTED], []),
    ],
)
async def test_what_a_tool_may_find_is_not_asked_for(
    replies: list[Reply], asked: list[str], servers: Any, build: Build
) -> None:
    def search(query: str) -> str:
        """Search."""
        return "a letter"

    agent = build(servers(LACKING_LOOK, *replies), tools=[search])
    assert [each.question for each in (await send(agent, "Write the letter")).questions] == asked


# -- where there is none ----------------------------------------------------------------------------------------------


async def test_server_of_another_kind_gets_no_further_request(servers: Any, build: Build) -> None:
    rest = await send(build(server := servers(CLEAR, owned_by="openai")), TASK)
    assert thoughts(rest) == []
    assert server.calls == 1


async def test_model_of_a_known_family_gets_none(servers: Any, build: Build) -> None:
    rest = await send(build(servers(CLEAR), small=False), TASK)
    assert thoughts(rest) == []


@pytest.mark.parametrize(
    "emitted",
    [
        None,
        {},
        {"nothing": float("nan")},
        {"nothing": 0.7},
        {"nothing": 1e9},
        {"nothing": -0.1, "the": -0.1},
        {"<think>": -0.001, "nothing": -9.0},
    ],
)
async def test_reply_without_information_leaves_the_decision_to_the_model(
    emitted: Any, servers: Any, build: Build
) -> None:
    rest = await send(build(servers(Say("nothing", logprobs=emitted), WEIGHTY)), TASK)
    assert thoughts(rest) == ["(first look: the reply tells nothing)"]
    assert rest.questions


async def test_call_that_fails_leaves_it_to_the_model(servers: Any, build: Build) -> None:
    rest = await send(build(servers(Fail(400, "too long"), CLEAR)), TASK)
    assert rest.text == "Nothing needs to be clarified."
    assert thoughts(rest) == []


# -- what was dismissed before ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("score", "asks"), [(0.6, False), (0.9, True)])
async def test_dismissed_topic_is_asked_only_by_a_surer_look(
    score: float, asks: bool, servers: Any, build: Build
) -> None:
    kinds = [AskedTopic(detail=Detail.PLACE, asked=4, dismissed=3)]
    rest = await send(build(servers(look(score), NAMED, WRITTEN), asked_topics=kinds), TASK)
    assert bool(rest.questions) is asks


async def test_dismissed_kind_does_not_hold_back_another(servers: Any, build: Build) -> None:
    kinds = [AskedTopic(detail=Detail.BUDGET, asked=4, dismissed=4)]
    assert (await send(build(servers(look(0.6), NAMED, WRITTEN), asked_topics=kinds), TASK)).questions


# -- once a task ------------------------------------------------------------------------------------------------------


async def test_answered_question_is_the_models_to_follow_up(servers: Any, build: Build) -> None:
    first = build(servers(LACKING_LOOK, NAMED, WRITTEN))
    rest = await send(first, TASK)
    done = await send(await resumed_as(first, build(servers(UNWEIGHTY))), answers(rest, "The north"))
    assert "Answer: The north" in done.text


async def test_look_happens_once_in_a_turn_that_tools_interrupt(servers: Any, build: Build) -> None:
    def search(answer: str | None = None) -> str:
        """Search."""
        if answer is None:
            raise UserInputRequired("Which folder?")
        return answer

    first = build(servers(LACKING_LOOK, Call("search")), tools=[search])
    rest = await send(first, TASK)
    second = await resumed_as(first, build(servers(UNWEIGHTY), tools=[search]))
    assert [each.question for each in (await send(second, answers(rest, "Here"))).questions] == ["Which area?"]


async def test_each_task_is_looked_at(servers: Any, build: Build) -> None:
    agent = build(servers(CLEAR_LOOK, LACKING_LOOK, NAMED, WRITTEN))
    assert not (await send(agent, "Add two and two")).questions
    assert (await send(agent, "Summarise the report")).questions


@pytest.mark.slow
async def test_run_resumed_elsewhere_after_failure_takes_no_second_look() -> None:
    replies = for_run(looks=[LACKING_LOOK, NAMED, Fail(400, "no"), WRITTEN], clarifier=[])
    with LoopbackServer(replies, owned_by="vllm") as server:
        chosen = {
            "models": {"model": "m", "base_url": server.base_url, "small": True},
            "store": {"path": "runs.db"},
            "questions": {"check_questions": False},
        }
        write_settings(json.dumps(chosen))
        failed = await Upcall(settings=Settings.read()).start(TASK)
        run = upcall("resume", failed.id, "--json").json
    assert failed.status is RunStatus.FAILED
    assert [each["question"] for each in run["questions"]] == ["Which area?"]


@pytest.mark.parametrize(("owned_by", "looks"), [("llamacpp", 3), ("openai", 0)])
async def test_run_counts_the_looks_that_were_made(owned_by: str, looks: int) -> None:
    replies = for_run(looks=[LACKING_LOOK, NAMED, WRITTEN][:looks], clarifier=[] if looks else [WEIGHTY])
    with LoopbackServer(replies, owned_by=owned_by) as server:
        settings = Settings.read(
            None,
            models={"model": "m", "base_url": server.base_url, "max_retries": 0, "small": True},
            questions={"check_questions": False},
        )
        run = await Upcall(settings=settings).start(TASK)
    assert run.total_usage.model_calls == server.calls == 1 + (looks or 1)


# -- what it reads ----------------------------------------------------------------------------------------------------


def read(delivered: Mapping[str, float], ask: AskFor = "essential", request: str = "") -> float:
    """Return the score of a reply that is as likely as this to begin with these tokens."""
    top = [TopLogprob(logprob=math.log(each), bytes=list(token.encode())) for token, each in delivered.items()]
    tokens = [ChatCompletionTokenLogprob(token="", logprob=0.0, top_logprobs=top)]
    usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
    found = read_first_look(
        CreateResult(finish_reason="length", content="", usage=usage, cached=False, logprobs=tokens), ask, request
    )
    assert found is not None
    return found


@pytest.mark.parametrize("ask", ["essential", "preferences"])
@pytest.mark.parametrize("pieces", [{"nothing": 0.8}, {" Nothing": 0.4, "no": 0.4}, {"not": 0.3, "NOTHING": 0.5}])
def test_any_beginning_of_nothing_says_that_nothing_is_missing(pieces: dict[str, float], ask: AskFor) -> None:
    assert read({**pieces, "the": 0.2}, ask) == pytest.approx(
        find_probability(math.log(0.2 / 0.8) - find_shift(ask, ""))
    )


def test_short_request_has_to_lack_more() -> None:
    scores = [read({"nothing": 0.7, "the": 0.3}, request="word " * count) for count in (1, 20, 27, 35, 90)]
    assert scores[0] == scores[1] < scores[2] < scores[3] == scores[4]
    tastes = [read({"nothing": 0.7, "the": 0.3}, "preferences", "word " * count) for count in (1, 90)]
    assert tastes[0] == tastes[1]


def test_letters_of_chinese_count_as_words() -> None:
    shifts = [find_shift("essential", "\u7ffb\u8b6f" * count) for count in (1, 20, 27, 35)]
    assert shifts == [find_shift("essential", "word " * count) for count in (1, 20, 27, 35)]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Translate the manual", 3),
        ("", 0),
        ("\u4f60\u597d\uff01", 1),
        ("\u30d1\u30f3\u306e pizza \u3092\u3001\u3069\u3046\u305e", 5),
        ("\ubc88\uc5ed \ud574\uc918", 2),
    ],
)
def test_words_are_counted_in_any_script(text: str, count: int) -> None:
    assert count_words(text) == count


@pytest.mark.parametrize("ask", ["essential", "preferences"])
def test_beginning_of_an_answer_speaks_against_a_question(ask: AskFor) -> None:
    score = read({"nothing": 0.8, "the": 0.2}, ask)
    assert read({"nothing": 0.5, "the": 0.2, "Sure": 0.3}, ask) == pytest.approx(score)
    assert read({"nothing": 0.5, "the": 0.1, "Sure": 0.4}, ask) < score < read({"nothing": 0.5, "the": 0.5}, ask)


def test_taste_counts_as_missing_for_users_who_want_it() -> None:
    emitted = {"nothing": 0.1, "t": 0.4, "taste": 0.48, "the": 0.02}
    assert read(emitted, "essential") < 0.5 < read(emitted, "preferences")


@pytest.mark.parametrize("ask", ["essential", "preferences"])
def test_surest_replies_have_finite_scores(ask: AskFor) -> None:
    assert 0 < read({"nothing": 1.0}, ask) < 0.01 < 0.99 < read({"the": 1.0}, ask) < 1


def test_reply_in_another_form_says_nothing() -> None:
    with pytest.raises(AssertionError):
        read({"Okay": 0.99, "the": 0.001})
