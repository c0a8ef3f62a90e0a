"""A secret answer goes to the tool that asked for it and to nobody else; what is stored of it is encrypted."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from autogen_agentchat.agents import CodeExecutorAgent
from autogen_agentchat.base import Team
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.messages import BaseChatMessage, ThoughtEvent
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.tools import BaseStreamTool
from conversation import run as run_team
from conversation import soon
from cryptography.fernet import Fernet
from foreign import ForeignAgent
from places import ROOT
from pydantic import BaseModel
from scenario import script, upcall
from screens import Desk, desk
from settings_files import write_settings
from terminals import PROMPT, Terminal, ended, terminal
from worlds import app_of, results_in, solo

from upcall import (
    Answer,
    Outcome,
    PausableAgent,
    Question,
    Run,
    RunStatus,
    Settings,
    Upcall,
    ask_secret,
    make_resumable,
)
from upcall.agents import HumanProxyAgent
from upcall.agents.toolset import Tool
from upcall.autogen.messages import message_answers, question_message
from upcall.errors import AlreadyAnswered, AnswerRefused, ConfigurationError, UserInputRequired
from upcall.execution.reducer import deliver_answers
from upcall.questions.matching import match_answers, parse_answer
from upcall.questions.secrets import HIDDEN, KEY, NO_KEY, seal, unseal
from upcall.questions.tool_context import redact_secrets, tool_context
from upcall.runs.states import RunEvent
from upcall.testing import Call, Calls, LoopbackServer, Reply, ScriptedHuman, ScriptedModelClient

SECRET = "correct-horse-7"
ASKED = "Which password does the server have?"
DEPLOY = Call("deploy", {"host": "example.org"})

_ = terminal, desk  # The fixtures.


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the key of every test here that sets no other."""
    made = new_key()
    monkeypatch.setenv(KEY, made)
    return made


def new_key() -> str:
    return Fernet.generate_key().decode()


class Server:
    """What a deployment reaches: it keeps the passwords it was given."""

    def __init__(self) -> None:
        self.passwords: list[str] = []
        self.calls = 0

    async def deploy(self, host: str) -> str:
        """Deploy to a host."""
        self.calls += 1
        self.passwords.append(ask_secret(ASKED))
        return f"Deployed to {host}."

    def in_a_thread(self) -> Tool:
        """Return the same tool as a plain function, which AutoGen runs in a thread."""

        def deploy(host: str) -> str:
            self.calls += 1
            self.passwords.append(ask_secret(ASKED))
            return f"Deployed to {host}."

        return deploy


def app_with(tool: Tool, *replies: Reply) -> tuple[Upcall, ScriptedModelClient]:
    model = ScriptedModelClient(list(replies))
    return app_of(solo(model, tools=[tool])), model


async def stored(app: Upcall, run: Run) -> str:
    """All that the store has of a run, as it is read and as the bytes of its files."""
    whole = await app.store.load(run.id)
    files = [path.read_bytes() for path in sorted(Path().glob("runs.db*"))]
    return whole.run.model_dump_json() + whole.checkpoint.dump() + repr(files)


# -- where it goes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True], ids=["coroutine", "function"])
async def test_secret_reaches_its_tool_and_no_record_or_log(plain: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The one that asks is nested two levels deep, beside another, in a team with a further member."""
    caplog.set_level(logging.DEBUG)
    for name in ("autogen_core", "autogen_core.events", "autogen_agentchat", "autogen_agentchat.events"):
        caplog.set_level(logging.DEBUG, name)
    server = Server()
    tool = server.in_a_thread() if plain else server.deploy
    both = Calls([Call("coder", {"task": "Deploy it"}), Call("clerk", {"task": "Note it"})])
    replies: dict[str, Sequence[Reply]] = {
        "<lead>": [both, "Deployed and noted."],
        "<coder>": [DEPLOY, "It is deployed."],
        "<clerk>": ["Noted."],
        "<writer>": ["All done."],
    }
    with ScriptedModelClient(replies) as model:

        def make() -> Team:
            coder = PausableAgent("coder", model, system_message="<coder>", tools=[tool])
            clerk = PausableAgent("clerk", model, system_message="<clerk>")
            lead = PausableAgent("lead", model, system_message="<lead>", agents=[coder, clerk])
            return RoundRobinGroupChat([lead, PausableAgent("writer", model, system_message="<writer>")], max_turns=2)

        app = app_of(make)
        emitted = [item async for item in app.start_stream("Deploy it", user="alice")]
        asked = emitted[-1]
        assert isinstance(asked, Run)
        seen = await stored(app, asked)
        async for item in app_of(make).answer_stream(asked.id, SECRET, user="alice"):
            emitted.append(item)
            seen += await stored(app, asked)
    done = emitted[-1]
    assert isinstance(done, Run)
    (question,) = asked.questions
    assert (question.secret, question.tool, question.path) == (True, "deploy", ("lead", "coder"))
    assert "goes to the tool deploy only; no model reads it." in question.as_text()
    assert (done.status, done.result) == (RunStatus.COMPLETED, "All done.")
    assert (server.calls, server.passwords) == (2, [SECRET])
    assert ["Deployed to example.org."] in [list(each.tool_results.values()) for each in model.requests]
    assert "sealed:v1:" in seen
    everything = [
        seen,
        caplog.text,
        *(repr(vars(record)) for record in caplog.records),
        *(item.model_dump_json() for item in emitted),
        *(json.dumps(request.messages) for request in model.requests),
        json.dumps(done.as_json()),
    ]
    assert not [text for text in everything if SECRET in text]
    assert any("Deployed to example.org." in text for text in everything[1:2]), "the log was looked at"


async def test_secret_is_hidden_in_its_tools_result() -> None:
    async def login() -> str:
        """Log in."""
        return f"Logged in with {ask_secret(ASKED)}."

    async def fail() -> str:
        """Fail to log in."""
        raise ConnectionError(f"postgresql://me:{ask_secret(ASKED)}@db refused")

    model = ScriptedModelClient([Calls([Call("login"), Call("fail")]), "Done."])
    app = app_of(solo(model, tools=[login, fail]))
    asked = await app.start("Log in")
    done = await app.answer(asked.id, dict.fromkeys((each.id for each in asked.questions), SECRET))
    assert done.result == "Done."
    assert results_in(model) == [f"Logged in with {HIDDEN}.", f"Error: postgresql://me:{HIDDEN}@db refused"]
    assert SECRET not in await stored(app, done)


class NoArguments(BaseModel):
    """What a tool takes that takes nothing."""


class Login(BaseStreamTool[NoArguments, ThoughtEvent, str]):
    """A tool that tells what it does meanwhile."""

    def __init__(self) -> None:
        super().__init__(NoArguments, str, "login", "Log in")

    async def run_stream(self, args: NoArguments, _: CancellationToken) -> AsyncGenerator[ThoughtEvent | str, None]:
        yield ThoughtEvent(source="login", content=f"Connect with {ask_secret(ASKED)}")
        yield "in"

    async def run(self, args: NoArguments, _: CancellationToken) -> str:
        raise AssertionError("it is streamed")


async def test_secret_is_hidden_in_its_tools_events() -> None:
    app, _ = app_with(Login(), Call("login"), "Done.")
    asked = await app.start("Log in")
    emitted = [item async for item in app.answer_stream(asked.id, SECRET)]
    assert [each.content for each in emitted if isinstance(each, ThoughtEvent)] == [f"Connect with {HIDDEN}"]
    assert SECRET not in str(await app.log.transcript(asked))


@pytest.mark.slow
async def test_example_of_the_documentation_runs() -> None:
    text = (ROOT / "docs" / "settings.md").read_text()
    (example,) = (each for each in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "ask_secret" in each)
    scope: dict[str, Any] = {}
    exec(example, scope)
    app, model = app_with(scope["backup"], Call("backup", {"database": "users"}), "Done.")
    asked = await app.start("Back it up")
    await app.answer(asked.id, SECRET)
    assert results_in(model) == [f"Backed up users with a password of {len(SECRET)} characters."]


async def test_secret_is_hidden_in_what_code_prints() -> None:
    class Deploying(CodeExecutor):
        """It runs nothing, and prints the secret that it asks for."""

        async def execute_code_blocks(self, code_blocks: list[CodeBlock], cancellation_token: Any) -> CodeResult:
            return CodeResult(exit_code=0, output=f"went in with {ask_secret(ASKED)}")

        async def start(self) -> None: ...

        async def stop(self) -> None: ...

        async def restart(self) -> None: ...

    app = app_of(lambda: RoundRobinGroupChat([CodeExecutorAgent("runner", Deploying())], max_turns=1))
    asked = await app.start("```sh\ndeploy\n```")
    done = await app.answer(asked.id, SECRET)
    assert str(done.result).startswith("went in with ")
    assert SECRET not in str(done.result) + await stored(app, done)


def test_secret_that_is_short_stays_in_words() -> None:
    answers = {text: parse_answer(secret_question(), text) for text in ("on", "correct", SECRET)}
    with tool_context(answers):
        assert redact_secrets(f"{SECRET} is correct, go on") == f"{HIDDEN} is {HIDDEN}, go on"


async def test_secret_requests_of_one_tool_may_be_two() -> None:
    had: list[tuple[str, str]] = []

    def login() -> str:
        """Log in."""
        had.append((ask_secret("Which account?", ["root", "admin"]), ask_secret(ASKED)))
        return "Logged in."

    app, model = app_with(login, Call("login"), "Done.")
    first = await app.start("Log in")
    second = await app.answer(first.id, "2")
    done = await app.answer(first.id, SECRET)
    assert [each.questions[0].question for each in (first, second)] == ["Which account?", ASKED]
    assert (had, results_in(model), done.result) == ([("admin", SECRET)], ["Logged in."], "Done.")
    assert [(answer.text[:10], answer.selected) for answer in done.answers] == [("sealed:v1:", ())] * 2


async def test_refusal_is_the_result_of_the_call() -> None:
    server = Server()
    app, model = app_with(server.deploy, DEPLOY, "Done.")
    asked = await app.start("Deploy it")
    (question,) = asked.questions
    await app.answer(asked.id, Answer(question_id=question.id, outcome=Outcome.DECLINED))
    assert (server.calls, server.passwords) == (1, [])
    assert results_in(model)[0].startswith("The user declined to answer.")


async def test_secret_a_tool_cannot_take_is_not_asked_again() -> None:
    def deploy(host: str) -> str:
        """Deploy to a host."""
        raise UserInputRequired(ASKED, secret=True)

    app, model = app_with(deploy, DEPLOY, "Done.")
    asked = await app.start("Deploy it")
    done = await app.answer(asked.id, SECRET)
    assert done.status is RunStatus.COMPLETED
    assert "asked again for a secret that it was given" in results_in(model)[0]


async def test_secret_is_given_once_and_to_one_tool() -> None:
    server, mail = Server(), list[str]()

    async def send() -> str:
        """Send a mail."""
        mail.append(ask_secret(ASKED))
        return "Sent."

    model = ScriptedModelClient([DEPLOY, DEPLOY, Call("send"), "Done."])
    app = app_of(solo(model, tools=[server.deploy, send]))
    asked = await app.start("Deploy it twice")
    again = await app.answer(asked.id, SECRET)
    done = await app.answer(asked.id, "other")
    assert ([each.tool for each in again.questions], server.passwords) == (["send"], [SECRET, SECRET])
    assert (done.result, mail) == ("Done.", ["other"])
    assert SECRET not in await stored(app, done)


async def test_secret_given_during_work_reaches_its_tool_at_once() -> None:
    server, emitted = Server(), asyncio.Event()

    async def search() -> str:
        """Search slowly."""
        await emitted.wait()
        return "Found."

    model = ScriptedModelClient([Calls([DEPLOY, Call("search")]), "Done."])
    app = app_of(solo(model, tools=[server.deploy, search]))
    working = asyncio.create_task(app.start("Deploy it, and search"))
    while not (runs := await app.list()) or not runs[0].questions:
        await asyncio.sleep(0.01)
    left = await app.answer(runs[0].id, SECRET)
    while not server.passwords:
        await asyncio.sleep(0.01)
    assert (left.working, SECRET in await stored(app, left)) == (True, False)
    emitted.set()
    done = await soon(working)
    assert (done.result, results_in(model)) == ("Done.", ["Deployed to example.org.", "Found."])
    assert SECRET not in await stored(app, done)


async def test_where_nobody_is_there_a_secret_is_not_had() -> None:
    server = Server()
    model = ScriptedModelClient([DEPLOY, "Done."])
    facts = {"password": SECRET}
    done = await app_of(solo(model, tools=[server.deploy]), questions={"unattended": True}).start(
        "Deploy it", facts=facts
    )
    assert (done.result, server.passwords, done.answers[0].outcome) == ("Done.", [], Outcome.EXPIRED)


class Keeper(ForeignAgent):
    """An agent of somebody's own, which asks for a secret itself."""

    delivered: str | None = None

    async def speak(self, messages: Sequence[BaseChatMessage]) -> BaseChatMessage | str:
        answers = [answer for message in messages for answer in message_answers(message)]
        if not answers:
            question = Question(question=ASKED, secret=True, path=(self.name,))
            return question_message([question], source=self.name, user_proxy="user")
        Keeper.delivered = answers[0].unseal().as_text()
        return "Done."


def keepers() -> Team:
    return RoundRobinGroupChat([Keeper("keeper", "Asks")], max_turns=1)


async def test_agent_of_ones_own_opens_its_answer_itself() -> None:
    asked = await app_of(keepers).start("Log in")
    done = await app_of(keepers).answer(asked.id, SECRET)
    assert (done.status, Keeper.delivered) == (RunStatus.COMPLETED, SECRET)
    assert SECRET not in await stored(app_of(keepers), done)


async def test_secret_is_kept_by_a_scripts_live_team() -> None:
    server = Server()
    with ScriptedModelClient([DEPLOY, "Done."]) as model, ScriptedHuman({ASKED: [SECRET]}) as human:
        solo_agent = PausableAgent("solo", model, tools=[server.deploy])
        members = [solo_agent, HumanProxyAgent("user", input_func=human.input_func)]
        team = make_resumable(Swarm(members, termination_condition=TextMessageTermination("solo")), live=True)
        rest = await run_team(team, "Deploy it")
        state = json.dumps(await team.save_state())
    assert (rest.text, server.passwords) == ("Done.", [SECRET])
    assert SECRET not in "".join(event.model_dump_json() for event in rest.events) + state


# -- the key ----------------------------------------------------------------------------------------------------------


async def test_secret_tool_without_a_key_calls_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY)
    app, model = app_with(Server().deploy, DEPLOY, "Done.")
    with pytest.raises(ConfigurationError, match=rf"Tool 'deploy' of agent 'solo' asks for a secret, and {KEY} is not"):
        await app.start("Deploy it")
    assert (model.requests, await app.list()) == ([], [])


async def test_secret_tool_out_of_sight_fails_without_a_key(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.delenv(KEY)
    server = Server()

    async def deploy(host: str) -> str:
        """Deploy to a host."""
        return await server.deploy(host)

    app, _ = app_with(deploy, DEPLOY, "Done.")
    failed = await app.start("Deploy it")
    monkeypatch.setenv(KEY, key)
    asked = await app.resume(failed.id)
    assert (failed.status, f"{KEY} is not set" in str(failed.error)) == (RunStatus.FAILED, True)
    assert [each.question for each in asked.questions] == [ASKED]


async def test_secret_question_of_any_agent_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY)
    done = await app_of(keepers).start("Log in")
    assert (done.status, done.questions) == (RunStatus.COMPLETED, ())
    assert (Keeper.delivered or "").startswith(NO_KEY)


@pytest.mark.parametrize("wrong", ["swordfish", "x" * 44, "{new},swordfish"])
async def test_secret_key_that_is_malformed_is_reported_without_it(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, wrong.format(new=new_key()))
    app, _ = app_with(Server().deploy, DEPLOY, "Done.")
    with pytest.raises(ConfigurationError) as refused:
        await app.start("Deploy it")
    error = str(refused.value)
    assert KEY in error
    assert "is not a Fernet key" in error
    assert "\n" not in error
    assert "swordfish" not in error
    assert "xxxx" not in error


async def test_answer_without_a_key_changes_nothing(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    app, _ = app_with(Server().deploy, DEPLOY, "Done.")
    asked = await app.start("Deploy it")
    monkeypatch.delenv(KEY)
    with pytest.raises(ConfigurationError, match=f"{KEY} is not set"):
        await app.answer(asked.id, SECRET)
    assert await app.get(asked.id) == asked
    monkeypatch.setenv(KEY, key)
    assert (await app.answer(asked.id, SECRET)).result == "Done."


async def test_answer_under_another_key_waits_for_that_key(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """The process that took the answer in ended before the tool got it."""
    server = Server()
    app, model = app_with(server.deploy, DEPLOY, "Done.")
    asked = await app.start("Deploy it")
    before = await app.store.load(asked.id)
    answers = [parse_answer(asked.questions[0], SECRET)]
    checkpoint, _ = deliver_answers(before.checkpoint, answers, asked.questions)
    await app.store.save(before, before.run.record_answers(answers).apply(RunEvent.EXECUTING), checkpoint)

    other = new_key()
    monkeypatch.setenv(KEY, other)
    failed = await app.resume(asked.id)
    assert failed.status is RunStatus.FAILED
    assert "The answer to question " in (failed.error or "")
    assert " was stored under another key" in (failed.error or "")
    assert (server.passwords, len(model.requests)) == ([], 1)
    monkeypatch.setenv(KEY, f"{other},{key}")
    done = await app.resume(asked.id)
    assert (done.result, server.passwords) == ("Done.", [SECRET])


def test_keys_are_rotated(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    old, new = seal(SECRET), new_key()
    monkeypatch.setenv(KEY, f" {new} , {key}")
    later = seal(SECRET)
    assert (unseal(old), unseal(later)) == (SECRET, SECRET)
    monkeypatch.setenv(KEY, new)
    assert unseal(later) == SECRET
    with pytest.raises(ConfigurationError, match="another key"):
        unseal(old)


@pytest.mark.parametrize("damaged", ["", "sealed:v1:", "sealed:v1:nothing", "ä"])
def test_what_is_damaged_is_not_opened(damaged: str) -> None:
    with pytest.raises(ConfigurationError, match="another key"):
        unseal(damaged)


def test_key_in_the_env_file_alone_is_noted() -> None:
    os.environ.pop(KEY)
    write_settings(f"{KEY}={new_key()}\n", ".env")
    assert [note for note in Settings.read(models={"model": "demo"}).warnings if KEY in note] == [
        f"{KEY} is read from the environment itself, not from .env; export it."
    ]


def test_key_in_the_environment_is_no_stray_variable() -> None:
    assert not [note for note in Settings.read(models={"model": "demo"}).warnings if KEY in note]


# -- answers ----------------------------------------------------------------------------------------------------------


def secret_question(**fields: Any) -> Question:
    return Question(id="aaaa1111", question=ASKED, secret=True, **fields)


def test_secret_repeated_is_harmless_and_another_refused_unseen() -> None:
    asked = secret_question()
    (answer,) = match_answers(SECRET, [asked])
    assert match_answers({asked.id: SECRET}, [], [answer], closed=[asked]) == []
    with pytest.raises(AlreadyAnswered) as refused:
        match_answers({asked.id: "wrong-horse-8"}, [], [answer], closed=[asked])
    assert HIDDEN in str(refused.value)
    assert "horse" not in str(refused.value)
    assert "sealed" not in str(refused.value)


def test_two_sealed_answers_are_compared_by_what_they_say() -> None:
    one, same, other = (parse_answer(secret_question(), text) for text in (SECRET, SECRET, "other"))
    assert one.text != same.text
    assert one.is_equivalent(same)
    assert not one.is_equivalent(other)


@pytest.mark.parametrize("value", [SECRET, [SECRET, "A"], 7, [7]])
def test_refused_secret_is_not_shown(value: Any) -> None:
    with pytest.raises(AnswerRefused) as refused:
        parse_answer(secret_question(options=["A", "B"], allow_free_text=False), value)
    assert not any(each in str(refused.value) for each in ("horse", "7"))


def test_sealed_text_given_as_an_answer_is_ordinary_text() -> None:
    """Else whoever sees one in an export could have it opened for a run of their own."""
    stolen = parse_answer(secret_question(), SECRET)
    for given in (stolen.text, stolen):
        assert parse_answer(secret_question(), given).unseal().text == stolen.text
    assert parse_answer(Question(id="aaaa1111", question="Which framework?"), stolen).unseal().text == stolen.text


def test_sealed_answer_is_shown_only_as_existing() -> None:
    assert parse_answer(secret_question(), SECRET).as_text() == HIDDEN


def test_sealed_form_is_for_the_secret_only() -> None:
    given = Answer(question_id="aaaa1111", outcome=Outcome.DECLINED, text="Ask the admin.")
    assert parse_answer(secret_question(), given).text == "Ask the admin."


# -- the command line -------------------------------------------------------------------------------------------------

SOURCE = f"""
def deploy(host: str) -> str:
    from pathlib import Path
    from upcall import ask_secret
    Path("password.txt").write_text(ask_secret({ASKED!r}))
    return "Deployed."
"""
SHALLOW = '{"intent": "research", "meta_response": null, "research_depth": "shallow"}'


@pytest.fixture
def server() -> Any:
    """Yield a model whose researcher deploys, with a tool that asks for a secret, in the settings of this folder."""
    config = {
        "name": "deploy",
        "description": "Deploy to a host.",
        "source_code": SOURCE,
        "global_imports": [],
        "has_cancellation_support": False,
    }
    tools = [{"provider": "autogen_core.tools.FunctionTool", "config": config}]
    replies = script(classifier=[SHALLOW], clarifier=[], planner=[], lead=[], coder=[])
    replies["You are the researcher "] = [DEPLOY, '{"summary": "It is deployed."}']
    with LoopbackServer(replies) as opened:
        settings = {
            "models": {"model": "m", "base_url": opened.base_url},
            "team": {"tools": tools},
            "research": {"data_sources": ["deploy"]},
        }
        write_settings(yaml.safe_dump(settings))
        yield opened


@pytest.mark.slow
def test_secret_comes_from_standard_input_and_is_never_shown(server: LoopbackServer) -> None:
    started = upcall("run", "Deploy it", UPCALL_TEAM__VERBOSE="true")
    run_id = started.out.split("upcall answer ")[1].split()[0]
    assert f"upcall answer {run_id} -\n" in started.out
    lost = upcall("answer", run_id, "-", given=SECRET, **{KEY: ""})
    assert (lost.status, f"{KEY} is not set" in lost.error) == (2, True)
    question_id = upcall("show", run_id, "--json").json["questions"][0]["id"]
    answered = upcall("answer", run_id, f"{question_id}=-", given=f"{SECRET}\n", UPCALL_TEAM__VERBOSE="true")
    shown = [upcall("show", run_id), upcall("show", run_id, "--json"), upcall("list", "--json")]
    again = upcall("answer", run_id, f"{question_id}=-", "--json", given=SECRET)
    assert (answered.status, Path("password.txt").read_text()) == (0, SECRET)
    assert "It is deployed." in answered.out
    assert f"Answer   {HIDDEN}" in shown[0].out
    assert again.json["status"] == "completed"
    everything = "".join(each.out + each.err for each in (started, lost, answered, *shown, again))
    files = b"".join(path.read_bytes() for path in Path().glob("upcall.db*"))
    sent = json.dumps([request.messages for request in server.requests])
    assert SECRET not in everything + repr(files) + sent
    assert os.environ[KEY] not in everything + repr(files) + sent


@pytest.mark.slow
def test_secret_of_a_branch_comes_from_standard_input(server: LoopbackServer) -> None:
    run_id = upcall("run", "Deploy it", "--json").json["run_id"]
    question_id = upcall("show", run_id, "--json").json["questions"][0]["id"]
    branch = upcall("fork", run_id, question_id, "-", given=f"{SECRET}\n", UPCALL_TEAM__VERBOSE="true")
    assert (branch.status, Path("password.txt").read_text()) == (0, SECRET)
    files = b"".join(path.read_bytes() for path in Path().glob("upcall.db*"))
    assert SECRET not in branch.out + branch.err + repr(files)


@pytest.mark.slow
def test_on_a_terminal_a_secret_is_not_echoed(server: LoopbackServer, terminal: Terminal) -> None:
    child = terminal.start("run", "Deploy it")
    child.expect_exact(PROMPT)
    assert "goes to the tool deploy only" in child.before
    child.waitnoecho()
    child.sendline(SECRET)
    status, text = ended(child)
    assert (status, Path("password.txt").read_text()) == (0, SECRET)
    assert SECRET not in text


@pytest.mark.slow
def test_secret_typed_in_a_terminal_is_stars(server: LoopbackServer, desk: Desk) -> None:
    screen = desk.start("run", "Deploy it")
    screen.wait_for(PROMPT.strip())
    screen.press(SECRET, "\r")
    assert (screen.end(), Path("password.txt").read_text()) == (0, SECRET)
    assert SECRET not in screen.text
    assert f"Answer: {HIDDEN}" in screen.text


@pytest.mark.slow
def test_secret_typed_after_a_dash_is_not_echoed(server: LoopbackServer, terminal: Terminal) -> None:
    run_id = upcall("run", "Deploy it", "--json").json["run_id"]
    child = terminal.start("answer", run_id, "-")
    child.expect_exact("Answer (not shown): ")
    child.waitnoecho()
    child.sendline(SECRET)
    status, text = ended(child)
    assert (status, Path("password.txt").read_text()) == (0, SECRET)
    assert SECRET not in text
