"""The process of an adapter that is a Python file: ``serve.py ADAPTER.py``. One JSON object a line on the standard
input is a request, one on the standard output its reply; README.md describes both.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

Json = dict[str, Any]


class Server:
    """One adapter, with a system for each folder and scenario."""

    def __init__(self, path: Path) -> None:
        sys.path[:0] = [str(Path(__file__).parent), str(path.parent)]
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        self._module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = self._module
        spec.loader.exec_module(self._module)
        self._systems: dict[str, Any] = {}

    async def serve(self, request: Json) -> Json:
        """Return the reply to one request."""
        if request["do"] == "about":
            return {"versions": {name: importlib.metadata.version(name) for name in self._module.System.packages}}
        system = await self._system(request)
        match request["do"]:
            case "start":
                rest = await system.start(request["run"], request["task"], [(a, b) for a, b in request["history"]])
            case "answer":
                rest = await system.answer(request["run"], request["answers"])
            case "pending":
                rest = await system.pending(request["run"])
        if rest is None:
            return {"unknown": True}
        return {"open": [asdict(each) for each in rest.open], "result": rest.result}

    async def _system(self, request: Json) -> Any:
        from meter import httpx
        from scenarios import Scenario

        scenario = Scenario.from_json(request["scenario"])
        if scenario.expires and not getattr(self._module.System, "expires", False):
            raise NotImplementedError("questions do not expire")
        key = json.dumps([request["folder"], request["scenario"]])
        if key not in self._systems:
            client = httpx.AsyncClient(timeout=600)
            store = Path(request["folder"]) / "runs.db"
            self._systems[key] = self._module.System(f"{request['url']}/v1", client, store, scenario)
            await self._systems[key].open()
        return self._systems[key]

    async def close(self) -> None:
        for system in self._systems.values():
            await system.close()


async def main(adapter: Path) -> None:
    """Serve until the standard input ends."""
    sent, sys.stdout = sys.stdout, sys.stderr  # What a system prints is no reply.
    server = Server(adapter)
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            reply = await server.serve(json.loads(line))
        except NotImplementedError as error:
            reply = {"unsupported": str(error)}
        except Exception as error:  # noqa: BLE001  (whatever a system refuses with is its reply)
            reply = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(reply), file=sent, flush=True)
    await server.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).resolve()))
