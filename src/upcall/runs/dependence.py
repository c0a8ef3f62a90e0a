"""What of a run's work depends on the answer to one of its questions, as its journals tell.

An answer reaches the call that asked. From there on it may be in all that the asker does, and in what the agents above
it do once their calls have returned; so it may be in what they call after that. What other calls of the same reply led
to is beside it and never saw it. Members of one team see what each says: of them, all later replies count.

It is a bound: a request that turns out the same all the same finds its reply in the journal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from upcall.questions.question import Question
from upcall.runs.journal_records import CallPath, EarlierWork, ReplyRecord, ToolRecord

_Place: TypeAlias = tuple[int, int]
"""Which journal a reply is in, and its place there."""


@dataclass(frozen=True)
class DependentWork:
    """What may depend on an answer, and how much does not.

    Attributes:
        replies: the replies that may be another with another answer.
        tools: the tool calls that may be, by their keys.
        calls: the calls that the dependent replies made, each with the place of the first that made it: ids may repeat.
    """

    replies: Sequence[ReplyRecord] = ()
    tools: Mapping[str, ToolRecord] = field(default_factory=dict)
    calls: Mapping[CallPath, _Place] = field(default_factory=dict)

    def has_asked(self, question: Question) -> bool:
        """Return whether a question came of it. Of one that no call asked that is not known."""
        of_question = tuple(zip(question.path, question.calls, strict=False))
        return len(of_question) < len(question.path) or _is_within(of_question, None, self.calls)

    def count_tokens(self) -> int:
        """Count the tokens that the dependent replies took, which is about what others will take."""
        used = [each.reply.usage for each in self.replies]
        return sum(each.prompt_tokens + each.completion_tokens for each in used)

    def list_effects(self) -> list[ToolRecord]:
        """List the dependent calls that may have had an effect which a second call does not repeat."""
        return [record for record in self.tools.values() if not record.idempotent and record.outcome is not None]


def find_dependent_work(work: Sequence[EarlierWork], question: Question, since: str) -> DependentWork:
    """Find what may depend on the answer to a question.

    Args:
        work: all the work of its run, oldest first.
        question: the question.
        since: the epoch in which it was asked, or behind which it was answered.
    """
    begin = next((number for number, each in enumerate(work) if each.epoch == since), len(work))
    replies = sorted(_read_replies(work), key=lambda pair: pair[0])
    chain = _Chain(question, replies, begin)
    dependent = [reply for place, reply in replies if chain.takes(place, reply)]
    tools = {
        key: record
        for number, each in enumerate(work)
        if number >= begin
        for key, text in each.records.items()
        if key.startswith("tool:") and chain.takes_call(number, record := ToolRecord.model_validate_json(text))
    }
    return DependentWork(dependent, tools, chain.redone)


def leave_out_repeatable(work: Sequence[EarlierWork], dependent: DependentWork) -> list[EarlierWork]:
    """Leave out the dependent calls of idempotent tools. What they look at may be no part of their arguments, and twice
    does no harm: they are made again, whatever they look like."""
    again = {key for key, record in dependent.tools.items() if record.idempotent}
    return [
        EarlierWork(each.epoch, {key: text for key, text in each.records.items() if key not in again}) for each in work
    ]


def _read_replies(work: Sequence[EarlierWork]) -> Iterator[tuple[_Place, ReplyRecord]]:
    for number, each in enumerate(work):
        for key, text in each.records.items():
            if key.startswith("model:"):
                reply = ReplyRecord.model_validate_json(text)
                yield (number, reply.place), reply


class _Chain:
    """The calls from the outermost agent down to the one that asked, and what came after each."""

    def __init__(self, question: Question, replies: Sequence[tuple[_Place, ReplyRecord]], begin: int) -> None:
        self._calls: CallPath = tuple(zip(question.path, question.calls, strict=False))
        self._anchors = [(begin, -1)] * (len(question.path) + 1)
        """Level by level, the reply that made the call of the chain: only what comes behind it saw the answer."""
        self.redone: dict[CallPath, _Place] = {}
        """The calls of the replies that were taken."""
        for level, (agent, call_id) in enumerate(self._calls):
            made = [
                place
                for place, reply in replies
                if (reply.above, reply.agent) == (self._calls[:level], agent)
                and call_id in _list_calls(reply)
                and place[0] <= begin
            ]
            # Ids may repeat: of those that were open at the pause the last one is meant.
            before = [place for place in made if place[0] < begin]
            if made:
                self._anchors[level] = before[-1] if before else made[0]

    def takes(self, place: _Place, reply: ReplyRecord) -> bool:
        """Return whether a reply may depend on the answer; to be called in the order of the replies."""
        if not _is_within(reply.above, place, self.redone) and not self._is_behind(place, reply.above):
            return False
        for call_id in _list_calls(reply):
            self.redone.setdefault((*reply.above, (reply.agent, call_id)), place)
        return True

    def takes_call(self, number: int, record: ToolRecord) -> bool:
        """Return whether a tool call in a journal may depend on the answer, once all replies were looked at."""
        call = tuple(zip(record.path, record.calls, strict=False))
        return _is_within(call, (number, record.place), self.redone)

    def _is_behind(self, place: _Place, above: CallPath) -> bool:
        """Return whether a reply comes behind the chain's call at the level where it leaves the chain. There it is the
        agent's own or that of a member of its team, or was given inside such a member."""
        level = 0
        while level < min(len(above), len(self._calls)) and above[level] == self._calls[level]:
            level += 1
        is_beside = level < len(above) and above[level][1] != ""
        return not is_beside and level < len(self._anchors) and place > self._anchors[level]


def _is_within(above: CallPath, place: _Place | None, calls: Mapping[CallPath, _Place]) -> bool:
    """Return whether something was done inside one of the calls, and not before it was made."""
    begun = [calls[above[:depth]] for depth in range(1, len(above) + 1) if above[:depth] in calls]
    return any(place is None or place >= each for each in begun)


def _list_calls(reply: ReplyRecord) -> list[str]:
    content = reply.reply.content
    return [] if isinstance(content, str) else [call.id for call in content]
