"""Whether a model is small: as the settings or its `model_info` say, by the size in its name, or as its server shows.

Small models get more worked examples, a search before their first call, and no tool to report with. Nothing else asks
for the size, and an unknown one is not small.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from autogen_core.models import ChatCompletionClient

from upcall.addresses import is_public
from upcall.autogen.openai_client.takeover import find_own_client
from upcall.model_table import SMALL_BILLIONS, find_traits, has_size, is_small_name
from upcall.text import first_line

if TYPE_CHECKING:
    from upcall.autogen.openai_client.client import OpenAICompatibleClient

SIZE_REQUEST_TIMEOUT_S = 5.0
"""How long a server may take to tell the size of a model."""

_known_sizes: dict[str, float | None] = {}
"""The billions of parameters that servers reported in this process; None for those that did not."""

_log = logging.getLogger("upcall")


def is_small(client: ChatCompletionClient) -> bool:
    """Return whether a model counts as small, as far as it is known now (`learn_size`)."""
    for declared in (client.model_info.get("small"), getattr(client, "small", None)):
        if isinstance(declared, bool):
            return declared
    own = find_own_client(client)
    if own is None:
        return False
    if own.small is not None:
        return own.small
    if is_small_name(own.model):
        return True
    billions = _known_sizes.get(own.server_and_model)
    return billions is not None and billions < SMALL_BILLIONS


async def learn_size(client: ChatCompletionClient) -> None:
    """Ask the server of a model for its size, once, where nothing else tells it and it may be a server of one's own."""
    own = find_own_client(client)
    if own is None or own.small is not None or own.server_and_model in _known_sizes or has_size(own.model):
        return
    _known_sizes[own.server_and_model] = None
    if find_traits(own.model).family != "unknown" and not _is_local(own.host):
        return
    _known_sizes[own.server_and_model] = await _ask(own)


def _is_local(host: str) -> bool:
    return host == "localhost" or not ("." in host or ":" in host) or (host[-1:].isdigit() and not is_public(host))


async def _ask(own: OpenAICompatibleClient) -> float | None:
    sdk = own.sdk.with_options(timeout=SIZE_REQUEST_TIMEOUT_S, max_retries=0)
    try:
        listed: Any = await sdk.get("/models", cast_to=object)
        models = [each for each in listed["data"] if isinstance(each, Mapping)]
        here = [each for each in models if each.get("id") == own.model] or models[:1]
        return next((size for each in here for size in _sizes(each)), None)
    except Exception as error:  # noqa: BLE001  (any failure means that it does not tell)
        _log.debug("a model server did not tell the size of its model: %s", first_line(error))
        return None


def _sizes(value: Mapping[str, Any]) -> Iterator[float]:
    """Yield the billions of parameters that a server's description of a model contains."""
    for key, each in value.items():
        if isinstance(each, Mapping):
            yield from _sizes(each)
        elif key in ("n_params", "parameter_count", "num_parameters") and isinstance(each, int | float):
            yield each / 1e9
        elif key in ("parameter_size", "size_label") and (
            found := re.fullmatch(r"\s*([\d.]+)\s*([bm])\s*", str(each).lower())
        ):
            yield float(found[1]) * (1 if found[2] == "b" else 0.001)
