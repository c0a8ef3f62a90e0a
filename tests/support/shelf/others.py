"""The public names without a row: those that other tests try, and those that take no part in a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

EXT = "autogen_ext"


def _below(module: str, names: str, wording: str) -> Iterator[tuple[str, str]]:
    yield from ((f"{module}.{name}", wording) for name in names.split())


_MCP = "tests/autogen/test_mcp_workbenches.py::test_mcp_workbench_is_called_after_kill_and_pause"
_CLIENTS = "tests/autogen/test_other_clients.py::test_client_resumes_in_another_process"

ELSEWHERE: Mapping[str, str] = dict(
    [
        *_below(f"{EXT}.tools.mcp", "McpWorkbench StdioServerParams McpServerParams McpSessionActor", _MCP),
        *_below(
            f"{EXT}.models.anthropic",
            "AnthropicChatCompletionClient BaseAnthropicChatCompletionClient CreateArgumentsConfigModel "
            "AnthropicClientConfiguration AnthropicClientConfigurationConfigModel",
            _CLIENTS,
        ),
        *_below(f"{EXT}.models.azure", "AzureAIChatCompletionClient AzureAIChatCompletionClientConfig", _CLIENTS),
        *_below(f"{EXT}.models.llama_cpp", "LlamaCppChatCompletionClient", _CLIENTS),
        *_below(
            f"{EXT}.models.ollama",
            "BaseOllamaClientConfigurationConfigModel CreateArgumentsConfigModel OllamaChatCompletionClient",
            _CLIENTS,
        ),
        *_below(f"{EXT}.models.semantic_kernel", "SKChatCompletionAdapter", _CLIENTS),
        *_below(f"{EXT}.tools.semantic_kernel", "KernelFunctionFromToolSchema", _CLIENTS),
    ]
)
"""The names that other tests take through a pause and a second process, with that test."""

_SHOWS = "shows what a team says, or makes a text of it"
_WRITES = "describes the functions that a program gives to an executor"

BESIDE: Mapping[str, str] = dict(
    [
        *_below("autogen_agentchat.ui", "Console", _SHOWS),
        *_below("autogen_agentchat.ui", "UserInputManager", "reads a keyboard for a `Console`"),
        *_below("autogen_agentchat.utils", "content_to_str remove_images", _SHOWS),
        *_below(f"{EXT}.ui", "RichConsole", _SHOWS),
        *_below("autogen_core.code_executor", "Alias FunctionWithRequirements FunctionWithRequirementsStr", _WRITES),
        *_below("autogen_core.code_executor", "Import ImportFromModule with_requirements", _WRITES),
        *_below(f"{EXT}.models.openai", "AZURE_OPENAI_USER_AGENT", "a constant"),
        *_below(f"{EXT}.code_executors", "create_default_code_executor", "chooses between two of the executors here"),
    ]
)
"""What takes no part in the run of a team."""
