"""An adapter of the conformance test on the standard library, for agents at depth 1, which does what its argument says:
`right`, as far as one gets without a journal, or one thing that is wrong."""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

Json = dict[str, Any]
FAULT = sys.argv[1]
TOOLS = [{"type": "function", "function": {"name": each}} for each in ("look", "save", "ask_user")]


def post(url: str, body: Json) -> Json:
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode()), timeout=30) as response:
        return json.loads(response.read())  # type: ignore[no-any-return]


def call_tool(request: Json, call: Json) -> str | None:
    """Return what a call comes to; None for one that waits for the user."""
    name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
    if name == "save":
        times = 2 if FAULT == "repeats" else 1
        results = [post(f"{request['url']}/tools/save", arguments)["result"] for _ in range(times)]
        return str(results[0])
    return None if name == "ask_user" else f"Found for {arguments['what']}"


def work(request: Json, state: Json) -> None:
    """Work until a question is open, or the model reports."""
    while not state["open"]:
        body = {"model": "scripted", "messages": state["messages"], "tools": TOOLS}
        message = post(f"{request['url']}/v1/chat/completions", body)["choices"][0]["message"]
        state["messages"].append(message)
        if not message.get("tool_calls"):
            state["result"] = message["content"]
            return
        for call in message["tool_calls"]:
            result = call_tool(request, call)
            if result is None:
                state["open"] = {call["id"]: json.loads(call["function"]["arguments"])["question"]}
            else:
                state["messages"].append({"role": "tool", "tool_call_id": call["id"], "content": result})


def serve(request: Json) -> Json:
    if request["do"] == "about":
        return {"versions": {"mine": "1.0"}}
    file = Path(request["folder"]) / f"{request['run']}.json"
    if request["do"] == "start":
        system = {"role": "system", "content": "You are the asker."}
        state = {"messages": [system, {"role": "user", "content": request["task"]}], "open": {}, "result": None}
        work(request, state)
    elif not file.exists():
        return {"unknown": True}
    else:
        state = json.loads(file.read_text())
    if request["do"] == "answer":
        (key, answer), *_ = request["answers"].items()
        if FAULT == "races":
            time.sleep(1)  # The other process reads the same state meanwhile.
        if key not in state["open"] and FAULT != "takes":
            return {"error": "no such question"}
        question, state["open"] = state["open"], {}
        key = key if key in question else next(iter(question), key)
        content = "nothing" if FAULT == "loses" else answer
        state["messages"].append({"role": "tool", "tool_call_id": key, "content": content})
        if FAULT == "hangs":
            time.sleep(600)
        if FAULT == "fails":
            return {"error": "out of order"}
        if FAULT == "ends":
            raise SystemExit(1)
        if FAULT == "asks" and not state.get("asked"):
            state |= {"open": question, "asked": True}
            state["messages"].pop()
        work(request, state)
    written = file.with_suffix(f".{os.getpid()}")
    written.write_text(json.dumps(state))
    written.replace(file)
    items = [{"id": key, "text": text, "path": ["asker"]} for key, text in state["open"].items()]
    return {"open": items, "result": state["result"]}


for line in sys.stdin:
    sys.stdout.write(json.dumps(serve(json.loads(line))) + "\n")
    sys.stdout.flush()
