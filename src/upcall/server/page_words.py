"""The hints of errors in the words of a page: they name its buttons, and no command of a shell."""

from __future__ import annotations

import re

from upcall.execution.demo import WITH_A_MODEL
from upcall.lazy_pattern import LazyPattern
from upcall.server.problems import FORK_COMMAND

_WORD = r"(?:check|create|list|prune|restore|upgrade|export|[A-Z]+|[0-9a-f-]{6,}|--[\w-]+(?: [\w./]+)?)"
_ACTIONS = {
    "answer": "its question, on the run's page",
    "fork": "“What if it were answered differently?” on the run's page",
    "inbox": "the page “Inbox”",
    "list": "the page “Runs”",
    "resume": "“Resume” on the run's page",
    "run": "the page “Start a task”",
    "show": "the run's page",
    "undo": "“Undo” at the changed files",
}
_OTHERS = ("deliveries", "expire", "log", "memory", "serve", "store", "token", "worker", "workers")
_OF_RUN = LazyPattern(r"\bupcall (answer|resume|show|undo) [\w-]+(?=[.;,)`]|$)")
"""A run may have any name. Before anything but the end of a clause it is none: it is a word of the sentence."""

_COMMAND = LazyPattern(rf"`?\bupcall (?P<verb>{'|'.join((*_ACTIONS, *_OTHERS))})\b(?: {_WORD})*`?")
_ELSEWHERE = "the command line (ask whoever runs this service)"

_COMPLETION = LazyPattern(r"complete it: upcall fork \S+ \S+ ANSWER --replace(?: --also \S+=ANSWER)*")


def name_page_actions(text: str) -> str:
    """Return a message with the commands in it replaced by what does the same on the pages, and without how a model
    is set on the command line."""

    def name(found: re.Match[str]) -> str:
        return _ACTIONS.get(found["verb"], _ELSEWHERE)

    text = text.replace(f"set one {WITH_A_MODEL}", "whoever runs this service sets one")
    text = _COMPLETION.sub("it can be completed on the run's page", text)
    text = _OF_RUN.sub(r"upcall \1 RUN", FORK_COMMAND.sub("upcall fork RUN", text))
    return _COMMAND.sub(name, text)
