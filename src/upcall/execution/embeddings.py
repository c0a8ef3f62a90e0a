"""Embeddings of texts from an OpenAI-compatible server, for the scorer (`upcall.policy.scorer`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from upcall.autogen.model_errors import explain_call
from upcall.errors import ModelReplyInvalid
from upcall.settings import ModelSettings, Settings

BATCH = 16
"""The number of texts in one request: local servers accept few."""


@dataclass(frozen=True)
class Embedder:
    """Asks a server for embeddings. Each call has its own connections, so that nothing needs closing."""

    server: ModelSettings
    timeout: float
    max_retries: int

    async def __call__(self, model: str, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """See `upcall.policy.scorer.Embed`."""
        from openai import AsyncOpenAI

        from upcall.autogen.openai_client.http import guard

        key = self.server.api_key.get_secret_value() if self.server.api_key else "not-needed"
        found: list[Sequence[float]] = []
        try:
            async with AsyncOpenAI(
                base_url=self.server.base_url, api_key=key, timeout=self.timeout, max_retries=self.max_retries
            ) as client:
                guard(client._client)
                for at in range(0, len(texts), BATCH):
                    part = list(texts[at : at + BATCH])
                    reply = await client.embeddings.create(model=model, input=part, encoding_format="float")
                    found += [each.embedding for each in sorted(reply.data, key=lambda each: each.index)]
        except Exception as error:
            raise explain_call(error, "scorer") from error
        if len(found) != len(texts):
            raise ModelReplyInvalid(f"the server returned {len(found)} embeddings for {len(texts)} texts")
        return found


def embedder_for(settings: Settings) -> Embedder | None:
    """Return the embedder: the server for ``embeddings``, otherwise the clarifier's; None if the settings name neither
    server nor key."""
    server = settings.for_kind("embeddings") or settings.for_agent("clarifier")
    if server.model_client is not None or (server.base_url is None and server.api_key is None):
        return None
    return Embedder(server, settings.models.timeout, settings.models.max_retries)
