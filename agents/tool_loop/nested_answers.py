"""Answers that a model finds in what was said already: to a nested agent's question, and to one asked in other words.

Each is one structured call. Whatever goes wrong with it, and every doubt, means: ask on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TypeVar

from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, RequestUsage, UserMessage
from pydantic import BaseModel

from upcall.agents.structured.agent import JsonForm, in_strongest_form, json_forms
from upcall.agents.structured.merging import holds_most_of
from upcall.agents.structured.parse_output import UnreadableReply, parse_reply, schema_text
from upcall.autogen.model_calls import call_model, result_of
from upcall.errors import AnswerRefused, ModelError
from upcall.policy.resolver import Answered, Matcher, is_assigned, is_risk
from upcall.prompts import PROMPTS, Context, Prompts, ReplyFormatContext
from upcall.prompts.contexts import ParentAnswerContext, SameQuestionContext
from upcall.questions.answer import Answer, AnsweredBy
from upcall.questions.matching import parse_answer
from upcall.questions.question import Question
from upcall.runs.outputs import NestedAnswer, SameQuestion

T = TypeVar("T", bound=BaseModel)

MAX_JUDGED = 30
"""Answered questions that a model is shown, the newest; in a longer list small models lose count."""


def may_answer(question: Question) -> bool:
    """Whether an agent may answer it in the user's place: a risk is the user's to take, a secret the user's to tell,
    and what is assigned is for the assignee."""
    return not is_risk(question) and not question.secret and not is_assigned(question)


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
    """What `agent`, which knows `known`, answers to the question of its agent `nested` that works on `task`, and the
    tokens spent. No answer where it was not told one, the decision matters much, or the user must choose (S4-23)."""
    asked = "\n".join([question.question, *question.details()])
    context = ParentAnswerContext(agent=nested, task=task, question=asked)
    reply, usage = await _reply(client, known, context, NestedAnswer, agent, token, prompts)
    if reply is None or not reply.answers or not _told(known, reply.quote):
        return None, usage
    try:
        answer = parse_answer(question, reply.answer)
    except AnswerRefused:
        return None, usage
    reason = f"{agent} was told ({reply.known_from.value}): {' '.join(reply.quote.split())[:500]}"
    return answer.model_copy(update={"by": AnsweredBy.PARENT, "reason": reason}), usage


def same_question_judge(client: ChatCompletionClient, prompts: Prompts = PROMPTS) -> Matcher:
    """A model's judgement of which answered question asks the same as a new one."""

    async def judge(question: Question, answered: Sequence[Answered]) -> tuple[int | None, RequestUsage | None]:
        shown = answered[:MAX_JUDGED]
        context = SameQuestionContext(
            answered=tuple(" ".join(asked.question.split()) for asked, _ in shown), question=question.question
        )
        reply, usage = await _reply(client, (), context, SameQuestion, "ledger", CancellationToken(), prompts)
        number = reply.number if reply is not None else None
        return (number - 1 if number is not None and 1 <= number <= len(shown) else None), usage

    return judge


async def _reply(
    client: ChatCompletionClient,
    known: Sequence[LLMMessage],
    context: Context,
    kind: type[T],
    agent: str,
    token: CancellationToken,
    prompts: Prompts,
) -> tuple[T | None, RequestUsage | None]:
    """The model's reply, if it can be read, and the tokens spent; in the strongest form of JSON the server takes."""
    shape = ReplyFormatContext(reply_schema=schema_text(kind), final=False)
    asked = UserMessage(content=f"{prompts.render(context)}\n\n{prompts.render(shape)}", source="system")

    def ask(form: JsonForm) -> Awaitable[CreateResult]:
        return result_of(call_model(client, [*known, asked], agent=agent, json_output=form, cancellation_token=token))

    try:
        result, _ = await in_strongest_form(json_forms(client, kind), ask)
    except ModelError:
        return None, None
    return _read(result.content if isinstance(result.content, str) else "", kind), result.usage


def _told(known: Sequence[LLMMessage], quote: str) -> bool:
    """Whether the words that a model says it was told are there at all; a model may make them up."""
    return holds_most_of("\n".join(str(message.content) for message in known), quote)


def _read(text: str, kind: type[T]) -> T | None:
    try:
        return parse_reply(text, kind)
    except UnreadableReply:
        return None
