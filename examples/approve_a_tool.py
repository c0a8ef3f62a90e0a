"""A tool that is called only when you allow it: once, for the run, with changed arguments, or never.

Run it: python examples/approve_a_tool.py
"""

from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import PausableAgent, Upcall, run_sync
from upcall.testing import Call, Reply, Request, ScriptedModelClient


def send_letter(to: str, text: str) -> str:
    """Send a letter."""
    return f"Sent to {to}: {text}"


def reply(request: Request) -> Reply:
    """Return what a real model would say."""
    done = list(request.tool_results.values())
    return f"Done. {done[0]}" if done else Call("send_letter", {"to": "Ann", "text": "Hello Ann"})


def make_team() -> RoundRobinGroupChat:
    model = ScriptedModelClient(reply)  # Or any AutoGen model client.
    agent = PausableAgent("agent", model, tools=[send_letter], approve=["send_*"])
    return RoundRobinGroupChat([agent], max_turns=1)


app = Upcall(store="letters.db", team=make_team)
run = run_sync(app.start("Write to Ann"))
while run.questions:
    print(run.questions[0].as_text())  # 1, 2 or 3; {"to": "Bob"}; or why not.
    run = run_sync(app.answer(run.id, input("> ")))
print(run.result)
