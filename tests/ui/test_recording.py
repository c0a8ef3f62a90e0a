"""The recording of the documentation: a real terminal session as an animated SVG."""

from __future__ import annotations

import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest
from places import ROOT


@pytest.mark.slow
def test_recording_plays_the_journey_from_task_to_result(tmp_path: Path) -> None:
    recording = runpy.run_path(str(ROOT / "docs" / "recording.py"))
    picture = ElementTree.fromstring(recording["make_recording"]())
    text = "\n".join("".join(each.itertext()) for each in picture.iter("{http://www.w3.org/2000/svg}text"))
    words = ['$ upcall run "Build me', "Which framework?", "Answer: Express", "server.js (+36 -0)", "is completed."]
    assert [each for each in words if each not in text] == []
    assert len(picture.findall("{http://www.w3.org/2000/svg}g")) > 10


def test_recording_ends_still_with_each_line_once() -> None:
    recording = runpy.run_path(str(ROOT / "docs" / "recording.py"))
    frame = recording["Frame"]
    svg = recording["to_svg"]([frame(("<tspan>a</tspan>", ""), 1), frame(("<tspan>a</tspan>", "<tspan>b</tspan>"), 1)])
    assert svg.count("<tspan>a</tspan>") == 1
    assert "{.rec-f1{visibility:visible;animation:none}}" in svg.replace("[class^=rec-f]{animation:none}", "")
