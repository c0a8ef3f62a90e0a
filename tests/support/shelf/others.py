"""The public names without a row: those that other tests try, those that take no part in a run, and those not tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

EXT = "autogen_ext"


def _below(module: str, names: str, said: str) -> Iterator[tuple[str, str]]:
    yield from ((f"{module}.{name}", said) for name in names.split())


_MCP = "tests/agents/test_mcp_workbenches.py"

ELSEWHERE: Mapping[str, str] = dict(
    [
        *_below(f"{EXT}.tools.mcp", "McpWorkbench StdioServerParams SseServerParams", _MCP),
        *_below(
            f"{EXT}.tools.mcp", "StreamableHttpServerParams McpServerParams McpSessionActor mcp_server_tools", _MCP
        ),
        *_below(f"{EXT}.code_executors.docker", "DockerCommandLineCodeExecutor", "tests/agents/test_servers.py"),
        *_below(f"{EXT}.models.openai", "AzureOpenAIChatCompletionClient", "tests/autogen/test_openai_client.py"),
        *_below(
            f"{EXT}.models.openai", "AzureOpenAIClientConfigurationConfigModel", "tests/autogen/test_openai_client.py"
        ),
        *_below(
            "autogen_core.code_executor", "CodeBlock CodeExecutor CodeResult", "tests/autogen/test_stock_agents.py"
        ),
        *_below("autogen_agentchat.ui", "Console", "tests/autogen/test_live_teams.py"),
    ]
)
"""The names that other tests take through a run, with one of these tests."""

_SHOWS = "shows what a team says, or makes a text of it"
_WRITES = "describes the functions that a program gives to an executor"

BESIDE: Mapping[str, str] = dict(
    [
        *_below("autogen_agentchat.ui", "UserInputManager", "reads a keyboard for a `Console`"),
        *_below("autogen_agentchat.utils", "content_to_str remove_images", _SHOWS),
        *_below(f"{EXT}.ui", "RichConsole", _SHOWS),
        *_below("autogen_core.code_executor", "Alias FunctionWithRequirements FunctionWithRequirementsStr", _WRITES),
        *_below("autogen_core.code_executor", "Import ImportFromModule with_requirements", _WRITES),
        *_below(f"{EXT}.models.openai", "AZURE_OPENAI_USER_AGENT", "a constant"),
        *_below(f"{EXT}.code_executors", "create_default_code_executor", "chooses between two of the executors here"),
        *_below(
            f"{EXT}.runtimes.grpc",
            "GrpcWorkerAgentRuntime GrpcWorkerAgentRuntimeHost GrpcWorkerAgentRuntimeHostServicer",
            "a runtime for agents of autogen-core; a team that is given one keeps it and is not resumable",
        ),
    ]
)
"""What takes no part in the run of a team."""

_AZURE = "needs a project on Azure"
_GRAPHRAG = "a tool of one's own to upcall; needs `graphrag` and its index"
_CENTRIC = "experimental, and needs `chromadb`"
_CLIENT = "needs its service's package"

UNTRIED: Mapping[str, str] = dict(
    [
        *_below(f"{EXT}.agents.azure", "AzureAIAgent", f"{_AZURE}; saves its state itself"),
        *_below(f"{EXT}.agents.openai", "OpenAIAssistantAgent", "needs OpenAI's assistants, which end in 2026"),
        *_below(f"{EXT}.auth.azure", "AzureTokenProvider TokenProviderConfig", _AZURE),
        *_below(f"{EXT}.code_executors.azure", "ACADynamicSessionsCodeExecutor TokenProvider", _AZURE),
        *_below(
            f"{EXT}.code_executors.docker_jupyter",
            "DockerJupyterCodeExecutor DockerJupyterCodeResult DockerJupyterServer JupyterClient JupyterKernelClient",
            "needs Docker",
        ),
        *_below(
            f"{EXT}.experimental.task_centric_memory",
            "MemoryBankConfig MemoryController MemoryControllerConfig",
            _CENTRIC,
        ),
        *_below(
            f"{EXT}.experimental.task_centric_memory.utils",
            "Apprentice ApprenticeConfig ChatCompletionClientRecorder Grader PageLogger PageLoggerConfig Teachability",
            _CENTRIC,
        ),
        *_below(f"{EXT}.memory.redis", "RedisMemory RedisMemoryConfig", "needs a server of Redis with search"),
        *_below(
            f"{EXT}.models.anthropic",
            "AnthropicBedrockChatCompletionClient AnthropicBedrockClientConfiguration BedrockInfo "
            "AnthropicBedrockClientConfigurationConfigModel AnthropicChatCompletionClient CreateArgumentsConfigModel "
            "AnthropicClientConfiguration AnthropicClientConfigurationConfigModel BaseAnthropicChatCompletionClient",
            _CLIENT,
        ),
        *_below(f"{EXT}.models.azure", "AzureAIChatCompletionClient AzureAIChatCompletionClientConfig", _CLIENT),
        *_below(f"{EXT}.models.llama_cpp", "LlamaCppChatCompletionClient", _CLIENT),
        *_below(
            f"{EXT}.models.ollama",
            "BaseOllamaClientConfigurationConfigModel CreateArgumentsConfigModel OllamaChatCompletionClient",
            _CLIENT,
        ),
        *_below(f"{EXT}.models.semantic_kernel", "SKChatCompletionAdapter", _CLIENT),
        *_below(
            f"{EXT}.tools.azure",
            "AzureAISearchConfig AzureAISearchTool BaseAzureAISearchTool SearchQuery SearchResult SearchResults "
            "VectorizableTextQuery",
            _AZURE,
        ),
        *_below(
            f"{EXT}.tools.graphrag",
            "GlobalContextConfig GlobalDataConfig GlobalSearchTool GlobalSearchToolArgs GlobalSearchToolReturn "
            "LocalContextConfig LocalDataConfig LocalSearchTool LocalSearchToolArgs LocalSearchToolReturn "
            "MapReduceConfig SearchConfig",
            _GRAPHRAG,
        ),
        *_below(f"{EXT}.tools.http", "HttpTool", "a tool of one's own to upcall; needs `json-schema-to-pydantic`"),
        *_below(
            f"{EXT}.tools.mcp",
            "SseMcpToolAdapter StdioMcpToolAdapter StreamableHttpMcpToolAdapter create_mcp_server_session",
            "the tools of a server one by one; `McpWorkbench` is tried",
        ),
        *_below(
            f"{EXT}.tools.semantic_kernel",
            "KernelFunctionFromTool KernelFunctionFromToolSchema",
            "gives AutoGen's tools to Semantic Kernel",
        ),
    ]
)
"""What no row tries yet, and why."""
