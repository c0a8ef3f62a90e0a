"""Which of OpenAI's two APIs a model is called by: chat completions, or Responses, which some models have alone.

The table of models knows these by their names; what a server says when it is asked in the wrong place is learned like
its other rules.
"""

from __future__ import annotations

import re
from collections.abc import Container
from enum import StrEnum
from typing import Final

from upcall.lazy_pattern import LazyPattern
from upcall.model_table import ApiChoice


class Api(StrEnum):
    """An API of OpenAI's protocol."""

    CHAT_COMPLETIONS = "chat_completions"
    RESPONSES = "responses"

    @property
    def path(self) -> str:
        """The path of its requests, after the base URL."""
        return "/chat/completions" if self is Api.CHAT_COMPLETIONS else "/responses"

    @property
    def other(self) -> Api:
        """The other one."""
        return Api.RESPONSES if self is Api.CHAT_COMPLETIONS else Api.CHAT_COMPLETIONS


INSTEAD: Final = {
    Api.CHAT_COMPLETIONS: "chat completions (Responses instead)",
    Api.RESPONSES: "Responses (chat completions instead)",
}
"""The names of the rules that a server does not take a model's requests by an API."""

_NAMES_OTHER: Final = {
    Api.CHAT_COMPLETIONS: LazyPattern(
        r"v1/responses|(?<![\w.])/responses\b|responses[ -]?(?:api|endpoint)|not a chat model|unsupported_api_for_model"
        r"|/chat/completions endpoint|chat ?completions? operation does not work"
    ),
    Api.RESPONSES: LazyPattern(
        r"v1/chat/completions|(?<![\w.])/chat/completions|/responses endpoint|unsupported_api_for_model"
        r"|responses[ -]?(?:api|endpoint).{0,60}(?:\bnot\b|\bonly\b|unsupported|disabled)"
        r"|(?:\bnot\b|unsupported).{0,60}responses[ -]?(?:api|endpoint)"
    ),
}
"""How refusals of one API say that the other is meant: OpenAI, GitHub Copilot, LiteLLM, Azure."""

_NO_PATH = (404, 405, 501)
_UNKNOWN_PATH = LazyPattern(r"unexpected endpoint|unknown (?:request )?url|invalid url|cannot post")


def choose_api(choice: ApiChoice, known: Api, rules: Container[str]) -> Api:
    """Return the API for a model: the chosen one, else the one `known` for it, unless the server's rules exclude it."""
    if choice != "auto":
        return Api(choice)
    return known.other if INSTEAD[known] in rules and INSTEAD[known.other] not in rules else known


def is_refused_here(api: Api, status: int | None, words: str) -> bool:
    """Return whether a refusal says that this API is the wrong one for the model, or that the server has none such.

    A missing path is distinguished from a missing model, or a form of reply that is not there, by what a server says of
    it.
    """
    lower = words.lower()
    if _NAMES_OTHER[api].search(lower) or _UNKNOWN_PATH.search(lower):
        return True
    return status in _NO_PATH and not re.search("model|deployment|response_format|stream|tool", lower)
