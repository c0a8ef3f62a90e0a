"""`ScorerPolicy`: a trained file says whether something must be asked (``ask_scorer``)."""

from __future__ import annotations

from upcall.agents.asking.ask_policy import AskPolicy, AskVerdict, ClarifierTask
from upcall.errors import ModelError
from upcall.policy.scorer import Embed, Scorer


class ScorerPolicy(AskPolicy):
    """Says that something must be asked where the file's score reaches its threshold, which nothing outweighs.

    If the score needs embeddings and their server fails, the weights decide, and the run warns of it.
    """

    def __init__(self, scorer: Scorer, embed: Embed | None = None) -> None:
        self._scorer, self._embed = scorer, embed

    async def judge(self, task: ClarifierTask) -> AskVerdict:
        """See `AskPolicy`."""
        try:
            score = await self._scorer.score(task.text, self._embed)
        except ModelError as error:
            why = str(error).split(". ")[0].rstrip(".")
            problem = f"ask_scorer failed, so the model alone decided what to ask: {why}"
            task.note(problem)
            return AskVerdict(problem=problem)
        task.note_score("scorer", score, self._scorer.threshold)
        return AskVerdict(must_ask=score >= self._scorer.threshold)
