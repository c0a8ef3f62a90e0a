"""The runs as tasks of A2A, by the client of that protocol's own package over loopback."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("a2a", reason="the extra a2a is not installed")

import httpx
from a2a.helpers import new_data_part
from a2a.types import (
    CancelTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
)
from a2a.types import TaskState as S
from a2a.utils.errors import (
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a_client import A2A, COMPLETED, INPUT_REQUIRED, OLDER, WORKING, as_user, questions_of, result_of, text_of
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from services import ASK, TIMEOUT_S, Site, one_agent, serving, settle, start
from trips import BOOKED, TRIP, Trip
from trips import make_team as make_trips

from upcall import PausableAgent
from upcall.errors import CallerError
from upcall.runs.states import RunStatus
from upcall.server.a2a.parts import read_answers
from upcall.server.a2a.tasks import STATES
from upcall.server.events import STREAMS_PER_CALLER
from upcall.testing import Call, Calls, Fail, Reply, ScriptedModelClient

STRICT = Call("ask_user", {**ASK.arguments, "allow_free_text": False})
OTHER = Call("ask_user", {"question": "Which database?"})
TWO = Calls([Call("ask_user", {"question": each}) for each in ("Which name?", "Which colour?")])
RISK = Call(
    "ask_user", {"question": "Delete all?", "clarification_type": "risk_confirmation", "options": ["Yes", "No"]}
)


def make_nested() -> Team:
    """Return a team whose nested agent asks."""
    why = {"context": "Both would do.", "options": ["Express", "FastAPI"], "default": "Express"}
    model = ScriptedModelClient(
        {
            "You lead": [Call("coder", {"task": "Code it"}), "Built."],
            "You code": [Call("ask_user", {"question": "Which framework?", **why}), "Coded."],
        }
    )
    coder = PausableAgent("coder", model, system_message="You code.", description="Codes.")
    return RoundRobinGroupChat([PausableAgent("lead", model, system_message="You lead.", agents=[coder])], max_turns=1)


BINDINGS = ["JSONRPC", *(pytest.param(each, marks=pytest.mark.slow) for each in ("HTTP+JSON", OLDER))]

# -- asking and answering ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("binding", BINDINGS)
async def test_nested_question_is_required_input_and_answered(binding: str, streaming: bool) -> None:
    async with serving(make_nested) as site, as_user(site, "alice", streaming=streaming, binding=binding) as client:
        task = await client.send("Build it")
        assert task.status.state == INPUT_REQUIRED
        assert text_of(task).startswith("coder (for lead) needs to know: Which framework?\n  Reason: Both would do.")
        (question,) = questions_of(task)
        assert (question["path"], question["reason"]) == (["lead", "coder"], "Both would do.")
        assert [each["label"] for each in question["options"]] == ["Express", "FastAPI"]
        assert question["schema"]["anyOf"][0] == {"type": "string", "enum": ["Express", "FastAPI"]}
        done = await client.answer(task, **{question["id"]: "Express"})
    assert (done.status.state, result_of(done), done.context_id) == (COMPLETED, "Built.", task.context_id)
    assert [each.role for each in done.history] == [1, 2, 1]


async def test_text_with_the_task_id_answers() -> None:
    async with serving(one_agent(ASK, "Built.")) as site, as_user(site, "alice") as client:
        task = await client.send("Build it")
        assert result_of(await client.send("FastAPI", task=task)) == "Built."
        async with await site.caller("alice") as http:
            run = (await http.get(f"/api/runs/{task.id}/transcript")).json()
    assert "FastAPI" in [each["text"] for each in run if each["kind"] == "answer"]


async def refuse(client: A2A, task: Task, *content: object) -> str:
    """Send what is refused; return the one line, after a look whether the task waits as before."""
    before = await client.get(task)
    with pytest.raises(InvalidParamsError) as refused:
        await client.send(*content, task=task)
    assert (await client.get(task)) == before
    assert before.status.state == INPUT_REQUIRED
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("binding", BINDINGS)
async def test_answer_that_does_not_fit_leaves_input_required(binding: str) -> None:
    async with serving(one_agent(STRICT)) as site, as_user(site, "alice", binding=binding) as client:
        task = await client.send("Build it")
        (question,) = questions_of(task)
        by_id = {question["id"]: "Rails"}
        assert "'Rails' is not an option" in await refuse(client, task, "Rails")
        assert "takes no files" in await refuse(client, task, "Express", Part(raw=b"x", media_type="text/plain"))
        assert "'Rails' is not an option" in await refuse(client, task, {"answers": by_id})
        unknown = await refuse(client, task, {"answers": {"nothing": "Express"}})
        assert "nothing" in unknown
        assert question["id"] in unknown
        assert 'Send the data {"answers": {"ID": ANSWER}}' in await refuse(client, task, {"answer": "Express"})
        assert 'Send the data {"answers": {"ID": ANSWER}}' in await refuse(client, task, ["Express"])


async def test_questions_open_at_once_are_answered_one_by_one() -> None:
    async with serving(one_agent(TWO, "Built.")) as site, as_user(site, "alice") as client:
        task = await client.send("Build it")
        name, colour = questions_of(task)
        assert (name["question"], colour["question"]) == ("Which name?", "Which colour?")
        assert "2 questions are open" in await refuse(client, task, "Red")
        left = await client.answer(task, **{colour["id"]: "Red"})
        assert (left.status.state, [each["id"] for each in questions_of(left)]) == (INPUT_REQUIRED, [name["id"]])
        assert result_of(await client.send("Ada", task=task)) == "Built."


async def test_questions_open_at_once_are_answered_by_number() -> None:
    async with serving(one_agent(TWO, "Built.")) as site, as_user(site, "alice") as client:
        task = await client.send("Build it")
        done = await client.send("1. Ada; 2. Red", task=task)
    texts = [part.text for each in done.history for part in each.parts if each.role == 1 and part.HasField("text")]
    assert (texts, result_of(done)) == (["Build it", "Ada", "Red"], "Built.")


async def test_typed_answer_is_data_with_its_fields() -> None:
    async with serving(make_trips) as site, as_user(site, "alice") as client:
        task = await client.send("Book it")
        (question,) = questions_of(task)
        assert {*question["schema"]["properties"]} == {*Trip.model_fields}
        refused = await refuse(client, task, {"answers": {question["id"]: {**TRIP, "nights": 0}}})
        assert "nights: Input should be greater than or equal to 1" in refused
        done = await client.answer(task, **{question["id"]: {**TRIP, "nights": 2}})
    assert result_of(done) == BOOKED


async def test_risk_is_left_to_a_person_or_declined() -> None:
    async with serving(one_agent(RISK, "Kept.")) as site, as_user(site, "alice") as client:
        task = await client.send("Clean up")
        (question,) = questions_of(task)
        assert question["needs_person"]
        for answer in ("Yes", {"answers": {question["id"]: "Yes"}}):
            assert "is for a person to answer, and no program" in await refuse(client, task, answer)
        declined = {question["id"]: {"outcome": "declined", "text": "Not now."}}
        assert result_of(await client.answer(task, **declined)) == "Kept."


async def test_question_of_somebody_else_is_theirs_to_answer() -> None:
    async with (
        serving(one_agent(ASK, "Built."), questions={"assign": [{"agent": "agent", "to": "bob"}]}) as site,
        as_user(site, "alice") as alice,
        as_user(site, "bob") as bob,
        as_user(site, "eve") as eve,
    ):
        task = await alice.send("Build it")
        assert (task.status.state, text_of(task)) == (INPUT_REQUIRED, "It waits for the answer of somebody else: bob.")
        assert "no open question that is yours" in await refuse(alice, task, "Express")
        with pytest.raises(TaskNotFoundError):
            await eve.get(task)
        (question,) = questions_of(await bob.get(task))
        await bob.answer(task, **{question["id"]: "Express"})
        assert result_of(await alice.get(task)) == "Built."


# -- the same again, and what else a message does ---------------------------------------------------------------------


async def test_same_message_begins_one_run_and_answers_one_question() -> None:
    async with serving(one_agent(ASK, OTHER, "Built.")) as site, as_user(site, "alice") as client:
        first, again = [await client.send("Build it", message_id="m1", context_id="ours") for _ in range(2)]
        assert first == again
        assert (first.context_id, first.history[0].message_id) == ("ours", "m1")
        asked, repeated = [await client.send("Express", task=first, message_id="m2") for _ in range(2)]
        assert asked == repeated
        assert (asked.status.state, len(asked.history)) == (INPUT_REQUIRED, 3)
        assert questions_of(asked) != questions_of(first)
        assert (await client.client.list_tasks(ListTasksRequest())).total_size == 1
        with pytest.raises(InvalidParamsError, match="of the context ours, not theirs"):
            await client.send("Express", task=first, context_id="theirs")


@pytest.mark.parametrize("named", [pytest.param({}, marks=pytest.mark.slow), {"context_id": "ours"}])
async def test_message_id_of_another_task_is_refused(named: dict[str, str]) -> None:
    async with serving(one_agent("One.", "Two.")) as site, as_user(site, "alice") as client:
        task = await client.send("Do one", message_id="m1", **named)
        for other in (["Do two"], ["Do one", {"more": 1}], [Part(raw=b"Notes", filename="a.txt"), "Do one"]):
            with pytest.raises(InvalidParamsError, match=f"another message, which began the task {task.id}"):
                await client.send(*other, message_id="m1", **named)
        assert await client.send("Do one", message_id="m1", **named) == task
        assert result_of(await client.send("Do two", message_id="m2", **named)) == "Two."
        assert len((await client.client.list_tasks(ListTasksRequest())).tasks) == 2


async def test_repeated_data_is_harmless_and_another_answer_is_refused() -> None:
    async with serving(one_agent(ASK, "Built.")) as site, as_user(site, "alice") as client:
        task = await client.send("Build it")
        (question,) = questions_of(task)
        done = await client.answer(task, **{question["id"]: "Express"})
        assert await client.answer(task, **{question["id"]: "Express"}) == done
        with pytest.raises(InvalidParamsError, match="was answered"):
            await client.answer(task, **{question["id"]: "FastAPI"})
        with pytest.raises(UnsupportedOperationError, match="is completed and takes no message"):
            await client.send("More", task=task)


class Gate:
    """A tool that waits until a test lets it through, and its team."""

    def __init__(self, *replies: Reply) -> None:
        self.begun, self.opened = asyncio.Event(), asyncio.Event()
        self.model = ScriptedModelClient([Call("wait"), *replies])

    async def wait(self) -> str:
        """Wait."""
        self.begun.set()
        await self.opened.wait()
        return "waited"

    def make_team(self) -> Team:
        return RoundRobinGroupChat([PausableAgent("agent", self.model, tools=[self.wait])], max_turns=1)


@pytest.mark.parametrize(("reply", "last"), [("Built.", COMPLETED), (ASK, INPUT_REQUIRED)])
async def test_stream_brings_each_change_once(reply: Reply, last: S) -> None:
    gate = Gate(reply)
    events: list[StreamResponse] = []
    async with serving(gate.make_team) as site, as_user(site, "alice", streaming=True) as client:
        message = Message(message_id="m1", role=1, parts=[Part(text="Build it")])
        async for event in client.client.send_message(SendMessageRequest(message=message)):
            gate.opened.set()
            events.append(event)
    artifacts = [each.artifact_update.artifact for each in events if each.HasField("artifact_update")]
    assert events[0].task.status.state == WORKING
    assert [each.parts[0].text for each in artifacts] == (["Built."] if last == COMPLETED else [])
    assert [each.status_update.status.state for each in events if each.HasField("status_update")] == [last]
    assert events[-1].HasField("status_update")


async def test_message_in_the_same_context_follows_the_completed_task() -> None:
    async with serving(one_agent("One.", "Two.", "Three.")) as site, as_user(site, "alice") as client:
        first = await client.send("Do one", context_id="ours")
        second = await client.send("Do two", context_id="ours")
        async with await site.caller("alice") as http:
            assert (await http.get(f"/api/runs/{second.id}")).json()["follows"] == first.id
        found = await client.client.list_tasks(ListTasksRequest(context_id="ours"))
        third = await client.send("Do three", context_id="ours")
        async with await site.caller("alice") as http:
            assert (await http.get(f"/api/runs/{third.id}")).json()["follows"] == second.id
    assert {each.id for each in found.tasks} == {second.id, first.id}


async def test_runs_following_a_task_elsewhere_share_its_context() -> None:
    replies = [f"Done {number}." for number in range(5)]
    async with serving(one_agent(*replies)) as site, as_user(site, "alice") as client:
        first = await client.send("Do one", context_id="ours")
        async with await site.caller("alice") as http:
            ids = [first.id]
            for task in ("Do two", "Do three"):
                ids.append((await start(http, task, follows=ids[-1]))["run_id"])
            await start(http, "Do something else")
            found = await client.client.list_tasks(ListTasksRequest(context_id="ours"))
            assert {(each.id, each.context_id) for each in found.tasks} == {(each, "ours") for each in ids}
            last = await client.send("Do four", context_id="ours")
            assert (await http.get(f"/api/runs/{last.id}")).json()["follows"] == ids[-1]


async def test_message_follows_what_the_user_did_elsewhere() -> None:
    async with serving(one_agent("One.", "Two.", "Three.")) as site, as_user(site, "alice") as client:
        async with await site.caller("alice") as http:
            first = (await start(http, "Do one"))["run_id"]
            second = (await start(http, "Do two", follows=first))["run_id"]
            third = await client.send("Do three", context_id=first)
            assert (await http.get(f"/api/runs/{third.id}")).json()["follows"] == second
        assert third.context_id == first


@pytest.mark.slow
async def test_context_of_an_admin_has_no_runs_of_others() -> None:
    async with (
        serving(one_agent("One.", "Two."), users={"admins": ["bob"]}) as site,
        as_user(site, "alice") as alice,
        as_user(site, "bob") as bob,
    ):
        await alice.send("Do one", context_id="ours")
        task = await bob.send("Do two", context_id="ours")
        async with await site.caller("bob") as http:
            assert (await http.get(f"/api/runs/{task.id}")).json()["follows"] is None
        found = await bob.client.list_tasks(ListTasksRequest(context_id="ours"))
    assert [each.id for each in found.tasks] == [task.id]


async def test_message_to_a_task_at_work_reaches_its_agents() -> None:
    gate = Gate("Built.")
    async with serving(gate.make_team) as site, as_user(site, "alice") as client:
        task = await client.send("Wait for it", at_once=True)
        await gate.begun.wait()
        assert (await client.get(task)).status.state == WORKING
        for _ in range(2):
            await client.send("Mind the gap", task=task, at_once=True, message_id="m2")
        gate.opened.set()
        async with await site.caller("alice") as http:
            assert (await settle(http, task.id))["result"] == "Built."
    texts = [str(each) for each in gate.model.requests[-1].messages]
    assert len([each for each in texts if "Mind the gap" in each]) == 1


@pytest.mark.slow
async def test_message_to_agents_at_work_answers_no_later_question() -> None:
    gate = Gate(ASK, "Built.")
    async with serving(gate.make_team) as site, as_user(site, "alice") as client:
        task = await client.send("Wait for it", at_once=True)
        await gate.begun.wait()
        await client.send("Mind the gap", task=task, at_once=True, message_id="m2")
        gate.opened.set()
        async with await site.caller("alice") as http:
            assert (await settle(http, task.id))["status"] == "awaiting_clarification"
        for named in ("", task.context_id):
            again = await client.send("Mind the gap", task=task, message_id="m2", context_id=named)
            assert (again.status.state, len(again.history)) == (INPUT_REQUIRED, 1)
        assert result_of(await client.send("Express", task=task)) == "Built."
        await client.send("Mind the gap", task=task, message_id="m2")
        assert len((await client.get(task)).history) == 3


@pytest.mark.slow
async def test_message_id_of_one_user_is_free_for_another() -> None:
    async with (
        serving(one_agent(ASK, OTHER, "Built."), users={"admins": ["bob"]}) as site,
        as_user(site, "alice") as alice,
        as_user(site, "bob") as bob,
    ):
        task = await alice.send("Build it")
        await bob.send("Express", task=task, message_id="m2")
        assert result_of(await alice.send("PostgreSQL", task=task, message_id="m2")) == "Built."


async def can_listen(http: httpx.AsyncClient, task: Task) -> bool:
    """Return whether one more stream may be opened."""
    async with http.stream("GET", f"/api/runs/{task.id}/events") as response:
        return response.is_success


@pytest.mark.parametrize(
    ("streaming", "binding"), [pytest.param(False, "JSONRPC", marks=pytest.mark.slow), (True, "HTTP+JSON")]
)
async def test_clients_that_hang_up_keep_no_place(streaming: bool, binding: str) -> None:
    gate = Gate("Built.")
    async with serving(gate.make_team) as site, as_user(site, "alice") as client, await site.caller("alice") as http:
        task = await client.send("Wait for it", at_once=True)
        await gate.begun.wait()

        async def wait() -> None:
            # A place that the look below holds for a moment may have been this one's: it comes back then.
            async with as_user(site, "alice", streaming=streaming) as other:
                while True:
                    await other.send("Hurry", task=task, message_id="m2")

        waiting = [asyncio.create_task(wait()) for _ in range(STREAMS_PER_CALLER)]
        async with asyncio.timeout(TIMEOUT_S):
            while await can_listen(http, task):
                await asyncio.sleep(0.1)
            for at_once in (True, False):
                assert (await client.send("Now", task=task, at_once=at_once)).status.state == WORKING
            async with as_user(site, "alice", streaming=True, binding=binding) as further:
                assert (await further.send("Now", task=task)).status.state == WORKING
                assert [each.WhichOneof("payload") for each in further.events] == ["task"]
                with pytest.raises(UnsupportedOperationError, match="Too many event streams are open"):
                    await anext(further.client.subscribe(SubscribeToTaskRequest(id=task.id)))
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            while not await can_listen(http, task):
                await asyncio.sleep(0.1)
        gate.opened.set()


async def test_options_of_a_start_come_in_the_metadata() -> None:
    with_default = Call("ask_user", {**ASK.arguments, "default": "Express"})
    async with serving(one_agent(with_default, "Built.")) as site, as_user(site, "alice") as client:
        done = await client.send("Build it", metadata={"upcall": {"unattended": True}})
        assert [each["assumed"] for each in done.metadata["upcall"]["assumptions"]] == ["Express"]
        for wrong, line in (({"unattended": 3.5}, "unattended"), ({"task": "Other"}, "task and follows")):
            with pytest.raises(InvalidParamsError, match=line):
                await client.send("Build it", metadata={"upcall": wrong})


async def test_files_come_as_raw_parts_but_not_links() -> None:
    async with serving(one_agent("Read.")) as site, as_user(site, "alice") as client:
        with pytest.raises(InvalidParamsError, match="A part of kind 'url' is not taken"):
            await client.send("Read", Part(url="http://127.0.0.1/a.txt"))
        task = await client.send("Read", {"pages": 2}, Part(raw=b"A", media_type="text/plain", filename="a.txt"))
        assert (task.status.state, task.history[0].parts[0].text) == (COMPLETED, 'Read\n{"pages": 2}')


# -- tasks ------------------------------------------------------------------------------------------------------------


async def test_card_is_open_and_calls_need_a_token() -> None:
    async with serving(one_agent(ASK)) as site, httpx.AsyncClient(base_url=site.url) as stranger:
        card = (await stranger.get("/.well-known/agent-card.json")).json()
        assert [each["url"] for each in card["supportedInterfaces"]] == [f"{site.url}/a2a"] * 3
        assert (card["url"], card["protocolVersion"]) == (f"{site.url}/a2a", "0.3")
        assert card["capabilities"] == {"streaming": True}
        call = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "task"}}
        for response in (await stranger.post("/a2a", json=call), await stranger.get("/a2a/tasks/task")):
            assert (response.status_code, response.headers["WWW-Authenticate"]) == (401, "Bearer")
        async with await site.browser("alice") as browser:
            assert (await browser.post("/a2a", json=call)).status_code == 401


async def test_task_that_failed_says_why() -> None:
    async with serving(one_agent(Fail(400))) as site, as_user(site, "alice") as client:
        task = await client.send("Build it")
    assert task.status.state == S.TASK_STATE_FAILED
    assert "the model server refused the request" in text_of(task)


async def test_cancelled_task_takes_no_answer() -> None:
    async with serving(one_agent(ASK)) as site, as_user(site, "alice") as client:
        task = await client.send("Build it")
        cancelled = await client.client.cancel_task(CancelTaskRequest(id=task.id))
        assert cancelled.status.state == S.TASK_STATE_CANCELED
        with pytest.raises(UnsupportedOperationError, match="is cancelled and takes no message"):
            await client.send("Express", task=task)


async def test_completed_task_is_neither_cancelled_nor_followed() -> None:
    async with serving(one_agent("Built.")) as site, as_user(site, "alice", streaming=True) as client:
        task = await client.send("Build it")
        with pytest.raises(TaskNotCancelableError, match="nothing to cancel"):
            await client.client.cancel_task(CancelTaskRequest(id=task.id))
        with pytest.raises(UnsupportedOperationError, match="nothing follows"):
            async for _ in client.client.subscribe(SubscribeToTaskRequest(id=task.id)):
                pass


async def test_subscriber_sees_the_answer_that_came_elsewhere() -> None:
    async with serving(one_agent(ASK, "Built.")) as site, as_user(site, "alice", streaming=True) as client:
        task, kinds = await client.send("Build it"), list[str]()
        async with await site.caller("alice") as http:
            async for event in client.client.subscribe(SubscribeToTaskRequest(id=task.id)):
                if not kinds:
                    (question,) = questions_of(event.task)
                    await http.post(f"/api/runs/{task.id}/answers", json={"answers": {question["id"]: "Express"}})
                kinds.append(event.WhichOneof("payload") or "")
    assert (kinds[0], kinds[-2:]) == ("task", ["artifact_update", "status_update"])


@pytest.mark.slow
async def test_runs_begun_elsewhere_are_tasks_in_pages() -> None:
    async with serving(one_agent(*[ASK] * 3)) as site, as_user(site, "alice") as client:
        async with await site.caller("alice") as http:
            runs = [(await start(http))["run_id"] for _ in range(3)]
        await as_bob(site)
        first = await client.client.list_tasks(ListTasksRequest(page_size=2, history_length=0))
        rest = await client.client.list_tasks(ListTasksRequest(page_size=2, page_token=first.next_page_token))
        assert sorted(each.id for each in (*first.tasks, *rest.tasks)) == sorted(runs)
        assert (first.total_size, rest.total_size, rest.next_page_token) == (3, 3, "")
        assert ([*first.tasks[0].history], rest.tasks[0].context_id) == ([], rest.tasks[0].id)
        await client.client.cancel_task(CancelTaskRequest(id=runs[1]))
        found = await client.client.list_tasks(ListTasksRequest(status=S.TASK_STATE_CANCELED))
        assert ([each.id for each in found.tasks], found.total_size) == ([runs[1]], 1)


async def as_bob(site: Site) -> None:
    """Cancel a run of somebody else."""
    async with as_user(site, "bob") as bob:
        await bob.client.cancel_task(CancelTaskRequest(id=(await bob.send("Build it")).id))


async def test_push_notifications_are_refused() -> None:
    async with serving(one_agent()) as site, as_user(site, "alice") as client:
        config = TaskPushNotificationConfig(task_id="task", url="http://127.0.0.1/")
        with pytest.raises(PushNotificationNotSupportedError):
            await client.client.create_task_push_notification_config(config)


def test_each_status_of_a_run_is_a_state() -> None:
    assert {*STATES} == {*RunStatus}


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_number_that_is_none_is_refused_in_a_line(number: float) -> None:
    message = Message(parts=[new_data_part({"answers": {"q": number}})])
    with pytest.raises(CallerError, match="not finite"):
        read_answers(message, [])
