"""Whether letters are a word of a language that a source is likely to be in."""

from __future__ import annotations

import gzip
from functools import cache, lru_cache
from importlib.resources import files

LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl")


@lru_cache(maxsize=4096)
def is_word(word: str) -> bool:
    """Return whether a word, in lower case, is in the word list of one of `LANGUAGES`.

    Without the package of the lists everything is a word, so that nothing passes for a misspelling.
    """
    lists = _read_lists()
    return not lists or any(f'"{word}":'.encode() in each for each in lists)


@cache
def _read_lists() -> tuple[bytes, ...]:
    """Read the frequency lists of `pyspellchecker` unparsed: as dictionaries they would fill 200 MB."""
    try:
        folder = files("spellchecker") / "resources"
    except ModuleNotFoundError:
        return ()
    return tuple(gzip.decompress((folder / f"{language}.json.gz").read_bytes()) for language in LANGUAGES)
