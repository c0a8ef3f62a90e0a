"""What a shell command line would do: its commands, wherever in it they stand, and what is risky about them.

Read with tree-sitter's grammar of bash, and never by guessing: what it cannot parse, and a program that is only known
when the line runs, count as risky. It is no guard, a script may do anything: the guard is the sandbox.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

COMMAND, DELETE, NETWORK, OUTSIDE = "command", "delete", "network", "outside"
"""The kinds of risk: a program that is not on the list, deleting, the network, what lies outside the workspace."""


@dataclass(frozen=True)
class Risk:
    """One thing to consent to: its kind, and the program with its first words. Without words it is of no kind that
    could be allowed once and for all."""

    kind: str
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        what = {DELETE: "deletes", NETWORK: "uses the network", OUTSIDE: "reaches outside the workspace"}
        named = f" ({' '.join(self.words)})" if self.words else ""
        return f"{what.get(self.kind, 'runs a program that is not on the list')}{named}"


@dataclass(frozen=True)
class Simple:
    """One command of a line: its words, None for one that is only known when it runs; whether variables are set for it,
    which may make another program of it; and the files that its input and output are redirected to."""

    words: tuple[str | None, ...]
    sets: bool = False
    files: tuple[str | None, ...] = ()


class Unparsable(ValueError):
    """The line is no command that can be read."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


HARMLESS = frozenset((":", "cat", "cd", "diff", "echo", "false", "grep", "head", "ls", "pwd", "tail", "true", "wc"))
"""Programs that only read, for a command without a sandbox."""

USUAL = HARMLESS | _names(
    """
    . [ awk base64 basename bash black bundle cargo chmod clang cmake cmp column comm command composer continue
    cp cut function date deno df dirname dotnet du env eslint eval exec exit expand export expr file find flake8
    fmt fold g++ gcc git go gofmt gradle gunzip gzip hash hexdump iconv id install javac java join jest jq julia
    kotlinc let ln local lua make md5sum mkdir mktemp mv mvn mypy nice ninja nl node nohup npm npx nproc od paste
    patch perl php phpunit pip pip3 pnpm poetry prettier printenv printf pyright pytest python python3 pyflakes r
    rake read readlink readonly realpath return rg Rscript rspec ruby ruff rustc rustfmt sed seq set sh sha1sum
    sha256sum shift sleep sort source split sqlite3 stat strings swift sync tar tee test time timeout touch tox
    tr trap tree tsc type typeset ulimit umask uname uniq unset unxz unzip uv uvx vitest wait which whoami xargs
    xxd xz yarn yes zcat zip zsh break declare nox coverage pylint
    """
)
"""Programs that need no question in a sandbox: to look around, to build, to test, to change files."""

_DELETING = frozenset(("rm", "rmdir", "shred", "truncate", "unlink", "wipefs", "mkfs"))
_DELETING_GIT = frozenset(("clean", "restore", "rm"))
_NETWORK = _names(
    """
    aria2c curl dig docker ftp gh host kubectl lftp lynx nc ncat netcat nmap nslookup ping podman rsync scp sftp
    socat ssh telnet traceroute wget whois apt apt-get dnf yum brew apk conda mamba pipx npx uvx aws az gcloud
    """
)
_NETWORK_WORDS = {
    "git": {"clone", "fetch", "ls-remote", "pull", "push", "submodule"},
    "pip": {"download", "install", "wheel"},
    "uv": {"add", "lock", "pip", "sync", "tool"},
    "npm": {"add", "ci", "i", "install", "publish", "update"},
    "pnpm": {"add", "i", "install", "publish", "update"},
    "yarn": {"add", "install", "publish", "upgrade"},
    "cargo": {"add", "fetch", "install", "publish", "update"},
    "go": {"get", "install"},
    "poetry": {"add", "install", "lock", "publish", "update"},
    "bundle": {"install", "update"},
    "composer": {"install", "require", "update"},
    "deno": {"add", "install"},
}
_CALLING = _names(
    """
    builtin chronic command doas env exec find ionice nice nohup setsid stdbuf sudo time timeout watch xargs
    """
)
"""Programs that call the one that stands among their arguments."""

_SHELLS = frozenset(("bash", "dash", "ksh", "sh", "zsh"))
_SYSTEM = ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin")
_PIP = re.compile(r"pip3?(\.\d+)?")
_PYTHON = re.compile(r"python[\d.]*")
_OPEN = re.compile(r"[*?\[{~$`\\]")
"""What the shell replaces in a word that is not quoted."""

_DEPTH = 5
_SINKS = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty")


def risks(line: str, folder: Path, *, isolated: bool, rules: Sequence[str] = ()) -> list[Risk]:
    """What in a command line is to be consented to: with `isolated` in a sandbox that `folder` alone is given to, else
    with the rights of the user. What `rules` allow is left out: each is a program, perhaps with its first words."""
    try:
        commands = list(parse(line))
    except Unparsable:
        return [Risk(COMMAND)]
    found: dict[Risk, None] = {}
    for command in commands:
        if not isolated:
            found |= dict.fromkeys(Risk(OUTSIDE) for each in command.files if _leaves(each, folder))
        if not is_allowed(command.words, rules) or (command.sets and not isolated):
            found |= dict.fromkeys(_risks_of(command, folder, isolated))
    return list(found)


def uses_network(line: str) -> bool:
    """Whether one of its commands is known to need the network."""
    try:
        return any(risk.kind == NETWORK for command in parse(line) for risk in _dangers(command.words))
    except Unparsable:
        return False


def is_allowed(words: Sequence[str | None], rules: Sequence[str]) -> bool:
    """Whether a rule names the program of a command, and where the rule has more words, its first words too."""
    return any(tuple(words[: len(rule)]) == tuple(rule) for rule in (each.split() for each in rules) if rule)


def _risks_of(command: Simple, folder: Path, isolated: bool) -> Iterator[Risk]:
    words = command.words
    dangers = list(_dangers(words))
    yield from dangers
    name = _known(words[0])
    if name is None:
        yield Risk(COMMAND)
    elif isolated:
        inside = "/" in name and not _leaves(name, folder)
        if not dangers and name not in USUAL and not inside and not _PYTHON.fullmatch(name):
            yield Risk(COMMAND, (words[0] or name,))
    elif command.sets:
        yield Risk(COMMAND)
    elif name not in HARMLESS:
        if not dangers:
            yield Risk(COMMAND, (words[0] or name,))
    elif any(_leaves(each, folder) for each in words[1:]):
        yield Risk(OUTSIDE)


def _dangers(words: Sequence[str | None]) -> Iterator[Risk]:
    """What is known to delete or to use the network, also where another program is told to call it."""
    for start, word in enumerate(words):
        if start > 0 and _known(words[0]) not in _CALLING:
            return
        name = _known(word)
        if name is not None:
            yield from _danger(name, words[start + 1 :])


def _danger(name: str, arguments: Sequence[str | None]) -> Iterator[Risk]:
    if _PYTHON.fullmatch(name) and list(arguments[:2]) == ["-m", "pip"]:
        name, arguments = "pip", arguments[2:]
    name = "pip" if _PIP.fullmatch(name) else name
    called = next(_after_options(name, arguments), None)
    if name in _DELETING or (name == "find" and "-delete" in arguments):
        yield Risk(DELETE, (name,))
    if name == "git" and called is not None and _loses(called, arguments):
        yield Risk(DELETE, (name, called))
    if name in _NETWORK:
        yield Risk(NETWORK, (name,))
    elif called is not None and called in _NETWORK_WORDS.get(name, ()):
        yield Risk(NETWORK, (name, called))


def _loses(called: str, arguments: Sequence[str | None]) -> bool:
    """Whether a call of git throws changes away."""
    options = {each for each in arguments if each is not None}
    return (
        called in _DELETING_GIT
        or (called == "reset" and "--hard" in options)
        or (called == "checkout" and bool(options & {"--", ".", "-f", "--force"}))
        or (called == "stash" and bool(options & {"drop", "clear"}))
        or (called == "branch" and bool(options & {"-d", "-D", "--delete"}))
    )


def _after_options(name: str, arguments: Sequence[str | None]) -> Iterator[str]:
    skip = False
    for each in arguments:
        if skip or each is None or each.startswith("-"):
            skip = not skip and name == "git" and each in ("-C", "-c", "--git-dir", "--work-tree")
        else:
            yield each


def _known(word: str | None) -> str | None:
    """The name of a program; for one of the system's folders without the folder."""
    if word is None:
        return None
    folder, _, name = word.rpartition("/")
    return name if folder in _SYSTEM else word


def _leaves(path: str | None, folder: Path) -> bool:
    """Whether a word may name something outside `folder`; what is only known when the line runs may."""
    if path is None:
        return True
    if path in _SINKS:
        return False
    if path.startswith("-"):
        path = path.partition("=")[2] if "=" in path else ("" if not re.search(r"[/~]|\.\.", path) else "/")
    if path.startswith("~"):
        return True
    root = Path(os.path.realpath(folder))
    try:
        real = Path(os.path.realpath(root / path))
    except ValueError:
        return True
    return real != root and root not in real.parents


# -- reading ----------------------------------------------------------------------------------------------------------


def parse(line: str, depth: int = _DEPTH) -> Iterator[Simple]:
    """All commands of a line: those behind operators, in loops, functions, substitutions and here-documents, and in the
    argument of ``sh -c``.

    Raises:
        Unparsable: it is no bash, or nested too deeply.
    """
    source = line.encode(errors="replace")
    if depth == 0 or b"\0" in source or b"\r" in source:
        raise Unparsable("it cannot be read")
    root = _parser().parse(source).root_node
    if root.has_error:
        raise Unparsable("it is no command line")
    for command in _commands(root):
        yield command
        if (inner := _script_of(command.words)) is not None:
            yield from parse(inner, depth - 1)


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def _script_of(words: Sequence[str | None]) -> str | None:
    """The command line in a call of a shell."""
    for at, word in enumerate(words):
        if at > 0 and _known(words[0]) not in _CALLING:
            return None
        if _known(word) in _SHELLS:
            for option, script in zip(words[at + 1 :], words[at + 2 :], strict=False):
                if option is not None and re.fullmatch(r"-\w*c\w*", option):
                    if script is None:
                        raise Unparsable("a part of it is only known when it runs")
                    return script
    return None


def _commands(root: Node) -> Iterator[Simple]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        waiting += reversed(node.children)
        match node.type:
            case "command":
                yield _simple(node)
            case "declaration_command" | "unset_command":
                yield Simple((_text(node.children[0]), *map(_literal, node.named_children)), sets=True)
            case "function_definition":
                yield Simple(("function", None), sets=True)
            case "variable_assignment" if node.parent is not None and node.parent.type != "command":
                yield Simple(("export", None), sets=True)
            case "file_redirect":
                yield Simple(("true",), files=_redirected(node))
            case _:
                pass


def _simple(node: Node) -> Simple:
    words, sets = [], False
    for child in node.named_children:
        if child.type == "variable_assignment":
            sets = True
        elif child.type == "command_name":
            words.append(_literal(child.named_children[0], program=True) if child.named_children else _text(child))
        elif not child.type.endswith("redirect"):
            words.append(_literal(child))
    return Simple(tuple(words) or ("true",), sets=sets)


def _redirected(node: Node) -> tuple[str | None, ...]:
    """The file of a redirection; that to another descriptor has none."""
    target = node.named_children[-1]
    return () if target.type in ("number", "process_substitution") else (_literal(target),)


def _literal(node: Node, *, program: bool = False) -> str | None:
    """The text of a word as the program gets it; None where the shell replaces something in it."""
    text = _text(node)
    match node.type:
        case "word" | "number" | "test_operator":
            if not _OPEN.search(text):
                return text
            return None if program or text.startswith("~") or "$" in text or "`" in text else _unescaped(text)
        case "raw_string":
            return text[1:-1]
        case "string":
            parts = [child for child in node.children if child.type != '"']
            if any(child.type != "string_content" or "\\" in _text(child) for child in parts):
                return None
            return "".join(map(_text, parts))
        case "concatenation":
            each = [_literal(child, program=program) for child in node.children]
            return None if None in each else "".join(part for part in each if part is not None)
        case _:
            return None


def _unescaped(text: str) -> str | None:
    """A word of an argument: a pattern stands for names that are not known, and a brace for several words."""
    return None if "{" in text or "\\" in text or text.startswith(("/", "..")) or "/.." in text else text


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")
