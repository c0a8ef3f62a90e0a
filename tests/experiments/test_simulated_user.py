"""The simulated user knows the facts of its task, and gives away none that nobody asked for."""

from __future__ import annotations

from typing import Any

import pytest

from upcall.experiments import Task, UserSpec
from upcall.experiments.user import UNKNOWN, SimulatedUser, find_leaks
from upcall.questions.answer import Answer, Outcome
from upcall.questions.question import Question
from upcall.testing import Request, Say, ScriptedModelClient

TASK = Task.model_validate(
    {
        "id": "a",
        "task": "Write a parser",
        "facts": {
            "language": {"answer": "Rust", "others": ["Go"]},
            "licence": {"answer": "GPL", "words": ["licen", "copyright"]},
            "number of users": 2,
        },
    }
)

ANSWERS: list[tuple[dict[str, Any], str]] = [
    ({"question": "Which language?"}, "Rust"),
    ({"question": "Which language and which licence?"}, "Rust; GPL"),
    ({"question": "Under which LICENSE is it?"}, "GPL"),
    ({"question": "What is the number of users?", "options": ["many", "few"]}, "2"),
    ({"question": "Which colour?"}, UNKNOWN),
    ({"question": "Which language?", "options": ["Rust", "Python"], "allow_free_text": False}, "Rust"),
    ({"question": "Which language?", "options": ["C", "Python"], "allow_free_text": False}, UNKNOWN),
    ({"question": "Anything else that I should know?"}, UNKNOWN),
]


async def answer_of(question: Question, seed: int = 0, client: Any = None, **spec: Any) -> Answer | None:
    return await SimulatedUser(UserSpec(**spec), TASK, seed, client).answer(question)


@pytest.mark.parametrize(("asked", "output"), ANSWERS, ids=[asked["question"] for asked, _ in ANSWERS])
async def test_rules_answer_only_what_was_asked(asked: dict[str, Any], output: str) -> None:
    question = Question(**asked)
    answer = await answer_of(question)
    assert answer is not None
    assert answer.text == output
    assert find_leaks(TASK, question, answer) == ()


async def test_chances_depend_on_the_seed_alone() -> None:
    question = Question(question="Which language?")
    kinds: dict[str, Any] = {"unknown": UNKNOWN, "errs": "Go", "silent": None}
    for name, output in kinds.items():
        answers = [await answer_of(question, seed, **{name: 0.5}) for seed in range(20)]
        texts = [answer.text if answer else None for answer in answers]
        assert {*texts} == {"Rust", output}
        again = [await answer_of(question, seed, **{name: 0.5}) for seed in range(20)]
        assert texts == [answer.text if answer else None for answer in again]


@pytest.mark.parametrize(("consents", "chosen"), [(True, "Yes"), (False, "No")])
async def test_risk_takes_consent_and_no_fact(consents: bool, chosen: str) -> None:
    risk = Question(question="Delete all?", clarification_type="risk_confirmation", options=("Yes", "No"))
    answer = await answer_of(risk, consents=consents)
    assert answer is not None
    assert answer.selected == (chosen,)


async def test_simulated_persona_is_played_and_its_leaks_counted() -> None:
    def reply(request: Request) -> Say:
        text = str(request.messages[-1]["content"])
        assert "You are terse." in text
        known = "Which language" in text
        return Say({"known": known, "answer": "Rust, and it is GPL" if known else ""})

    client = ScriptedModelClient(reply)
    spec: dict[str, Any] = {"kind": "model", "model": "m", "persona": "You are terse."}
    question = Question(question="Which language?")
    answer = await answer_of(question, client=client, **spec)
    assert answer is not None
    assert find_leaks(TASK, question, answer) == ("licence",)
    unknown = await answer_of(
        Question(question="Which colour?", required=False, options=("red",), allow_free_text=False),
        client=client,
        **spec,
    )
    assert unknown is not None
    assert unknown.outcome is Outcome.SKIPPED
