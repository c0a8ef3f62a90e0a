"""Two function tools that need the human: `ask` in the middle of the work, `UserInputRequired` instead of it.

Run it: python examples/ask_from_a_tool.py
"""

from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import PausableAgent, Upcall, UserInputRequired, ask, run_sync
from upcall.testing import Call, Reply, Request, ScriptedModelClient


def book_train(to: str) -> str:
    """Book a seat on the train."""
    seat = ask(f"Which seat to {to}?", ["window", "aisle"])  # The tool is called again, with the answer.
    return f"Booked a seat to {to}: {seat.text}."


def order_meal(to: str) -> str:
    """Order a meal on the train."""
    raise UserInputRequired(f"Which meal on the way to {to}?", ["soup", "salad"])  # The answer is its result.


def reply(request: Request) -> Reply:
    """Return what a real model would say."""
    calls = [Call("book_train", {"to": "Oslo"}), Call("order_meal", {"to": "Oslo"})]
    done = list(request.tool_results.values())
    return calls[len(done)] if len(done) < len(calls) else f"Done. {done[0]} Meal: {done[1]}."


def make_team() -> RoundRobinGroupChat:
    model = ScriptedModelClient(reply)  # Or any AutoGen model client.
    return RoundRobinGroupChat([PausableAgent("agent", model, tools=[book_train, order_meal])], max_turns=1)


app = Upcall(store="trips.db", team=make_team)
run = run_sync(app.start("I go to Oslo tomorrow"))
while run.questions:
    labels = ", ".join(option.label for option in run.questions[0].options)
    run = run_sync(app.answer(run.id, input(f"{run.questions[0].question} ({labels}) ")))
print(run.result)
