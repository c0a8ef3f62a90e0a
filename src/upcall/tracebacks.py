"""What an error came of, and where in the user's own code."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from upcall.lazy_pattern import LazyPattern

_PLACE = LazyPattern(r" \(\S.*, line \d+\)")
_OWN = str(Path(__file__).parent)


def walk_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and each once the errors in its group, and those that it was raised from or after."""
    seen = set[int]()
    rest: list[BaseException | None] = [error]
    while rest:
        each = rest.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        grouped = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        rest += reversed([*grouped, each.__cause__, each.__context__])


def list_user_frames(error: BaseException) -> Sequence[traceback.FrameSummary]:
    """List the frames of an error, outermost first, that are in no file of Python's, of an installed package or of
    upcall."""
    installed = (_OWN, *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))
    return [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith(installed)]


def describe_place(frames: Sequence[traceback.FrameSummary]) -> str:
    """Return the last of some frames, to be put behind a sentence: `` (teams.py, line 12)``; nothing if there is
    none."""
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def names_place(text: str) -> bool:
    """Return whether an error's text names a line of the user's own code, as `describe_place` writes it."""
    return bool(_PLACE.search(text))
