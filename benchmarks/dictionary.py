"""Make the tables of the dictionary that short texts are compressed with (`src/upcall/storage/dictionaries`).

The text says what states look like; it is written by hand, from the states of runs. The tables say how often each byte
and each length comes in what is stored beside that text: with them a short text brings none of its own. They are made
of what a few dozen runs store, of teams whose agents have other names, words and ids each time. Print them, and put
them into `upcall.storage.compression.TABLES` under the next number, with the text beside the others: one that was
released stays as it is.

    python benchmarks/dictionary.py             # needs libzstd, from 1.4.5 on
"""

from __future__ import annotations

import asyncio
import base64
import ctypes
import ctypes.util
import random
import re
import string
import tempfile
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.base import Team
from autogen_agentchat.conditions import HandoffTermination
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm

from upcall import PausableAgent, Settings, Upcall
from upcall.storage import checkpoints, compression, journal, store, transcripts
from upcall.testing import Call, ScriptedModelClient

DOCS = Path(__file__).resolve().parent.parent / "docs"
NAMES = ("coder", "researcher", "writer", "tester", "reviewer", "analyst", "architect", "editor")
RUNS = 60
STAYS = (b'{"id"', b'{"version":1', b"[")
"""How the texts begin that stay: records, checkpoints and transcripts; the journal goes with each pause."""


class Samples:
    """What runs store, in words taken from the documentation."""

    def __init__(self) -> None:
        self._random = random.Random(5)
        prose = " ".join(re.sub(r"[^\w ,.;:'?-]+", " ", path.read_text()) for path in sorted(DOCS.glob("*.md")))
        self._sentences = [each for each in re.split(r"(?<=[.?]) +", " ".join(prose.split())) if 30 < len(each) < 240]

    async def collect(self) -> list[bytes]:
        """Run teams up to their first or second pause; the texts that stay, whole ones alone."""
        found = list[bytes]()
        for number in range(RUNS):
            texts = await self._run(number)
            found += [self._with_ids(text, number) for text in texts if text.startswith(STAYS)]
        return found

    async def _run(self, number: int) -> list[bytes]:
        texts, encode = list[bytes](), compression.encode

        def note(text: bytes, prefix: bytes | None = None) -> bytes:
            if prefix is None:
                texts.append(text)
            return encode(text, prefix)

        for module in (checkpoints, journal, store, transcripts):
            vars(module)["encode"] = note
        with tempfile.TemporaryDirectory() as folder:
            app = Upcall(team=self._team(number), store=str(Path(folder, "runs.db")), settings=Settings.read(None))
            run = await app.start(self._sentence())
            if number % 2:
                await app.answer(run.id, "1")
        for module in (checkpoints, journal, store, transcripts):
            vars(module)["encode"] = encode
        return texts

    def _sentence(self, count: int = 1) -> str:
        return " ".join(self._random.choices(self._sentences, k=count))

    def _words(self, count: int) -> str:
        return " ".join(self._random.choices(self._sentence().rstrip(".?").split(), k=count))

    def _ask(self) -> Call:
        options = list(dict.fromkeys(self._words(2) for _ in range(3)))
        return Call("ask_user", {"question": f"{self._words(8).capitalize()}?", "options": options})

    def _team(self, number: int) -> Callable[[], Team]:
        names, others = self._random.sample(NAMES, 2), self._random.random()

        def search(query: str) -> str:
            """Search."""
            return self._sentence(2)

        def write_file(path: str, content: str) -> str:
            """Write."""
            return f"Wrote {path}"

        def script(*replies: Any) -> ScriptedModelClient:
            return ScriptedModelClient(list(replies))

        def make() -> Team:
            looks = Call("search", {"query": self._words(3)})
            writes = Call("write_file", {"path": f"{self._words(1)}.py", "content": self._sentence()})
            first, second = (looks, writes) if others < 0.5 else (writes, looks)
            tools: list[Any] = [search, write_file]
            nested = [
                PausableAgent(name, script(does, self._ask(), self._sentence()), tools=tools)
                for name, does in zip(names, (first, second), strict=True)
            ]
            calls = [Call(name, {"task": self._sentence()}) for name in names]
            lead = PausableAgent("lead", script(*calls, self._sentence()), agents=nested)
            alone = PausableAgent(names[0], script(first, self._ask(), self._ask(), self._sentence()), tools=tools)
            if number % 3 == 0:
                return Swarm([lead, UserProxyAgent("user")], termination_condition=HandoffTermination("user"))
            return RoundRobinGroupChat([lead if number % 3 == 1 else alone], max_turns=1)

        return make

    def _with_ids(self, text: bytes, number: int) -> bytes:
        """Give the calls such ids as model servers do, and the run another day."""
        own = random.Random(number)
        letters = string.ascii_letters + string.digits if number % 2 else "0123456789abcdef"
        ids = {each: "call_" + "".join(own.choices(letters, k=24)) for each in sorted(set(_CALLS.findall(text)))}
        day = f"20{own.randint(26, 35)}-{own.randint(1, 12):02}-{own.randint(1, 28):02}T{own.randint(0, 23):02}:"
        return _DAYS.sub(day.encode(), _CALLS.sub(lambda found: ids[found[0]].encode(), text))


_CALLS = re.compile(rb"call_\d+(?:_\d+)?")
_DAYS = re.compile(rb"20\d\d-\d\d-\d\dT\d\d:")


class _Parameters(ctypes.Structure):
    _fields_ = (("level", ctypes.c_int), ("notifications", ctypes.c_uint), ("dictionary", ctypes.c_uint))


def make_tables(text: bytes, samples: Sequence[bytes]) -> bytes:
    """Give what stands in front of the text in a dictionary of zstandard's own form."""
    library = ctypes.CDLL(ctypes.util.find_library("zstd"))
    library.ZDICT_finalizeDictionary.restype = library.ZDICT_getDictHeaderSize.restype = ctypes.c_size_t
    room = ctypes.create_string_buffer(len(text) + 4096)
    sizes = (ctypes.c_size_t * len(samples))(*map(len, samples))
    size = library.ZDICT_finalizeDictionary(
        *(room, ctypes.c_size_t(len(room)), text, ctypes.c_size_t(len(text))),
        *(b"".join(samples), sizes, ctypes.c_uint(len(samples)), _Parameters(6, 0, 1)),
    )
    if library.ZDICT_isError(ctypes.c_size_t(size)):
        raise SystemExit("zstandard cannot make a dictionary of this text.")
    made = room.raw[:size]
    tables = made[: library.ZDICT_getDictHeaderSize(made, ctypes.c_size_t(size))]
    assert made == tables + text, "the text was changed"
    return tables


def main() -> None:
    """Print the tables."""
    text = files("upcall.storage").joinpath("dictionaries", f"{max(compression.TABLES)}.txt").read_bytes()
    samples = asyncio.run(Samples().collect())
    tables = make_tables(text, samples)
    print(f"# {len(tables)} bytes, of {len(samples)} texts")
    print(base64.b85encode(tables).decode())


if __name__ == "__main__":
    main()
