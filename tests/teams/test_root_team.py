"""The root team through the real driver and store: every hand-off, every asker, every pause in a new object."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.messages import HandoffMessage, TextMessage, UserInputRequestedEvent
from autogen_agentchat.teams import Swarm
from autogen_ext.models.replay import ReplayChatCompletionClient
from guests import is_here
from scenario import AGENTS, for_team, new_app, requests_of
from worlds import roles_in

from upcall import Answer, Outcome, Run, RunStatus, Settings, Upcall
from upcall.autogen.messages import QUESTIONS, answer_message, event_path, message_questions
from upcall.execution.demo import demo_model
from upcall.options import TeamOptions
from upcall.questions.matching import AnswersInput, match_answers
from upcall.questions.question import Question
from upcall.runs.outputs import Depth, Intent
from upcall.teams import TeamResources, root_team
from upcall.testing import Call, Calls, Fail, Hang, LoopbackServer, Reply, Request, Script, ScriptedModelClient
from upcall.testing.model import MODEL_INFO

TASK = "Build me a user authentication system"

META = '{"intent": "meta", "meta_response": "Hi! I plan and write code."}'
CLEAR = '{"needs_clarification": false}'
CODER = {"agent": "coder"} if is_here("workspace") else {}
PLAN = json.dumps(
    {"title": "Login", "sections": ["Form"], "steps": [{"step_id": "1", "description": "Write it", **CODER}]}
)
ASK = Call("ask_user", {"question": "Which framework?", "options": ["Express", "FastAPI", "Django"]})
WRITE = Call("write_file", {"path": "src/login.js", "content": "// login\n"})
CODED = '{"summary": "Wrote the login.", "files": ["src/login.js"]}'
FOUND = '{"summary": "Germany leads."}'
DONE = '{"summary": "All done."}'
DELEGATE = Call("coder", {"task": "Write a login"})
ROLES = [
    pytest.param("coding", "coder", id="coding", marks=pytest.mark.needs("workspace")),
    pytest.param("research", "researcher", id="research", marks=pytest.mark.needs("research")),
]
"""The kinds of work of the built-in roles, and their agents."""
BOTH = Calls([Call("coder", {"task": "Write a login"}), Call("researcher", {"task": "Find the laws"})])


def classified(intent: str, depth: str) -> str:
    return json.dumps({"intent": intent, "research_depth": depth})


def asks(question: str) -> str:
    """Return the clarifier's question."""
    return json.dumps({"needs_clarification": True, "clarification_question": question})


def unclear(*questions: str) -> str:
    """Return the planner's check with one aspect for each question."""
    details = [{"aspect": "a", "description": "", "clarification_question": each} for each in questions]
    return json.dumps({"needs_clarification": True, "ambiguity_details": details})


def by_agent(**changed: Sequence[Reply]) -> dict[str, list[Reply]]:
    """Return the replies of a deep coding task in which nobody asks; `changed` replaces those of single agents."""
    replies: dict[str, Sequence[Reply]] = {
        "classifier": [classified("coding", "deep")],
        "clarifier": [CLEAR],
        "planner": [CLEAR, PLAN],
        "lead": [DELEGATE, DONE] if CODER else [DONE],
        "coder": [WRITE, CODED] if CODER else [],
    }
    return for_team(**replies | changed)


def scripted(**changed: Sequence[Reply]) -> ScriptedModelClient:
    return ScriptedModelClient(by_agent(**changed))


async def answered(client: ScriptedModelClient, run: Run, answer: AnswersInput) -> Run:
    """Return the run's next pause after an answer that a new driver takes."""
    return await new_app(client).answer(run.id, answer)


def open_ids(run: Run) -> dict[str, str]:
    """Return the ids of the open questions by their words."""
    return {question.question: question.id for question in run.questions}


def shallow(intent: str, **changed: Sequence[Reply]) -> ScriptedModelClient:
    """Return a model for a shallow task: only the classifier and those of `changed` say anything."""
    silent: dict[str, Sequence[Reply]] = dict.fromkeys(("clarifier", "planner", "lead", "coder", "researcher"), ())
    return scripted(**silent | {"classifier": [classified(intent, "shallow")], **changed})


async def handed_over(client: ScriptedModelClient, task: str = TASK, **settings: Any) -> list[str]:
    """Who hands off to whom, in order."""
    return [
        f"{item.source} > {item.target}"
        async for item in new_app(client, **settings).start_stream(task)
        if isinstance(item, HandoffMessage) and event_path(item) == (item.source,)
    ]


# -- one agent at once ------------------------------------------------------------------------------------------------


async def test_meta_query_is_answered_with_one_call() -> None:
    """S2-01, S2-03."""
    with ScriptedModelClient([META]) as client:
        run = await new_app(client).start("Hello! What can you do?")
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Hi! I plan and write code.")
    assert run.classification is not None
    assert run.classification.intent is Intent.META


@pytest.mark.needs("research")
async def test_shallow_question_is_answered_from_the_documents(tmp_path: Path) -> None:
    """The researcher really searches, before its model says anything, and reads."""
    from upcall.research.sources.fences import FencedText, parse_fenced

    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "energy.md").write_text("# Energy\nGermany: 52 percent wind and solar\n")
    read = Call("read_document", {"name": "energy.md"})
    cited = {"ref": "energy.md", "place": "line 2", "quote": "Germany: 52 percent wind and solar"}
    found = json.dumps({"summary": "Germany leads [1].", "citations": [cited]})
    with shallow("research", researcher=[read, found]) as client:
        run = await new_app(client).start("Who leads in wind?", documents=[folder])
    assert run.result == (
        'Germany leads [1].\n\nSources:\n- [1] energy.md, line 2: "Germany: 52 percent wind and solar"\n\n'
        "Citations: 1 checked, 1 hold."
    )
    text = FencedText("documents", "energy.md", "lines 1-2", "# Energy\nGermany: 52 percent wind and solar")
    shown = {call: parse_fenced(result) for call, result in client.requests[2].tool_results.items()}
    assert shown == {"call_1": [text], "call_2_1": [text]}


@pytest.mark.parametrize(("intent", "agent"), ROLES)
async def test_shallow_task_that_is_too_large_escalates_to_clarifier(intent: str, agent: str) -> None:
    """S0-05: its model may say so itself, with the tool for it."""
    escalates: dict[str, Sequence[Reply]] = {agent: [Call("transfer_to_clarifier")]}
    with shallow(intent, clarifier=[CLEAR], planner=[CLEAR, PLAN], lead=[DONE], **escalates) as client:
        order = await handed_over(client)
    assert order == [f"classifier > {agent}", f"{agent} > clarifier", "clarifier > planner", "planner > lead"]


@pytest.mark.needs("workspace")
async def test_question_before_an_escalation_is_known_to_later_agents() -> None:
    """X11."""
    asks_and_escalates = [ASK, Call("transfer_to_clarifier")]
    with shallow("coding", coder=asks_and_escalates, clarifier=[CLEAR], planner=[CLEAR, PLAN], lead=[DONE]) as client:
        asked = await new_app(client).start(TASK)
        run = await answered(client, asked, "Express")
    assert (asked.questions[0].path, run.status) == (("coder",), RunStatus.COMPLETED)
    for agent in ("clarifier", "planner"):
        assert all("Which framework? - Express" in request.system for request in requests_of(client, agent))
    assert "Which framework? - Express" in str(requests_of(client, "lead")[0].messages)


# -- the deep path ----------------------------------------------------------------------------------------------------


@pytest.mark.needs("workspace")
async def test_run_keeps_what_became_of_it() -> None:
    """Classification, plan, answers, and the tokens of each agent under its path."""
    with scripted(coder=[ASK, WRITE, CODED]) as client:
        asked = await new_app(client).start(TASK, user="alice")
        done = await new_app(client).answer(asked.id, "express", user="alice")
        run = await new_app(client).get(asked.id[:8])
    assert run == done
    assert run.classification is not None
    assert (run.classification.intent, run.classification.depth) == (Intent.CODING, Depth.DEEP)
    assert run.plan is not None
    assert run.plan.title == "Login"
    assert [(answer.text, answer.user) for answer in run.answers] == [("Express", "alice")]
    assert {agent: used.model_calls for agent, used in run.usage.items()} == {
        "classifier": 1,
        "clarifier": 1,
        "planner": 2,
        "lead": 2,
        "lead/coder": 3,
    }
    assert all(used.prompt_tokens and used.completion_tokens for used in run.usage.values())


@pytest.mark.needs("workspace")
async def test_status_says_what_the_team_is_doing() -> None:
    """S3-21, S3-22, S3-32."""
    seen: list[RunStatus] = []
    with scripted(clarifier=[asks("For whom?"), CLEAR], coder=[ASK, WRITE, CODED]) as client:
        app = new_app(client)

        async def watch(stream: AsyncIterator[object]) -> str:
            async for _ in stream:
                (run,) = await app.list()
                if run.status not in seen[-1:]:
                    seen.append(run.status)
            return run.id

        run_id = await watch(app.start_stream(TASK))
        await watch(app.answer_stream(run_id, "Admins"))
        await watch(app.answer_stream(run_id, "Express"))
    assert seen == [
        RunStatus.INITIALIZING,
        RunStatus.PLANNING,
        RunStatus.AWAITING_CLARIFICATION,
        RunStatus.PLANNING,
        RunStatus.EXECUTING,
        RunStatus.AWAITING_CLARIFICATION,
        RunStatus.EXECUTING,
        RunStatus.COMPLETED,
    ]


@pytest.mark.needs("research")
async def test_document_names_reach_all_who_decide_about_them(tmp_path: Path) -> None:
    """S0-21: who classifies, clarifies, plans or delegates need not ask which report is meant."""
    (tmp_path / "energy.md").write_text("# Energy in Europe\n")
    with scripted() as client:
        await new_app(client).start("Summarise the report", documents=[tmp_path / "energy.md"])
    for agent in ("classifier", "clarifier", "planner", "lead"):
        assert all("energy.md" in request.system for request in requests_of(client, agent)), agent


def search_web(query: str) -> str:
    """Search the web."""
    return f"Found: {query}"


def look_up_law(name: str) -> str:
    """Look up a law."""
    return f"Law: {name}"


SEARCH, LAW = "- search_web: Search the web.", "- look_up_law: Look up a law."


@pytest.mark.needs("research")
@pytest.mark.parametrize(
    ("data_sources", "listed", "documents"),
    [
        (None, {SEARCH, LAW}, True),
        (["search_web", "look_up_law", "documents"], {SEARCH, LAW}, True),
        (["search_web"], {SEARCH}, False),
        (["documents"], set(), True),
        ([], set(), False),
    ],
)
async def test_data_sources_decide_which_tools_are_given(
    data_sources: list[str] | None, listed: set[str], documents: bool, tmp_path: Path
) -> None:
    """S0-20, S2-16, S2-22, S2-29: to all who decide about them, over a pause in another process too."""
    (tmp_path / "energy.md").write_text("# Energy\n")
    tools = [search_web, look_up_law]
    ask_first = Call("ask_user", {"question": "Which year?"})
    delegate = Call("researcher", {"task": "Find the laws"})
    with scripted(lead=[delegate, DONE], coder=[], researcher=[ask_first, FOUND]) as client:
        app = Upcall(client, store="runs.db", tools=tools, settings=Settings.read(None))
        asked = await app.start(TASK, documents=[tmp_path / "energy.md"], data_sources=data_sources)
        await Upcall(client, store="runs.db", tools=tools, settings=Settings.read(None)).answer(asked.id, "2020")
    for agent in ("classifier", "clarifier", "planner"):
        (request, *_) = requests_of(client, agent)
        assert {line for line in (SEARCH, LAW) if line in request.system} == listed, agent
        assert ("search_documents" in request.system) is documents, agent
    # Its documents are searched before it gets its tools.
    for request in requests_of(client, "researcher")[documents:]:
        offered = {tool["name"] for tool in request.body["tools"]}
        assert offered & {"search_web", "look_up_law"} == {line[2:].partition(":")[0] for line in listed}
        assert ("search_documents" in offered) is documents


async def test_user_info_reaches_the_classifier_and_nobody_else() -> None:
    """S2-15, S2-28."""
    with scripted() as client:
        run = await new_app(client, users={"user_info": {"name": "Mallory"}}).start(
            TASK, user_info={"name": "Ada", "email": "ada@example.org"}
        )
    emitted = [request for request in client.requests if "The user is Ada (ada@example.org)." in request.system]
    assert emitted == requests_of(client, "classifier")
    assert not any("Mallory" in str(request.body) for request in client.requests)
    assert run.config.team
    assert run.config.team.user_info == {"name": "Ada", "email": "ada@example.org"}


@pytest.mark.needs("workspace")
async def test_workspace_names_reach_the_classifier_alone(tmp_path: Path) -> None:
    from upcall.workspace.role import MAX_FILES

    folder = tmp_path / "own"
    folder.mkdir()
    for name in (".hidden", "b.py", "a.md", *(f"z{number:02}" for number in range(MAX_FILES))):
        (folder / name).touch()
    with scripted() as client:
        await new_app(client).start(TASK, workspace=folder)
    emitted = [request for request in client.requests if "are in the team's folder" in request.system]
    assert emitted == requests_of(client, "classifier")
    assert ": a.md, b.py, z00, " in emitted[0].system
    assert "hidden" not in emitted[0].system
    assert f"z{MAX_FILES - 1:02}" not in emitted[0].system


@pytest.mark.parametrize(
    ("first", "path"),
    [(META, ("classifier",)), (classified("coding", "deep"), ("classifier", "clarifier", "planner", "lead"))],
    ids=["meta", "deep"],
)
async def test_every_query_enters_at_the_classifier(first: str, path: Sequence[str]) -> None:
    """S2-02, S3-23: and the run says who had the turn, in order."""
    replies = {"classifier": [first], "clarifier": [CLEAR], "planner": [CLEAR, PLAN], "lead": [DONE]}
    with scripted(**{agent: replies[agent] if agent in path else [] for agent in AGENTS}) as client:
        run = await new_app(client).start(TASK)
    assert client.requests[0].system.startswith("You are the classifier ")
    assert run.execution_path == path


@pytest.mark.parametrize("task", ["Build me a user authentication system", "What is CUDA?"])
async def test_demo_works_with_a_team_without_roles(task: str) -> None:
    """Its lead asks what the coder would ask, and answers what the researcher would."""
    client = demo_model()
    asked = await root_team(lambda _: client, TeamResources([])).run(task=task)
    paths = [question.path for question in message_questions(asked.messages[-1])]
    assert paths == ([("lead",)] if task == TASK else [])
    assert ("CUDA is NVIDIA's platform" in asked.messages[-1].to_text()) is (task != TASK)


@pytest.mark.parametrize(("intent", "agent"), ROLES)
async def test_shallow_query_goes_from_the_classifier_to_its_agent(intent: str, agent: str) -> None:
    """S2-02, S3-23: and the run says who had the turn, in order."""
    replies = {"researcher": [FOUND], "coder": [WRITE, CODED]}
    with shallow(intent, **{agent: replies[agent]}) as client:
        run = await new_app(client).start(TASK)
    assert run.execution_path == ("classifier", agent)


async def test_second_query_enters_at_the_classifier_too(tmp_path: Path) -> None:
    """S2-02, S2-06: with the first one and its reply as history."""
    with scripted(classifier=[META, META], clarifier=[], planner=[], lead=[], coder=[]) as client:
        team = root_team(lambda agent: client, TeamResources(roles_in(tmp_path)))
        await team.run(task="Hello! What can you do?")
        await team.run(task="What is CUDA?")
    assert [each["content"] for each in requests_of(client, "classifier")[1].messages[1:]] == [
        "Hello! What can you do?",
        "Hi! I plan and write code.",
        "What is CUDA?",
    ]


# -- who asks ---------------------------------------------------------------------------------------------------------


@pytest.mark.needs("research", "workspace")
@pytest.mark.parametrize(
    "order",
    [("framework", "laws"), ("laws", "framework"), ("framework laws",)],
    ids=["first-second", "second-first", "both"],
)
async def test_two_nested_agents_ask_at_the_same_time(order: Sequence[str]) -> None:
    """S4-45, S4-53, X1: whatever is answered continues, the rest stays open, and no work is done twice."""
    which_laws = Call("ask_user", {"question": "Which laws?"})
    with scripted(lead=[BOTH, DONE], coder=[ASK, WRITE, CODED], researcher=[which_laws, FOUND]) as client:
        run = await new_app(client).start(TASK)
        ids = open_ids(run)
        assert [question.path for question in run.questions] == [("lead", "coder"), ("lead", "researcher")]
        given = {"framework": (ids["Which framework?"], "Express"), "laws": (ids["Which laws?"], "GDPR")}
        for part in order:
            assert run.status is RunStatus.AWAITING_CLARIFICATION
            run = await answered(client, run, dict(given[word] for word in part.split()))
    assert (run.status, len(run.answers)) == (RunStatus.COMPLETED, 2)
    assert list(requests_of(client, "coder")[1].tool_results.values()) == ["Express"]
    assert list(requests_of(client, "researcher")[1].tool_results.values()) == ["GDPR"]


@pytest.mark.needs("workspace")
async def test_one_coder_asks_in_two_calls_of_one_batch() -> None:
    """Two questions with the same words and the same path are distinguished by their calls."""
    twice = Calls([Call("coder", {"task": "The API"}), Call("coder", {"task": "The tests"})])

    def reply(request: Request) -> Reply:
        if not request.system.startswith("You are the coder"):
            return script.reply_to(request)
        if not request.tool_results:
            return ASK
        task, answer = request.messages[1]["content"], next(iter(request.tool_results.values()))
        return json.dumps({"summary": f"{task} with {answer}."})

    script = Script(by_agent(lead=[twice, DONE], coder=[]))
    client = ScriptedModelClient(reply)
    asked = await new_app(client, questions={"ledger": False}).start(TASK)
    first, second = asked.questions
    assert (first.path, first.calls[0]) == (second.path, "call_5_1")
    await answered(client, asked, {first.id: "Express", second.id: "Django"})
    assert list(requests_of(client, "lead")[1].tool_results.values()) == [
        "The API with Express.\n\nWarnings:\n- it changed no file and ran no command",
        "The tests with Django.\n\nWarnings:\n- it changed no file and ran no command",
    ]


@pytest.mark.needs("workspace")
async def test_everybody_asks_in_one_run() -> None:
    """X3: eight questions in seven pauses, each answered by a new object; nobody is asked or does anything twice."""
    ask = [Call("ask_user", {"question": f"Detail {number}?"}) for number in range(3)]
    with scripted(
        clarifier=[asks("For whom?"), asks("Why?"), CLEAR],
        planner=[unclear("A?", "B?"), unclear("C?"), CLEAR, PLAN],
        lead=[ask[0], DELEGATE, DONE],
        coder=[ask[1], ask[2], WRITE, CODED],
    ) as client:
        run = await new_app(client).start(TASK)
        while run.status is RunStatus.AWAITING_CLARIFICATION:
            run = await answered(client, run, {question.id: "as you like" for question in run.questions})
    assert (run.status, len(run.answers)) == (RunStatus.COMPLETED, 8)
    assert run.execution_path == ("classifier", "clarifier", "planner", "lead")


@pytest.mark.needs("workspace")
async def test_question_as_json_or_tool_call_is_the_same() -> None:
    """X2: who answers in JSON has no tool to ask with; an option is chosen in the same way everywhere."""
    labels = ["Express", "FastAPI", "Django"]
    clarifier = json.dumps({"needs_clarification": True, "clarification_question": "Which one?", "options": labels})
    aspect = {"aspect": "framework", "clarification_question": "Which of these?", "possible_options": labels}
    planner = json.dumps({"needs_clarification": True, "ambiguity_details": [aspect]})
    with scripted(clarifier=[clarifier, CLEAR], planner=[planner, CLEAR, PLAN], coder=[ASK, WRITE, CODED]) as client:
        run, asked = await new_app(client).start(TASK), []
        while run.status is RunStatus.AWAITING_CLARIFICATION:
            asked += run.questions
            run = await answered(client, run, "2")
    assert [question.path for question in asked] == [("clarifier",), ("planner",), ("lead", "coder")]
    assert {type(question) for question in asked} == {Question}
    assert [[option.label for option in question.options] for question in asked] == [labels] * 3
    assert [answer.selected for answer in run.answers] == [("FastAPI",)] * 3
    for agent in AGENTS:
        offered = {tool["name"] for request in requests_of(client, agent) for tool in request.body["tools"]}
        assert ("ask_user" in offered) is (agent in ("lead", "coder")), agent


@pytest.mark.needs("workspace")
@pytest.mark.parametrize("word", ["skip", "no"])
async def test_answer_to_the_coder_is_never_a_command(word: str) -> None:
    """X6."""
    with scripted(coder=[ASK, WRITE, CODED]) as client:
        asked = await new_app(client).start(TASK)
        await answered(client, asked, word)
    assert list(requests_of(client, "coder")[1].tool_results.values()) == [word]


@pytest.mark.needs("workspace")
async def test_question_of_clarifier_is_skipped_of_coder_declined() -> None:
    with scripted(clarifier=[asks("For whom?")], coder=[ASK, WRITE, CODED]) as client:
        first = await new_app(client).start(TASK)
        second = await answered(client, first, Answer(question_id=first.questions[0].id, outcome=Outcome.SKIPPED))
        run = await answered(client, second, Answer(question_id=second.questions[0].id, outcome=Outcome.DECLINED))
    assert run.status is RunStatus.COMPLETED
    assert [answer.outcome for answer in run.answers] == [Outcome.SKIPPED, Outcome.DECLINED]


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.needs("workspace")
@pytest.mark.parametrize("failing", [1, 2, *range(4, 11)])
async def test_failure_of_any_call_is_resumed_without_repetition(failing: int, tmp_path: Path) -> None:
    """Ten calls with a pause in the middle; each is made once, and the one that failed once more. The third is the
    planner's check, which is done without."""
    script, calls = Script(by_agent(coder=[Call("list_files"), ASK, WRITE, CODED])), 0

    def reply(request: Request) -> Reply:
        nonlocal calls
        calls += 1
        return Fail(500) if calls == failing else script.reply_to(request)

    client = ScriptedModelClient(reply)
    run = await new_app(client).start(TASK, workspace=tmp_path / "out")
    failures = []
    while run.status is not RunStatus.COMPLETED and len(failures) < 3:
        if run.status is RunStatus.FAILED:
            failures.append(run.error)
            run = await new_app(client).resume(run.id)
        else:
            run = await answered(client, run, "Express")
    assert [str(error).count("HTTP 500") for error in failures] == [1]
    assert all(len(str(error).splitlines()) == 1 for error in failures)
    assert calls == 11
    script.assert_used_up()


FAILURES: list[Any] = [
    pytest.param(Fail(500), "HTTP 500", id="500"),
    pytest.param(Hang(), "did not answer in time", id="S2-32 hangs"),
    pytest.param(TypeError("unhashable"), "(TypeError)", id="S2-41 TypeError"),
]


def failing_first(failure: Reply | Exception, script: Script) -> ScriptedModelClient:
    """Return a model whose first call fails; then it plays the script."""
    failures = [failure]

    def reply(request: Request) -> Reply:
        if not failures:
            return script.reply_to(request)
        if isinstance(failed := failures.pop(), Exception):
            raise failed
        return failed

    return ScriptedModelClient(reply)


@pytest.mark.parametrize(("failure", "words"), FAILURES)
async def test_classifier_failure_ends_the_run_until_resumed(failure: Reply | Exception, words: str) -> None:
    """S2-33: once it continues, no agent reads of an error that is no longer true."""
    script = Script(by_agent(lead=[ASK, DONE], coder=[]))
    client = failing_first(failure, script)
    failed = await new_app(client, team={"llm_timeout": 0.05}).start(TASK)
    assert (failed.status, failed.result) == (RunStatus.FAILED, None)
    assert words in str(failed.error)
    assert failed.execution_path == ("classifier",)
    asked = await new_app(client).resume(failed.id)
    done = await answered(client, asked, "Express")
    script.assert_used_up()
    assert (done.status, done.error, done.result) == (RunStatus.COMPLETED, None, "All done.")
    assert not any(str(failed.error) in str(request.body) for request in client.requests)
    assert done.execution_path == ("classifier", "clarifier", "planner", "lead")


@pytest.mark.parametrize(("failure", "words"), FAILURES)
async def test_classifier_failure_in_plain_teams_is_the_last_message(
    failure: Reply | Exception, words: str, tmp_path: Path
) -> None:
    """S2-33."""
    script = Script(by_agent())
    client = failing_first(failure, script)
    team = root_team(lambda agent: client, TeamResources(roles_in(tmp_path)), TeamOptions(llm_timeout=0.5))
    last = (await team.run(task=TASK)).messages[-1]
    assert isinstance(last, TextMessage)
    assert last.source == "classifier"
    assert words in last.content
    assert (await team.run()).messages[-1].to_text().startswith("All done."), "called again it goes on"
    script.assert_used_up()
    assert not any(last.content in str(request.body) for request in client.requests)


async def test_server_that_is_missing_fails_the_run_until_back() -> None:
    """S2-10, S2-33."""
    server = LoopbackServer([META])
    with server:
        address = server.base_url
        server.stop()
        app = Upcall(
            store="runs.db", settings=Settings.read(None, models={"model": "m", "base_url": address, "max_retries": 0})
        )
        failed = await app.start("Hello!")
        server.start()
        done = await app.resume(failed.id)
    assert failed.status is RunStatus.FAILED
    assert "cannot be reached (" in str(failed.error)
    assert ". Check the base URL and the network." in str(failed.error)
    assert len(str(failed.error).splitlines()) == 1
    assert (done.status, done.result) == (RunStatus.COMPLETED, "Hi! I plan and write code.")


@pytest.mark.needs("workspace")
async def test_model_that_never_writes_json_still_completes_work() -> None:
    """Every fallback in one run: deep research, a question about the topic, a standing plan, plain reports."""
    text: Sequence[Reply] = ["I cannot do JSON."] * 2
    with scripted(
        classifier=text, clarifier=text, planner=[*text, *text], lead=[DELEGATE, "Done!"], coder=["Yes", "Yes"]
    ) as client:
        asked = await new_app(client).start(TASK)
        run = await answered(client, asked, "skip")
    assert TASK in asked.questions[0].question
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Done!")
    assert run.plan is not None
    assert run.plan.title == TASK
    unusable = "the model's reply could not be used, also after one repair, so "
    assert [each.replace(unusable, "").partition(";")[0] for each in run.warnings] == [
        "classifier: this was taken for deep research",
        "clarifier: a general question was asked",
        "planner: the plan has no steps",
        "lead/coder: it changed no file and ran no command",
    ]


# -- the scenario of seed S4 ------------------------------------------------------------------------------------------


def played() -> ScriptedModelClient:
    return scripted(coder=[Call("list_files"), ASK, WRITE, CODED])


Model = Callable[[], ScriptedModelClient]
SCENARIO = pytest.mark.parametrize("model", [played, demo_model], ids=["scripted", "demo"])


@pytest.mark.needs("workspace")
@SCENARIO
async def test_orchestrator_pauses_for_the_coder_s_question(model: Model) -> None:
    """S4-03 to S4-08, S4-13, S4-14: it waits, and no agent was given a result or read that anything is done."""
    client = model()
    run = await new_app(client).start(TASK)
    (question,) = run.questions
    assert run.status is RunStatus.AWAITING_CLARIFICATION
    assert question.as_text().startswith("coder (for lead) needs to know: Which framework?")
    assert [option.label for option in question.options] == ["Express", "FastAPI", "Django"]
    assert (question.path, len(question.calls)) == (("lead", "coder"), 2)
    assert [len(requests_of(client, agent)) for agent in ("lead", "coder")] == [1, 2]


@pytest.mark.needs("workspace")
@SCENARIO
async def test_answer_is_the_result_of_the_asking_call(model: Model) -> None:
    """S4-09 to S4-12, S4-15, S4-16, S4-35: in the same turn, with all that the coder had in mind."""
    client = model()
    asked = await new_app(client).start(TASK)
    before = len(client.requests)
    await answered(client, asked, "Use Express")
    request = client.requests[before]
    assert request.messages[-1]["role"] == "tool"
    assert request.tool_results[asked.questions[0].calls[-1]] == "Use Express"
    earlier = requests_of(client, "coder")[1].messages
    assert request.messages[: len(earlier)] == earlier


@pytest.mark.needs("workspace")
@SCENARIO
async def test_scenario_takes_the_fewest_model_calls_possible(model: Model) -> None:
    """Ten, over both processes: classifier, clarifier, planner 2, lead 2, coder 4. Each tool call is made once."""
    client = model()
    asked = await new_app(client).start(TASK)
    run = await answered(client, asked, "Express")
    assert run.status is RunStatus.COMPLETED
    assert len(client.requests) == 10
    assert not any(request.list_unpaired() for request in client.requests)
    made = [call["id"] for each in client.requests[-2].messages for call in each.get("tool_calls") or []]
    assert len(made) == len(set(made)) == len(client.requests[-2].tool_results)


@pytest.mark.needs("workspace")
@SCENARIO
async def test_question_never_becomes_a_result_or_a_task(model: Model) -> None:
    """S4-13, S4-15."""
    client = model()
    await answered(client, await new_app(client).start(TASK), "Express")
    for request in client.requests:
        assert not any("Which framework?" in result for result in request.tool_results.values())
    assert not any("Which framework?" in str(each) for each in requests_of(client, "lead"))


@pytest.mark.needs("workspace")
@SCENARIO
async def test_checkpoint_has_a_question_only_at_a_pause(model: Model) -> None:
    """The call, both frames that wait, and the words and the data of the hand-off; no member keeps a copy."""
    app = new_app(model())
    stored = await app.store.load((await app.start(TASK)).id)
    assert stored.checkpoint.dump().count("Which framework?") == 5


@pytest.mark.needs("workspace")
@SCENARIO
async def test_question_is_emitted_once_after_it_is_stored(model: Model) -> None:
    """S4-19, S4-29, S4-32."""
    app, emitted = new_app(model()), []
    async for item in app.start_stream(TASK):
        if isinstance(item, UserInputRequestedEvent):
            (run,) = await app.list()
            emitted.append((item, run))
    ((event, run),) = emitted
    ((asked,), (stored,)) = json.loads(event.metadata[QUESTIONS]), run.questions
    assert event.request_id == stored.id
    assert (asked["id"], asked["question"]) == (stored.id, "Which framework?")
    assert [option["label"] for option in asked["options"]] == ["Express", "FastAPI", "Django"]


@pytest.mark.needs("workspace")
@pytest.mark.parametrize(
    ("answer", "written"),
    [
        ("Express", "server.js"),
        ("2", "main.py"),
        ("django", "accounts/views.py"),
        ("Rails", "DESIGN.md"),
        ("What you like, but not Django", "DESIGN.md"),
    ],
)
async def test_demo_writes_what_was_chosen(answer: str, written: str, tmp_path: Path) -> None:
    client = demo_model()
    asked = await new_app(client).start(TASK, workspace=tmp_path / "out")
    run = await answered(client, asked, answer)
    assert run.status is RunStatus.COMPLETED
    assert (tmp_path / "out" / written).is_file()


# -- component --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_dumped_team_loads_and_works(tmp_path: Path) -> None:
    """S4-48: a team is declared in JSON, which is what a visual designer (AutoGen Studio) edits."""
    (tmp_path / "energy.md").write_text("# Energy\n")
    replies = {
        "classifier": [classified("coding", "deep")],
        "clarifier": [CLEAR],
        "planner": [unclear("A?"), CLEAR, PLAN],
        "lead": [DONE],
    }
    resources = TeamResources(roles_in(tmp_path, documents=[str(tmp_path)]))
    options = TeamOptions(check_questions=False)
    made = root_team(lambda agent: ReplayChatCompletionClient(replies.get(agent, []), MODEL_INFO), resources, options)
    loaded = Swarm.load_component(json.loads(made.dump_component().model_dump_json()))
    asked = (await loaded.run(task=TASK)).messages[-1]
    questions = message_questions(asked)
    answer = answer_message(match_answers("yes", questions), target="planner", questions=questions)
    assert "All done." in (await loaded.run(task=answer)).messages[-1].to_text()


@pytest.mark.needs("workspace")
async def test_file_reported_but_not_written_is_sent_back_once() -> None:
    shallow = '{"intent": "coding", "research_depth": "shallow"}'
    with scripted(classifier=[shallow], clarifier=[], planner=[], lead=[], coder=[CODED, WRITE, CODED]) as client:
        run = await new_app(client).start(TASK)
    assert "no call changed src/login.js" in str(requests_of(client, "coder")[1].messages[-1]["content"])
    assert (run.status, "Files:" in str(run.result), run.warnings) == (RunStatus.COMPLETED, True, ())


@pytest.mark.needs("workspace")
async def test_file_claimed_twice_but_never_written_is_warned_of() -> None:
    shallow = '{"intent": "coding", "research_depth": "shallow"}'
    with scripted(classifier=[shallow], clarifier=[], planner=[], lead=[], coder=[CODED, CODED]) as client:
        run = await new_app(client).start(TASK)
    assert "Files:" not in str(run.result)
    assert run.as_json()["warnings"][0] == "coder: no call changed src/login.js"
