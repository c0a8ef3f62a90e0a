"""For tests and experiments without a network: a scripted model, a scripted human, an OpenAI server on loopback."""

from upcall.testing.model import ScriptedModelClient
from upcall.testing.script import Call, Calls, CutShort, Fail, Hang, Raw, Reply, Request, Say, Script, ScriptError

__all__ = [
    "Call",
    "Calls",
    "CutShort",
    "Fail",
    "Hang",
    "Raw",
    "Reply",
    "Request",
    "Say",
    "Script",
    "ScriptError",
    "ScriptedModelClient",
]
