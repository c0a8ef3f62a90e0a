"""`AskPolicy`: policies of one's own decide whether the clarifier asks, and what."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from ask_replies import Judge, list_needs, write_question
from conversation import answers, resumed_as, run, send
from pydantic import ValidationError
from scenario import DEEP_CODING
from worlds import roles_in

from upcall.agents import Clarifier
from upcall.agents.asking import AskPolicy, AskVerdict, ClarifierTask, Proposal, WeighedCandidate
from upcall.autogen.messages import event_warnings
from upcall.errors import ConfigurationError
from upcall.options import TeamOptions
from upcall.questions.question import Detail
from upcall.runs.asked_topics import AskedTopic
from upcall.runs.outputs import Candidate
from upcall.teams import TeamResources, root_team
from upcall.testing import Call, Reply, ScriptedModelClient

TASK = "Compare renewable energy in the G7"


class NeverPlaces(AskPolicy):
    """Asks for no place."""

    def weigh(self, proposal: Proposal) -> Proposal:
        return proposal.map(lambda each: each.drop() if each.candidate.detail is Detail.PLACE else each)


class LeavesOut(AskPolicy):
    """Leaves all questions out."""

    def weigh(self, proposal: Proposal) -> Proposal:
        return replace(proposal, candidates=())


class Rewords(AskPolicy):
    """Words each question anew, and wants none of them asked."""

    def weigh(self, proposal: Proposal) -> Proposal:
        def reword(each: WeighedCandidate) -> WeighedCandidate:
            return replace(each, candidate=each.candidate.model_copy(update={"question": "Why?"}), weight=0.0)

        return proposal.map(reword)


class Wholly:
    """Derives from nothing: asks the last listed question only, in words of its own."""

    async def judge(self, task: ClarifierTask) -> AskVerdict | None:
        return None

    def weigh(self, proposal: Proposal) -> Proposal:
        *others, last = proposal.candidates
        own = last.candidate.model_copy(update={"question": "Which one?"})
        reworded = WeighedCandidate(own, weight=1.0)
        return Proposal(proposal.task, proposal.reply, (*(each.drop() for each in others), reworded), proposal.verdict)


async def asked(policy: AskPolicy, *replies: Reply) -> list[str]:
    """Return what a clarifier with this policy asks first."""
    with ScriptedModelClient(list(replies)) as client:
        return [each.question for each in (await send(Clarifier(client, policies=[policy]), TASK)).questions]


async def test_policy_that_sees_nothing_missing_calls_no_model() -> None:
    assert await asked(Judge(must_ask=False)) == []


async def test_policy_that_demands_a_question_gets_the_weightiest() -> None:
    assert await asked(Judge(must_ask=True), list_needs(area="low")) == ["Which area?"]
    assert await asked(Judge(must_ask=True, score=0.1), list_needs(area="low")) == ["Which area?"]
    assert await asked(Judge(must_ask=None), list_needs(area="low")) == []


async def test_policy_names_what_is_missing() -> None:
    written = write_question("In which year?")
    assert await asked(Judge(must_ask=True, missing="the year"), written) == ["In which year?"]


@pytest.mark.parametrize("policy", [NeverPlaces(), LeavesOut(), Rewords()])
async def test_policy_drops_questions_that_the_model_insists_on(policy: AskPolicy) -> None:
    insists = json.loads(list_needs(area="high")) | {"clarification_question": "Which area?"}
    assert await asked(policy, json.dumps(insists)) == []


@pytest.mark.parametrize("policy", [NeverPlaces(), LeavesOut()])
async def test_policy_drops_questions_that_another_demands(policy: AskPolicy) -> None:
    model = ScriptedModelClient([list_needs(area="high")])
    assert not (await send(Clarifier(model, policies=[policy, Judge(must_ask=True)]), TASK)).questions


async def test_policy_demand_yields_to_what_was_dismissed() -> None:
    kinds = [AskedTopic(detail=Detail.PLACE, asked=4, dismissed=4)]
    for score, questions in ((0.6, 0), (None, 1)):
        model = ScriptedModelClient([list_needs(area="low")])
        agent = Clarifier(model, policies=[Judge(must_ask=True, score=score)], asked_topics=kinds)
        assert len((await send(agent, TASK)).questions) == questions


def test_score_outside_its_range_is_refused() -> None:
    with pytest.raises(ValidationError, match="less than or equal to 1"):
        AskVerdict(must_ask=True, score=7)


async def test_policy_without_a_base_has_the_last_word() -> None:
    assert await asked(Wholly(), list_needs(area="high", tone="low")) == ["Which one?"]


async def test_policy_judges_a_task_once_across_a_resume() -> None:
    def search(words: str) -> str:
        """Search."""
        return words

    policy = Judge(must_ask=True, problem="it guessed")
    with ScriptedModelClient(
        [Call("search", {"words": "G7"}), list_needs(area="low"), list_needs(area="low")]
    ) as client:
        first = Clarifier(client, tools=[search], policies=[policy])
        rest = await send(first, TASK)
        second = await resumed_as(first, Clarifier(client, tools=[search], policies=[policy]))
        done = await send(second, answers(rest, "The north"))
    assert policy.tasks == [TASK]
    assert "Answer: The north" in done.text
    assert event_warnings(done.message) == ["it guessed"]


async def test_policy_reaches_the_clarifier_of_the_root_team(tmp_path: Path) -> None:
    resources = TeamResources(roles_in(tmp_path), ask_policies=[Judge(must_ask=True, missing="the year")])
    replies: dict[str, list[Reply]] = {
        "You are the classifier ": [DEEP_CODING],
        "You read a task ": [write_question("In which year?")],
    }
    with ScriptedModelClient(replies) as client:
        rest = await run(root_team(lambda _: client, resources, TeamOptions(check_questions=False)), TASK)
    assert [each.question for each in rest.questions] == ["In which year?"]


async def test_policy_of_ones_own_has_no_declarative_form() -> None:
    with pytest.raises(ConfigurationError, match="clarifier has policies of its own"):
        Clarifier(ScriptedModelClient([]), policies=[NeverPlaces()]).dump_component()


@pytest.mark.parametrize("weight", [-0.1, 1.5, math.nan])
def test_weight_outside_its_range_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="is between 0 and 1"):
        WeighedCandidate(Candidate(detail=Detail.PLACE), weight=weight)
