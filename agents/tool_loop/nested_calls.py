"""The calls of nested agents, whose questions their caller may answer before they go up."""

from __future__ import annotations

from autogen_agentchat.messages import ThoughtEvent, UserInputRequestedEvent
from autogen_core import CancellationToken

from upcall import identity
from upcall.agents.nesting import CallingAgent, serve_nested
from upcall.agents.tool_loop.model_view import ModelView
from upcall.agents.tool_loop.nested_answers import answer_nested, may_answer
from upcall.agents.tool_loop.parts import PausableParts
from upcall.agents.tool_loop.turn import Frame, Turn
from upcall.autogen.call_path import nested_call
from upcall.autogen.concurrency import Emit
from upcall.autogen.known_answers import record_parent_answer
from upcall.autogen.messages import Event, answered_event, event_path, event_questions, prefix_path


class NestedCalls:
    """Serves the calls of an agent's nested agents: their events get its name in front, their tokens count as its."""

    def __init__(self, parts: PausableParts, view: ModelView) -> None:
        self._parts, self._view = parts, view
        self._nested = parts.toolset.nested
        self._answers = parts.settings.answers_nested
        self._caller = CallingAgent(parts.name, parts.settings.user_proxy, parts.settings.nested_timeout)

    def __contains__(self, name: str) -> bool:
        return name in self._nested

    async def serve(self, turn: Turn, frame: Frame, token: CancellationToken, emit: Emit[Event]) -> None:
        """Work on a call until it has its result, or waits for the user."""
        if await self._parts.toolset.hold_for_approval(frame, token, emit):
            return
        serving, held = True, list[Event]()

        def emit_event(event: Event) -> None:
            event = prefix_path(self._caller.name, event, frame.call.id)
            if event.models_usage is not None:
                turn.count_tokens("/".join(event_path(event)), event.models_usage)
            looks = self._answers and isinstance(event, UserInputRequestedEvent)
            (held.append if looks and all(map(may_answer, event_questions(event))) else emit)(event)

        while serving:
            await serve_nested(frame, self._nested[frame.call.name], self._caller, token, emit_event)
            serving = await self._answer(turn, frame, token, emit)
            for event in held:  # Nobody is asked what this agent answers.
                if {each.id for each in event_questions(event)} & set(frame.passed_up):
                    emit(event)
            held.clear()

    async def _answer(self, turn: Turn, frame: Frame, token: CancellationToken, emit: Emit[Event]) -> bool:
        """Answer a nested agent's questions, if its caller knows the answers, each question once.

        Returns whether there is an answer to continue with.
        """
        asked = [each for each in frame.questions if each.id not in frame.passed_up and may_answer(each)]
        if not asked or not self._answers:
            return False
        parts, name = self._parts, self._caller.name
        frame.interrupted = True  # Cut off here, it continues with what was answered so far.
        for question in asked:
            with nested_call(name, frame.call.id):
                answer, usage = await answer_nested(
                    parts.small_client or parts.model_client,
                    await self._view.show(turn, parts.settings.system_message, token),
                    question,
                    agent=name,
                    nested=frame.call.name,
                    task=str(frame.arguments().get("task")),
                    token=token,
                    prompts=parts.prompts,
                )
            if usage is not None:
                turn.count_tokens(name, usage)
                thought = f"(looks whether it can answer {frame.call.name}: {'yes' if answer else 'no'})"
                emit(ThoughtEvent(id=identity.new_message_id(), source=name, content=thought, models_usage=usage))
            if answer is None:
                frame.passed_up.append(question.id)
            else:
                frame.answers.append(answer)
                record_parent_answer(question, answer)
                emit(answered_event(question, answer, source=name))
        frame.interrupted = False
        return bool(frame.answers)
