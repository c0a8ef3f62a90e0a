"""Questions in prose: the model is reminded once that only `ask_user` reaches the user; then its text is a call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from autogen_agentchat.messages import TextMessage, ToolCallRequestEvent, UserInputRequestedEvent
from autogen_core.models import ChatCompletionClient
from conversation import answers, resumed_as, send

from upcall.agents import PausableAgent
from upcall.agents.tool_loop.prose_questions import ends_with_question, prose_question_call
from upcall.runs.reports import Report
from upcall.testing import Call, Reply, ScriptedModelClient

WHICH = "I found two set-ups. Which framework should I use?"
LISTED = f"{WHICH}\n\n1. **Express** - small\n2. FastAPI"


def coder(client: ChatCompletionClient, **options: Any) -> PausableAgent:
    return PausableAgent("coder", client, **{"catch_prose": True} | options)


@pytest.mark.parametrize(
    "text",
    [WHICH, LISTED, "**Which one?**", "(Or all?)", "您想使用哪个？", "أيهما تريد؟", "Which of these?\n- A\n- B\n"],
)
def test_text_that_ends_with_a_question_mark_asks(text: str) -> None:
    assert ends_with_question(text)


@pytest.mark.parametrize("text", ["", "Done.", "Why? It was late.", "Done:\n- a.py\n- b.py", "```js\na ? b : c\n```"])
def test_any_other_text_does_not(text: str) -> None:
    assert not ends_with_question(text)


def test_line_of_a_files_length_is_read_in_time() -> None:
    """A search that began at each of its characters took minutes."""
    assert not ends_with_question("x " * 500_000)


@pytest.mark.parametrize(
    ("text", "question", "options"),
    [
        (LISTED, WHICH, ["Express - small", "FastAPI"]),
        (f"{WHICH}\n(a) Express\n(b) FastAPI", WHICH, ["Express", "FastAPI"]),
        (f"- a.py\n- b.py\n{WHICH}", f"- a.py\n- b.py\n{WHICH}", []),
        (f"{WHICH}\n- Express", f"{WHICH}\n- Express", []),
    ],
)
def test_list_below_the_question_is_its_options(text: str, question: str, options: list[str]) -> None:
    assert json.loads(prose_question_call(text).arguments) == {"question": question, "options": options}


async def test_text_that_asks_again_is_that_calls_question() -> None:
    """S1-24: the opt-in detector."""
    with ScriptedModelClient([LISTED, LISTED, "Written."]) as client:
        first = coder(client)
        rest = await send(first, "Build it")
        second = await resumed_as(first, coder(client))
        done = await send(second, answers(rest, "1"))
    (question,) = rest.questions
    assert (question.question, question.path, done.text) == (WHICH, ("coder",), "Written.")
    assert list(client.requests[-1].tool_results.values()) == ["1"]
    assert "only ask_user reaches the user" in client.requests[1].messages[-1]["content"]
    assert len(rest.events_of(UserInputRequestedEvent)) == len(rest.events_of(ToolCallRequestEvent)) == 1


@pytest.mark.parametrize("instead", ["I wrote it with Express.", Call("ask_user", {"question": "Which one?"})])
async def test_model_reminded_to_ask_continues_or_asks(instead: Reply) -> None:
    with ScriptedModelClient([WHICH, instead]) as client:
        rest = await send(coder(client), "Build it")
    assert len(rest.questions) == isinstance(instead, Call)


@pytest.mark.parametrize("options", [{"catch_prose": False}, {"ask_user": False}, {"max_questions": 0}])
async def test_text_that_asks_is_the_result_without_the_option(options: dict[str, Any]) -> None:
    """S1-24: only what the model calls is a question."""
    with ScriptedModelClient([WHICH]) as client:
        rest = await send(coder(client, **options), "Build it")
    assert (type(rest.message), rest.text, rest.questions) == (TextMessage, WHICH, [])


async def test_at_the_cap_the_text_stays_the_result() -> None:
    with ScriptedModelClient([WHICH, WHICH, "Which port?"]) as client:
        made = coder(client, max_questions=1)
        rest = await send(made, answers(await send(made, "Build it"), "Express"))
    assert (rest.text, rest.questions) == ("Which port?", [])


async def test_report_may_be_asked_for_in_prose_too() -> None:
    with ScriptedModelClient([WHICH, WHICH, "Written."]) as client:
        made = coder(client, output_type=Report)
        assert (await send(made, answers(await send(made, "Build it"), "Express"))).text == "Written."


async def test_question_in_prose_comes_up_from_below() -> None:
    script: dict[str, list[Reply]] = {
        "I am lead.": [Call("coder", {"task": "Code"}), "Done."],
        "I am coder.": [WHICH, WHICH, "Coded."],
    }
    with ScriptedModelClient(script) as client:
        lead = PausableAgent(
            "lead", client, system_message="I am lead.", agents=[coder(client, system_message="I am coder.")]
        )
        rest = await send(lead, "Build it")
        await send(lead, answers(rest, "Express"))
    assert [each.path for each in rest.questions] == [("lead", "coder")]
    assert list(client.requests[-1].tool_results.values()) == ["Coded."]
