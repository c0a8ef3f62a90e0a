"""The file tools as described to a model, and the parsing of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from upcall.autogen.api import ToolSchema
from upcall.autogen.workbenches import tool_schema


@dataclass(frozen=True)
class FileTool:
    """A tool; ``arguments`` are name, kind (text, integer, flag) and description."""

    description: str
    arguments: tuple[tuple[str, str, str], ...] = ()
    optional: frozenset[str] = frozenset()

    def schema(self, name: str) -> ToolSchema:
        """Return the schema sent to the model."""
        properties = {each: {"type": _JSON[kind], "description": text} for each, kind, text in self.arguments}
        return tool_schema(name, self.description, properties, self.optional)

    def read(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Read the arguments of a call; an omitted one is None.

        Raises:
            ValueError: one is missing, of the wrong kind, or unknown.
        """
        kinds = {each: kind for each, kind, _ in self.arguments}
        try:
            if set(given) - set(kinds):
                raise ValueError
            return {
                each: None if given.get(each) is None and each in self.optional else _READ[kind](given[each])
                for each, kind in kinds.items()
            }
        except (ValueError, TypeError, KeyError, OverflowError):
            raise ValueError(f"{name} takes {self._list_arguments()}.") from None

    def _list_arguments(self) -> str:
        listed = [
            f"{each} ({kind}{', may be left out' if each in self.optional else ''})" for each, kind, _ in self.arguments
        ]
        return ", ".join(listed) or "no arguments"


def _as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _as_integer(value: Any) -> int:
    """Read an integer, also as text or with a decimal point, as some models write it."""
    if isinstance(value, bool) or int(value) != float(value):
        raise TypeError
    return int(value)


def _as_flag(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise TypeError
    return value


_JSON = {"text": "string", "integer": "integer", "flag": "boolean"}
_READ: Mapping[str, Callable[[Any], Any]] = {"text": _as_text, "integer": _as_integer, "flag": _as_flag}

_PATH = ("path", "text", "A path relative to the workspace.")
_GLOB = ("glob", "text", "Only files like this: *.py, src/**/*.ts.")

TOOLS: Mapping[str, FileTool] = {
    "list_files": FileTool(
        "List the files in the workspace.",
        (("folder", "text", "Only those in this folder."), _GLOB),
        frozenset({"folder", "glob"}),
    ),
    "read_file": FileTool(
        "Read a text file. With a range its lines come with their numbers and a tab before each, which are not in the "
        "file.",
        (
            _PATH,
            ("first_line", "integer", "The first line to read, from 1."),
            ("last_line", "integer", "The last line to read."),
        ),
        frozenset({"first_line", "last_line"}),
    ),
    "search_files": FileTool(
        "Find the lines in the workspace's files that match a regular expression.",
        (("pattern", "text", "The regular expression; (?i) at its beginning ignores case."), _GLOB),
        frozenset({"glob"}),
    ),
    "write_file": FileTool(
        "Write a text file, making its folders; an existing file is replaced.",
        (_PATH, ("content", "text", "The whole new content.")),
    ),
    "edit_file": FileTool(
        "Replace a piece of text in a file by another. Give enough of the text around it that it occurs once.",
        (
            _PATH,
            ("old", "text", "The text to replace, exactly as it stands in the file."),
            ("new", "text", "What is to stand there instead."),
            ("all", "flag", "Replace it wherever it occurs."),
        ),
        frozenset({"all"}),
    ),
    "apply_patch": FileTool(
        "Change several files at once by a unified diff (--- a/PATH, +++ b/PATH, @@ -1,2 +1,3 @@), all of it or "
        "nothing. The lines that it removes or keeps must be in the files exactly.",
        (("patch", "text", "The unified diff; /dev/null stands for no file."),),
    ),
    "delete_file": FileTool("Delete a file.", (_PATH,)),
    "show_diff": FileTool(
        "Show what was changed in the workspace since the work began, as a unified diff.",
        (("path", "text", "Only of this file."),),
        frozenset({"path"}),
    ),
}
