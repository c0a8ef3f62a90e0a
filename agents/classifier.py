"""The classifier: one model call returns intent, meta reply and depth (seed S2), and what the task lacks."""

from __future__ import annotations

import logging
import traceback
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType
from typing import Unpack

from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, HandoffMessage, TextMessage
from autogen_core import CancellationToken, Component
from autogen_core.models import AssistantMessage, ChatCompletionClient, LLMMessage, SystemMessage, UserMessage
from pydantic import field_validator

from upcall import identity
from upcall.agents.asking.ask_policy import AskVerdict
from upcall.agents.asking.task_judge import TaskJudge
from upcall.agents.structured.agent import Result, StructuredAgent, StructuredRequest
from upcall.agents.structured.options import StructuredOptions, StructuredParts, StructuredSettings
from upcall.agents.structured.steps import HandOver, Respond, Step
from upcall.agents.structured.thread import Thread
from upcall.autogen.concurrency import Emit
from upcall.autogen.messages import ASK_VERDICT, CLASSIFICATION, ERROR, WARNINGS, dump_warnings
from upcall.autogen.model_size import is_small
from upcall.autogen.scope import current_scope
from upcall.errors import ModelError, UpcallError
from upcall.options import ClassificationOptions, ClassifierLimits
from upcall.prompts import PROMPTS, Prompts
from upcall.prompts.contexts import ClassifierContext, ToolInfo
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.runs.outputs import Classification, Depth, Intent
from upcall.text import one_line, replace_surrogates, shorten_middle
from upcall.words import count_words

_log = logging.getLogger("upcall")

META_FALLBACK = "I'm here to help."
"""The answer to a meta query if the model wrote no reply (S2-39)."""

REPAIR_TIMEOUT_S = 15.0
"""How long the one repair of an unreadable reply may take; then the query counts as deep research (S2-38)."""

MAX_NAME_CHARS = 200
"""The maximum length of a user or file name shown to the classifier."""

_DEEP = Classification(intent=Intent.RESEARCH, research_depth=Depth.DEEP)

MIN_TASK_WORDS = 4
"""With fewer words, what a model takes for small talk ("hi", "thanks a lot") is."""

HISTORY_CHARS = 2_000
"""The maximum length of each earlier message shown to the classifier."""

JUDGED_HISTORY, JUDGED_CHARS = 4, 400
"""How many earlier messages a judge of the task sees, and the maximum length of each."""


class ClassifierSettings(StructuredSettings, ClassificationOptions, ClassifierLimits):
    """The plain options of a `Classifier`.

    Attributes:
        tools: the team's tools, shown to the model so that it can judge how much work a task is (S2-22).
        files: names in the workspace, shown as well: talk about them is not small talk.
        deep_target: who gets deep tasks: the clarifier, or the planner if there is no clarifier.
        shallow_targets: who gets shallow ones, by their intent; those of another intent count as deep.
    """

    tools: tuple[ToolInfo, ...] = ()
    files: tuple[str, ...] = ()
    deep_target: str = "clarifier"
    shallow_targets: dict[Intent, str] = {Intent.CODING: "coder", Intent.RESEARCH: "researcher"}

    @field_validator("user_info")
    @classmethod
    def _fit_values(cls, given: dict[str, str]) -> dict[str, str]:
        """Prevent a value from passing for a part of the prompt."""
        return {name: one_line(value, MAX_NAME_CHARS) for name, value in given.items()}

    @field_validator("files")
    @classmethod
    def _fit_names(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        """Prevent a name from passing for a part of the prompt, and remove bytes that no server accepts."""
        return tuple(one_line(replace_surrogates(name), MAX_NAME_CHARS) for name in given)


class ClassifierOptions(StructuredOptions, total=False):
    """The same as keyword arguments."""

    tools: Sequence[ToolInfo]
    files: Sequence[str]
    user_info: Mapping[str, str]
    llm_timeout: float
    max_history: int
    deep_target: str
    shallow_targets: Mapping[Intent, str]


class ClassifierConfig(ClassifierSettings, StructuredParts):
    """The declarative form of a `Classifier`."""


class ClassifierState(Thread):
    """The state of a `Classifier`: the classification of a task of which is still to be known whether it lacks
    something."""

    classification: Classification | None = None

    def end(self) -> None:
        """End the turn: forget the classification, keep the thread."""
        super().end()
        self.classification = None


class Classifier(StructuredAgent[ClassifierState, ClassifierSettings], Component[ClassifierConfig]):
    """Answers meta queries at once; hands a shallow task to the agent for its intent, a deep one to the clarifier.

    With a `judge` a shallow task that lacks something goes where the deep ones go, with what the judge found. Where the
    judge has nothing to say, the model's own ``missing`` decides, if the model is not small.

    If the model call fails, it says so and ends the run, with ``upcall.error`` in the message's metadata
    (S2-33); called again without new messages, it tries again.

    Args:
        judge: the clarifier's (`Clarifier.judge`), if the deep target is a clarifier; not part of the declarative form.
    """

    component_config_schema = ClassifierConfig
    component_provider_override = "upcall.agents.Classifier"
    settings_type = ClassifierSettings
    state_type = ClassifierState

    def __init__(
        self,
        model_client: ChatCompletionClient,
        *,
        name: str = "classifier",
        small_client: ChatCompletionClient | None = None,
        prompts: Prompts = PROMPTS,
        judge: TaskJudge | None = None,
        **options: Unpack[ClassifierOptions],
    ) -> None:
        settings = ClassifierSettings.model_validate(options)
        self._judge = judge
        super().__init__(
            name,
            model_client,
            settings,
            description="Decides whether a message is small talk, research or coding, and how much work it is.",
            small_client=small_client,
            timeout=settings.llm_timeout,
            prompts=prompts,
        )

    async def take_turn(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Take the turn like every structured agent; report a failed model call instead of raising it."""
        try:
            async with aclosing(super().take_turn(messages, cancellation_token)) as turn:
                async for item in turn:
                    yield item
        except ModelError as error:
            yield self._report_failure(str(error))
        except (UpcallError, AssertionError):
            raise  # Not the model's fault: the stored state, or a script in a test.
        except Exception as error:  # noqa: BLE001  (S2-41: whatever it is, the user gets an apology and not a traceback)
            place = traceback.extract_tb(error.__traceback__)[-1]  # Not its words: they might hold a key.
            _log.warning("%s failed: %s in %s:%s", self.name, type(error).__name__, place.filename, place.lineno)
            apology = f"I'm sorry, something went wrong while I read your message ({type(error).__name__})."
            yield self._report_failure(f"{apology} Please try again.")

    def _take_in(self, message: BaseChatMessage, answers: Sequence[Answer], asked: Sequence[Question]) -> None:
        """Forget what a turn that was cancelled or failed has found: this may be another task."""
        super()._take_in(message, answers, asked)
        self._state.classification, self._state.repair = None, []

    async def decide(self, emit: Emit[BaseAgentEvent], token: CancellationToken) -> Step | StructuredRequest:
        """Ask the model once, if there is anything to ask about (S2-37); find out whether a shallow task lacks
        something."""
        if not (task := self.task()).strip():
            return self._route(_DEEP, task)
        if (classification := self._state.classification) is None:
            return self._request(self._prompt(task), Classification, repair_timeout=REPAIR_TIMEOUT_S)
        return self._route_shallow(classification, task, await self._find_verdict(classification, emit, token))

    def take(self, request: StructuredRequest, result: Result, emit: Emit[BaseAgentEvent]) -> Step | None:
        """Route the task, unless it has to be judged first. One without a readable reply counts as deep research
        (S2-38)."""
        if not isinstance(result, Classification):
            return self._route(_DEEP, self.task(), self._warn_of_fallback("this was taken for deep research"))
        if result.intent is not Intent.META:
            result = result.model_copy(update={"meta_response": None})
        if not self._is_judged(result):
            return self._route(result, self.task())
        self._state.classification = result
        return None

    def _is_judged(self, classification: Classification) -> bool:
        """Return whether a judge says if the task lacks something: a shallow one, and what a small model takes for
        small talk, since it answers so many a task that it cannot do ("Translate the attached manual")."""
        if self._judge is None:
            return False
        if classification.intent is Intent.META:
            is_long = count_words(self.task()) >= MIN_TASK_WORDS
            return is_long and self._judge.first_look is not None and is_small(self._model_client)
        return self._target(classification) != self._settings.deep_target

    async def _find_verdict(
        self, classification: Classification, emit: Emit[BaseAgentEvent], token: CancellationToken
    ) -> AskVerdict:
        """Return what the judge says about the task, or else the model, unless it is a small one: Qwen2.5-Coder 1.5B
        named something in 7 of 8 clear tasks, most often what was to be made."""
        judge = self._judge
        assert judge is not None, "only a task that is judged is left open"
        known = [*self._describe_history(), *self.clarifications()]
        text = judge.describe(request := self.task(), known, self._settings.files)
        is_meta, client = classification.intent is Intent.META, self._model_client
        verdict = await judge.judge(request, text, self.name, client, emit, token, is_small_talk=is_meta)
        is_open = verdict.must_ask is None and not verdict.missing
        if is_open and classification.missing and not is_small(self._model_client):
            return verdict.model_copy(update={"missing": classification.missing})
        return verdict

    def _prompt(self, task: str) -> list[LLMMessage]:
        query, form = shorten_middle(task, self._settings.max_context_chars), self._describe_format(Classification)
        context = ClassifierContext(
            query=query,
            current_datetime=(current_scope().clock or identity.now()).strftime("%Y-%m-%d %H:%M UTC"),
            tools=self._settings.tools,
            user_info=self._settings.user_info,
            files=self._settings.files,
            reply_format=form,
        )
        text = self._parts.prompts.render(context)
        # A template of the user's own may leave it out.
        system = SystemMessage(content=text if form in text else f"{text}\n\n{form}")
        return [system, *self._history(), UserMessage(content=query, source="user")]

    def _history(self) -> list[LLMMessage]:
        return [_as_context(each, self.user_proxy) for each in self._spoken_before()]

    def _describe_history(self) -> list[str]:
        """Return what a judge of the task, who sees no conversation, has to know of it: what "it" stands for, say."""
        latest = [one_line(each.to_model_text(), JUDGED_CHARS) for each in self._spoken_before()[-JUDGED_HISTORY:]]
        return [f"Known: {' '.join(latest)}"] if latest else []

    def _spoken_before(self) -> Sequence[BaseChatMessage]:
        """Return the conversation before the present task: the last `max_history` texts and user's answers."""
        task = self._state.task_messages(self.user_proxy)
        before = self._state.messages[: self._state.messages.index(task[0])] if task else []
        spoken = [each for each in before if _is_conversation(each, self.user_proxy)]
        shown = spoken[-room:] if (room := self._settings.max_history - len(task)) > 0 else []
        return [each for each in shown if each.to_model_text().strip()]

    @property
    def targets(self) -> tuple[str, ...]:
        """The agents that get deep tasks and shallow ones."""
        return (self._settings.deep_target, *self._settings.shallow_targets.values())

    def _route(self, classification: Classification, task: str, more: Mapping[str, str] = MappingProxyType({})) -> Step:
        metadata = {CLASSIFICATION: classification.model_dump_json(), **more}
        if classification.intent is Intent.META:
            return Respond(classification.meta_response or META_FALLBACK, metadata)
        return self._hand_over(self._target(classification), classification, task, metadata)

    def _route_shallow(self, classification: Classification, task: str, verdict: AskVerdict) -> Step:
        """Route a task that was judged. The verdict goes along, so that nobody judges it again."""
        if classification.intent is Intent.META:
            if not verdict.must_ask:
                return self._route(classification, task)
            # The reply goes along in case nothing is asked after all.
            changes = {"intent": Intent.RESEARCH, "research_depth": Depth.SHALLOW}
            classification = classification.model_copy(update=changes)
        metadata = {CLASSIFICATION: classification.model_dump_json()}
        if verdict.must_ask or (verdict.must_ask is None and verdict.missing):
            metadata[ASK_VERDICT] = verdict.model_dump_json(exclude_defaults=True)
            return self._hand_over(self._settings.deep_target, classification, task, metadata)
        if verdict.problem:  # Otherwise the clarifier warns of it.
            metadata[WARNINGS] = dump_warnings([verdict.problem])
        return self._hand_over(self._target(classification), classification, task, metadata)

    def _target(self, classification: Classification) -> str:
        deep, shallow = self._settings.deep_target, self._settings.shallow_targets
        return deep if classification.depth is Depth.DEEP else shallow.get(classification.intent, deep)

    def _hand_over(self, target: str, found: Classification, task: str, metadata: dict[str, str]) -> HandOver:
        return HandOver(target, f"{found.depth.value} {found.intent.value} task: {task}", metadata)

    def _report_failure(self, message: str) -> Response:
        """End the turn for the group but keep it open: called again, the agent tries again."""
        notice = TextMessage(id=identity.new_message_id(), source=self.name, content=message, metadata={ERROR: message})
        return Response(chat_message=notice)


def _is_conversation(message: BaseChatMessage, user_proxy: str) -> bool:
    return isinstance(message, TextMessage) or (isinstance(message, HandoffMessage) and message.source == user_proxy)


def _as_context(message: BaseChatMessage, user_proxy: str) -> LLMMessage:
    text = shorten_middle(message.to_model_text(), HISTORY_CHARS)
    if message.source in ("user", user_proxy):
        return UserMessage(content=text, source=message.source)
    return AssistantMessage(content=text, source=message.source)
