"""`QuestionForm`: what a person fills in to answer a question, whoever draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from upcall.questions.answer_form import AnswerForm
from upcall.questions.matching import AnswerValue
from upcall.questions.question import Option, Question
from upcall.questions.tool_call import PendingCall

OTHER = "Other: in your own words"
"""The row of a list that stands for the text field."""


@dataclass(frozen=True)
class QuestionForm:
    """The fields of a question, which terminal, notebook, page, AG-UI and MCP draw. Any question can also be declined.

    Attributes:
        choices: the options to choose from. A secret has none: a list would show which one is chosen.
        several: whether an answer may have several parts.
        takes_text: whether there is a field for text; without choices there always is.
        hidden: whether the text stays hidden while it is typed, and afterwards.
        may_skip: whether the asker can continue with its best judgement.
        call: the tool call whose arguments may be changed, if it is about one.
        needs_own_choice: whether nothing may be chosen beforehand, and no key typed before counts.
        takes_object: whether the answer has several fields; where they are not drawn, it is JSON as text.
        answer: these fields, where they can be drawn.
    """

    choices: tuple[Option, ...]
    several: bool
    takes_text: bool
    hidden: bool
    may_skip: bool
    call: PendingCall | None
    needs_own_choice: bool
    takes_object: bool = False
    answer: AnswerForm | None = None

    @classmethod
    def of(cls, question: Question) -> QuestionForm:
        """Return the form of a question."""
        choices = () if question.secret else question.options
        return cls(
            choices=choices,
            several=question.multi_select and not question.secret,
            takes_text=question.allow_free_text or not choices,
            hidden=question.secret,
            may_skip=not question.required,
            call=question.approval,
            needs_own_choice=question.is_risk,
            takes_object=question.answer_schema is not None,
            answer=question.answer_form,
        )

    @property
    def labels(self) -> list[str]:
        """The labels of the choices."""
        return [option.label for option in self.choices]

    @property
    def text_label(self) -> str:
        """What stands at the field for text."""
        if self.hidden:
            return "Secret: it is stored encrypted, and not shown again"
        if not self.choices:
            return "Your answer, as a JSON object" if self.takes_object else "Your answer"
        return "Or in your own words" if self.call is None else "Or why not; or other arguments, as JSON"


def join_fields(chosen: Sequence[str], text: str) -> AnswerValue:
    """Return what was filled in as an answer: the labels that were chosen, and the text if there is any."""
    parts = [*chosen, *([text] if text.strip() else [])]
    return parts[0] if len(parts) == 1 else parts
