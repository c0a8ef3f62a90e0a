"""Each template and its context have the same variables, and each prompt reads as it is kept in ``golden/``.

After a change of a prompt that is wanted, ``UPCALL_UPDATE_GOLDEN=1 pytest tests/prompts`` writes them anew.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import pytest
from jinja2 import UndefinedError, meta
from places import GOLDEN

from upcall.prompts import render
from upcall.prompts.contexts import (
    AmbiguityContext,
    AskRuleContext,
    ClarifierContext,
    ClassifierContext,
    CoderContext,
    CompactionContext,
    Context,
    Document,
    FeedbackContext,
    FirstLookContext,
    JsonReminderContext,
    JudgeContext,
    LeadContext,
    MissingContext,
    ParentAnswerContext,
    PlanContext,
    ProjectInstruction,
    ProjectInstructionsContext,
    QuestionCheckContext,
    QuestionToCheckContext,
    ReminderContext,
    RepairContext,
    ReplyFormatContext,
    RequestContext,
    ResearcherContext,
    SameQuestionContext,
    SearchFirstContext,
    SimulatedUserContext,
    ToolInfo,
    WriteQuestionContext,
)
from upcall.prompts.first_look_examples import FIRST_LOOK_EXAMPLES, NOTHING, TASTE
from upcall.prompts.rendering import FOLDER, PROMPTS

UPDATE = bool(os.environ.get("UPCALL_UPDATE_GOLDEN"))  # Read here: the fixture of every test hides such variables.

CLASSES = sorted(Context.__subclasses__(), key=lambda kind: kind.__name__)

CODER = ToolInfo("coder", "Writes code.")
RESEARCHER = ToolInfo("researcher", "Finds things out.")
SEARCH = ToolInfo("search", "Searches files.")
REPORT = Document("report.md", "Energy in Europe")
DATA = Document("data.csv")

RENDERED: dict[str, Context] = {
    "ask_rule_strict": AskRuleContext(mode="strict"),
    "ask_rule_soft": AskRuleContext(mode="soft"),
    "check_for_ambiguity": AmbiguityContext(
        user_request="Search my files",
        available_tools=(SEARCH,),
        available_handlers=(CODER, RESEARCHER),
    ),
    "check_for_ambiguity_bare": AmbiguityContext("Search my files", (), ()),
    "coder": CoderContext(escalates_to=None),
    "coder_executing": CoderContext(escalates_to=None, executes=True),
    "coder_escalating": CoderContext(escalates_to="clarifier"),
    "compaction": CompactionContext(
        "coder", "Count the files.", "It called read: {}\nThe result of read: 3 files", 120, "- The port is 80."
    ),
    "compaction_first": CompactionContext("coder", "Count the files.", "It wrote: Done.", 120),
    "compaction_whole": CompactionContext(
        "coder", "Count the files.", "It wrote: Done.", 120, "- The port is 80.", True
    ),
    "first_look": FirstLookContext(),
    "intent_classification": ClassifierContext(
        query="What is CUDA?",
        current_datetime="2026-01-02 12:00 UTC",
        tools=(CODER, RESEARCHER),
        user_info={"name": "Alice", "email": "alice@example.org"},
    ),
    "intent_classification_bare": ClassifierContext("What is CUDA?", "2026-01-02 12:00 UTC", ()),
    "json_reminder": JsonReminderContext(),
    "judge": JudgeContext("Write a parser", ("language: Rust",), "Is it in the language?", "fn main() {}"),
    "lead": LeadContext(agents=(CODER, RESEARCHER)),
    "missing": MissingContext(),
    "parent_answer": ParentAnswerContext("coder", "Build the login", "Which framework?\n  1. Express\n  2. FastAPI"),
    "project_instructions": ProjectInstructionsContext(
        (ProjectInstruction("AGENTS.md", "| Run make test."), ProjectInstruction("web/AGENTS.md", "| No jQuery.", 90))
    ),
    "plan_feedback": FeedbackContext(feedback="Add a section on policy frameworks.\n\nAnd drop step 2."),
    "plan_generation": PlanContext(
        clarifier_context="Build a calculator\nThe user was asked and said: on the command line",
        feedback_history=("Fewer steps.", "Add tests."),
        available_handlers=(CODER,),
    ),
    "plan_generation_tools": PlanContext(
        clarifier_context="Build a calculator",
        feedback_history=(),
        available_handlers=(CODER,),
        available_tools=(SEARCH,),
    ),
    "plan_generation_bare": PlanContext("Build a calculator", (), ()),
    "repair": RepairContext(problem="it holds no JSON object"),
    "reminder": ReminderContext(problem="it was empty"),
    "reply_format": ReplyFormatContext(reply_schema='{"type": "object"}'),
    "request": RequestContext("Shorten the letter", "the letter"),
    "research_clarification": ClarifierContext(
        clarifier_result="Question: Which countries?\nAnswer: Germany and Japan",
        available_documents=(REPORT, DATA),
        tools=(ToolInfo("search", "Searches documents."),),
        tool_names=("search",),
        max_turns=2,
    ),
    "research_clarification_bare": ClarifierContext("", (), (), (), 1),
    "question_check": QuestionCheckContext(),
    "question_to_check": QuestionToCheckContext(request="Compare the G7", question="Which countries?"),
    "researcher": ResearcherContext(available_documents=(REPORT, DATA), escalates_to="clarifier"),
    "researcher_bare": ResearcherContext(available_documents=(), escalates_to=None),
    "same_question": SameQuestionContext(("Which framework?", "Which database?"), "Which web framework?"),
    "simulated_user": SimulatedUserContext("", "Write a parser", ("language: Rust",), "Which language?"),
    "simulated_user_persona": SimulatedUserContext("Terse.", "Write a parser", (), "Which language?"),
    "search_first": SearchFirstContext(tool_names=("search", "read_document")),
    "write_question": WriteQuestionContext(),
}


def variables(template: str) -> set[str]:
    """Return the variables that a template reads."""
    source = (FOLDER / template).read_text(encoding="utf-8")
    return meta.find_undeclared_variables(PROMPTS.environment.parse(source))


# -- templates and contexts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CLASSES)
def test_template_reads_just_the_fields_of_its_context(kind: type[Context]) -> None:
    assert variables(kind.template) == {field.name for field in dataclasses.fields(kind)}


def test_every_template_has_one_context() -> None:
    templates = [kind.template for kind in CLASSES]
    assert sorted(templates) == sorted(path.name for path in FOLDER.glob("*.j2"))


def test_classifier_gets_the_variables_of_its_seed() -> None:
    """S2-26 to S2-29; the form of the reply is ours, so that it stands before the message."""
    seed = {"query", "current_datetime", "user_info", "tools"}
    assert variables("intent_classification.j2") == seed | {"files", "reply_format"}


def test_clarifier_gets_the_variables_of_its_seed() -> None:
    """S0-50"""
    seed = {"clarifier_result", "available_documents", "tools", "tool_names"}
    assert seed <= variables("research_clarification.j2")


def test_plan_gets_the_variables_of_its_seed() -> None:
    """S0-53"""
    assert {"clarifier_context", "feedback_history"} <= variables("plan_generation.j2")
    assert "The plan has a title, two to six sections" in render(RENDERED["plan_generation"])


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("parameters that planning needs and that are missing", id="S3-02"),
        pytest.param("several possible interpretations", id="S3-03"),
        pytest.param("goals too vague to plan for", id="S3-04"),
        pytest.param("too little context to choose the agent or the tool for a step", id="S3-05"),
        pytest.param("Do not be over-cautious: what has an ordinary default, what was answered already", id="S3-37"),
        pytest.param('"needs_clarification": true, "ambiguity_details": [{"aspect": ', id="S3-06 to S3-09"),
    ],
)
def test_ambiguity_prompt_explains_when_to_ask_and_not(words: str) -> None:
    assert words in render(RENDERED["check_for_ambiguity"])


def test_ambiguity_prompt_gets_the_variables_of_its_seed() -> None:
    """S3-40"""
    assert variables("check_for_ambiguity.j2") == {"user_request", "available_tools", "available_handlers"}


@pytest.mark.parametrize("kind", CLASSES)
def test_context_cannot_be_changed(kind: type[Context]) -> None:
    context = next(each for each in RENDERED.values() if type(each) is kind)
    name = next((field.name for field in dataclasses.fields(kind)), "template")
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(context, name, None)


# -- renderings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RENDERED)
def test_prompt_reads_as_it_is_kept(name: str) -> None:
    file, text = GOLDEN / f"{name}.txt", render(RENDERED[name]) + "\n"
    if UPDATE:
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_prompt_contexts_and_golden_renderings_correspond() -> None:
    assert {type(context) for context in RENDERED.values()} == set(CLASSES)
    assert {file.stem for file in GOLDEN.glob("*.txt")} == set(RENDERED)


@pytest.mark.parametrize("name", RENDERED)
def test_prompt_is_tidy(name: str) -> None:
    text = render(RENDERED[name])
    assert "\n\n\n" not in text
    assert [line for line in text.splitlines() if line != line.rstrip()] == []
    assert text == text.strip()


@pytest.mark.parametrize("name", RENDERED)
def test_no_prompt_shows_a_value_as_python_would(name: str) -> None:
    assert not {"None", "True", "False"} & set(render(RENDERED[name]).split())


def test_first_look_prompt_names_its_examples_words() -> None:
    text, replies = render(FirstLookContext()), [reply for _, reply in FIRST_LOOK_EXAMPLES]
    assert f'"{NOTHING}"' in text
    assert f'"{TASTE.strip()}"' in text
    assert NOTHING in replies
    assert any(each.startswith(TASTE) for each in replies)


@pytest.mark.parametrize("left", [1, 2])
def test_clarifier_counts_its_questions_in_words(left: int) -> None:
    """S0-30"""
    text = render(ClarifierContext("", (), (), (), left))
    assert f"You may ask {left} question{'s' if left > 1 else ''} in all, one" in text


def test_sections_on_documents_are_there_only_with_documents() -> None:
    """S0-51"""
    without = render(RENDERED["research_clarification_bare"])
    assert "documents" not in without
    assert "report.md: Energy in Europe\n- data.csv\n" in render(RENDERED["research_clarification"])


def test_user_is_named_as_far_as_known() -> None:
    """S2-28"""
    known = dataclasses.replace(ClassifierContext("Hi", "now", ()), user_info={"email": "a@b.c"})
    assert "The user is unknown (a@b.c)." in render(known)


# -- user text --------------------------------------------------------------------------------------------------------

HOSTILE = "{{ 7 * 7 }} {% for x in y %} {# gone #} {{ query }} <b>&amp;</b> {%- endraw %}"


@pytest.mark.parametrize(
    "context",
    [
        ClassifierContext(HOSTILE, "now", (ToolInfo(HOSTILE, HOSTILE),), {"name": HOSTILE}),
        ClarifierContext(HOSTILE, (Document(HOSTILE, HOSTILE),), (ToolInfo(HOSTILE, HOSTILE),), (HOSTILE,), 1),
        AmbiguityContext(HOSTILE, (ToolInfo(HOSTILE, HOSTILE),), (ToolInfo(HOSTILE, HOSTILE),)),
        PlanContext(HOSTILE, (HOSTILE,), (ToolInfo(HOSTILE, HOSTILE),), (ToolInfo(HOSTILE, HOSTILE),)),
        FeedbackContext(HOSTILE),
        QuestionToCheckContext(HOSTILE, HOSTILE),
        SearchFirstContext((HOSTILE, HOSTILE)),
        LeadContext((ToolInfo(HOSTILE, HOSTILE),)),
        ResearcherContext((Document(HOSTILE, HOSTILE),), escalates_to=None),
        ReplyFormatContext(HOSTILE),
        ReminderContext(HOSTILE),
        RepairContext(HOSTILE),
    ],
    ids=lambda context: type(context).__name__,
)
def test_user_text_that_looks_like_a_template_stays_text(context: Context) -> None:
    given = repr(context).count(repr(HOSTILE)[1:-1])
    assert render(context).count(HOSTILE) == given


def test_user_text_is_kept_to_the_letter() -> None:
    text = "  a\n\n\n\tb \u2028 ü 😀 \\n {{"
    assert text in render(ClassifierContext(text, "now", ()))


def test_variable_that_no_context_has_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'nobody' is undefined"):
        PROMPTS.environment.from_string("{{ nobody }}").render()


def test_field_that_no_value_has_is_an_error() -> None:
    context: Any = LeadContext(agents=("coder",))  # type: ignore[arg-type]  # what a caller may get wrong
    with pytest.raises(UndefinedError, match="has no attribute 'name'"):
        render(context)
