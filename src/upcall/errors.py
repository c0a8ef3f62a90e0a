"""One tree of errors. The branch says who must act; the message says what, with which value, and what to do.

Waiting for the human, a spent budget and a refusal by the human are results, not errors.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from upcall import identity
from upcall.text import one_line

_SHOWN_CHARS = 200


class PortableError(Exception):
    """An error that comes through pickle and copy with its text and its fields, as process pools need, whatever its
    constructor takes: Python would call that with the text alone."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(kind: type[PortableError], args: tuple[Any, ...], fields: dict[str, Any]) -> PortableError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class UpcallError(PortableError):
    """Base of every error this library raises on purpose. Its text is one line that a user can act on."""


class CallerError(UpcallError):
    """The program or the command line asked for something impossible. Nothing was changed."""


class ConfigurationError(CallerError):
    """A setting, a file or an argument is missing or wrong."""


class UnusableSchema(CallerError, ValueError):
    """No form can show the schema of an answer; the text says why."""


class AwaitedValue(CallerError, TypeError):
    """A tool awaits a call that returns a value, such as `ask_secret`. Nobody was asked."""


class TeamNotBuilt(ConfigurationError):
    """The function that builds a team failed, or gave something else."""


class SharedAgent(ConfigurationError):
    """An agent, a team or a model context has worked in another run, and would carry that run's words into this one.

    `what` says which; the text adds the remedy.
    """

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}, whose messages it keeps. Build it inside the function that builds the team, so that each run has "
            "its own."
        )
        self.what = what


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra."""
    return f"pip install '.[{extra}]' in a checkout of upcall"


def missing_extra(problem: str, extra: str) -> ConfigurationError:
    """Return the error for a package of an extra that cannot be loaded."""
    return ConfigurationError(f"{problem}. Install it: {install_command(extra)}")


def require_type(name: str, value: object, kinds: type | tuple[type, ...], what: str) -> None:
    """Refuse an argument of the wrong type, which would fail later and elsewhere. `what` says what it must be.

    Raises:
        ConfigurationError: the type is wrong.
    """
    if not isinstance(value, kinds):
        raise ConfigurationError(f"{name} is {type(value).__name__}; it must be {what}.")


class UnknownRun(CallerError):
    """No stored run has this id."""

    def __init__(self, run_id: str, reason: str = "no run has this id") -> None:
        super().__init__(f"Unknown run {run_id!r}: {reason}. See the stored runs with: upcall list")
        self.run_id = run_id


class NotAllowed(CallerError):
    """Only somebody else may act on the run or the question. Nothing was changed."""


class RunNotWaiting(CallerError):
    """The run has no open question, or is over, so this command does not apply."""


class AnswerError(UpcallError):
    """The human's answer cannot be accepted as it is. Nothing was changed; answer again."""


class UnknownQuestion(AnswerError):
    """No open question has this id."""

    def __init__(self, question_id: str, open_ids: Sequence[str]) -> None:
        listed = ", ".join(open_ids) or "none"
        super().__init__(f"Unknown question {question_id!r}. Open questions: {listed}.")
        self.question_id = question_id
        self.open_ids = tuple(open_ids)


class AnswerRefused(AnswerError):
    """The question does not accept this answer."""


class FieldsRefused(AnswerRefused):
    """Fields of a form do not fit.

    ``problems`` are the messages by field, "" for the whole; ``given`` is what was filled in.
    """

    def __init__(self, message: str, problems: Mapping[str, str], given: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.problems = dict(problems)
        self.given = dict(given)


class QuestionExpired(AnswerRefused):
    """The question has expired. Its recorded outcome stands."""


class AlreadyAnswered(AnswerError):
    """The question already has a different answer. The first answer stands; a copy of the run continues with another
    one (`Upcall.fork`)."""

    def __init__(self, message: str, question_id: str) -> None:
        super().__init__(message)
        self.question_id = question_id


class EffectsRemain(CallerError):
    """Effects that depended on another answer cannot be taken back. Nothing was done, except that a run at work which
    made them just now is stopped."""

    def __init__(self, effects: Sequence[str], stopped: str | None = None) -> None:
        count = f"{len(effects)} effect{'' if len(effects) == 1 else 's'}"
        done = f"Run {stopped} is stopped; to go on: upcall resume {stopped}." if stopped else "Nothing was done."
        super().__init__(
            f"{count} that depended on the earlier answer cannot be taken back: {'; '.join(effects)}. "
            f"{done} To do the rest again all the same: --keep-effects (keep_effects=True; over HTTP, its bill)."
        )
        self.effects = tuple(effects)


class OverrulesAssumption(AlreadyAnswered):
    """The answer is another than what was assumed, and the run has continued with that. A branch in the place of the
    run does again what depended on it (`Upcall.fork` with ``replace=True``)."""

    def __init__(self, question_id: str, assumed: str, run_id: str = "RUN") -> None:
        assumed = one_line(assumed, _SHOWN_CHARS)
        super().__init__(
            f"For question {question_id}, {assumed!r} was assumed, and the run has continued with that. To overrule it "
            f"and do again what depended on it (with --dry-run first, to see what that is): upcall fork {run_id} "
            f"{question_id} ANSWER --replace",
            question_id,
        )
        self.assumed = assumed


class ModelError(UpcallError):
    """A model call failed. The run is stored as it was before the call and can be resumed."""


class ConversationTooLong(ModelError):
    """The model server refused a request because it is longer than what the model takes."""


class ModelAuthenticationError(ModelError):
    """The server refused the key (HTTP 401 or 403)."""


class ModelNotFound(ModelError):
    """The server does not know the model or the address (HTTP 404)."""


class ModelTimeout(ModelError):
    """The server did not reply in time (a client timeout, HTTP 408 or 504)."""


class ModelUnavailable(ModelError):
    """The server cannot be reached, is overloaded, or broke (no connection, HTTP 429, HTTP 5xx)."""


class ModelReplyInvalid(ModelError):
    """The server or the model sent something unusable (a stream cut short, a body that is not JSON)."""


class ModelReplyUnfinished(ModelReplyInvalid):
    """The reply was cut off by the token limit or the server's content filter; ``reason`` says which."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class AgentFailed(UpcallError):
    """An agent that is not ours raised an exception. The run is stored and can be resumed."""


class StoredStateError(UpcallError):
    """Stored data cannot be read or written correctly. What was stored before is unchanged."""


class StoreUnavailable(StoredStateError):
    """The database ``store`` cannot be opened, read or written. A run that is at work stops there and is not failed: a
    worker continues it once it can; without one, resume it."""

    def __init__(self, text: str, store: str = "") -> None:
        super().__init__(text)
        self.store = store


class SchemaMismatch(StoredStateError):
    """The stored data cannot be read by this version of upcall, or does not fit the team that should load it."""


class NewerFormat(SchemaMismatch):
    """Stored data has a format that this version of upcall does not read. A later version does; the data stays as it
    is."""


class TeamMismatch(SchemaMismatch):
    """The team that should continue a stored run lacks what the run needs, or has it differently. Nothing was changed.

    The first line of its text is a summary, followed by one line for each of ``incompatibilities``.
    """

    def __init__(self, run_id: str, incompatibilities: Sequence[Any]) -> None:
        many = "1 thing does" if len(incompatibilities) == 1 else f"{len(incompatibilities)} things do"
        summary = f"Run {run_id} cannot continue with this team: {many} not fit. The run was left unchanged."
        super().__init__("\n".join([summary, *map(str, incompatibilities)]))
        self.run_id = run_id
        self.incompatibilities = tuple(incompatibilities)


class RunConflict(StoredStateError):
    """Another process advanced this run in the meantime. Nothing was written."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"Run {run_id} was advanced by another process; nothing was written. Look at it with: upcall show {run_id}"
        )
        self.run_id = run_id


class RunGone(RunConflict):
    """The run was removed from the store in the meantime. Nothing was written."""

    def __init__(self, run_id: str, store: str) -> None:
        StoredStateError.__init__(
            self,
            f"Run {run_id} is no longer in the store {store}: it was removed, or the database was replaced. Nothing "
            "was written.",
        )
        self.run_id = run_id


class TooLarge(StoredStateError):
    """The data is larger than the store accepts. Nothing was written."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(
            f"{what} has {size / 1e6:.1f} MB, more than the {limit / 1e6:.1f} MB that the store accepts; nothing was "
            "written. Raise store.max_state_bytes in the settings, or keep less in the team's state."
        )


class RunBusy(RunConflict):
    """Another process is working on this run. Nothing was written."""

    def __init__(self, run_id: str, worker: str, seconds: float) -> None:
        StoredStateError.__init__(
            self,
            f"Run {run_id} is being worked on by {worker}; nothing was written. Look at it with: upcall show {run_id}. "
            f"If that process is dead, the run can be resumed in {max(1, round(seconds))} s.",
        )
        self.run_id, self.worker, self.seconds = run_id, worker, seconds


class RunBeingReplaced(RunConflict):
    """What depended on an answer of this run is being taken back, or that was cut off. Nothing was written."""

    def __init__(self, run_id: str, question_ids: Sequence[str]) -> None:
        first, *others = question_ids
        also = "".join(f" --also {each}=ANSWER" for each in others)
        asked = f"question{'s' if others else ''} {', '.join(question_ids)}"
        StoredStateError.__init__(
            self,
            f"Run {run_id} is being done again with another answer to {asked}; nothing was written. If that was cut "
            f"off, complete it: upcall fork {run_id} {first} ANSWER --replace{also}",
        )
        self.run_id, self.question_ids = run_id, tuple(question_ids)


class UserAtLimit(RunConflict):
    """The user already has the maximum number of runs at work. Nothing was written; the run stays queued."""

    def __init__(self, run_id: str, user: str, limit: int, seconds: float) -> None:
        StoredStateError.__init__(
            self,
            f"Run {run_id} stays queued: {limit} runs of {user} are at work (queue.user_limit); nothing was written.",
        )
        self.run_id, self.seconds = run_id, seconds


class RunHeld(RunConflict):
    """An operator holds the run's user, team or model, or the queue. Nothing was written: a queued run stays so, and
    continues after the release; a fork can be made then."""

    def __init__(self, run_id: str, hold: str, seconds: float) -> None:
        StoredStateError.__init__(self, f"Run {run_id} has to wait: {hold}. Nothing was written.")
        self.run_id, self.seconds = run_id, seconds


class WorkspaceMissing(StoredStateError):
    """The folder of a run's files is not on this machine, and cannot be rebuilt from the store. Nothing was changed;
    with workers, the run stays queued for one that has the folder."""

    def __init__(self, run_id: str, folder: Path, why: str = "it does not exist") -> None:
        self.run_id, self.folder, self.machine = run_id, folder, platform.node()
        super().__init__(
            f"Run {run_id} cannot continue on {self.machine} in its workspace {folder}: {why}. Continue where "
            "the folder is, or copy it here."
        )


class UserInputRequired(PortableError):
    """Raised by a function tool that needs the human: its call waits, and the answer becomes the call's result.

    Source: seed S4 (``UserInputRequiredException``). The question is checked like any other; an invalid one becomes an
    error result of the call. ``request_id`` is also the id of the question in events and state (S4-32).

    `context` and `clarification_type` are those of the question. With `again` the answer is not the result: the tool is
    called again and gets it from `upcall.ask`, or a `secret` one from `upcall.ask_secret`; both functions ask this
    way. `consent` (a `ConsentSubject`) is what a yes to a tool of upcall's own is about. `allow_free_text` and
    `multi_select` are those of the question; None is its own default. `schema` is the type or JSON schema of an answer
    of several fields, and `draft` what stands in them at first. `default` is what is assumed, and `on_ask` whether the
    call continues with that until the human answers; None is what the settings say.
    """

    def __init__(
        self,
        question: str,
        options: Sequence[Any] | None = None,
        *,
        secret: bool = False,
        context: str | None = None,
        clarification_type: str | None = None,
        again: bool = False,
        consent: Any = None,
        allow_free_text: bool | None = None,
        multi_select: bool | None = None,
        schema: Any = None,
        draft: Mapping[str, Any] | None = None,
        default: str | None = None,
        on_ask: Literal["wait", "assume"] | None = None,
    ) -> None:
        super().__init__(f"User input required: {question}")
        self.request_id = identity.new_id()
        self.question = question
        self.options = tuple(options or ())
        self.secret = secret
        self.context = context
        self.clarification_type = clarification_type
        self.again = again or secret
        self.consent = consent
        self.allow_free_text = allow_free_text
        self.multi_select = multi_select
        self.schema = schema
        self.draft = draft
        self.default = default
        self.on_ask = on_ask


class AskedOutsideTool(UserInputRequired, UpcallError):
    """A question was asked where nobody can wait for its answer: in a function that selects a speaker, in a termination
    condition, in a turn or a memory of the program's own, in a thread that is of no tool call.

    `needed` is the question.
    """

    def __init__(self, where: str, needed: UserInputRequired) -> None:
        super().__init__(needed.question)
        self.args = (where,)
        self.__dict__.update(needed.__dict__)
