"""What a user made of questions before: what a new run knows of it, and how it is corrected
and forgotten."""

from __future__ import annotations

from collections.abc import Sequence

from upcall.config_source import list_known
from upcall.errors import CallerError, require_type
from upcall.questions.question import Detail
from upcall.runs.asked_topics import AskedTopic
from upcall.runs.config import RunConfig
from upcall.storage.asked_topics import delete_topics, list_topics, set_topic
from upcall.storage.store import RunStore

MOST_ASKED = 1_000_000
"""The maximum count of one topic; more is a typing error."""


async def recall_topics(store: RunStore, run_id: str, owner: str | None, config: RunConfig) -> RunConfig:
    """Return a run's config with what is known about its user in its project, if that is enabled."""
    team = config.team
    if team is None or not team.ask_memory:
        return config
    topics = tuple(await list_topics(store.database, owner, team.project(run_id)))
    return config.model_copy(update={"team": team.model_copy(update={"asked_topics": topics})})


async def forget_topics(
    store: RunStore, owner: str | None, topic: str | None, project: str | None
) -> Sequence[AskedTopic]:
    """Forget what is known about a user's questions on a topic, or on all topics, in one project or all of them.

    Raises:
        CallerError: there is no such topic, or nothing is known about it.
    """
    gone = await delete_topics(store.database, owner, project, _find_detail(topic) if topic is not None else None)
    if not gone:
        what = f"questions on the topic {topic!r}" if topic else "any question"
        raise CallerError(f"Nothing is remembered about {what}. To see what is: upcall memory")
    return gone


async def correct_topic(
    store: RunStore, owner: str | None, topic: str, project: str, asked: int, dismissed: int
) -> AskedTopic:
    """Set what is known about a user's questions on a topic in one project.

    Raises:
        CallerError: there is no such topic, or the counts are impossible.
    """
    are_numbers = isinstance(asked, int) and isinstance(dismissed, int)
    if not (are_numbers and 0 <= dismissed <= asked <= MOST_ASKED):
        raise CallerError(
            f"asked = {asked!r} and dismissed = {dismissed!r}: give numbers from 0 to {MOST_ASKED}, dismissed no more "
            "than asked."
        )
    corrected = AskedTopic(project=project, detail=_find_detail(topic), asked=asked, dismissed=dismissed)
    await set_topic(store.database, owner, corrected)
    return corrected


def _find_detail(topic: str) -> Detail:
    require_type("topic", topic, str, "the name of a topic")
    known = [each.value for each in Detail]
    if topic not in known:
        raise CallerError(f"There is no topic {topic!r}{list_known(topic, known)}")
    return Detail(topic)
