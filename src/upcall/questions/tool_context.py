"""Let a tool ask the human and continue: its call waits, and the tool is called again with the answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from dis import get_instructions
from functools import cache
from hashlib import blake2b
from itertools import count
from types import FrameType
from typing import Any, TypeVar, overload

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from upcall.errors import AskedOutsideTool, AwaitedValue, UserInputRequired
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.answer_form import AnswerForm, clean_message, describe_type
from upcall.questions.question import MAX_QUESTION_CHARS, ClarificationType, ConsentSubject, OnAsk, Option, Question
from upcall.questions.secrets import HIDDEN
from upcall.questions.threads import start_threads_in_context
from upcall.text import one_line, replace_surrogates, shorten
from upcall.tracebacks import walk_causes

T = TypeVar("T")

_LEAST_HIDDEN = 4
"""A shorter secret is not looked for in results: it would be found in ordinary words."""

DIFFERS = "This is not what you were asked about before: it has changed since, so your answer to that does not count."
"""Begins the context of a consent that is asked again."""

_MAX_QUOTED_CHARS = 120


@dataclass(eq=False)
class OpenCall:
    """The tool call that runs: the answers it was given by the name of their question, those of them that are secret,
    in clear, and what it asked. Once it has ended, it cannot ask.

    ``kept`` is what it finds again when it is called again with an answer; stored with the run. ``server`` is how the
    human knows the MCP server that it calls.
    """

    answers: Mapping[str, Answer]
    secrets: Sequence[str]
    kept: dict[str, JsonValue] = field(default_factory=dict)
    server: str = ""
    asked: list[UserInputRequired] = field(default_factory=list)
    has_ended: bool = False


_call: ContextVar[OpenCall | None] = ContextVar("upcall_asking_call", default=None)


def open_call() -> OpenCall | None:
    """Return the tool call that runs; None outside of calls that may ask."""
    return _call.get()


@contextmanager
def tool_context(answers: Mapping[str, Answer], kept: Mapping[str, JsonValue] | None = None) -> Iterator[OpenCall]:
    """Inside, and in the tasks and threads that are started there, a tool call has the answers to its questions, by
    their names, and what it has `kept`.

    Raises:
        ConfigurationError: a secret among them cannot be opened.
    """
    _let_threads_ask()
    opened = {name: answer.unseal() for name, answer in answers.items()}
    secrets = [opened[name].text for name, answer in answers.items() if answer.sealed]
    token = _call.set(call := OpenCall(opened, secrets, dict(kept or {})))
    try:
        yield call
    finally:
        _call.reset(token)


@cache
def _let_threads_ask() -> None:
    start_threads_in_context(lambda: _call.get() is not None)


@contextmanager
def let_question_through() -> Iterator[None]:
    """Run the code of a tool call inside. A question that it asked ends it, whatever became of the exception in the
    code: a task group wraps it, a retry replaces it, an ``except Exception`` drops it.

    Raises:
        UserInputRequired: the call has to wait.
        AskedOutsideTool: an error of the code is one of asking where nobody can wait.
    """
    call = _call.get()
    if call is not None:
        call.has_ended = (
            False  # Begun anew: what starts late is stopped before it runs, and run after a look at the lease.
        )
    try:
        yield
    except Exception as error:
        needed = _find_question(error) or (call.asked[0] if call is not None and call.asked else None)
        if needed is None:
            raise
        _require_form(needed)
        if needed is error:
            raise
        raise needed from error
    finally:
        if call is not None:
            call.has_ended = True
    if call is not None and call.asked:
        raise call.asked[0]


def _find_question(error: BaseException) -> UserInputRequired | None:
    """Find a question among an error, the errors in its group, and those that it was raised from or after."""
    return next((each for each in walk_causes(error) if isinstance(each, UserInputRequired)), None)


def name_question(question: Question) -> str:
    """Return a name for a tool's question, made of all that the human reads of it: an answer counts for these words
    only. In a consent the digest of what it is about stands for the context, which is cut and may name a file here."""
    options = [(each.label, each.description) for each in question.options]
    about = question.consent
    read: list[Any] = [question.question, about.subject if about else question.context, options]
    read += [] if question.answer_schema is None else [question.answer_schema]
    digest = blake2b(json.dumps(read).encode(), digest_size=16).hexdigest()
    return f"{_begin_names(about.act)}{digest}" if about else digest


def _begin_names(act: str) -> str:
    return f"{act}:"


def _name(asked: UserInputRequired) -> str:
    """Return the name that its question will have; none where it cannot be put."""
    try:
        fields = {
            "question": replace_surrogates(asked.question),
            "context": asked.context,
            "options": asked.options,
            "consent": asked.consent,
            "answer_schema": None if asked.schema is None else describe_type(asked.schema),
        }
        return name_question(Question.model_validate(fields))
    except ValidationError:
        return ""


@overload
def ask(
    question: str,
    options: Sequence[str | Option] = (),
    *,
    context: str | None = None,
    clarification_type: ClarificationType | str = ClarificationType.MISSING_INFO,
    default: str | None = None,
    on_ask: OnAsk | None = None,
) -> Answer: ...


@overload
def ask(
    question: str,
    *,
    schema: type[T],
    context: str | None = None,
    clarification_type: ClarificationType | str = ClarificationType.MISSING_INFO,
    default: T | None = None,
    on_ask: OnAsk | None = None,
) -> T | Answer: ...


@overload
def ask(
    question: str,
    *,
    schema: Mapping[str, Any],
    context: str | None = None,
    clarification_type: ClarificationType | str = ClarificationType.MISSING_INFO,
    default: Mapping[str, Any] | None = None,
    on_ask: OnAsk | None = None,
) -> dict[str, Any] | Answer: ...


def ask(
    question: str,
    options: Sequence[str | Option] = (),
    *,
    schema: type[Any] | Mapping[str, Any] | None = None,
    context: str | None = None,
    clarification_type: ClarificationType | str = ClarificationType.MISSING_INFO,
    default: Any = None,
    on_ask: OnAsk | None = None,
) -> Any:
    """Return the human's answer to a question of this tool, whatever its outcome, even if it was declined or
    expired. With a `schema` that is an instance of the type, or a dict, and an `Answer` only where there is none.

    For tools of a `PausableAgent`. Without an answer yet it raises `UserInputRequired`: the call waits, and the
    tool is called again, from its beginning and with the same arguments, once the answer is there. Therefore ask before
    changing anything. An answer counts only for the same question, context and options (or fields): if these differ
    the second time (a file that is shown has changed), the question is asked again. Only the human's own choice answers
    a ``risk_confirmation``.

    Args:
        question: the question.
        options: the choices, where one of them is the answer.
        schema: the form of an answer of several fields: a pydantic model (or a dataclass), or a JSON schema. Its fields
            are texts, numbers, dates, flags, choices and lists of these, nested one level at most. What the model
            refuses by rules of its own is asked again, with its message.
        context: why it is asked.
        clarification_type: what kind of question it is.
        default: what is assumed where nobody answers: a text, or with a `schema` an instance of it, or a dict.
        on_ask: ``assume`` continues with the `default` (or first option) until the human answers, ``wait`` does not,
            unless a rule of the settings says otherwise; by default the settings decide. Where only the human's own
            word counts, the call waits all the same.

    Raises:
        UserInputRequired: the question has to be asked. A tool that catches it is called again all the same.
        AskedOutsideTool: no tool call can wait here.
        UnusableSchema: no form can show the schema.
        AwaitedValue: with a `schema`, it is awaited; that is for an `Answer` alone, and not needed there either.
    """
    chosen = [Option.model_validate(each) for each in options]
    kind = ClarificationType(clarification_type)
    if schema is not None:
        _refuse_await("ask with a schema")
        return _ask_fields(question, schema, context, kind, default, on_ask)
    needed = UserInputRequired(
        question,
        chosen,
        context=context,
        clarification_type=kind.value,
        again=True,
        default=default,
        on_ask=on_ask,
    )
    return find_answer(needed)


def _ask_fields(
    question: str, schema: Any, context: str | None, kind: ClarificationType, default: Any, on_ask: OnAsk | None
) -> Any:
    described, about, draft = describe_type(schema), context, None
    assumed = None if default is None else json.dumps(to_jsonable_python(default))
    for number in count(1):  # Each answer that the type refuses makes it another question: this ends at an open one.
        answer = find_answer(
            UserInputRequired(
                question,
                context=about,
                clarification_type=kind.value,
                again=True,
                schema=described,
                draft=draft,
                default=assumed,
                on_ask=on_ask,
            )
        )
        if answer.outcome not in (Outcome.ANSWERED, Outcome.ASSUMED):
            return answer
        values = json.loads(answer.text)
        try:
            return values if isinstance(schema, Mapping) else TypeAdapter(schema).validate_json(answer.text)
        except ValidationError as error:
            about, assumed = _explain_refusal(error, number, context), None  # It would be refused again.
            if answer.by is AnsweredBy.FACTS:  # It would be given again, for ever.
                raise ValueError(f"{about} It comes from {answer.reason}: correct that.") from error
            draft = values
    raise AssertionError("numbers do not end")


def _explain_refusal(error: ValidationError, number: int, context: str | None) -> str:
    """Say what a type refuses of an answer, in the context of the question that asks again."""
    problems = []
    for each in error.errors(include_url=False, include_input=False)[:5]:
        where = ".".join(map(str, each["loc"]))
        message = clean_message(each["msg"])
        problems.append(one_line(f"{where}: {message}" if where else message, 300))
    times = "" if number == 1 else f" ({number} times so far)"
    problem = f"What was answered does not fit{times}: {'; '.join(problems)}."
    return shorten(f"{problem}\n{context}" if context else problem, MAX_QUESTION_CHARS - 1)


def ask_consent(question: str, options: Sequence[Option], consent: ConsentSubject, *, context: str) -> Answer:
    """Return the human's answer to whether one thing may be done, as `ask` does for a risk.

    It counts for this very thing: if its digest is another one the second time, the human is asked again, and learns
    that it is not what they were asked about before.

    Raises:
        UserInputRequired: the question has to be asked. Do not catch it.
    """
    shown = f"{DIFFERS}\n{context}" if was_asked(consent.act) else context
    kind = ClarificationType.RISK_CONFIRMATION.value
    return find_answer(
        UserInputRequired(question, options, context=shown, clarification_type=kind, again=True, consent=consent)
    )


def was_asked(act: str) -> bool:
    """Return whether the tool call that runs has an answer about an act of this kind, whatever it was about."""
    call = _call.get()
    return call is not None and any(name.startswith(_begin_names(act)) for name in call.answers)


def ask_secret(question: str, options: Sequence[str] | None = None) -> str:
    """Return a secret that the human gives only to this tool: no model, no other agent, no log and no event gets it.

    For function tools of a `PausableAgent`. If the human has not answered yet, it raises `UserInputRequired`: the
    call waits, and the tool is called again, from its beginning and with the same arguments, once the answer is there.
    Therefore ask before changing anything. Ask for a second secret in other words.

    Raises:
        UserInputRequired: the question has to be asked. Do not catch it.
        AwaitedValue: it is awaited; it returns a text.
    """
    _refuse_await("ask_secret")
    return find_answer(UserInputRequired(question, options, secret=True)).text


def find_answer(needed: UserInputRequired) -> Answer:
    """Return the answer that the tool call that runs was given to a question.

    Raises:
        UserInputRequired: there is none.
        AskedOutsideTool: no tool call can wait here.
    """
    call = _call.get()
    known = call.answers.get(_name(needed)) if call is not None else None
    if known is not None:
        return known
    _require_form(needed)
    if call is None or call.has_ended:
        asks, where = one_line(needed.question, _MAX_QUOTED_CHARS), _show(_find_asker())
        raise AskedOutsideTool(
            f"{asks!r} was asked in {where}, outside of a tool call: only the call of a tool can wait for the user. "
            "Ask in the function of a tool that an agent has, before it returns, and in its own thread or one that it "
            "starts.",
            needed,
        )
    call.asked.append(needed)
    raise needed


def _require_form(needed: UserInputRequired) -> None:
    """Check that the fields of an answer can be shown: here, where they are asked for, and not where the question is
    read, which is stored.

    Raises:
        UnusableSchema: they cannot.
    """
    if needed.schema is not None:
        AnswerForm.of(describe_type(needed.schema))


def _refuse_await(called: str) -> None:
    """Refuse to ask where the value is awaited. Python would find out that it cannot be once the human has answered.

    Raises:
        AwaitedValue: what comes after the call of this module is its `await`.
    """
    frame = _find_asker()
    coming = (each.opname for each in get_instructions(frame.f_code) if each.offset > frame.f_lasti)
    if next(coming, "") == "GET_AWAITABLE":  # Its value may be an argument of what is awaited.
        raise AwaitedValue(f"{called} returns its value and cannot be awaited, as in {_show(frame)}. Leave out await.")


def _find_asker() -> FrameType:
    """Return the frame of the function that asks."""
    frame = sys._getframe()
    while frame.f_globals.get("__name__") == __name__ and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _show(frame: FrameType) -> str:
    """Return the function of a frame, and its line."""
    return f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}, line {frame.f_lineno})"


def redact_secrets(text: str) -> str:
    """Return the text, a result or an error of the tool call that runs, without the secrets that the call was given."""
    call = _call.get()
    for secret in sorted(call.secrets if call is not None else (), key=len, reverse=True):  # One may begin another.
        if len(secret) >= _LEAST_HIDDEN:
            text = text.replace(secret, HIDDEN)
    return text


def question_fields(needed: UserInputRequired, tool: str) -> dict[str, Any]:
    """Return what a tool asks, as plain JSON for the journal: the fields of its question, and for which ``tool`` the
    answer is, where that continues with it. An option that is not JSON becomes None, which no question accepts."""
    options = [
        each.model_dump(mode="json", exclude_none=True) if isinstance(each, Option) else each for each in needed.options
    ]
    options = to_jsonable_python(options, fallback=lambda _: None)
    fields = {"question": needed.question, "options": options, "id": needed.request_id}
    more: dict[str, Any] = {"context": needed.context, "clarification_type": needed.clarification_type}
    more |= {"default": needed.default, "on_ask": needed.on_ask}
    more |= {"allow_free_text": needed.allow_free_text, "multi_select": needed.multi_select}
    own: dict[str, Any] = {"tool": tool, **({"secret": True} if needed.secret else {})} if needed.again else {}
    if needed.schema is not None:
        own["answer_schema"] = describe_type(needed.schema)
    if needed.draft is not None:
        own["answer_draft"] = dict(needed.draft)
    if needed.consent is not None:
        own["consent"] = needed.consent.model_dump(mode="json")
    return {**fields, **{name: value for name, value in more.items() if value is not None}, **own}
