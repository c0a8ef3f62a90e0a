"""Tests without a network: a scripted model, a scripted human, an OpenAI server on loopback."""

from upcall.testing.human import OneAfterAnother, ScriptedHuman
from upcall.testing.model import ScriptedModelClient
from upcall.testing.script import Call, Calls, CutShort, Fail, Hang, Raw, Reply, Request, Say, Script, ScriptError
from upcall.testing.server import LoopbackServer

__all__ = [
    "Call",
    "Calls",
    "CutShort",
    "Fail",
    "Hang",
    "LoopbackServer",
    "OneAfterAnother",
    "Raw",
    "Reply",
    "Request",
    "Say",
    "Script",
    "ScriptError",
    "ScriptedHuman",
    "ScriptedModelClient",
]
