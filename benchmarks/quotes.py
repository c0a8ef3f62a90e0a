"""How well quotes are told from what was not said, at each threshold of similarity, and what a look-up costs.

`python benchmarks/quotes.py` on the labelled pairs in tests/data/quotes.json. A pair holds if a fair reader would
accept the quote: line ends, ligatures, scanning errors and small slips are fair; another figure, a "not" more or
less, another subject, and words that are not there are not. Those of the kind "held out" were written when the rules
were done, and the rules were left as they are, but for what makes a word its opposite.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from unittest import mock

from upcall.research import quotes as matching
from upcall.research.quotes import find_quote

PAIRS = Path(__file__).parent.parent / "tests" / "data" / "quotes.json"


def main() -> None:
    labelled: dict[str, Any] = json.loads(PAIRS.read_text())
    texts, quotes = labelled["texts"], labelled["quotes"]
    chosen, missed = matching.MIN_SCORE, list[Any]()
    right = sum(each["holds"] for each in quotes)
    print(f"{len(quotes)} quotes, {right} hold\n")
    print("| threshold | found | found that do not hold | the same by the score alone |\n|---|---|---|---|")
    for threshold in (70, 75, 80, 82, 84, 86, 88, 90, 92, 94, 96, 98, 100):
        matching.MIN_SCORE = float(threshold)
        found = [find_quote(each["quote"], texts[each["text"]]) for each in quotes]
        kept = sum(bool(hit) for hit, each in zip(found, quotes, strict=True) if each["holds"])
        wrong = sum(bool(hit) for hit, each in zip(found, quotes, strict=True) if not each["holds"])
        if threshold == chosen:
            missed = [each for hit, each in zip(found, quotes, strict=True) if bool(hit) != each["holds"]]
        with mock.patch.object(matching, "_says_the_same", return_value=True):
            alone = [find_quote(each["quote"], texts[each["text"]]) for each in quotes]
        passed = sum(bool(hit) for hit, each in zip(alone, quotes, strict=True) if not each["holds"])
        print(f"| {threshold} | {kept}/{right} | {wrong}/{len(quotes) - right} | {passed}/{len(quotes) - right} |")
    matching.MIN_SCORE = chosen
    print(f"\nWrong at {chosen:g}:", *(f"({each['kind']}) {each['quote']}" for each in missed), sep="\n  ")
    long_text = "\n".join(texts.values()) * 60
    for name, quote in (
        ("there", quotes[0]["quote"]),
        ("not there", "Wind turbines are repaired by robots in most of them"),
    ):
        began = time.perf_counter()
        find_quote(quote, long_text)
        print(f"{name}: {(time.perf_counter() - began) * 1000:.1f} ms in {len(long_text):,} characters")


if __name__ == "__main__":
    main()
