"""`upcall.ask`: a tool asks in the middle of its work, and continues with the answer in another process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from cryptography.fernet import Fernet
from pydantic import BaseModel
from worlds import pausing

from upcall import Answer, Outcome, PausableAgent, RunStatus, Settings, Upcall, ask, ask_secret
from upcall.agents.toolset import Tool
from upcall.errors import AlreadyAnswered, UserInputRequired
from upcall.policy import resolver
from upcall.questions.question import Option, Question
from upcall.questions.tool_context import name_question, tool_context
from upcall.testing import Call, ScriptedModelClient

RELEASE = Call("release", {"version": "1.2"})


def app_of(model: ScriptedModelClient, *tools: Tool, **settings: Any) -> Upcall:
    def make() -> Team:
        return pausing(PausableAgent("solo", model, tools=tools))

    return Upcall(store="runs.db", team=make, settings=Settings.read(**settings))


def results(model: ScriptedModelClient) -> list[str]:
    return list(model.requests[-1].tool_results.values())


def release_tool(done: list[str]) -> Callable[[str], str]:
    def release(version: str) -> str:
        """Release it."""
        done.append("begun")
        where = ask("Where to?", ["Staging", "Production"], context=f"Version {version}.")
        if where.outcome is not Outcome.ANSWERED:
            return f"Not released: {where.outcome.value}."
        when = ask("When?")
        done.append(f"{where.text}/{when.text}")
        return f"Released to {where.text}, {when.text}."

    return release


async def test_tool_asks_twice_and_continues_with_all_answers() -> None:
    done: list[str] = []
    with ScriptedModelClient([RELEASE, "Done."]) as model:
        first = await app_of(model, release_tool(done)).start("Release it")
        (question,) = first.questions
        assert (question.question, question.context, question.tool) == ("Where to?", "Version 1.2.", "release")
        second = await app_of(model, release_tool(done)).answer(first.id, "2")
        assert [each.question for each in second.questions] == ["When?"]
        last = await app_of(model, release_tool(done)).answer(first.id, "tonight")
    assert last.result == "Done."
    assert done == ["begun", "begun", "begun", "Production/tonight"]
    assert results(model) == ["Released to Production, tonight."]


async def test_tool_learns_that_its_question_was_declined() -> None:
    with ScriptedModelClient([RELEASE, "Done."]) as model:
        asked = await app_of(model, release_tool([])).start("Release it")
        declined = Answer(question_id=asked.questions[0].id, outcome=Outcome.DECLINED)
        await app_of(model, release_tool([])).answer(asked.id, declined)
    assert results(model) == ["Not released: declined."]


async def test_answer_in_a_text_is_its_words() -> None:
    def bucket() -> str:
        """Name the bucket."""
        return f"logs-{ask('Which region?')}"

    with ScriptedModelClient([Call("bucket"), "Done."]) as model:
        asked = await app_of(model, bucket).start("Do it")
        await app_of(model, bucket).answer(asked.id, "eu")
    assert results(model) == ["logs-eu"]


def region() -> Answer:
    """Ask for the region."""
    return ask("Which region?")


async def region_later() -> Answer:
    """Ask for the region."""
    return ask("Which region?")


@pytest.mark.parametrize("tool", [region, region_later])
async def test_answer_that_a_tool_returns_is_its_words(tool: Callable[[], Answer]) -> None:
    with ScriptedModelClient([Call(tool.__name__), "Done."]) as model:
        asked = await app_of(model, tool).start("Do it")
        await app_of(model, tool).answer(asked.id, "eu")
    assert results(model) == ["eu"]


async def test_awaited_answer_is_the_answer() -> None:
    async def release() -> str:
        """Release it."""
        where = await ask("Where to?", ["Staging", "Production"])
        return f"Released to {where.text}."

    with ScriptedModelClient([Call("release"), "Done."]) as model:
        asked = await app_of(model, release).start("Release it")
        await app_of(model, release).answer(asked.id, "2")
    assert results(model) == ["Released to Production."]


class Plan(BaseModel):
    where: str


async def await_fields() -> str:
    """Plan it."""
    return str(await ask("What is the plan?", schema=Plan))  # type: ignore[misc]


async def await_secret() -> str:
    """Log in."""
    return await ask_secret("Which password?")  # type: ignore[no-any-return, misc]


@pytest.mark.parametrize("tool", [await_fields, await_secret])
@pytest.mark.parametrize("make", [PausableAgent, AssistantAgent])
async def test_awaited_value_fails_before_anybody_is_asked(
    tool: Callable[[], Any], make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPCALL_SECRET_KEY", Fernet.generate_key().decode())
    model = ScriptedModelClient([Call(tool.__name__)])
    app = Upcall(store="runs.db", team=lambda: pausing(make("solo", model, tools=[tool])))
    run = await app.start("Do it")
    assert (run.status, run.asked) == (RunStatus.FAILED, {})
    assert re.search(
        rf"cannot be awaited, as in {tool.__name__} \(.*test_tool_questions.py, line \d+\)", run.error or ""
    )


async def test_other_answer_to_a_secret_is_never_typed_openly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPCALL_SECRET_KEY", Fernet.generate_key().decode())

    def log_in() -> str:
        """Log in."""
        return f"In with {len(ask_secret('Which password?'))} characters."

    with ScriptedModelClient([Call("log_in"), "Done."]) as model:
        asked = await app_of(model, log_in).start("Log in")
        await app_of(model, log_in).answer(asked.id, "tulip")
        with pytest.raises(AlreadyAnswered, match=rf"upcall fork {asked.id} \S+ -$"):
            await app_of(model, log_in).answer(asked.id, "rose")


async def name_place(plan: object) -> str:
    """Return where a plan leads, later."""
    await asyncio.sleep(0)
    return plan.where if isinstance(plan, Plan) else "none"


async def plan_between() -> str:
    """Plan it."""
    await asyncio.sleep(0)
    found = ask("What is the plan?", schema=Plan)
    return await name_place(found)


async def plan_inside() -> str:
    """Plan it."""
    return await name_place(ask("What is the plan?", schema=Plan))


@pytest.mark.parametrize("plan", [plan_between, plan_inside])
async def test_value_of_a_tool_that_awaits_elsewhere_is_returned(plan: Callable[[], Any]) -> None:
    with ScriptedModelClient([Call(plan.__name__), "Done."]) as model:
        asked = await app_of(model, plan).start("Plan it")
        await app_of(model, plan).answer(asked.id, {"where": "Oslo"})
    assert results(model) == ["Oslo"]


@pytest.mark.parametrize("tool", [region, region_later])
async def test_tool_answer_in_a_stock_agent_is_its_words(tool: Callable[[], Answer]) -> None:
    def make() -> Team:
        return RoundRobinGroupChat([AssistantAgent("solo", model, tools=[tool])], max_turns=1)

    with ScriptedModelClient([Call(tool.__name__)]) as model:
        asked = await Upcall(store="runs.db", team=make).start("Do it")
        last = await Upcall(store="runs.db", team=make).answer(asked.id, "eu")
    assert (last.status, last.result) == (RunStatus.COMPLETED, "eu")


async def test_tool_question_that_changes_is_asked_again() -> None:
    contents = ["one line", "two lines"]

    def overwrite() -> str:
        """Overwrite a file."""
        answer = ask("Overwrite it?", ["Yes", "No"], context=contents[0])
        return f"{answer.text}: {contents[0]}"

    with ScriptedModelClient([Call("overwrite"), "Done."]) as model:
        asked = await app_of(model, overwrite).start("Do it")
        contents.pop(0)
        again = await app_of(model, overwrite).answer(asked.id, "Yes")
        assert [each.context for each in again.questions] == ["two lines"]
        await app_of(model, overwrite).answer(asked.id, "No")
    assert results(model) == ["No: two lines"]


async def test_tool_that_repeats_a_question_forever_gets_an_error() -> None:
    def stubborn() -> str:
        """Ask for ever."""
        raise UserInputRequired("Really?", again=True)

    with ScriptedModelClient([Call("stubborn"), "Done."]) as model:
        asked = await app_of(model, stubborn).start("Do it")
        await app_of(model, stubborn).answer(asked.id, "yes")
    assert results(model) == ["Error: the tool asked again what it was answered; it takes the answer with upcall.ask."]


async def test_tool_with_changing_words_is_limited_by_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resolver, "MAX_WITHOUT_HUMAN", 3)
    times = count(1)

    def restless() -> str:
        """Ask something else each time."""
        return ask(f"Now, at the attempt {next(times)}?").text

    with ScriptedModelClient([Call("restless")]) as model:
        run = await app_of(model, restless, questions={"max_questions_run": 0}).start("Do it")
    assert [answer.outcome for answer in run.answers] == [Outcome.EXPIRED] * 3
    assert run.status is RunStatus.AWAITING_CLARIFICATION


async def test_tool_continues_at_once_with_a_known_answer() -> None:
    done: list[str] = []
    both = [RELEASE, Call("release", {"version": "1.2"}), "Done."]
    with ScriptedModelClient(both) as model:
        run = await app_of(model, release_tool(done)).start("Release it")
        await app_of(model, release_tool(done)).answer(run.id, "Staging")
        last = await app_of(model, release_tool(done)).answer(run.id, "now")
    assert last.result == "Done."
    assert [each for each in done if each != "begun"] == ["Staging/now", "Staging/now"]


@pytest.mark.parametrize(
    ("asked", "same"),
    [
        (("Delete it?", "  a.py "), True),
        (("Delete it?", "b.py"), False),
        (("Delete it!", "a.py"), False),
    ],
)
def test_tool_answer_counts_only_for_the_words_read(asked: tuple[str, str], same: bool) -> None:
    question = Question(question="Delete it?", context="a.py", options=[Option(label="Yes", id="y")])
    answer = Answer(question_id=question.id, text="Yes", selected=("Yes",))
    with tool_context({name_question(question): answer}):
        if same:
            assert ask(asked[0], ["Yes"], context=asked[1]) == answer
        else:
            with pytest.raises(UserInputRequired):
                ask(asked[0], ["Yes"], context=asked[1])
