"""Settings: where they come from, and what a wrong one says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from upcall import Settings
from upcall.errors import ConfigurationError
from upcall.models import ModelClients, uses_demo
from upcall.testing import ScriptedModelClient

KEY = "sk-very-secret"


def test_the_command_line_wins_over_environment_over_dotenv_over_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("upcall.yaml").write_text("model: from-yaml\nuser: from-yaml\nstore: from-yaml\nmax_turns: 7\n")
    Path(".env").write_text("UPCALL_MODEL=from-dotenv\nUPCALL_USER=from-dotenv\nUPCALL_STORE=from-dotenv\nOTHER=1\n")
    monkeypatch.setenv("UPCALL_MODEL", "from-env")
    monkeypatch.setenv("UPCALL_USER", "from-env")
    read = Settings.read(model="explicit")
    assert (read.model, read.user, read.store, read.max_turns) == ("explicit", "from-env", "from-dotenv", 7)


def test_a_named_configuration_is_read_instead_of_the_default_one() -> None:
    Path("upcall.yaml").write_text("model: default\n")
    Path("mine.yaml").write_text("model: mine\n")
    assert Settings.read(Path("mine.yaml")).model == "mine"


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "UPCALL_API_KEY"])
@pytest.mark.parametrize("in_dotenv", [True, False])
def test_the_key_is_read_from_either_name(name: str, in_dotenv: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_dotenv:
        Path(".env").write_text(f"{name}={KEY}\n")
    else:
        monkeypatch.setenv(name, KEY)
    key = Settings.read().api_key
    assert key is not None
    assert key.get_secret_value() == KEY


def test_the_key_is_not_shown() -> None:
    read = Settings.read(api_key=KEY, model="m")
    assert KEY not in repr(read) + str(read) + read.model_dump_json()


@pytest.mark.parametrize(
    ("yaml", "says"),
    [
        ("modle: gpt-4o\n", "Unknown setting 'modle' in upcall.yaml. Known settings: agents"),
        ("timeout: soon\n", "Setting timeout = 'soon' is wrong"),
        ("max_rounds: 0\n", "Setting max_rounds = 0 is wrong"),
        ("agents: {cook: {model: m}}\n", "agents.cook"),
        ("agents: {coder: {modle: m}}\n", "agents.coder.modle"),
        ("model: [a\n", "upcall.yaml, line 2 is not valid YAML"),
        ("- a\n- b\n", "must hold settings by name"),
        ("\x00", "is not valid YAML"),
    ],
)
def test_a_wrong_configuration_is_said_in_one_line(yaml: str, says: str) -> None:
    Path("upcall.yaml").write_text(yaml)
    with pytest.raises(ConfigurationError) as refused:
        Settings.read()
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_wrong_environment_variable_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPCALL_TIMEOUT", "soon")
    with pytest.raises(ConfigurationError, match="UPCALL_TIMEOUT"):
        Settings.read()


def test_a_wrong_key_in_the_configuration_is_not_repeated() -> None:
    Path("upcall.yaml").write_text(f"api_key: [{KEY}]\n")
    with pytest.raises(ConfigurationError) as refused:
        Settings.read()
    assert KEY not in str(refused.value)


def test_an_empty_configuration_is_no_error() -> None:
    Path("upcall.yaml").write_text("# nothing yet\n")
    assert Settings.read().store == "upcall.db"


@pytest.mark.parametrize(
    ("settings", "demo"),
    [({}, True), ({"model": "demo"}, True), ({"model": "gpt-4o"}, False), ({"base_url": "http://x/v1"}, False)],
)
def test_the_demo_plays_where_no_model_is_configured(settings: dict[str, Any], demo: bool) -> None:
    assert uses_demo(Settings.read(**settings)) is demo


def test_one_client_serves_all_agents_but_those_with_a_model_of_their_own() -> None:
    Path("upcall.yaml").write_text(f"model: gpt-4o\napi_key: {KEY}\nagents: {{coder: {{model: gpt-4.1}}}}\n")
    clients = ModelClients(Settings.read())
    assert clients("lead") is clients("planner")
    assert clients("coder") is not clients("lead")


def test_a_single_agent_can_have_another_server() -> None:
    settings = Settings.read(model="demo", agents={"coder": {"model": "m", "base_url": "http://127.0.0.1:1/v1"}})
    clients = ModelClients(settings)
    assert isinstance(clients("lead"), ScriptedModelClient)
    assert "OpenAI" in type(clients("coder")).__name__


def test_any_model_client_can_be_given_as_a_component() -> None:
    Path("upcall.yaml").write_text(
        "model_client:\n  provider: autogen_ext.models.replay.ReplayChatCompletionClient\n"
        "  config: {chat_completions: [hello]}\n"
    )
    assert type(ModelClients(Settings.read())("lead")).__name__ == "ReplayChatCompletionClient"


@pytest.mark.parametrize(
    "component", [{"provider": "no.such.Client", "config": {"api_key": KEY}}, {"provider": "nonsense"}, {}]
)
def test_a_component_that_cannot_be_loaded_is_said_without_its_key(component: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="cannot be loaded") as refused:
        ModelClients(Settings.read(model_client=component))("lead")
    assert KEY not in str(refused.value)


def test_a_model_of_openai_needs_a_key_and_a_server_of_ones_own_does_not() -> None:
    with pytest.raises(ConfigurationError, match="Set OPENAI_API_KEY"):
        ModelClients(Settings.read(model="gpt-4o"))("lead")
    ModelClients(Settings.read(model="mine", base_url="http://127.0.0.1:1/v1"))("lead")


def test_what_a_model_can_do_may_be_set() -> None:
    settings = Settings.read(model="m", base_url="http://127.0.0.1:1/v1", model_info={"structured_output": False})
    info = ModelClients(settings)("lead").model_info
    assert (info["structured_output"], info["function_calling"]) == (False, True)


def test_only_the_documented_names_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASE_URL", "http://elsewhere/v1")
    monkeypatch.setenv("API_KEY", KEY)
    read = Settings.read()
    assert (read.base_url, read.api_key) == (None, None)


def test_a_list_in_the_environment_that_is_no_json_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPCALL_DOCUMENTS", "docs")
    with pytest.raises(ConfigurationError, match="written as JSON"):
        Settings.read()


def test_another_server_does_not_get_the_common_key() -> None:
    settings = Settings.read(model="m", api_key=KEY, agents={"coder": {"base_url": "http://other/v1"}})
    assert settings.for_agent("lead").api_key is not None
    assert settings.for_agent("coder").api_key is None


def test_a_run_that_cannot_keep_its_address_keeps_no_model_either() -> None:
    assert Settings.read(model="m").started_with({}).model == "m"
    assert Settings.read().started_with({"model": "kept", "base_url": "http://x/v1"}).model == "kept"
