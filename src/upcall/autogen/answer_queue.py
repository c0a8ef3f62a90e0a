"""Answers that arrive while a team still works: the asker continues at once, without waiting for its siblings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence

from upcall.questions.answer import Answer


class AnswerQueue:
    """The answers that arrived in one segment of a run, for agents that wait while others work.

    Args:
        answers: those of the run so far. If the segment was cut off before, its checkpoint may lack some of them.
    """

    def __init__(self, answers: Iterable[Answer] = ()) -> None:
        self.answers = {answer.question_id: answer for answer in answers}
        self._came = asyncio.Event()

    def put(self, answers: Sequence[Answer]) -> None:
        """Add answers, and wake the agents that wait for them."""
        self.answers |= {answer.question_id: answer for answer in answers}
        came, self._came = self._came, asyncio.Event()
        came.set()

    def there_for(self, waiting: Collection[str]) -> list[Answer]:
        """Return the answers already here to the questions with these ids."""
        return [answer for question_id, answer in self.answers.items() if question_id in waiting]

    async def answers_to(self, waiting_for: Callable[[], Collection[str]]) -> list[Answer]:
        """Return the answers to any of the questions whose ids `waiting_for` returns, as soon as there is one."""
        while True:
            if found := self.there_for(waiting_for()):
                return found
            await self._came.wait()
