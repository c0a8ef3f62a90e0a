"""Questions in prose: a text that ends a turn with a question mark, and the `ask_user` call it stands for (S1-24).

One rule, since patterns of politeness never end: the model itself is asked first whether it needs an answer.
"""

from __future__ import annotations

import json

from autogen_core import FunctionCall

from upcall.agents.tool_loop.ask_user import ASK_USER
from upcall.autogen.thoughts import find_fences
from upcall.lazy_pattern import LazyPattern
from upcall.questions.question import MAX_LABEL_CHARS, MAX_OPTIONS, MAX_QUESTION_CHARS

_ITEM = LazyPattern(r"^\s{0,3}(?:[-*•]|\(?(?:\d{1,2}|[A-Za-z])[.)])\s+(\S.*)$")
_QUOTED = LazyPattern(r"""\w.*(?:["“”„«»`]|(?<!\w)['‘’])[^"“”„«»`]*[?？؟]["“”„«»`'’][\s.)\]*_]*$""")
"""A line that quotes a question at its end."""

_QUOTE_CHARS = 600
"""How long a quoted question can be, with what introduces it: a line may be the size of a file."""

_MARKS = " \t*_)]\"'"
"""Characters that may follow a question mark."""


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
