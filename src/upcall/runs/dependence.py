"""What of a run's work depends on the answers to some of its questions, as its journals tell.

An answer reaches the call that asked. From there on it may be in all that the asker does, and in what the agents above
it do once their calls have returned; so it may be in what they call after that. What other calls of the same reply led
to is beside it and never saw it. Members of one team see what each says: of them, all later replies count.

It is a bound: a request that turns out the same all the same finds its reply in the journal.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from upcall.questions.question import Question
from upcall.runs.call_paths import CallPath, Origin
from upcall.runs.journal_records import EarlierWork, ReplyRecord, ToolRecord

_Place: TypeAlias = tuple[int, int]
"""Which journal a reply is in, and its place there."""


@dataclass(frozen=True)
class DependentWork:
    """What may depend on some answers, and how much does not.

    Attributes:
        replies: the replies that may be others with other answers.
        tools: the tool calls that may be, by their keys.
        chains: what came after each question.
    """

    replies: Sequence[ReplyRecord]
    tools: Mapping[str, ToolRecord]
    chains: Sequence[Chain]

    def has_asked(self, question: Question) -> bool:
        """Return whether a question may have come of it. Of one that no call asked that is not known."""
        calls = tuple(zip(question.path, question.calls, strict=False))
        return len(calls) < len(question.path) or any(chain.may_make(calls) for chain in self.chains)

    def count_tokens(self) -> int:
        """Count the tokens that the dependent replies took, which is about what others will take."""
        used = [each.reply.usage for each in self.replies]
        return sum(each.prompt_tokens + each.completion_tokens for each in used)

    def list_effects(self) -> list[ToolRecord]:
        """List the dependent calls that may have had an effect which a second call does not repeat."""
        return [record for record in self.tools.values() if not record.idempotent and record.outcome is not None]


def find_dependent_work(work: Sequence[EarlierWork], origins: Sequence[Origin]) -> DependentWork:
    """Find what may depend on the answers to some questions; `work` is all of their run, oldest first."""
    replies = sorted(_read_replies(work), key=lambda pair: pair[0])
    begins = [next((number for number, each in enumerate(work) if each.epoch == of.since), len(work)) for of in origins]
    chains = [Chain(of.question, replies, begin, is_open=of.is_open) for of, begin in zip(origins, begins, strict=True)]
    taken = [[chain.takes(place, reply) for place, reply in replies] for chain in chains]
    dependent = [reply for (_, reply), *depends in zip(replies, *taken, strict=True) if any(depends)]
    tools = {
        key: record
        for number, each in enumerate(work)
        for key, text in each.records.items()
        if key.startswith("tool:") and number >= min(begins, default=0)
        for record in (ToolRecord.model_validate_json(text),)
        if any(
            number >= begin and chain.takes_call(number, record) for chain, begin in zip(chains, begins, strict=True)
        )
    }
    return DependentWork(dependent, tools, chains)


def leave_out_repeatable(
    work: Sequence[EarlierWork], dependent: DependentWork, *, is_reversed: bool
) -> list[EarlierWork]:
    """Leave out the dependent calls of idempotent tools. What they look at may be no part of their arguments, and twice
    does no harm: they are made again, whatever they look like. So are those that are taken back before, where the fork
    takes the place of its run."""
    again = {key for key, record in dependent.tools.items() if record.idempotent or (is_reversed and record.reversible)}
    return [
        EarlierWork(each.epoch, {key: text for key, text in each.records.items() if key not in again}) for each in work
    ]


def leave_out_replies(work: Sequence[EarlierWork], dependent: DependentWork) -> list[EarlierWork]:
    """Leave out the dependent replies: they are asked for anew."""
    again = {(each.who, each.number) for each in dependent.replies}

    def is_kept(key: str, text: str) -> bool:
        if not key.startswith("model:"):
            return True
        reply = ReplyRecord.model_validate_json(text)
        return (reply.who, reply.number) not in again

    return [
        EarlierWork(each.epoch, {key: text for key, text in each.records.items() if is_kept(key, text)})
        for each in work
    ]


def _read_replies(work: Sequence[EarlierWork]) -> Iterator[tuple[_Place, ReplyRecord]]:
    for number, each in enumerate(work):
        for key, text in each.records.items():
            if key.startswith("model:"):
                reply = ReplyRecord.model_validate_json(text)
                yield (number, reply.place), reply


class _Made(NamedTuple):
    place: _Place
    depends: bool
    calls: Sequence[str]


class Chain:
    """The calls from the outermost agent down to the one that asked, and what came after each.

    What is done inside a call was made by the last reply of its caller before it: a caller waits for its calls. Their
    ids would not tell, since some servers number them anew in every reply.

    Args:
        question: the question.
        replies: all replies of the run, in order.
        begin: the number of the journal in which it was asked or answered.
        is_open: whether it was asked before that journal.
    """

    def __init__(
        self, question: Question, replies: Sequence[tuple[_Place, ReplyRecord]], begin: int, *, is_open: bool
    ) -> None:
        self._calls: CallPath = tuple(zip(question.path, question.calls, strict=False))
        self._made: dict[CallPath, list[_Made]] = {}
        """The replies that were looked at, in order, by who made them in which calls."""
        self._anchors: list[_Place] = [(begin, -1)] * (len(question.path) + 1)
        """Level by level, the reply that made the call of the chain: only what comes behind it saw the answer."""
        until = (begin, -1) if is_open else self._find_asking(question, replies, begin)
        for level in reversed(range(len(self._calls))):
            who = (self._calls[:level], self._calls[level][0])
            made = [place for place, reply in replies if (reply.above, reply.agent) == who and place <= until]
            if made:
                self._anchors[level] = until = made[-1]

    def _find_asking(self, question: Question, replies: Sequence[tuple[_Place, ReplyRecord]], begin: int) -> _Place:
        """Find the reply that asked in this journal; the place before all of it where that is not certain."""
        *above, (agent, call_id) = self._calls or (("", ""),)
        found = [
            place
            for place, reply in replies
            if place[0] == begin
            and (reply.above, reply.agent) == (tuple(above), agent)
            and call_id in _list_calls(reply)
        ]
        return found[0] if len(found) == 1 and len(self._calls) == len(question.path) else (begin, -1)

    def takes(self, place: _Place, reply: ReplyRecord) -> bool:
        """Return whether a reply may depend on the answer; to be called in the order of the replies."""
        depends = self._is_within(place, reply.above) or self._is_behind(place, reply.above)
        self._made.setdefault((*reply.above, (reply.agent, "")), []).append(_Made(place, depends, _list_calls(reply)))
        return depends

    def takes_call(self, number: int, record: ToolRecord) -> bool:
        """Return whether a tool call in a journal may depend on the answer, once all replies were looked at."""
        return self._is_within((number, record.place), tuple(zip(record.path, record.calls, strict=False)))

    def may_make(self, calls: CallPath) -> bool:
        """Return whether a call may be made by a reply that depends, whenever it is; by its id, where that is known."""
        for level, (_, call_id) in enumerate(calls):
            made = self._of_caller(calls, level)
            of_id = [each for each in made if call_id in each.calls]
            if any(each.depends for each in of_id or made):
                return True
        return False

    def _is_within(self, place: _Place, calls: CallPath) -> bool:
        """Return whether something was done inside calls one of which a dependent reply made."""
        for level in range(len(calls)):
            made = self._of_caller(calls, level)
            before = bisect_right(made, place, key=lambda each: each.place)
            if before and made[before - 1].depends:
                return True
        return False

    def _of_caller(self, calls: CallPath, level: int) -> Sequence[_Made]:
        return self._made.get((*calls[:level], (calls[level][0], "")), ())

    def _is_behind(self, place: _Place, above: CallPath) -> bool:
        """Return whether a reply comes behind the chain's call at the level where it leaves the chain. There it is the
        agent's own or that of a member of its team, or was given inside such a member."""
        level = 0
        while level < min(len(above), len(self._calls)) and above[level] == self._calls[level]:
            level += 1
        is_beside = level < len(above) and above[level][1] != ""
        return not is_beside and level < len(self._anchors) and place > self._anchors[level]


def _list_calls(reply: ReplyRecord) -> list[str]:
    content = reply.reply.content
    return [] if isinstance(content, str) else [call.id for call in content]
