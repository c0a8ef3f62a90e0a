"""upcall: nested `PausableAgent`s, driven and stored by `Upcall` (docs/guides/own-team.md, docs/guides/resuming.md)."""

from __future__ import annotations

from pathlib import Path

from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_model import connect
from meter import Open, Rest
from scenarios import DESCRIPTIONS, Scenario

from upcall import PausableAgent, Question, Run, Settings, Upcall
from upcall.errors import UnknownRun


class System:
    packages = ("upcall", "autogen-agentchat")
    expires = True

    def __init__(self, base_url: str, http_client: object, store: Path, scenario: Scenario) -> None:
        self._model = connect(base_url, http_client)
        self._scenario = scenario
        questions: dict[str, object] = {"max_questions_run": 1000}
        if scenario.expires:
            questions |= {"expires_after": scenario.expires, "on_expiry": "assume"}
        settings = Settings.read(models={"model": "demo"}, questions=questions)
        self._app = Upcall(store=store, team=self._team, settings=settings)

    def _team(self) -> RoundRobinGroupChat:
        return RoundRobinGroupChat([self._agent(self._scenario.root)], max_turns=1)

    def _agent(self, name: str) -> PausableAgent:
        nested = self._scenario.nested(name)
        return PausableAgent(
            name,
            self._model,
            description=DESCRIPTIONS.get(name, "Plans."),
            system_message=self._scenario.prompt(name),
            tools=[] if nested else self._scenario.tools(),
            agents=[self._agent(each) for each in nested],
            ask_user=not nested,
            max_rounds=1000,
            max_questions=1000,
        )

    async def open(self) -> None:
        """Nothing: the store is opened by the first run."""

    async def start(self, run: str, task: str, history: list[tuple[str, str]]) -> Rest:
        texts = [TextMessage(source=role, content=text) for role, text in history]
        return _rest(await self._app.start(task, history=texts, run_id=run))

    async def pending(self, run: str) -> Rest | None:
        if self._scenario.expires:
            await self._app.expire()
        try:
            found = await self._app.get(run)
        except UnknownRun:
            return None
        return _rest(await self._app.resume(run) if found.interrupted else found)

    async def answer(self, run: str, answers: dict[str, str]) -> Rest:
        return _rest(await self._app.answer(run, answers))

    async def close(self) -> None:
        await self._model.close()


def _rest(run: Run) -> Rest:
    if run.error:
        raise RuntimeError(run.error)
    return Rest([_open(each) for each in run.questions], run.result)


def _open(question: Question) -> Open:
    again = question.options[0].label if question.header == "Call in doubt" else ""
    return Open(question.id, question.question, question.path, again)
