"""Worked examples, sent as turns of a chat before the task: a small model follows them far better than a rule.

Each kind of request appears with something missing, with only tastes open, and clear. A model that is not small sees
only the first ones. No task of benchmarks/data may appear here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Needed:
    """One thing that the result of a request depends on, with the fields of `upcall.runs.outputs.Candidate`."""

    detail: str
    question: str
    options: tuple[str, ...] = ()
    said: str = ""
    assumed: str = ""
    known_from: Literal["request", "default", "user"] = "user"
    weight: Literal["high", "medium", "taste", "low"] = "high"


@dataclass(frozen=True)
class Example:
    """A request, what it depends on according to the clarifier, and why one of these has to be asked, if it has."""

    request: str
    candidates: tuple[Needed, ...]
    reason: str = ""


def _in_request(detail: str, question: str, stated: str) -> Needed:
    return Needed(detail, question, said=stated, assumed=stated, known_from="request")


def _default(detail: str, question: str, assumed: str) -> Needed:
    return Needed(detail, question, assumed=assumed, known_from="default", weight="low")


def _taste(detail: str, question: str, *options: str) -> Needed:
    return Needed(detail, question, options, assumed=options[0], weight="taste")


EXAMPLES: tuple[Example, ...] = (
    Example(
        "What does a driving licence cost, and which tests are there?",
        (
            Needed("place", "In which country do you want the licence?", ("Germany", "France", "United States")),
            _default("meaning", "Which kind of licence is it?", "for a car"),
        ),
        reason="Each country has its own tests and fees.",
    ),
    Example(
        "Recommend five board games for two players.",
        (
            _in_request("budget", "How many players are there?", "for two players"),
            _taste("style", "What kind of board games do you like?", "strategy", "party games", "card games"),
        ),
    ),
    Example(
        "Write an essay of two pages with footnotes on the fall of Carthage.",
        (
            _in_request("meaning", "What is the essay about?", "on the fall of Carthage"),
            _in_request("format", "How long shall it be?", "two pages with footnotes"),
        ),
    ),
    Example(
        "Shorten our application so that it fits on one page.",
        (
            Needed("input", "What does the application say?", ("I paste it", "I upload a file")),
            _in_request("format", "How long shall it be?", "on one page"),
        ),
        reason="Only a text that is there can be shortened.",
    ),
    Example(
        "Find us a flat for the last week of July, four beds, near the water, at most 900 euros.",
        (
            Needed("place", "Where shall the flat be?", ("by the sea in Italy", "on a lake in Austria", "in Denmark")),
            _in_request("period", "When do you need it?", "the last week of July"),
            _in_request("budget", "What may it cost?", "at most 900 euros"),
        ),
        reason="Flats and prices differ from place to place.",
    ),
    Example(
        "the page is broken again, repair it",
        (Needed("input", "Which page is broken?"),),
        reason="Without the page nothing can be repaired.",
    ),
    Example(
        "Write a C function that sorts an array of numbers.",
        (
            _in_request("input", "What shall be sorted?", "an array of numbers"),
            _default("other", "Which algorithm shall it use?", "any common one"),
        ),
    ),
    Example(
        "Prepare the speech for the ceremony on Saturday. Ten minutes, warm, a little humour, and end with a toast to "
        "everybody who helped.",
        (
            Needed("purpose", "Which ceremony is it?", ("a wedding", "a retirement", "an award")),
            _in_request("format", "How long shall the speech be?", "Ten minutes"),
            _in_request("style", "Which tone shall it have?", "warm, a little humour"),
        ),
        reason="Each ceremony has its own occasion and tone.",
    ),
    Example(
        "Plan three dinners for this week, quick ones, we are two.",
        (
            _in_request("audience", "For how many people?", "we are two"),
            _taste("style", "Which cuisine do you like?", "Italian", "Asian", "vegetarian"),
        ),
    ),
    Example(
        "I get \"KeyError: 'age'\" at print(person['age']). What does it mean and how do I avoid it?",
        (
            _in_request("input", "Which error do you get, and where?", "KeyError: 'age' at print(person['age'])"),
            _default("platform", "Which version of Python?", "any that is in use"),
        ),
    ),
    Example(
        "Tell me all about Amazon: beginnings, today, prospects.",
        (
            Needed("meaning", "Do you mean the river or the company?", ("the company", "the river")),
            _taste("format", "How long shall it be?", "one page", "several pages"),
        ),
        reason="They have nothing but the name in common.",
    ),
    Example(
        "How many bricks of 25 by 12 cm are needed for a wall of 3 by 2 metres?",
        (_in_request("budget", "How large are wall and bricks?", "bricks of 25 by 12 cm, a wall of 3 by 2 metres"),),
    ),
    Example(
        "Write a welcome text for our website, 100 words, we are a bakery in Leeds that has been there since 1931.",
        (
            _in_request("purpose", "Which business is it?", "a bakery in Leeds that has been there since 1931"),
            _taste("style", "Which tone do you like?", "warm and homely", "modern", "humorous"),
        ),
    ),
    Example(
        "Our staff want to know how much sick pay they get and for how long.",
        (
            Needed("place", "In which country do they work?", ("United Kingdom", "Germany", "United States")),
            _default("format", "How shall the answer look?", "a short overview"),
        ),
        reason="Each country has its own rules.",
    ),
    Example(
        "Why do volcanoes erupt?",
        (_in_request("meaning", "What shall be explained?", "Why do volcanoes erupt"),),
    ),
    Example(
        "Go through the minutes and write down who promised what until when, as a table.",
        (
            Needed("input", "What do the minutes say?"),
            _in_request("format", "How shall it be written down?", "as a table"),
        ),
        reason="The promises are only in the minutes.",
    ),
)


@dataclass(frozen=True)
class CheckedExample:
    """A question about a request, and what a second look at it finds. The fields after `question` are the reply's."""

    request: str
    question: str
    first: str
    second: str
    effect: Literal["all", "part", "nothing"]


CHECKED_EXAMPLES: tuple[CheckedExample, ...] = (
    CheckedExample(
        "What does a driving licence cost, and which tests are there?",
        "In which country do you want the licence?",
        "United States",
        "Germany",
        "all",
    ),
    CheckedExample(
        "What does a driving licence cost in Denmark, and which tests are there?",
        "In which country is it?",
        "settled: Denmark",
        "none",
        "nothing",
    ),
    CheckedExample(
        "Why do volcanoes erupt?", "What is a volcano?", "settled: a hole in the earth's crust", "none", "nothing"
    ),
    CheckedExample(
        "Prepare the speech for the ceremony on Saturday.", "Which ceremony is it?", "a wedding", "a retirement", "all"
    ),
    CheckedExample(
        "Recommend five board games for two players.",
        "What kind of board games do you like?",
        "strategy games",
        "party games",
        "part",
    ),
    CheckedExample(
        "Write a web page with a stopwatch.", "What is the name of the page?", "Stopwatch", "Timer", "nothing"
    ),
    CheckedExample(
        "Tell me all about Amazon: beginnings, today, prospects.",
        "Do you mean the river or the company?",
        "the company",
        "the river",
        "all",
    ),
    CheckedExample(
        "Which rivers flow into the Black Sea, and how clean are they?",
        "Which rivers do you mean?",
        "settled: those that flow into the Black Sea",
        "none",
        "nothing",
    ),
    CheckedExample(
        "Write a welcome text for our website, 100 words, we are a bakery in Leeds.",
        "Which tone do you like?",
        "warm and homely",
        "modern and short",
        "part",
    ),
    CheckedExample("How many bricks do I need?", "How large is the wall?", "3 by 2 metres", "10 by 4 metres", "all"),
    CheckedExample(
        "Write a C function that sorts an array of integers.",
        "What is the input?",
        "settled: an array of integers",
        "none",
        "nothing",
    ),
)
