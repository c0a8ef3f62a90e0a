"""What was written is in spans by choice only, as OpenTelemetry's GenAI conventions name it; secrets never are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from autogen_core import FunctionCall, Image
from autogen_core.models import (
    AssistantMessage,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from cryptography.fernet import Fernet
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from PIL import Image as Picture
from traced import ASK, app_of, attributes_of, spans, team_of
from worlds import solo

from upcall import Settings, Upcall, ask_secret
from upcall.autogen.message_parts import show_reply, show_request
from upcall.questions.secrets import KEY
from upcall.telemetry.spans import CAPTURE
from upcall.testing import Call, ScriptedModelClient

__all__ = ["spans"]

PASSWORD = "correct horse battery"
USAGE = RequestUsage(prompt_tokens=1, completion_tokens=1)


async def run_team(spans: InMemorySpanExporter, **settings: Any) -> str:
    """Return all that the spans of a run with a question and a tool call contain."""
    app = app_of(team_of({"lead": [ASK, Call("note", {"text": "blue"}), "All noted."]}), **settings)
    run = await app.start("Build a boat.")
    await app.answer(run.id, "Express")
    return json.dumps([span.to_json() for span in spans.get_finished_spans()])


@pytest.mark.parametrize("value", ["true", "True", "SPAN_ONLY", "span_and_event"])
async def test_content_is_in_spans_where_the_environment_asks(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(CAPTURE, value)
    shown = await run_team(spans)
    assert all(text in shown for text in ("Build a boat.", "Which framework?", "Express", "noted blue", "All noted."))


@pytest.mark.parametrize("value", ["", "false", "NO_CONTENT", "EVENT_ONLY", "nonsense"])
async def test_content_is_in_no_span_otherwise(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(CAPTURE, value)
    shown = await run_team(spans)
    assert not [text for text in ("boat", "framework", "Express", "blue", "noted", "You are") if text in shown]


@pytest.mark.parametrize("setting", [True, False])
async def test_content_setting_overrules_the_environment(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, setting: bool
) -> None:
    monkeypatch.setenv(CAPTURE, str(not setting))
    assert ("boat" in await run_team(spans, telemetry={"trace_content": setting})) is setting


async def test_content_of_model_calls_follows_the_conventions(spans: InMemorySpanExporter) -> None:
    await app_of(team_of({"lead": ["Done."]}), telemetry={"trace_content": True}).start("Build a boat.")
    chat = attributes_of(spans, "chat")
    assert json.loads(chat["gen_ai.system_instructions"])[0]["content"].startswith("You are the lead.")
    (asked,) = json.loads(chat["gen_ai.input.messages"])
    assert asked == {"role": "user", "parts": [{"type": "text", "content": "Build a boat."}]}
    (text,) = json.loads(chat["gen_ai.output.messages"])
    assert text == {"role": "assistant", "parts": [{"type": "text", "content": "Done."}], "finish_reason": "stop"}


async def test_content_of_tool_calls_follows_the_conventions(spans: InMemorySpanExporter) -> None:
    await app_of(team_of({"lead": [Call("note", {"text": "blue"}), "Done."]}), telemetry={"trace_content": True}).start(
        "Note it."
    )
    called = attributes_of(spans, "execute_tool note")
    assert json.loads(called["gen_ai.tool.call.arguments"]) == {"text": "blue"}
    assert called["gen_ai.tool.call.result"] == "noted blue"


def test_content_has_a_part_for_each_kind_of_message() -> None:
    call = FunctionCall(id="1", name="note", arguments='{"text": "a"}')
    picture = Image(Picture.new("RGB", (1, 1)))
    shown = show_request(
        [
            SystemMessage(content="Be brief."),
            UserMessage(content=["Look:", picture], source="user"),
            AssistantMessage(content=[call], thought="I note it.", source="lead"),
            FunctionExecutionResultMessage(content=[FunctionExecutionResult(content="ok", name="note", call_id="1")]),
            SystemMessage(content="Be briefer."),
        ]
    )
    messages = json.loads(str(shown["gen_ai.input.messages"]))
    assert [(each["role"], [part["type"] for part in each["parts"]]) for each in messages] == [
        ("user", ["text", "text"]),
        ("assistant", ["reasoning", "tool_call"]),
        ("tool", ["tool_call_response"]),
        ("system", ["text"]),
    ]
    assert messages[0]["parts"][1]["content"] == "[image]"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [('{"text": "a"}', {"text": "a"}), ('{"text": ', '{"text": '), ("[1]", [1]), ("", "")],
    ids=["object", "cut off", "list", "empty"],
)
def test_content_keeps_arguments_a_model_broke(arguments: str, shown: Any) -> None:
    call = FunctionCall(id="1", name="note", arguments=arguments)
    reply = CreateResult(content=[call], finish_reason="function_calls", usage=USAGE, cached=False)
    (text,) = json.loads(str(show_reply(reply)["gen_ai.output.messages"]))
    assert (text["parts"][0]["arguments"], text["finish_reason"]) == (shown, "tool_call")


def deploy(host: str) -> str:
    """Deploy, and say more of the password than one should."""
    return f"{host} with {ask_secret('Which password?')}"


def fail(host: str) -> str:
    """Fail, and say more of the password than one should."""
    raise ConnectionError(f"{host} refused {ask_secret('Which password?')}")


@pytest.mark.parametrize("tool", [deploy, fail])
async def test_content_never_has_a_secret(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, tool: Any
) -> None:
    monkeypatch.setenv(KEY, Fernet.generate_key().decode())
    model = ScriptedModelClient([Call(tool.__name__, {"host": "example.org"}), "Done."])
    app = Upcall(team=solo(model, tools=[tool]), store="runs.db", settings=Settings(telemetry={"trace_content": True}))
    run = await app.start("Deploy it.")
    await app.answer(run.id, PASSWORD)
    shown = json.dumps([span.to_json() for span in spans.get_finished_spans()])
    assert PASSWORD not in shown
    assert attributes_of(spans, "wait_for_human")["output.value"] == "(secret)"


async def test_content_hides_a_declined_secret_too(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    from upcall.questions.answer import Answer, Outcome

    monkeypatch.setenv(KEY, Fernet.generate_key().decode())
    model = ScriptedModelClient([Call("deploy", {"host": "example.org"}), "Done."])
    app = Upcall(
        team=solo(model, tools=[deploy]), store="runs.db", settings=Settings(telemetry={"trace_content": True})
    )
    run = await app.start("Deploy it.")
    await app.answer(run.id, Answer(question_id=run.questions[0].id, outcome=Outcome.DECLINED, text=PASSWORD))
    wait = attributes_of(spans, "wait_for_human")
    assert (wait["output.value"], wait["upcall.answer.outcome"]) == ("(secret)", "declined")
