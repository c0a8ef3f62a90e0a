"""Questions in prose: whether the text that ends a turn asks the user something, told by rules alone (S1-24).

The rules are conservative: a question that is missed is a result like before, while an invented one stops a run. Only
what a text ends with counts, and only where it is put to the user: what is code, quoted, rhetorical, or polite ("Would
you like me to ...?" below a finished report) is no question.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from upcall.questions.question import MAX_LABEL_CHARS, MAX_OPTIONS, MAX_QUESTION_CHARS


@dataclass(frozen=True)
class ProseQuestion:
    """What a text asks: all of it but the list right under the question, whose items are the options."""

    question: str
    options: tuple[str, ...] = ()


_THOUGHTS = re.compile(r"\A.*</(?:think|thinking|thought|reasoning)>", re.DOTALL | re.IGNORECASE)
_FENCED = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_UNREAD = re.compile(
    r"`+[^`\n]*`+"
    r"|\b(?:https?|ftp)://\S+|\bwww\.\S+"
    r"|\"[^\"\n]*\"|“[^”\n]*”|„[^“”\n]*[“”]|«[^»\n]*»|「[^」\n]*」|『[^』\n]*』"
    r"|(?<![\w'’])['‘][^'‘’\n]*['’](?!\w)"
    r"|^[ \t]*>.*$",
    re.MULTILINE,
)
"""Code, addresses and quotations, which hold the question marks of others."""

_DOTTED = re.compile(r"\b(?:e\.g|i\.e|etc|vs|approx|incl|z\.B|d\.h|p\.ej)\.", re.IGNORECASE)
_ITEM = re.compile(r"^\s{0,3}(?:[-*•‣]|\(?(?:\d{1,2}|[A-Za-z])[.)、])\s+(\S.*)$")
_SENTENCE_END = re.compile(r"(?<=[.!?؟…])(?=[\s*_)\]]*(?:\s|\Z))|(?<=[。！？])")
_ASKING_END = re.compile(r"[?？؟][\s*_)\]]*\Z")


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_START = r"^(?:[\W_]|\b(?:so|and|but|or|then|first|also|now|ok|okay|before i (?:start|begin|continue))\b)*"
"""What a sentence may begin with and still begin with what follows."""

_RHETORICAL = _words(
    _START + r"(?:why|warum|por qué|pourquoi|who (?:knows|cares|would|wouldn|doesn)|quién sabe|wer weiß"
    r"|what (?:if|(?:could|can) (?:possibly )?go wrong|(?:else|more) (?:could|can)|about (?:this|that|it))|what.s not"
    r"|what (?:does|do|did|is|was) (?:this|that|it|all)"
    r"|how (?:(?:hard|difficult) (?:can|could)|(?:does|do|did) (?:this|it|we))"
    r"|(?:have you )?ever|did you know|do you know (?:why|how)|you know|can you (?:believe|imagine|guess|spot)"
    r"|remember|see|isn.t|aren.t|wouldn.t|doesn.t|right)\b"
)

_CLOSING = _words(
    r"\b(?:any|some)thing else\b",
    r"\bany (?:other |further |more )?(?:questions?|concerns?|feedback|thoughts?)\b|\bthoughts\?",
    r"\b(?:does|do|is|are|did) (?:this|that|these|it|everything) (?:\w+ ){0,2}"
    r"(?:help|work|make sense|clear|look|sound|okay|ok|good|useful|helpful|fine|enough|correct|right|answer|what you)\b"
    r"(?! (?:if|to|for|that|with)\b)",
    r"\b(?:sounds?|looks?) good\b|\bmake sense\b|\bwhat do you think\b",
    r"\bhow(?:.s| is| does) (?:this|that) (?:sound|look)\b",
    r"\b(?:can|could|would|will) you (?:please )?(?:review|check|try|test|verify|take a look)\b|\blet me know if\b",
    r"\bhow (?:else )?(?:can|may) i (?:help|assist)\b|\bcan i (?:help|assist)\b|\bready to (?:go|start|try|begin)\b",
    r"\bneed (?:anything|any|more|further|additional)\b",
    r"\bwant to (?:know|see|learn|hear) (?:more|how|it|the details)\b",
    r"algo más|necesitas|necesita algo|te ayuda|qué te parece|sonst noch|noch (?:fragen|etwas)",
    r"autre chose|d'autres questions",
    r"还有(?:什么|其他|别的)|问题吗|疑问吗|还需要|如何帮|怎么样|他に(?:何|ご)|いかがでしょう",
)
"""What a text ends with that is done."""

_OFFER = _words(
    r"\b(?:would you like|want me to|like me to|do you wish|interested in|care for|next)\b",
    r"\bprefer to (?:proceed|continue)\b",
    r"\b(?:should|shall|may|can|could) (?:i|we) (?:\w+ )?(?:also|now|proceed|continue|go ahead|start|begin)\b",
    r"\bshall (?:i|we)\b|\bmöchten sie,? dass|\bmöchtest du,? dass|\bsoll ich\b|\bsouhaitez-vous|\bvoulez-vous que",
    r"¿(?:quieres|quiere|deseas?|te gustaría|le gustaría)\b|需要我|要不要|要我|ましょうか",
)
"""What may be an offer of more where something is done, and a question where not."""

_PERMISSION = _words(r"\b(?:should|shall|may|can) (?:i|we)\b(?! also)|\bsoll ich\b")
_DONE = _words(
    r"\b(?:done|finish(?:ed)?|completed?|implemented|created|wrote|written|added|fixed|updated|built|generated)\b",
    r"\b(?:refactored|deployed|installed|removed|successfully|tests pass|all set|ready|overall|summary)\b",
    r"\b(?:here (?:is|are|you go)|here.s|in (?:conclusion|short)|voici|terminé|fertig|erledigt|erstellt)\b",
    r"\b(?:hecho|listo|terminado|completado|creado)\b|完成|已经|以下是|しました",
)

_TO_THE_USER = _words(
    r"\b(?:you|your|yours|should)\b|\b(?:shall|may|must) (?:i|we|it|this|that|these|those|the|they|there)\b",
    r"\b(?:can|could|do) i\b|\bis there an? \w+ i\b",
    r"\b(?:is|would) (?:it|this|that) (?:be )?(?:ok|okay|fine|acceptable|allowed)\b",
    r"\b(?:tú|tu|usted|ustedes|quieres|prefieres|prefiere|debo|debería|deseas|desea|você|seu|devo)\b",
    r"\b(?:vous|votre|vos|dois-je|sie|ihre|ihren|dich|dein|deine|soll ich|sollen wir|вы|вам|вас|ваш|мне)\b",
    r"[您你]|请问|ますか|でしょうか|까요|습니까",
)

_ASKS_WHICH = _words(
    _START + r"(?:which|what|where|when|who|whom|whose)\b",
    _START + r"how (?:many|much|long|often|large|big|old|should|do (?:you|i)|would you)\b",
    _START + r"(?:qué|cuál|cuáles|cuándo|dónde|quién|cómo|cuánt\w+|welche\w*|was|wo|wann|wie viele?|wer)\b",
    _START
    + r"(?:quel\w*|où|quand|combien|qual|哪|什么|多少|谁|何|どの|どちら|いつ|какой|какую|какие|где|когда|сколько)",
)
_CHOOSES = _words(
    r"\b(?:which|should|shall|must|needs? to|prefer|cuál|welche\w*|quel\w*)\b|哪|どの|どちら|как(?:ой|ую|ие)"
)
_CHOICE = _words(r"\b(?:or|oder|ou|o)\b|还是|それとも")
_BLOCKED = _words(
    r"\b(?:i need|before i|can.t|cannot|can not|unclear|missing|ambiguous|not sure|unsure|do not know|don.t know"
    r"|could not|couldn.t|(?:not|wasn.t) able|depends|(?:not|isn.t|aren.t) (?:say|specified|given|clear|known))\b"
)
_COLON = re.compile(r"[:：](?=\s|\Z)\s*")
_PUTS = _words(
    r"\b(?:questions?(?! for the)|confirm|clarify|need|know|ask|decide|decision|choice|you)\b|问题|pregunta|frage"
)
"""What stands before a colon and a question that is the agent's own, not one in a text it writes or quotes."""

_PLEASE = _START + r"(?:please|kindly) (?:also )?"
_REQUEST = _words(
    _PLEASE + r"(?:tell me|clarify|confirm (?:which|what|whether|if|that i))\b",
    _PLEASE + r"let me know (?:which|what|whether|where|when|who|how)\b",
)
_INSTRUCTION = _words(_PLEASE + r"(?:provide|share|specify|state|indicate|choose|pick|select|answer)\b")
"""A request to the user where the agent cannot go on, and what a manual says anywhere else."""

_INTRODUCES = _words(
    r"\b(?:i need (?:to know|some|a few|you|more)|need to know|questions? for you|could you|can you|clarify|before i"
    r"|please (?:answer|clarify|tell|confirm))\b.*[:：][*_\s]*\Z"
)
_FOLLOW_UP = _words(
    _START
    + r"(?:please |just |kindly )*(?:let me know|tell me|reply|answer|confirm|choose|pick|select|advise|specify)\b",
    _START + r"(?:once (?:you (?:tell|answer|decide|confirm|reply|let)|i (?:know|have))|thanks|thank you)\b",
    _START + r"i(?: will|.ll| can)? (?:then|proceed|continue|start|go|adapt|wait)\b",
    _START + r"i(?:.d| would)? (?:recommend|suggest|lean|default|need|ask)\b",
    _START + r"my (?:recommendation|suggestion|default|guess|preference)\b|otherwise,? i\b",
    _START + r"if (?:not|unsure|none|you(?: are|.re) (?:unsure|not sure))\b",
    _START + r"if you (?:don.t|do not) (?:mind|know|care|have a preference)\b",
    _START + r"(?:(?:this|that|it) (?:affects|determines|decides)|(?:the|your) (?:answer|choice))\b",
    _START + r"(?:gracias|danke|merci|谢谢|请)",
)
"""What may come after the question and only goes along with it."""


def question_in_prose(text: str) -> ProseQuestion | None:
    """What a text that ends a turn asks the user; None where it asks nothing, or nothing that is sure to be meant."""
    text = _THOUGHTS.sub("", text).strip()
    if not text or len(text) > MAX_QUESTION_CHARS or _is_json(text):
        return None
    said, read = text.split("\n"), _masked(text).split("\n")
    body, items, tail = _parts(read)
    if not all(_FOLLOW_UP.match(sentence) for sentence in _sentences(tail)):
        return None
    sentences = _sentences(read[: body.stop])
    listed = [_ITEM.match(line) for line in read[items.start : items.stop]]
    asked_items = [bool(found and _ASKING_END.search(found[1])) for found in listed]
    if any(asked_items):
        introduced = all(asked_items) and bool(sentences) and _INTRODUCES.search(sentences[-1])
        return ProseQuestion(text) if introduced else None
    while sentences and not tail and not listed and _is_remark(sentences):
        sentences.pop()
    if not sentences or not _asks(sentences, with_options=len(listed) > 1):
        return None
    options = _options(said[items.start : items.stop])
    if not options:
        return ProseQuestion(text)
    return ProseQuestion("\n".join([*said[: body.stop], *said[items.stop :]]).strip(), options)


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def _masked(text: str) -> str:
    """The text, line by line as long as it was, without what others say in it."""
    text = _FENCED.sub(lambda found: "\n".join("code." for _ in found[0].split("\n")), text)
    text = _UNREAD.sub("quoted", text)
    return _DOTTED.sub(lambda found: found[0].replace(".", "·"), text)


def _parts(lines: Sequence[str]) -> tuple[range, range, list[str]]:
    """The lines up to the last list, those of that list, and what follows it. No list: all lines are before it. Only
    follow-ups may come after a list, so that one further up is part of the text before."""
    last = max((number for number, line in enumerate(lines) if _ITEM.match(line)), default=-1)
    tail = [line for line in lines[last + 1 :] if line.strip()]
    whole = range(len(lines)), range(len(lines), len(lines)), list[str]()
    if last < 0 or any(_ASKING_END.search(line) for line in tail):
        return whole
    first = last
    while first > 0 and (_ITEM.match(lines[first - 1]) or not lines[first - 1].strip() or lines[first - 1][:2] == "  "):
        first -= 1
    while first < last and not lines[first].strip():
        first += 1
    if not any(line.strip() for line in lines[:first]):
        return whole
    return range(first), range(first, last + 1), tail


def _sentences(lines: Sequence[str]) -> list[str]:
    parts = [part.strip() for line in lines for part in _SENTENCE_END.split(line)]
    return [part for part in parts if any(letter.isalnum() for letter in part)]


def _is_remark(sentences: Sequence[str]) -> bool:
    """Whether the last sentence only goes along with the question before it: "I recommend the first one."."""
    last = sentences[-1]
    asks = _ASKING_END.search(last) or _REQUEST.match(last)
    return not asks and len(sentences) > 1 and bool(_FOLLOW_UP.match(last))


def _asks(sentences: Sequence[str], *, with_options: bool) -> bool:
    """Whether the last sentence is put to the user and waits for an answer."""
    last, before = sentences[-1], " ".join(sentences[:-1])
    if _REQUEST.match(last):
        return True
    if _INSTRUCTION.match(last):
        return with_options or not before or bool(_BLOCKED.search(before))
    if not _ASKING_END.search(last) and not (with_options and last.rstrip("*_ ").endswith((":", "："))):
        return False
    if _RHETORICAL.match(last) or _CLOSING.search(last) or _is_quoted(sentences):
        return False
    if _OFFER.search(last):
        decides = with_options or _CHOICE.search(last) or _PERMISSION.search(last) or _ASKS_WHICH.match(last)
        return bool(decides) and not _DONE.search(before)
    if _TO_THE_USER.search(last):
        return True
    matters = not before or bool(_BLOCKED.search(before)) or bool(_BLOCKED.search(_announced(sentences)))
    if _ASKS_WHICH.match(_COLON.split(last)[-1]):
        return matters or bool(_CHOOSES.search(last))
    return matters and bool(_CHOICE.search(last))


def _announced(sentences: Sequence[str]) -> str:
    """What announces the last sentence with a colon, in front of it or above it."""
    said = _COLON.split(sentences[-1], maxsplit=1)
    if len(said) > 1 and said[1].strip("*_"):
        return said[0]
    return sentences[-2] if len(sentences) > 1 and sentences[-2].rstrip("*_ ").endswith((":", "：")) else ""


def _is_quoted(sentences: Sequence[str]) -> bool:
    """Whether the last sentence is announced as a text of its own: "Here is the headline: Are you ready?"."""
    announced = _announced(sentences)
    known = _PUTS.search(announced) or _BLOCKED.search(announced) or _ASKS_WHICH.match(announced)
    return bool(announced) and not known


def _options(lines: Sequence[str]) -> tuple[str, ...]:
    """The items as options, where they can be: at least two, distinct, each one line short enough for a label."""
    found = [_ITEM.match(line) for line in lines if line.strip()]
    labels = [each[1].replace("**", "").replace("__", "").strip() for each in found if each]
    if len(labels) < len(found) or not 2 <= len(labels) <= MAX_OPTIONS:
        return ()
    distinct = len({label.casefold() for label in labels}) == len(labels)
    return tuple(labels) if distinct and all(0 < len(label) <= MAX_LABEL_CHARS for label in labels) else ()
