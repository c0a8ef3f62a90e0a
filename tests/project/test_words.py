"""Words that the field has a better one for stay out of code, documentation and help."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from places import ROOT

PHRASES = {
    r"stretch(es)?": "run segment",
    r"(next|last|at|a) rest(?! of| in)|rests already": "pause",
    r"ladder|rungs?": "resolver, resolution step",
    r"misfits?": "incompatibility",
    r"insides": "internals",
    r"work(s|ed)? off": "carry out",
    r"(is|are|run) not at all": "is not, cannot be",
    r"no question waits for you": "you have no open questions",
}
"""What is not written anywhere, as a pattern of whole words, and what is written instead."""

ACCENT = {
    r"un?told|\w*_told|told_\w*|told": "emitted, reported, informed, given",
    r"heard|\w*_heard|heard_\w*": "received",
    r"said_\w+|\w+_said": "what it is: a text, a reply",
    r"tells? (whether|of|apart)|tell_\w+|\w+_tells?": "return whether, report, distinguish",
    r"(is|are|was|were|be) said(?! to)|said so": "is reported, stated, written",
    r"goes on|went on|gone on|goes_on\w*|go_on\w*": "continues",
    r"work(s|ed)? off|works?_off": "carries out, works through",
    r"hand(s|ed|ing)? over to|hands over": "hands off to",
    r"put to you|is put to": "you are asked",
    r"(is|are|was|works|continues|just) as before": "the case, by its name",
}
"""What is not written in pages, comments and docstrings, and in no name, in any case. Texts that people and models
write, and lists of words, are data."""

STIFF = {
    r"(is|are|was|were|be|been|being|gets?) informed": "sees, learns, is notified: what happens, and to whom",
    r"(?<!there )(?<!there's )(is|are|was|were) no (?!longer|more|part|reason|loss|substitute|such)\w+": "is not a",
    r"keeps? what (this|it) changes": "what will happen, and to what: Delete old_prices.py?",
    r"(made|set|built) anew": "rebuilt, set again",
    r"put (it|them) (right|in other words)": "correct, rephrase",
    r"say it (like|narrower|simpler)": "write, narrow down, simplify",
    r"most like it": "the closest",
}
"""What no message says, beside the accent: sentences that a rule would write, and no native speaker."""

WORD_LISTS = {"context_words.py"}
"""Modules of `src` whose strings are words to look for in a text, in several languages."""

CONSTANTS = re.compile(
    r"\b(?:[A-Z]+_)?(?:SECONDS|BEATS|LOOKS|TOKENS|BYTES|WAITING_OF|STOPPED_IN)_(?:AN?|BETWEEN)_[A-Z_]+\b"
)
"""Constants that read like a phrase, with their article: `TOKENS_PER_IMAGE` is one that does not."""

NAMES = {
    *("KEPT", "RUNGS", "KeepsTurns", "MailCame", "Misfit", "SoFar", "_Crew", "_backed", "_caught", "_go_on", "_manned"),
    *(
        "_heard_before",
        "asked_by",
        "back_to",
        "fitted",
        "keep_turns",
        "looked_at",
        "questions_in",
        "seen_log",
        "so_far",
    ),
    *("take_back", "unpacked"),
}
"""What nothing is called."""

FUNCTIONS = {
    *(
        "acts",
        "answering",
        "asking",
        "callers",
        "chosen",
        "dated",
        "emitted",
        "fits",
        "fitted",
        "given",
        "heard",
        "mail",
    ),
    *("packed", "post", "rested", "said", "shown", "told", "under", "whole", "worked"),
}
"""What no function is called outside of the tests; elsewhere these are ordinary words."""

PARTICIPLES = {
    *("said", "told", "shown", "given", "made", "taken", "heard", "written", "kept", "held", "left"),
    *("lost", "found", "sent", "seen", "known", "gone", "done", "met", "built", "drawn", "chosen"),
    *("begun", "broken", "spoken", "bound", "spent", "brought", "caught", "thought", "felt", "meant", "paid"),
    *("laid", "led", "hidden", "forgotten"),
}
"""The irregular ones; the others end with -ed."""

PREPOSITIONS = {"as", "at", "by", "for", "from", "in", "of", "on", "to", "with"}

EXCEPTIONS = {"restored_from": "the glossary's word, beside `progress`"}
"""Functions that may be called by a participle, and why."""

CLASSES = {"Found", "Given", "Ladder", "Part", "Read", "Shown", "Stretch"}
MODULES = {"insides", "interrupts", "ladder", "meaning", "pictures", "replies", "shown", "stretch", "upkeep"}
LINE_ENDS = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
OF_EARLIER_DAYS = {"CHANGELOG.md"}
SOURCES = ("src/", "agents/", "teams/", "prompts/")
TEXTS = (".py", ".md", ".j2", ".toml", ".yml", ".ipynb")
HERE = Path(__file__).relative_to(ROOT).as_posix()


@cache
def list_files() -> list[Path]:
    """List the files of the repository, without links and what git ignores."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    names = [name for name in listed.split("\0") if name and name != HERE]
    return [ROOT / name for name in names if (ROOT / name).is_file() and not (ROOT / name).is_symlink()]


def is_participle(name: str) -> bool:
    """Whether it is one, alone or before a preposition: `told` with or without one, but not `asked_event`."""
    first, *rest = name.strip("_").split("_")
    is_past = first in PARTICIPLES or (first.endswith("ed") and first not in {"need", "feed", "embed", "exceed"})
    return is_past and (not rest or rest[0] in PREPOSITIONS)


def is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = [getattr(each, "id", getattr(each, "attr", "")) for each in node.decorator_list]
    return any(name.endswith("property") for name in names)


def find_definitions(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        name = getattr(node, "name", "") or ""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and name.strip("_") in FUNCTIONS:
            if not is_property(node):
                yield f"{node.lineno}: def {name}"
        elif isinstance(node, ast.ClassDef) and name.strip("_") in CLASSES:
            yield f"{node.lineno}: class {name}"


@pytest.mark.parametrize("phrase", PHRASES)
def test_retired_phrase_is_written_nowhere(phrase: str) -> None:
    pattern = re.compile(rf"\b({phrase})\b")
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in list_files()
        if file.suffix in TEXTS
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if pattern.search(line)
    ]
    assert not found, f"write instead: {PHRASES[phrase]}\n" + "\n".join(found)


def read_own_words(file: Path) -> Iterator[tuple[int, str]]:
    """Yield what we call things and how we speak of them: the names, comments and docstrings of code, pages whole."""
    text = file.read_text()
    if file.suffix != ".py":
        yield from enumerate(re.sub(r"`[^`\n]*`", "", text).splitlines(), start=1)
        return
    before = tokenize.INDENT
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_docstring = token.type == tokenize.STRING and before in LINE_ENDS
        if is_docstring or token.type in (tokenize.NAME, tokenize.COMMENT):
            yield from enumerate(token.string.splitlines(), start=token.start[0])
        before = before if token.type in (tokenize.COMMENT, tokenize.NL) else token.type


@pytest.mark.slow
def test_accent_is_in_no_page_and_no_name() -> None:
    pattern = re.compile(rf"\b({'|'.join(ACCENT)})\b", re.IGNORECASE)
    files = [file for file in list_files() if file.suffix in (".py", ".md") and file.name not in OF_EARLIER_DAYS]
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in files
        for number, line in read_own_words(file)
        if (pattern.search(line) or CONSTANTS.search(line))
    ]
    assert found == [], f"write instead: {ACCENT}"


def read_messages(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the strings of code that are not docstrings: messages, help, labels. Prompts are files of their own, and
    are not read here; a page's template is read whole."""
    text = file.read_text()
    if file.suffix != ".py":
        yield from enumerate(text.splitlines(), start=1)
        return
    tree = ast.parse(text)
    bodies = [getattr(node, "body", None) for node in ast.walk(tree)]
    lines = [line for body in bodies if isinstance(body, list) for line in body if isinstance(line, ast.Expr)]
    seen = {id(line.value) for line in lines}
    for node in ast.walk(tree):  # A text comes before the pieces of text in it.
        if isinstance(node, ast.JoinedStr):
            seen |= {id(each) for each in node.values}
            yield (
                node.lineno,
                "".join(
                    str(getattr(each, "value", "")) if isinstance(each, ast.Constant) else "X" for each in node.values
                ),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in seen:
            yield node.lineno, node.value


def find_in_messages(file: Path) -> list[str]:
    pattern = re.compile(rf"\b({'|'.join((*PHRASES, *ACCENT, *STIFF))})\b", re.IGNORECASE)
    found = ((number, pattern.search(text)) for number, text in read_messages(file))
    return [f"{file.name}:{number}: {match[0]}" for number, match in found if match is not None]


@pytest.mark.parametrize(
    "code",
    [
        'raise ValueError(f"{name}: the model is informed.")',
        'note("This is no JSON.")',
        'note(f"This is no {kind}.")',
        'option = Option(label=f"Keep what this changes in {name}?")',
        'about = ("You are told that "\n"the run goes on.")',
    ],
)
def test_words_of_a_message_are_checked(tmp_path: Path, code: str) -> None:
    file = tmp_path / "message.py"
    file.write_text(code)
    assert len(find_in_messages(file)) >= 1


@pytest.mark.slow
def test_words_of_messages_are_those_of_a_person() -> None:
    files = [file for file in list_files() if file.relative_to(ROOT).as_posix().startswith(SOURCES)]
    texts = [file for file in files if file.suffix in (".py", ".html") and file.name not in WORD_LISTS]
    assert len(texts) > 300
    assert [each for file in texts for each in find_in_messages(file)] == [], f"write instead: {ACCENT | STIFF}"


@pytest.mark.slow
def test_nothing_has_a_retired_name() -> None:
    pattern = re.compile(rf"\b({'|'.join(sorted(NAMES))})\b")
    found = list[str]()
    for file in (file for file in list_files() if file.suffix == ".py"):
        name, text = file.relative_to(ROOT).as_posix(), file.read_text()
        found += [f"{name}: {each}" for each in sorted(set(pattern.findall(text)))]
        if name.startswith(SOURCES):
            found += [f"{name}:{each}" for each in find_definitions(ast.parse(text))]
            found += [name] if file.stem in MODULES else []
    assert found == []


@pytest.mark.slow
def test_function_is_called_by_what_it_does() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for file in list_files()
        if file.suffix == ".py" and file.relative_to(ROOT).as_posix().startswith(SOURCES)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_property(node)
        if is_participle(node.name) and node.name not in EXCEPTIONS
    ]
    assert found == []
