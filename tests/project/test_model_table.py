"""What models can, by their names: the table, and which count as small."""

from __future__ import annotations

import pytest

from upcall import Settings
from upcall.errors import ConfigurationError
from upcall.execution.model_clients import ModelClients
from upcall.model_table import UNKNOWN, find_traits, is_small_name

COMPLETION = "max_completion_tokens"

NAMES = [
    # name, family, vision, token parameter, takes a temperature
    ("gpt-5.1", "gpt-5", True, COMPLETION, False),
    ("gpt-5.4-mini", "gpt-5", True, COMPLETION, False),
    ("gpt-5.6-luna", "gpt-5", True, COMPLETION, False),
    ("openai/gpt-5.1:free", "gpt-5", True, COMPLETION, False),
    ("gpt-5-chat-latest", "gpt-5", True, COMPLETION, True),
    ("o4-mini-2025-04-16", "o3", True, COMPLETION, False),
    ("gpt-4o-mini", "gpt-4o", True, "max_tokens", True),
    ("ft:gpt-4o-mini-2024-07-18:org::x", "gpt-4o", True, "max_tokens", True),
    ("gpt-4.1-nano", "gpt-41", True, "max_tokens", True),
    ("gpt-35-turbo", "gpt-35", False, "max_tokens", True),
    ("claude-sonnet-4-5", "claude-4-sonnet", True, "max_tokens", True),
    ("claude-opus-4-6", "claude-4-sonnet", True, "max_tokens", True),
    *[
        (name, "claude-4-sonnet", True, "max_tokens", False)
        for name in (
            "claude-opus-4-7",
            "openrouter/anthropic/claude-4.7-opus",
            "us.anthropic.claude-opus-4-7-20260416-v1:0",
            "vertex_ai/claude-opus-4-8@20260601",
            "claude-opus-5",
            "claude-sonnet-5-5",
            "anthropic/claude-5-haiku:beta",
            "claude-fable-5",
        )
    ],
    ("claude-opus-4-20250514", "claude-4-sonnet", True, "max_tokens", True),
    ("claude-4-opus-20250514", "claude-4-sonnet", True, "max_tokens", True),
    ("claude-3-7-sonnet-20250219", "claude-3.7-sonnet", True, "max_tokens", True),
    ("chatgpt-5-latest", "gpt-5", True, COMPLETION, True),
    ("chatgpt-4o-latest", "gpt-4o", True, "max_tokens", True),
    ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "r1", False, "max_tokens", True),
    ("hf.co/unsloth/DeepSeek-R1-Distill-Llama-8B-GGUF:Q4_K_M", "r1", False, "max_tokens", True),
    ("HuggingFaceTB/SmolVLM2-2.2B-Instruct", "smolvlm", True, "max_tokens", True),
    ("granite3.2-vision:2b", "granite", True, "max_tokens", True),
    ("nvidia/nemotron-nano-12b-v2-vl:free", "nemotron", True, "max_tokens", True),
    ("minimax-vl-01", "minimax", True, "max_tokens", True),
    ("google/gemma-3-1b-it", "gemma", False, "max_tokens", True),
    ("devstral-small", "codestral", False, "max_tokens", True),
    ("anthropic/claude-haiku-4.5", "claude-4-sonnet", True, "max_tokens", True),
    ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-4-sonnet", True, "max_tokens", True),
    ("claude-3-5-haiku@20241022", "claude-3.5-haiku", True, "max_tokens", True),
    ("gemini-3.1-pro", "gemini-2.5-pro", True, "max_tokens", True),
    ("models/gemini-2.5-flash-lite", "gemini-2.5-flash", True, "max_tokens", True),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama-4-scout", True, "max_tokens", True),
    ("llama3.1:8b", "llama", False, "max_tokens", True),
    ("Qwen/Qwen2.5-VL-72B-Instruct", "qwen", True, "max_tokens", True),
    ("deepseek-reasoner", "r1", False, "max_tokens", True),
    ("accounts/fireworks/models/deepseek-v3p2", "deepseek", False, "max_tokens", True),
    ("x-ai/grok-4.1-fast", "grok", True, "max_tokens", True),
    ("moonshotai/kimi-k2-thinking", "kimi", False, "max_tokens", True),
    ("moonshotai/kimi-k3", "kimi", True, "max_tokens", True),
    ("z-ai/glm-4.6", "glm", False, "max_tokens", True),
    ("openai/gpt-oss-120b", "gpt-oss", False, "max_tokens", True),
    ("mistral-large-2512", "mistral", True, "max_tokens", True),
    ("my-deployment", "unknown", True, "max_tokens", True),
]


@pytest.mark.parametrize(("name", "family", "vision", "parameter", "temperature"), NAMES)
def test_model_table_knows_a_name(name: str, family: str, vision: bool, parameter: str, temperature: bool) -> None:
    traits = find_traits(name)
    assert (traits.family, traits.vision) == (family, vision)
    assert (traits.token_parameter, traits.temperature) == (parameter, temperature)


def test_model_table_takes_an_unknown_model_for_able() -> None:
    assert find_traits("never-heard-of") == UNKNOWN
    assert UNKNOWN.vision
    assert UNKNOWN.tools


@pytest.mark.parametrize(
    ("name", "small"),
    [
        *[(name, True) for name in ("qwen2.5-1.5b-instruct", "llama3.1:8b", "gemma-3n-e4b", "smollm2", "phi-3-mini")],
        *[(name, True) for name in ("SmolLM2-360M", "smolvlm2", "my-model-Q4_K_M.gguf", "deepseek-r1:7b")],
        *[(name, False) for name in ("gpt-5-nano", "mixtral-8x7b", "Qwen3-30B-A3B", "llama-3.3-70b-q4_0", "m")],
        *[(name, False) for name in ("claude-haiku-4-5", "gemini-3-flash", "my-deployment", "gpt-oss-20b")],
    ],
)
def test_small_is_what_a_name_says_of_its_size(name: str, small: bool) -> None:
    assert is_small_name(name) is small


def test_model_table_is_extended_by_a_setting() -> None:
    row = {"name": "luna", "family": "luna", "vision": False, "token_parameter": COMPLETION}
    settings = Settings.read(models={"model": "luna-1", "base_url": "http://127.0.0.1:9/v1", "families": [row]})
    info = ModelClients(settings)("lead").model_info
    assert (info["family"], info["vision"]) == ("luna", False)


@pytest.mark.parametrize("row", [{"family": "x"}, {"name": "("}, {"name": "x", "eyes": True}])
def test_model_table_refuses_a_row_that_says_nothing(row: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=r"models\.families"):
        Settings.read(models={"families": [row]})
