"""Tool calls in doubt: begun by a process that was cut off, so that nobody knows whether they took effect.

The human is asked about each: our own mechanism, once more. The answer becomes the result of that very call.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from upcall.questions.answer import Answer, Outcome
from upcall.questions.question import MAX_QUESTION_CHARS, ClarificationType, Option, Question, Side
from upcall.questions.record import QuestionRecord
from upcall.runs.journal_records import ToolOutcome, ToolRecord
from upcall.runs.run import Run
from upcall.runs.states import RunEvent
from upcall.text import show_name

RUN_AGAIN, SKIP = "Run it again", "Do not run it again"

_HOW_TO = "If you know what it came to, answer with that: it becomes the result of the call."


@cache
def list_options() -> tuple[Option, ...]:
    """Return what the human may choose about a call in doubt."""
    return (
        Option(label=RUN_AGAIN, description="It has not taken effect, or twice does no harm.", side=Side.YES),
        Option(
            label=SKIP, description="The agent learns that the call may or may not have taken effect.", side=Side.NO
        ),
    )


def ask_about_unknown_outcomes(run: Run, in_doubt: Mapping[str, ToolRecord]) -> Run:
    """Return the run as it is; where calls are in doubt it waits, with a question about each, before anything else is
    done."""
    if not in_doubt:
        return run
    asked = [QuestionRecord(question=_question(record)).doubt(key) for key, record in in_doubt.items()]
    return run.apply(RunEvent.ASKED, records=run.records.add(asked))


def is_about_unknown_outcome(question: Question) -> bool:
    """Return whether it is a question of ours about a call in doubt."""
    return question.options == list_options()


def resolve_record(answer: Answer, record: str) -> str | None:
    """Return the record of a call in doubt, with what the human says that it came to; None where it is to be made
    again."""
    if answer.outcome is Outcome.ANSWERED and answer.selected == (RUN_AGAIN,):
        return None
    if answer.outcome is Outcome.ANSWERED and not answer.selected:
        outcome = ToolOutcome(content=answer.text)
    else:
        outcome = ToolOutcome(
            content="Error: this call was cut off and may or may not have taken effect. The user chose not to make it "
            "again. Do not repeat it; go on without its result, or look whether it took effect.",
            is_error=True,
        )
    begun = ToolRecord.model_validate_json(record)
    return begun.model_copy(update={"outcome": outcome}).model_dump_json(exclude_none=True)


def _question(record: ToolRecord) -> Question:
    tool = show_name(record.tool)
    return Question(
        question=f"{record.path[-1]} was calling {tool} when its process ended, and nobody knows whether that took "
        "effect. Run it again?",
        header="Call in doubt",
        clarification_type=ClarificationType.RISK_CONFIRMATION,
        context=f"{_HOW_TO}\n{tool}({record.arguments})"[:MAX_QUESTION_CHARS],
        options=list_options(),
        path=record.path,
        calls=record.calls,
    )
