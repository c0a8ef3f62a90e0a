"""What a settings file sets, for the person who is asked to agree to it: every setting, with keys hidden.

Nothing is hidden by its size: each setting has lines of its own, and a long value says how much of it is left out.
"""

from __future__ import annotations

import itertools
import json
import re
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

from upcall.config_source import Place, dot_path
from upcall.settings import field_of
from upcall.settings_files import SettingsFile
from upcall.text import QUOTE_MARK, escape_controls, shorten

MAX_LINES, MAX_DEPTH, MAX_CHARS = 60, 20, 2_000
"""Of one setting, of the tables in it, and of one value."""

HIDDEN = "(hidden)"

_GETS_TEXTS = "gets what the agents read and write"

_EFFECTS = {
    "mcp_servers": "starts these programs, or calls these servers, with your rights",
    "tools": "loads these classes; a FunctionTool is code, which runs with your rights",
    "model_client": f"loads this class; its server {_GETS_TEXTS}, and it may take a key from your environment",
    "base_url": f"this server {_GETS_TEXTS}",
    "agents": f"a server named here {_GETS_TEXTS}",
    "models": f"a server named here {_GETS_TEXTS}",
    "llms": f"a server named here {_GETS_TEXTS}",
    "source_urls": "these servers get what is searched for, and your keys for the services",
    "webhooks": "these programs are notified of your runs",
    "mail": "this server gets mail about your runs",
    "proxy": "the service believes this proxy who somebody is",
    "unsafe_local": "commands may run without a sandbox, with your rights",
    "executor": "chooses what runs the coder's commands",
    "allow_commands": "these commands run without a question",
    "allow_changes": "files are changed without a question",
    "network_hosts": "commands reach these hosts without a question",
    "private_hosts": "pages of these hosts in private networks are read",
    "readable": "commands can read these files",
    "documents": "the model's server gets what is in these files",
    "prompts": "agents follow the files in this folder",
    "facts": "these answers are given in your place",
    "unattended": "you are not asked",
    "store": "runs, and answers to their questions, are read from here",
}
"""What some settings do that their names do not say. These are shown first; that is all that this table decides."""

_KEY = re.compile("key|token|secret|password|authorization", re.IGNORECASE)
_LOGIN = re.compile(r"//[^/@\s]*@")


def describe_settings(file: SettingsFile) -> Iterator[str]:
    """Describe all that a file sets, line by line: first what reaches beyond this program."""
    settings = _list_settings(file)
    fields = {name: _field(file, name) for name in settings}
    has_key = "api_key" in fields.values()
    for name in sorted(settings, key=lambda name: fields[name] not in _EFFECTS):
        leaves = _leaves(settings[name])
        for place, value in itertools.islice(leaves, MAX_LINES):
            yield f"{QUOTE_MARK}{_inline(dot_path((name, *place)))} = {_show(fields[name], place, value)}"
        if next(leaves, None) is not None:
            yield f"{QUOTE_MARK}{_inline(name)}: more than {MAX_LINES} values; read them in the file"
        if (effect := _EFFECTS.get(fields[name])) is not None:
            key = ", and your key goes to it" if fields[name] == "base_url" and not has_key else ""
            yield f"  -> {effect}{key}"


def _field(file: SettingsFile, name: str) -> str:
    return name if file.config is not None else field_of(name) or name


def _list_settings(file: SettingsFile) -> Mapping[str, Any]:
    """Return the value of each setting, by the name that the file gives it; tables in variables are JSON."""
    if file.config is not None:
        return file.config.data
    return {name: _parse(text or "") for name, text in file.variables.items()}


def _parse(text: str) -> Any:
    if text.lstrip().startswith(("{", "[")):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    return text


def _leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield what stands in a value at the end of each way into it. A table or list without anything is a value."""
    if not value or not isinstance(value, dict | list | tuple):
        yield place, value
    elif len(place) == MAX_DEPTH:
        yield place, "... (more levels; read them in the file)"
    else:
        for name, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(child, (*place, name))


def _show(field: str, place: Place, value: Any) -> str:
    if not isinstance(value, str):
        return _inline(reprlib.repr(value))
    if _is_key((field, *place)) and not _is_path(place, value):
        return HIDDEN
    left = len(value) - MAX_CHARS
    more = f" ({left} more characters; read them in the file)" if left > 0 else ""
    return _LOGIN.sub(f"//{HIDDEN}@", _inline(value)) + more


def _inline(text: str) -> str:
    shown = escape_controls(text, unseen=True).replace("\n", "\\n").replace("\t", "\\t")
    return shorten(shown, MAX_CHARS)


def _is_path(place: Place, value: str) -> bool:
    """Whether a variable for a server names a file, or an option to load one: ``PATH``, ``NODE_OPTIONS``."""
    is_variable = len(place) == 3 and place[1] == "env" and not _KEY.search(str(place[-1]))
    return is_variable and value.startswith(("/", "./", "../", "~", "-"))


def _is_key(place: Place) -> bool:
    """Whether a value is a key, by the last of its names: the author of the file chose the others, and could hide a
    program behind one."""
    is_of_server = place[0] == "mcp_servers" and len(place) == 4 and place[2] in ("env", "headers")
    return is_of_server or (isinstance(place[-1], str) and _KEY.search(place[-1]) is not None)
