"""`TaskJudge`: whether something has to be asked about a task, decided the same way wherever that matters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autogen_agentchat.messages import BaseAgentEvent
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient

from upcall.agents.asking.ask_policy import AskPolicy, AskVerdict, ClarifierTask
from upcall.agents.structured.merging import merge_messages
from upcall.autogen.concurrency import Emit, cancellable


@dataclass(frozen=True)
class TaskJudge:
    """The clarifier's policies, for itself and for the classifier, which has to know before it routes a task.

    Attributes:
        policy: who decides.
        documents: the names of the documents that the team has.
        has_tools: whether the clarifier has tools, which may find what a task does not say.
        max_chars: the length to which a task with everything known about it is cut.
        first_look: who says whether small talk is a task after all, which other policies do not expect; None if it does
            not have the first word about a task.
    """

    policy: AskPolicy
    documents: Sequence[str] = ()
    has_tools: bool = False
    max_chars: int = 100_000
    first_look: AskPolicy | None = None

    def describe(self, request: str, known: Sequence[str] = (), files: Sequence[str] = ()) -> str:
        """Return a request with everything known about it: findings, answers, and the names of what is there."""
        names = ", ".join([*self.documents, *files])
        given = [f"Documents given with it: {names}"] if names else []
        return merge_messages(request, [*known, *given], self.max_chars)

    async def judge(
        self,
        request: str,
        text: str,
        agent: str,
        client: ChatCompletionClient,
        emit: Emit[BaseAgentEvent],
        token: CancellationToken,
        *,
        is_small_talk: bool = False,
    ) -> AskVerdict:
        """Return what the policies say about a request; an empty verdict if none says anything.

        Args:
            text: what `describe` returns of it.
            agent: whose calls those are that a policy makes.
            client: its model.
            is_small_talk: it seems to be; then only the first look is asked.
        """
        if (policy := self.first_look if is_small_talk else self.policy) is None:
            return AskVerdict()
        task = ClarifierTask(text, agent, client, self.has_tools, token, emit, request)
        return await cancellable(policy.judge(task), token) or AskVerdict()
