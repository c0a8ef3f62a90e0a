"""The scorer beside the model: it decides whether something is asked, the model what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.messages import ThoughtEvent
from conversation import answers, resumed_as, send
from scenario import CLEAR, DEEP_CODING, PLAN, TASK, script
from scorers import embed, list_needs, send_vectors
from web_servers import Sent, Server, serving

from upcall import RunStatus, Settings, Upcall
from upcall.agents import Clarifier
from upcall.autogen.messages import event_warnings
from upcall.errors import ConfigurationError
from upcall.execution.embeddings import embedder_for
from upcall.policy.scorer import EmbeddingFeatures, Scorer, TextFeatures
from upcall.testing import ScriptedModelClient

LACKS, CLEAR_TASK = "Summarise the report", "Add two and two"
FILE = Path("scorer.json")
TWO_HEADS = (1.0, 0.0, 1.0, 0.0)
"""The mean of two heads, each for an embedding of two numbers."""
DIFFERS = '{"first": "the IEA", "second": "Eurostat", "effect": "all"}'
SAME = '{"first": "the IEA", "second": "the IEA", "effect": "nothing"}'


def write(*weights: float, **changes: Any) -> None:
    fields: dict[str, Any] = {"features": EmbeddingFeatures(model="small"), "weights": weights or TWO_HEADS}
    Scorer(**{**fields, "bias": -4.0, "threshold": 0.5, **changes}).write(str(FILE))


def clarifier(client: ScriptedModelClient, server: Server, **options: Any) -> Clarifier:
    settings = Settings.read(models={"model": "m", "base_url": f"{server.url}/v1", "timeout": 5, "max_retries": 0})
    return Clarifier(client, ask_scorer=FILE, embed=embedder_for(settings), **options)


async def test_scorer_below_threshold_asks_nothing_and_calls_no_model() -> None:
    write()
    with serving(embed) as server, ScriptedModelClient([]) as client:
        rest = await send(clarifier(client, server), CLEAR_TASK)
    assert rest.text == "Nothing needs to be clarified."
    assert "nothing has to be asked" in rest.events_of(ThoughtEvent)[0].to_text()


@pytest.mark.parametrize("weight", ["low", "high"])
@pytest.mark.parametrize("look", [DIFFERS, SAME])
async def test_scorer_at_threshold_asks_the_weightiest_without_a_look(weight: str, look: str) -> None:
    write()
    reply = list_needs(tone="low", area=weight)
    with serving(embed) as server, ScriptedModelClient([reply, look]) as client:
        (question,) = (await send(clarifier(client, server, check_questions=True), LACKS)).questions
    assert question.question == ("Which area?" if weight == "high" else "Which tone?")
    assert [each.label for each in question.options] == (["the IEA", "Eurostat"] if look == DIFFERS else [])


async def test_scorer_leaves_later_questions_to_the_model() -> None:
    write()
    unweighty = list_needs(area="low")
    with serving(embed) as server, ScriptedModelClient([unweighty, unweighty]) as client:
        first = clarifier(client, server)
        rest = await send(first, LACKS)
        done = await send(await resumed_as(first, clarifier(client, server)), answers(rest, "The north"))
    assert "Answer: The north" in done.text
    assert len(server.requests) == 1


async def test_each_task_is_scored_anew() -> None:
    write()
    with serving(embed) as server, ScriptedModelClient([list_needs(area="high")]) as client:
        agent = clarifier(client, server)
        assert not (await send(agent, CLEAR_TASK)).questions
        assert (await send(agent, LACKS)).questions


async def test_scorer_sends_the_wrapped_task_to_its_configured_server() -> None:
    write()
    with serving(embed) as server, ScriptedModelClient([]) as client:
        address = {"base_url": f"{server.url}/v1", "api_key": "secret"}
        settings = Settings.read(
            models={"model": "m", "base_url": "http://127.0.0.1:9/v1", "kinds": {"embeddings": address}}
        )
        await send(Clarifier(client, ask_scorer=FILE, embed=embedder_for(settings)), CLEAR_TASK)
    (request,) = server.requests
    sent = json.loads(request.body)
    assert (request.path, request.headers["authorization"]) == ("/v1/embeddings", "Bearer secret")
    assert (sent["model"], sent["input"]) == ("small", EmbeddingFeatures(model="small").wrap(CLEAR_TASK))


@pytest.mark.parametrize(
    ("weights", "answer", "why"),
    [
        (TWO_HEADS, Sent(status=500), "HTTP 500"),
        ((2.0, 0.0, 1.0), embed, "an embedding has 2 numbers, the scorer 3 weights for 2 of them"),
        (TWO_HEADS, send_vectors([[1, 1], [1, 1, 1]]), "an embedding has 3 numbers"),
        (TWO_HEADS, send_vectors([[1, 1]]), "returned 1 embeddings for 2 texts"),
        (TWO_HEADS, send_vectors([[None, None], [1, 1]]), "contains something that is not a number"),
    ],
)
async def test_scorer_that_fails_leaves_it_to_the_model(weights: tuple[float, ...], answer: Any, why: str) -> None:
    write(*weights)
    with serving(answer) as server, ScriptedModelClient([CLEAR]) as client:
        message = (await send(clarifier(client, server), CLEAR_TASK)).message
    (warning,) = event_warnings(message)
    assert warning.startswith("ask_scorer failed, so the model alone decided what to ask: ")
    assert why in warning


async def test_run_whose_scorer_fails_warns_of_it() -> None:
    write()
    settings = Settings.read(
        questions={"ask_scorer": FILE},
        models={"max_retries": 0, "kinds": {"embeddings": {"base_url": "http://127.0.0.1:9"}}},
    )
    with ScriptedModelClient(script(classifier=[DEEP_CODING], clarifier=[CLEAR], planner=[CLEAR, PLAN])) as client:
        run = await Upcall(client, settings=settings).start(TASK, unattended=True)
    assert run.status is RunStatus.COMPLETED
    assert [each for each in run.warnings if each.startswith("clarifier: ask_scorer failed")]


async def test_run_keeps_its_scorer_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write()
    app = Upcall(
        settings=Settings.read(
            questions={"ask_scorer": FILE}, models={"kinds": {"embeddings": {"base_url": "http://127.0.0.1:9"}}}
        )
    )
    run = await app.start("Hello")
    assert run.config.team is not None
    assert run.config.team.ask_scorer == tmp_path / FILE
    reset = run.config.reset_for_import(tmp_path).team
    assert reset is not None
    assert reset.ask_scorer is None


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "cannot be read: No such file"),
        ("{}", "is not a scorer of this version: features: Field required"),
        ("no json", "is not a scorer of this version: the file: Invalid JSON"),
        ('{"version": 1}', "is not a scorer of this version: version: Input should be 2"),
    ],
)
async def test_scorer_refuses_an_unusable_file_before_any_call(content: str | None, expected: str) -> None:
    if content is not None:
        FILE.write_text(content)
    with ScriptedModelClient([]) as client:
        app = Upcall(client, settings=Settings.read(questions={"ask_scorer": FILE}))
        with pytest.raises(ConfigurationError, match=expected):
            await app.start(TASK)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ask": "preferences"}, "was trained for ask: preferences, and ask is essential"),
        ({}, "no server is set that has them: say models"),
    ],
)
def test_scorer_for_something_else_is_refused(changes: dict[str, Any], expected: str) -> None:
    write(**changes)
    with pytest.raises(ConfigurationError, match=expected):
        Clarifier(ScriptedModelClient([]), ask_scorer=FILE)


def test_weights_that_fit_no_features_are_refused() -> None:
    with pytest.raises(ValueError, match="3 weights for 8 features"):
        Scorer(features=TextFeatures(buckets=4), weights=(1, 2, 3), bias=0, threshold=0.5)
