"""The command line, each call in a process of its own, against a real server on loopback and a real SQLite file."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from scenario import ASK, TASK, WRITE, model, script, upcall
from seed_texts import BLOCKS
from settings_files import write_settings
from tried_shop import RUN, Shop

from upcall.runs.worth import RunWorth
from upcall.testing import Call, Calls, CutShort, Fail, Hang, Raw, Reply, Say
from upcall.testing.server import LoopbackServer

SHALLOW = '{"intent": "research", "meta_response": null, "research_depth": "shallow"}'


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_demo_stops_at_the_question_with_one_json_object() -> None:
    ended = upcall("run", TASK, "--detach", "--json")
    assert ended.status == 0
    question = ended.json["questions"][0]
    assert ended.json["status"] == "awaiting_clarification"
    assert question["path"] == ["lead", "coder"]
    assert question["options"] == [{"label": "Express"}, {"label": "FastAPI"}, {"label": "Django"}]


def test_demo_announces_in_line_one_that_it_is_scripted() -> None:
    assert upcall("run", "Hello! What can you do?").err.splitlines()[0].startswith("Demo: the replies")


@pytest.mark.slow
def test_demo_says_so_where_it_has_no_script() -> None:
    ended = upcall("run", "Sing me a song")
    assert (ended.status, "no script for this task" in ended.error) == (1, True)


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_demo_completes_with_an_answer_from_another_process() -> None:
    """S3-35, S3-43."""
    run_id = upcall("run", TASK, "--detach", "--json").json["run_id"]
    ended = upcall("answer", run_id, "Express", "--json")
    assert (ended.status, ended.json["status"]) == (0, "completed")
    assert Path("upcall-work", run_id, "server.js").is_file()


@pytest.mark.slow
def test_answer_to_a_held_run_says_what_holds_it() -> None:
    run_id = upcall("run", TASK, "--detach", "--json").json["run_id"]
    upcall("hold", "queue", "--reason", "The budget is spent.")
    ended = upcall("answer", run_id, "Express")
    assert "Held: the queue is held" in ended.err
    assert "The budget is spent." in ended.err
    assert f"Run {run_id} waits until it is released." in ended.err
    upcall("release", "queue")
    assert upcall("resume", run_id, "--json").json["status"] == "completed"


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_answer_is_the_asking_calls_result_without_repeated_work() -> None:
    """S4-10 to S4-12, and none of S4-13 to S4-16: counted over three processes."""
    with LoopbackServer(script()) as server:
        asked = upcall("run", TASK, "--detach", "--json", *model(server)).json
        before = len(server.requests)
        done = upcall("answer", asked["run_id"], "Express", "--json").json
        resumed = server.requests[before]
    assert done["status"] == "completed"
    assert resumed.tool_results[asked["questions"][0]["calls"][-1]] == "Express"
    assert (before, len(server.requests)) == (6, 9)


@pytest.mark.slow
def test_run_without_a_terminal_stops_and_explains_answering() -> None:
    ended = upcall("run", TASK)
    assert "Which framework?" in ended.out
    assert "upcall answer" in ended.out
    assert (ended.status, "Which framework?" in ended.err) == (0, False)


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_answer_command_works_for_options_beginning_with_a_dash() -> None:
    flag = Call("ask_user", {"question": "How is it pushed?", "options": ["--force", "--no-verify"]})
    with LoopbackServer(script(coder=[flag, "Done.", "Done."])) as server:
        emitted = upcall("run", TASK, "--detach", "--store", "its own.db", *model(server)).out
        (command,) = [line for line in emitted.splitlines() if "upcall answer" in line]
        done = upcall("answer", "--json", *shlex.split(command)[2:])
    assert done.json["status"] == "completed", done.err


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_fork_takes_short_question_ids_and_ticks_its_steps() -> None:
    run_id = upcall("run", TASK, "--detach", "--json").json["run_id"]
    question = upcall("show", run_id, "--json").json["questions"][0]["id"]
    upcall("answer", run_id, "Express")
    ended = upcall("fork", run_id, question[:5], "FastAPI")
    assert (ended.status, "with FastAPI" in ended.out) == (0, True)
    assert ended.err.count("[x] 1. [coder]") == 1


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_line_that_is_only_copied_agrees_to_no_risk() -> None:
    risk = {"question": "Delete it?", "clarification_type": "risk_confirmation", "options": ["Delete", "Keep"]}
    with LoopbackServer(script(coder=[Call("ask_user", risk), "Kept.", "Kept."])) as server:
        emitted = upcall("run", TASK, "--detach", *model(server)).out
        (command,) = [line for line in emitted.splitlines() if "upcall answer" in line]
        assert upcall("answer", shlex.split(command)[2], "Keep").status == 0
    assert "Delete" not in command


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_answers_by_id_settle_two_questions_in_turn() -> None:
    both = script(
        lead=[Calls([Call("coder", {"task": "x"}), Call("researcher", {"task": "y"})]), '{"summary": "Both."}'],
        researcher=[Call("ask_user", {"question": "Which edition?"}), '{"summary": "Read."}'],
    )
    with LoopbackServer(both) as server:
        asked = upcall("run", TASK, "--detach", "--json", *model(server)).json
        ids = {each["question"]: each["id"] for each in asked["questions"]}
        partly = upcall("answer", asked["run_id"], f"{ids['Which edition?']}=second", "--json").json
        done = upcall("answer", asked["run_id"], f"{ids['Which framework?']}=1", "--json").json
    assert [each["question"] for each in partly["questions"]] == ["Which framework?"]
    assert done["result"] == "Both."


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_answer_without_id_is_refused_for_two_open_questions() -> None:
    both = script(
        lead=[Calls([Call("coder", {"task": "x"}), Call("coder", {"task": "y"})])],
        coder=[ASK, Call("ask_user", {"question": "Which database?"})],
    )
    with LoopbackServer(both) as server:
        run_id = upcall("run", TASK, "--detach", "--json", *model(server)).json["run_id"]
        ended = upcall("answer", run_id, "Express")
    assert ended.status == 2
    assert "2 questions are open" in ended.error


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_same_question_of_two_agents_is_answered_once() -> None:
    both = script(
        lead=[Calls([Call("coder", {"task": "x"}), Call("researcher", {"task": "y"})]), '{"summary": "All done."}'],
        coder=[ASK, "Coded.", "Coded."],
        researcher=[ASK, "Found."],
    )
    with LoopbackServer(both) as server:
        asked = upcall("run", TASK, "--detach", *model(server))
        assert asked.out.count("Which framework?") + asked.err.count("Which framework?") == 1
        shown = " ".join(asked.out.split())  # Which of them comes first is open: the coder has a sandbox to set up.
        asker, other = ("coder", "researcher") if "coder (for lead) needs" in shown else ("researcher", "coder")
        assert f"{asker} (for lead) needs to know: Which framework?" in shown
        assert f"{other} (for lead) waits for this too." in shown
        ended = upcall("answer", asked.out.split("upcall answer ")[1].split()[0], "Express", "--json")
    assert ended.json["result"].startswith("All done.")


@pytest.mark.slow
def test_number_beyond_the_options_is_text_only_in_quotes() -> None:
    run_id = upcall("run", TASK, "--detach", "--json").json["run_id"]
    for given in ("7", f"{upcall('show', run_id, '--json').json['questions'][0]['id']}=7"):
        ended = upcall("answer", run_id, given)
        text = "There is no option 7: choose 1 to 3. If you mean the number itself, write '\"7\"' in quotes."
        assert (ended.status, text in ended.error) == (2, True)
    assert "with 7" in upcall("answer", run_id, '"7"', "--json").json["result"]


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_answer_that_is_no_option_is_refused_with_them() -> None:
    only = Call("ask_user", {"question": "Which?", "options": ["A", "B"], "allow_free_text": False})
    with LoopbackServer(script(coder=[only], lead=[Call("coder", {"task": "x"})])) as server:
        run_id = upcall("run", TASK, "--detach", "--json", *model(server)).json["run_id"]
        ended = upcall("answer", run_id, "C")
        still = upcall("show", run_id, "--json").json
    assert ended.status == 2
    assert "1. A, 2. B" in ended.error
    assert still["status"] == "awaiting_clarification"


def test_list_leaves_trials_out_and_worth_names_them(tmp_path: Path) -> None:
    shop = Shop(tmp_path, ["result", "nothing", "nothing"])

    async def measure() -> RunWorth:
        await shop.run()
        return await shop.app.worth.measure(RUN)

    tried, store = asyncio.run(measure()), ("--store", str(tmp_path / "runs.db"))
    assert [each["run_id"] for each in upcall("list", "--json", *store).json] == [RUN]
    shown = upcall("worth", RUN, "--json", *store).json["questions"]
    assert [each["trials"] for each in shown] == [[*each.trials] for each in tried.questions]


@pytest.mark.slow
def test_answer_repeated_is_harmless_and_another_names_the_answerer() -> None:
    run_id = upcall("run", TASK, "--detach", "--json", "--user", "alice").json["run_id"]
    upcall("answer", run_id, "Express", "--user", "alice")
    for again in ("express", "1"):
        assert upcall("answer", run_id, again, "--json").json["status"] == "completed"
    ended = upcall("answer", run_id, "Django")
    assert ended.status == 2
    assert "was answered by alice at" in ended.error
    assert "'Express'. That answer stands" in ended.error
    assert f"upcall fork {run_id} " in " ".join(ended.error.split())


@pytest.mark.slow
def test_question_can_be_declined() -> None:
    asked = upcall("run", TASK, "--detach", "--json").json
    done = upcall("answer", asked["run_id"], "--decline", asked["questions"][0]["id"], "--json").json
    assert "because none was chosen" in done["result"]


def slow(arguments: tuple[str, ...], says: str) -> object:
    """Return a row like others that are tried each time."""
    return pytest.param(arguments, says, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("show", "nosuchrun"), "Unknown run 'nosuchrun'"),
        slow(("answer", "nosuchrun", "x"), "Unknown run 'nosuchrun'"),
        slow(("resume", "nosuchrun"), "Unknown run 'nosuchrun'"),
        (("run", "   "), "The task is empty"),
        (("run",), "Missing argument 'TASK'. See: upcall run --help"),
        (("frobnicate",), "No such command 'frobnicate'. See: upcall --help"),
        (("inbx",), "No such command 'inbx'. Did you mean 'inbox'? See: upcall --help"),
        (("store", "frobnicate"), "No such command 'frobnicate'. See: upcall store --help"),
        (("run", "x", "--no-such-option"), "No such option: --no-such-option. Put a text that begins with a dash"),
        (("run", "x", "--model", "gpt-4o"), "Set OPENAI_API_KEY"),
        slow(("run", "x", "--base-url", "http://127.0.0.1:1/v1"), "add --model NAME"),
        slow(("run", "x", "--config", "missing.yaml"), "missing.yaml: No such file"),
        slow(("run", "x", "--docs", "missing.md"), "missing.md does not exist"),
        (("run", "x", "y"), "Put the text in quotes"),
        slow(("run", "x", "--model", "m", "--base-url", "localhost:8000"), "must begin with http"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_use_gets_one_line_and_status_2(arguments: tuple[str, ...], expected: str) -> None:
    ended = upcall(*arguments)
    assert ended.status == 2
    assert expected in ended.error
    assert "secret" not in ended.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Fail(401), "refused the key (HTTP 401)"),
        (Fail(404), "does not know this model or address (HTTP 404)"),
        (Fail(429), "limits the rate or the quota (HTTP 429)"),
        (Fail(503), "failed (HTTP 503)"),
        (Fail(400, "context is too long"), "context is too long"),
        (Raw("no json"), "reported an error: no json"),
        (Raw('{"choices": null}'), "sent a reply that cannot be read"),
        (Hang(60), "did not answer in time"),
    ],
    ids=str,
)
def test_model_failure_is_one_line_and_the_run_resumes(reply: Reply, expected: str) -> None:
    quick = {
        "UPCALL_MODELS__MAX_RETRIES": "0",
        "UPCALL_MODELS__TIMEOUT": "2",
        "UPCALL_MODELS__SERVER_WAIT": "0",
        "OPENAI_API_KEY": "sk-very-secret",
    }
    with LoopbackServer([SHALLOW, reply, Say('{"summary": "An answer."}')]) as server:
        ended = upcall("run", "What is CUDA?", *model(server), **quick)
        run_id = upcall("list", "--json").json[0]["run_id"]  # type: ignore[index]
        resumed = upcall("resume", run_id, "--json", **quick)
    assert ended.status == 1
    assert expected in ended.error
    assert f"upcall resume {run_id}" in ended.error
    assert "sk-very-secret" not in ended.err + Path("upcall.db").read_bytes().decode(errors="replace")
    assert resumed.json["result"] == "An answer."


@pytest.mark.slow
def test_stream_cut_short_fails_the_run_and_completes_nothing() -> None:
    with LoopbackServer([SHALLOW, CutShort("half of a"), Say('{"summary": "Whole."}')]) as server:
        ended = upcall(
            "run", "What is CUDA?", *model(server), UPCALL_TEAM__STREAM="true", UPCALL_MODELS__MAX_RETRIES="0"
        )
        run_id = ended.error.rsplit(" ", 1)[1]
        resumed = upcall("resume", run_id, "--json")
    assert "cut its reply short" in ended.error
    assert resumed.json["result"] == "Whole."


@pytest.mark.slow
def test_server_that_is_not_there_is_reported() -> None:
    ended = upcall("run", "x", "--model", "m", "--base-url", "http://127.0.0.1:9/v1", UPCALL_MODELS__MAX_RETRIES="0")
    assert ended.status == 1
    assert "cannot be reached" in ended.error


@pytest.mark.slow
def test_key_that_the_server_repeats_is_not_printed() -> None:
    with LoopbackServer([Fail(400, "bad request with key sk-very-secret")]) as server:
        ended = upcall("run", "x", *model(server), "--debug", OPENAI_API_KEY="sk-very-secret")
    assert "with key [key]" in ended.error
    assert "sk-very-secret" not in ended.err


@pytest.mark.needs("workspace")
@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM], ids=lambda each: each.name)
def test_interrupted_run_is_stored_and_resume_repeats_nothing(stop: signal.Signals) -> None:
    hanging = script(coder=[WRITE, Hang(60), '{"summary": "Written."}'])
    with LoopbackServer(hanging) as server:
        status, text = interrupted_at(server, 7, stop)
        run_id = upcall("list", "--json").json[0]["run_id"]  # type: ignore[index]
        before = len(server.requests)
        done = upcall("resume", run_id, "--json").json
    assert (status, f"upcall resume {run_id}" in text) == (130, True)
    assert (done["status"], len(server.requests) - before) == ("completed", 2)


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_killed_run_is_interrupted_and_continues_from_its_checkpoint() -> None:
    replies = script(
        coder=[ASK, WRITE, Hang(60), WRITE, '{"summary": "Written."}'],
    )
    with LoopbackServer(replies) as server:
        run_id = upcall("run", TASK, "--detach", "--json", *model(server)).json["run_id"]
        interrupted_at(server, 8, signal.SIGKILL, "answer", run_id, "Express")
        assert upcall("show", run_id, "--json").json["status"] == "executing"
        advice = f"nobody works on it: upcall resume {run_id}"
        assert f"Status   executing (interrupted, {advice})" in upcall("show", run_id).out
        for listing in (upcall("list"), upcall("inbox")):
            assert f"Interrupted, nobody works on it. Continue with:\n  upcall resume {run_id}" in listing.err
        done = upcall("resume", run_id, "--json").json
    assert (done["status"], done["result"]) == ("completed", "All done.")


@pytest.mark.needs("workspace")
@pytest.mark.slow
@pytest.mark.parametrize("pause", [0, 0.02, 0.1, 0.3])
def test_stop_pressed_twice_ends_with_one_status_without_traceback(pause: float) -> None:
    hanging = script(coder=[WRITE, Hang(60)], lead=[Call("coder", {"task": "Build authentication"})])
    with LoopbackServer(hanging) as server:
        status, text = interrupted_at(server, 7, signal.SIGINT, again_after=pause)
    assert status == 130
    assert ("Stopped." in text, "Traceback" in text, "rror" in text) == (True, False, False)


def interrupted_at(
    server: LoopbackServer, requests: int, stop: signal.Signals, *arguments: str, again_after: float | None = None
) -> tuple[int, str]:
    """Run the command line until the server has this many requests, then send the signal, perhaps twice."""
    process = subprocess.Popen(
        [sys.executable, "-m", "upcall", *(arguments or ("run", TASK)), *model(server)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while len(server.requests) < requests and process.poll() is None:
        threading.Event().wait(0.02)
    process.send_signal(stop)
    if again_after is not None:
        threading.Event().wait(again_after)
        process.send_signal(stop)
    _, output = process.communicate(timeout=60)
    return process.returncode, output


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_model_of_a_run_stays_unless_a_flag_overrides() -> None:
    begin = script(lead=[Call("coder", {"task": "x"})], coder=[ASK])
    end = script(
        classifier=[], clarifier=[], planner=[], lead=['{"summary": "Done."}'], coder=[WRITE, '{"summary": "Ok."}']
    )
    with LoopbackServer(begin) as first, LoopbackServer(end) as second:
        run_id = upcall("run", TASK, "--detach", "--json", *model(first)).json["run_id"]
        upcall("answer", run_id, "Express", *model(second))
        assert len(second.requests) == 3


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_show_prints_plan_answers_and_tokens() -> None:
    run_id = upcall("run", TASK, "--detach", "--json", "--user", "alice").json["run_id"]
    upcall("answer", run_id, "Express", "--user", "alice")
    shown = upcall("show", run_id).out
    assert "# User authentication system" in shown
    assert "by alice at" in shown
    assert "lead/coder" in shown


@pytest.mark.slow
def test_list_is_an_array_newest_first_or_empty() -> None:
    assert json.loads(upcall("list", "--json").out) == []
    assert not Path("upcall.db").exists()
    for task in ("Hello! What can you do?", "What is CUDA?"):
        upcall("run", task)
    assert len(json.loads(upcall("list", "--json").out)) == 2


@pytest.mark.slow
def test_runs_started_together_on_a_new_store_all_stay() -> None:
    with ThreadPoolExecutor(4) as pool:
        ended = list(pool.map(lambda task: upcall("run", task, "--store", "new.db"), ["What is CUDA?"] * 4))
    assert [each.status for each in ended] == [0] * 4
    assert len(upcall("list", "--store", "new.db").out.splitlines()) == 4


@pytest.mark.parametrize(
    ("workspace", "output"),
    [
        ("notes.txt", "notes.txt: it is not a folder. Name another --workspace."),
        ("notes.txt/shop", "notes.txt: it is not a folder."),
        ("/proc/shop", "The workspace /proc/shop cannot be used: /proc: it cannot be written ("),
        ("a" * 300, "it cannot be written (File name too long)."),
    ],
    ids=lambda text: text[:14],
)
def test_workspace_that_cannot_be_made_is_refused_early(workspace: str, output: str) -> None:
    Path("notes.txt").write_text("this is no folder")
    ended = upcall("run", TASK, "--workspace", workspace)
    assert (ended.status, output in ended.error, "\n" in ended.error) == (2, True, False)
    assert json.loads(upcall("list", "--json").out) == []


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_workspace_is_not_made_before_its_first_file() -> None:
    assert upcall("run", TASK, "--workspace", "deep/shop", "--detach").status == 0
    assert sorted(each.name for each in Path().iterdir() if each.is_dir()) == []


@pytest.mark.slow
def test_run_resumes_at_another_address_with_its_own_model() -> None:
    with LoopbackServer(['{"intent": "meta", "meta_response": "Hello."}']) as server:
        wrong = ("--model", "mine", "--base-url", "http://127.0.0.1:9/v1")
        run_id = upcall("run", "hi", *wrong, UPCALL_MODELS__MAX_RETRIES="0").error.rsplit(" ", 1)[1]
        done = upcall("resume", run_id, "--base-url", server.base_url, "--json").json
    assert done["result"] == "Hello."
    assert server.requests[0].body["model"] == "mine"


def test_refused_command_is_one_json_object_too() -> None:
    ended = upcall("show", "nosuchrun", "--json")
    assert (ended.status, ended.json["run_id"]) == (2, None)
    assert "Unknown run" in ended.json["error"]
    wrong = upcall("run", TASK, "--priority", "high", "--json")
    assert (wrong.status, wrong.json["run_id"], "valid integer" in wrong.json["error"]) == (2, None, True)


def test_without_arguments_the_help_is_shown() -> None:
    assert "Start a run." in upcall().out
    store = upcall("store")
    assert (store.status, "Count runs by status" in store.out, store.err) == (0, True, "")
    assert upcall("--version").out.startswith("upcall 0.")


@pytest.mark.slow
def test_show_prints_the_open_question_with_the_run() -> None:
    run_id = upcall("run", TASK, "--detach", "--json").json["run_id"]
    shown = upcall("show", run_id).out
    assert "Which framework?" in shown
    assert f"answer {run_id} Express" in shown


@pytest.mark.slow
def test_cancel_ends_a_run_and_later_answers_are_refused() -> None:
    run_id = upcall("run", TASK, "--detach", "--json").json["run_id"]
    assert upcall("cancel", run_id, "--json").json["status"] == "cancelled"
    ended = upcall("answer", run_id, "Express")
    assert (ended.status, "is cancelled" in ended.error) == (2, True)


def test_read_only_folder_is_reported_before_any_model_call() -> None:
    Path("notes.txt").write_text("this is no folder")
    ended = upcall("run", TASK, "--store", "notes.txt/runs.db")
    assert ended.status == 1
    assert "its folder does not exist" in ended.error


def test_file_that_is_no_database_is_refused_and_kept() -> None:
    Path("letter.txt").write_text("Dear reader, " * 100)
    ended = upcall("run", TASK, "--store", "letter.txt")
    assert "Cannot read the store" in ended.error
    assert Path("letter.txt").read_text().startswith("Dear reader")


@pytest.mark.slow
def test_budget_is_asked_about_and_shown() -> None:
    run = upcall("run", TASK, "--budget", "3 calls", "--json").json
    assert (run["status"], run["budget"]["spent"]["calls"]) == ("awaiting_clarification", 3)
    wrong = upcall("answer", run["run_id"], "perhaps")
    assert (wrong.status, "'perhaps' is not an amount" in wrong.error) == (2, True)
    ended = upcall("answer", run["run_id"], "no", "--json")
    assert (ended.status, ended.json["status"], ended.json["stop_reason"]) == (5, "completed", "budget")
    shown = upcall("show", run["run_id"]).out
    assert "Budget   3 of 3 calls" in shown
    assert "it was stopped at its budget" in shown


@pytest.mark.needs("workspace")
@pytest.mark.parametrize(
    ("replies", "reason", "says"),
    [
        ([Call("list_files")] * 4 + ["There is nothing."], "repeats", "There is nothing."),
        ([Call("list_files", {"glob": each}) for each in "ab"], "max_rounds", "Calls made: list_files (2)."),
    ],
)
def test_exit_status_of_a_run_that_a_limit_stopped(replies: list[Reply], reason: str, says: str) -> None:
    coding = SHALLOW.replace('"research"', '"coding"')
    rounds = "2" if reason == "max_rounds" else "30"
    with LoopbackServer([coding, *replies]) as server:
        ended = upcall("run", "List it", "--json", *model(server), UPCALL_TEAM__MAX_ROUNDS=rounds)
        shown = upcall("show", ended.json["run_id"])
    assert (ended.status, ended.json["status"], ended.json["stop_reason"]) == (5, "completed", reason)
    assert says in ended.json["result"]
    assert "completed (not finished: " in shown.out


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_plan_is_reviewed_over_processes() -> None:
    """S0-14, S0-15: an edit, then the approval; no option says to a later process that there is a review."""
    run_id = upcall("run", TASK, "--review-plan", "--json").json["run_id"]
    shown = upcall("answer", run_id, "edit step 1: Use Argon2", "--json").json["questions"][0]
    asked = upcall("answer", run_id, "OK!", "--json").json["questions"][0]
    emitted = upcall("show", run_id).out
    assert "1. [coder] Use Argon2" in shown["question"]
    assert asked["path"] == ["lead", "coder"]
    assert "Plan     approved, version 2" in emitted


@pytest.mark.slow
def test_seed_blocks_run_unchanged_and_their_gaps_are_noted() -> None:
    """S0-48, S0-49, S2-23, S2-25: with `verbose` each reply of the model is printed."""
    write_settings(BLOCKS)
    ended = upcall("run", TASK)
    assert (ended.status, ended.err.count("note: ")) == (0, 2)
    assert "note: The llm 'nemotron_llm' is defined nowhere" in ended.err
    assert "note: No tool is called 'web_search_tool'" in ended.err
    assert [line.split()[0] for line in ended.err.splitlines() if " replied: " in line] == [
        "classifier",
        "clarifier",
        "planner",
        "planner",
    ]
    assert "Do you approve this plan?" in ended.out


def test_keys_of_a_tool_stay_out_of_tracebacks() -> None:
    tool = {
        "provider": "autogen_core.tools.FunctionTool",
        "config": {"name": "search", "headers": {"Authorization": "Bearer verysecret123"}},
    }
    write_settings(json.dumps({"tools": [tool]}))
    ended = upcall("run", TASK, "--debug")
    assert ended.status == 2
    assert "Traceback" in ended.err
    assert "verysecret123" not in ended.err + ended.out


def test_misspelt_variable_of_the_environment_is_noted() -> None:
    assert "note: UPCALL_MODLE is not a setting" in upcall("run", "Hello", UPCALL_MODLE="gpt-4o").err


def test_prompts_with_unknown_variables_are_refused_at_the_start() -> None:
    """S0-54."""
    Path("mine").mkdir()
    Path("mine", "lead.j2").write_text("You are the lead of {{ everybody }}.")
    ended = upcall("run", TASK, UPCALL_TEAM__PROMPTS="mine")
    assert ended.status == 2
    assert "everybody" in ended.error
    assert not Path("upcall.db").exists()


@pytest.mark.slow
def test_control_characters_of_a_model_are_shown_not_sent() -> None:
    alert = '{"summary": "red \\u001b[31m alert\\u009b2J"}'
    with LoopbackServer([SHALLOW, alert, SHALLOW, alert]) as server:
        ended = upcall("run", "hi", *model(server))
        plain = upcall("run", "hi", "--json", *model(server))
    assert "red \\x1b[31m alert\\x9b2J" in ended.out
    assert not {"\x1b", "\x9b"} & set(ended.out + plain.out)
    assert "alert\u009b2J" in plain.json["result"]


@pytest.mark.slow
def test_json_is_all_that_stands_on_standard_output() -> None:
    ended = upcall("run", "What is CUDA?", "--json")
    assert set(ended.json) == {
        "run_id",
        "status",
        "interrupted",
        "result",
        "error",
        "questions",
        "assumptions",
        "stop_reason",
        "warnings",
    }


@pytest.mark.slow
def test_failed_run_is_one_json_object_too() -> None:
    with LoopbackServer([Fail(401)]) as server:
        ended = upcall("run", "x", "--json", *model(server))
    assert (ended.status, ended.json["status"]) == (1, "failed")
    assert "refused the key" in ended.json["error"]


@pytest.mark.slow
def test_output_closed_early_or_without_unicode_is_no_fault() -> None:
    task = "T\u00e4sk \u65e5\u672c"
    run_id = upcall("run", task, "--detach", "--json", "--model", "demo").json["run_id"]
    show = f"{sys.executable} -m upcall show {run_id}"
    for what in ("", " --json", " --svg -"):
        done = subprocess.run(["bash", "-c", f"{show}{what} | true"], capture_output=True, text=True, check=False)
        assert "fault" not in done.stderr
    assert "T\\xe4sk \\u65e5" in upcall("list", PYTHONIOENCODING="ascii").out
    assert upcall("show", run_id, "--json", PYTHONIOENCODING="ascii").json["run_id"] == run_id
    assert upcall("show", run_id, "--svg", "-", PYTHONIOENCODING="ascii").status == 0


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_say_sends_a_message_that_the_waiting_agent_reads() -> None:
    run_id = upcall("run", TASK, "--detach", "--json").json["run_id"]
    sent = upcall("say", run_id, "Use tabs.", "--to", "coder")
    assert (sent.status, f"Run {run_id} waits for an answer. The message is kept" in sent.err) == (0, True)
    answered = upcall("answer", run_id, "Express")
    assert "reads what you wrote: Use tabs." in answered.err
    assert "Use tabs." in upcall("transcript", run_id).out
    log = upcall("log", run_id).out
    assert ("message taken" in log, "Use tabs." in log) == (True, False)


@pytest.mark.needs("workspace")
@pytest.mark.slow
def test_say_to_an_unknown_agent_names_those_there_are() -> None:
    run_id = upcall("run", TASK, "--detach", "--json").json["run_id"]
    refused = upcall("say", run_id, "Use tabs.", "--to", "codr")
    assert refused.status == 2
    assert f"Run {run_id} has no agent 'codr'. Known: classifier, clarifier, planner, lead, " in refused.error
    assert "lead/coder" in refused.error
    refused = upcall("say", run_id, "Use tabs.", "--to", "planner")
    assert "planner reads no messages while it works. These do: lead, lead/coder" in refused.error


@pytest.mark.slow
def test_stop_refuses_a_run_that_nobody_works_on() -> None:
    run_id = upcall("run", TASK, "--detach", "--json").json["run_id"]
    ended = upcall("stop", run_id)
    assert (ended.status, "nobody works on it" in ended.error) == (2, True)


def test_several_assumptions_are_overruled_by_one_command() -> None:
    run_id = upcall("run", TASK, "--model", "demo", "--on-ask", "assume", "--json").json["run_id"]
    (asked,) = upcall("show", run_id, "--json").json["assumptions"]
    refused = upcall("fork", run_id, asked["id"], "FastAPI", "--replace", "--also", "Django")
    assert "--also 'Django' is none: give QUESTION=ANSWER." in refused.error
    pair = f"{asked['id']}=Django"
    again = upcall("fork", run_id, asked["id"], "FastAPI", "--replace", "--also", pair, "--also", pair)
    assert "was given two answers; give one" in again.error
    twice = upcall("fork", run_id, asked["id"], "FastAPI", "--replace", "--also", pair)
    assert "was given two answers at once" in twice.error
