"""What the code has a name for: modules, classes with their members, files, commands with their options, variables.

`explain_unknown` says what is wrong with a piece of code type in a page or a docstring, or nothing. The shape of a
piece says what it is: `upcall.runs.run` and `Upcall.answer` are followed from one attribute to the next, `app.log` is
an attribute of the class that `app` always is, `walk_tree` and `RunStatus` are written somewhere in the code,
`tests/support` is there.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import os
import re
import resource
import subprocess
from collections.abc import Iterator
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import typer
from places import ROOT

from upcall.extensions import ExtensionPoint
from upcall.setting_paths import type_at
from upcall.settings import settings_root
from upcall.ui.cli.main import app as command_line

LIBRARIES = (
    *("autogen_agentchat", "autogen_core", "autogen_ext"),
    *("openai", "opentelemetry", "pydantic", "pydantic_settings", "mcp", "typer"),
)
"""Where a name may be from that is not ours."""

VARIABLES = {
    "app": "Upcall",
    "run": "Run",
    "question": "Question",
    "form": "Form",
    "store": "RunStore",
    "settings": "Settings",
    "team": "Team",
    "model": "ScriptedModelClient",
    "human": "ScriptedHuman",
    "approval": "ApprovalRequest",
}
"""What the pages call an object of a class, everywhere."""

FOREIGN = {
    "Agent.as_tool": "of other frameworks",
    "CommentedSeq": "ruamel.yaml's",
    "SPAN_AND_EVENT": "OpenTelemetry's",
    "NAME_TOOL": "a pattern",
    "ObservationTypeMapper.ts": "a file of Langfuse",
    "OtelIngestionProcessor.ts": "a file of Langfuse",
    "UserInputRequiredException": "of a document that the system was built from",
    "openat2": "of Linux",
    "plan_user_request_handler": "of a document that the system was built from",
    "to_input_list": "of OpenAI's agents",
    "transaction_timeout": "PostgreSQL's",
    "HumanInTheLoopMiddleware": "LangChain's",
    "ScalarFloat": "ruamel.yaml's",
    "autovacuum_vacuum_scale_factor": "PostgreSQL's",
    "synchronous_commit": "PostgreSQL's",
    "tool_context.interrupt": "of Strands",
    "upcall stars": "the command of the guest that the guide shows",
    "upcall_experiments": "an alternative that was not taken",
    "UPCALL_NAME__FIELD": "a pattern",
    "output.value": "OpenInference's",
    "user.id": "OpenTelemetry's",
    "service.name": "OpenTelemetry's",
}
"""Names that are in no package here, and whose they are."""

OPTIONS = {
    "-P": "of Python",
    "-I": "of Python",
    "--info-fd": "of bwrap",
    "--block-fd": "of bwrap",
    "--pdb": "of pytest",
}
"""Options that stand alone in code type and are those of another program."""

DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
SINGLE = re.compile(r"_*[A-Z][a-z0-9]+[A-Z]\w*|_*[a-z][a-z0-9]*_\w+|_*[A-Z][A-Z0-9]*_[A-Z0-9_]+")
PATH = re.compile(r"(\.?[a-z][\w-]*)/(?:[\w.-]+/)*[\w.-]*")
FILE = re.compile(r"[\w./-]+\.(?:py|md|j2|toml|ya?ml|ipynb|mjs|json|html|php|db)")


def explain_unknown(piece: str) -> str | None:
    """Say what a piece of code type names that is not there, or return None.

    Pieces of other shapes name nothing to look up: values, calls of other programs, code of several words.
    """
    name = re.sub(r"\(.*\)$", "", piece)
    if name in FOREIGN or is_quoted(name):
        return None
    if piece.startswith("upcall ") or re.match(r"--?[A-Za-z]", piece):
        return _explain_command(piece)
    if found := re.match(r"UPCALL_([A-Z_]+)\b", piece):
        return None if is_setting(found[1].lower().split("__")) or is_written(found[0]) else "no such variable"
    path, _, test = piece.partition("::")
    if PATH.fullmatch(path) or FILE.fullmatch(path):
        return _explain_path(path, test)
    if DOTTED.fullmatch(name):
        return _explain_dotted(*name.split("."))
    if SINGLE.fullmatch(name) or (name != piece and name.isidentifier()):
        return None if is_written(name) else "written nowhere in the code"
    return None


@cache
def list_files() -> list[str]:
    """List what git knows, and what was added and not committed yet."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in names.split("\0") if name and (ROOT / name).is_file()]


@cache
def list_places() -> set[str]:
    """Return each file and folder of the repository by its path, and by each end of it: `runs/run.py` and `run.py`."""
    links = [str(each.relative_to(ROOT)) for each in (ROOT / "src/upcall").iterdir() if each.is_symlink()]
    places = {str(place) for file in (*list_files(), *links) for place in (Path(file), *Path(file).parents)} - {"."}
    return {"/".join(parts[start:]) for parts in (place.split("/") for place in places) for start in range(len(parts))}


@cache
def read_words() -> set[str]:
    """Return each word of the repository's files, but for what only people read: pages, docstrings, comments."""
    names = [
        name for name in list_files() if not name.endswith((".md", ".svg", ".png")) and "_doc_names" not in f"_{name}"
    ]
    return {word for name in names for word in re.findall(r"\w+", _read_code(ROOT / name))}


def _read_code(file: Path) -> str:
    text = file.read_text(errors="replace")
    if file.suffix != ".py":
        return text
    lines = [re.sub(r"(^|\s\s)#\s.*", "", line) for line in text.splitlines()]
    for start, docstring in list_docstrings(file):
        lines[start - 1 : start + docstring.count("\n")] = [""] * (docstring.count("\n") + 1)
    return "\n".join(lines)


@cache
def read_library_words() -> set[str]:
    specs = [spec for name in LIBRARIES if (spec := find_spec(name))]
    folders = [Path(place) for spec in specs for place in spec.submodule_search_locations or ()]
    files = (file for folder in folders for file in folder.rglob("*.py"))
    return {word for file in files for word in re.findall(r"\w+", file.read_text(errors="replace"))}


def is_written(name: str) -> bool:
    ours = (
        name in read_words()
        or f"{name}.py" in list_places()
        or any(hasattr(module, name) for module in (builtins, os, resource))
    )
    return ours or name in read_library_words()


def is_setting(names: list[str]) -> bool:
    """Whether these names lead from a section of the settings to one of them, or into a table."""
    return type_at(tuple(names), settings_root()) is not None


@cache
def _read_quoted() -> set[str]:
    """Return each text in quotes that reads like a dotted name: a key of metadata, an event, an entry point."""
    files = [name for name in list_files() if re.match(r"(src|agents|teams|prompts|pyproject)", name)]
    texts = ((ROOT / name).read_text() for name in files if name.endswith((".py", ".toml")))
    return {found for text in texts for found in re.findall(r'"([a-z_]+(?:\.[a-z_]+)+)"', text)}


def is_quoted(name: str) -> bool:
    return name in _read_quoted() or name in {f"upcall.{point}" for point in get_args(ExtensionPoint)}


@cache
def find_modules() -> dict[str, list[str]]:
    """Return our modules by their last name."""
    found = dict[str, list[str]]()
    for name in list_files():
        if re.match(r"(src/upcall|agents|teams|prompts)/.*\.py$", name):
            module = name.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            module = module if module.startswith("upcall") else f"upcall.{module}"
            found.setdefault(module.rpartition(".")[2], []).append(module)
        elif name.startswith("tests/support/") and name.count("/") == 2:
            found.setdefault(Path(name).stem, []).append(Path(name).stem)
    return found


@cache
def find_class(name: str) -> type | None:
    """Return the class of ours, or else of AutoGen or Python, that has this name."""
    for module in (each for modules in find_modules().values() for each in modules):
        if re.search(rf"^class {name}\b", _read_source(module), re.MULTILINE):
            return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]
    for module in (
        "autogen_agentchat.agents",
        "autogen_agentchat.teams",
        "autogen_agentchat.base",
        "autogen_core",
        "builtins",
    ):
        if isinstance(found := getattr(importlib.import_module(module), name, None), type):
            return found
    return None


@cache
def _read_source(module: str) -> str:
    path = ROOT / ("src" if module.startswith("upcall") else "tests/support") / module.replace(".", "/")
    return (path / "__init__.py" if path.is_dir() else path.with_name(f"{path.name}.py")).read_text()


def _explain_dotted(first: str, *rest: str) -> str | None:
    if is_setting([first, *rest]):
        return None
    if first in ("upcall", *LIBRARIES):
        return _follow(importlib.import_module(first), rest)
    if kind := find_class(VARIABLES.get(first, first)):
        return _follow(kind, rest)
    if modules := find_modules().get(first):
        problems = [_follow(importlib.import_module(module), rest) for module in modules]
        return None if None in problems else problems[0]
    return "no such class" if first[:1].isupper() and not is_written(first) else None


def _follow(value: object, names: tuple[str, ...]) -> str | None:
    """Go from a value to what the first name means, and on. What has no type to look at ends it."""
    if not names or value is None:
        return None
    name, *rest = names
    if isinstance(value, ModuleType):
        if not hasattr(value, name):
            try:
                importlib.import_module(f"{value.__name__}.{name}")
            except ImportError:
                in_extra = value.__name__.split(".")[0] in LIBRARIES and names[-1] in read_library_words()
                return None if in_extra else f"{value.__name__} has no {name}"
        return _follow(getattr(value, name), tuple(rest))
    if not isinstance(value, type):
        return None
    if not _has(value, name):
        return f"{value.__name__} has no {name}"
    return _follow(_find_type(value, name), tuple(rest))


def _has(kind: type, name: str) -> bool:
    return hasattr(kind, name) or name in _annotations(kind) or name in _set_in_methods(kind)


def _annotations(kind: type) -> dict[str, object]:
    return {
        name: value for each in reversed(kind.__mro__) for name, value in getattr(each, "__annotations__", {}).items()
    }


@cache
def _set_in_methods(kind: type) -> dict[str, str]:
    """Return what methods set on `self`, with the class that is called for it or an empty text."""
    found = dict[str, str]()
    for each in kind.__mro__:
        try:
            source = inspect.getsource(each)
        except (OSError, TypeError):
            continue
        found |= dict(re.findall(r"\bself\.(\w+)(?:: [^=\n]+)? = (?:(\w+)\()?", source))
    return found


def _find_type(kind: type, name: str) -> type | None:
    """Return the class of an attribute, where it is written as a single name."""
    member = inspect.getattr_static(kind, name, None)
    if isinstance(member, type):
        return member
    if isinstance(member, property | cached_property):
        function = member.fget if isinstance(member, property) else member.func
        annotation = getattr(function, "__annotations__", {}).get("return", "")
    else:
        annotation = _annotations(kind).get(name) or _set_in_methods(kind).get(name, "")
    if isinstance(annotation, type):
        return annotation
    wanted = re.sub(r" \| None$", "", str(annotation))
    return find_class(wanted) if wanted.isidentifier() else None


@cache
def _list_commands() -> dict[str, tuple[frozenset[str], bool]]:
    """Return the options of each command by its words (`store export`), and whether it is a group of others."""
    found = dict[str, tuple[frozenset[str], bool]]()

    def visit(command: Any, words: str) -> None:
        options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        found[words] = (frozenset(options | {"--help"}), isinstance(command, typer.core.TyperGroup))
        if isinstance(command, typer.core.TyperGroup):
            context = typer.Context(command)
            for name in command.list_commands(context):
                visit(command.get_command(context, name), f"{words} {name}".strip())

    visit(typer.main.get_command(command_line), "")
    return found


def _explain_command(piece: str) -> str | None:
    """Look up a command and its options; an option alone is one of any command, or of a program in the repository."""
    commands, words = _list_commands(), piece.split()
    options = [re.sub(r"=.*|[^\w-]+$", "", word) for word in words if re.match(r"--[a-z]", word)]
    if words[0] != "upcall" or words[1].startswith("--"):
        known = {option for each, _ in commands.values() for option in each}
        return next((f"no command has {each}" for each in options if each not in known and not _is_option(each)), None)
    name = ""
    for word in words[1:]:
        if not commands[name][1] or not re.fullmatch(r"[a-z][a-z-]*", word):
            break
        name = f"{name} {word}".strip()
        if name not in commands:
            return f"no command {name}"
    of_all = commands[name][0] | commands[""][0]
    return next((f"upcall {name} has no {each}" for each in options if each not in of_all), None)


@cache
def _is_option(name: str) -> bool:
    """Whether it is an option of another program that the pages speak of, or of one in the repository."""
    programs = (ROOT / each for each in list_files() if each.startswith(("benchmarks/", "docs/", ".ci/")))
    return name in OPTIONS or any(f'"{name}"' in each.read_text() for each in programs if each.suffix == ".py")


def _explain_path(path: str, test: str) -> str | None:
    """Look up a file or folder of the repository, and a test in it; of other paths, what is in nobody's repository."""
    place = path.rstrip("/").removeprefix("./")
    if place in list_places():
        defined = not test or any(
            f"def {test}(" in (ROOT / each).read_text() for each in list_files() if each.endswith(place)
        )
        return None if defined else f"no {test} in it"
    ours = {name.split("/")[0] for name in list_files()} | {folder.name for folder in (ROOT / "src/upcall").iterdir()}
    return "no such file" if "/" in place and place.split("/")[0] in ours else None


def list_pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield each piece of code type of a page or docstring with its line; of blocks, the calls of `upcall` in them."""
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield from ((number, found[0] or found[1]) for found in re.findall(r"``([^`]+)``|`([^`]+)`", line))
        elif found := re.match(r"\s*(?:\$ )?(upcall [a-z][^|#;]*)", line):
            yield number, found[1]


def list_docstrings(file: Path) -> Iterator[tuple[int, str]]:
    """Yield each docstring of a file, those below attributes too, with the line where it begins."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
