"""Training a scorer: what it learns from, and how it is tried on kinds of tasks that it never saw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scenario import DEEP_CODING, script, upcall
from scorers import embed, list_needs
from web_servers import serving

from upcall import Settings, Upcall
from upcall.errors import ConfigurationError
from upcall.experiments import Experiment, Task, train
from upcall.experiments.training import TrainingExample, choose_threshold, label_runs, label_tasks
from upcall.policy.scorer import EmbeddingFeatures, Scorer
from upcall.questions.answer import Answer, Outcome
from upcall.testing import ScriptedModelClient

KINDS = {"office": ("letter", "table"), "code": ("parser", "game"), "travel": ("trip", "hike")}


def task(kind: str, thing: str, number: int, *, lacks: bool) -> dict[str, Any]:
    """Return a task: one that lacks something speaks of a report that nobody gave."""
    text = f"{number}: take the {'attached report' if lacks else 'following numbers'} and make a {thing}"
    facts = {"report": {"answer": "the one of May", "missing": lacks}}
    return {"id": f"{thing}-{number}-{lacks}", "kind": kind, "task": text, "facts": facts}


TASKS = [
    task(kind, thing, number, lacks=lacks)
    for kind, things in KINDS.items()
    for thing in things
    for number in range(3)
    for lacks in (True, False)
]


def experiment(tasks: list[dict[str, Any]] = TASKS, **fields: Any) -> Experiment:
    return Experiment(name="labelled", tasks=[Task.model_validate(each) for each in tasks], **fields)


@pytest.mark.slow
async def test_features_of_text_separate_tasks_of_new_kinds() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed; it is in the extra 'scorer'")
    scorer = await train(experiment())
    assert await scorer.score("7: take the attached report and make a cake") >= scorer.threshold
    assert await scorer.score("7: take the following numbers and make a cake") < scorer.threshold
    assert [(each.kind, each.tasks, each.area.value) for each in scorer.evaluation] == [
        ("code", 12, 1.0),
        ("office", 12, 1.0),
        ("travel", 12, 1.0),
        ("all kinds", 36, 1.0),
    ]


async def test_embeddings_of_a_server_are_standardised_and_weighed() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed; it is in the extra 'scorer'")
    with serving(embed) as server:
        models = {"small": {"model": "small", "base_url": f"{server.url}/v1"}}
        scorer = await train(experiment(models=models, scorer={"embeddings": "small"}))
    assert isinstance(scorer.features, EmbeddingFeatures)
    assert (scorer.features.model, scorer.threshold) == ("small", pytest.approx(0.5))
    first, flat, second, also_flat = scorer.weights  # The same for both texts: this server looks for one word.
    assert (first, flat, also_flat) == (second, 0.0, 0.0)
    assert first > 0
    assert scorer.bias == pytest.approx(-2 * (first + second), abs=1e-3)
    assert [len(json.loads(each.body)["input"]) for each in server.requests] == [16, 16, 16, 16, 8]


async def test_features_of_one_kind_do_not_generalize() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed; it is in the extra 'scorer'")
    words = {"office": ("qqq", "zzz"), "code": ("jjj", "xxx"), "travel": ("kkk", "www")}
    texts = [{**each, "task": words[each["kind"]][each["facts"]["report"]["missing"]]} for each in TASKS]
    *kinds, _ = (await train(experiment(texts))).evaluation
    assert [each.area.value for each in kinds] == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("changes", [{"kind": "code"}, {"facts": {}}])
async def test_too_few_kinds_are_refused(changes: dict[str, Any]) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed; it is in the extra 'scorer'")
    with pytest.raises(ConfigurationError, match="tasks of two kinds must lack something"):
        await train(experiment([{**each, **changes} for each in TASKS]))


def test_preference_is_missing_only_for_interested_users() -> None:
    tasks = [Task.model_validate({"id": "a", "task": "A", "facts": {"tone": {"answer": "dry", "preference": True}}})]
    assert [each.ask for each in label_tasks(tasks, "essential")] == [False]
    assert [each.ask for each in label_tasks(tasks, "preferences")] == [True]


async def test_training_counts_declined_as_needless_and_answered_right() -> None:
    outcomes = {"a": Outcome.ANSWERED, "b": Outcome.DECLINED, "c": Outcome.SKIPPED, "d": None, "e": Outcome.ANSWERED}
    settings = Settings.read(questions={"check_questions": False, "max_turns": 1})
    for name, outcome in outcomes.items():
        replies = script(classifier=[DEEP_CODING], clarifier=[list_needs(area="high")])
        app = Upcall(ScriptedModelClient(replies), settings=settings, store="mine.db")
        run = await app.start(f"Build {name}", run_id=f"run-{name}")
        if outcome is not None:
            text = {"a": "The north", "e": "You decide."}.get(name, "")
            answer = Answer(question_id=run.questions[0].id, outcome=outcome, text=text)
            await app.answer(run.id, answer)
    examples = await label_runs("mine.db")
    assert sorted(examples, key=lambda each: each.task) == [
        TrainingExample("Build a", "own runs", True),
        TrainingExample("Build b", "own runs", False),
        TrainingExample("Build c", "own runs", False),
        TrainingExample("Build e", "own runs", False),
    ]


async def test_store_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"no runs to learn from in none\.db"):
        await label_runs("none.db")


def test_threshold_lies_between_the_middles_despite_outliers() -> None:
    scores, truth = [-2.0, -1.0, 9.0, 1.0, 3.0, -9.0], [0, 0, 0, 1, 1, 1]
    assert choose_threshold(np.array(scores), np.array(truth, dtype=bool)) == pytest.approx(0.0)


@pytest.mark.slow
def test_command_writes_a_small_file_without_the_tasks() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed; it is in the extra 'scorer'")
    Path("tasks.jsonl").write_text("\n".join(map(json.dumps, TASKS)))
    Path("labels.yaml").write_text("tasks: tasks.jsonl\n")
    done = upcall("experiment", "labels.yaml", "--train", "scorer.json")
    assert done.status == 0, done.err
    assert "all kinds" in done.out
    assert "1.00 (1.00 to 1.00)" in done.out
    assert done.out.endswith("Written: scorer.json; use it with questions.ask_scorer: scorer.json\n")
    text = Path("scorer.json").read_text()
    assert len(text) < 60_000
    assert "report" not in text
    assert len(Scorer.read(Path("scorer.json")).weights) == 4096
    assert (
        "cannot be combined with the options of a run"
        in upcall("experiment", "labels.yaml", "--train", "a.json", "--replay").err
    )
