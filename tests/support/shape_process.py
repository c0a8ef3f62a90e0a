"""One run segment of one of the `shapes`, as a process: start it, or answer it, and print the run as JSON.

Arguments: the server's URL, the shape, the place, then ``start``, or a run's id and the answers by question id.
"""

from __future__ import annotations

import asyncio
import json
import sys

from autogen_ext.models.openai import OpenAIChatCompletionClient
from shapes import PLACES, SHAPES, World

from upcall import Run, Upcall
from upcall.testing.model import MODEL_INFO


async def main(base_url: str, shape: str, place: str, run_id: str, answers: str = "{}") -> Run:
    """Take the run to its next pause."""
    client = OpenAIChatCompletionClient(model="scripted", base_url=base_url, api_key="none", model_info=MODEL_INFO)
    make = PLACES[place].put(SHAPES[shape].make)
    app = Upcall(team=lambda: make(World(client)), store="runs.db")
    if run_id == "start":
        return await app.start("Build it")
    return await app.answer(run_id, {key: text for key, text in json.loads(answers).items() if text is not None})


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(*sys.argv[1:])).as_json()))
