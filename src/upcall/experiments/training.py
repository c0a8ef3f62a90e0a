"""Train a scorer: from labelled tasks, and from what people answered and declined; tested on kinds it never saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upcall.errors import ConfigurationError
from upcall.execution.embeddings import embedder_for
from upcall.experiments.experiment import Experiment
from upcall.experiments.statistics import Estimate, Floats, draw_weights, estimate
from upcall.experiments.tables import format_table
from upcall.experiments.tasks import Task
from upcall.options import AskFor
from upcall.policy.scorer import (
    Embed,
    EmbeddingFeatures,
    Interval,
    KindFigures,
    Scorer,
    TextFeatures,
    find_probability,
    require_scikit_learn,
)
from upcall.questions.answer import AnsweredBy
from upcall.questions.reply_intents import is_needless
from upcall.runs.run import Run
from upcall.settings import Settings
from upcall.storage.store import RunStore

ALL = "all kinds"
CLARIFIER = "clarifier"
OWN_RUNS = "own runs"
"""The kind of tasks from a store: nobody said another one."""

LOOSENESS_OF_EMBEDDINGS = 30.0
"""How much weaker the prior is than for words. On the first 720 tasks of `benchmarks/ask_scorer.py`, each kind left
out in turn, the balanced accuracy grew from 0.80 at 1 to 0.83 and 0.85 at 30, and fell again beyond 60. On all 1,327
it is the same from 10 to 120."""

DIGITS = 5
"""Of a weight in the file."""

Truths = NDArray[np.bool_]


@dataclass(frozen=True)
class TrainingExample:
    """A task, its kind, and whether something had to be asked."""

    task: str
    kind: str
    ask: bool


def label_tasks(tasks: Sequence[Task], ask: AskFor) -> list[TrainingExample]:
    """Label each task with whether it lacks something that a user with this `ask` setting wants to be asked for."""
    return [
        TrainingExample(
            task.task,
            task.kind,
            any(fact.missing and (ask == "preferences" or not fact.preference) for fact in task.facts.values()),
        )
        for task in tasks
    ]


async def label_runs(location: str) -> list[TrainingExample]:
    """Label the tasks of a store's runs whose clarifier asked: rightly if one question was answered, needlessly if all
    were dismissed, or answered with what would have been assumed.

    Raises:
        ConfigurationError: there is no such store.
    """
    store = RunStore(location)
    try:
        if not await store.exists():
            raise ConfigurationError(f"There are no runs to learn from in {location}.")
        labels = [(run, _was_right(run)) for run in await store.list()]
    finally:
        await store.close()
    return [TrainingExample(run.task, OWN_RUNS, label) for run, label in labels if label is not None]


def _was_right(run: Run) -> bool | None:
    """Whether the user answered one of the clarifier's questions; None if the user was not asked."""
    needless = [
        is_needless(each.question, each.answer)
        for each in run.records
        if each.question.path[-1:] == (CLARIFIER,) and each.answer is not None and each.answer.by is AnsweredBy.HUMAN
    ]
    return not all(needless) if needless else None


async def train(experiment: Experiment) -> Scorer:
    """Train a scorer on the tasks of an experiment, and the stores that it names. `Scorer.write` writes its file.

    Raises:
        ConfigurationError: there are too few examples, or scikit-learn is not installed.
        ModelError: the server returns no embeddings.
    """
    chosen = experiment.scorer
    examples = label_tasks(experiment.all_tasks, chosen.ask)
    for location in chosen.stores:
        examples += await label_runs(location)
    if chosen.embeddings is None:
        return await fit(examples, TextFeatures(), ask=chosen.ask)
    settings = Settings.read(**experiment.models[chosen.embeddings].settings)
    embed = embedder_for(settings)
    if embed is None or settings.models.model is None:
        raise ConfigurationError(
            f"scorer.embeddings = {chosen.embeddings!r} needs a model name, and a server or a key."
        )
    return await fit(examples, EmbeddingFeatures(model=settings.models.model), ask=chosen.ask, embed=embed)


async def fit(
    examples: Sequence[TrainingExample],
    features: TextFeatures | EmbeddingFeatures,
    *,
    ask: AskFor = "essential",
    embed: Embed | None = None,
) -> Scorer:
    """Fit a scorer to examples, and evaluate it on each kind when trained on the others."""
    require_scikit_learn()
    kinds, truth = np.array([each.kind for each in examples]), np.array([each.ask for each in examples], dtype=bool)
    for label, what in ((True, "lack something"), (False, "lack nothing")):
        if len({*kinds[truth == label]}) < 2:
            raise ConfigurationError(
                f"A scorer is tried on kinds of tasks that it never saw: tasks of two kinds must {what}, and "
                f"those of {len({*kinds[truth == label]})} do. Say kind for each task."
            )
    texts = [each.task for each in examples]
    if isinstance(features, TextFeatures):
        rows = features.matrix(texts)
    else:
        assert embed is not None
        wrapped = [text for each in texts for text in features.wrap(each)]
        rows = np.array(await embed(features.model, wrapped)).reshape(len(texts), len(features.wrappers), -1)
    unseen = np.zeros(len(examples))
    for kind in {*kinds}:
        weights, bias = _fit_heads(rows[kinds != kind], truth[kinds != kind])
        unseen[kinds == kind] = _flatten(rows[kinds == kind]) @ weights + bias
    weights, bias = _fit_heads(rows, truth)
    return Scorer(
        features=features,
        ask=ask,
        weights=tuple(_round(each) for each in weights),
        bias=_round(bias),
        threshold=_round(find_probability(choose_threshold(unseen, truth))),
        evaluation=tuple(_evaluate(unseen, truth, kinds)),
    )


def _fit_heads(rows: Any, truth: Truths) -> tuple[Floats, float]:
    """Return weights and bias of the mean of one head for each embedding of a task, or of the head for its words. The
    mean of several is right more often than one head for all their numbers."""
    parts = rows.transpose(1, 0, 2) if isinstance(rows, np.ndarray) else [rows]
    weights, biases = zip(*[_fit_head(each, truth) for each in parts], strict=True)
    return np.concatenate(weights) / len(parts), sum(biases) / len(parts)


def _flatten(rows: Any) -> Any:
    return rows.reshape(len(rows), -1) if isinstance(rows, np.ndarray) else rows


def _fit_head(rows: Any, truth: Truths) -> tuple[Floats, float]:
    """Return weights and bias for raw features, from a head trained on standardised ones."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    dense = isinstance(rows, np.ndarray)  # Centred sparse rows would be sparse no more.
    scaler = StandardScaler(with_mean=dense)
    # Many features need a strong prior, whatever their number: for words it decides little, for embeddings more.
    looseness = (LOOSENESS_OF_EMBEDDINGS if dense else 1.0) / rows.shape[1]
    head = LogisticRegression(C=looseness, class_weight="balanced", max_iter=2000).fit(
        scaler.fit_transform(rows), truth
    )
    weights = head.coef_[0] / scaler.scale_
    return weights, float(head.intercept_[0] - (scaler.mean_ @ weights if dense else 0.0))


def choose_threshold(scores: Floats, truth: Truths) -> float:
    """Return the threshold halfway between the median scores, as log odds, of tasks that lack something and of those
    that do not. The threshold of the best balanced accuracy depends on a few examples, and is worse on others."""
    return float(np.median(scores[truth]) + np.median(scores[~truth])) / 2


def _evaluate(scores: Floats, truth: Truths, kinds: NDArray[np.str_]) -> Iterator[KindFigures]:
    """Yield the figures of each kind, with the threshold chosen on the others, then of all together."""
    predicted = np.zeros(len(scores), dtype=bool)
    for kind in sorted({*kinds}):
        own = kinds == kind
        predicted[own] = scores[own] >= choose_threshold(scores[~own], truth[~own])
    for kind, own in [*((kind, kinds == kind) for kind in sorted({*kinds})), (ALL, kinds == kinds)]:
        yield KindFigures(
            kind=str(kind),
            tasks=int(own.sum()),
            area=_find_area(scores[own], truth[own]),
            balanced=_find_balanced(predicted[own], truth[own]),
        )


def _find_area(scores: Floats, truth: Truths) -> Interval:
    """Return the area under the curve: how often a task that lacks something has the higher score."""
    above = np.sign(scores[truth][:, None] - scores[~truth][None, :]) / 2 + 0.5

    def value(weights: Floats) -> Floats:
        lacks, clear = weights[..., truth], weights[..., ~truth]
        return np.asarray(((lacks @ above) * clear).sum(-1) / (lacks.sum(-1) * clear.sum(-1)))

    return _estimate(value, len(truth))


def _find_balanced(predicted: Truths, truth: Truths) -> Interval:
    def value(weights: Floats) -> Floats:
        right = (predicted == truth) * weights
        shares = [right[..., of].sum(-1) / weights[..., of].sum(-1) for of in (truth, ~truth)]
        return np.asarray(sum(shares) / 2)

    return _estimate(value, len(truth))


def _estimate(measure: Callable[[Floats], Floats], tasks: int) -> Interval:
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Estimate = estimate(measure(np.ones(tasks)), measure(draw_weights(tasks)))
    value, low, high = (None if each is None else round(each, 3) for each in (found.value, found.low, found.high))
    return Interval(value=value, low=low, high=high)


def _round(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def evaluation_lines(scorer: Scorer) -> list[str]:
    """Return the evaluation as a table for a terminal."""
    head = ("kind (trained on the others)", "tasks", "area under the curve", "balanced accuracy")
    rows = [
        (each.kind, str(each.tasks), _format_interval(each.area), _format_interval(each.balanced))
        for each in scorer.evaluation
    ]
    return [
        *format_table([head, *rows], names=1),
        f"threshold {scorer.threshold:.2f}, chosen on tasks of kinds that the weights had not seen",
    ]


def _format_interval(figure: Interval) -> str:
    if figure.value is None or figure.low is None or figure.high is None:
        return "-"
    return f"{figure.value:.2f} ({figure.low:.2f} to {figure.high:.2f})"
