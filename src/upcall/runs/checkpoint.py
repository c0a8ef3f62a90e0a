"""A checkpoint: the stored state of a paused run, as versioned plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from autogen_agentchat.messages import ChatMessage
from pydantic import BaseModel, Field, ValidationError

from upcall.errors import SchemaMismatch
from upcall.formats import Format, is_number
from upcall.runs.json_text import dump_json
from upcall.runs.run import RunProgress


class Checkpoint(BaseModel, frozen=True, ser_json_inf_nan="constants", defer_build=True):
    """What a team needs to continue: its state, and the messages it has not yet been given.

    ``team_state`` is AutoGen's own (`Team.save_state`), None before the first turn. ``inbox`` holds the task of a new
    run, or the answers that were taken since the team stopped. ``progress`` is what the team's work had reported of the
    run by then. ``journal`` is what was done on the way here from the checkpoint before, where a question was answered
    on that way: a fork begins there. ``model_notes`` is what the team keeps for the servers of its models.
    """

    stored_as: ClassVar[Format] = Format()
    """Of all that a checkpoint holds and that has no number of its own: what the agents of AutoGen and the managers of
    group chats save, the messages, the journal."""

    version: int = Field(default_factory=lambda: Checkpoint.stored_as.number, strict=True)
    team_state: dict[str, Any] | None = None
    inbox: tuple[Annotated[ChatMessage, Field(discriminator="type")], ...] = ()
    progress: RunProgress | None = None
    journal: dict[str, str] = {}
    model_notes: dict[str, Any] = {}

    @property
    def reached(self) -> RunProgress:
        """What the team's work had reported of the run; nothing where that was not kept."""
        return self.progress or RunProgress()

    def thread(self) -> list[Mapping[str, Any]]:
        """List what the members of the outermost team said, oldest first, as dumped messages; empty before the first
        turn.

        AutoGen's group chats keep it in their manager's state, under the name ``message_thread`` (0.7.5).
        """
        states = (self.team_state or {}).get("agent_states", {})
        return next((state["message_thread"] for state in states.values() if "message_thread" in state), [])

    def dump(self) -> str:
        """Give the checkpoint as JSON text."""
        return dump_json(self) if not self.stored_as.upgrades else json.dumps(self.as_json(), separators=(",", ":"))

    def as_json(self) -> dict[str, Any]:
        """Give the checkpoint as plain JSON values."""
        return {**self.stored_as.stamp(), **self.model_dump(mode="json", exclude={"version"})}

    @classmethod
    def load(cls, text: str | bytes, run_id: str) -> Checkpoint:
        """Give the checkpoint that `text` holds.

        Raises:
            NewerFormat: a later version of upcall stored it.
            SchemaMismatch: it is damaged.
        """
        try:
            found = cls.model_validate_json(text)
        except (ValidationError, TypeError):
            # Or Python's own parser takes it: half a surrogate pair, more than 200 levels; and a text beside an image,
            # which autogen-core's `Image` refuses with a TypeError where pydantic parses the JSON (0.7.5).
            found = None
        if found is not None and found.version == cls.stored_as.number and "version" in found.model_fields_set:
            return found
        try:
            return cls.from_json(json.loads(text), run_id)
        except (ValueError, RecursionError) as error:
            raise _explain_damage(run_id) from error

    @classmethod
    def load_bare(cls, text: str | bytes, run_id: str) -> Checkpoint:
        """Give the checkpoint that `text` holds without the state of its team, by far the largest part of most.

        Raises:
            NewerFormat, SchemaMismatch: as from `load`.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _explain_damage(run_id) from error
        return cls.from_json({**data, "team_state": None} if isinstance(data, dict) else data, run_id)

    @classmethod
    def from_json(cls, data: Any, run_id: str) -> Checkpoint:
        """Give the checkpoint that `as_json` gave, of this or an earlier version, as plain JSON values.

        Raises:
            NewerFormat: a later version of upcall stored it.
            SchemaMismatch: it is damaged.
        """
        if not isinstance(data, Mapping) or not is_number(data.get("version")):
            raise _explain_damage(run_id)
        try:
            return cls.model_validate(cls.stored_as.bring_up(data, f"The checkpoint of run {run_id}"))
        except ValidationError as error:
            raise _explain_damage(run_id) from error


def _explain_damage(run_id: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"The checkpoint of run {run_id} is damaged and cannot be read. See what can: upcall store check. Start the "
        "task again, or restore the database from a backup."
    )
