"""Pictures of runs and teams: nothing overlaps, nothing sticks out, nothing gets in that is not text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import pytest
from autogen_agentchat.agents import AssistantAgent, SocietyOfMindAgent, UserProxyAgent
from autogen_agentchat.base import Team
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core.tools import FunctionTool
from places import ROOT
from scenario import TASK, upcall
from shapes import World

from upcall import Answer, AnsweredBy, Question, Run, RunStatus, Settings, Upcall, make_resumable
from upcall.agents import NestedTeam, PausableAgent
from upcall.questions.record import QuestionRecords
from upcall.runs.call_timings import MAX_CALLS, TimedCall, Timings, WorkPeriod, read_work_period
from upcall.runs.events import SegmentTimed
from upcall.runs.run import Usage
from upcall.testing import Call, Fail, Reply, ScriptedModelClient
from upcall.ui.diagrams import team_lines, team_mermaid, team_svg, timeline, tree, tree_lines
from upcall.ui.diagrams.svg import BLUE, FAINT, INK, PAPER, RED, clean_text, fit_text, format_duration, measure_width
from upcall.ui.diagrams.team import read_team

SVG = "{http://www.w3.org/2000/svg}"
START = datetime(2026, 11, 22, 8, tzinfo=UTC)
NASTY = (
    "<script>alert(1)</script>",
    '"><svg onload=x>',
    "a\x00\x1b[31mred\x07\u202eevil",
    "写一个登录页面" * 40,
    "Z\u0300\u0301\u0302\u0303\u0304\u0305\u0306a" * 30,
    "👩‍👩‍👧 & so on " * 40,
    "]]> --> #quot; `x`",
    "\n\n",
)


@dataclass(frozen=True)
class Box:
    left: float
    top: float
    right: float
    bottom: float
    what: str

    def meets(self, other: Box) -> bool:
        slack = 0.05
        across = self.left < other.right - slack and other.left < self.right - slack
        return across and self.top < other.bottom - slack and other.top < self.bottom - slack


def read(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def texts(picture: ElementTree.Element) -> list[Box]:
    boxes = []
    for each in picture.iter(f"{SVG}text"):
        emitted, size = each.text or "", float(each.attrib["font-size"])
        x, y, wide = float(each.attrib["x"]), float(each.attrib["y"]), measure_width(emitted, size)
        left = {"start": x, "middle": x - wide / 2, "end": x - wide}[each.get("text-anchor", "start")]
        boxes.append(Box(left, y - 0.8 * size, left + wide, y + 0.2 * size, emitted))
    return boxes


def rects(picture: ElementTree.Element, kind: str | None = None) -> list[Box]:
    boxes = []
    for each in picture.findall(f"{SVG}rect"):
        if kind is None or each.get("class") == kind:
            x, y, w, h = (float(each.get(name, 0)) for name in ("x", "y", "width", "height"))
            boxes.append(Box(x, y, x + w, y + h, kind or ""))
    return boxes


def assert_neat(svg: str) -> ElementTree.Element:
    """Well-formed and complete in itself; no two texts overlap, and nothing is outside."""
    picture = read(svg)
    _, _, width, height = map(float, picture.attrib["viewBox"].split())
    assert width == 800
    text = texts(picture)
    for one, other in combinations(text, 2):
        assert not one.meets(other), (one, other)
    points = [
        tuple(map(float, point.split(",")))
        for kind in ("polyline", "polygon")
        for each in picture.iter(f"{SVG}{kind}")
        for point in each.attrib["points"].split()
    ]
    for box in (*text, *rects(picture)):
        assert box.left >= 0, box
        assert box.top >= 0, box
        assert box.right <= width + 0.1, box
        assert box.bottom <= height + 0.1, box
    assert all(0 <= x <= width and 0 <= y <= height for x, y in points)
    assert picture.attrib["role"] == "img"
    ids = picture.attrib["aria-labelledby"].split()
    assert [picture.find(f"{SVG}{name}").attrib["id"] for name in ("title", "desc")] == ids  # type: ignore[union-attr]
    assert {each.tag.removeprefix(SVG) for each in picture.iter()} <= {
        *("svg", "title", "desc", "defs", "pattern", "path", "rect", "text", "polyline", "polygon")
    }
    assert not re.search(r"\b(href|on\w+|src|style)=", re.sub(r">[^<]*<", "><", svg))
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "", 1)
    return picture


def made(agents: int, waits: int, *, long: bool = False, seed: int = 0) -> tuple[Run, list[WorkPeriod]]:
    """Return a run in which so many agents, nested at random, stopped so often; the last question may be open."""
    random, at = Random(seed), START
    paths: list[tuple[str, ...]] = [("lead",)]
    for number in range(agents - 1):
        above = random.choice(paths) if random.random() < 0.7 else ()
        paths.append((*above, f"agent_{number}{'_and_what_it_is_for' * 5 if long else ''}"))
    worked, questions, answers = list[WorkPeriod](), list[Question](), list[Answer]()
    usage, tools = dict[str, Usage](), dict[str, int]()
    for number in range(waits + 1):
        calls = []
        for _ in range(random.randint(2, 2 * agents + 2)):
            path, tool = random.choice(paths), random.choice(["", "", "write_file"])
            start = at + timedelta(seconds=20 * random.random())
            end = start + timedelta(seconds=5 * random.random())
            calls.append(TimedCall(path, start, end, tool, random.random() < 0.1))
            usage["/".join(path)] = usage.get("/".join(path), Usage()).plus(random.randint(9, 10**6), 50)
            if tool:
                tools["/".join((*path, tool))] = random.randint(1, 9)
        end = max(call.end for call in calls)
        worked.append(WorkPeriod(at, end, tuple(calls)))
        at = end
        if number < waits:
            path = random.choice(paths)
            output = "Which framework? " * (60 if long else 1)
            questions.append(Question(question=output, path=path, asked_at=end - timedelta(seconds=1)))
            if number < waits - 1 or seed % 2:
                at += timedelta(seconds=random.choice([0.4, 40, 4000, 10**6]))
                answers.append(
                    Answer(question_id=questions[-1].id, text="Express " * (60 if long else 1), answered_at=at)
                )
            else:
                break
    answered = {answer.question_id for answer in answers}
    left = tuple(each for each in questions if each.id not in answered)
    run = Run(
        id="0123456789ab",
        task=TASK * (20 if long else 1),
        status=RunStatus.AWAITING_CLARIFICATION if left else RunStatus.COMPLETED,
        records=QuestionRecords.build(left, zip(questions, answers, strict=False)),
        usage=usage,
        tools=tools,
        execution_path=("lead",),
        created_at=START,
        updated_at=at,
    )
    return run, worked


SIZES = [(agents, waits) for agents in (1, 2, 7, 20, 50) for waits in (0, 1, 5, 20)]


@pytest.mark.parametrize(("agents", "waits"), SIZES)
def test_timeline_is_neat_at_any_size(agents: int, waits: int) -> None:
    for seed, long in ((0, False), (1, True)):
        run, worked = made(agents, waits, long=long, seed=seed)
        picture = assert_neat(timeline(run, worked))
        bars = {kind: rects(picture, kind) for kind in ("model", "tool", "break")}
        assert len(bars["break"]) == waits
        calls = sum(len(each.calls) for each in worked)
        assert len(bars["model"]) + len(bars["tool"]) == calls + 3  # Three are in the legend.
        for one, other in combinations(bars["break"], 2):
            assert not one.meets(other)
        text = {each.what for each in texts(picture)}
        assert all(str(number) in text for number in range(1, waits + 1))
        for path in {call.path for each in worked for call in each.calls}:
            assert any(each.startswith(path[-1][:8]) for each in text)


@pytest.mark.parametrize(("agents", "waits"), SIZES)
def test_without_times_there_are_still_agents_questions_and_waits(agents: int, waits: int) -> None:
    run, _ = made(agents, waits, seed=1)
    picture = assert_neat(timeline(run))
    assert len(rects(picture, "break")) >= min(waits, 1)


@pytest.mark.parametrize(("agents", "waits"), SIZES)
def test_tree_is_neat_at_any_size(agents: int, waits: int) -> None:
    for seed, long in ((0, False), (1, True)):
        run, _ = made(agents, waits, long=long, seed=seed)
        contents = [each.what for each in texts(assert_neat(tree(run)))]
        assert sum(each.startswith(tuple(f"{number}. " for number in range(1, 21))) for each in contents) == waits


@pytest.mark.slow
def test_hundreds_of_agents_and_waits_are_cut_and_counted() -> None:
    run, worked = made(150, 120, seed=1)
    contents = [each.what for each in texts(assert_neat(timeline(run, worked)))]
    assert any(re.fullmatch(r"and \d+ more agents", each) for each in contents)
    assert "and 60 more questions" in contents
    assert_neat(tree(run))


@pytest.mark.parametrize("text", NASTY)
def test_text_of_models_and_users_stays_text(text: str) -> None:
    run, _ = made(3, 2)
    question = Question(question=f"Q {text}", path=("lead", text), asked_at=START)
    answer = Answer(question_id=question.id, text=text, user=text, answered_at=START + timedelta(seconds=5))
    tool = TimedCall(("lead", text), START, START + timedelta(seconds=3), text)
    run = run.model_copy(
        update={
            "task": text,
            "records": QuestionRecords.build([], [(question, answer)]),
            "usage": {"lead": Usage(), f"lead/{text}": Usage()},
            "tools": {f"lead/{text}/{text}": 2},
        }
    )
    segment = WorkPeriod(START, START + timedelta(seconds=4), (tool,))
    for picture in (timeline(run, [segment]), timeline(run), tree(run)):
        assert "answered by" in "".join(assert_neat(picture).itertext())
        assert "<script" not in picture
        assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e\ud800-\udfff]", picture)
        picture.encode()


def test_secret_is_not_in_a_picture() -> None:
    run, worked = made(2, 0)
    question = Question(question="Which key?", secret=True, path=("lead",), asked_at=START)
    answer = Answer(question_id=question.id, text="gAAAAsealed", sealed=True, answered_at=START + timedelta(seconds=5))
    run = run.model_copy(update={"records": QuestionRecords.build([], [(question, answer)])})
    for picture in (timeline(run, worked), tree(run)):
        assert "(secret)" in picture
        assert "gAAAAsealed" not in picture


def test_answer_of_any_length_is_cut() -> None:
    """A log that was pasted is not in the file once more for each place where a pointer may rest."""
    run, worked = made(2, 0)
    question = Question(question="Which error?", path=("lead",), asked_at=START)
    answer = Answer(question_id=question.id, text="No such file. " * 50_000, answered_at=START + timedelta(seconds=5))
    run = run.model_copy(update={"records": QuestionRecords.build([], [(question, answer)])})
    for picture in (timeline(run, worked), tree(run)):
        assert "No such file" in picture
        assert len(picture) < 40_000


def test_parallel_calls_have_rows_of_their_own() -> None:
    at = [START + timedelta(seconds=each) for each in range(5)]
    calls = [TimedCall(("lead",), at[0], at[3]), TimedCall(("lead",), at[1], at[2]), TimedCall(("lead",), at[3], at[4])]
    run = Run(task=TASK, created_at=START, updated_at=at[4])
    bars = rects(read(timeline(run, [WorkPeriod(at[0], at[4], tuple(calls))])), "model")[2:]
    assert len(bars) == 3
    assert not any(one.meets(other) for one, other in combinations(bars, 2))
    assert sorted(bar.top for bar in bars)[0] < sorted(bar.top for bar in bars)[-1]


def test_wait_spans_question_and_answer_known_to_the_second() -> None:
    at = [START + timedelta(seconds=each) for each in (0.2, 0.7, 9.6, 9.9)]
    calls = TimedCall(("lead",), at[0], at[1]), TimedCall(("lead",), at[2], at[3])
    question = Question(question="Which?", path=("lead",), asked_at=START)
    answer = Answer(question_id=question.id, text="A", answered_at=START + timedelta(seconds=9))
    run = Run(task=TASK, records=QuestionRecords.build([], [(question, answer)]), created_at=START, updated_at=at[3])
    worked = [WorkPeriod(at[0], at[1], calls[:1]), WorkPeriod(at[2], at[3], calls[1:])]
    for picture in (read(timeline(run, worked)), read(timeline(run))):
        (wait,) = rects(picture, "break")
        waits = [each for each in picture.iter(f"{SVG}polyline") if each.attrib["stroke"] == RED]
        (start, _), (end, _) = (tuple(map(float, point.split(","))) for point in waits[-1].attrib["points"].split())
        assert (start, end) == pytest.approx((wait.left, wait.right), abs=0.1)
        assert "8.9 s" in {each.what for each in texts(picture)} or "9.0 s" in {each.what for each in texts(picture)}


def test_answers_of_no_human_are_no_wait() -> None:
    question = Question(question="Which?", path=("lead",), asked_at=START + timedelta(seconds=1))
    done = START + timedelta(seconds=2)
    answer = Answer(question_id=question.id, text="A", by=AnsweredBy.FACTS, answered_at=done)
    run = Run(task=TASK, records=QuestionRecords.build([], [(question, answer)]), created_at=START, updated_at=done)
    assert not rects(read(timeline(run)), "break")
    assert "answered by facts" in timeline(run)


def test_two_pictures_in_one_page_do_not_share_ids() -> None:
    run, worked = made(2, 1)
    pictures = [timeline(run, worked), tree(run), timeline(run.model_copy(update={"id": "other"}), worked)]
    ids = [each for picture in pictures for each in set(re.findall(r'\bid="([^"]+)"', picture))]
    assert len(ids) == len(set(ids))


def test_contrast_of_all_text_meets_wcag_aa() -> None:
    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for colour, least in ((INK, 4.5), (FAINT, 4.5), (BLUE, 3), (RED, 3)):
        assert (light(PAPER) + 0.05) / (light(colour) + 0.05) >= least, colour


@pytest.mark.parametrize(
    ("seconds", "emitted"),
    [
        *((0.34, "340 ms"), (1.25, "1.2 s"), (12, "12 s"), (59.9, "1 min"), (3599, "1 h")),
        *((7500, "2 h 5 min"), (86400, "1 d"), (273600, "3 d 4 h")),
    ],
)
def test_lengths_of_time(seconds: float, emitted: str) -> None:
    assert format_duration(seconds) == emitted


def test_texts_are_cut_to_their_place() -> None:
    assert fit_text("abcdef", measure_width("abcdef", 12), 12) == "abcdef"
    assert fit_text("abcdef", measure_width("abcde", 12), 12) == "abcd…"
    assert fit_text("abc", 1, 12) == ""
    assert fit_text("写一个", measure_width("写一", 12), 12) == "写…"
    assert clean_text("a\n\tb\u200bc\ud800") == "a bc"


# -- what a run leaves to be drawn ------------------------------------------------------------------------------------


async def test_calls_are_timed_outside_the_audit_trail() -> None:
    replies: dict[str, list[Reply]] = {
        "You are the lead.": [Call("coder", {"task": "Do it."}), "All done."],
        "You are the coder.": [
            Call("ask_user", {"question": "Which framework?"}),
            Call("note", {"text": "a"}),
            Fail(RuntimeError("gone")),
            "Done.",
        ],
    }
    world = World(ScriptedModelClient(replies))

    def make() -> Team:
        lead = world.agent("lead", world.agent("coder"))
        return RoundRobinGroupChat([lead], termination_condition=TextMessageTermination("lead"))

    app = Upcall(team=make, store="runs.db", settings=Settings())
    run = await app.start(TASK)
    run = await app.answer(run.id, "Express")
    assert run.status is RunStatus.FAILED
    run = await app.resume(run.id)
    assert run.status is RunStatus.COMPLETED
    first, second, third = await app.log.call_timings(run.id)
    lead, coder = ("lead",), ("lead", "coder")

    def seen(worked: WorkPeriod) -> list[tuple[tuple[str, ...], str, bool]]:
        return [(call.path, call.tool, call.failed) for call in worked.calls]

    assert seen(first) == [(lead, "", False), (coder, "", False)]
    assert seen(second) == [(coder, "", False), (coder, "note", False), (coder, "", True)]
    assert seen(third) == [(coder, "", False), (lead, "", False)]
    for each in (first, second, third):
        assert all(each.start <= call.start <= call.end <= each.end + timedelta(milliseconds=2) for call in each.calls)
    assert "timed" not in {entry.kind for entry in await app.log.audit()}
    picture = assert_neat(timeline(run, await app.log.call_timings(run.id)))
    assert len(rects(picture, "tool")) == 1 + 1  # One is in the legend.


async def test_times_are_not_kept_where_nobody_wants_them() -> None:
    world = World(ScriptedModelClient({"You are the lead.": ["All done."]}))

    def make() -> Team:
        return RoundRobinGroupChat([world.agent("lead")], termination_condition=TextMessageTermination("lead"))

    app = Upcall(team=make, store="runs.db", settings=Settings(store={"timings": False}))
    run = await app.start(TASK)
    assert (run.status, await app.log.call_timings(run.id)) == (RunStatus.COMPLETED, [])
    assert_neat(timeline(run))


@pytest.mark.slow
def test_command_line_draws_runs_and_the_team() -> None:
    run_id = upcall("run", TASK, "--detach", "--json").json["run_id"]
    done = upcall("show", run_id, "--svg", "run.svg")
    assert done.status == 0, done.err
    assert "Which" in " ".join(each.what for each in texts(assert_neat(Path("run.svg").read_text())))
    assert_neat(upcall("show", run_id, "--svg", "-", "--tree").out)
    assert "lead" in upcall("show", run_id, "--tree").out
    assert "Cannot write the picture" in upcall("show", run_id, "--svg", "no/folder/run.svg").error
    assert upcall("team").out.startswith("flowchart TB\n")
    assert upcall("team", "--svg", "team.svg").status == 0
    assert_neat(Path("team.svg").read_text())


def test_times_come_back_from_the_log_as_they_were() -> None:
    kept = Timings()
    for path, tool, failed in [("lead", "", False), ("lead/coder", "write file", True)] + [
        ("lead", "a:b!", False)
    ] * MAX_CALLS:
        with kept.measure(path.split("/"), tool) as call:
            assert kept.active == [call]
            call.failed = failed
    worked = read_work_period(SegmentTimed.from_detail(json.loads(json.dumps(kept.to_event().as_detail()))))
    assert len(worked.calls) == MAX_CALLS
    assert {(call.path, call.tool, call.failed) for call in worked.calls} == {
        (("lead",), "", False),
        (("lead", "coder"), "write file", True),
        (("lead",), "a:b!", False),
    }
    assert not read_work_period(Timings().to_event()).calls


# -- teams ------------------------------------------------------------------------------------------------------------


def search(text: str) -> str:
    """Look something up."""
    return text


def stock_teams() -> Iterator[tuple[str, Team, list[str]]]:
    """Teams of AutoGen's own, and what must be in their pictures."""
    client = ScriptedModelClient({})

    def agent(name: str, **options: object) -> AssistantAgent:
        return AssistantAgent(name, client, **options)  # type: ignore[arg-type]

    yield (
        "round",
        RoundRobinGroupChat([agent("one", tools=[search]), UserProxyAgent("user")]),
        ["one", "search", "user"],
    )
    swarm = Swarm([agent("one", handoffs=["two", "user"]), agent("two", handoffs=["one"]), UserProxyAgent("user")])
    yield "swarm", swarm, ["one", "two", "hands off to: two, user"]
    a, b, c = agent("a"), agent("b"), agent("c")
    builder = DiGraphBuilder().add_node(a).add_node(b).add_node(c).add_edge(a, b).add_edge(a, c)
    yield "graph", GraphFlow([a, b, c], builder.build()), ["hands off to: b, c"]
    inner = RoundRobinGroupChat([agent("deep")], name="inner", description="inner")
    tools = [AgentTool(agent("helper")), TeamTool(inner, name="inner", description="inner"), search]
    yield "tools", RoundRobinGroupChat([agent("one", tools=tools)]), ["helper", "inner", "deep", "tools: search"]
    society = SocietyOfMindAgent("society", RoundRobinGroupChat([agent("deep")]), client)
    yield "society", SelectorGroupChat([society, agent("one")], client), ["society", "deep"]
    yield "team in team", RoundRobinGroupChat([RoundRobinGroupChat([agent("deep")], name="inner")]), ["inner", "deep"]
    ours = PausableAgent("lead", client, agents=[PausableAgent("coder", client, tools=[search])])
    nested = NestedTeam(RoundRobinGroupChat([agent("deep")]), name="crew")
    yield "ours", make_resumable(RoundRobinGroupChat([ours, nested])), ["lead", "coder", "crew", "deep", "asks you"]


@pytest.mark.parametrize(("team", "there"), [pytest.param(*each, id=name) for name, *each in stock_teams()])
def test_teams_of_any_kind_are_drawn(team: Team, there: list[str]) -> None:
    contents = [each.what for each in texts(assert_neat(team_svg(team)))]
    for text in there:
        assert any(text in each for each in contents), (text, contents)
    text = team_mermaid(team)
    assert_mermaid(text)
    for name in there:
        if ":" not in name and name != "asks you":
            assert name in text


def test_tool_s_name_is_no_directive_to_mermaid() -> None:
    """Mermaid takes those from anywhere in the text, labels too."""
    tool = FunctionTool(search, name="%%{init: {'theme': 'dark'}}%%", description="x")
    team = RoundRobinGroupChat([AssistantAgent("one", ScriptedModelClient({}), tools=[tool])])
    assert "%%" not in team_mermaid(team)


def test_team_is_a_tree_of_text() -> None:
    stock = AssistantAgent("finder", ScriptedModelClient({}), tools=[search])
    lead = PausableAgent("lead", ScriptedModelClient({}), agents=[stock])
    assert team_lines(RoundRobinGroupChat([lead], name="crew")) == [
        "crew (RoundRobinGroupChat)",
        "  lead, may ask you",
        "    finder (AssistantAgent)",
        "      tools: search",
    ]


def assert_mermaid(text: str) -> None:
    """Each line is one that Mermaid's grammar has; subgraphs are closed; edges join nodes that are there."""
    head, *lines = text.splitlines()
    assert head == "flowchart TB"
    label = r'"[^"\\`]*"'
    forms = (
        rf"subgraph n\d+\[{label}\]",
        "end",
        rf"n\d+(\[{label}\]|\(\[{label}\]\)|\[/{label}/\])",
        r"n\d+ (-->|---|-\.->) n\d+",
    )
    for line in lines:
        assert any(re.fullmatch(form, line.strip()) for form in forms), line
        assert not re.search(r"<(?!br/>)", line)
    assert sum("subgraph" in line for line in lines) == sum(line.strip() == "end" for line in lines)
    known = set(re.findall(r"(n\d+)[\[\(]", text))
    assert {node for edge in re.findall(r"(n\d+) (?:-->|---|-\.->) (n\d+)", text) for node in edge} <= known


def test_arrows_go_where_the_turn_goes() -> None:
    client = ScriptedModelClient({})
    agents = [
        AssistantAgent(name, client, handoffs=["two"] if name == "one" else []) for name in ("one", "two", "three")
    ]
    team = Swarm(agents)
    text = team_mermaid(team)
    nodes = {name: node for node, name in re.findall(r'(n\d+)\["(\w+)<br/>', text)}
    assert re.findall(r"(n\d+) -\.-> (n\d+)", text) == [(nodes["one"], nodes["two"])]
    picture = read(team_svg(team))
    boxes = rects(picture, "agent")
    (arrow, *_) = [each for each in picture.iter(f"{SVG}polyline") if each.attrib["points"].count(" ") == 3]
    ys = [float(point.split(",")[1]) for point in arrow.attrib["points"].split()]
    assert boxes[0].top < ys[0] < boxes[0].bottom
    assert boxes[1].top < ys[-1] < boxes[1].bottom


@pytest.mark.parametrize("size", [1, 10, 50])
@pytest.mark.slow
def test_large_and_deep_teams_are_neat(size: int) -> None:
    client = ScriptedModelClient({})
    names = [f"agent_{number}_{'of_many_words_' * 6}" for number in range(size)]

    async def tool(text: str) -> str:
        """Do it."""
        return text

    def tools(count: int) -> list[object]:

        return [FunctionTool(tool, name=f"tool_{number}_{'x' * 50}", description="-") for number in range(count)]

    agents = [
        AssistantAgent(name, client, tools=tools(20), handoffs=[each for each in names if each != name])  # type: ignore[arg-type]
        for name in names
    ]
    assert_neat(team_svg(Swarm(agents)))
    deep = PausableAgent("agent_0", client)
    for number in range(1, size):
        deep = PausableAgent(f"agent_{number}", client, agents=[deep])
    team = RoundRobinGroupChat([deep])
    assert_neat(team_svg(team))
    assert_mermaid(team_mermaid(team))


def test_run_with_nothing_in_it_is_drawn() -> None:
    assert_neat(timeline(Run(task="")))
    assert_neat(tree(Run(task="")))


@pytest.mark.needs("research", "workspace")
def test_root_team_diagram_has_each_agent_once_unadorned() -> None:
    root = read_team(
        Upcall(store="x.db", settings=Settings(models={"model": "demo"}, workspace={"executor": "none"})).team.build()
    )
    names = [each.name for each in root.inside]
    assert names == ["classifier", "clarifier", "planner", "lead", "coder", "researcher", "user"]
    lead = root.inside[names.index("lead")]
    assert (lead.calls, lead.inside) == (("coder", "researcher"), ())
    assert {each.kind for each in root.inside} == {"", "you"}


def test_tree_as_text_nests_agents_and_their_questions() -> None:
    question = Question(id="q1", question="Which?", path=("lead", "coder"))
    records = QuestionRecords.build([], [(question, Answer(question_id="q1", text="This", user="ada"))])
    run = Run(id="r", task="T", records=records, usage={"lead": Usage(prompt_tokens=9, completion_tokens=1)})
    lines = tree_lines(run)
    assert [lines[0], lines[2].strip()] == ["Run r: initializing", "coder"]
    assert lines[1].startswith("  lead  (")
    assert lines[3] == "      ? 1. Which?"
    assert lines[4].strip().startswith("answered by ada")


@pytest.mark.needs("research", "workspace")
def test_readme_has_the_picture_of_the_team() -> None:
    team = Upcall(
        store="x.db", settings=Settings(models={"model": "demo"}, workspace={"executor": "none"})
    ).team.build()
    assert f"```mermaid\n{team_mermaid(team)}```" in (ROOT / "README.md").read_text()
