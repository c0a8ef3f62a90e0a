"""Bugs of AutoGen 0.7.5: a stock script shows each, and with at most three other lines it does what it should.

`scripts/NAME.diff` is both scripts: the stock one has the lines that begin with a space or a minus, the other one those
with a space or a plus. Each runs as a process of its own, against a scripted model behind HTTP on loopback. The page
`docs/coming-from/autogen-bugs.md` is made of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from forked import run_python
from places import ROOT

from upcall.testing import Call, Calls, Fail, LoopbackServer, Raw, Reply, Request

Replies = Sequence[Reply] | Callable[[Request], Reply]

SCRIPTS = Path(__file__).with_name("scripts")
PAGE = ROOT / "docs" / "coming-from" / "autogen-bugs.md"
MAX_LINES, MAX_CHANGED = 15, 3
BEGIN, END = "<!-- bugs -->\n", "<!-- /bugs -->"


@dataclass(frozen=True)
class Bug:
    """One bug: where it was reported, what the model says, and the last line that each script prints.

    `runs` are the arguments of the processes that run one after another, in the same folder.
    """

    name: str
    issues: tuple[int, ...]
    title: str
    text: str
    replies: Callable[[], Replies]
    stock: str
    ours: str
    runs: tuple[tuple[str, ...], ...] = ((),)


def orchestrate(request: Request) -> Reply:
    """Say what an orchestrator says, and what its clerk says, who needs to know the day."""
    text = json.dumps(request.messages)
    if "You are the clerk" in request.system:
        return "Booked for Friday." if "Friday" in text else Call("transfer_to_user")
    if "is_request_satisfied" not in request.messages[-1]["content"]:
        return "The clerk books."
    fields = {"is_request_satisfied": "Booked" in text, "is_in_loop": False, "is_progress_being_made": True}
    fields |= {"next_speaker": "clerk", "instruction_or_question": "Book it."}  # type: ignore[dict-item]
    return json.dumps({name: {"reason": "so", "answer": each} for name, each in fields.items()})


def write_twice(tool: str) -> Callable[[Request], Reply]:
    """Return a model that leads, and has a writer write two poems at once; the writer writes on all it is given."""

    def reply(request: Request) -> Reply:
        if "You write" in request.system:
            return f"A poem on {' and '.join(each['content'] for each in request.messages if each['role'] == 'user')}."
        if request.tool_results:
            return " | ".join(request.tool_results.values())
        return Calls([Call(tool, {"task": each}) for each in ("rain", "snow")])

    return reply


def think(request: Request) -> Reply:
    """Reply as DeepSeek's thinking models do, which want their thoughts back with the result of a call."""
    called = [each for each in request.messages if each.get("tool_calls")]
    if called and not called[0].get("reasoning_content"):
        return Fail(400, "The `reasoning_content` in the thinking mode must be passed back to the API.")
    if called:
        return "It rains."
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    message = {"role": "assistant", "content": "", "reasoning_content": "I look.", "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "deepseek-reasoner"}
    return Raw(json.dumps({**body, "choices": [choice], "usage": usage}))


def examine(request: Request) -> Reply:
    """Lead a tester, who hands off to the user to learn the version."""
    text = json.dumps(request.messages)
    if "You test" in request.system:
        return "Passed on 3.12." if "3.12" in text else Calls([Call("transfer_to_user")], thought="Which Python?")
    return Call("tester", {"task": "Test"})


def book(request: Request) -> Reply:
    """Check, or book when the day is known."""
    if "You check" in request.system:
        return "Fine."
    return "Booked." if "Friday" in json.dumps(request.messages) else Call("transfer_to_user")


BUGS = [
    Bug(
        "graph_interrupted",
        (7043,),
        "A graph that was interrupted is said to be complete",
        "The model of `b` is not there in the first run. The state stored then says that no node is left to run.",
        lambda: ["From a.", Fail(503), "From b."],
        "['user']",
        "['user', 'b']",
        (("Write",), ("continue",)),
    ),
    Bug(
        "tool_approval",
        (4894, 5891),
        "A tool runs without anybody's approval",
        "`approve` takes the names of tools, with wildcards. The team stops with the question, and calls the tool when "
        "it is run again with a yes; under `Upcall` that may be next week.",
        lambda: [Call("send_mail", {"to": "Bob"})],
        "Sent to Bob",
        "clerk needs to know: Call send_mail?",
    ),
    Bug(
        "user_proxy_blocks",
        (5599, 4332),
        "A team that waits for its user is lost with its process",
        "Nobody is there to type, as on a server. The stock team fails; here the run is stored, and waits for an "
        "answer in whatever process.",
        lambda: ["A poem."],
        "RuntimeError: Failed to get user input: Failed to get user input: EOF when reading a line",
        "awaiting_clarification - A poem.",
    ),
    Bug(
        "magentic_handoff",
        (7036,),
        "What the user tells a Magentic-One team is a new task",
        "The orchestrator makes a new plan for `For Friday`, and has forgotten the table.",
        lambda: orchestrate,
        "We are working to address the following user request:",
        "Booked for Friday.",
    ),
    Bug(
        "nested_question",
        (),
        "An agent in a tool cannot ask",
        "The hand-off of the tester is the result of the tool, and nobody is asked.",
        lambda: examine,
        "tester: Transferred to user, adopting the role of user immediately.",
        "tester: Passed on 3.12.",
    ),
    Bug(
        "turn_after_handoff",
        (),
        "The answer goes to the next agent instead of the one that asked",
        "In a `RoundRobinGroupChat` a hand-off to the user ends the turn, and the critic checks what is not booked.",
        lambda: book,
        "['user', 'critic', 'clerk']",
        "['user', 'clerk', 'critic']",
    ),
    Bug(
        "word_in_answer",
        (),
        "A word of the user ends the team",
        "`TextMentionTermination` reads what the user says, too. What answers a question of the team does not end it.",
        lambda: [Call("transfer_to_user"), "Paid. TERMINATE"],
        "user said: By card. Do not TERMINATE before it is paid.",
        "clerk said: Paid. TERMINATE",
    ),
    Bug(
        "lost_agent_memory",
        (4572,),
        "An agent that keeps its memory in attributes forgets it",
        "`save_state` of a `BaseChatAgent` saves nothing, nor does that of `FileSurfer` and `MultimodalWebSurfer`.",
        list,
        "I saw two.",
        "I saw one, two.",
        (("one",), ("two",)),
    ),
    Bug(
        "run_after_error",
        (),
        "After an error a team is broken for good",
        "The model of the critic is not there the first time. The stock team then has the writer speak, and stops.",
        lambda: ["A poem.", Fail(503), "Fine."],
        "The group chat is stopped.",
        "['Fine.'] Maximum number of turns 2 reached.",
    ),
    Bug(
        "cancelled_tool",
        (7956,),
        "Cancelling a tool call hangs the agent",
        "`TimeoutError` is that of `wait_for`: without it the stock agent waits for ever.",
        lambda: [Call("build")],
        "ended with TimeoutError",
        "ended with CancelledError",
    ),
    Bug(
        "tool_stops_iteration",
        (),
        "A tool that raises StopIteration hangs the agent",
        "No event loop can hand a `StopIteration` on. Here the model reads that the tool failed.",
        lambda: [Call("find_long_word", {"text": "It rains."}), "There is none."],
        "TimeoutError",
        "There is none.",
    ),
    Bug(
        "swarm_without_end",
        (5831, 5611),
        "A swarm goes in circles when its model has nothing more to say",
        "Without a hand-off the same agent speaks again. Here an empty reply is an error, after one try to repair it.",
        lambda: lambda request: "Which flight?" if len(request.messages) < 3 else "",
        "['Which flight?', '', '', '', ''] Maximum number of messages 50 reached, current message count: 50",
        "upcall.errors.ModelReplyInvalid: Agent 'refunder': the model's final reply could not be used, also after one",
    ),
    Bug(
        "team_tool_twice",
        (6882,),
        "A team in a tool cannot be called twice in one reply",
        "The second call fails, or waits for nothing. Here the calls of one team run one after another.",
        lambda: write_twice("write"),
        "The team is already running, it cannot run again until it is stopped.",
        "A poem on rain. | A poem on snow.",
    ),
    Bug(
        "agent_tool_shared",
        (),
        "Two calls of an agent in a tool mix their tasks",
        "Both calls write into the same context. Here each has one of its own.",
        lambda: write_twice("writer"),
        "A poem on rain and snow.",
        "A poem on rain. | A poem on snow.",
    ),
    Bug(
        "structured_in_nested_team",
        (),
        "A structured reply ends the outer team with an error",
        "The outer team does not know the type of the inner team's message. Here it is a text with the JSON.",
        lambda: ['{"passed": true}'],
        "ValueError: Message type <class 'autogen_agentchat.messages.StructuredMessage[Verdict]'> is not registered.",
        '{"passed":true}',
    ),
    Bug(
        "dead_mcp_server",
        (6468,),
        "An MCP server that is not there ends the run",
        "Version 0.7.5 waits no longer for ever, but fails with a group of exceptions. Here the agent works without "
        "its tools, and the run has a warning.",
        lambda: ["Built without."],
        "mcp.shared.exceptions.McpError: Connection closed",
        "Built without. - ('MCP server python: it cannot be used (Connection closed); its tools are missing',)",
    ),
    Bug(
        "model_names",
        (6916, 7048),
        "A model is not known by its name",
        "AutoGen is archived, and knows the names of 2025. Here a name is read by family and version.",
        lambda: ["Hello."],
        "ValueError: model_info is required when model name is not a valid OpenAI model",
        "Hello.",
    ),
    Bug(
        "streamed_usage",
        (),
        "A streamed reply costs no tokens",
        "A server sends the usage of a stream when it is asked to, and the stock client does not ask.",
        lambda: ["Hello there, you."],
        "RequestUsage(prompt_tokens=0, completion_tokens=0)",
        "RequestUsage(prompt_tokens=22, completion_tokens=3)",
    ),
    Bug(
        "reasoning_content",
        (),
        "A thinking model gets no second turn",
        "DeepSeek wants the thoughts of a model back with the result of its call, and refuses the request otherwise.",
        lambda: think,
        "openai.BadRequestError: Error code: 400 - The `reasoning_content` in the thinking mode must be passed back to "
        "the API.",
        "It rains.",
    ),
]


def stock_lines(name: str) -> list[str]:
    """Return the lines of the stock script."""
    return [line[1:] for line in _diff(name) if line[0] in " -"]


def our_lines(name: str) -> list[str]:
    """Return the lines of the script with upcall."""
    return [line[1:] for line in _diff(name) if line[0] in " +"]


def _diff(name: str) -> list[str]:
    return (SCRIPTS / f"{name}.diff").read_text().splitlines()


def run_script(bug: Bug, lines: Sequence[str], server: LoopbackServer) -> list[str]:
    """Run a script as often as it is to run, and return the lines that it printed."""
    Path("script.py").write_text("\n".join(lines))
    environment = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-none", "PYTHONWARNINGS": "ignore"}
    done = [run_python("script.py", *arguments, **environment) for arguments in bug.runs]
    return "".join(each.stdout + each.stderr for each in done).splitlines()


every_bug = pytest.mark.parametrize("bug", [pytest.param(each, id=each.name) for each in BUGS])


@pytest.mark.slow
@every_bug
def test_stock_script_shows_the_bug(bug: Bug) -> None:
    server = LoopbackServer(bug.replies()).start()
    text = run_script(bug, stock_lines(bug.name), server)
    server.stop()  # What the model still had to say does not count: the bug was in the way.
    assert any(bug.stock in line for line in text), text
    assert not any(bug.ours in line for line in text)


@pytest.mark.slow
@every_bug
def test_script_with_upcall_has_no_bug(bug: Bug) -> None:
    with LoopbackServer(bug.replies()) as server:
        text = run_script(bug, our_lines(bug.name), server)
    assert any(bug.ours in line for line in text), text
    assert not any(bug.stock in line for line in text)


def test_bugs_are_at_least_fifteen_and_short() -> None:
    assert len(BUGS) >= 15
    assert sorted(each.name for each in BUGS) == sorted(file.stem for file in SCRIPTS.glob("*.diff"))
    for bug in BUGS:
        assert len([line for line in stock_lines(bug.name) if line]) <= MAX_LINES, bug.name
        for sign in "+-":
            assert sum(line[0] == sign for line in _diff(bug.name)) <= MAX_CHANGED, bug.name


def page_of(bug: Bug) -> str:
    """Return what the page says of one bug."""
    links = [f"[#{each}](https://github.com/microsoft/autogen/issues/{each})" for each in bug.issues]
    reported = f"Reported as {' and '.join(links)}. " if links else ""
    runs = f"Run {len(bug.runs)} times: {', then '.join(f'`{each}`' for (each,) in bug.runs)}. " if bug.runs[1:] else ""
    return (
        f"## {bug.title}\n\n{reported}{bug.text} {runs}".rstrip()
        + "\n\n```diff\n"
        + "\n".join(_diff(bug.name))
        + f"\n```\n\n```text\n- {bug.stock}\n+ {bug.ours}\n```\n"
    )


def test_page_is_made_of_the_scripts() -> None:
    """Set UPCALL_UPDATE_DOCS=1 to write it."""
    text = PAGE.read_text()
    wanted = text[: text.index(BEGIN) + len(BEGIN)] + "\n" + "\n".join(map(page_of, BUGS)) + "\n" + END + "\n"
    if os.environ.get("UPCALL_UPDATE_DOCS"):
        PAGE.write_text(wanted)
    assert PAGE.read_text() == wanted
