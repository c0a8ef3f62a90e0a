"""Your own AutoGen team: a stock agent, and one whose nested agent asks. Run it: python examples/own_team.py"""

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import PausableAgent, Run, Upcall, describe_event, run_sync
from upcall.testing import Call, Reply, Request, ScriptedModelClient


def reply(request: Request) -> Reply:
    """Return what a real model would say."""
    done = list(request.tool_results.values())
    if "You write" in request.system:
        return "def parse(text): ..."
    if "You lead" in request.system:
        return f"Reported: {done[0]}" if done else Call("tester", {"task": "Test the parser"})
    return f"The tests pass on {done[0]}." if done else Call("ask_user", {"question": "Which Python?"})


def make_team() -> RoundRobinGroupChat:
    model = ScriptedModelClient(reply)  # Or any AutoGen model client.
    writer = AssistantAgent("writer", model, system_message="You write code.")
    tester = PausableAgent("tester", model, system_message="You test code.", description="Tests code.")
    lead = PausableAgent("lead", model, system_message="You lead the tests.", agents=[tester])
    return RoundRobinGroupChat([writer, lead], max_turns=2)


def show(item: BaseAgentEvent | BaseChatMessage | Run) -> None:
    if not isinstance(item, Run) and (line := describe_event(item)):  # The run comes last.
        print(item.source, line)


app = Upcall(store="team.db", team=make_team)
run = run_sync(app.start_stream("Write a parser, and test it"), show)
for question in run.questions:
    run = run_sync(app.answer(run.id, input(f"{' > '.join(question.path)}: {question.question} ")))
print(run.result)
