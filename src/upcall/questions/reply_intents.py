"""What a whole reply means at a stage of a run: the same word ends the clarification here and rejects a plan there.

Words count only where they are listed (decision X6): skip words while clarifying, approval and rejection words at plan
review, words for yes and no where a question asks for consent. An answer to any other question is never interpreted.
The lists are those of seed S0; those for consent have a few more, in a few languages.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection
from enum import StrEnum

from upcall.lazy_pattern import LazyPattern
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.question import Question, Side
from upcall.text import replace_surrogates

SKIP_WORDS = frozenset({"skip", "done", "exit", "quit", "proceed", "continue", "no", "n", ""})
"""End the clarification (S0-61)."""

STAGE_WORDS = SKIP_WORDS - {"no", "n"}
"""End the clarification and say nothing of what was asked."""

INDIFFERENT_WORDS = frozenset(
    {
        *("does not matter", "doesn't matter", "doesnt matter", "it does not matter", "it doesn't matter"),
        *("you decide", "you choose", "you pick", "decide for me", "your call", "your choice", "up to you"),
        *("it is up to you", "it's up to you", "as you like", "as you wish", "as you prefer", "as you see fit"),
        *("whatever", "whatever you like", "whatever you prefer", "whatever you think is best", "whichever"),
        *("any is fine", "anything is fine", "either is fine", "no preference", "i have no preference"),
        *("do not care", "don't care", "dont care", "i do not care", "i don't care", "not important"),
        *("it is not important", "it's not important", "use your judgement", "use your judgment"),
        *("use your best judgement", "use your best judgment"),
    }
)
"""Leave to the agent what was asked. "I don't know" does not: who says that may well want to be asked."""

APPROVAL_WORDS = frozenset(
    {"approve", "approved", "yes", "ok", "proceed", "continue", "go ahead", "looks good", "y", "accept"}
)
"""Approve a plan (S0-58)."""

REJECTION_WORDS = frozenset({"reject", "rejected", "no", "cancel", "stop", "abort", "n"})
"""Reject a plan (S0-59)."""

YES_WORDS = APPROVAL_WORDS | frozenset(
    {
        *("yeah", "yep", "yup", "sure", "sure thing", "okay", "alright", "all right", "of course", "certainly"),
        *("absolutely", "please do", "do it", "do that", "go for it", "confirm", "confirmed", "i confirm", "i approve"),
        *("i agree", "agree", "agreed", "allow", "allowed", "allow it", "approve it", "accepted", "granted", "permit"),
        *("permitted", "thats fine", "that is fine", "\N{THUMBS UP SIGN}"),
        *(
            "ja",
            "jawohl",
            "oui",
            "si",
            "sí",
            "sì",
            "sim",
            "tak",
            "да",
            "是",
            "是的",
            "好",
            "好的",
            "可以",
            "同意",
            "はい",
            "네",
        ),
    }
)
"""Agree to what a consent asks."""

NO_WORDS = REJECTION_WORDS | frozenset(
    {
        *("nope", "nah", "deny", "denied", "dont do it", "do not do it", "dont do that"),
        *(
            "do not do that",
            "refuse",
            "refused",
            "i refuse",
            "decline",
            "declined",
            "disallow",
            "do not allow",
            "forbid",
        ),
        *("not now", "no way", "not allowed", "do not approve", "i do not approve", "\N{THUMBS DOWN SIGN}"),
        *(
            "nein",
            "non",
            "não",
            "nao",
            "nej",
            "nie",
            "нет",
            "不",
            "不要",
            "不行",
            "不可以",
            "不同意",
            "いいえ",
            "아니요",
        ),
    }
)
"""Refuse what a consent asks."""

_ALONE = frozenset({"dont", "do not", "never"})
"""Refuse, as the whole reply: "don't stop" is something else."""

_BESIDE = frozenset({"please", "thanks", "thank you", "once", "just once", "this once", "just this once", "this time"})
"""May stand beside these words, and means nothing by itself."""

_AROUND = " \t\r\n.!\"'`“”„‘’‚«»‹›。"
"""What may stand around a word without changing it. A question mark does: "ok?" approves nothing."""


_LEAD_END = LazyPattern(r"\s*[,;:.(–—]")
_NOT = LazyPattern(r"(?<!\w)!+(?=\w)")
_DROPPED = str.maketrans(dict.fromkeys(".,;:!\"'`“”„‘’‚«»‹›。、¡"))
"""What changes nothing in a reply to a consent. A question mark is kept: "ok?" agrees to nothing."""


class ReplyIntent(StrEnum):
    """What a reply says of a plan."""

    APPROVED = "approved"
    REJECTED = "rejected"
    FEEDBACK = "feedback"


def unwrap_reply(reply: str) -> str:
    """Return the reply itself where a chat front end sends it as ``{"query": "..."}`` (S0-60), trimmed.

    What stands in the JSON may hold half a surrogate pair, which could be neither stored nor sent.
    """
    try:
        value = json.loads(reply)
    except (ValueError, RecursionError):
        return reply.strip()
    query = value.get("query") if isinstance(value, dict) else None
    return replace_surrogates(query).strip() if isinstance(query, str) else reply.strip()


def ends_clarification(answer: Answer | None) -> bool:
    """Return whether this answer ends the clarification. An option that was chosen is an answer, "No" and "Continue"
    too, and so are what was written elsewhere, which did not mean this stage, and what was assumed."""
    if answer is None or answer.outcome not in (Outcome.ANSWERED, Outcome.ASSUMED):
        return True
    return answer.by is AnsweredBy.HUMAN and not answer.selected and _word(answer.text) in SKIP_WORDS


def is_dismissed(answer: Answer) -> bool:
    """Return whether the human closed a question without an answer to it: skipped, declined, or left it to the agent,
    in words or by an option that says so. "No" is an answer here: much is asked that can be answered with it."""
    if answer.by is not AnsweredBy.HUMAN or answer.outcome is not Outcome.ANSWERED:
        return answer.by is AnsweredBy.HUMAN and answer.outcome in (Outcome.SKIPPED, Outcome.DECLINED)
    word = _word(answer.text).replace("’", "'")
    return word in INDIFFERENT_WORDS or (not answer.selected and word in STAGE_WORDS)


def is_needless(question: Question, answer: Answer) -> bool:
    """Return whether it would have come to the same without asking: it was dismissed, or answered with what is assumed
    where nobody answers."""
    assumed = question.default and _word(question.default)
    return is_dismissed(answer) or (answer.by is AnsweredBy.HUMAN and bool(assumed) and _word(answer.text) == assumed)


def read_verdict(answer: Answer | None) -> ReplyIntent:
    """Return what an answer at plan review says. Only the human's own words approve; silence, expiry, a refusal to
    answer and what anybody else says reject (decision X7), and everything that is neither is feedback."""
    if answer is None or answer.outcome is not Outcome.ANSWERED or answer.by is not AnsweredBy.HUMAN:
        return ReplyIntent.REJECTED
    word = _word(answer.text)
    if word in APPROVAL_WORDS:
        return ReplyIntent.APPROVED
    return ReplyIntent.REJECTED if word in REJECTION_WORDS else ReplyIntent.FEEDBACK


def read_side(reply: str) -> Side | None:
    """Return what a whole reply says to a consent, if it is nothing but words for one of both: "Yes, please." is, and
    "yes but only a.py", "no problem" and "not ok" are not."""
    simplified = simplify(reply)
    if simplified in _ALONE:
        return Side.NO
    sides = [side for side, pattern in _SIDES.items() if pattern.fullmatch(simplified)]
    return sides[0] if len(sides) == 1 else None  # What means nothing by itself is in both.


def read_lead(reply: str) -> Side | None:
    """Return what a reply or a label begins with, up to its first comma or the like: "No, the till needs it"."""
    return read_side(_LEAD_END.split(reply, maxsplit=1)[0])


def simplify(reply: str) -> str:
    """Return a reply as consents are compared: any case, any width, without punctuation but question marks. Of "!yes" a
    "not yes" is left, which programmers mean by it."""
    folded = _NOT.sub("not ", unicodedata.normalize("NFKC", reply).casefold())
    return " ".join(folded.translate(_DROPPED).split())


def _match_only(words: Collection[str]) -> LazyPattern:
    one = "|".join(map(re.escape, sorted({*words, *_BESIDE}, key=len, reverse=True)))
    return LazyPattern(f"(?:{one})(?: (?:{one}))*")


_SIDES = {Side.YES: _match_only(YES_WORDS), Side.NO: _match_only(NO_WORDS)}


def _word(reply: str) -> str:
    """Return the whole reply as the lists have it: any case, any width, in quotes or with a full stop."""
    text = unicodedata.normalize("NFKC", unwrap_reply(reply)).casefold()
    return " ".join(text.strip(_AROUND).split())
