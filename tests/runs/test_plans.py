"""Plans: what is checked before anybody acts on one, the edits of single steps, and what the user made of a plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError
from tables import rows

from upcall.runs.plan import MAX_STEPS, ClarifierResult, Plan, PlanDraft, PlanStatus, PlanStep, ReviewedPlan
from upcall.runs.plan_edits import EDITS_HINT, EditRefused, apply_edits, can_edit, write_edits

SEEDS = range(60)
DECIDED = [status for status in PlanStatus if status not in (PlanStatus.MADE, PlanStatus.PROPOSED)]


def step(step_id: str = "1", **fields: Any) -> dict[str, Any]:
    return {"step_id": step_id, "description": f"do {step_id}", **fields}


def plan(*steps: dict[str, Any], **fields: Any) -> Plan:
    return Plan.model_validate({"title": "T", "sections": ["S"], "steps": steps, **fields})


def reviewed(status: PlanStatus) -> ReviewedPlan:
    return ReviewedPlan.of(plan(step("1")), status)


def changed(before: Plan, reply: str) -> Plan:
    after = apply_edits(before, reply)
    assert after is not None, reply
    return after


def by_id(of: Plan) -> dict[str, PlanStep]:
    return {each.step_id: each for each in of.steps}


CHAIN = plan(
    step("1", name="coder", outputs=["a.py"]),
    step("2", name="researcher", depends_on=["1"]),
    step("3", type="tool", name="search", depends_on=["2", "1"]),
)


# -- title and sections -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{"title": " "}, {"sections": []}, {"sections": None}, {"title": None}], ids=repr)
def test_plan_needs_a_title_and_sections(fields: dict[str, Any]) -> None:
    """S0-03"""
    with pytest.raises(ValidationError, match=r"title|sections"):
        plan(**fields)


def test_plan_may_have_no_steps() -> None:
    """S0-03: title and sections alone are a plan"""
    assert plan(steps=None).steps == ()


@pytest.mark.parametrize(
    "sections",
    [["A", "B"], [{"title": "A"}, {"name": "B", "description": "x"}], ["A", "", "  ", "B"], [" A ", "B\n"]],
    ids=["texts", "objects", "blank ones", "untrimmed"],
)
def test_plan_sections_are_read_in_models_forms(sections: list[Any]) -> None:
    assert plan(sections=sections).sections == ("A", "B")


def test_plan_shows_title_and_sections_like_the_seed() -> None:
    assert plan(step("1", name="coder"), title="Energy", sections=["Jobs", "GDP"]).as_text() == (
        "Title: Energy\nSections:\n- Jobs\n- GDP\nSteps:\n1. [coder] do 1"
    )


def test_plan_as_markdown_is_what_the_lead_gets() -> None:
    made = plan(
        step("1", name="coder", outputs=["a.py"]), step("2", inputs=["${1.a.py}", "the task"], depends_on=["1"])
    )
    assert made.as_markdown().splitlines() == [
        "# T",
        "",
        "- S",
        "",
        "## Steps",
        "",
        "1. [coder] do 1; makes a.py",
        "2. [lead] do 2 (after 1); uses ${1.a.py}, the task",
    ]


def test_step_is_one_line_however_it_is_described() -> None:
    assert plan(step("1", description="a\n\n2. [lead] b")).steps[0].as_line() == "1. [lead] a 2. [lead] b"


def test_plan_survives_json() -> None:
    assert Plan.model_validate_json(CHAIN.model_dump_json()) == CHAIN


# -- steps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([step("1"), step("1")], "'1' is used twice"),
        ([step("1"), step("1 ")], "'1' is used twice"),
        ([step("1"), step("2"), step(" 1 ")], "'1' is used twice"),
        ([step("1", depends_on=["9"])], "'1' depends on '9', which is not a step of this plan"),
        ([step("1", depends_on=[""])], "depends on '', which is not a step of this plan"),
        ([step("1", depends_on=["1"])], "'1' depends on itself"),
        ([step("1"), step("2", depends_on=["1", "2"])], "'2' depends on itself"),
        ([step("1", depends_on=["2"]), step("2")], "'1' depends on '2', which does not come before it"),
        ([step("1", depends_on=["2"]), step("2", depends_on=["1"])], "does not come before it"),
        ([step("1", depends_on=["3"]), step("2", depends_on=["1"]), step("3", depends_on=["2"])], "come before it"),
        ([step("")], "step_id"),
        ([{"description": "a"}], "step_id"),
        ([{"step_id": "1"}], "description"),
        ([step("1", description=" ")], "description"),
        ([step("1", description="\x1b\x07")], "description"),
        ([step("1", type="wizard")], "'handler' or 'tool'"),
        ([step("1", name=" ")], "name"),
        ([step("1", depends_on={"a": ["b"]})], "which is not a step of this plan"),
        ([step(str(number)) for number in range(MAX_STEPS + 1)], f"at most {MAX_STEPS} items"),
        (["Search"], "steps.0"),
    ],
)
def test_plan_that_cannot_be_carried_out_is_refused(steps: list[Any], expected: str) -> None:
    """S3-42"""
    with pytest.raises(ValidationError, match=expected):
        plan(*steps)


@pytest.mark.parametrize(
    ("reference", "expected"),
    rows("plans/a_reference_to_what_no_earlier_step_makes_is_refused"),
)
def test_plan_reference_to_no_earlier_result_is_refused(reference: str, expected: str) -> None:
    """S3-42"""
    first = [step("0"), step("1", outputs=["report", "parser.py"])]
    with pytest.raises(ValidationError, match=expected):
        plan(*first, step("2", inputs=[reference], outputs=["own"]), step("3", outputs=["later"]))


@pytest.mark.parametrize(
    "reference",
    rows("plans/a_reference_to_an_earlier_result_is_good_and_other_text_is_no_reference"),
)
def test_plan_reference_to_an_earlier_result_is_accepted(reference: str) -> None:
    """S3-42"""
    first = [step("1", outputs=["report", "parser.py"]), step("1.1", outputs=["sub.csv"])]
    assert plan(*first, step("2", inputs=[reference])).steps[2].inputs == (reference,)


def test_plan_output_with_a_dot_is_no_step() -> None:
    made = plan(step("1", outputs=["a.csv"]), step("1.a"), step("2", inputs=["${1.a.csv}"]))
    assert made.steps[2].references() == ["1.a.csv"]


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    rows("plans/who_does_a_step_is_read_in_the_forms_models_write_it_in"),
)
def test_plan_assignee_is_read_in_models_forms(text: dict[str, Any], kind: str, name: str) -> None:
    """S3-42"""
    made = plan(step("1", **text)).steps[0]
    assert (made.type, made.name) == (kind, name)


def test_plan_step_has_the_fields_of_the_seed() -> None:
    """S3-42"""
    assert list(PlanStep.model_fields) == [
        "step_id",
        "description",
        "type",
        "name",
        "inputs",
        "outputs",
        "depends_on",
    ]


def test_step_ids_may_be_numbers() -> None:
    """Models write "step_id": 1 as often as "1" """
    made = plan({"step_id": 1, "description": "a"}, {"step_id": 2, "description": "b", "depends_on": [1]})
    assert made.steps[1].depends_on == ("1",)


def test_plan_step_may_leave_out_optional_fields() -> None:
    made = plan(step("1", name=None, inputs=None, outputs=None, depends_on=None))
    assert made.steps[0] == PlanStep(step_id="1", description="do 1")


def test_plan_step_lists_may_be_texts_or_objects() -> None:
    made = plan(
        step("1", outputs={"report": "The report"}),
        step("2", inputs={"of": "${1.report}"}, outputs="x", depends_on="1"),
    )
    assert made.steps[0].outputs == ("report",)
    assert (made.steps[1].inputs, made.steps[1].outputs, made.steps[1].depends_on) == (
        ("of: ${1.report}",),
        ("x",),
        ("1",),
    )


@pytest.mark.parametrize(
    ("text", "handlers", "tools", "problem"),
    [
        ({"name": "coder"}, ["coder"], [], None),
        ({"name": "coder"}, [], [], None),
        ({"name": "wizard"}, ["coder", "lead"], [], "step '1' names the agent 'wizard'; there is: coder, lead"),
        ({"name": "search"}, ["coder"], ["search"], "step '1' names the agent 'search'; there is: coder"),
        ({"tool": "search"}, ["coder"], ["search"], None),
        ({"tool": "delete"}, ["coder"], ["search"], "step '1' names the tool 'delete'; there is: search"),
        ({"tool": "search"}, ["coder"], [], "step '1' names the tool 'search'; there are no tools"),
        ({"tool": "search"}, [], [], "step '1' names the tool 'search'; there are no tools"),
    ],
)
def test_plan_names_agents_and_tools_that_are_missing(
    text: dict[str, Any], handlers: list[str], tools: list[str], problem: str | None
) -> None:
    """S3-42"""
    assert plan(step("1", **text)).unknown_names(handlers, tools) == ([problem] if problem else [])


def test_plan_names_all_unknown_names_together() -> None:
    made = plan(step("1", name="wizard"), step("2", name="coder"), step("3", tool="delete"))
    assert len(made.unknown_names(["coder"], ["search"])) == 2


# -- edits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "lines"),
    [
        ("edit step 2: Ask the users", ["1. [coder] do 1", "2. [researcher] Ask the users", "3. [search] do 3"]),
        ("EDIT STEP 2:Ask", ["1. [coder] do 1", "2. [researcher] Ask", "3. [search] do 3"]),
        ("  edit step 2:   [coder] Ask  ", ["1. [coder] do 1", "2. [coder] Ask", "3. [search] do 3"]),
        ("edit step 2: [coder]", ["1. [coder] do 1", "2. [coder] do 2", "3. [search] do 3"]),
        ("edit step 2: [see the report] Ask", ["1. [coder] do 1", "2. [researcher] [see the report] Ask", "3. [se"]),
        ("edit step 2: edit step 3: x", ["1. [coder] do 1", "2. [researcher] edit step 3: x", "3. [search] do 3"]),
        ("add step: Test", ["1. [coder] do 1", "2. [researcher] do 2", "3. [search] do 3", "4. [lead] Test"]),
        ("Add a step: [coder] Test", ["1. [coder] do 1", "2. [researcher] do 2", "3. [search] do 3", "4. [coder] T"]),
        ("add step after 1: Test", ["1. [coder] do 1", "4. [lead] Test (after 1)", "2. [researcher]", "3. [search]"]),
        ("remove step 3", ["1. [coder] do 1", "2. [researcher] do 2 (after 1)"]),
        ("Remove step 3.", ["1. [coder] do 1", "2. [researcher] do 2 (after 1)"]),
        ("remove step 2", ["1. [coder] do 1", "3. [search] do 3 (after 1)"]),
        ("remove steps 2 and 3", ["1. [coder] do 1"]),
        ("remove steps 1, 2, and 3", []),
        ("remove step 1,2", ["3. [search] do 3"]),
        ("remove step 2\n\nedit step 1: Begin\nadd step: End", ["1. [coder] Begin", "3. [search] do 3 (after 1)", "4"]),
        (
            "remove step 3\nadd step: Test\nedit step 3: Test more",
            ["1. [coder]", "2. [researcher]", "3. [lead] Test"],
        ),
    ],
)
def test_single_steps_are_edited_added_and_removed(reply: str, lines: list[str]) -> None:
    after = changed(CHAIN, reply)
    assert [each.as_line()[: len(line)] for each, line in zip(after.steps, lines, strict=True)] == lines


@pytest.mark.parametrize("line", EDITS_HINT.split('"')[1::2])
def test_edits_that_the_hint_shows_are_edits(line: str) -> None:
    assert changed(CHAIN, line) != CHAIN


@pytest.mark.parametrize(
    "reply",
    rows("plans/text_that_merely_resembles_an_edit_is_none"),
)
def test_text_that_merely_resembles_an_edit_is_none(reply: str) -> None:
    assert apply_edits(CHAIN, reply) is None


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("edit step 9: x", "there is no step '9'; steps: 1, 2, 3"),
        ("remove step 2 and 9", "there is no step '9'; steps: 1, 3"),
        ("remove step 2, 2", "there is no step '2'; steps: 1, 3"),
        ("add step after 9: x", "there is no step '9'"),
        ("edit step 1.1: x", "there is no step '1.1'"),
        ("remove steps 1, 2 and 3\nremove step 1", "there is no step '1'; steps: none"),
        ("edit step 2: fine\nedit step 3: fine\nremove step 7", "there is no step '7'"),
        ("remove step 7\nedit step 2: fine", "there is no step '7'"),
        ("edit step 2: \x07", "description: Value should have at least 1"),
        ("add step: \x1b", "description: Value should have at least 1"),
    ],
)
def test_plan_edit_that_is_impossible_refuses_its_companions(reply: str, expected: str) -> None:
    before = CHAIN.model_copy(deep=True)
    with pytest.raises(EditRefused, match=expected):
        apply_edits(CHAIN, reply)
    assert before == CHAIN


def test_step_whose_output_is_used_is_not_removed() -> None:
    before = plan(step("1", outputs=["a"]), step("2", inputs=["${1.a}"], depends_on=["1"]))
    with pytest.raises(EditRefused, match=r"uses \$\{1.a\}, but no earlier step has that id"):
        apply_edits(before, "remove step 1")
    assert changed(before, "remove steps 2, 1").steps == ()


def test_steps_are_found_by_ids_that_are_words_too() -> None:
    before = plan(step("parse"), step("v1.run-all", depends_on=["parse"]))
    assert [each.step_id for each in changed(before, "remove step parse").steps] == ["v1.run-all"]
    assert by_id(changed(before, "edit step v1.run-all: All"))["v1.run-all"].description == "All"


def test_plan_without_steps_gets_its_first() -> None:
    assert [each.as_line() for each in changed(plan(), "add step: Begin").steps] == ["1. [lead] Begin"]


def test_plan_edit_never_exceeds_the_limit_of_steps() -> None:
    full = plan(*(step(str(number)) for number in range(MAX_STEPS)))
    with pytest.raises(EditRefused, match=f"at most {MAX_STEPS} items"):
        apply_edits(full, "add step: One more")
    assert len(changed(full, "remove step 0\nadd step: Another").steps) == MAX_STEPS


def test_what_an_edit_says_is_shown_without_control_characters() -> None:
    assert changed(CHAIN, "edit step 2: \x1b[2J Ask\u202e").steps[1].description == "[2J Ask"


# -- edits of random plans --------------------------------------------------------------------------------------------


def random_plan(random: Random) -> Plan:
    steps: list[dict[str, Any]] = []
    for number in range(1, random.randint(2, 12)):
        earlier = [each["step_id"] for each in steps]
        needed = random.sample(earlier, random.randint(0, min(3, len(earlier))))
        used = random.choice(steps)["step_id"] if steps and random.random() < 0.2 else None
        steps.append(
            step(
                random.choice([str(number), f"{number}.1", f"step-{number}", "abcdefghijklm"[number]]),
                type=random.choice(["handler", "tool"]),
                name=random.choice(["lead", "coder", "search"]),
                inputs=[f"${{{used}.out}}"] if used else ["the task"],
                outputs=["out"],
                depends_on=needed,
            )
        )
    return plan(*steps)


def needs(of: Plan) -> Mapping[str, set[str]]:
    """For each step, all that must be done before it, directly or not."""
    before: dict[str, set[str]] = {}
    for each in of.steps:
        before[each.step_id] = set(each.depends_on).union(*(before[needed] for needed in each.depends_on))
    return before


def checked_again(of: Plan) -> Plan:
    """Return the same plan read from its JSON, so that everything in it is checked."""
    return Plan.model_validate_json(of.model_dump_json())


@pytest.mark.parametrize("seed", SEEDS)
def test_plan_edit_leaves_other_steps_alone(seed: int) -> None:
    random = Random(seed)
    before = random_plan(random)
    touched = random.sample([each.step_id for each in before.steps], random.randint(1, len(before.steps)))
    after = changed(before, "\n".join(f"edit step {each}: [coder] New {each}" for each in touched))
    assert checked_again(after) == after
    assert [each.step_id for each in after.steps] == [each.step_id for each in before.steps]
    for old, new in zip(before.steps, after.steps, strict=True):
        by_hand = {"description": f"New {old.step_id}", "type": "handler", "name": "coder"}
        assert new == (old.model_copy(update=by_hand) if old.step_id in touched else old)


@pytest.mark.parametrize("seed", SEEDS)
def test_added_step_leaves_all_others_as_they_were(seed: int) -> None:
    random = Random(seed)
    before = random_plan(random)
    after_step = random.choice(before.steps).step_id
    after = changed(before, f"add step after {after_step}: First\nadd step: Last")
    assert checked_again(after) == after
    added = [each for each in after.steps if each.step_id not in by_id(before)]
    assert [each.description for each in added] == ["First", "Last"]
    assert [each for each in after.steps if each not in added] == list(before.steps)
    assert added[0].depends_on == (after_step,)
    assert after.steps.index(added[0]) == [each.step_id for each in after.steps].index(after_step) + 1


@pytest.mark.parametrize("seed", SEEDS)
def test_plan_removal_passes_dependencies_on_or_is_refused(seed: int) -> None:
    random = Random(seed)
    before = random_plan(random)
    gone = random.sample([each.step_id for each in before.steps], random.randint(1, len(before.steps)))
    kept = [each for each in before.steps if each.step_id not in gone]
    used = {name.removesuffix(".out") for each in kept for name in each.references()}
    original = before.model_copy(deep=True)
    if used & set(gone):
        with pytest.raises(EditRefused, match="no earlier step has that id"):
            apply_edits(before, f"remove steps {', '.join(gone)}")
    else:
        after = changed(before, f"remove steps {', '.join(gone)}")
        assert checked_again(after) == after
        assert needs(after) == {each: all_ - set(gone) for each, all_ in needs(before).items() if each not in gone}
        untouched = [each for each in kept if not set(each.depends_on) & set(gone)]
        assert [each for each in untouched if by_id(after)[each.step_id] != each] == []
        assert [each.model_copy(update={"depends_on": ()}) for each in after.steps] == [
            each.model_copy(update={"depends_on": ()}) for each in kept
        ]
    assert before == original


@pytest.mark.parametrize("seed", SEEDS)
def test_plan_edits_keep_it_valid_or_change_nothing(seed: int) -> None:
    random = Random(seed)
    before = random_plan(random)
    ids = [*by_id(before), "99"]
    forms = ["edit step {}: New", "edit step {}: [coder]", "add step after {}: More", "add step: End", "remove step {}"]
    lines = [random.choice(forms).format(random.choice(ids)) for _ in range(random.randint(1, 6))]
    original = before.model_copy(deep=True)
    try:
        after = changed(before, "\n".join(lines))
    except EditRefused:
        pass
    else:
        assert checked_again(after) == after
        assert not any("99" in line for line in lines)
    assert before == original


def test_plan_edits_are_written_as_they_are_read() -> None:
    reply = write_edits(CHAIN, {"1": "do 1", "2": "Look\ntwice", "3": " "}, "Report")
    assert reply == "edit step 2: Look twice\nremove step 3\nadd step: Report"
    assert [each.description for each in changed(CHAIN, reply).steps] == ["do 1", "Look twice", "Report"]


def test_plan_edits_are_none_where_nothing_changes() -> None:
    odd = plan(step("1"), step("first step!"))
    assert write_edits(odd, {"1": " do  1", "first step!": "else"}) == ""
    assert [can_edit(each) for each in odd.steps] == [True, False]


# -- review -----------------------------------------------------------------------------------------------------------


def versions() -> ReviewedPlan:
    """Return a plan revised after feedback and then edited."""
    first = ReviewedPlan.of(plan(title="One"), PlanStatus.PROPOSED)
    return first.revise(plan(title="Two"), "More.").revise(plan(title="Three"), "edit step 1: x", edited=True)


def test_plan_revision_keeps_versions_and_their_feedback() -> None:
    """S0-29"""
    made = versions()
    assert [(each.plan.title, each.feedback, each.edited) for each in made.history] == [
        ("One", "More.", False),
        ("Two", "edit step 1: x", True),
    ]
    assert (made.title, made.status, made.feedback) == ("Three", PlanStatus.PROPOSED, ("More.", "edit step 1: x"))
    assert made.plan == plan(title="Three")


@pytest.mark.parametrize("status", DECIDED)
def test_decision_changes_the_status_and_nothing_else(status: PlanStatus) -> None:
    before = versions()
    decided = before.decide(status, remark="Hm.")
    assert decided == before.model_copy(update={"status": status, "remark": "Hm."})
    assert before.status is PlanStatus.PROPOSED


def test_reviewed_plan_survives_json() -> None:
    made = versions().decide(PlanStatus.AUTO_APPROVED, remark="Hm.")
    assert ReviewedPlan.model_validate_json(made.model_dump_json()) == made
    assert json.loads(made.model_dump_json())["status"] == "auto_approved"


@pytest.mark.parametrize("status", list(PlanStatus))
def test_only_an_approved_plan_gives_a_context(status: PlanStatus) -> None:
    """S0-36"""
    approved = status in (PlanStatus.APPROVED, PlanStatus.AUTO_APPROVED)
    made = reviewed(status)
    assert made.get_approved_plan_context() == (made.as_markdown() if approved else None)


# -- the result -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "approved", "rejected"),
    [
        (PlanStatus.PROPOSED, False, False),
        (PlanStatus.APPROVED, True, False),
        (PlanStatus.AUTO_APPROVED, True, False),
        (PlanStatus.REJECTED, False, True),
    ],
)
def test_result_says_what_became_of_the_plan(status: PlanStatus, approved: bool, rejected: bool) -> None:
    """S0-31 to S0-36, X10"""
    result = ClarifierResult.of("log", reviewed(status))
    assert (result.clarifier_log, result.plan_title, result.plan_sections) == ("log", "T", ("S",))
    assert (result.plan_approved, result.plan_rejected) == (approved, rejected)
    assert result.get_approved_plan_context() == ("# T\n\n- S\n\n## Steps\n\n1. [lead] do 1" if approved else None)


@pytest.mark.parametrize("made", [None, reviewed(PlanStatus.MADE)], ids=["no plan", "no review"])
def test_without_a_review_the_result_is_the_log_alone(made: ReviewedPlan | None) -> None:
    """S0-13, S0-31"""
    assert ClarifierResult.of("log", made) == ClarifierResult(clarifier_log="log")


def test_empty_result_has_the_defaults_of_the_seed() -> None:
    """S0-23, S0-25 to S0-28, S0-32 to S0-36"""
    result = ClarifierResult()
    assert (result.clarifier_log, result.plan_title, result.plan_sections) == ("", None, ())
    assert (result.plan_approved, result.plan_rejected) == (False, False)
    assert result.get_approved_plan_context() is None


# -- what can be used of a plan that cannot be carried out -------------------------------------------------------------


BITS = ["1", "2", "3", "1.a", "a", "${1}", "${2.a}", "${9}", "${1.a} and ${3}", "${", "$${}{x}", "$${{", "}${1}{", ""]


def random_draft(random: Random) -> PlanDraft:
    """Return steps with anything in them that a model may write."""

    def some() -> list[str]:
        return [random.choice(BITS) for _ in range(random.randint(0, 3))]

    steps: list[object] = []
    for _ in range(random.randint(0, 6)):
        fields = {"inputs": some(), "outputs": some(), "depends_on": some()}
        written = {"step_id": random.choice(BITS), "description": "Look", "name": random.choice(["coder", "wizard"])}
        steps.append(random.choice([{**written, **fields}, {**written, **fields}, written, "Look", "", None, 7, []]))
    return PlanDraft.model_validate({"title": "T", "sections": ["S"], "steps": steps})


def no_wizard(step: PlanStep) -> PlanStep | None:
    return step if step.name in ("coder", "lead") else None


@pytest.mark.parametrize("seed", range(300))
def test_plan_of_any_model_text_is_executable(seed: int) -> None:
    """S3-42"""
    draft = random_draft(Random(seed))
    made, changes = draft.usable(no_wizard, "lead")
    assert checked_again(made) == made
    assert all(no_wizard(step) for step in made.steps)
    assert len(draft.steps) - len(made.steps) == sum("left out" in change for change in changes)
    again, nothing = PlanDraft.model_validate(made.model_dump()).usable(no_wizard, "lead")
    assert (again, nothing) == (made, [])


def test_plan_that_is_executable_is_used_unchanged() -> None:
    before = random_plan(Random(0))
    assert PlanDraft.model_validate(before.model_dump()).usable(lambda step: step, "lead") == (before, [])
