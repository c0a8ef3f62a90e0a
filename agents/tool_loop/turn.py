"""The turn of a tool-calling agent as data: the frames of its batch, its context, and its counters."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any

from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    RequestUsage,
    UserMessage,
)
from pydantic import BeforeValidator, Field, JsonValue, PlainSerializer

from upcall.agents.resumable import AgentState
from upcall.agents.tool_loop.ask_user import ASK_USER
from upcall.autogen.messages import REMINDER, dump_questions, parse_questions
from upcall.autogen.thoughts import split_thoughts
from upcall.lazy_pattern import LazyPattern
from upcall.questions.answer import Answer
from upcall.questions.approval import Allowed, Decision, Denied, read_decision
from upcall.questions.question import Question
from upcall.questions.tool_context import name_question, redact_secrets
from upcall.runs.json_text import SparseModel
from upcall.runs.reports import MadeCall
from upcall.runs.run import Usage, add_usage
from upcall.text import replace_surrogates, shorten

_NUMBERS = LazyPattern(r"\d+")

MADE_ONCE = "[made once: the same call stands before this one in the reply; to make it again, call it in another reply]"
"""How the result of a call begins that repeats an earlier one of its reply; that of the earlier one follows."""

MAX_REPEATED_CHARS = 300
"""How much of that: the whole stands above, and a small model has little room."""

_Questions = Annotated[
    list[Question],
    BeforeValidator(lambda stored: parse_questions(stored) if isinstance(stored, str) else stored),
    PlainSerializer(dump_questions),
]
"""Written as the text that the message has which asks them: a stored state then holds the same bytes again, which take
next to nothing, at each level of nesting."""


class Frame(SparseModel):
    """One tool call of a batch: the call, and its result or the questions it waits for.

    ``nested`` is the saved state of the nested agent that serves the call: the same agent may serve several calls of
    one batch, and keeps nothing between calls. ``answers`` are on their way to that nested agent. ``interrupted``:
    its work was cut off by an error or a cancellation and continues from ``nested``. ``passed_up`` are the ids of the
    questions that the agent checked and left to the user. ``problem`` says why the call cannot be made at all,
    ``invalid`` why the question of an `ask_user` call cannot be asked. ``report``: the checked report, as JSON, that a
    nested agent's code passed up with its text; ``fruitless``: it rests on nothing. ``given`` are the answers that the
    call's tool gets when it is called again, by the names of their questions (`upcall.questions.tool_context`); secret
    ones are sealed. ``kept`` is what the tool left for that time. ``approved``: the human allowed the call, and
    ``edited``: they changed its arguments. ``repeats`` is the id of an earlier call of the batch that is the same: this
    one is not made, and gets its result.
    """

    call: FunctionCall
    result: FunctionExecutionResult | None = None
    questions: _Questions = Field(default_factory=list)
    answers: list[Answer] = Field(default_factory=list)
    nested: dict[str, Any] | None = None
    interrupted: bool = False
    passed_up: list[str] = Field(default_factory=list)
    problem: str | None = None
    invalid: str | None = None
    report: str | None = None
    fruitless: bool = False
    given: dict[str, Answer] = Field(default_factory=dict)
    kept: dict[str, JsonValue] = Field(default_factory=dict)
    approved: bool = False
    edited: bool = False
    repeats: str = ""

    @property
    def runnable(self) -> bool:
        """Whether work can be done for this call now: it has no result, and its answers are here."""
        is_free = not self.questions or bool(self.answers) or self.interrupted
        return self.result is None and not self.repeats and is_free

    def finish(self, content: str, *, is_error: bool = False) -> None:
        """Close the call with its result, from which secrets given to the call are removed."""
        self.result = FunctionExecutionResult(
            content=replace_surrogates(redact_secrets(content)),
            name=self.call.name,
            call_id=self.call.id,
            is_error=is_error,
        )
        self.questions, self.answers, self.nested, self.given, self.kept = [], [], None, {}, {}

    def take(self, answer: Answer) -> None:
        """Take the answer to the call's own question: it is the result, or is for the tool that asked, which continues
        with it, or is about the call itself. If a secret is refused, there is nothing to continue with."""
        asked = next(each for each in self.questions if each.id == answer.question_id)
        if asked.approval is not None:
            self._decide(read_decision(asked.approval, answer))
        elif asked.tool and answer.sealed == asked.secret:
            self.questions, self.given = [], {**self.given, name_question(asked): answer}
        else:
            self.finish(answer.as_text())

    def _decide(self, decision: Decision) -> None:
        match decision:
            case Denied(text):
                self.finish(text, is_error=True)
            case Allowed(arguments):
                self.questions, self.approved, self.edited = [], True, arguments is not None
                self.call.arguments = self.call.arguments if arguments is None else arguments

    def arguments(self) -> dict[str, Any]:
        """Return the call's arguments. `open_frames` has checked that they are a JSON object."""
        return json.loads(self.call.arguments)  # type: ignore[no-any-return]


def deliver_answers(frames: Iterable[Frame], answers: Sequence[Answer]) -> None:
    """Pass each answer to the call that waits for it: the call's own, or down to its nested agent."""
    for frame in frames:
        waiting = {question.id for question in frame.questions}
        mine = [answer for answer in answers if answer.question_id in waiting]
        if mine and frame.nested is None:
            frame.take(mine[0])
        else:
            frame.answers.extend(mine)


class Compaction(SparseModel):
    """The notes that stand for the older part of a conversation: for the messages before ``end``, but for those whose
    places are ``kept``. ``answers`` are those of the user to questions that others asked for the agent."""

    notes: str
    end: int
    kept: list[int] = Field(default_factory=list)
    answers: list[str] = Field(default_factory=list)

    def view(self, messages: Sequence[LLMMessage]) -> list[LLMMessage]:
        """Return the messages as the model sees them."""
        text = f"Notes on the earlier part of this conversation, which is left out here:\n\n{self.notes}"
        if self.answers:
            text += "\n\nWhat the user answered:\n\n" + "\n\n".join(self.answers)
        kept = [asked for place in self.kept for asked in _keep_asked(messages[place])]
        return [*kept, UserMessage(content=text, source=REMINDER), *messages[self.end :]]


def _keep_asked(message: LLMMessage) -> Iterator[LLMMessage]:
    """Yield what is kept of a message: of calls and results those that asked the user."""
    if isinstance(message, AssistantMessage) and not isinstance(message.content, str):
        calls = [call for call in message.content if call.name == ASK_USER]
        yield message.model_copy(update={"content": calls, "thought": None})
    elif isinstance(message, FunctionExecutionResultMessage):
        yield message.model_copy(update={"content": [each for each in message.content if each.name == ASK_USER]})
    else:
        yield message


class Turn(AgentState):
    """The call stack of one agent as data, and the context its model sees.

    ``messages`` never contains a tool call without its result: a batch enters it whole. Messages of the group while a
    batch is open wait in ``arrived`` and are added after the results. ``remembered``: the memories were queried in this
    turn, which ``began`` at that message. ``task`` has the words to search sources for: the last message of the
    turn, except hand-offs, which are another agent's words about it. ``idle_rounds`` counts the rounds in a row that
    only repeated earlier calls; ``reminded`` contains the reminders to the model. ``cut_off``: the finish reasons of
    the last replies in a row whose calls were cut off. ``calls_natively``: the model has made calls, so its texts are
    not read for any. ``refused``: why its last question could not be asked. ``objected``: the
    report that it was asked to correct, as JSON. ``compaction``: the notes that its model sees of the older messages.
    ``window``: how many tokens its model takes, as a refusal has shown.
    """

    messages: list[LLMMessage] = Field(default_factory=list)
    arrived: list[UserMessage] = Field(default_factory=list)
    frames: list[Frame] = Field(default_factory=list)
    thought: str | None = None
    rounds: int = 0
    idle_rounds: int = 0
    cut_off: list[str] = Field(default_factory=list)
    calls_natively: bool = False
    reminded: list[str] = Field(default_factory=list)
    asked: int = 0
    refused: str = ""
    objected: str = ""
    remembered: bool = False
    began: int = 0
    task: str = ""
    usage: dict[str, Usage] = Field(default_factory=dict)
    compaction: Compaction | None = None
    window: int = 0

    def view(self) -> Sequence[LLMMessage]:
        """Return the messages as the model sees them."""
        return self.messages if self.compaction is None else self.compaction.view(self.messages)

    def add(self, message: LLMMessage) -> None:
        """Add a message to the context, after the open batch if there is one."""
        if self.frames and isinstance(message, UserMessage):
            self.arrived.append(message)
        else:
            self.messages.append(message)

    def open_questions(self) -> list[Question]:
        """Return the unanswered questions that calls of the open batch wait for, in the order of the calls."""
        answered = {answer.question_id for frame in self.frames for answer in frame.answers}
        return [each for frame in self.frames for each in frame.questions if each.id not in answered]

    def open_frames(self, calls: Sequence[FunctionCall], thought: str | None) -> None:
        """Start working on the calls of one model reply.

        Every call gets an id of its own in this context, since a result is paired with its call by id and some models
        send none, or count from the same number in every reply. Arguments that are no JSON object never enter the
        context: some servers then refuse every further request; the frame says what was wrong instead.
        """
        self.thought = thought
        self.frames = []
        taken = {
            call.id
            for message in self.messages
            if isinstance(message, AssistantMessage) and not isinstance(message.content, str)
            for call in message.content
        }
        for call in calls:
            number, call_id = len(taken), call.id
            while not call_id or call_id in taken:  # Not random: the same reply is to give the same ids again.
                number += 1
                call_id = f"call_{number}"
            taken.add(call_id)
            arguments, problem = check_arguments(call.arguments)
            frame = Frame(call=FunctionCall(id=call_id, name=call.name, arguments=arguments), problem=problem)
            self.frames.append(frame)

    def refuse_frames(self, problem: str) -> None:
        """Say of each call of the batch why it cannot be made."""
        for frame in self.frames:
            frame.problem = problem

    def find_repeats(self, may_merge: Callable[[str], bool]) -> None:
        """Let open calls that are the same as an earlier one of the batch wait for the result of that one, of the tools
        for which that may be."""
        made = dict[tuple[str, str], str]()
        for frame in self.frames:
            if frame.result is None and not frame.questions and may_merge(frame.call.name):
                first = made.setdefault((frame.call.name, _sorted_arguments(frame.call)), frame.call.id)
                frame.repeats = "" if first == frame.call.id else first

    def release_repeats(self, call_id: str) -> None:
        """Let the repetitions of a call be made after all: it asks the human, and whether one answer serves several
        calls is not for the turn to decide (`upcall.policy.duplicates`)."""
        for frame in self.frames:
            frame.repeats = "" if frame.repeats == call_id else frame.repeats

    @property
    def repeated(self) -> list[str]:
        """The ids of the calls of the batch that repeat an earlier one."""
        return [frame.call.id for frame in self.frames if frame.repeats]

    def finish_repeats(self) -> None:
        """Give each call that repeats an earlier one the result of that, marked as such."""
        results = {each.call_id: each for each in self.results()}
        for frame in self.frames:
            if frame.repeats and frame.result is None:
                made = results[frame.repeats]
                frame.finish(f"{MADE_ONCE}\n{shorten(made.content, MAX_REPEATED_CHARS)}", is_error=bool(made.is_error))

    def deliver(self, answers: Sequence[Answer]) -> None:
        """Pass each answer to the call that waits for it: the call's own, or down to its nested agent."""
        deliver_answers(self.frames, answers)

    def count_tokens(self, path: str, usage: RequestUsage) -> None:
        """Add the tokens of a model call of the agent at `path`."""
        self.usage = add_usage(self.usage, path, usage)

    def results(self) -> list[FunctionExecutionResult]:
        """Return the results of the open batch so far, in the order of the calls."""
        return [frame.result for frame in self.frames if frame.result is not None]

    def list_made(
        self, agent: str, source_tools: Collection[str] = (), *, since: int = 0, failed: bool = False
    ) -> list[MadeCall]:
        """Return the calls that `agent` made and that did not fail, from message `since` on and in the open batch, each
        that its reply repeated once.

        `source_tools` are the names of its tools that search and read sources. `failed`: those that did fail.
        """
        made = list(self._closed_calls(agent, since))
        made += [(each.call, each.result) for each in self.frames if each.result]
        return [
            MadeCall(call.name, json.loads(call.arguments), result.content, call.name in source_tools)
            for call, result in made
            if bool(result.is_error) is failed and not result.content.startswith(MADE_ONCE)
        ]

    def _closed_calls(self, agent: str, since: int) -> Iterator[tuple[FunctionCall, FunctionExecutionResult]]:
        """Yield the calls of `agent` in the context, each with its result."""
        for asked, answered in pairwise(self.messages[since:]):
            if isinstance(answered, FunctionExecutionResultMessage) and isinstance(asked, AssistantMessage):
                results = {each.call_id: each for each in answered.content}
                if asked.source == agent and not isinstance(asked.content, str):
                    yield from ((call, results[call.id]) for call in asked.content if call.id in results)

    def handoff_context(self, agent: str, handoffs: Collection[str], left_out: str) -> list[LLMMessage]:
        """Return what `agent` did in this turn, whose last batch hands off, but for calls of the tool `left_out`."""
        history: list[LLMMessage] = []
        results: dict[str, FunctionExecutionResult] = {}
        is_last = True
        for message in reversed(self.messages):
            if isinstance(message, FunctionExecutionResultMessage):
                results = {each.call_id: each for each in message.content}
            if not isinstance(message, AssistantMessage) or message.source != agent:
                continue
            if isinstance(message.content, str):
                break  # The end of the turn before.
            if not is_last and any(call.name in handoffs for call in message.content):
                break  # So is a hand-off.
            is_last = False
            shared = [call for call in message.content if call.name != left_out and call.name not in handoffs]
            calls = [call for call in shared if call.id in results]
            comment = split_thoughts(message.thought or "").text
            if calls:
                given = FunctionExecutionResultMessage(content=[results[call.id] for call in calls])
                history = [AssistantMessage(content=calls, source=agent, thought=comment or None), given, *history]
            elif comment:
                history = [AssistantMessage(content=comment, source=agent), *history]
        return history

    def close_batch(self, agent: str) -> None:
        """Move the finished batch into the context, results right after their calls.

        The round was idle if each of its calls was made before in this turn, with the same result; one that was
        fruitless, if it was made before but for its numbers: some models count their attempts.
        """
        made = [*self._closed_calls(agent, self.began)]
        before, kinds = {_as_key(*each) for each in made}, {_as_kind(call) for call, _ in made}
        idle = all(
            (frame.result and _as_key(frame.call, frame.result) in before)
            or (frame.fruitless and _as_kind(frame.call) in kinds)
            for frame in self.frames
            if not frame.repeats
        )
        self.idle_rounds = self.idle_rounds + 1 if idle else 0
        calls = [frame.call for frame in self.frames]
        self.messages.append(AssistantMessage(content=calls, thought=self.thought, source=agent))
        self.messages.append(FunctionExecutionResultMessage(content=self.results()))
        for call in (frame.call for frame in self.frames if frame.edited):
            notice = f"The user changed the arguments of call {call.id} of {call.name}; it was made with these."
            self.messages.append(UserMessage(content=notice, source="user"))
        self.messages.extend(self.arrived)
        self.frames, self.arrived, self.thought = [], [], None

    def remind(self, text: str) -> None:
        """Tell the model something about its own replies."""
        self.messages.append(UserMessage(content=text, source=REMINDER))

    def was_reminded(self, of: str) -> bool:
        """Return whether the model was reminded of this in the turn."""
        return of in self.reminded

    def remind_once(self, of: str) -> bool:
        """Note a reminder; return whether it is the first of its kind in the turn."""
        first = of not in self.reminded
        self.reminded = self.reminded if first is False else [*self.reminded, of]
        return first

    def end(self) -> None:
        """End the turn: its counters start again; the context stays."""
        self.seen, self.remembered, self.reminded, self.began = [], False, [], len(self.messages)
        self.task = ""
        self.rounds = self.idle_rounds = self.asked = 0
        self.cut_off, self.refused, self.objected = [], "", ""


def _as_key(call: FunctionCall, result: FunctionExecutionResult) -> tuple[str, str, str]:
    return call.name, _sorted_arguments(call), result.content


def _sorted_arguments(call: FunctionCall) -> str:
    return json.dumps(json.loads(call.arguments), sort_keys=True)


def _as_kind(call: FunctionCall) -> tuple[str, str]:
    return call.name, _NUMBERS.sub("0", call.arguments)


def check_arguments(arguments: str) -> tuple[str, str | None]:
    """Return a call's arguments, and what is wrong with them: they must be a JSON object that every server accepts."""
    try:
        value = json.loads(arguments or "{}")
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        return "{}", f"The arguments were not valid JSON ({error}). Call again with a JSON object."
    if not isinstance(value, dict):
        return "{}", f"The arguments were a JSON {type(value).__name__}. Call again with a JSON object."
    return arguments or "{}", None
