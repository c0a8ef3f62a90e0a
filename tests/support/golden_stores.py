"""The stores of each released format, under ``tests/data/formats``: made once, and never again.

    python tests/support/golden_stores.py keep      # makes those of the newest format, which is not released yet
    python tests/support/golden_stores.py shapes    # only notes the shapes of what is stored

See docs/contributing/releasing.md for when to use which.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import importlib
import json
import os
import pkgutil
import platform
import shutil
import sqlite3
import sys
import tempfile
import types
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import postgres
import pytest
import zstandard
from golden_runs import RUNS, SECRET_KEY, pause
from guests import is_here
from pydantic import BaseModel

from upcall.agents import resumable
from upcall.questions.secrets import KEY
from upcall.runs import events
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.file_changes import FileChange
from upcall.runs.plan import ApprovedPlan
from upcall.runs.run import Run
from upcall.storage import compression, schema
from upcall.storage.copying import copy_store
from upcall.storage.export import export_runs, import_runs
from upcall.storage.store import RunStore
from upcall.storage.upgrades import STEPS

FOLDER = Path(__file__).parents[1] / "data" / "formats"
NEWEST = 1 + len(STEPS)


def list_formats() -> list[int]:
    """List the formats whose stores are kept."""
    return sorted(int(each.name) for each in FOLDER.iterdir())


def read_used(number: int) -> Mapping[str, tuple[str, Mapping[str, int]]]:
    """Return the id of each kept run, and how many replies of its agents were used."""
    return {name: (run_id, used) for name, (run_id, used) in json.loads(_read(number, "used.json")).items()}


def open_file(number: int, location: str) -> None:
    """Put the SQLite store of a format somewhere."""
    Path(location).write_bytes(_unpack(number, "store.sqlite.zst"))


def open_server(number: int, location: str) -> None:
    """Put the PostgreSQL store of a format into an empty database."""
    import psycopg

    with psycopg.connect(location, autocommit=True) as server:
        server.execute(_unpack(number, "store.sql.zst"))


async def open_exports(number: int, location: str) -> None:
    """Import the exported runs of a format into a store."""
    contents = [json.loads(line) for line in _unpack(number, "runs.jsonl.zst").splitlines()]
    store = RunStore(location)
    await import_runs(store, contents)
    await store.close()


# -- the shapes of what is stored -------------------------------------------------------------------------------------


def list_shapes() -> dict[str, str]:
    """Return a digest of the shape of everything that is stored, by its name."""
    for name in filter(is_here, ("agents", "research", "workspace")):  # Whose agents have states.
        package = importlib.import_module(f"upcall.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"upcall.{name}."):
            importlib.import_module(module.name)
    shapes: dict[str, Any] = {
        f"table {table.name}": [table.create(each) for each in ("sqlite", "postgresql")] + [*table.index()]
        for table in (*schema.TABLES, *schema.list_added())
    }
    shapes["indexes"] = [*schema.INDEXES]
    for number in compression.TABLES:
        text = files("upcall.storage").joinpath("dictionaries", f"{number}.txt").read_bytes()
        shapes[f"dictionary {number}"] = [text.decode(), compression.TABLES[number]]
    kinds: list[type[Any]] = [Run, Checkpoint, ApprovedPlan, FileChange, *_list_states(resumable.AgentState)]
    for kind in kinds:
        shapes[f"value {kind.__name__}"] = _describe(kind)
    for name, event in events.EVENTS.items():
        shapes[f"event {name}"] = [f"{each.name}: {each.type}" for each in fields(event)]
    return {name: _digest(shape) for name, shape in sorted(shapes.items())}


def read_shapes(number: int) -> Mapping[str, str]:
    """Return the digests as they were when a format was kept."""
    return json.loads(_read(number, "shapes.json"))


def _list_states(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for each in kind.__subclasses__():
        if each.__module__.startswith("upcall.") and not each.__pydantic_generic_metadata__["args"]:
            yield each
        yield from _list_states(each)


def _describe(kind: Any) -> Any:
    """Return the shape of a value: of a model, what its fields are; else the name of the type, and its parts."""
    if get_origin(kind) is Annotated:
        return _describe(get_args(kind)[0])
    parts = [_describe(each) for each in get_args(kind)]
    if not parts and isinstance(kind, type) and issubclass(kind, BaseModel):
        parts = [[name, _describe(each.annotation), each.is_required()] for name, each in kind.model_fields.items()]
    name = "Union" if get_origin(kind) is types.UnionType else getattr(kind, "__name__", str(kind))
    return [name, *parts]


def _digest(shape: Any) -> str:
    return hashlib.blake2b(json.dumps(shape, sort_keys=True).encode(), digest_size=8).hexdigest()


# -- keeping ----------------------------------------------------------------------------------------------------------


async def keep(folder: Path) -> None:
    """Run all runs to where they are kept, and put what they left into a folder."""
    used = {name: await pause(name, "runs.db") for name in RUNS}
    with closing(sqlite3.connect("runs.db")) as store:
        store.execute("VACUUM INTO 'whole.db'")
    exported = Path("runs.jsonl")
    with exported.open("w") as file:
        count, problems = await export_runs(RunStore("runs.db"), file)
    assert (count >= len(RUNS), problems) == (True, [])
    _pack(folder / "store.sqlite.zst", Path("whole.db").read_bytes())
    _pack(folder / "runs.jsonl.zst", exported.read_bytes())
    _write(folder / "used.json", used)
    with postgres.running() as server:
        location = server.new_database()
        await copy_store(RunStore("runs.db"), RunStore(location))
        _pack(folder / "store.sql.zst", server.dump(location))


@contextmanager
def in_folder_of_runs() -> Iterator[None]:
    """Work in the folder where the runs are kept and end: their files have its name. One process at a time."""
    before, folder = Path.cwd(), Path(tempfile.gettempdir(), "upcall-golden-stores")
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv(KEY, SECRET_KEY)
                patch.setattr(platform, "node", lambda: "golden")
                os.chdir(folder)
                yield
        finally:
            os.chdir(before)
            shutil.rmtree(folder)


def _pack(file: Path, content: bytes) -> None:
    file.write_bytes(zstandard.ZstdCompressor(level=19).compress(content))


def _unpack(number: int, name: str) -> bytes:
    return zstandard.ZstdDecompressor().decompress((FOLDER / str(number) / name).read_bytes())


def _read(number: int, name: str) -> str:
    return (FOLDER / str(number) / name).read_text()


def _write(file: Path, value: object) -> None:
    file.write_text(json.dumps(value, indent=1) + "\n")


def main(command: str) -> None:
    """Keep the newest format, or only its shapes."""
    assert command in ("keep", "shapes"), __doc__
    folder = FOLDER / str(NEWEST)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "shapes.json", list_shapes())
    if command == "shapes":
        return
    with in_folder_of_runs():
        asyncio.run(keep(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
