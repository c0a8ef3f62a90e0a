"""A decision besides the model's: whether a task lacks something that must be asked, by a small file of weights.

The file is trained from labelled tasks (`upcall.experiments.train`) and contains none of their texts.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, Field, FiniteFloat, ValidationError, model_validator

from upcall.errors import ConfigurationError, ModelReplyInvalid, missing_extra
from upcall.options import AskFor
from upcall.text import first_line

Embed: TypeAlias = Callable[[str, Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
"""Return the embeddings of texts by the named model.

Raises:
    ModelError: the server returned none.
"""

WRAPPERS = (
    "A task for an assistant:\n\n{task}\n\nThe one thing that must be asked before it can be done well:",
    "User: {task}\n\nAssistant: Before I begin, I need to know",
)
"""The texts that are embedded for a task: a model's last states are about what comes next. With
`benchmarks/ask_scorer.py` the balanced accuracy of either alone is 0.82 to 0.84, of both 0.86."""


class _Stored(BaseModel, frozen=True, extra="forbid", protected_namespaces=(), defer_build=True):
    """A part of the file; extra fields of a newer version are refused."""


class TextFeatures(_Stored):
    """Hashed n-grams of words and of characters within words, with this many buckets for each kind."""

    kind: Literal["text"] = "text"
    buckets: Annotated[int, Field(ge=1)] = 2048
    words: tuple[int, int] = (1, 2)
    characters: tuple[int, int] = (3, 5)

    def matrix(self, texts: Sequence[str]) -> Any:
        """Return a sparse matrix of scikit-learn, one row per text."""
        from scipy.sparse import hstack
        from sklearn.feature_extraction.text import HashingVectorizer

        kinds = (("word", self.words), ("char_wb", self.characters))
        made = [HashingVectorizer(n_features=self.buckets, analyzer=kind, ngram_range=grams) for kind, grams in kinds]
        return hstack([each.transform(texts) for each in made]).tocsr()


class EmbeddingFeatures(_Stored):
    """The embeddings, by the named model, of texts that contain the task, one after the other."""

    kind: Literal["embeddings"] = "embeddings"
    model: str
    wrappers: Annotated[tuple[str, ...], Field(min_length=1)] = WRAPPERS

    def wrap(self, task: str) -> list[str]:
        """Return the texts to embed."""
        return [each.replace("{task}", task) for each in self.wrappers]


class Interval(_Stored):
    """A figure with its 95 % interval; None if there is nothing to estimate it from."""

    value: float | None
    low: float | None = None
    high: float | None = None


class KindFigures(_Stored):
    """How well tasks of a kind were distinguished with weights and a threshold from the others.

    Attributes:
        area: the area under the curve.
        balanced: balanced accuracy at the threshold.
    """

    kind: str
    tasks: int
    area: Interval
    balanced: Interval


class Scorer(_Stored):
    """A trained scorer, in the form of its file.

    Attributes:
        ask: what it was trained to ask for.
        weights: one per feature, in their order.
        threshold: the score, between 0 and 1, from which something is asked.
        evaluation: by kind of task, all together last.
    """

    version: Literal[2] = 2
    features: Annotated[TextFeatures | EmbeddingFeatures, Field(discriminator="kind")]
    ask: AskFor = "essential"
    weights: tuple[FiniteFloat, ...]
    bias: FiniteFloat
    threshold: FiniteFloat
    evaluation: tuple[KindFigures, ...] = ()

    @model_validator(mode="after")
    def _has_a_weight_for_each(self) -> Self:
        if isinstance(self.features, TextFeatures) and len(self.weights) != 2 * self.features.buckets:
            raise ValueError(f"{len(self.weights)} weights for {2 * self.features.buckets} features")
        return self

    @classmethod
    def read(cls, path: Path, *, embed: Embed | None = None, ask: AskFor | None = None) -> Scorer:
        """Return the scorer of a file that can be used with these: `embed` and what the user wants to be asked for.

        Raises:
            ConfigurationError: it cannot be read or used.
        """
        try:
            scorer = cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise ConfigurationError(f"ask_scorer {path} cannot be read: {error.strerror or error}.") from error
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            at = ".".join(map(str, first["loc"])) or "the file"
            raise ConfigurationError(
                f"ask_scorer {path} is not a scorer of this version: {at}: {first['msg']}. "
                "Train it again with this version."
            ) from error
        if ask not in (None, scorer.ask):
            raise ConfigurationError(
                f"ask_scorer {path} was trained for ask: {scorer.ask}, and ask is {ask}: train one for that."
            )
        if isinstance(scorer.features, TextFeatures):
            require_scikit_learn()
        elif embed is None:
            raise ConfigurationError(
                f"ask_scorer {path} needs embeddings by the model {scorer.features.model!r}, and no server is set that "
                "has them: say models: {kinds: {embeddings: {base_url: ...}}}."
            )
        return scorer

    def write(self, path: Path | str) -> None:
        """Write the file.

        Raises:
            ConfigurationError: it cannot be written.
        """
        try:
            Path(path).write_text(self.model_dump_json() + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}.") from error

    async def score(self, task: str, embed: Embed | None = None) -> float:
        """Return the probability that something must be asked, between 0 and 1.

        Raises:
            ModelError: the server returned no usable embedding.
        """
        total = self.bias + math.fsum(self.weights[at] * value for at, value in await self._values(task, embed))
        return find_probability(total)

    async def _values(self, task: str, embed: Embed | None) -> Iterable[tuple[int, float]]:
        """Return the nonzero features, each with its position."""
        if isinstance(self.features, TextFeatures):
            row = self.features.matrix([task])
            return zip(row.indices.tolist(), row.data.tolist(), strict=True)
        assert embed is not None, "read() refuses this"
        texts = self.features.wrap(task)
        vectors = await embed(self.features.model, texts)
        if unfit := [len(each) for each in vectors if len(each) * len(texts) != len(self.weights)]:
            raise ModelReplyInvalid(
                f"an embedding has {unfit[0]} numbers, the scorer {len(self.weights)} weights for {len(texts)} of "
                f"them: it was trained with another model than the one called {self.features.model!r} now"
            )
        vector = [*chain.from_iterable(vectors)]
        if not all(isinstance(each, int | float) and math.isfinite(each) for each in vector):
            raise ModelReplyInvalid(f"an embedding by {self.features.model!r} contains something that is not a number")
        return enumerate(vector)


def find_probability(log_odds: float) -> float:
    """Return the probability for these log odds."""
    # `math.exp` overflows from 710 on.
    return 1 / (1 + math.exp(-max(-500.0, min(500.0, log_odds))))


def require_scikit_learn() -> None:
    """Refuse to continue without scikit-learn.

    Raises:
        ConfigurationError: it cannot be loaded.
    """
    try:
        import_module("sklearn.feature_extraction.text")
    except ImportError as error:
        problem = f"A scorer needs scikit-learn, which cannot be loaded ({first_line(error)})"
        raise missing_extra(problem, "scorer") from error
