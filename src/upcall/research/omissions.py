"""The words a quote omits from its sentence, and whether that changes its meaning.

Words that do occur in a text can still be a false quote: "recommended for children" out of "not recommended for
children". So the rest of the sentence is read too, by rules that would rather refuse a fair quote than accept a false
one: the model is told, and can quote more.
"""

from __future__ import annotations

import re

from upcall.research.tokens import QUESTION, Words

_DENIAL = (
    "no|not|none|nor|neither|never|nobody|nothing|nowhere|without|hardly|barely|scarcely|rarely|seldom|few|little|only|"
    "(?:do|does|did|is|are|was|were|has|have|had|would|should|could|must|ca|wo|need)nt|cannot|"
    "un(?:true|likely|able|founded|proven)|false|wrong|incorrect|myth|fails?|failed|refus(?:es?|ed)|reject(?:s|ed)?|"
    "den(?:y|ies|ied)|doubt(?:s|ed|ful)?|disput(?:es?|ed)|refut(?:es?|ed)|against|prevent(?:s|ed)?|forbid(?:s|den)?|"
    "prohibit(?:s|ed)?|withdrawn|retracted|overturned|avoid(?:s|ed)?|ceased?|stopped|lacks?|absence|instead|rather|"
    "(?:far|apart) from|contrary to|"
    "nicht|kein(?:e[nrsm]?)?|nie(?:mals|mand)?|nichts|ohne|weder|nur|kaum|selten|entgegen|falsch|bestreitet|bestritten|"
    "ne|n|pas|jamais|aucune?s?|rien|sans|ni|seulement|faux|fausse|non|nunca|sin|ningún|solo|sólo|nessun|mai|senza|"
    "[不没無无]|非(?! 常)|未(?! 来)"
)
_BELIEF = (
    "(?:believed|thought|claim(?:s|ed)?|alleg(?:es?|ed|edly|ations?)|rumou?r(?:s|ed)?|supposed(?:ly)?|assum(?:es?|ed)|"
    "predicted|hypothesi[sz]ed|speculat(?:es?|ed)|pretend(?:s|ed)?|contend(?:s|ed)?|argu(?:es?|ed)|assert(?:s|ed)?|suggest(?:s|ed)?|insist(?:s|ed)?|"
    "behaupt(?:et|ete|eten|ung|ungen)|gerüchte?|angeblich|prétend(?:ent|u)?)"
)
_CONDITION = (
    "if|unless|except(?:ing)?|provided|assuming|whether|wenn|falls|sofern|soweit|außer|ausser|ob|si|sauf|excepto|salvo"
)
_BEFORE = re.compile(rf"\b(?:{_DENIAL}|{_BELIEF})\b")
_BEHIND = re.compile(rf"\b(?:{_DENIAL})\b")
_CONDITIONAL = re.compile(rf"\b(?:{_CONDITION})\b")
_OPENS_A_CONDITION = re.compile(r"(?:without|should|had|were|ohne|sans)\b")
_EXCEPTION = re.compile(rf"(?:(?:and|but|und|aber|mais)\s+)?(?:only|nur|seulement|excluding|{_CONDITION})\b")
_REFUTED = re.compile(
    r"(?:which|who|what|that|das|was|ce que|ce qui)\b.*\b(?:wrong|false|untrue|incorrect|den(?:y|ies|ied)|doubt\w*|"
    r"disput\w+|refut\w+|reject\w*|into question|falsch|bestr\w+|faux)\b"
)
_REFUTED_LATER = re.compile(
    r"\b(?:this|that|it|das|dies|cela)\b.*\b(?:wrong|false|untrue|incorrect|into question|disputed|refuted|falsch|"
    r"faux)\b"
)
_CLAUSE = re.compile(
    r"[;；:：]+|(?<= )-(?= )|\b(?:but|yet|whereas|while|although|though|aber|sondern|jedoch|doch|mais|pero|ma|但)\b"
)
_AND = re.compile(r"\b(?:and|und|et|y|e)\b")
_SUBORDINATE = re.compile(r"(?:that|dass|daß|que|qu|che|how|why)\b")
_ASIDE = re.compile(r"(?:however|though|indeed|jedoch|allerdings|cependant|therefore|, \w+ \w+)\s*$")
_SHORT_SEGMENT = 3
_SCALES = (
    "hundred|thousand|million|billion|trillion|millions|billions|tausend|millionen|milliarden|mio|mrd|tsd|mille|milliards?|"
    "bn|mn|m|k|percent|per|prozent|pour|point"
)
_SCALE = re.compile(_SCALES)
_NUMBER = re.compile(
    rf"\d.*|(?:{_SCALES})|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty|thirty|forty|fifty|sixty|"
    "seventy|eighty|ninety"
)


def turns_the_meaning(text: Words, first: int, end: int) -> bool:
    """Return whether the words from `first` up to `end` mean something else than the sentence they are taken from.

    They do if the omitted words deny them, doubt them, make them conditional or turn them into a question, and if they
    begin or end within a figure.
    """
    start, stop = text.sentence_around(first, end)
    return (
        (text.words[stop - 1] == QUESTION and stop > end)
        or _cuts_a_figure(text, first, end)
        or _is_turned_by_what_stands_before(text.as_text(start, first))
        or _is_turned_by_what_follows(text, end, stop)
    )


def denies(text: str) -> bool:
    """Return whether the words replaced by an ellipsis contain a denial, a doubt or a condition."""
    return bool(_BEFORE.search(text) or _CONDITIONAL.search(text))


def _cuts_a_figure(text: Words, first: int, end: int) -> bool:
    before = text.words[first - 1] if first else ""
    following = text.words[end] if end < len(text.words) and not text.marks[end - 1] else ""
    cut_before = _SCALE.fullmatch(text.words[first]) and _NUMBER.fullmatch(before) and not text.marks[first - 1]
    return bool(cut_before or (_NUMBER.fullmatch(text.words[end - 1]) and _SCALE.fullmatch(following)))


def _is_turned_by_what_stands_before(before: str) -> bool:
    *_, clause = _CLAUSE.split(before)
    segments = [each.strip() for each in re.split("[,，、]", clause)]
    scope = segments.pop()
    while segments and (_SUBORDINATE.match(scope) or len(segments[-1].split()) <= _SHORT_SEGMENT):
        scope = f"{segments.pop()} {scope}"
    whole = _CONDITIONAL.search(clause) or _OPENS_A_CONDITION.match(clause.strip())
    return bool(whole or _BEFORE.search(scope))


def _is_turned_by_what_follows(text: Words, end: int, stop: int) -> bool:
    clause, *others = re.split(r"[;；:：]|(?<= )- ", f"{text.marks[end - 1]} {text.as_text(end, stop)}")
    if any(map(_REFUTED_LATER.search, others)):
        return True
    segments = [each.strip(" ()") for each in re.split("[,，、]", clause)]
    here, following, *_ = [*segments, ""]
    if _BEHIND.search(_AND.split(here)[0]) or _CONDITIONAL.search(here) or _EXCEPTION.match(here):
        return True
    aside = not here and _ASIDE.search(text.words[end - 1])
    return bool(_EXCEPTION.match(following) or _REFUTED.match(following) or (aside and _BEHIND.search(following)))
