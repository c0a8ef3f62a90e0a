"""How well quotes are distinguished from what was not said, and what a look-up costs.

`python benchmarks/quotes.py` on the labelled quotes in tests/data: `quotes.json`, with which the rules were made, and
`quotes_held_out.json`, which was written when they were done; and in `quotes_in_context.json`, where the words of each
false quote do occur, and what surrounds them says something else. A quote holds if it is what the text says there: line
ends, ligatures, case and scanning errors are fair; another figure, a denial that is left out, half a word, words from
two sentences are not.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from upcall.research.citations import Library, ReadText
from upcall.research.quotes import find_quote, has_enough_words

DATA = Path(__file__).parent.parent / "tests" / "data"


def main() -> None:
    for name in ("quotes", "quotes_held_out", "quotes_in_context"):
        labelled: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
        print(f"\n{name}.json\n\n| kind | quotes | taken |\n|---|---|---|")
        for holds, title in ((True, "fair"), (False, "false")):
            there, taken = Counter[str](), Counter[str]()
            for each in labelled["quotes"]:
                if each["holds"] is holds:
                    hit = has_enough_words(each["quote"]) and find_quote(each["quote"], labelled["texts"][each["text"]])
                    there[each["kind"]] += 1
                    taken[each["kind"]] += bool(hit)
            for kind in sorted(there):
                print(f"| {title}: {kind} | {there[kind]} | {taken[kind]} |")
            print(f"| **{title}** | {there.total()} | {taken.total()} |")
    texts = list(json.loads((DATA / "quotes.json").read_text())["texts"].values())
    measure_look_ups("\n".join(texts) * 2, len(texts))


def measure_look_ups(text: str, sources: int) -> None:
    """Print what it costs to look up a quote whose source is not known in everything that was read."""
    print(f"\nIn {sources} sources of {len(text):,} characters each, with the first look and with a later one:")
    for name, quote in (
        ("a quote that is in all of them", "wind and solar together supplied 52 percent"),
        ("one that is in none", "Wind turbines are repaired by robots in most of them"),
    ):
        library = Library([ReadText(f"{number}.md", text) for number in range(sources)])
        spent = []
        for _ in range(2):
            began = time.process_time()
            library.find_only_source(quote)
            spent.append(f"{(time.process_time() - began) * 1000:.0f} ms")
        print(f"{name}: {', '.join(spent)}")


if __name__ == "__main__":
    main()
