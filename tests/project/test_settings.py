"""Settings: where they come from, and what a wrong one says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from settings_files import write_settings

from upcall import Settings, identity
from upcall.errors import ConfigurationError
from upcall.execution.model_clients import ModelClients, uses_demo
from upcall.execution.team_factory import TeamFactory
from upcall.options import SourceOptions
from upcall.runs.config import ModelAddress, RootTeamConfig
from upcall.runs.run import Run
from upcall.testing import ScriptedModelClient
from upcall.ui.run_report import describe_models

KEY = "sk-very-secret"


def test_command_line_precedes_environment_dotenv_and_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    write_settings(
        "models: {model: from-yaml}\nusers: {user: from-yaml}\nstore: {path: from-yaml}\nquestions: {max_turns: 7}\n"
    )
    write_settings(
        "UPCALL_MODELS__MODEL=from-dotenv\nUPCALL_USERS__USER=from-dotenv\nUPCALL_STORE__PATH=from-dotenv\nOTHER=1\n",
        ".env",
    )
    monkeypatch.setenv("UPCALL_MODELS__MODEL", "from-env")
    monkeypatch.setenv("UPCALL_USERS__USER", "from-env")
    read = Settings.read(models={"model": "explicit"})
    assert (read.models.model, read.users.user, read.store.path, read.questions.max_turns) == (
        "explicit",
        "from-env",
        "from-dotenv",
        7,
    )


def test_named_configuration_replaces_the_default_one() -> None:
    write_settings("models: {model: default}\n")
    Path("mine.yaml").write_text("models: {model: mine}\n")
    assert Settings.read(Path("mine.yaml")).models.model == "mine"


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "UPCALL_MODELS__API_KEY"])
@pytest.mark.parametrize("in_dotenv", [True, False])
def test_key_is_read_from_either_name(name: str, in_dotenv: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_dotenv:
        write_settings(f"{name}={KEY}\n", ".env")
    else:
        monkeypatch.setenv(name, KEY)
    key = Settings.read().models.api_key
    assert key is not None
    assert key.get_secret_value() == KEY


def test_key_is_not_shown() -> None:
    read = Settings.read(models={"api_key": KEY, "model": "m"})
    assert KEY not in repr(read) + str(read) + read.model_dump_json()


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        (
            "modle: gpt-4o\n",
            "upcall.yaml, line 1: unknown setting 'modle'; did you mean 'models.model'?",
        ),
        ("team: {stream: true}\nzzz: 1\n", "line 2: unknown setting 'zzz'. Known: models"),
        (
            "store: {path: s}\nmodels: {timeout: soon}\n",
            "upcall.yaml, line 2: models.timeout = 'soon' is wrong: Input should be a valid number",
        ),
        ("team: {max_rounds: 0}\n", "line 1: team.max_rounds = 0 is wrong: Input should be greater than or equal to 1"),
        ("questions: {max_turns: yes}\n", "max_turns = True is wrong: Input should be a number"),
        ("models: {timeout: .inf}\n", "timeout = inf is wrong: Input should be a finite number"),
        (
            "store: {lease_seconds: .nan}\n",
            "upcall.yaml, line 1: store.lease_seconds = nan is wrong: Input should be greater than 0",
        ),
        (
            "models:\n  model_limits:\n    m: .nan\n",
            "upcall.yaml, line 3: models.model_limits.m = nan is wrong: Input should be a finite",
        ),
        (
            "models: {prices: {m: {prompt: .inf}}}\n",
            "line 1: models.prices.m.prompt = inf is wrong: Input should be a finite number",
        ),
        (
            "planning: {at_plan_limit: ask}\n",
            "at_plan_limit = 'ask' is wrong: Input should be 'approve', 'reject' or 'pause'",
        ),
        ("team: {verbose: maybe}\n", "valid boolean, unable to interpret input, or Input should be a valid list."),
        (
            "team:\n  verbose:\n  - lead\n  - cook\n",
            "line 4: team.verbose.1 = 'cook' is wrong: Input should be 'classifier', 'clari",
        ),
        pytest.param(
            "research: {data_sources: documents}\n",
            "data_sources = 'documents' is wrong: Input should be a valid list",
            marks=pytest.mark.needs("research"),
        ),
        ("users: {user_info: {name: [a]}}\n", "user_info.name is wrong: Input should be a valid string"),
        (
            "models:\n  agents:\n    cook: {model: m}\n",
            "line 3: unknown setting 'cook' in models.agents. Known: classifier, clarifier,",
        ),
        (
            "models:\n  agents:\n    coder:\n      modle: m\n",
            "line 4: unknown setting 'modle' in models.agents.coder; did you mean 'models.agents.coder.model'?",
        ),
        ("llms:\n  mine:\n    url: m\n", "line 3: unknown setting 'url' in llms.mine. Known: model, base_url, "),
        ("llms:\n  mine: gpt-4o\n", "line 2: llms.mine = 'gpt-4o' is wrong: Input should be a valid dictionary"),
        ("team:\n  tools:\n  - config: {}\n", "line 3: team.tools.0 is wrong: it has no provider"),
        (
            "team: {stream: true}\nquestions: {assign: [{}]}\n",
            "upcall.yaml, line 2: questions.assign.0.to is wrong: Field required.",
        ),
        ("team: {tools: 3}\n", "tools = 3 is wrong: Input should be a valid list"),
        ("models: {agents: 3}\n", "agents = 3 is wrong: Input should be a valid dictionary"),
        (
            "models:\n  model: [a\n",
            "upcall.yaml, line 3 is not valid YAML: expected ',' or ']', but got '<stream end>'.",
        ),
        ("model:\n\tx: 1\n", "line 2 is not valid YAML: found character '\\t' that cannot start any token."),
        ("user: a\n---\nuser: b\n", "line 2 is not valid YAML: but found another document."),
        (
            "users: {user: u}\nmodels: {model: 2026-13-45}\n",
            "upcall.yaml, line 2: this is not a valid timestamp; write text in quotes.",
        ),
        (
            "questions: {max_turns: !!int three}\n",
            "upcall.yaml, line 1: this is not a valid int; write text in quotes.",
        ),
        (
            "models:\n  model: a\n  model: b\n\nstore: {path: s}",
            "line 3: 'model' is given twice, first in line 2; keep one.",
        ),
        (
            "models:\n  agents:\n    coder:\n      model: a\n      model: b\n",
            "line 5: 'model' is given twice, first in line 4",
        ),
        ("model: a\n3: b\n", "line 2: the name '3' is not text; write it in quotes."),
        ("[a]: b\n", "line 1: a name must be text, not a list or a mapping."),
        ("models:\n  model_info: &a\n    self: *a\n", "line 2: a value must not contain itself."),
        ("- a\n- b\n", "must hold settings by section, like: models: {model: gpt-4o}"),
        ("\x00", "is not valid YAML"),
        ("model: " + "[" * 5000, "is not valid YAML"),
    ],
    ids=lambda text: text[:30].replace("\n", " ").replace("\x00", "NUL"),
)
def test_wrong_configuration_is_reported_in_one_line(yaml: str, message: str) -> None:
    write_settings(yaml)
    with pytest.raises(ConfigurationError) as refused:
        Settings.read()
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"max_turns": "x"}, "unknown setting 'max_turns'; did you mean 'questions.max_turns'?"),
        (
            {"team": {"max_turnz": 3}},
            "unknown setting 'max_turnz' in team; did you mean 'team.max_rounds' or 'questions.max_turns'?",
        ),
        (
            {"questions": {"max_trns": 3}},
            "unknown setting 'max_trns' in questions; did you mean 'questions.max_turns'?",
        ),
    ],
)
def test_typo_names_the_nearest_settings_alone(given: dict[str, Any], meant: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Settings(**given)
    assert str(refused.value) == f"Settings: {meant}"


def test_wrong_environment_variable_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPCALL_MODELS__TIMEOUT", "soon")
    with pytest.raises(
        ConfigurationError, match=r"Setting models.timeout = 'soon' is wrong: .* UPCALL_MODELS__TIMEOUT or \.env"
    ):
        Settings.read()


def test_error_of_the_environment_does_not_blame_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write_settings("models: {timeout: 3}\n")
    monkeypatch.setenv("UPCALL_MODELS__TIMEOUT", "soon")
    with pytest.raises(ConfigurationError) as refused:
        Settings.read()
    assert "upcall.yaml" not in str(refused.value)


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("UPCALL_MODELS__AGENTS__COOK__MODEL", "UPCALL_MODELS__AGENTS__COOK__MODEL is not a setting."),
        (
            "UPCALL_MODELS__AGENTS__CODER__MODLE",
            "MODLE is not a setting; did you mean UPCALL_MODELS__AGENTS__CODER__MODEL?",
        ),
        ("UPCALL_MODELS__AGENTS__CODER__AUTH", "UPCALL_MODELS__AGENTS__CODER__AUTH is not a setting."),
        ("UPCALL_FUNCTIONS__X__LLM", "UPCALL_FUNCTIONS__X__LLM: functions can be set in the YAML file only"),
    ],
)
def test_wrong_nested_variable_is_reported_without_its_value(
    variable: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, KEY)
    with pytest.raises(ConfigurationError) as refused:
        Settings.read()
    assert expected in str(refused.value)
    assert KEY not in str(refused.value)


def test_unknown_variable_of_ours_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    write_settings("UPCALL_STOER=x\nOTHER=1\n", ".env")
    for name in (
        "UPCALL_MODLE",
        "UPCALL_ZZZZZ",
        "UPCALL_UPDATE_DOCS",
        "UPCALL_USERS__USER_INFO__NAME",
    ):
        monkeypatch.setenv(name, "x")
    assert Settings.read().warnings == (
        "UPCALL_MODLE is not a setting; did you mean UPCALL_MODELS__MODEL?",
        "UPCALL_STOER is not a setting; did you mean UPCALL_STORE?",
        "UPCALL_ZZZZZ is not a setting.",
    )


def test_dotenv_that_is_not_utf_8_is_reported() -> None:
    write_settings(b"UPCALL_MODELS__MODEL=\xff\n", ".env")
    with pytest.raises(ConfigurationError, match="Cannot read the settings"):
        Settings.read()


@pytest.mark.parametrize(
    "yaml",
    [
        f"api_key: {KEY}\n",
        f"models: {KEY}\n",
        f"models: {{api_key: [{KEY}]}}\n",
        f"models: {{model_client: {KEY}}}\n",
        f"models: {{model: [{KEY}]}}\n",
        f"models: {{api_kye: {KEY}}}\n",
        f"llms: {{a: {{model_client: {KEY}}}}}\n",
        f"models: {{agents: {{coder: {{api_key: {{a: {KEY}}}}}}}}}\n",
        f"team: {{tools: {{provider: p, config: {{auth: {KEY}}}}}}}\n",
        f"models: {{api_key: *{KEY}}}\n",
        f"models: {{api_key: !{KEY} x}}\n",
        f"models:\n  model: m\n  api_key {KEY}\n",
    ],
)
def test_wrong_key_in_the_configuration_is_not_repeated(yaml: str) -> None:
    write_settings(yaml)
    with pytest.raises(ConfigurationError) as refused:
        Settings.read()
    assert KEY not in str(refused.value)


def test_empty_configuration_is_no_error() -> None:
    write_settings("# nothing yet\n")
    assert Settings.read().store.path == "upcall.db"


@pytest.mark.parametrize(
    ("settings", "demo"),
    [
        ({}, True),
        ({"models": {"model": "demo"}}, True),
        ({"models": {"model": "gpt-4o"}}, False),
        ({"models": {"base_url": "http://x/v1"}}, False),
    ],
)
def test_demo_plays_where_no_model_is_configured(settings: dict[str, Any], demo: bool) -> None:
    assert uses_demo(Settings.read(**settings)) is demo


def test_client_is_shared_by_agents_without_their_own_model() -> None:
    write_settings(f"models: {{model: gpt-4o, api_key: {KEY}, agents: {{coder: {{model: gpt-4.1}}}}}}\n")
    clients = ModelClients(Settings.read())
    assert clients("lead") is clients("planner")
    assert clients("coder") is not clients("lead")


def test_single_agent_can_have_another_server() -> None:
    settings = Settings.read(
        models={"model": "demo", "agents": {"coder": {"model": "m", "base_url": "http://127.0.0.1:1/v1"}}}
    )
    clients = ModelClients(settings)
    assert isinstance(clients("lead"), ScriptedModelClient)
    assert "OpenAI" in type(clients("coder")).__name__


def test_any_model_client_can_be_given_as_a_component() -> None:
    write_settings(
        "models:\n  model_client:\n    provider: autogen_ext.models.replay.ReplayChatCompletionClient\n"
        "    config: {chat_completions: [hello]}\n"
    )
    assert type(ModelClients(Settings.read())("lead")).__name__ == "ReplayChatCompletionClient"


@pytest.mark.parametrize(
    "component", [{"provider": "no.such.Client", "config": {"api_key": KEY}}, {"provider": "nonsense"}, {}]
)
def test_component_that_cannot_be_loaded_is_reported_without_key(component: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="cannot be loaded") as refused:
        ModelClients(Settings.read(models={"model_client": component}))("lead")
    assert KEY not in str(refused.value)


def test_openai_model_needs_a_key_and_own_servers_none() -> None:
    with pytest.raises(ConfigurationError, match="Set OPENAI_API_KEY"):
        ModelClients(Settings.read(models={"model": "gpt-4o"}))("lead")
    ModelClients(Settings.read(models={"model": "mine", "base_url": "http://127.0.0.1:1/v1"}))("lead")


def test_what_a_model_can_do_may_be_set() -> None:
    settings = Settings.read(
        models={"model": "m", "base_url": "http://127.0.0.1:1/v1", "model_info": {"structured_output": False}}
    )
    info = ModelClients(settings)("lead").model_info
    assert (info["structured_output"], info["function_calling"]) == (False, True)


def test_only_the_documented_names_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASE_URL", "http://elsewhere/v1")
    monkeypatch.setenv("API_KEY", KEY)
    read = Settings.read()
    assert (read.models.base_url, read.models.api_key) == (None, None)


@pytest.mark.needs("research")
def test_list_in_the_environment_must_be_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPCALL_RESEARCH__DOCUMENTS", "docs")
    with pytest.raises(ConfigurationError, match="written as JSON"):
        Settings.read()


def test_another_server_does_not_get_the_common_key() -> None:
    settings = Settings.read(
        models={"model": "m", "api_key": KEY, "agents": {"coder": {"base_url": "http://other/v1"}}}
    )
    assert settings.for_agent("lead").api_key is not None
    assert settings.for_agent("coder").api_key is None


def test_run_without_a_storable_address_keeps_no_model() -> None:
    address = ModelAddress(model="kept", base_url="http://x/v1")
    assert Settings.read(models={"model": "m"}).with_model_of(RootTeamConfig(workspace=Path())).models.model == "m"
    assert Settings.read().with_model_of(RootTeamConfig(workspace=Path(), model=address)).models.model == "kept"


@pytest.mark.parametrize(
    ("account", "own", "given", "gets"),
    [
        ("own", None, None, True),
        ("own", "http://other/v1", None, True),
        (None, None, None, False),
        ("0@here", None, None, False),
        ("0@here", "http://other/v1", None, False),
        ("0@here", "http://stored/v1", None, True),
        ("0@here", None, "http://stored/v1", True),
    ],
)
def test_key_goes_to_no_server_known_only_from_runs(
    account: str | None, own: str | None, given: str | None, gets: bool
) -> None:
    address = ModelAddress(model="m", base_url="http://stored/v1")
    team = RootTeamConfig(workspace=Path(), model=address, account=identity.account() if account == "own" else account)
    settings = Settings.read(
        models={"model": "m", "api_key": KEY, "base_url": own, "agents": {"coder": {"api_key": KEY}}}
    )
    continued = settings.with_model_of(team, given)
    assert continued.models.base_url == "http://stored/v1"
    assert {continued.for_agent(name).api_key is not None for name in ("lead", "coder")} == {gets}


# -- all that can be set ----------------------------------------------------------------------------------------------


def test_what_is_not_set_has_its_default() -> None:
    read = Settings.read()
    assert (read.planning.enable_plan_approval, read.planning.max_plan_iterations, read.planning.at_plan_limit) == (
        False,
        10,
        "approve",
    )
    assert (read.planning.max_clarifications, read.planning.skip_ambiguity_check, read.team.enable_escalation) == (
        3,
        False,
        True,
    )
    assert (read.team.max_history, read.team.max_context_chars, read.users.user_info) == (20, 24000, {})
    assert (
        read.choose(SourceOptions)["data_sources"],
        read.team.prompts,
        read.team.verbose,
        read.team.log_response_max_chars,
    ) == (
        None,
        None,
        False,
        2000,
    )
    assert (read.llms, read.team.tools, read.functions, read.warnings) == ({}, [], {}, ())


@pytest.mark.parametrize(
    ("section", "name", "least"),
    [
        ("planning", "max_plan_iterations", 0),
        ("planning", "max_clarifications", 0),
        ("team", "max_history", 0),
        ("team", "max_context_chars", 1000),
        ("team", "log_response_max_chars", 1),
    ],
)
def test_number_has_a_least_value(section: str, name: str, least: int) -> None:
    write_settings(f"{section}: {{{name}: {least}}}\n")
    assert getattr(Settings.read().sections[section], name) == least
    write_settings(f"{section}: {{{name}: {least - 1}}}\n")
    with pytest.raises(ConfigurationError, match=f"{name} = {least - 1} is wrong"):
        Settings.read()


@pytest.mark.parametrize(
    ("value", "read"), [("true", True), ("1", True), ("no", False), ('["lead", "coder"]', ["lead", "coder"])]
)
def test_verbose_is_a_flag_or_names_agents(value: str, read: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPCALL_TEAM__VERBOSE", value)
    assert Settings.read().team.verbose == read


def test_table_is_set_by_several_sources_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    write_settings("users: {user_info: {name: Alice, email: a@b.c}}\n")
    monkeypatch.setenv("UPCALL_USERS__USER_INFO__NAME", "Bob")
    assert Settings.read().users.user_info == {"name": "Bob", "email": "a@b.c"}


def test_anchors_resolve_and_their_errors_have_lines() -> None:
    write_settings(
        "llms:\n  small: &base\n    model: small\n    base_url: http://x/v1\n"
        "  large:\n    <<: *base\n    model: large\n"
    )
    large = Settings.read().llms["large"]
    assert (large.model, large.base_url) == ("large", "http://x/v1")
    write_settings("llms:\n  small: &base\n    model: [1]\n  large:\n    <<: *base\n")
    with pytest.raises(ConfigurationError, match=r"line 3: llms\.small\.model is wrong"):
        Settings.read()


def test_file_with_a_byte_order_mark_is_read() -> None:
    write_settings(b"\xef\xbb\xbfmodels: {model: m}\n")
    assert Settings.read().models.model == "m"


def test_file_that_is_not_utf_8_is_reported() -> None:
    write_settings(b"models: {model: \xff}\n")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        Settings.read()


def test_agent_with_server_but_no_model_is_no_demo() -> None:
    settings = Settings.read(models={"agents": {"coder": {"base_url": "http://127.0.0.1:1/v1"}}})
    with pytest.raises(ConfigurationError, match="needs a model name"):
        ModelClients(settings)("coder")


def test_demo_agents_are_named_where_others_have_models() -> None:
    settings = Settings.read(models={"agents": {"coder": {"model": "m"}, "lead": {"model": "m"}}})
    assert settings.warnings == (
        "No common model is set, so the scripted demo plays classifier, clarifier, planner, researcher; "
        "set models.model.",
    )


def test_unknown_setting_is_reported_to_its_program() -> None:
    with pytest.raises(ConfigurationError, match="'modle'"):
        Settings.read(modle="demo")


ONE_LINE = "models:\n  model: big\n  api_key: k\n  kinds: {coding: coder-x, research: far, small: tiny}\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("questions:\n  ask_scorer: my.json\n", "line 2: questions.ask_scorer is gone: on other people's tasks it"),
        ("models: {kinds: {embeddings: x}}\n", "line 1: models.kinds.embeddings is gone: only questions.ask_scorer"),
    ],
)
def test_setting_that_is_gone_is_refused_in_one_line(content: str, expected: str) -> None:
    write_settings(content)
    with pytest.raises(ConfigurationError) as refused:
        Settings.read()
    assert str(refused.value).startswith(f"upcall.yaml, {expected}")
    assert str(refused.value).endswith("; leave it out.")


@pytest.mark.parametrize(
    ("variable", "value", "name"),
    [
        ("UPCALL_QUESTIONS__ASK_SCORER", "my.json", "UPCALL_QUESTIONS__ASK_SCORER"),
        ("UPCALL_MODELS__KINDS__EMBEDDINGS__MODEL", "x", "UPCALL_MODELS__KINDS__EMBEDDINGS__MODEL"),
        ("UPCALL_MODELS__KINDS", '{"embeddings": "x"}', "models.kinds.embeddings"),
    ],
)
def test_variable_that_is_gone_is_refused(
    variable: str, value: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match=rf"{name} is gone: .*; leave it out"):
        Settings.read()


def test_one_line_gives_each_kind_of_work_its_model() -> None:
    write_settings(f"{ONE_LINE}llms:\n  far: {{model: far-1, base_url: 'http://far/v1'}}\n")
    read = Settings.read(models={"agents": {"lead": {"model": "own"}}})
    agents = ("classifier", "planner", "lead", "coder", "researcher")
    assert [read.for_agent(each).model for each in agents] == ["big", "big", "own", "coder-x", "far-1"]
    assert (read.for_agent("coder").api_key, read.for_agent("researcher").api_key) == (read.models.api_key, None)
    assert (small := read.for_kind("small")) is not None
    assert small.model == "tiny"


def test_run_keeps_the_models_for_kinds_of_work() -> None:
    write_settings(ONE_LINE)
    config = TeamFactory(Settings.read(), None).pin("r1", {})
    assert config.team is not None
    again = (
        Settings.read(models={"model": None, "api_key": KEY}).replace(models={"kinds": {}}).with_model_of(config.team)
    )
    assert [again.for_agent(each).model for each in ("planner", "coder")] == ["big", "coder-x"]
    assert again.for_agent("coder").api_key == again.models.api_key
    assert describe_models(Run(task="x", config=config)) == "big, coder-x (coding), far (research), tiny (small)"


def test_kind_of_work_that_is_none_is_refused() -> None:
    write_settings("models: {kinds: {codng: x}}\n")
    with pytest.raises(ConfigurationError, match=r"did you mean 'models\.kinds\.coding'"):
        Settings.read()
