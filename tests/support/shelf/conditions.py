"""The termination conditions of autogen-agentchat, in a team whose second member asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autogen_agentchat.base import Team, TerminatedException, TerminationCondition
from autogen_agentchat.conditions import (
    ExternalTermination,
    FunctionalTermination,
    FunctionCallTermination,
    HandoffTermination,
    MaxMessageTermination,
    SourceMatchTermination,
    StopMessageTermination,
    TextMentionTermination,
    TextMessageTermination,
    TimeoutTermination,
    TokenUsageTermination,
)
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, StopMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat

from shelf.agents import Diary
from shelf.rows import Build, Outcome, Row
from shelf.world import World

CONDITIONS, BASE = "autogen_agentchat.conditions", "autogen_agentchat.base"


class Third(TerminationCondition):
    """A condition of one's own, which counts what the member says."""

    def __init__(self) -> None:
        self._choose_answer = 0

    @property
    def terminated(self) -> bool:
        return self._choose_answer > 2

    async def __call__(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> StopMessage | None:
        if self.terminated:
            raise TerminatedException("It has ended.")
        self._choose_answer += sum(each.source == "member" for each in messages)
        return StopMessage(content="The third time.", source="third") if self.terminated else None

    async def reset(self) -> None:
        self._choose_answer = 0


def ends(make: Callable[[], TerminationCondition], turns: int = 9) -> Build:
    """Return a team that ends by a condition, or after many turns."""
    return lambda world: world.beside(world.member(), turns, termination_condition=make())


def has_sent_twice(messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> bool:
    return any("assistant: told" in str(each.to_text()) for each in messages if isinstance(each, TextMessage))


def ends_by_call(world: World) -> Team:
    member = world.member(model=world.caller("note", text="dry"), tools=[world.note], reflect_on_tool_use=True)
    return RoundRobinGroupChat(
        [world.asker(), member], termination_condition=FunctionCallTermination("note"), max_turns=9
    )


def ends_by_handoff(world: World) -> Team:
    other = world.member("other", world.caller("transfer_to_boss"), handoffs=["boss"])
    return RoundRobinGroupChat([world.asker(), other], termination_condition=HandoffTermination("boss"), max_turns=9)


def ends_by_stop(world: World) -> Team:
    stopper = Diary(StopMessage(content="told enough", source="member"))
    return RoundRobinGroupChat([world.asker(), stopper], termination_condition=StopMessageTermination(), max_turns=9)


ROWS = [
    Row(
        f"{CONDITIONS}.MaxMessageTermination",
        ends(lambda: MaxMessageTermination(6)),
        "counts no question and no answer",
    ),
    Row(
        f"{CONDITIONS}.TextMentionTermination",
        ends(lambda: TextMentionTermination("say blue")),
        "reads what is written, no question and no answer",
        result="I say blue.",
    ),
    Row(f"{CONDITIONS}.StopMessageTermination", ends_by_stop, "a member says it after the answer"),
    Row(
        f"{CONDITIONS}.TokenUsageTermination",
        ends(lambda: TokenUsageTermination(max_completion_token=22)),
        "counts the tokens before and after the answer",
        outcome=Outcome.REMARKED,
        remark="the model call that asks counts too",
    ),
    Row(
        f"{CONDITIONS}.HandoffTermination",
        ends_by_handoff,
        "a member hands off after the answer",
        outcome=Outcome.REMARKED,
        remark="a hand-off to the user is a question of the run, which waits for its answer",
        result="Transferred",
    ),
    Row(
        f"{CONDITIONS}.TimeoutTermination",
        ends(lambda: TimeoutTermination(600), turns=3),
        "does not end the team in between",
        outcome=Outcome.REMARKED,
        remark="the time counts from each start and each answer: nobody works while a question waits",
    ),
    Row(
        f"{CONDITIONS}.ExternalTermination",
        ends(ExternalTermination, turns=3),
        "does not end the team in between",
        outcome=Outcome.REMARKED,
        remark="`set()` reaches the process in which the team works; `Upcall.cancel` ends a run from anywhere",
    ),
    Row(
        f"{CONDITIONS}.SourceMatchTermination",
        ends(lambda: SourceMatchTermination(["asker"])),
        "the one that asks has not spoken while it waits",
        result="I say blue.",
    ),
    Row(
        f"{CONDITIONS}.TextMessageTermination",
        ends(lambda: TextMessageTermination("asker")),
        "a question and an answer are not text messages",
        result="I say blue.",
    ),
    Row(f"{CONDITIONS}.FunctionCallTermination", ends_by_call, "a member calls the function after the answer"),
    Row(
        f"{CONDITIONS}.FunctionalTermination",
        ends(lambda: FunctionalTermination(has_sent_twice)),
        "its function gets what is written, no question and no answer",
    ),
    Row(
        f"{BASE}.TerminationCondition",
        ends(Third),
        "a condition of one's own counts, before and after the answer",
        parts=[f"{BASE}.TerminatedException"],
    ),
    Row(
        f"{BASE}.AndTerminationCondition",
        ends(lambda: MaxMessageTermination(3) & TextMentionTermination("say blue")),
        "both have to hold, one of them before the answer",
        result="I say blue.",
    ),
    Row(
        f"{BASE}.OrTerminationCondition",
        ends(lambda: MaxMessageTermination(6) | TextMentionTermination("never")),
        "one of them holds after the answer",
    ),
]
