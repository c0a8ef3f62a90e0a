"""The words a quote omits from its sentence, and whether that changes its meaning.

Words that do occur in a text can still be a false quote: "recommended for children" out of "not recommended for
children". So the rest of the sentence, and what surrounds it, is read too, by rules that would rather refuse a fair
quote than accept a false one: the model sees why, with the whole sentence, and can quote more.

1. A quote begins and ends where a phrase does: at a mark, at a conjunction, at a verb whose subject it leaves out. A
   clause with its own subject ("the sun was green") begins where a clause may, so that no verb in front governs it.
2. After "that" it stands only for verbs that say it is so ("found that"); a clause beside it ("In the novel, ...") may
   be left out only if it says no more than where or when; and so may a phrase behind it.
3. A modal, a denial, a doubt or a condition that is left out changes it (`context_words`), also within an ellipsis.
4. So does what surrounds it: a frame ("Imagine ...") earlier in its paragraph, a heading ("Myths"), the line above its
   list, a next sentence that takes it back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from upcall.lazy_pattern import LazyPattern
from upcall.research.context_words import (
    AFTER,
    AND,
    ARTICLES,
    ATTRIBUTIONS,
    AUXILIARIES,
    BELIEFS,
    CONDITIONS,
    CONJUNCTIONS,
    CONNECTIVES,
    CONTRASTS,
    DEMONSTRATIVES,
    DENIALS,
    FACTIVES,
    FICTIONAL,
    FRAME_LEADS,
    FRAME_VERBS,
    FRAMES,
    INDIRECT_SPEECH,
    INFINITIVE_MARKERS,
    MODALS,
    MONTHS_LIKE_WORDS,
    NEGATIONS,
    OF,
    OR,
    PLACE_AND_TIME,
    PLAIN_ADJUNCTS,
    PREPOSITIONS,
    PRONOUNS,
    QUANTITIES,
    REFUTATIONS,
    REFUTED_TITLES,
    RELATIVES,
    SAYINGS,
    SUBORDINATES,
    SUBORDINATORS,
    THAT,
    TO,
    TURNS,
    UNLIKE,
    VERB_FIRST_CONDITIONS,
    has_han_denial,
    has_se_as_if,
    is_german,
)
from upcall.research.normalization import END, QUESTION, UNSPACED, Words

_HARD_MARK = LazyPattern(r"[;；:：-]")
_COMMA = LazyPattern(r"[,，、()\"]")
_COLON = LazyPattern("[:：]")
_SCALES = (
    "hundred|thousand|million|billion|trillion|millions|billions|tausend|millionen|milliarden|mio|mrd|tsd|mille|milliards?|"
    "bn|mn|m|k|percent|per|prozent|pour|point"
)
_SCALE = LazyPattern(_SCALES)
_NUMBER = LazyPattern(
    rf"[-+]?\d.*|(?:{_SCALES})|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty|thirty|forty|"
    "fifty|sixty|seventy|eighty|ninety"
)
_YEAR = LazyPattern(r"1\d{3}|20\d{2}")
_VERB_FORM = LazyPattern(r"\w{3,}(?:ed|te|ten)")
_ADVERB = LazyPattern(r"\w{3,}ly|compared|up|down|daily|yearly")
_BULLET = LazyPattern(r"[-*+•]\s*$")
_SECTION = LazyPattern(r"\d+(?:\.\d+)+")
_LABEL_CHARS = 4
_SHORT_SEGMENT, _SHORT_TITLE, _SHORT_SENTENCE, _REMARK = 3, 8, 4, 6
_SENTENCES_BACK, _NEXT_WORDS = 30, 20

_DOUBTS = DENIALS | MODALS | BELIEFS
_ALL_DOUBTS = _DOUBTS | CONDITIONS | FRAMES
_OPENERS = ARTICLES | AUXILIARIES | MODALS | PREPOSITIONS | CONJUNCTIONS | RELATIVES | THAT | CONNECTIVES


def find_objection(text: Words, first: int, end: int) -> str:
    """Return why the words from `first` up to `end` mean something else than the text does there, or "".

    It completes "the quote ...".
    """
    start, stop = text.sentence_around(first, end)
    stop -= text.words[stop - 1] in (END, QUESTION)
    if stop < len(text.words) and text.words[stop] == QUESTION and stop >= end:
        return "leaves out that it is a question"
    return (
        _check_figures(text, first, end)
        or _check_before(text, start, first, end)
        or _check_behind(text, first, end, stop)
        or _check_surroundings(text, start, stop)
    )


def find_objection_to_gap(text: Words, first: int, end: int) -> str:
    """Return why an ellipsis may not replace the words from `first` up to `end`, or ""."""
    if any(at in text.borders for at in range(first, end)):
        return "joins two sentences"
    if doubt := _find_doubt(text, range(first, end), _ALL_DOUBTS | ATTRIBUTIONS):
        return f'leaves out "{doubt}"'
    opened, closed = text.marks[first - 1], text.marks[end - 1]
    following = text.words[end] if end < len(text.words) else ""
    is_aside = opened and closed and {*opened} & {*closed, "("} and text.words[end - 1] not in AND | OR
    if is_aside or all(text.words[at] in CONNECTIVES | ARTICLES | AND for at in range(first, end)):
        return ""
    links = PREPOSITIONS | CONJUNCTIONS
    begins_a_phrase = following in (_OPENERS | SAYINGS if closed else links) or _ADVERB.fullmatch(following)
    inner = any(text.marks[first : end - 1])
    if not begins_a_phrase or _adds_a_clause(text, first, end) or (inner and not closed):
        return "gives to one subject what belongs to another, over its ellipsis"
    return ""


def _adds_a_clause(text: Words, first: int, end: int) -> bool:
    """Return whether the words may begin another clause: more than a word and its article is joined by "and"."""
    for at in range(first, end):
        if text.words[at] in CONTRASTS | RELATIVES | THAT:
            return True
        if text.words[at] in AND | OR:
            joined = next((later + 1 for later in range(at, end) if text.marks[later]), end) - at - 1
            if joined - (at + 1 < end and text.words[at + 1] in ARTICLES) > 1:
                return True
    return False


# -- what stands before ------------------------------------------------------------------------------------------------


def _check_before(text: Words, start: int, first: int, end: int) -> str:
    start = _skip_label(text, start, first)
    if start == first:
        return ""
    before, here = text.words[first - 1], text.words[first]
    if not text.marks[first - 1]:
        if before in CONTRASTS and _NUMBER.fullmatch(here):
            return _refuse_beginning(text, start, first)
        if before in ARTICLES - PREPOSITIONS and here not in PREPOSITIONS | QUANTITIES:
            return _check_before(text, start, first - 1, end)  # A quote without its first article.
    clause = start
    for at in range(start, first):
        if _HARD_MARK.search(text.marks[at]) or (at > start and text.words[at] in CONTRASTS):
            label, clause = range(clause, at + 1), at + 1
            if _COLON.search(text.marks[at]) and (doubt := _find_doubt(text, label, _ALL_DOUBTS | REFUTED_TITLES)):
                return f'leaves out "{doubt}" before it'
    if frame := _find_doubt(text, range(start, first), FRAMES):
        return f'leaves out "{frame}" before it'
    if condition := _find_doubt(text, range(clause, first), CONDITIONS):
        return f'leaves out "{condition}" before it'
    if clause < first and text.words[clause] in VERB_FIRST_CONDITIONS:
        return f'leaves out "{text.words[clause]}" before it'
    segments = _split(text, clause, first)
    scope = _widen(text, segments)
    if doubt := _find_doubt(text, scope, _DOUBTS):
        return f'leaves out "{doubt}" before it'
    return (
        _check_that(text, scope)
        or _check_beginning(text, clause, first, end)
        or _check_openings(text, clause, segments, first, end)
    )


def _skip_label(text: Words, start: int, first: int) -> int:
    """Skip the number of a clause or of a note: "2.1", "§ 4", "[25]", "(a)"."""
    while start < first:
        begin, end = text.spans[start]
        around = text.plain[max(begin - 2, 0) : begin].strip()[-1:] + text.plain[end : end + 1]
        numbered = (
            _SECTION.fullmatch(text.words[start]) and start + 1 < len(text.words) and text.is_capitalised(start + 1)
        )
        if not (numbered or (end - begin <= _LABEL_CHARS and re.fullmatch(r"[§\[(].?|.?[)\]]", around))):
            break
        start += 1
    return start


def _split(text: Words, first: int, end: int) -> list[range]:
    """Split words at their commas. The last one is empty if there is a comma behind it."""
    segments, begin = list[range](), first
    for at in range(first, end):
        if _COMMA.search(text.marks[at]):
            segments.append(range(begin, at + 1))
            begin = at + 1
    return [*segments, range(begin, end)]


def _widen(text: Words, segments: list[range]) -> range:
    """Return the words in front that may govern the quote: from its comma on, or further if these are no clause."""
    scope, *earlier = reversed(segments)
    for segment in earlier:
        if segment and text.words[segment[0]] in UNLIKE:
            break
        unfinished = text.words[segment[-1]] in _DOUBTS | AUXILIARIES | THAT if segment else True
        if not unfinished and len(segment) > _SHORT_SEGMENT and not (scope and text.words[scope[0]] in SUBORDINATES):
            before = [each for each in earlier if each and each[-1] < segment[0]]
            if not (not scope and before and _ends_open(text, before[0])):
                break
        scope = range(segment.start, scope.stop)
    return scope


def _ends_open(text: Words, segment: range) -> bool:
    return text.words[segment[-1]] in _DOUBTS | AUXILIARIES | THAT


def _check_that(text: Words, scope: range) -> str:
    held = [at for at in scope if text.words[at] in THAT]
    governed = held and (held[-1] == scope.stop - 1 or text.words[held[-1] - 1] in SAYINGS)
    if governed and not any(_is_factive(text, at, held[-1]) for at in range(scope.start, held[-1])):
        return f'leaves out "{text.as_written(scope.start, held[-1] + 1)}" before it'
    return ""


def _is_factive(text: Words, at: int, that: int) -> bool:
    """Return whether a word says that what follows `that` is so: not "report" in "the report recommends that"."""
    is_noun = at > 0 and text.words[at - 1] in ARTICLES and not text.marks[at - 1]
    return text.words[at] in FACTIVES and (at == that - 1 or not is_noun)


def _check_beginning(text: Words, clause: int, first: int, end: int) -> str:
    """Check that the quote begins where a phrase does."""
    if clause == first or text.marks[first - 1]:
        return ""
    before, here = text.words[first - 1], text.words[first]
    if here in QUANTITIES and before in ARTICLES:
        return _refuse_beginning(text, clause, first)
    if before in INFINITIVE_MARKERS or here in INFINITIVE_MARKERS:
        return f'leaves out "{_tail(text, clause, first)}" before it'
    if _NUMBER.fullmatch(here) and not _SCALE.fullmatch(here):
        joined = before in AND and any(_NUMBER.fullmatch(text.words[at]) for at in range(max(clause, first - 4), first))
        allowed = (ARTICLES | AUXILIARIES | CONJUNCTIONS) - PREPOSITIONS - CONTRASTS
        plain = before in allowed or _is_bare_figure(text, first, end)
        return f'leaves out "{_tail(text, clause, first)}" before a figure' if joined or not plain else ""
    if UNSPACED.search(before + here):
        return "" if before in CONJUNCTIONS else "begins within a sentence"
    if before in OR | PREPOSITIONS and not (_is_clause(text, first, end) and _is_plain(text, range(clause, first))):
        return _refuse_beginning(text, clause, first)
    if before in CONJUNCTIONS | THAT:
        return ""
    if _is_clause(text, first, end):
        plain = _is_plain(text, range(clause, first))
        return "" if plain or before in CONNECTIVES else _refuse_beginning(text, clause, first)
    allowed = AUXILIARIES | RELATIVES | CONNECTIVES
    object_ = text.words[first + 1] if first + 1 < end and not text.marks[first] else ""
    is_verb = not (text.is_capitalised(first) or here.endswith("ing")) and (
        object_ in ARTICLES or _NUMBER.fullmatch(object_)
    )
    if text.words[clause] in PREPOSITIONS | ATTRIBUTIONS | SUBORDINATORS and not _is_plain(text, range(clause, first)):
        return _refuse_beginning(text, clause, first)
    if before in allowed or here in _OPENERS or _VERB_FORM.fullmatch(here) or is_verb:
        return ""
    return _refuse_beginning(text, clause, first)


def _is_bare_figure(text: Words, first: int, end: int) -> bool:
    """Return whether a quote is a figure and what it counts ("31 percent of the power"), behind a plain word.

    It says nothing of anybody. What may change a figure stands right in front of it, and is not a plain word: a
    preposition ("between", "under"), an adverb ("roughly"), a name ("Article 5"), a comparison.
    """
    before = text.words[first - 1]
    is_plain = not (
        before in PREPOSITIONS | QUANTITIES | CONTRASTS | CONDITIONS | _DOUBTS | AND | OR | TO
        or text.is_capitalised(first - 1)
        or _ADVERB.fullmatch(before)
        or _NUMBER.fullmatch(before)
    )
    words = {text.words[at] for at in range(first, end)}
    return is_plain and bool(words & OF) and not words & (AUXILIARIES | MODALS | RELATIVES | PRONOUNS)


def _refuse_beginning(text: Words, clause: int, first: int) -> str:
    return f'leaves out "{_tail(text, clause, first)}" before it'


def _tail(text: Words, clause: int, first: int) -> str:
    return text.as_written(max(clause, first - 4), first)


def _is_clause(text: Words, first: int, end: int) -> bool:
    """Return whether the words have a subject and then a verb of their own, as far as auxiliaries show."""
    if text.words[first] in AUXILIARIES | MODALS | PREPOSITIONS | CONJUNCTIONS:
        return False
    if text.words[first] in PRONOUNS:
        return True
    for at in range(first + 1, end):
        if text.marks[at - 1] or text.words[at] in RELATIVES | THAT:
            return False
        if text.words[at] in AUXILIARIES | MODALS:
            return not _VERB_FORM.fullmatch(text.words[first])
    return False


def _check_openings(text: Words, clause: int, segments: list[range], first: int, end: int) -> str:
    """Check that the phrase in front of the comma before the quote says only where or when."""
    complete = [each for each in segments[:-1] if each]
    if not complete or any(text.words[at] not in CONJUNCTIONS | CONNECTIVES | ARTICLES for at in segments[-1]):
        return ""
    opening, last = complete[0], complete[-1]
    head = text.words[opening[0]]
    if head in UNLIKE:
        return ""
    governs = _find_doubt(text, last, BELIEFS)
    unknown = (
        len(opening) == 1 and head not in CONNECTIVES and not text.is_capitalised(opening[0] + (opening[0] == clause))
    )
    event = head in AFTER and text.words[opening[0] + 1] in ARTICLES
    phrase = not event and head in PREPOSITIONS | ATTRIBUTIONS | SUBORDINATORS and not _is_plain(text, opening)
    reported = any(text.words[at] in INDIRECT_SPEECH for at in range(first, end))
    if reported or governs or unknown or phrase:
        return f'leaves out "{text.as_written(opening[0], first)}" before it'
    return ""


def _is_plain(text: Words, phrase: range) -> bool:
    """Return whether a phrase says only where or when: "in May", "in Germany", "after the war"."""
    if not phrase or text.words[phrase[0]] not in PLACE_AND_TIME or _find_doubt(text, phrase, _ALL_DOUBTS):
        return False
    restricts = text.words[phrase[0]] == "for"
    sentence = range(*text.sentence_around(phrase[0], phrase[-1] + 1))
    german = is_german(frozenset(text.words[at] for at in sentence))
    return any(
        text.words[at] in PLAIN_ADJUNCTS
        or (not restricts and _YEAR.fullmatch(text.words[at]))
        or (
            not restricts
            and not german
            and at > phrase[0]
            and text.is_capitalised(at)
            and not _is_habit(text.words[at])
        )
        for at in phrase
    )


def _is_habit(word: str) -> bool:
    """Return whether a word is the plural of a weekday: "closed on Mondays"."""
    return word.endswith("days") and word != "days"


# -- what stands behind ------------------------------------------------------------------------------------------------


def _check_behind(text: Words, first: int, end: int, stop: int) -> str:
    if end >= stop:
        return ""
    hard = next((at for at in range(end - 1, stop - 1) if _HARD_MARK.search(text.marks[at])), stop - 1)
    rest = [range(end, end)] if _COMMA.search(text.marks[end - 1]) else []
    rest += _split(text, end, hard + 1) if hard >= end else [range(end, end)]
    here, *segments = rest
    later = range(hard + 1, stop)
    if taken_back := _takes_back(text, later) or next(filter(None, (_takes_back(text, each) for each in segments)), ""):
        return f'leaves out "{taken_back}" behind it'
    if here and (cut := _check_ending(text, first, end, here)):
        return cut
    return _check_segments(text, first, end, here, [each for each in segments if each])


def _check_ending(text: Words, first: int, end: int, here: range) -> str:
    refused = f'leaves out "{text.as_written(end, min(here.stop, end + 5))}" behind it'
    following = text.words[end]
    if condition := _find_doubt(text, here, CONDITIONS | FRAMES):
        return f'leaves out "{condition}" behind it'
    if (
        following in TO | AND | OR
        and _NUMBER.fullmatch(text.words[end - 1])
        and any(_NUMBER.fullmatch(text.words[at]) for at in range(end, min(end + 3, here.stop)))
    ):
        return refused
    if following in CONTRASTS:
        return refused if _opens_with_denial(text, here) else ""
    own = next((at for at in here if text.words[at] in AND), here.stop)
    if doubt := _find_doubt(text, range(end, own), _DOUBTS):
        return f'leaves out "{doubt}" behind it'
    if following in AND | CONJUNCTIONS | ATTRIBUTIONS:
        return ""
    if UNSPACED.search(following):
        return refused
    counted = first < end - 1 and any(_NUMBER.fullmatch(text.words[at]) for at in range(max(first, end - 2), end))
    at = end
    if following in OF and counted:
        at = next((here_ for here_ in range(end + 1, own) if text.words[here_] in PREPOSITIONS), own)
    while at < own:
        if text.words[at] in OF and any(_NUMBER.fullmatch(text.words[later]) for later in range(at, min(at + 3, own))):
            at = own
            break
        phrase_end = next((later for later in range(at + 1, own) if text.words[later] in PREPOSITIONS), own)
        if not _is_plain(text, range(at, phrase_end)):
            return refused
        at = phrase_end
    return ""


def _check_segments(text: Words, first: int, end: int, here: range, segments: list[range]) -> str:
    if not segments:
        return ""
    following = segments[0]
    words = [text.words[at] for at in following]
    opening = words[1:] if words[0] in AND | CONTRASTS else words
    refused = f'leaves out "{text.as_written(following.start, min(following.stop, following.start + 6))}" behind it'
    if opening[:1] and ({*opening[:2]} & (CONDITIONS | {"only", "nur", "seulement", "excluding", "except"})):
        return refused
    if words[0] in CONTRASTS and (
        _opens_with_denial(text, following) or any(text.words[at] in BELIEFS for at in range(first, end))
    ):
        return refused
    if not here and text.words[end - 1] in CONTRASTS | CONNECTIVES | ARTICLES | AUXILIARIES | RELATIVES | MODALS:
        return refused
    if not here and _is_interrupted(text, first, end, segments):
        return refused
    for segment in segments:
        remark = len(segment) <= _REMARK or text.words[segment.start] in RELATIVES | ARTICLES | OR | ATTRIBUTIONS
        if (
            remark
            and text.words[segment.start] not in AND | CONTRASTS
            and _find_doubt(text, segment, BELIEFS | FRAMES | MODALS_OF_REMARKS)
        ):
            return refused
    return ""


MODALS_OF_REMARKS = MODALS - {"can", "could", "may", "might", "will", "would", "must", "shall", "should"}


def _is_interrupted(text: Words, first: int, end: int, segments: list[range]) -> bool:
    """Return whether the quote is a subject, cut off from its verb by an aside."""
    if len(segments) < 2 or text.words[segments[0].start] not in RELATIVES | PREPOSITIONS | CONNECTIVES | UNLIKE:
        return False
    return text.words[segments[1].start] in AUXILIARIES | MODALS | DENIALS


def _opens_with_denial(text: Words, clause: range) -> bool:
    return any(text.words[at] in NEGATIONS for at in clause)


def _takes_back(text: Words, words: range) -> str:
    """Return the words that say that what was just written is not so."""
    points_back = any(text.words[at] in DEMONSTRATIVES for at in words)
    return _find_doubt(text, words, REFUTATIONS | ({"question"} if points_back else frozenset()))


def _find_doubt(text: Words, places: range, words: frozenset[str]) -> str:
    """Return the first of the places that holds one of the words, as it is written there."""
    for at in places:
        word = text.words[at]
        if word in words and not (word in MONTHS_LIKE_WORDS and _is_month(text, at)):
            return text.as_written(at, at + 1)
        if "pas" in words and text.as_written(at, at + 1).casefold().startswith("n'"):
            return text.as_written(at, at + 1)
    if words & CONDITIONS and has_se_as_if(frozenset(text.words[at] for at in range(places.start, places.stop))):
        return "se"
    if words & DENIALS and has_han_denial(" ".join(text.words[places.start : places.stop])):
        return text.as_written(places.start, places.stop)
    return ""


def _is_month(text: Words, at: int) -> bool:
    before = text.words[at - 1] if at else ""
    return text.is_capitalised(at) or before in PREPOSITIONS or before.isdigit()


# -- figures -----------------------------------------------------------------------------------------------------------


def _check_figures(text: Words, first: int, end: int) -> str:
    """Check that the quote begins and ends outside of figures."""
    before = text.words[first - 1] if first and not text.marks[first - 1] else ""
    following = text.words[end] if end < len(text.words) and not text.marks[end - 1] else ""
    begins = _SCALE.fullmatch(text.words[first]) and _NUMBER.fullmatch(before)
    ends = _NUMBER.fullmatch(text.words[end - 1]) and _SCALE.fullmatch(following)
    return "begins or ends within a figure" if begins or ends else ""


# -- what surrounds the sentence ---------------------------------------------------------------------------------------


def _check_surroundings(text: Words, start: int, stop: int) -> str:
    if frame := _find_frame(text, start):
        return f'leaves out "{frame}" above it'
    following = min(stop + 1, len(text.words))
    last = next((at for at in range(following, len(text.words)) if at in text.borders), len(text.words))
    words = text.words[following : min(last, following + _NEXT_WORDS)]
    if not words:
        return ""
    denied = REFUTATIONS & {*words} or ({*words} & NEGATIONS and {*words} & FACTIVES)
    points_back = words[0] in DEMONSTRATIVES or (words[0] in ARTICLES and {*words[:2]} & BELIEFS)
    announces = words[0] in PRONOUNS and {*words} & THAT
    labelled = bool(_COLON.search("".join(text.marks[following : following + 2])))
    short = len(words) <= _SHORT_SENTENCE and not announces
    if _turns(words) and _find_doubt(text, range(start, stop), BELIEFS):
        return f'leaves out "{text.as_written(following, last)}" behind it'
    if denied and not announces and (points_back or short or (labelled and REFUTATIONS & {*words[:4]})):
        return f'leaves out "{text.as_written(following, last)}" behind it'
    return ""


def _turns(words: tuple[str, ...]) -> bool:
    return words[0] in TURNS and (words[0] != "in" or words[1:2] in [("fact",), ("reality",), ("truth",)])


def _find_frame(text: Words, start: int) -> str:
    """Find what sets a frame for a sentence: earlier in its paragraph, above its list, or its heading."""
    in_paragraph = in_list = True
    for first, end in _sentences_before(text, start):
        ended = end - 1
        if ended in text.titles or ended in text.blocks:
            is_title = ended in text.titles or (
                not _COLON.search(text.marks[ended - 1] if ended else "")
                and end - first <= _SHORT_TITLE
                and text.plain[slice(*text.spans[ended])] not in (".", "!", "?")
            )
            in_list = in_list and bool(_BULLET.search(text.plain[max(text.spans[end][0] - 4, 0) : text.spans[end][0]]))
            introduces = in_list and _COLON.search(text.marks[ended - 1] if ended else "")
            if (is_title or introduces) and (
                frame := _find_doubt(
                    text, range(first, ended), REFUTED_TITLES | (_DOUBTS if introduces else frozenset())
                )
            ):
                return text.as_written(first, ended) if frame else ""
            if ended in text.titles or introduces:
                return ""
            in_paragraph = False
        if in_paragraph and _sets_frame(text, first, end):
            return text.as_written(first, ended)
    return ""


def _sentences_before(text: Words, start: int) -> Iterator[tuple[int, int]]:
    for _ in range(_SENTENCES_BACK):
        if not start:
            return
        first, _end = text.sentence_around(start - 1, start)
        yield first, start
        start = first


def _sets_frame(text: Words, first: int, end: int) -> bool:
    """Return whether a sentence begins a story: "Imagine ...", "In the novel, ..."."""
    words = text.words[first : min(end, first + 5)]
    imperative = words[0] in FRAME_VERBS or (words[0] in FRAME_LEADS and {*words[1:4]} & FRAME_VERBS)
    announced = {"following", "follows"} & {*words} and {*text.words[first:end]} & (FRAMES | REFUTATIONS)
    if imperative or announced or {*text.words[first:end]} & FICTIONAL:
        return True
    if words[0] in ("consider", "take") and {*words[1:3]} & {"a", "an", "following"}:
        return True
    return words[0] in PREPOSITIONS | ATTRIBUTIONS and bool({*words} & FRAMES)
