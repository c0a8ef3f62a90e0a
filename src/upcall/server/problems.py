"""Errors as problem details (RFC 9457): the words are the error's, the status says who must act."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping

from pydantic import BaseModel
from starlette.responses import JSONResponse

from upcall import errors
from upcall.lazy_pattern import LazyPattern
from upcall.server.callers import Forged, NotLoggedIn
from upcall.server.events import TooManyStreams
from upcall.server.requests import KeyReused
from upcall.server.server_folders import OF_RUN
from upcall.storage.uploads import UploadsFull

MEDIA_TYPE = "application/problem+json"
INTERNAL = "This is a fault in upcall; its log says more."
CLOSED = "The service cannot do this at the moment. Try again later; whoever runs it finds the reason in its log."
"""Replaces what only concerns whoever runs the service: it names files, addresses and accounts."""

_STATUSES: Mapping[type[Exception], int] = {
    NotLoggedIn: 401,
    Forged: 403,
    errors.NotAllowed: 403,
    errors.UnknownRun: 404,
    errors.UnknownQuestion: 404,
    errors.RunNotWaiting: 409,
    errors.AlreadyAnswered: 409,
    errors.QuestionExpired: 409,
    errors.TeamMismatch: 409,
    errors.RunConflict: 409,
    errors.WorkspaceMissing: 409,
    errors.AnswerRefused: 422,
    KeyReused: 422,
    errors.TooLarge: 413,
    UploadsFull: 507,
    TooManyStreams: 429,
    errors.StoreUnavailable: 503,
    errors.ModelError: 502,
    errors.AgentFailed: 502,
    errors.CallerError: 400,
    errors.AnswerError: 400,
}
"""By the class of an error, or the nearest class above it that is here."""


FORK_COMMAND = LazyPattern(r"\bupcall fork (\S+) (\S+) (?:ANSWER|-(?!\S))((?: --replace| --also \S+=ANSWER)*)")
"""How a message names a branch with another answer: the run, the question, the options."""

_COMMAND = LazyPattern(r"\bupcall (answer|resume|show) ([\w-]+)(?![\w -])")
_REQUESTS = {"answer": "POST /api/runs/{}/answers", "resume": "POST /api/runs/{}/resume", "show": "GET /api/runs/{}"}

_log = logging.getLogger(__name__)


class Problem(BaseModel):
    """What is wrong with a request.

    Attributes:
        type: a name for the kind of problem.
        title: the kind in words.
        status: the HTTP status.
        detail: what, which value, and what to do, in one line or a few.
        fields: what is wrong with the fields of an answer, by their names.
    """

    type: str
    title: str
    status: int
    detail: str
    fields: dict[str, str] | None = None


def describe(error: Exception, *, to_operator: bool = False) -> Problem:
    """Describe an error; an unexpected one reveals nothing, and one about the store or the program something only to
    whoever runs the service."""
    if not isinstance(error, errors.UpcallError):
        return make_problem("InternalError", 500, INTERNAL)
    status = next((_STATUSES[each] for each in type(error).__mro__ if each in _STATUSES), 500)
    if status in (500, 503) and not to_operator:
        if not isinstance(error, errors.StoreUnavailable):  # The store itself reports that, once.
            _log.warning("%s: %s", type(error).__name__, error)
        return make_problem(type(error).__name__, status, CLOSED)
    text = str(error)
    if isinstance(error, errors.WorkspaceMissing):
        text = text.replace(str(error.folder), OF_RUN)
    problem = make_problem(type(error).__name__, status, text)
    return problem.model_copy(update={"fields": error.problems}) if isinstance(error, errors.FieldsRefused) else problem


def make_problem(name: str, status: int, detail: str) -> Problem:
    """Make a problem from the name of its kind."""
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", name)
    return Problem(
        type=f"urn:upcall:problem:{words.lower().replace(' ', '-')}",
        title=words.capitalize(),
        status=status,
        detail=detail,
    )


def respond(problem: Problem) -> JSONResponse:
    """Send a problem to a program; the commands in it become the requests that do the same."""
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else None
    body = problem.model_dump(exclude_none=True) | {"detail": name_requests(problem.detail)}
    return JSONResponse(body, problem.status, headers, MEDIA_TYPE)


def name_requests(text: str) -> str:
    """Return a message with the commands on a run in it replaced by the requests of the HTTP API that do the same. Any
    others are left to whoever runs the service."""

    def name_fork(found: re.Match[str]) -> str:
        run, question, options = found.groups()
        fields = {"question": question, "answer": "ANSWER"} | ({"replace": True} if "--replace" in options else {})
        also = {each.removesuffix("=ANSWER"): "ANSWER" for each in options.split() if each.endswith("=ANSWER")}
        return f"POST /api/runs/{run}/fork {json.dumps(fields | ({'also': also} if also else {}))}"

    return _COMMAND.sub(lambda found: _REQUESTS[found[1]].format(found[2]), FORK_COMMAND.sub(name_fork, text))
