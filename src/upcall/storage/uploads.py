"""Files that come along with runs: a folder for each run, and a row that names the run.

The row is written before the files and removed in the same transaction as they are, so no file is ever without one.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from upcall import identity
from upcall.errors import CallerError
from upcall.storage.compression import Damaged, decode
from upcall.storage.connection import Connection
from upcall.storage.databases import Database
from upcall.storage.run_lists import batch_ids, read_records

_log = logging.getLogger(__name__)

UNSTARTED_RETENTION_S = 86_400.0
"""How long files may be there without their run: it is stored after them."""


class UploadsFull(CallerError):
    """The files of all runs together would be larger than the setting allows. Nothing was stored."""


@dataclass(frozen=True)
class Upload:
    """The files uploaded for a run: their bytes, and when they arrived, in seconds since 1970."""

    run_id: str
    bytes: int
    at: float


class Uploads:
    """The files uploaded for the runs of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def folder(self) -> Path:
        """Where they are: beside an SQLite file, by its name, so that a copy of the file has none of them; else in the
        current folder."""
        file = self._database.file
        return Path.cwd() / "upcall-uploads" if file is None else Path(f"{file}-uploads")

    async def reserve(self, run_id: str, size: int, limit: int) -> Path:
        """Note that so many bytes are about to be stored for a run; the folder for them.

        Raises:
            UploadsFull: with those of all other runs they are more than `limit`.
        """
        await self._database.write(partial(_reserve, run_id=run_id, size=size, limit=limit))
        return self.folder / run_id

    async def find_unused(self, gone: Collection[str] = ()) -> Sequence[Upload]:
        """Find the files of runs that are not stored, and of those in `gone`, which are or will be removed; but not
        those that another run names among its documents, and not those whose run may be about to start."""
        before = identity.now().timestamp() - UNSTARTED_RETENTION_S
        return await self._database.read(partial(_find_unused, gone=frozenset(gone), before=before))

    async def remove(self, uploads: Collection[Upload]) -> Sequence[Upload]:
        """Remove files with their folders; return those removed. Errors are logged."""
        if uploads and self._database.file is None and not self.folder.is_dir():
            _log.warning(
                "The files of %s runs that are gone are not in %s: prune where the service runs.",
                len(uploads),
                self.folder,
            )
            return []
        return [each for each in uploads if await self._remove(each)]

    async def forget(self, run_id: str) -> None:
        """Remove the files of a run that was not started after all."""
        await self.remove(await self._database.read(partial(_list, run_id=run_id)))

    async def _remove(self, upload: Upload) -> bool:
        try:
            return await self._database.write(partial(_remove, upload=upload, folder=self.folder / upload.run_id))
        except OSError as error:
            _log.warning("The files of run %s cannot be removed: %s", upload.run_id, error)
            return False


def _reserve(connection: Connection, *, run_id: str, size: int, limit: int) -> None:
    query = "SELECT coalesce(sum(bytes), 0) FROM upcall_uploads WHERE run_id <> :run_id"
    stored = int(connection.execute(query, {"run_id": run_id}).fetchone()[0])
    if stored + size > limit:
        raise UploadsFull(
            f"The files that came along for all runs have {stored:,} bytes, with these {stored + size:,}, and may have "
            f"{limit:,}. Remove old runs with: upcall store prune --older-than 30d; or raise server.uploads_limit"
        )
    connection.execute(
        "INSERT INTO upcall_uploads (run_id, bytes, at) VALUES (:run_id, :bytes, :at) "
        "ON CONFLICT (run_id) DO UPDATE SET bytes = excluded.bytes, at = excluded.at",
        {"run_id": run_id, "bytes": size, "at": identity.now().timestamp()},
    )


def _list(connection: Connection, *, run_id: str) -> list[Upload]:
    query = "SELECT run_id, bytes, at FROM upcall_uploads WHERE run_id = :run_id"
    return [Upload(*row) for row in connection.execute(query, {"run_id": run_id}).fetchall()]


def _find_unused(connection: Connection, *, gone: Collection[str], before: float) -> list[Upload]:
    query = (
        "SELECT run_id, bytes, at, EXISTS (SELECT 1 FROM upcall_runs WHERE id = upcall_uploads.run_id) "
        "FROM upcall_uploads ORDER BY at, run_id"
    )
    found = [
        Upload(run_id, size, at)
        for run_id, size, at, is_stored in connection.execute(query).fetchall()
        if run_id in gone or (at < before and not is_stored)
    ]
    if not found:
        return []
    staying = [
        run_id for (run_id,) in connection.execute("SELECT id FROM upcall_runs").fetchall() if run_id not in gone
    ]
    needed = set(_name_documents(connection, staying))
    return [each for each in found if each.run_id not in needed]


def _name_documents(connection: Connection, run_ids: Collection[str]) -> Iterator[str]:
    """Name the folders that documents of some runs are in, and those that are named whole: a run that follows another,
    or is forked from it, reads that one's."""
    for batch in batch_ids(run_ids):
        for record in read_records(connection, batch).values():
            try:
                team = json.loads(decode(record))["config"].get("team")
            except (Damaged, ValueError, KeyError):
                continue  # A run that cannot be read reads no document either.
            yield from (part for each in (team or {}).get("documents", ()) for part in Path(each).parts)


def _remove(connection: Connection, *, upload: Upload, folder: Path) -> bool:
    """Remove files, unless they were sent anew meanwhile."""
    values = {"run_id": upload.run_id, "at": upload.at}
    if connection.execute("DELETE FROM upcall_uploads WHERE run_id = :run_id AND at = :at", values).rowcount != 1:
        return False
    if folder.is_dir():
        shutil.rmtree(folder)
    return True
