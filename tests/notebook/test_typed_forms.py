"""An answer of several fields in a notebook: a widget a field, for a run that another application began."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from ipywidgets import HTML, Button, Dropdown, SelectMultiple, Text, Widget
from trips import BAD_TEXTS, BOOKED, BOOKED_AS_CLEARED, make_team

from upcall import Upcall
from upcall.notebook.forms import Form

TYPED = [each for each in BAD_TEXTS if each[0] not in ("Seat", "Flexible")]
"""Of what is chosen nothing else can be filled in."""


def find(root: Any, *kinds: type[Widget]) -> dict[str, Any]:
    """Return the widgets of these kinds by what stands at them."""
    here = {root.description: root} if type(root) in kinds else {}
    for child in getattr(root, "children", ()):
        here |= find(child, *kinds)
    return here


def shown(root: Any) -> str:
    """Return all texts of a form."""
    here = root.value if type(root) is HTML else ""
    return here + "".join(map(shown, getattr(root, "children", ())))


async def waiting() -> Form:
    """Begin a run in one application, and return its form in another."""
    run = await Upcall(store="runs.db", team=make_team).start("Book it")
    form = Upcall(store="runs.db", team=make_team).form(run.id)
    await form.settle()
    for label, text in {"Traveller": "Ada Byron", "Start": "2026-03-01", "Address: City": "Oslo"}.items():
        find(form.widget, Text)[label].value = text
    return form


async def send(form: Form) -> None:
    find(form.widget, Button)["Answer"].click()
    await asyncio.sleep(0)  # The click is handed to the loop.
    await form.settle()


async def test_notebook_draws_fields_with_what_stands_in_them() -> None:
    form = await waiting()
    assert find(form.widget, Text)["Number of nights"].value == "2"
    assert find(form.widget, Dropdown)["Seat"].value == "window"
    assert find(form.widget, SelectMultiple)["Extras"].value == ()
    assert "Where to deliver (text)" in shown(form.widget)
    await send(form)
    assert form.run is not None
    assert form.run.result == BOOKED


@pytest.mark.parametrize(("label", "wrong", "message"), TYPED)
async def test_notebook_keeps_what_a_field_refuses(label: str, wrong: str, message: str) -> None:
    form = await waiting()
    good = find(form.widget, Text)[label].value
    find(form.widget, Text)[label].value = wrong
    await send(form)
    assert message in shown(form.widget)
    assert find(form.widget, Text)[label].value == wrong
    find(form.widget, Text)[label].value = good
    await send(form)
    assert form.run is not None
    assert form.run.result == BOOKED


async def test_notebook_field_that_is_cleared_is_empty() -> None:
    form = await waiting()
    find(form.widget, Text)["Remark"].value = ""
    await send(form)
    assert form.run is not None
    assert form.run.result == BOOKED_AS_CLEARED
