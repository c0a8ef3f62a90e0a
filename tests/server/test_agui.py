"""The service as an AG-UI endpoint: by that protocol's own client package, and by hand."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import httpx
import pytest
from ag_ui.core import SubagentFinishedEvent
from agui_client import NoClient, connected, install
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import CreateResult
from PIL import Image
from scenario import TASK, WRITE, model, script
from services import ASK, OPERATOR, one_agent, serve_apart, serving

from upcall import PausableAgent
from upcall.questions.question import Question
from upcall.server.agui_messages import Conversation
from upcall.server.answer_schema import describe_answer
from upcall.server.background import StreamedToken
from upcall.server.events import RunFollower, Stored
from upcall.server.service import Caller
from upcall.testing import Call, Calls, Hang, ScriptedModelClient
from upcall.testing.server import LoopbackServer

Event = Mapping[str, Any]
TWO = Calls([Call("ask_user", {"question": each}) for each in ("Which name?", "Which colour?")])


def find(events: Sequence[Event], kind: str) -> list[Event]:
    return [each for each in events if each["type"] == kind]


def resume(interrupts: Sequence[Event], *payloads: Any) -> list[dict[str, Any]]:
    """Return the entries that answer these; None stands for one that is abandoned."""
    named = zip(interrupts, payloads, strict=True)
    return [
        {"interruptId": each["id"], "status": "cancelled"}
        if payload is None
        else {"interruptId": each["id"], "status": "resolved", "payload": payload}
        for each, payload in named
    ]


async def post(me: httpx.AsyncClient, say: Any = None, run: str = "1", **more: Any) -> list[Event]:
    """Make one run by hand; its events."""
    messages = [] if say is None else [{"id": "m", "role": "user", "content": say}]
    body = {"threadId": "thread", "runId": run, "messages": messages, **more}
    response = await me.post("/agui", json=body)
    assert response.status_code == 200, response.text
    return [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]


def picture(size: int) -> dict[str, Any]:
    """Return a part of a message with an image, so wide and high."""
    drawn = io.BytesIO()
    Image.new("1", (size, size)).save(drawn, "PNG")
    value = base64.b64encode(drawn.getvalue()).decode()
    return {"type": "image", "source": {"type": "data", "value": value, "mimeType": "image/png"}}


def open_questions(events: Sequence[Event]) -> list[Event]:
    return list(events[-1]["outcome"]["interrupts"])


@pytest.fixture(scope="session")
def node() -> None:
    try:
        install()
    except NoClient as reason:
        pytest.skip(f"no client of AG-UI: {reason}")


# -- by the protocol's own client -------------------------------------------------------------------------------------


@pytest.mark.needs("workspace")
@pytest.mark.slow
async def test_agui_nested_question_rises_and_its_answer_returns(node: None) -> None:
    async with (
        serving(models={"model": "demo"}, team={"stream": True}) as site,
        connected(f"{site.url}/agui", OPERATOR) as client,
    ):
        asked = await client.run(say=TASK)
        assert asked["error"] is None
        (question,) = asked["interrupts"]
        assert question["message"].startswith("coder (for lead) needs to know: Which framework?")
        assert question["toolCallId"] in [each["toolCallId"] for each in find(asked["events"], "TOOL_CALL_START")]
        assert [each["name"] for each in find(asked["events"], "SUBAGENT_STARTED")] == ["coder"]
        assert find(asked["events"], "SUBAGENT_FINISHED")[0]["outcome"]["interruptIds"] == [question["id"]]
        assert asked["state"]["status"] == "awaiting_clarification"
        done = await client.run(resume=resume([question], "Express"))
        assert (done["error"], done["interrupts"], done["state"]["status"]) == (None, [], "completed")
        assert "Express" in done["events"][-1]["result"]
        assert [each["content"] for each in done["messages"] if each["role"] == "user"] == [TASK]
        written = {each["messageId"]: "" for each in find(done["events"], "TEXT_MESSAGE_START")}
        for each in find(done["events"], "TEXT_MESSAGE_CONTENT"):
            written[each["messageId"]] += each["delta"]
        fields = {each["id"]: each.get("content") for each in done["messages"]}
        assert len(written) == 2
        assert all(fields[name].startswith(text) for name, text in written.items())
        results = {each["toolCallId"] for each in done["messages"] if each["role"] == "tool"}
        called = [call["id"] for each in done["messages"] for call in each.get("toolCalls", ())]
        assert (len(called), results) == (len(set(called)), set(called))


@pytest.mark.slow
async def test_agui_text_streams_before_the_reply_is_complete() -> None:
    read = asyncio.Event()

    class Waiting(ScriptedModelClient):
        async def create_stream(self, *given: Any, **options: Any) -> AsyncGenerator[str | CreateResult, None]:
            async for piece in super().create_stream(*given, **options):
                yield piece
                await read.wait()

    def make_team() -> Team:
        return RoundRobinGroupChat([PausableAgent("teller", Waiting(["Once upon a time."]), stream=True)], max_turns=1)

    body = {"threadId": "t", "runId": "1", "messages": [{"id": "m", "role": "user", "content": "Tell"}]}
    emitted = list[str]()
    async with serving(make_team) as site, await site.caller() as me, me.stream("POST", "/agui", json=body) as response:
        async for line in response.aiter_lines():
            if '"TEXT_MESSAGE_CONTENT"' in line and '"messageId":"m"' not in line:
                emitted.append(json.loads(line[6:])["delta"])
                read.set()
    assert (emitted[0], "".join(emitted)) == ("Once", "Once upon a time.")


@pytest.mark.slow
async def test_texts_that_follow_each_other_quickly_are_distinguished() -> None:
    emitted = dict[str, str]()
    read = asyncio.Event()

    class Waiting(ScriptedModelClient):
        async def create_stream(self, *given: Any, **options: Any) -> AsyncGenerator[str | CreateResult, None]:
            async for piece in super().create_stream(*given, **options):
                yield piece
                if piece == "one":
                    await read.wait()

    def make_team() -> Team:
        teller = PausableAgent("teller", Waiting(["Once upon", "one time"]), stream=True)
        return RoundRobinGroupChat([teller], max_turns=2)

    body = {"threadId": "t", "runId": "1", "messages": [{"id": "m", "role": "user", "content": "Tell"}]}
    async with serving(make_team) as site, await site.caller() as me, me.stream("POST", "/agui", json=body) as response:
        async for line in response.aiter_lines():
            if '"TEXT_MESSAGE_CONTENT"' in line:
                event = json.loads(line[6:])
                emitted[event["messageId"]] = emitted.get(event["messageId"], "") + event["delta"]
                if event["delta"].endswith("one"):
                    read.set()
    assert sorted(emitted.values()) == ["Once upon", "one time"]


@pytest.mark.slow
async def test_agui_agent_called_twice_at_once_writes_two_texts() -> None:
    begun, read = asyncio.Event(), asyncio.Event()
    emitted = dict[str, str]()

    class Waiting(ScriptedModelClient):
        async def create_stream(self, *given: Any, **options: Any) -> AsyncGenerator[str | CreateResult, None]:
            async for piece in super().create_stream(*given, **options):
                if piece == "second":
                    await begun.wait()
                yield piece
                if piece == "first":
                    begun.set()
                    await read.wait()

    model = Waiting(
        {
            "You lead": [Calls([Call("teller", {"task": f"Tell {each}"}) for each in ("one", "two")]), "Told."],
            "You tell": ["first of two", "second of two"],
        }
    )

    def make_team() -> Team:
        teller = PausableAgent("teller", model, system_message="You tell.", description="Tells.", stream=True)
        lead = PausableAgent("lead", model, system_message="You lead.", agents=[teller])
        return RoundRobinGroupChat([lead], max_turns=1)

    body = {"threadId": "t", "runId": "1", "messages": [{"id": "m", "role": "user", "content": "Tell"}]}
    async with serving(make_team) as site, await site.caller() as me, me.stream("POST", "/agui", json=body) as response:
        async for line in response.aiter_lines():
            event = json.loads(line[6:]) if line.startswith("data: ") else {"type": ""}
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                emitted[event["messageId"]] = emitted.get(event["messageId"], "") + event["delta"]
            if event["type"] == "TEXT_MESSAGE_END":  # The second one is whole, and the first one half written.
                read.set()
            if event["type"] == "MESSAGES_SNAPSHOT":
                fields = {each["id"]: each.get("content") for each in event["messages"]}
    assert {"first of two", "second of two"} < {*emitted.values()}
    assert emitted.items() <= fields.items()


@pytest.mark.slow
async def test_several_are_answered_together_and_the_next_task_follows(node: None) -> None:
    async with (
        serving(one_agent(TWO, "Done.", "And more.")) as site,
        connected(f"{site.url}/agui", OPERATOR) as client,
    ):
        asked = await client.run(say="Name it")
        refused = await client.run(resume=resume(asked["interrupts"][:1], "upcall"))
        assert "not addressed by resume" in refused["error"]  # The client does not let it through.
        done = await client.run(resume=resume(asked["interrupts"], "upcall", None))
        assert [each["content"] for each in find(done["events"], "TOOL_CALL_RESULT")] == ["upcall", "(declined)"]
        more = await client.run(say="More")
        assert (more["state"]["follows"], more["state"]["result"]) == (asked["state"]["run_id"], "And more.")
        texts = [
            each["content"] for each in more["messages"] if each["role"] in ("user", "assistant") and "content" in each
        ]
        assert texts == ["Name it", "Done.", "More", "And more."]


@pytest.mark.needs("workspace")
@pytest.mark.slow
async def test_agui_service_killed_continues_when_the_input_returns() -> None:
    replies = script(coder=[ASK, WRITE, Hang(), '{"summary": "Written."}'])
    with LoopbackServer(replies) as server:
        with serve_apart(*model(server)) as process:
            async with process.caller() as me:
                asked = await post(me, TASK)
                more = {"state": {}, "resume": resume(open_questions(asked), "Express")}
                going = asyncio.create_task(post(me, run="2", **more))
                path = f"/api/runs/{open_questions(asked)[0]['id'].partition(':')[0]}/transcript"
                while "result" not in [each["kind"] for each in (await me.get(path)).json()]:
                    await asyncio.sleep(0.1)
                process.stop(signal.SIGKILL)
                await asyncio.gather(going, return_exceptions=True)
        with serve_apart(*model(server)) as process:
            async with process.caller() as me:
                done = await post(me, run="2", **more)
    assert done[-1]["outcome"] == {"type": "success"}
    calls = [
        call["function"]["name"]
        for each in find(done, "MESSAGES_SNAPSHOT")[-1]["messages"]
        for call in each.get("toolCalls", ())
    ]
    assert calls.count("write_file") == 1


# -- by hand ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_same_request_begins_one_run() -> None:
    async with serving(one_agent(ASK, ASK)) as site, await site.caller("alice") as alice:
        first, again = [await post(alice, "Build it") for _ in range(2)]
        assert open_questions(first) == open_questions(again)
        assert len((await alice.get("/api/runs")).json()["runs"]) == 1
        async with await site.caller("bob") as bob:
            assert open_questions(await post(bob, "Build it"))[0]["id"] != open_questions(first)[0]["id"]
            refused = await post(bob, run="2", resume=resume(open_questions(first), "Express"))
            assert (refused[-1]["code"], len(refused)) == ("unknown-run", 2)


@pytest.mark.slow
async def test_agui_client_without_memory_sees_the_whole_run() -> None:
    async with serving(one_agent(ASK, "Built.")) as site, await site.caller("alice") as alice:
        asked = await post(alice, "Build it")
        state = find(asked, "STATE_SNAPSHOT")[-1]["snapshot"]
        seen = await post(alice, run="2", state={"run_id": state["run_id"]})
        assert open_questions(seen) == open_questions(asked)
        await post(alice, run="3", resume=resume(open_questions(seen), "Express"))
        done = await post(alice, run="4", state={"run_id": state["run_id"]})
        assert [each["role"] for each in find(done, "MESSAGES_SNAPSHOT")[0]["messages"]] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]


@pytest.mark.slow
async def test_approval_is_the_interrupt_of_its_tool_call() -> None:
    sent: list[dict[str, str]] = []

    def send(to: str, text: str) -> str:
        """Send a mail."""
        sent.append({"to": to, "text": text})
        return "Sent."

    mail = Call("send", {"to": "bob", "text": "Hi"})
    async with serving(one_agent(mail, "Done.", tools=[send], approve=["send"])) as site, await site.caller() as me:
        asked = await post(me, "Greet Bob")
        (question,) = open_questions(asked)
        (call,) = find(asked, "TOOL_CALL_START")
        assert (question["reason"], question["toolCallId"]) == ("tool_call", call["toolCallId"])
        for wrong in ("Allow once", {"approved": "yes"}, {"approved": True, "editedArgs": {"to": "eve"}}):
            refused = await post(me, run="2", resume=resume([question], wrong))
            assert (refused[-1]["type"], refused[-1]["code"]) == ("RUN_ERROR", "answer-refused")
        edited = {"approved": True, "editedArgs": {"to": "carol", "text": "Hi"}}
        done = await post(me, run="3", resume=resume([question], edited))
        assert [each["toolCallId"] for each in find(done, "TOOL_CALL_RESULT")] == [call["toolCallId"]]
        assert sent == [{"to": "carol", "text": "Hi"}]


@pytest.mark.slow
async def test_call_that_is_not_approved_is_not_made() -> None:
    def send(to: str) -> str:
        """Send a mail."""
        raise AssertionError(to)

    agent = one_agent(Call("send", {"to": "bob"}), "Not sent.", tools=[send], approve=["send"])
    async with serving(agent) as site, await site.caller() as me:
        asked = await post(me, "Greet Bob")
        done = await post(me, run="2", resume=resume(open_questions(asked), {"approved": False}))
        assert "The user said no" in find(done, "TOOL_CALL_RESULT")[0]["content"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({}, "caller-error"),
        ({"say": "Something else", "state": {"run_id": "RUN"}}, "caller-error"),
        ({"say": "Look", "state": {"run_id": "nothing"}}, "unknown-run"),
        ({"say": [{"type": "audio", "source": {"type": "url", "value": "http://x.example"}}]}, "caller-error"),
        (
            {"say": [{"type": "image", "source": {"type": "data", "value": "!", "mimeType": "image/png"}}]},
            "caller-error",
        ),
        ({"say": [picture(6000)] * 4}, "caller-error"),
        ({"say": [picture(2)] * 21}, "caller-error"),
        ({"say": [{**picture(2), "type": "document"}] * 21}, "caller-error"),
        ({"say": "x", "forwardedProps": {"upcall": {"user": "root"}}}, "caller-error"),
        ({"say": "x", "forwardedProps": {"upcall": 3}}, "caller-error"),
        ({"say": "x", "forwardedProps": {"upcall": {"follows": "RUN"}}}, "caller-error"),
        ({"resume": [{"interruptId": "nothing:at-all", "status": "resolved", "payload": "x"}]}, "unknown-run"),
        ({"resume": [{"interruptId": "RUN:other", "status": "resolved", "payload": "x"}]}, "unknown-question"),
        ({"resume": [{"interruptId": "RUN:QUESTION", "status": "resolved", "payload": "x"}] * 2}, "unknown-question"),
        ({"resume": [{"interruptId": "RUN:QUESTION", "status": "resolved", "payload": {"a": 1}}]}, "answer-refused"),
        ({"resume": [{"interruptId": "RUN:QUESTION", "status": "resolved"}]}, "answer-refused"),
        ({"resume": [{"interruptId": "RUN:QUESTION", "status": "resolved", "payload": " "}]}, "answer-refused"),
    ],
)
async def test_what_is_wrong_ends_the_run_with_an_error(more: dict[str, Any], code: str) -> None:
    async with serving(one_agent(ASK)) as site, await site.caller() as me:
        run_id, _, question = open_questions(await post(me, "Build it"))[0]["id"].partition(":")
        given = json.loads(json.dumps(more).replace("RUN", run_id).replace("QUESTION", question))
        events = await post(me, run="2", **given)
        assert (events[0]["type"], events[-1]["type"], events[-1]["code"]) == ("RUN_STARTED", "RUN_ERROR", code)
        assert "\n" not in events[-1]["message"]


NO_INPUT = {
    "half a character": ('{"id": "m", "role": "user", "content": "x\\ud800"}', 400),
    "the same beside": ('{"id": "m", "role": "user", "content": "x", "more": "\\ud800"}', 400),
    "deep": (f'{{"id": "m", "role": "user", "content": "x", "more": {"[" * 900 + "]" * 900}}}', 400),
    "deeper": (f'{{"id": "m", "role": "user", "content": "x", "more": {"[" * 50_000 + "]" * 50_000}}}', 400),
    "role": ('{"id": "m", "role": "somebody", "content": "x"}', 422),
    "no JSON": ("{", 422),
}


@pytest.mark.slow
async def test_what_is_no_input_is_refused_before_a_stream() -> None:
    async with serving(one_agent()) as site, await site.caller() as me:
        for name, (message, status) in NO_INPUT.items():
            body = f'{{"threadId": "t", "runId": "r", "messages": [{message}]}}'
            response = await me.post("/agui", content=body, headers={"Content-Type": "application/json"})
            assert response.status_code == status, name
            assert response.headers["Content-Type"] == "application/problem+json", name
            assert "\n" not in response.json()["detail"], name


@pytest.mark.slow
async def test_agui_run_ends_as_its_front_end_expects() -> None:
    async with serving(one_agent(ASK)) as site, await site.caller() as me:
        asked = await post(me, "Build it")
        run_id = find(asked, "STATE_SNAPSHOT")[-1]["snapshot"]["run_id"]
        await me.post(f"/api/runs/{run_id}/cancel")
        assert (await post(me, state={"run_id": run_id}))[-1]["outcome"] == {"type": "cancelled"}
        failed = await post(me, "Fail", run="2")  # The script is at its end.
        assert (failed[-1]["type"], failed[-1]["code"]) == ("RUN_ERROR", "failed")


@pytest.mark.needs("workspace")
@pytest.mark.slow
async def test_agui_call_without_effect_ends_before_its_agent() -> None:
    """The protocol's client takes no news of a nested agent that has finished, and none that is left at work."""
    model = ScriptedModelClient({"You lead": [Call("coder", {"task": "Code"})], "You code": [ASK]})

    def make_team() -> Team:
        coder = PausableAgent("coder", model, system_message="You code.", description="Codes.")
        return RoundRobinGroupChat([PausableAgent("lead", model, system_message="You lead.", agents=[coder])])

    async with serving(make_team) as site, await site.caller() as me:
        state = {"run_id": open_questions(await post(me, "Build it"))[0]["id"].partition(":")[0]}
        await me.post(f"/api/runs/{state['run_id']}/cancel")
        emitted = [each["type"] for each in await post(me, run="2", state=state)]
    assert emitted.count("TOOL_CALL_RESULT") == 2
    agents = [each for each in emitted if each.startswith("SUBAGENT")]
    assert agents == ["SUBAGENT_STARTED", "SUBAGENT_FINISHED"]


def test_agui_agent_waits_for_none_with_a_similar_name() -> None:
    conversation = Conversation("run", [])
    for name in ("code", "coder"):
        assert [*conversation.write(StreamedToken(("lead", name), "Hm.", "0-1"))]
    asked = Question(question="Which?", path=("lead", "coder"))
    ended = [each for each in conversation.close([asked]) if isinstance(each, SubagentFinishedEvent)]
    assert {each.subagent_run_id: each.outcome is not None for each in ended} == {
        "run:lead/code": False,
        "run:lead/coder": True,
    }


@pytest.mark.slow
async def test_agui_repeated_input_gets_the_state_of_the_run() -> None:
    async with serving(one_agent(ASK, "Built.")) as site, await site.caller() as me:
        question = open_questions(await post(me, "Build it"))
        again = find(await post(me, "Build it"), "STATE_SNAPSHOT")
        assert [each["snapshot"]["status"] for each in again] == ["awaiting_clarification"]
        answers = [await post(me, run="2", resume=resume(question, "Express")) for _ in range(2)]
        assert [find(each, "STATE_SNAPSHOT")[-1]["snapshot"]["status"] for each in answers] == ["completed"] * 2


@pytest.mark.slow
async def test_agui_run_resumed_by_somebody_else_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One reader answers the first of two questions, another one the second while the first looks what is open."""
    read, read_new = asyncio.Event(), RunFollower.read_new

    async def wait() -> str:
        """Wait until the reader has seen that the run is at work."""
        await read.wait()
        return "waited"

    async with serving(one_agent(TWO, Call("wait"), "Done.", tools=[wait])) as site, await site.caller() as me:
        name, _ = open_questions(await post(me, "Name it"))

        async def answer_and_read(reader: RunFollower) -> list[Stored]:
            run = reader._run
            if run is not None and run.waiting and len(run.questions) == 1:
                await site.service.answer(Caller(None), run.id, {run.questions[0].id: "red"})
                found = await read_new(reader)
                read.set()
                return found
            return await read_new(reader)

        monkeypatch.setattr(RunFollower, "read_new", answer_and_read)
        done = await post(me, run="2", resume=resume([name], "upcall"))
    assert (done[-1]["type"], done[-1].get("result")) == ("RUN_FINISHED", "Done.")


@pytest.mark.slow
async def test_images_and_documents_come_along() -> None:
    source = {"type": "data", "value": base64.b64encode(b"text").decode(), "mimeType": "text/plain"}
    parts = [{"type": "text", "text": "Hello!"}, picture(2), {"type": "document", "source": source}]
    async with serving(models={"model": "demo"}) as site, await site.caller() as me:
        events = await post(me, parts)
        run_id = find(events, "STATE_SNAPSHOT")[-1]["snapshot"]["run_id"]
        assert [each.name for each in (site.service.store.uploads.folder / run_id).iterdir()] == ["document-1.txt"]


@pytest.mark.slow
async def test_agui_assignee_answers_the_question_and_sees_nothing_else() -> None:
    async with serving(one_agent(ASK, "Secret result."), questions={"assign": [{"to": "bob"}]}) as site:
        alice, bob = await site.caller("alice"), await site.caller("bob")
        async with alice, bob:
            going = asyncio.create_task(post(alice, "Secret plans"))  # It continues as soon as bob has answered.
            while not (asked := (await bob.get("/api/questions")).json()["questions"]):
                await asyncio.sleep(0.05)
            name = f"{asked[0]['run_id']}:{asked[0]['id']}"
            seen = await post(bob, resume=[{"interruptId": name, "status": "resolved", "payload": "Express"}])
            assert "Secret" not in json.dumps(seen)
            assert (await going)[-1]["result"] == "Secret result."


@pytest.mark.parametrize(
    ("fields", "schema"),
    [
        ({}, {"type": "string", "minLength": 1}),
        ({"secret": True}, {"type": "string", "minLength": 1, "format": "password", "writeOnly": True}),
        ({"options": ("a", "b"), "allow_free_text": False}, {"type": "string", "enum": ["a", "b"]}),
        (
            {"options": ("a",), "allow_free_text": False, "multi_select": True},
            {"type": "array", "items": {"type": "string", "enum": ["a"]}, "minItems": 1},
        ),
    ],
)
def test_question_describes_its_answer(fields: dict[str, Any], schema: dict[str, Any]) -> None:
    assert describe_answer(Question(question="Which?", **fields)) == schema
