"""The arguments of `Upcall.start`: a task, as in AutoGen's own `run`, and the options of one run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast, get_args

from autogen_agentchat.messages import BaseChatMessage, ChatMessage, MultiModalMessage, TextMessage
from pydantic import BeforeValidator, ConfigDict, Field, PlainValidator, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic checks no other before Python 3.12

from upcall import identity
from upcall.autogen.messages import USER
from upcall.budget import BudgetInput, read_budget
from upcall.config_source import describe_wrong, list_known
from upcall.errors import ConfigurationError
from upcall.options import OnExpiry
from upcall.policy.facts import parse_facts
from upcall.questions.matching import is_text
from upcall.questions.question import OnAsk
from upcall.runs.config import RUN_ID, Fact, RunId
from upcall.runs.run import Run
from upcall.setting_types import no_flag, read_duration

TaskInput: TypeAlias = str | BaseChatMessage | Sequence[BaseChatMessage]
"""Text, a message, or messages, the last one of which is the task."""

EARLIER = "earlier_assistant"
"""The source of messages in the earlier conversation that the user did not write."""

THIS_RUN = "this run"
"""The place of a fact that was given with a run."""

_MESSAGES: tuple[type[BaseChatMessage], ...] = get_args(get_args(ChatMessage)[0])
"""The message types that a team accepts, from AutoGen's annotated union."""

NO_TEXT = "The task, its history, user_info or facts contain bytes that are not UTF-8 text. Use plain text."


def _read_duration(value: object) -> object:
    return None if value is None else read_duration(value)


def _read_followed(value: object) -> object:
    if not (value is None or isinstance(value, Run | str)):
        raise ValueError("it must be a run, or its id")
    return value.id if isinstance(value, Run) else value


class StartOptions(TypedDict, total=False):
    """The options of one run; an option that is None or missing uses the setting of the same name.

    Attributes:
        user: the owner of the run; without one it is the operator's.
        workspace: the folder of the coder's files; ``upcall-work/RUN`` by default.
        documents: files and folders that the researcher reads.
        history: the conversation before the task, oldest first, the user's messages with source ``user``.
        user_info: name and email, given to the classifier.
        data_sources: ids of the tools that may be used; ``documents`` for the documents.
        facts: standing answers for this run, used before those of the settings: ``{"framework": "Express"}``.
        unattended: whether nobody is there to answer, so that questions get their default, listed in
            `Run.assumptions`; a risk confirmation still waits.
        on_ask: what an agent does that asks: ``wait`` for the answer, or ``assume`` the question's default (or first
            option) and continue; the question stays in the inbox. ``wait`` comes before what a tool says of its own
            question, as the settings' ``on_ask`` does not; their ``ask_rules`` come first.
        expires_after: how long each question of the run waits: seconds, or a text like ``2h``.
        on_expiry: what happens after that; see `Upcall.expire`.
        budget: how much the run may use before it pauses and asks whether it may continue: a text like ``50 calls,
            200k tokens, 30m, cost 2.50``, or the limits by name. A limit that it does not name is that of the
            settings.
        priority: runs with a higher priority are taken first by workers; 0 if not given.
        open: whether everybody may read the run; else only its owner and admins do.
        follows: the run that this one follows, or its id. It must have ended. Its conversation, and that of those that
            it followed, comes before the task; folder, documents and user are the same unless other options name them.
        run_id: the run's id instead of a generated one: letters, digits, ``-`` and ``_``.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]  # pydantic's own way for a TypedDict

    user: str | None
    workspace: str | Path | None
    documents: Sequence[str | Path] | None
    history: Sequence[TextMessage]
    user_info: Mapping[str, str] | None
    data_sources: Sequence[str] | None
    facts: Mapping[str, Any] | None
    unattended: bool | None
    on_ask: OnAsk | None
    expires_after: Annotated[float | str | timedelta | None, BeforeValidator(_read_duration)]
    on_expiry: OnExpiry | None
    budget: Annotated[BudgetInput | None, BeforeValidator(read_budget)]
    priority: Annotated[int, BeforeValidator(no_flag), Field(ge=-(2**31), lt=2**31)] | None
    open: bool | None
    follows: Annotated[Run | str | None, PlainValidator(_read_followed)]
    run_id: RunId | None


def check_options(options: Mapping[str, object]) -> StartOptions:
    """Check the options of a start; those that are None are dropped.

    Raises:
        ConfigurationError: one of them is unknown or invalid.
    """
    try:
        checked = _checker().validate_python(dict(options))
    except ValidationError as error:
        raise ConfigurationError(_explain(error)) from error
    given = cast(StartOptions, {name: value for name, value in checked.items() if value is not None})
    _refuse_bytes(each.content for each in given.get("history", ()))
    return given


def require_new_id(name: str, value: object) -> None:
    """Refuse an invalid run id.

    Raises:
        ConfigurationError: it is invalid.
    """
    if not (isinstance(value, str) and re.fullmatch(RUN_ID, value)):
        raise ConfigurationError(_explain_id(name, value))


def read_facts(options: StartOptions) -> tuple[Fact, ...]:
    """Return the facts of one run.

    Raises:
        ConfigurationError: one has no words to recognize a question by, or its answer is not text.
    """
    facts = parse_facts(options.get("facts") or {}, lambda _: THIS_RUN)
    _refuse_bytes(text for fact in facts for text in (fact.asked, fact.answer))
    return facts


def read_task(task: object, *, root_team: bool) -> tuple[str, tuple[BaseChatMessage, ...]]:
    """Return the text of a task, and its messages. In the root team the last one counts as the user's.

    Raises:
        ConfigurationError: it is empty or has another type.
    """
    messages = _as_messages(task, (TextMessage, MultiModalMessage) if root_team else _MESSAGES)
    if root_team and messages:
        messages = [*map(as_history, messages[:-1]), messages[-1].model_copy(update={"source": USER})]
    latest = list(takewhile(lambda each: each.source == messages[-1].source, reversed(messages)))
    text = "\n\n".join(each.to_model_text() for each in reversed(latest)).strip()
    if not text:
        raise ConfigurationError("The task is empty. Describe what to do.")
    _refuse_bytes(each.to_model_text() for each in messages)
    return text, tuple(messages)


def as_history(message: BaseChatMessage) -> BaseChatMessage:
    """Return a message of the earlier conversation. A text by a member of the team would end the run at once."""
    return message if message.source == USER else message.model_copy(update={"source": EARLIER})


def _as_messages(task: object, kinds: tuple[type[BaseChatMessage], ...]) -> Sequence[BaseChatMessage]:
    if isinstance(task, str):
        return [TextMessage(id=identity.new_message_id(), source=USER, content=task)]
    given = task if isinstance(task, Sequence) and not isinstance(task, bytes) else [task]
    messages = [each for each in given if isinstance(each, kinds)]
    if wrong := [each for each in given if not isinstance(each, kinds)]:
        raise ConfigurationError(
            f"The task is {type(wrong[0]).__name__}; it must be text, an AutoGen message "
            f"({', '.join(kind.__name__ for kind in kinds)}), or a list of these."
        )
    return messages


@cache
def _checker() -> TypeAdapter[StartOptions]:
    return TypeAdapter(StartOptions)


def _explain(error: ValidationError) -> str:
    """Return one line about the first invalid option."""
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return f"There is no option {name!r} of a run{list_known(name, StartOptions.__annotations__)}"
    if first["type"] == "string_unicode":
        return NO_TEXT
    if name == "run_id":
        return _explain_id(name, first["input"])
    return describe_wrong(first["loc"], first["input"], first["msg"])


def _explain_id(name: str, value: object) -> str:
    return f"{name} = {value!r} is wrong: a run's id is 1 to 64 letters, digits, '-' and '_'."


def _refuse_bytes(texts: Iterable[str]) -> None:
    if not all(map(is_text, texts)):
        raise ConfigurationError(NO_TEXT)
