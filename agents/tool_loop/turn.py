"""The turn of a tool-calling agent as data: the frames of the batch it works on, its context, and its counters."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    UserMessage,
)
from pydantic import BaseModel

from upcall.agents.resumable import AgentState
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.questions.tool_context import name_question, redact_secrets
from upcall.research.reports import MadeCall
from upcall.runs.run import Usage
from upcall.text import replace_surrogates


class Frame(BaseModel):
    """One tool call of a batch: the call, and its result or the questions it waits for.

    ``nested`` is the saved state of the nested agent that serves the call: the same agent may serve several calls of
    one batch, and between calls it holds nothing. ``answers`` are on their way to that nested agent. ``interrupted``:
    its work was cut off by an error or a cancellation and goes on from ``nested``. ``passed_up`` are the questions that
    the agent looked at and left to the user, by id. ``problem`` says why the call cannot be made at all, ``invalid``
    why the question of an `ask_user` call cannot be put. ``report``: the checked report, as JSON, that a nested agent's
    code handed up beside its text. ``given`` are the answers that the call's tool gets when it is called again, by the
    names of their questions (`upcall.tool_context`); those that are secret are sealed.
    """

    call: FunctionCall
    result: FunctionExecutionResult | None = None
    questions: list[Question] = []
    answers: list[Answer] = []
    nested: dict[str, Any] | None = None
    interrupted: bool = False
    passed_up: list[str] = []
    problem: str | None = None
    invalid: str | None = None
    report: str | None = None
    given: dict[str, Answer] = {}

    @property
    def runnable(self) -> bool:
        """Whether work can be done for this call now: it has no result, and what it waits for is here."""
        return self.result is None and (not self.questions or bool(self.answers) or self.interrupted)

    def finish(self, content: str, *, is_error: bool = False) -> None:
        """Close the call with its result; what the call was given as a secret stays out of it."""
        self.result = FunctionExecutionResult(
            content=replace_surrogates(redact_secrets(content)),
            name=self.call.name,
            call_id=self.call.id,
            is_error=is_error,
        )
        self.questions, self.answers, self.nested, self.given = [], [], None, {}

    def take(self, answer: Answer) -> None:
        """Take the answer to the call's own question: it is the result, or for the tool that asked, which goes on with
        it. Where a secret is not told there is nothing to go on with."""
        asked = next(each for each in self.questions if each.id == answer.question_id)
        if asked.tool and answer.sealed == asked.secret:
            self.questions, self.given = [], {**self.given, name_question(asked): answer}
        else:
            self.finish(answer.as_text())

    def arguments(self) -> dict[str, Any]:
        """The call's arguments. `open_frames` has checked that they are a JSON object."""
        return json.loads(self.call.arguments)  # type: ignore[no-any-return]


class Turn(AgentState):
    """The call stack of one agent as data, and the context its model sees.

    ``messages`` never holds a tool call without its result: a batch enters it whole. What the group says while a batch
    is open waits in ``arrived`` and is added after the results. ``remembered``: the memories were asked in this turn.
    """

    messages: list[LLMMessage] = []
    arrived: list[UserMessage] = []
    frames: list[Frame] = []
    thought: str | None = None
    rounds: int = 0
    repairs: int = 0
    asked: int = 0
    remembered: bool = False
    usage: dict[str, Usage] = {}

    def add(self, message: LLMMessage) -> None:
        """Add a message to the context, after the open batch if there is one."""
        if self.frames and isinstance(message, UserMessage):
            self.arrived.append(message)
        else:
            self.messages.append(message)

    def open_questions(self) -> list[Question]:
        """The unanswered questions that calls of the open batch wait for, in the order of the calls."""
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
            arguments, problem = _checked(call.arguments)
            frame = Frame(call=FunctionCall(id=call_id, name=call.name, arguments=arguments), problem=problem)
            self.frames.append(frame)

    def deliver(self, answers: Sequence[Answer]) -> None:
        """Give each answer to the call that waits for it: an own question is answered, a nested agent's goes down."""
        for frame in self.frames:
            waiting = {question.id for question in frame.questions}
            mine = [answer for answer in answers if answer.question_id in waiting]
            if mine and frame.nested is None:
                frame.take(mine[0])
            else:
                frame.answers.extend(mine)

    def results(self) -> list[FunctionExecutionResult]:
        """The results of the open batch so far, in the order of the calls."""
        return [frame.result for frame in self.frames if frame.result is not None]

    def made(self, agent: str, source_tools: Collection[str] = ()) -> list[MadeCall]:
        """All calls in the context that `agent` made and that did not fail, with what they gave back. `source_tools`
        are the names of its tools that search and read sources."""
        results = {
            each.call_id: each
            for message in self.messages
            if isinstance(message, FunctionExecutionResultMessage)
            for each in message.content
        }
        return [
            MadeCall(call.name, json.loads(call.arguments), results[call.id].content, call.name in source_tools)
            for message in self.messages
            if isinstance(message, AssistantMessage)
            and message.source == agent
            and not isinstance(message.content, str)
            for call in message.content
            if call.id in results and not results[call.id].is_error
        ]

    def close_batch(self, agent: str) -> None:
        """Move the finished batch into the context, results right after their calls."""
        calls = [frame.call for frame in self.frames]
        self.messages.append(AssistantMessage(content=calls, thought=self.thought, source=agent))
        self.messages.append(FunctionExecutionResultMessage(content=self.results()))
        self.messages.extend(self.arrived)
        self.frames, self.arrived, self.thought = [], [], None

    def end(self) -> None:
        """The turn is over: its counters start again; the context stays."""
        self.seen, self.remembered = [], False
        self.rounds = self.repairs = self.asked = 0


def _checked(arguments: str) -> tuple[str, str | None]:
    """The arguments, and what is wrong with them: they must be a JSON object that every server takes back."""
    try:
        value = json.loads(arguments or "{}")
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        return "{}", f"The arguments were not valid JSON ({error}). Call again with a JSON object."
    if not isinstance(value, dict):
        return "{}", f"The arguments were a JSON {type(value).__name__}. Call again with a JSON object."
    return arguments or "{}", None
