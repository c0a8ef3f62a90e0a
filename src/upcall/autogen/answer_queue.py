"""Answers that come while a team still works: who asked goes on at once, without waiting for the slowest sibling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence

from upcall.questions.answer import Answer


class AnswerQueue:
    """The answers that came in one segment of a run, for whoever waits for them while others work.

    Args:
        answers: those of the run by now. Where the segment was cut off before, some were not in its checkpoint.
    """

    def __init__(self, answers: Iterable[Answer] = ()) -> None:
        self.answers = {answer.question_id: answer for answer in answers}
        self._came = asyncio.Event()

    def put(self, answers: Sequence[Answer]) -> None:
        """Take answers in, and wake who waits."""
        self.answers |= {answer.question_id: answer for answer in answers}
        came, self._came = self._came, asyncio.Event()
        came.set()

    def there_for(self, waiting: Collection[str]) -> list[Answer]:
        """Return the answers that are here already to the questions with these ids."""
        return [answer for question_id, answer in self.answers.items() if question_id in waiting]

    async def answers_to(self, waiting_for: Callable[[], Collection[str]]) -> list[Answer]:
        """Return the answers to any of the questions whose ids `waiting_for` gives, as soon as there is one."""
        while True:
            if found := self.there_for(waiting_for()):
                return found
            await self._came.wait()
