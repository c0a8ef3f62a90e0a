"""`AskPolicy`: whether the clarifier asks about a task, and which of the questions that its model proposes.

A policy is asked twice. Before the model lists questions, it may say whether one has to be asked. Once they are listed,
it may change what each of them weighs, and how it is worded. Those with enough weight are asked, the weightiest first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Protocol

from autogen_agentchat.messages import BaseAgentEvent, ThoughtEvent
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, RequestUsage
from pydantic import BaseModel, Field

from upcall import identity
from upcall.autogen.concurrency import Emit
from upcall.autogen.model_calls import call_model, result_of
from upcall.errors import ModelError
from upcall.runs.outputs import Candidate, ClarificationResponse

_log = logging.getLogger("upcall")


@dataclass(frozen=True)
class ClarifierTask:
    """A task about which nothing was asked yet.

    Attributes:
        text: the task with everything known about it: findings, earlier answers, names of documents.
        agent: the name of the clarifier.
        model_client: its model. What is called through it is recorded with the run.
        has_tools: whether it has tools, which may find what the task does not say.
        token: cancels what takes long.
        emit: shows an event to whoever follows the run.
        request: the task alone; empty if that is not known apart.
    """

    text: str
    agent: str
    model_client: ChatCompletionClient
    has_tools: bool
    token: CancellationToken
    emit: Emit[BaseAgentEvent]
    request: str = ""

    async def call(self, messages: Sequence[LLMMessage], *, first_token: bool = False) -> CreateResult | None:
        """Make a model call that the turn can do without; None if it failed."""
        client, agent, token = self.model_client, self.agent, self.token
        call = call_model(client, messages, agent=agent, cancellation_token=token, first_token=first_token)
        try:
            return await result_of(call)
        except ModelError as error:
            _log.debug("%s: a call of a policy failed: %s", agent, error)
            return None

    def note(self, text: str, usage: RequestUsage | None = None) -> None:
        """Show a thought, with the tokens that it took."""
        id_ = identity.new_message_id()
        self.emit(ThoughtEvent(id=id_, source=self.agent, content=f"({text})", models_usage=usage))

    def note_score(self, policy: str, score: float, threshold: float, usage: RequestUsage | None = None) -> None:
        """Show what the score of a policy says."""
        verdict = "something has to be asked" if score >= threshold else "nothing has to be asked"
        self.note(f"{policy}: {score:.2f}, threshold {threshold:.2f}: {verdict}", usage)


class AskVerdict(BaseModel, frozen=True):
    """What a policy says about a task before anything is listed. It decides about the first question of the task.

    Attributes:
        must_ask: True: the weightiest question is asked, whatever it weighs. False: nothing is asked or listed. None:
            the weights decide.
        score: how likely that is, between 0 and 1. What the user dismissed before may outweigh it: then a question is
            asked only if what is left of the score reaches ``ask_threshold``. None cannot be outweighed.
        missing: what is missing, in a few words. With ``must_ask`` the model writes the question for it, and lists none
            before; else the model that lists sees it.
        problem: why the policy has nothing to say; a warning of the run.
    """

    must_ask: bool | None = None
    score: Annotated[float, Field(ge=0, le=1)] | None = None
    missing: str = ""
    problem: str = ""


@dataclass(frozen=True)
class WeighedCandidate:
    """Something that a task depends on, and what it is worth to ask about it.

    Attributes:
        weight: between 0 and 1. What weighs 0 is not asked; else what reaches ``ask_threshold`` is.
        demand: the same for a question that a verdict demands, whatever its weight; 0 without one.
    """

    candidate: Candidate
    weight: float = 1.0
    demand: float = 0.0

    def __post_init__(self) -> None:
        """Check the figures."""
        for name, value in (("weight", self.weight), ("demand", self.demand)):
            if not 0 <= value <= 1:
                raise ValueError(f"The {name} of a question is between 0 and 1, not {value}.")

    def scale(self, weight: float, demand: float = 1.0) -> WeighedCandidate:
        """Return it with its figures multiplied."""
        return replace(self, weight=self.weight * weight, demand=self.demand * demand)

    def drop(self) -> WeighedCandidate:
        """Return it as one that is not asked, whatever a verdict demands."""
        return self.scale(0, 0)


@dataclass(frozen=True)
class Proposal:
    """What the model would ask about a task.

    Attributes:
        task: the task with everything known about it.
        reply: the model's reply, for its conclusion: a question may stand there that it did not list.
        candidates: what it listed, as weighed and worded so far. One that is left out is dropped.
        verdict: what a policy said before about the first question; empty for those after it.
    """

    task: str
    reply: ClarificationResponse
    candidates: tuple[WeighedCandidate, ...]
    verdict: AskVerdict

    @classmethod
    def of(cls, task: str, reply: ClarificationResponse, verdict: AskVerdict, threshold: float) -> Proposal:
        """Return what a reply proposes, not weighed yet. A demand reaches the threshold, however low its score."""
        score = 1.0 if verdict.score is None else max(verdict.score, threshold)
        demand = score if verdict.must_ask else 0.0
        return cls(task, reply, tuple(WeighedCandidate(each, demand=demand) for each in reply.candidates), verdict)

    def map(self, change: Callable[[WeighedCandidate], WeighedCandidate]) -> Proposal:
        """Return it with each candidate changed."""
        return replace(self, candidates=tuple(map(change, self.candidates)))


class AskPolicy(Protocol):
    """Whether to ask about a task, and what. Derive from it what only does one of both."""

    async def judge(self, task: ClarifierTask) -> AskVerdict | None:
        """Say whether a first question must be asked; None leaves that to other policies.

        A verdict is stored with the agent, and a resumed turn does not ask for it again.
        """
        return None

    def weigh(self, proposal: Proposal) -> Proposal:
        """Return what the model proposes with other weights or words. Called again after each reply of the model."""
        return proposal


class PolicyChain(AskPolicy):
    """Several policies as one: the first verdict counts, and all weigh, the last one first.

    So a policy before others has the first word about the task, and the last about each question.
    """

    def __init__(self, *policies: AskPolicy) -> None:
        self._policies = policies

    async def judge(self, task: ClarifierTask) -> AskVerdict | None:
        """See `AskPolicy`."""
        for each in self._policies:
            if (verdict := await each.judge(task)) is not None:
                return verdict
        return None

    def weigh(self, proposal: Proposal) -> Proposal:
        """See `AskPolicy`."""
        for each in reversed(self._policies):
            proposal = each.weigh(proposal)
        return proposal
