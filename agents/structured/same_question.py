"""Let a model decide which answered question asks the same as a new one, in one structured call.

Any error or doubt means that none does.
"""

from __future__ import annotations

from collections.abc import Sequence

from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, RequestUsage

from upcall.agents.tool_loop.json_forms import ask_once
from upcall.policy.resolver import Matcher
from upcall.prompts import PROMPTS, Prompts
from upcall.questions.question import Question
from upcall.questions.record import Answered
from upcall.runs.outputs import SameQuestion

MAX_COMPARED = 30
"""The number of answered questions shown to a model, the newest; small models lose count in a longer list."""


def same_question_matcher(client: ChatCompletionClient, prompts: Prompts = PROMPTS) -> Matcher:
    """Make a matcher that asks a model for the number of the answered question that asks the same."""

    async def match(question: Question, answered: Sequence[Answered]) -> tuple[int | None, RequestUsage | None]:
        from upcall.prompts.contexts import SameQuestionContext

        shown = answered[:MAX_COMPARED]
        context = SameQuestionContext(
            answered=tuple(" ".join(asked.question.split()) for asked, _ in shown), question=question.question
        )
        token = CancellationToken()
        reply, usage = await ask_once(client, (), context, SameQuestion, agent="ledger", token=token, prompts=prompts)
        number = reply.number if reply is not None else None
        return (number - 1 if number is not None and 1 <= number <= len(shown) else None), usage

    return match
