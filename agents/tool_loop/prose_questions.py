"""Questions in prose: a text that ends a turn with a question mark, and the `ask_user` call it stands for (S1-24).

One rule, since patterns of politeness never end: the model itself is asked first whether it needs an answer. If a later
text of the turn ends with a question again, the user is asked that.
"""

from __future__ import annotations

import json

from autogen_core import FunctionCall
from autogen_core.models import CreateResult

from upcall.agents.tool_loop.ask_user import ASK_USER
from upcall.agents.tool_loop.output import NotYet
from upcall.agents.tool_loop.parts import PausableParts
from upcall.agents.tool_loop.turn import Turn
from upcall.autogen.thoughts import find_fences
from upcall.autogen.truncated_replies import find_cut
from upcall.lazy_pattern import LazyPattern
from upcall.questions.question import MAX_LABEL_CHARS, MAX_OPTIONS, MAX_QUESTION_CHARS

_ITEM = LazyPattern(r"^\s{0,3}(?:[-*•]|\(?(?:\d{1,2}|[A-Za-z])[.)])\s+(\S.*)$")
_QUOTED = LazyPattern(r"""\w.*(?:["“”„«»`]|(?<!\w)['‘’])[^"“”„«»`]*[?？؟]["“”„«»`'’][\s.)\]*_]*$""")
"""A line that quotes a question at its end."""

_QUOTE_CHARS = 600
"""How long a quoted question can be, with what introduces it: a line may be the size of a file."""

_MARKS = " \t*_)]\"'"
"""Characters that may follow a question mark."""


_OBJECTION = "it ends with a question, and only ask_user reaches the user: call it if you need the answer to go on"
_REMINDER = "question"


class ProseQuestions:
    """Decides about each text of an agent that ends with a question: whether its model is asked, or the user."""

    def __init__(self, parts: PausableParts) -> None:
        self._catches = parts.settings.catch_prose and parts.toolset.ask_user
        self._limit = parts.settings.max_questions

    def object_first(self, turn: Turn, reply: CreateResult) -> None:
        """Object to the first text of a turn that ends with a question.

        Raises:
            NotYet: it is that one.
        """
        if self._ends_with_question(turn, reply) and not turn.was_reminded(_REMINDER):
            raise NotYet(_REMINDER, _OBJECTION)

    def find_question(self, turn: Turn, reply: CreateResult) -> FunctionCall | None:
        """Return the `ask_user` call that a later text stands for."""
        if self._ends_with_question(turn, reply) and turn.was_reminded(_REMINDER):
            return prose_question_call(str(reply.content))
        return None

    def _ends_with_question(self, turn: Turn, reply: CreateResult) -> bool:
        text = reply.content
        may_ask = self._catches and turn.asked < self._limit and not find_cut(reply.finish_reason)
        return may_ask and isinstance(text, str) and ends_with_question(text)


def ends_with_question(text: str) -> bool:
    """Return whether a text ends with a question mark, possibly followed by a list of options.

    A question in a quote or in code is somebody else's.
    """
    asked, _ = _split(text)
    last = asked.rpartition("\n")[2].strip()
    if (
        last.startswith(">")
        or _QUOTED.search(last[-_QUOTE_CHARS:])
        or any(end >= len(asked) for _, end in find_fences(asked))
    ):
        return False
    return last.rstrip(_MARKS).endswith(("?", "？", "؟"))


def prose_question_call(text: str) -> FunctionCall:
    """Return the `ask_user` call that a text represents; the list at its end contains the options."""
    asked, items = _split(text)
    labels = list(dict.fromkeys(each.replace("**", "").strip() for each in items))
    usable = 1 < len(labels) <= MAX_OPTIONS and all(len(label) <= MAX_LABEL_CHARS for label in labels)
    question = asked if usable else text.strip()
    arguments = {"question": question[-MAX_QUESTION_CHARS:], "options": labels if usable else []}
    return FunctionCall(id="", name=ASK_USER, arguments=json.dumps(arguments, ensure_ascii=False))


def _split(text: str) -> tuple[str, list[str]]:
    """Return the text without its final list, and the items of that list."""
    lines, items = text.strip().splitlines(), list[str]()
    while lines and (not lines[-1].strip() or _ITEM.match(lines[-1])):
        if found := _ITEM.match(lines.pop()):
            items.insert(0, found[1])
    return "\n".join(lines), items
