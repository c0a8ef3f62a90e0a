"""What a program of a user writes, and the types that it gets."""

from collections.abc import Sequence
from typing import assert_type

from autogen_agentchat.base import Team
from autogen_agentchat.messages import MultiModalMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import ChatCompletionClient

from upcall import Answer, Outcome, PausableAgent, Question, Run, RunStatus, Settings, Upcall, ask, ask_secret


def deploy(host: str) -> str:
    assert_type(ask("Which port?", ["80", "443"]), Answer)
    return assert_type(ask_secret("The password?"), str)


def make_team(client: ChatCompletionClient) -> Team:
    return RoundRobinGroupChat([PausableAgent("coder", client, tools=[deploy])], max_turns=1)


async def use(client: ChatCompletionClient, picture: MultiModalMessage) -> None:
    app = Upcall(client, store="runs.db", settings=Settings.read(None, questions={"max_questions_run": 3}))
    run = assert_type(
        await app.start("Build it", user="alice", facts={"framework": "Express"}, expires_after="2h"), Run
    )
    await app.start([TextMessage(source="user", content="Look."), picture], unattended=True, on_expiry="assume")
    assert_type(run.status, RunStatus)
    assert_type(run.questions, tuple[Question, ...])
    assert_type(run.result, str | None)
    assert_type(run.interrupted, bool)
    question = run.questions[0]
    assert_type(await app.answer(run.id, 2), Run)
    await app.answer(run.id, ["Express", 2])
    await app.answer(run.id, Answer(question_id=question.id, outcome=Outcome.DECLINED))
    await app.answer(run.id, {question.id: "Express"}, user="alice")
    async for item in app.answer_stream(run.id, "Express"):
        if isinstance(item, Run):
            assert_type(item.stop_reason, str | None)
    branch = assert_type(await app.fork(run.id, question.id, 1, workspace="elsewhere"), Run)
    assert_type(await app.forks.diff(run.id, branch.id), list[str])
    assert_type(await app.resume(run.id), Run)
    assert_type(app.access.answerable(run), Sequence[Question])
    Upcall(team=lambda: make_team(client))
