"""Answer a nested agent's question if its parent already knows the answer: one structured call.

Any error or doubt means that the question goes up.
"""

from __future__ import annotations

from collections.abc import Sequence

from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, LLMMessage, RequestUsage

from upcall.agents.tool_loop.json_forms import ask_once
from upcall.autogen.known_answers import is_assigned
from upcall.errors import AnswerRefused
from upcall.prompts import PROMPTS, Prompts
from upcall.questions.answer import Answer, AnsweredBy
from upcall.questions.matching import parse_answer
from upcall.questions.question import Question
from upcall.runs.outputs import NestedAnswer
from upcall.words import holds_most_of


def may_answer(question: Question) -> bool:
    """Return whether an agent may answer in the user's place.

    A risk is the user's to take, a secret the user's to give, and what is assigned is for the assignee.
    """
    return not question.is_risk and not question.secret and not is_assigned(question)


async def answer_nested(
    client: ChatCompletionClient,
    known: Sequence[LLMMessage],
    question: Question,
    *,
    agent: str,
    nested: str,
    task: str,
    token: CancellationToken,
    prompts: Prompts = PROMPTS,
) -> tuple[Answer | None, RequestUsage | None]:
    """Return what `agent`, which knows `known`, answers to the question of its agent `nested` that works on `task`,
    and the tokens spent. No answer where it knows none, the decision matters much, or the user must choose
    (S4-23)."""
    from upcall.prompts.contexts import ParentAnswerContext

    asked = "\n".join([question.question, *question.details()])
    context = ParentAnswerContext(agent=nested, task=task, question=asked)
    reply, usage = await ask_once(client, known, context, NestedAnswer, agent=agent, token=token, prompts=prompts)
    if reply is None or not reply.answers or not _is_in(known, reply.quote):
        return None, usage
    try:
        answer = parse_answer(question, reply.answer)
    except AnswerRefused:
        return None, usage
    reason = f"{agent} knew it ({reply.known_from.value}): {' '.join(reply.quote.split())[:500]}"
    return answer.model_copy(update={"by": AnsweredBy.PARENT, "reason": reason}), usage


def _is_in(known: Sequence[LLMMessage], quote: str) -> bool:
    """Whether the words that a model claims to have read exist; a model may make them up."""
    return holds_most_of("\n".join(str(message.content) for message in known), quote)
