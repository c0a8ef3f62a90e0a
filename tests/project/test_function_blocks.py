"""The blocks of the NeMo Agent Toolkit: as they stand, what they set, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from seed_texts import BLOCKS, CLARIFIER_BLOCK, CLASSIFIER_BLOCK
from settings_files import write_settings

from upcall import Settings
from upcall.errors import ConfigurationError
from upcall.execution.model_clients import ModelClients, uses_demo
from upcall.function_blocks import ClarifierConfig, IntentClassifierConfig
from upcall.testing import ScriptedModelClient

KEY = "sk-very-secret"

LLMS = "llms: {nemotron_llm: {model: nemotron, base_url: http://127.0.0.1:1/v1}, other_llm: {model: other}}\n"


def read(yaml: str, **explicit: Any) -> Settings:
    write_settings(yaml)
    return Settings.read(**explicit)


def refusal(yaml: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        read(yaml)
    text = str(refused.value)
    assert "\n" not in text
    assert KEY not in text
    return text


# -- as they stand ----------------------------------------------------------------------------------------------------


def test_clarifier_block_of_the_seed_loads() -> None:
    """S0-49"""
    settings = read(CLARIFIER_BLOCK)
    assert (
        settings.questions.max_turns,
        settings.planning.enable_plan_approval,
        settings.planning.max_plan_iterations,
    ) == (3, True, 10)
    assert settings.team.verbose == ["clarifier", "planner"]
    assert settings.tools_for("clarifier") == ("web_search_tool",)


def test_classifier_block_of_the_seed_loads() -> None:
    """S2-25"""
    settings = read(CLASSIFIER_BLOCK)
    assert (settings.team.llm_timeout, settings.team.verbose) == (90, ["classifier"])
    assert settings.tools_for("classifier") == ("web_search_tool",)


def test_both_blocks_load_from_one_file() -> None:
    settings = read(BLOCKS)
    assert [type(block) for block in settings.functions.values()] == [ClarifierConfig, IntentClassifierConfig]
    assert settings.team.verbose == ["clarifier", "planner", "classifier"]


def test_clarifier_block_without_a_model_is_refused() -> None:
    """S0-41"""
    with pytest.raises(ConfigurationError, match="llm"):
        read("functions: {c: {_type: clarifier_agent, max_turns: 2}}")


def test_defaults_of_a_clarifier_block() -> None:
    """S0-42 to S0-48"""
    (block,) = read("functions: {c: {_type: clarifier_agent, llm: x}}").functions.values()
    assert block == ClarifierConfig(llm="x")
    assert block.model_dump() == {
        "type_": "clarifier_agent",
        "llm": "x",
        "planner_llm": None,
        "tools": [],
        "max_turns": 3,
        "enable_plan_approval": False,
        "max_plan_iterations": 10,
        "log_response_max_chars": 2000,
        "verbose": False,
    }


def test_defaults_of_a_classifier_block() -> None:
    """S2-21 to S2-24"""
    (block,) = read("functions: {c: {_type: intent_classifier, llm: x}}").functions.values()
    assert block.model_dump() == {
        "type_": "intent_classifier",
        "llm": "x",
        "tools": [],
        "verbose": False,
        "llm_timeout": 90.0,
    }


# -- what a block sets ------------------------------------------------------------------------------------------------


def test_what_a_block_does_not_set_changes_nothing() -> None:
    settings = read(
        "functions: {c: {_type: clarifier_agent, llm: x}}\n"
        "questions: {max_turns: 7}\nplanning: {enable_plan_approval: true}\n"
    )
    assert (settings.questions.max_turns, settings.planning.enable_plan_approval, settings.team.verbose) == (
        7,
        True,
        False,
    )
    assert settings.tools_for("clarifier") is None


def test_block_values_rank_like_those_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write_settings("UPCALL_PLANNING__MAX_PLAN_ITERATIONS=5\n", ".env")
    monkeypatch.setenv("UPCALL_QUESTIONS__MAX_TURNS", "6")
    monkeypatch.setenv("UPCALL_TEAM__VERBOSE", "false")
    settings = read(CLARIFIER_BLOCK, planning={"enable_plan_approval": False})
    assert (
        settings.questions.max_turns,
        settings.planning.max_plan_iterations,
        settings.planning.enable_plan_approval,
    ) == (6, 5, False)
    assert settings.team.verbose is False


@pytest.mark.parametrize(
    ("beside", "verbose"),
    [
        ("verbose: true", True),
        ("verbose: false", ["clarifier", "planner"]),
        ("verbose: [coder, planner]", ["coder", "planner", "clarifier"]),
    ],
)
def test_block_adds_its_agents_to_verbose(beside: str, verbose: object) -> None:
    assert read(f"{CLARIFIER_BLOCK}team: {{{beside}}}\n").team.verbose == verbose


def test_setting_repeated_with_one_value_is_no_error() -> None:
    assert read(CLARIFIER_BLOCK + "questions: {max_turns: 3}\n").questions.max_turns == 3


def test_setting_given_twice_with_two_values_is_refused() -> None:
    assert refusal(CLARIFIER_BLOCK + "questions: {max_turns: 4}\n") == (
        "upcall.yaml, line 12: questions.max_turns = 4, but functions.clarifier_agent.max_turns = 3 (upcall.yaml, line "
        "8), and both are the same setting; keep one."
    )


def test_empty_list_of_tools_is_none_of_them() -> None:
    settings = read("functions: {c: {_type: intent_classifier, llm: x, tools: []}}")
    assert [settings.tools_for(agent) for agent in ("classifier", "clarifier", "planner")] == [(), None, None]


def test_blocks_can_be_given_by_a_program() -> None:
    blocks = {"c": {"_type": "clarifier_agent", "llm": "x", "max_turns": 1}, "i": IntentClassifierConfig(llm="x")}
    settings = read(CLARIFIER_BLOCK, functions=blocks)
    assert (settings.questions.max_turns, settings.planning.enable_plan_approval) == (1, False)
    assert {name: block.llm for name, block in settings.functions.items()} == {"c": "x", "i": "x"}


# -- models -----------------------------------------------------------------------------------------------------------


def test_agents_of_a_block_use_its_models() -> None:
    settings = read(
        LLMS + BLOCKS.replace("planner_llm: nemotron_llm", "planner_llm: other_llm"), models={"model": "common"}
    )
    models = {agent: settings.for_agent(agent).model for agent in ("classifier", "clarifier", "planner", "coder")}
    assert models == {"classifier": "nemotron", "clarifier": "nemotron", "planner": "other", "coder": "common"}


def test_planner_uses_the_clarifiers_model_without_its_own() -> None:
    """S0-42"""
    settings = read(LLMS + "functions: {c: {_type: clarifier_agent, llm: other_llm}}")
    assert settings.for_agent("planner").model == "other"


def test_model_of_an_agent_precedes_its_blocks() -> None:
    settings = read(LLMS + BLOCKS + "models: {agents: {planner: {model: own}}}\n")
    assert (settings.for_agent("planner").model, settings.for_agent("clarifier").model) == ("own", "nemotron")


def test_model_on_another_server_gets_no_common_key() -> None:
    settings = read(
        LLMS + BLOCKS.replace("planner_llm: nemotron_llm", "planner_llm: other_llm"), models={"api_key": KEY}
    )
    assert settings.for_agent("clarifier").api_key is None
    assert settings.for_agent("planner").api_key is not None


def test_model_defined_for_a_block_needs_no_common_one() -> None:
    settings = read(LLMS + BLOCKS)
    clients = ModelClients(settings)
    assert "OpenAI" in type(clients("planner")).__name__
    assert isinstance(clients("lead"), ScriptedModelClient)
    assert uses_demo(settings)
    assert settings.warnings == (
        "No common model is set, so the scripted demo plays lead, coder, researcher; set models.model.",
    )


def test_model_name_without_definitions_means_the_common_one() -> None:
    settings = read(BLOCKS, models={"model": "common"})
    assert {settings.for_agent(agent).model for agent in ("classifier", "clarifier", "planner")} == {"common"}
    assert settings.warnings == (
        "The llm 'nemotron_llm' is defined nowhere, so it means the common model; define it under llms.",
    )


def test_model_name_that_is_undefined_is_refused() -> None:
    assert refusal(LLMS + CLARIFIER_BLOCK.replace("planner_llm: nemotron_llm", "planner_llm: nemotron")) == (
        "upcall.yaml, line 6: functions.clarifier_agent.planner_llm = 'nemotron' is not defined under llms; did you "
        "mean 'nemotron_llm'? Defined: nemotron_llm, other_llm."
    )


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (
            "_type: clarifier_agent\n    llm: x\n    max_turn: 3",
            "line 5: unknown setting 'max_turn' in functions.x; did you mean 'max_turns'?",
        ),
        ("_type: clarifier_agent\n    llm: x\n    type_: y", "line 5: unknown setting 'type_' in functions.x"),
        ("_type: intent_classifier\n    llm: x\n    max_turns: 3", "unknown setting 'max_turns' in functions.x. Known"),
        (
            "llm: x\n    _type: clarifier_agnt",
            "line 4: unknown _type 'clarifier_agnt' in functions.x; did you mean 'clarifier_agent'?",
        ),
        ("_type: [a]\n    llm: x", "line 3: unknown _type a list in functions.x. Known: "),
        ("llm: x", "line 2: functions.x has no _type: add _type: clarifier_agent or intent_classifier."),
        ("_type: clarifier_agent", "line 2: functions.x has no llm: add llm: NAME"),
        (
            "_type: clarifier_agent\n    llm: x\n    max_turns: three",
            "line 5: functions.x.max_turns = 'three' is",
        ),
        ("_type: clarifier_agent\n    llm: x\n    max_turns: true", "functions.x.max_turns = True is wrong"),
        ("_type: clarifier_agent\n    llm: x\n    max_turns: -1", "functions.x.max_turns = -1 is wrong"),
        ("_type: clarifier_agent\n    llm: x\n    tools: t", "functions.x.tools = 't' is wrong: Input should be a"),
        (
            "_type: clarifier_agent\n    llm: x\n    tools:\n    - a\n    - 3",
            "line 7: functions.x.tools.1 = 3 is",
        ),
        ("_type: clarifier_agent\n    llm: ''", "line 4: functions.x.llm = '' is wrong"),
        ("_type: intent_classifier\n    llm: x\n    llm_timeout: 0", "functions.x.llm_timeout = 0 is wrong"),
        (f"_type: intent_classifier\n    llm: [{KEY}]", "line 4: functions.x.llm is wrong"),
        ("_type: intent_classifier\n    llm: x\n    llm: y", "line 5: 'llm' is given twice, first in line 4"),
    ],
)
def test_wrong_block_is_reported_with_its_line(block: str, expected: str) -> None:
    text = refusal(f"functions:\n  x:\n    {block}\n")
    assert text.startswith("upcall.yaml, line ")
    assert expected in text


@pytest.mark.parametrize(
    ("functions", "expected"),
    [
        ("- a", "line 1: functions must hold blocks by name"),
        ("", "line 1: functions must hold blocks by name"),
        ("  x: clarifier_agent", "line 2: functions.x must be a block of settings with its _type"),
    ],
)
def test_functions_that_are_no_blocks_are_refused(functions: str, expected: str) -> None:
    assert expected in refusal(f"functions:\n{functions}\n")


def test_second_block_of_a_type_is_refused() -> None:
    text = refusal(CLARIFIER_BLOCK + "  again: {_type: clarifier_agent, llm: x}\n")
    assert text == (
        "upcall.yaml, line 12: functions.again is a second block of the type clarifier_agent, after clarifier_agent "
        "(upcall.yaml, line 2); keep one."
    )
