"""The second look at a question before it is put: what the request or general knowledge answers is not asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from autogen_agentchat.messages import TextMessage
from conversation import answers, cancelled_while, resumed_as, send, turn
from places import ROOT
from scenario import DEEP_CODING, PLAN, TASK, script

from upcall import RunStatus, Settings, Upcall
from upcall.agents import Clarifier, Planner
from upcall.agents.asking.copied_questions import GENERAL
from upcall.agents.clarifier import FEW_EXAMPLES
from upcall.agents.structured.agent import FEW_CHECKED, StructuredAgent
from upcall.prompts.contexts import Document
from upcall.prompts.examples import CHECKED_EXAMPLES, EXAMPLES
from upcall.prompts.first_look_examples import FIRST_LOOK_EXAMPLES, NOTHING
from upcall.questions.question import Detail
from upcall.testing import Fail, Hang, Reply, Request, ScriptedModelClient
from upcall.ui.run_report import list_assumptions

REQUEST = TextMessage(source="user", content="Compare renewable energy in the G7")
CLEAR = '{"needs_clarification": false}'
ASK = '{"first": "the IEA", "second": "Eurostat", "effect": "all"}'
KNOWN = '{"first": "seven large economies", "second": "seven large economies", "effect": "nothing"}'
CHECK = "A colleague wants to put a question"


def asks(*questions: str) -> str:
    """Return a reply with which the clarifier asks the first of these questions, and the planner all of them."""
    details = [{"aspect": f"a{number}", "clarification_question": each} for number, each in enumerate(questions)]
    return json.dumps(
        {"needs_clarification": True, "clarification_question": questions[0], "ambiguity_details": details}
    )


def clarifier(client: ScriptedModelClient) -> Clarifier:
    return Clarifier(client, check_questions=True)


def planner(client: ScriptedModelClient) -> Planner:
    return Planner(client, check_questions=True)


AGENTS = pytest.mark.parametrize(("make", "after"), [(clarifier, []), (planner, [PLAN])], ids=["clarifier", "planner"])
Make = Callable[[ScriptedModelClient], StructuredAgent]  # type: ignore[type-arg]


@AGENTS
async def test_question_only_the_user_can_answer_is_asked(make: Make, after: list[Reply]) -> None:
    """S3-37"""
    with ScriptedModelClient([asks("Which sources?"), ASK]) as client:
        rest = await send(make(client), REQUEST)
    assert [question.question for question in rest.questions] == ["Which sources?"]
    assert CHECK in client.requests[1].system
    assert client.requests[1].messages[-1]["content"] == f"Request: {REQUEST.content}\nQuestion: Which sources?"


@AGENTS
async def test_question_whose_answer_changes_nothing_is_not_put(make: Make, after: list[Reply]) -> None:
    """S3-37"""
    with ScriptedModelClient([asks("Which countries?"), KNOWN, *after]) as client:
        message = await turn(make(client), REQUEST)
    assert message.target != "user"


@AGENTS
async def test_look_that_cannot_be_read_drops_nothing(make: Make, after: list[Reply]) -> None:
    with ScriptedModelClient([asks("Which sources?"), "Hm.", "Hm."]) as client:
        rest = await send(make(client), REQUEST)
    assert [question.question for question in rest.questions] == ["Which sources?"]


@AGENTS
@pytest.mark.parametrize("look", [[Fail(503)], ["Hm.", Fail(503)]], ids=["at once", "in its repair"])
async def test_look_that_fails_drops_nothing(make: Make, after: list[Reply], look: list[Reply]) -> None:
    """S3-41: it is an extra, and blocks nothing."""
    with ScriptedModelClient([asks("Which sources?"), *look]) as client:
        rest = await send(make(client), REQUEST)
    assert [question.question for question in rest.questions] == ["Which sources?"]


@AGENTS
async def test_look_that_is_cancelled_is_the_only_one_repeated(make: Make, after: list[Reply]) -> None:
    with ScriptedModelClient([asks("Which countries?"), Hang(), KNOWN, *after]) as client:
        agent = make(client)
        await cancelled_while(agent, lambda: len(client.requests) == 2, "token", REQUEST)
        message = await turn(await resumed_as(agent, make(client)))
    assert message.target != "user"


async def test_aspects_that_stand_are_the_only_ones_asked_about() -> None:
    questions = ["Which countries?", "Which sources?", "What is energy?"]
    with ScriptedModelClient([asks(*questions), KNOWN, ASK, Hang(), KNOWN, CLEAR, PLAN]) as client:
        agent = planner(client)
        await cancelled_while(agent, lambda: len(client.requests) == 4, "token", REQUEST)
        agent = await resumed_as(agent, planner(client))
        rest = await send(agent)
        done = await send(agent, answers(rest, "The IEA's"))
    assert [question.question for question in rest.questions] == ["Which sources?"]
    assert done.message.to_model_text().startswith("# Authentication")


async def test_look_knows_answers_and_documents() -> None:
    with ScriptedModelClient([asks("Which report?"), ASK, asks("For whom?"), ASK]) as client:
        agent = Clarifier(client, check_questions=True, documents=[Document("g7.md", "Energy")])
        await send(agent, answers(await send(agent, REQUEST), "The IEA's of 2024"))
    shown = client.requests[3].messages[-1]["content"]
    assert "Question: Which report?\nAnswer: The IEA's of 2024" in shown
    assert "Documents given with it: g7.md" in shown
    assert shown.endswith("Question: For whom?")


def needs(*candidates: dict[str, object]) -> str:
    """Return a first reply by what the request depends on."""
    return json.dumps({"candidates": candidates, "needs_clarification": True})


def need(said: str = "", known_from: str = "user", weight: str = "high", **fields: object) -> dict[str, object]:
    given = {"detail": "place", "question": "Which area?", "said": said, "known_from": known_from, "weight": weight}
    return {**given, **fields}


async def put(*replies: str, **options: Any) -> list[str]:
    """Return the questions of the first turn."""
    with ScriptedModelClient(list(replies)) as client:
        rest = await send(Clarifier(client, check_questions=True, **options), REQUEST)
    return [question.question for question in rest.questions]


async def test_look_checks_what_the_request_should_hold_but_lacks() -> None:
    assert await put(needs(need("the Nordic countries", "request")), ASK) == ["Which area?"]
    assert await put(needs(need("", "request")), KNOWN) == []


@pytest.mark.parametrize(
    "candidate",
    [need("the G7", "request"), need("", "default"), need(weight="low"), need(weight="taste")],
)
async def test_look_drops_stated_common_and_worthless_questions(candidate: dict[str, object]) -> None:
    assert await put(needs(candidate)) == []


@pytest.mark.parametrize(
    "look",
    [
        {"first": "formal", "second": "none", "effect": "all"},
        {"first": "settled: formal", "second": "warm", "effect": "part"},
        {"first": "formal", "second": "Formal", "effect": "part"},
    ],
)
async def test_what_is_no_answer_becomes_no_option(look: dict[str, str]) -> None:
    with ScriptedModelClient([needs(need(detail="style")), json.dumps(look)]) as client:
        (question,) = (await send(clarifier(client), REQUEST)).questions
    assert question.options == ()


async def test_question_the_reply_did_not_weigh_is_checked() -> None:
    emitted = {"needs_clarification": True, "clarification_question": "Please send the report."}
    reply = json.dumps({"candidates": [need(weight="low")], **emitted})
    assert await put(reply, ASK) == ["Please send the report."]
    assert await put(reply, KNOWN) == []


COPIED = "In which country do you want the licence?"


@pytest.mark.parametrize(
    ("copied", "instead"),
    [
        (need(question=COPIED, options=["Germany", "France"]), GENERAL[Detail.PLACE]),
        (
            need(question="What do the minutes say?", detail="input"),
            "What should be worked on? Paste it, or name the file.",
        ),
    ],
)
async def test_question_about_an_examples_subject_becomes_general(copied: dict[str, object], instead: str) -> None:
    assert await put(needs(copied), *([] if copied["detail"] == "input" else [ASK])) == [instead]
    fields = json.dumps({"needs_clarification": True, "clarification_question": copied["question"]})
    assert await put(fields, ASK) == [GENERAL[Detail.OTHER]]
    emitted = json.dumps({**json.loads(needs(copied)), "clarification_question": copied["question"]})
    assert await put(emitted, *([] if copied["detail"] == "input" else [ASK])) == [instead]


async def test_question_of_an_example_on_its_subject_stays() -> None:
    request = TextMessage(source="user", content="How do I get my driving licence back?")
    with ScriptedModelClient([needs(need(question=COPIED)), ASK]) as client:
        (question,) = (await send(clarifier(client), request)).questions
    assert question.question == COPIED


@pytest.mark.parametrize(
    "odd",
    [
        need(weight="low", said=False),
        need(weight="low", options={"a": "Rome"}),
        {"question": ["Where?"]},
        None,
        "and when?",
        7,
    ],
)
async def test_odd_candidate_does_not_cost_the_others(odd: Any) -> None:
    assert await put(json.dumps({"candidates": [odd, need()], "needs_clarification": True}), ASK) == ["Which area?"]


@pytest.mark.parametrize("odd", ["none", 7, None, {}, [[]]])
async def test_candidates_that_are_none_leave_the_seeds_fields(odd: Any) -> None:
    seed = {"needs_clarification": True, "clarification_question": "Which area?"}
    assert await put(json.dumps({"candidates": odd, **seed}), ASK) == ["Which area?"]


@pytest.mark.parametrize("text", ["n/a", "-", "", "no"])
async def test_words_too_short_to_be_found_are_not_there(text: str) -> None:
    assert await put(needs(need(text, "request")), ASK) == ["Which area?"]


async def test_words_are_found_in_any_script() -> None:
    request = TextMessage(source="user", content="请写一份给初学者的Python教程")
    with ScriptedModelClient([needs(need("给初学者的", "request"))]) as client:
        assert not (await send(clarifier(client), request)).questions


async def test_threshold_of_0_asks_nothing_that_weighs_nothing() -> None:
    assert await put(needs(need("the G7", "request")), ask_threshold=0) == []


async def test_candidate_without_a_question_is_none() -> None:
    assert await put(json.dumps({"candidates": [need(question="")], "needs_clarification": False})) == []


async def test_clear_aspects_are_asked_about_on_request() -> None:
    reply = json.dumps({"candidates": [need()], "needs_clarification": False})
    assert await put(reply) == []
    assert await put(reply, ASK, ask_threshold=0.4) == ["Which area?"]


async def test_weightiest_question_is_asked_else_the_next() -> None:
    much, all_of_it = need(weight="medium", question="Until when?"), need(question="Which countries?")
    assert await put(needs(much, all_of_it), ASK) == ["Which countries?"]
    assert await put(needs(much, all_of_it), KNOWN, ASK) == ["Until when?"]
    assert await put(needs(much, all_of_it), KNOWN, KNOWN) == []


async def test_tastes_are_asked_for_on_request() -> None:
    taste = needs(need(weight="taste", question="Which tone?", detail="style"))
    assert await put(taste, ask="essential") == []
    assert await put(taste, ASK, ask="preferences") == ["Which tone?"]


async def test_threshold_decides_whether_to_ask() -> None:
    part = '{"first": "a", "second": "b", "effect": "part"}'
    medium = needs(need(weight="medium"))
    assert await put(medium, part, ask_threshold=0.5) == ["Which area?"]
    assert await put(medium, part, ask_threshold=0.6) == []
    assert await put(medium, ask_threshold=0.7) == []


async def test_question_keeps_its_weight_and_gets_answers_as_options() -> None:
    for detail, look, options in (("place", [ASK], ["the IEA", "Eurostat"]), ("input", [], [])):  # None for a text.
        with ScriptedModelClient([needs(need(detail=detail)), *look]) as client:
            (question,) = (await send(clarifier(client), REQUEST)).questions
        assert [option.label for option in question.options] == options
        assert (question.weight, question.detail) == (1.0, detail)


async def test_unattended_what_is_assumed_is_listed_by_its_risk() -> None:
    asked = [needs(need(weight="medium", assumed="the EU")), needs(need(question="Until when?", assumed="2030"))]
    settings = Settings.read(questions={"check_questions": False, "max_turns": 2})
    with ScriptedModelClient(script(classifier=[DEEP_CODING], clarifier=asked, planner=[CLEAR, PLAN])) as client:
        run = await Upcall(client, settings=settings).start(TASK, unattended=True)
    assert list_assumptions(run) == [
        "Assumed, since nobody answered:",
        "- Until when? 2030 (clarifier, risk 100%)",
        "- Which area? the EU (clarifier, risk 60%)",
    ]
    assert [each["weight"] for each in run.as_json()["assumptions"]] == [1.0, 0.6]


async def test_look_of_larger_models_happens_where_examples_are_few() -> None:
    for weight, looks in (("high", []), ("medium", [ASK])):
        with ScriptedModelClient([needs(need(weight=weight)), *looks], small=False) as client:
            rest = await send(clarifier(client), REQUEST)
        assert len(rest.questions) == 1
        spoken = [sum(each["role"] == "assistant" for each in request.messages) for request in client.requests]
        assert spoken == [FEW_EXAMPLES, FEW_CHECKED][: len(spoken)]


async def test_without_the_second_look_the_first_reply_decides() -> None:
    with ScriptedModelClient([needs(need("the Nordic countries", "request"))]) as client:
        rest = await send(Clarifier(client), REQUEST)
    assert not rest.questions


async def test_what_a_document_is_called_counts_as_written() -> None:
    reply = needs(need("Nordic countries", "request"))
    assert await put(reply, documents=[Document("nordic_countries.md")]) == []


async def test_fallback_is_put_without_a_second_look() -> None:
    with ScriptedModelClient(["Hm.", "Hm."]) as client:
        rest = await send(clarifier(client), REQUEST)
    assert len(rest.questions) == 1


@pytest.mark.parametrize("reply", ["{}", '{"effect": "the moon"}', '{"first": "a", "second": "b"}'])
async def test_look_that_finds_no_effect_drops_nothing(reply: str) -> None:
    assert await put(needs(need()), reply) == ["Which area?"]


def test_examples_ask_as_often_as_not() -> None:
    """Both ways, so that neither answer is the one a model has seen most, also among the first few."""
    changing = [each.effect != "nothing" for each in CHECKED_EXAMPLES]
    assert 0.3 < sum(changing) / len(changing) < 0.7
    missing = [any(one.known_from == "user" and one.weight == "high" for one in each.candidates) for each in EXAMPLES]
    assert 0.3 < sum(missing) / len(missing) < 0.7
    assert set(missing[:FEW_EXAMPLES]) == {True, False}
    lacking = [reply != NOTHING for _, reply in FIRST_LOOK_EXAMPLES]
    assert 0.3 < sum(lacking) / len(lacking) < 0.7


def test_no_task_of_the_benchmark_stands_among_the_examples() -> None:
    data = ROOT / "benchmarks" / "data"
    lines = [line for file in data.glob("ask_well*.jsonl") for line in file.read_text(encoding="utf-8").splitlines()]
    tasks = {json.loads(line)["task"] for line in lines}
    assert len(tasks) >= 500
    assert tasks.isdisjoint({each.request for each in (*EXAMPLES, *CHECKED_EXAMPLES)})  # type: ignore[attr-defined]
    assert tasks.isdisjoint({request for request, _ in FIRST_LOOK_EXAMPLES})


async def test_run_takes_the_second_look_unless_set_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UPCALL_QUESTIONS__CHECK_QUESTIONS")
    replies = script(classifier=[DEEP_CODING], clarifier=[asks("What is authentication?")], planner=[CLEAR, PLAN])
    with ScriptedModelClient({CHECK: [KNOWN], **replies}) as client:
        run = await Upcall(client, settings=Settings.read()).start(TASK)
        run = await Upcall(client).answer(run.id, "Express")
    assert run.status is RunStatus.COMPLETED
    assert run.execution_path == ("classifier", "clarifier", "planner", "lead")


def looks(client: ScriptedModelClient) -> list[Request]:
    return [request for request in client.requests if CHECK in request.system]


async def test_run_keeps_whether_it_takes_the_second_look() -> None:
    replies = script(clarifier=[asks("For whom?"), asks("Why?"), CLEAR])
    with ScriptedModelClient(replies) as client:
        off = await Upcall(client, settings=Settings.read(questions={"check_questions": False})).start(TASK)
        run = await Upcall(client, settings=Settings.read(questions={"check_questions": True})).answer(off.id, "Staff")
        while run.status is RunStatus.AWAITING_CLARIFICATION:
            run = await Upcall(client).answer(run.id, "As you like")
    assert looks(client) == []


async def test_small_model_takes_the_second_look() -> None:
    with ScriptedModelClient([asks("Which sources?"), PLAN]) as large, ScriptedModelClient([KNOWN]) as small:
        message = await turn(Planner(large, small_client=small, check_questions=True), REQUEST)
    assert message.target == "lead"
