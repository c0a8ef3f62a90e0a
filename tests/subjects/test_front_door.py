"""`Upcall` has few verbs; the rest stands in objects by subject, and a moved name says where."""

from __future__ import annotations

import copy
import inspect

import pytest
from worlds import NO_COMMANDS

from upcall import Settings, Upcall
from upcall.run_reader import RunReader
from upcall.subjects.subject import Subject

VERBS = {"start", "answer", "resume", "fork", "cancel", "get", "list", "inbox", "form"}
MOVED = [
    ("undo", "app.changes.undo"),
    ("call_timings", "app.log.call_timings"),
    ("assign", "app.access.assign"),
    ("keep_fact", "app.memory.keep_fact"),
    ("plan_fork", "app.forks.plan"),
    ("delete_plan", "app.plans.delete"),
    ("forget_topics", "app.memory.forget"),
    ("check", "app.team.check"),
    ("execution", "app.team.execution"),
]


def make_app() -> Upcall:
    return Upcall(store="runs.db", settings=Settings.read(None, models={"model": "demo"}, **NO_COMMANDS))


def test_front_door_has_at_most_20_methods() -> None:
    methods = {name for name, _ in inspect.getmembers(Upcall, callable) if not name.startswith("_")}
    assert len(methods) <= 20
    assert {*VERBS, *(f"{verb}_stream" for verb in ("start", "answer", "resume", "fork"))} <= methods


def test_reader_has_its_subjects_without_a_team() -> None:
    reader = RunReader(Settings.read(None, models={"model": "demo"}), "runs.db")
    assert {name for name, value in vars(reader).items() if isinstance(value, Subject)} == {
        "log",
        "access",
        "holds",
        "external",
    }


@pytest.mark.parametrize(("name", "where"), MOVED)
def test_attribute_error_names_where_a_method_is(name: str, where: str) -> None:
    app = make_app()
    with pytest.raises(AttributeError, match=f"'Upcall' object has no attribute '{name}'. See {where}.$"):
        getattr(app, name)
    assert not hasattr(app, name)


@pytest.mark.parametrize("name", ["nothing_like_it", "__missing__", "_list"])
def test_attribute_error_guesses_nothing(name: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'.$"):
        getattr(make_app(), name)


def test_copied_app_keeps_its_subjects() -> None:
    app = make_app()
    assert copy.copy(app).log is app.log
