"""How well a trained scorer (``ask_scorer``) distinguishes tasks that lack something from clear ones, on kinds it never
saw.

    python benchmarks/ask_scorer.py
    python benchmarks/ask_scorer.py --base-url http://127.0.0.1:8080/v1 --model NAME

Each kind of tasks is left out in turn: weights and threshold come from the other kinds. Without a server the features
are hashed words and characters; with one they are its embeddings (see benchmarks/cut_model.py). The files in data/ call
the same subject by the same kind, so that no subject is both learned and tested.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from ask_well import POLICIES, read_tasks

from upcall.execution.embeddings import Embedder
from upcall.experiments.training import TrainingExample, evaluation_lines, fit
from upcall.options import AskFor
from upcall.policy.scorer import Embed, EmbeddingFeatures, TextFeatures
from upcall.settings import ModelSettings


def read_examples(ask: AskFor) -> list[TrainingExample]:
    """Read the tasks that have a kind, labelled for a policy."""
    return [TrainingExample(each.text, each.kind, bool(each.wanted[ask])) for each in read_tasks() if each.kind]


def remember(embed: Embed) -> Embed:
    """Return the same embedder, which asks its server once for each text."""
    known: dict[str, Sequence[float]] = {}

    async def embed_once(model: str, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        new = [text for text in texts if text not in known]
        known.update(zip(new, await embed(model, new), strict=True))
        return [known[text] for text in texts]

    return embed_once


async def main() -> None:
    """Print a table for each policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", help="an OpenAI-compatible server that returns embeddings")
    parser.add_argument("--model", default="embeddings", help="what that server calls its model")
    arguments = parser.parse_args()
    features: TextFeatures | EmbeddingFeatures = TextFeatures()
    embed: Embed | None = None
    if arguments.base_url:
        features = EmbeddingFeatures(model=arguments.model)
        server = ModelSettings(base_url=arguments.base_url, model=arguments.model)
        embed = remember(Embedder(server, timeout=600, max_retries=0))
    for ask in POLICIES:
        scorer = await fit(read_examples(ask), features, ask=ask, embed=embed)
        print(f"ask: {ask}", *evaluation_lines(scorer), "", sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
