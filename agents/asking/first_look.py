"""`FirstLook`: the probabilities of a single token say whether something has to be asked.

A small model asked for the decision nearly always finds a task clear. The probability that its reply begins like that
to a task in which something is missing shows more. `upcall.autogen.token_odds` says which servers return it.
"""

from __future__ import annotations

from functools import cache

from autogen_core.models import LLMMessage, SystemMessage, UserMessage

from upcall.agents.asking.ask_policy import AskPolicy, AskVerdict, ClarifierTask
from upcall.agents.asking.first_token import read_first_look
from upcall.agents.asking.missing import missing_messages, read_missing, show_examples
from upcall.autogen.model_size import is_small
from upcall.autogen.token_odds import NO_CALL, may_report_odds
from upcall.options import AskFor
from upcall.prompts import PROMPTS, Prompts
from upcall.prompts.contexts import FirstLookContext
from upcall.prompts.first_look_examples import FIRST_LOOK_EXAMPLES


class FirstLook(AskPolicy):
    """Says that something must be asked where the score of a small model's first token reaches the threshold.

    Then it also names what is missing, unless a tool may find that. It has nothing to say where the model is not small,
    or its server does not return probabilities, and where the call fails or its reply has another form.
    """

    def __init__(self, ask: AskFor, threshold: float, prompts: Prompts = PROMPTS) -> None:
        self._ask, self._threshold, self._prompts = ask, threshold, prompts

    async def judge(self, task: ClarifierTask) -> AskVerdict | None:
        """See `AskPolicy`."""
        if not (is_small(task.model_client) and may_report_odds(task.model_client)):
            return None
        reply = await task.call(first_look_messages(task.agent, self._prompts, task.text), first_token=True)
        if reply is None or reply == NO_CALL:
            return None
        score = read_first_look(reply, self._ask, task.request or task.text)
        if score is None:  # The call was made all the same, and its tokens count.
            task.note("first look: the reply tells nothing", reply.usage)
            return None
        must_ask = score >= self._threshold
        missing = await self._name_missing(task) if must_ask and not task.has_tools else ""  # They may find it.
        task.note_score("first look", score, self._threshold, reply.usage)
        return AskVerdict(must_ask=must_ask, score=score, missing=missing)

    async def _name_missing(self, task: ClarifierTask) -> str:
        """Return what is missing, in the model's few words; nothing if it does not say."""
        reply = await task.call(missing_messages(task.agent, self._prompts, task.text, self._ask))
        if reply is None:
            return ""
        missing = read_missing(reply.content) if isinstance(reply.content, str) else ""
        task.note(f"missing: {missing or 'not named'}", reply.usage)
        return missing


def first_look_messages(agent: str, prompts: Prompts, request: str) -> list[LLMMessage]:
    """Return the messages to send: the prompt, the worked examples as turns of a chat with `agent`, the request."""
    system = SystemMessage(content=prompts.render(FirstLookContext()))
    return [system, *_show_all(agent), UserMessage(content=request, source="user")]


@cache
def _show_all(agent: str) -> tuple[LLMMessage, ...]:
    return show_examples(agent, FIRST_LOOK_EXAMPLES)
