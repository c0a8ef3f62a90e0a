"""The classes of autogen-ext that speak to a service, on fakes of it: a server on loopback, or a stand-in's class."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

from autogen_agentchat.base import Team
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.utils import schema_to_pydantic_model
from web_servers import Answer, Request, Sent, serving

from shelf.extensions import EXT, adding_to, executing
from shelf.rows import Build, Outcome, Row
from shelf.world import World, describe
from upcall.autogen.client_quirks import fit_client
from upcall.testing import Reply
from upcall.testing.model import MODEL_INFO
from upcall.testing.script import Request as ModelRequest
from upcall.testing.zoo import completion

_SERVERS = ExitStack()
"""The servers of this process, which end with it."""


def serve(answer: Answer) -> str:
    """Start a server and return its address."""
    return _SERVERS.enter_context(serving(answer)).url


def _json(**given: Any) -> Sent:
    return Sent(json.dumps(given), "application/json")


def run_code(code: str, variables: dict[str, Any]) -> str:
    """Return what code prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, variables)
    return printed.getvalue()


# -- agents whose service keeps the conversation ----------------------------------------------------------------------


class ThreadService:
    """Stands for the service of OpenAI's assistants and for that of Azure's agents: threads, in a file.

    Its model calls a tool in each of its turns, then tells what its thread contains. A message that came twice, since
    a turn was repeated, is reported once.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._file = Path("thread.json")
        self.beta = self.agents = self.threads = self.messages = self.runs = self

    def _list(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = json.loads(self._file.read_text()) if self._file.exists() else []
        return found

    def _say(self, role: str, text: str) -> None:
        self._file.write_text(json.dumps([*self._list(), {"role": role, "text": text}]))

    def begin(self) -> Any:
        self._world.count()
        call = SimpleNamespace(
            id="c1", type="function", function=SimpleNamespace(name="note", arguments='{"text": "dry"}')
        )
        wanted = SimpleNamespace(submit_tool_outputs=SimpleNamespace(tool_calls=[call]))
        self._run = SimpleNamespace(id="run", status="requires_action", required_action=wanted)
        return self._run

    async def submit_tool_outputs(self, *, tool_outputs: Any, **_: Any) -> Any:
        text = dict.fromkeys(each["text"] for each in self._list() if each["role"] == "user")
        self._say("agent", f"told {' | '.join(text)}")
        self._run = SimpleNamespace(id="run", status="completed", required_action=None)
        return self._run

    def shown(self) -> list[Any]:
        """Return the messages, the newest first."""
        return [
            SimpleNamespace(
                id=str(number),
                role=each["role"],
                content=[(part := SimpleNamespace(type="text", text=SimpleNamespace(value=each["text"])))],
                text_messages=[part],
            )
            for number, each in reversed([*enumerate(self._list())])
        ]

    async def close(self) -> None: ...


class Assistants(ThreadService):
    """Stands for OpenAI's client."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.assistants = SimpleNamespace(create=self._found, retrieve=self._found)
        self.threads = SimpleNamespace(create=self._found, retrieve=self._found, messages=self, runs=self._Runs(self))

    class _Runs:
        def __init__(self, service: ThreadService) -> None:
            self._service = service
            self.submit_tool_outputs = service.submit_tool_outputs

        async def create(self, **_: Any) -> Any:
            return self._service.begin()

        async def retrieve(self, **_: Any) -> Any:
            return self._service._run

    async def _found(self, **given: Any) -> Any:
        return SimpleNamespace(id=next((each for name, each in given.items() if name.endswith("_id")), "new"))

    async def create(self, *, content: Any, **_: Any) -> None:
        self._say("user", str(content))

    async def list(self, *_: Any, order: str, **__: Any) -> Any:
        return SimpleNamespace(data=self.shown() if order == "desc" else [], has_next_page=lambda: False)


def assisting(world: World) -> Team:
    from autogen_ext.agents.openai import OpenAIAssistantAgent

    client: Any = Assistants(world)
    return world.beside(OpenAIAssistantAgent("member", "Works.", client, "m", "Work.", tools=[world.note]))


class Project(ThreadService):
    """Stands for the client of a project on Azure."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.threads = SimpleNamespace(create=self._found, get=self._found)
        self.create_agent = self.get_agent = self._found
        self.messages = SimpleNamespace(create=self._take, list=self._show)
        self.runs = SimpleNamespace(create=self._begin, get=self._get, submit_tool_outputs=self.submit_tool_outputs)

    async def _found(self, **given: Any) -> Any:
        return SimpleNamespace(id=next((each for name, each in given.items() if name.endswith("_id")), "new"))

    async def _take(self, *, content: str, **_: Any) -> None:
        self._say("user", content)

    async def _show(self, **_: Any) -> AsyncIterator[Any]:
        for each in self.shown():
            yield each

    async def _begin(self, **_: Any) -> Any:
        return self.begin()

    async def _get(self, **_: Any) -> Any:
        return self._run


def azure_agent(world: World) -> Team:
    import azure.ai.agents.models as models

    models.RunStatus = SimpleNamespace(FAILED="failed", REQUIRES_ACTION="requires_action", COMPLETED="completed")
    models.MessageRole = type("MessageRole", (), {"USER": "user"})
    models.ListSortOrder = type("ListSortOrder", (), {"ASCENDING": "asc", "DESCENDING": "desc"})
    from autogen_ext.agents.azure import AzureAIAgent

    client: Any = Project(world)
    return world.beside(AzureAIAgent("member", "Works.", client, "m", "Work.", tools=[world.note]))


# -- code executors ---------------------------------------------------------------------------------------------------


class OwnExecutor(CodeExecutor):
    """An executor of one's own."""

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        return CodeResult(exit_code=0, output=run_code(code_blocks[0].code, {}))

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def restart(self) -> None: ...


def dynamic_session() -> CodeExecutor:
    """Return an executor in a session on Azure."""
    from autogen_ext.code_executors.azure import ACADynamicSessionsCodeExecutor

    def answer(request: Request) -> Sent:
        code = json.loads(request.body)["properties"]["code"]
        printed = "" if "/mnt/data" in code else run_code(code, {})
        return _json(properties={"status": "Success", "stdout": printed, "stderr": "", "result": ""})

    credential: Any = SimpleNamespace(get_token=lambda *_: SimpleNamespace(token="t"))
    return ACADynamicSessionsCodeExecutor(serve(answer), credential, work_dir="code", session_id="mine")


class Kernel:
    """Stands for the connection to a kernel."""

    def __init__(self) -> None:
        self._variables: dict[str, Any] = {}
        self._messages: list[str] = []

    async def send(self, text: str) -> None:
        asked = json.loads(text)
        parent = {"msg_id": asked["header"]["msg_id"]}

        def reply(kind: str, **content: Any) -> None:
            self._messages.append(json.dumps({"parent_header": parent, "msg_type": kind, "content": content}))

        if asked["header"]["msg_type"] == "execute_request":
            reply("stream", text=run_code(asked["content"]["code"], self._variables))
            reply("status", execution_state="idle")
        else:
            reply("kernel_info_reply")

    async def recv(self) -> str:
        return self._messages.pop(0)

    async def close(self) -> None: ...


def docker_jupyter() -> CodeExecutor:
    """Return an executor in a kernel of a server in a container."""
    import docker
    import websockets

    async def connect(*_: Any, **__: Any) -> Kernel:
        return Kernel()

    def answer(request: Request) -> Sent:
        if request.method != "GET":
            with Path("kernels.txt").open("a") as file:
                file.write(f"{request.method} ")
        return _json(kernelspecs={"python3": {}}) if request.path.endswith("kernelspecs") else _json(id="k1")

    websockets.connect = connect
    port = serve(answer).rpartition(":")[2]
    container = SimpleNamespace(status="running", ports={"8888/tcp": [{"HostPort": port}]}, id="c", stop=lambda: None)
    containers = SimpleNamespace(run=lambda *_, **__: container, get=lambda _: container)
    docker.from_env = lambda: SimpleNamespace(images=SimpleNamespace(get=lambda _: None), containers=containers)
    from autogen_ext.code_executors.docker_jupyter import DockerJupyterCodeExecutor, DockerJupyterServer

    return DockerJupyterCodeExecutor(DockerJupyterServer(), output_dir=Path("out"))


def docker_command_line() -> CodeExecutor:
    """Return an executor in a container; its commands are run in the folder that the container has."""
    import docker
    from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor

    def execute(command: list[str]) -> Any:
        done = subprocess.run([sys.executable, command[-1]], cwd="code", capture_output=True)
        return SimpleNamespace(exit_code=done.returncode, output=done.stdout + done.stderr)

    def find(_: str) -> Any:
        raise docker.errors.NotFound("no such container")

    container = SimpleNamespace(
        status="running", start=lambda: None, stop=lambda: None, reload=lambda: None, exec_run=execute
    )
    containers = SimpleNamespace(get=find, create=lambda *_, **__: container)
    docker.from_env = lambda: SimpleNamespace(images=SimpleNamespace(get=lambda _: None), containers=containers)
    return DockerCommandLineCodeExecutor(work_dir="code")


# -- memories ---------------------------------------------------------------------------------------------------------


class History:
    """Stands for a history of messages in Redis: a file."""

    def __init__(self, **_: Any) -> None:
        self._file = Path("history.json")

    def add_message(self, message: dict[str, str]) -> None:
        self._file.write_text(json.dumps([*self.get_recent(), message]))

    def get_recent(self, **_: Any) -> list[dict[str, str]]:
        found: list[dict[str, str]] = json.loads(self._file.read_text()) if self._file.exists() else []
        return found


def remembering_in_redis(world: World) -> Team:
    import redis
    import redisvl.extensions.message_history as histories
    import redisvl.utils.utils as utils

    redis.Redis = SimpleNamespace(from_url=lambda **_: None)
    histories.MessageHistory = History
    utils.serialize, utils.deserialize = json.dumps, json.loads
    from autogen_ext.memory.redis import RedisMemory, RedisMemoryConfig

    return adding_to(world, RedisMemory(RedisMemoryConfig(sequential=True)))


class Strings:
    """Stands for a collection of `chromadb` and for its client: a file."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._file = Path("strings.json")

    def create_collection(self, *_: Any, **__: Any) -> Strings:
        return self

    def delete_collection(self, _: str) -> None:
        self._file.unlink(missing_ok=True)

    def add(self, *, documents: list[str], ids: list[str]) -> None:
        self._file.write_text(json.dumps({**self._read(), **dict(zip(ids, documents, strict=True))}))

    def query(self, **_: Any) -> dict[str, Any]:
        found = self._read()
        return {"ids": [[*found]], "documents": [[*found.values()]], "distances": [[0.1] * len(found)]}

    def _read(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._file.read_text()) if self._file.exists() else {}
        return found


PLAIN = {"generalize_task": False, "generate_topics": False, "validate_memos": False, "max_memos_to_retrieve": 3}


def _controlled(world: World, **given: Any) -> Any:
    """Return a memory that learns from the task, with a model of its own."""
    import chromadb

    chromadb.Client = Strings
    from autogen_ext.experimental.task_centric_memory import MemoryController
    from autogen_ext.experimental.task_centric_memory.utils import PageLogger

    def script(request: ModelRequest) -> Reply:
        return "Gates rust." if str(request.messages[-1]["content"]).endswith("Paint the gate.") else "None"

    config: Any = {**PLAIN, "MemoryBank": {"path": "bank"}}
    return MemoryController(False, world.model(script), config=config, logger=PageLogger(), **given)


def teaching(world: World) -> Team:
    Path("bank/string_map").mkdir(parents=True, exist_ok=True)
    memory = _controlled(world)
    from autogen_ext.experimental.task_centric_memory.utils import Teachability

    return world.beside(world.member(memory=[Teachability(memory)]))


def apprenticed(world: World) -> Team:
    """Return a team with a tool that gives its task to an apprentice, after a training that a grader ends."""
    Path("memory_bank/default/string_map").mkdir(parents=True, exist_ok=True)
    import chromadb

    chromadb.Client = Strings
    from autogen_ext.experimental.task_centric_memory.utils import Apprentice, PageLogger

    def script(request: ModelRequest) -> Reply:
        return "1" if "single character" in str(request.messages) else "Two coats."

    config: Any = {"MemoryController": {**PLAIN, "max_test_trials": 1}}
    apprentice = Apprentice(world.model(script), config, PageLogger())

    async def note(text: str) -> str:
        """Have the apprentice do it."""
        await apprentice.train_on_task(text, "Two coats.")
        return world.note(await apprentice.assign_task(text))

    return world.beside(world.member(model=world.caller("note", text="dry"), tools=[note], reflect_on_tool_use=True))


# -- tools ------------------------------------------------------------------------------------------------------------


def calling(make: Callable[[World], Any], name: str = "note", **arguments: Any) -> Build:
    """Return a team whose member calls a tool before the question and after the answer."""

    def build(world: World) -> Team:
        tool = make(world)
        model = world.caller(name, **(arguments or {"text": "dry"}))
        return world.beside(world.member(model=model, tools=[tool], reflect_on_tool_use=True))

    return build


def searching(world: World) -> Any:
    import azure.search.documents.aio as clients
    from azure.core.credentials import AzureKeyCredential

    class SearchClient:
        def __init__(self, **_: Any) -> None: ...

        async def search(self, *, search_text: str, **_: Any) -> AsyncIterator[dict[str, Any]]:
            world.note(search_text)

            async def found() -> AsyncIterator[dict[str, Any]]:
                yield {"text": f"On {search_text}: wait a day.", "@search.score": 1.0}

            return found()

    clients.SearchClient = SearchClient
    from autogen_ext.tools.azure import AzureAISearchTool

    key = AzureKeyCredential("k")
    return AzureAISearchTool.create_full_text_search("look_up", "https://search.example", "i", key)


def graph_search(world: World, local: bool) -> Any:
    import pandas as pd

    engines = "graphrag.query.structured_search"
    stores, found_all, found_near = map(
        import_module,
        ("graphrag.vector_stores.lancedb", f"{engines}.global_search.search", f"{engines}.local_search.search"),
    )

    async def search(_: Any, query: str) -> Any:
        return SimpleNamespace(response=world.note(f"on {query}: wait a day"))

    found_all.GlobalSearch.search = found_near.LocalSearch.search = search
    stores.LanceDBVectorStore.connect = lambda *_, **__: None
    from autogen_ext.tools import graphrag

    data = (graphrag.LocalDataConfig if local else graphrag.GlobalDataConfig)(input_dir=".")
    for name in ("entities", "relationships", "text_units", "communities", "community_reports"):
        pd.DataFrame({"id": [1]}).to_parquet(f"{name}.parquet")
    parts: Any = {"token_encoder": None, "model": None, "data_config": data}
    return graphrag.LocalSearchTool(embedder=None, **parts) if local else graphrag.GlobalSearchTool(**parts)  # type: ignore[arg-type]


def http_tool(world: World) -> Any:
    import json_schema_to_pydantic

    json_schema_to_pydantic.create_model = schema_to_pydantic_model  # type: ignore[attr-defined]
    from autogen_ext.tools.http import HttpTool

    url = serve(lambda request: Sent(world.note(json.loads(request.body)["text"]), "text/plain"))
    schema = {"title": "note", "type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return HttpTool("note", "127.0.0.1", int(url.rpartition(":")[2]), schema)


def stdio_tool(_: World) -> Any:
    """Return a tool of a server that is started for each call, listed as a program does."""
    import asyncio

    from autogen_ext.tools.mcp import StdioServerParams, mcp_server_tools
    from forked import start_command
    from places import SUPPORT

    params = StdioServerParams(**start_command(str(SUPPORT / "mcp_server.py")), read_timeout_seconds=20)
    found: list[Any] = []
    listing = Thread(target=lambda: found.extend(asyncio.run(mcp_server_tools(params))))
    listing.start()
    listing.join()
    return next(each for each in found if each.name == "search")


def listening_tool(transport: Any) -> Callable[[World], Any]:
    """Return what makes a tool of a server that listens."""

    def make(_: World) -> Any:
        import mcp_server
        from autogen_ext.tools import mcp as adapters
        from mcp import Tool

        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        mcp_server.server.settings.port, mcp_server.server.settings.log_level = port, "ERROR"
        Thread(target=mcp_server.server.run, args=(transport,), daemon=True).start()
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                pass
        words = {"type": "object", "properties": {"words": {"type": "string"}}, "required": ["words"]}
        tool = Tool(name="search", description="Search the notes.", inputSchema=words)
        if transport == "sse":
            sse = adapters.SseServerParams(url=f"http://127.0.0.1:{port}/sse")
            return adapters.SseMcpToolAdapter(sse, tool)
        http = adapters.StreamableHttpServerParams(url=f"http://127.0.0.1:{port}/mcp")
        return adapters.StreamableHttpMcpToolAdapter(http, tool)

    return make


def kernel_function(world: World) -> Any:
    """Return a tool that calls another one as a function of Semantic Kernel."""
    import semantic_kernel.functions as functions
    from autogen_core.tools import FunctionTool

    functions.kernel_function = lambda **_: lambda method: method  # type: ignore[attr-defined]
    from autogen_ext.tools.semantic_kernel import KernelFunctionFromTool

    function: Any = KernelFunctionFromTool(FunctionTool(world.note, "Take a note."))

    async def note(text: str) -> str:
        """Take a note."""
        return str(await function.method(text=text))

    return note


# -- a runtime --------------------------------------------------------------------------------------------------------


def distributed(world: World) -> Team:
    """Return a team on a runtime for several processes."""
    import grpc
    import grpc._utilities as versions

    grpc.__version__, versions.first_version_is_lower = "1", lambda *_: False
    from autogen_ext.runtimes.grpc import GrpcWorkerAgentRuntime

    return world.beside(world.member(), runtime=GrpcWorkerAgentRuntime("127.0.0.1:9"))


# -- models -----------------------------------------------------------------------------------------------------------


def azure_openai(world: World) -> Team:
    """Return a team with OpenAI's models on Azure, which are sent a token."""
    import azure.identity as identity

    identity.get_bearer_token_provider = lambda *_: lambda: "token"
    from autogen_ext.auth.azure import AzureTokenProvider
    from autogen_ext.models.openai import AzureOpenAIChatCompletionClient

    def answer(request: Request) -> Sent:
        world.count()
        return _json(**completion({"content": describe(ModelRequest(json.loads(request.body)))}))

    credential: Any = SimpleNamespace()
    client: Any = AzureOpenAIChatCompletionClient(
        model="m",
        azure_endpoint=serve(answer),
        azure_deployment="m",
        api_version="1",
        azure_ad_token_provider=AzureTokenProvider(credential, "scope"),
        model_info=MODEL_INFO,
    )
    return world.beside(world.member(model=client))


def bedrock(world: World) -> Team:
    """Return a team with Anthropic's models on Amazon's service; the signing of its requests is left out."""
    from anthropic import AsyncAnthropic
    from autogen_ext.models.anthropic import AnthropicBedrockChatCompletionClient, BedrockInfo

    def answer(request: Request) -> Sent:
        world.count()
        texts = [{"type": "text", "text": describe(ModelRequest(json.loads(request.body)))}]
        whole = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
        return _json(**whole, content=texts, stop_reason="end_turn", usage={"input_tokens": 5, "output_tokens": 2})

    keys = ("aws_access_key", "aws_secret_key", "aws_session_token", "aws_region")
    info: Any = BedrockInfo(**dict.fromkeys(keys, "k"))  # type: ignore[typeddict-item]
    client: Any = AnthropicBedrockChatCompletionClient(model="m", bedrock_info=info, model_info=MODEL_INFO)
    client._client = AsyncAnthropic(api_key="k", base_url=serve(answer))
    if not world.asks:
        fit_client(client)  # AutoGen's own team sends what this version of `anthropic` does not take.
    return world.beside(world.member(model=client))


def recording(world: World) -> Team:
    from autogen_ext.experimental.task_centric_memory.utils import ChatCompletionClientRecorder, PageLogger

    client: Any = ChatCompletionClientRecorder(world.echo(), "record", "sessions/one.json", PageLogger())
    return world.beside(world.member(model=client))


CENTRIC = f"{EXT}.experimental.task_centric_memory"
AZURE_TOOLS, GRAPHRAG, MCP = f"{EXT}.tools.azure", f"{EXT}.tools.graphrag", f"{EXT}.tools.mcp"
EXECUTORS = f"{EXT}.code_executors"
SENT_AGAIN = "a turn that is repeated after a kill is sent to its thread once more, and its tools are called again"
KERNEL = "the kernel is started anew after a pause: variables are gone; make its server once, outside of the factory"
CALLED = "called before the question and after the answer"
WORDS = {"words": "paint"}


def _parts(module: str, names: str) -> list[str]:
    return [f"{module}.{each}" for each in names.split()]


ROWS = [
    Row(
        f"{EXT}.runtimes.grpc.GrpcWorkerAgentRuntime",
        distributed,
        "a team is given one; AutoGen's own team waits there for ever",
        outcome=Outcome.REFUSED,
        remark="Leave out runtime=, or give it a SingleThreadedAgentRuntime.",
        parts=_parts(f"{EXT}.runtimes.grpc", "GrpcWorkerAgentRuntimeHost GrpcWorkerAgentRuntimeHostServicer"),
        stand_ins=["grpc"],
    ),
    Row(
        f"{EXT}.agents.openai.OpenAIAssistantAgent",
        assisting,
        "calls a tool, and continues its thread after the answer",
        outcome=Outcome.REMARKED,
        remark=SENT_AGAIN,
    ),
    Row(
        f"{EXT}.agents.azure.AzureAIAgent",
        azure_agent,
        "calls a tool, and continues its thread after the answer",
        outcome=Outcome.REMARKED,
        remark=SENT_AGAIN,
        stand_ins=["azure.ai.agents", "azure.ai.projects"],
    ),
    Row(
        "autogen_core.code_executor.CodeExecutor",
        executing(OwnExecutor),
        "an executor of one's own",
        parts=_parts("autogen_core.code_executor", "CodeBlock CodeResult"),
    ),
    Row(
        f"{EXECUTORS}.azure.ACADynamicSessionsCodeExecutor",
        executing(dynamic_session),
        "runs code in a session of a server on loopback",
        outcome=Outcome.REMARKED,
        remark="give it a `session_id`: without one it begins a new session after a pause, and variables are gone",
        parts=[f"{EXECUTORS}.azure.TokenProvider"],
    ),
    Row(
        f"{EXECUTORS}.docker_jupyter.DockerJupyterCodeExecutor",
        executing(docker_jupyter),
        "runs code in a kernel, on a fake of Docker and of the kernel's server",
        outcome=Outcome.REMARKED,
        remark=KERNEL,
        parts=_parts(
            f"{EXECUTORS}.docker_jupyter",
            "DockerJupyterCodeResult DockerJupyterServer JupyterClient JupyterKernelClient",
        ),
        stand_ins=["websockets"],
    ),
    Row(
        f"{EXECUTORS}.docker.DockerCommandLineCodeExecutor",
        executing(docker_command_line),
        "runs code in a container, on a fake of Docker",
    ),
    Row(
        f"{EXT}.memory.redis.RedisMemory",
        remembering_in_redis,
        "a tool adds to it before the question",
        outcome=Outcome.REMARKED,
        remark="a turn that is repeated after a kill looks into it again",
        parts=[f"{EXT}.memory.redis.RedisMemoryConfig"],
        stand_ins=["redis", "redisvl"],
    ),
    Row(
        f"{CENTRIC}.MemoryController",
        teaching,
        "learns from the task, and tells it after the answer",
        outcome=Outcome.REMARKED,
        remark="a turn that is repeated after a kill looks into it, and learns, again",
        parts=[
            *_parts(CENTRIC, "MemoryBankConfig MemoryControllerConfig"),
            *_parts(f"{CENTRIC}.utils", "PageLogger PageLoggerConfig Teachability"),
        ],
        stand_ins=["chromadb"],
    ),
    Row(
        f"{CENTRIC}.utils.Apprentice",
        apprenticed,
        "is trained and does a task, in a tool",
        parts=_parts(f"{CENTRIC}.utils", "ApprenticeConfig Grader"),
        stand_ins=["chromadb"],
    ),
    Row(
        f"{CENTRIC}.utils.ChatCompletionClientRecorder",
        recording,
        "records what is written",
        outcome=Outcome.REMARKED,
        remark="it records what is written in its own process; replay a run in one process",
        stand_ins=["chromadb"],
    ),
    Row(
        f"{AZURE_TOOLS}.AzureAISearchTool",
        calling(searching, "look_up", query="paint"),
        CALLED,
        parts=_parts(
            AZURE_TOOLS,
            "AzureAISearchConfig BaseAzureAISearchTool SearchQuery SearchResult SearchResults VectorizableTextQuery",
        ),
        stand_ins=["azure.search"],
    ),
    Row(
        f"{GRAPHRAG}.GlobalSearchTool",
        calling(lambda world: graph_search(world, False), "global_search_tool", query="paint"),
        CALLED,
        parts=_parts(
            GRAPHRAG,
            "GlobalContextConfig GlobalDataConfig GlobalSearchToolArgs GlobalSearchToolReturn MapReduceConfig",
        ),
        stand_ins=["graphrag"],
    ),
    Row(
        f"{GRAPHRAG}.LocalSearchTool",
        calling(lambda world: graph_search(world, True), "local_search_tool", query="paint"),
        CALLED,
        parts=_parts(
            GRAPHRAG, "LocalContextConfig LocalDataConfig LocalSearchToolArgs LocalSearchToolReturn SearchConfig"
        ),
        stand_ins=["graphrag"],
    ),
    Row(
        f"{EXT}.tools.http.HttpTool",
        calling(http_tool),
        f"{CALLED}, on a server on loopback",
        stand_ins=["json_schema_to_pydantic"],
    ),
    Row(
        f"{MCP}.StdioMcpToolAdapter",
        calling(stdio_tool, "search", **WORDS),
        f"{CALLED}, on a real server",
        parts=_parts(MCP, "mcp_server_tools create_mcp_server_session"),
    ),
    Row(
        f"{MCP}.SseMcpToolAdapter",
        calling(listening_tool("sse"), "search", **WORDS),
        f"{CALLED}, on a real server",
        parts=[f"{MCP}.SseServerParams"],
    ),
    Row(
        f"{MCP}.StreamableHttpMcpToolAdapter",
        calling(listening_tool("streamable-http"), "search", **WORDS),
        f"{CALLED}, on a real server",
        parts=[f"{MCP}.StreamableHttpServerParams"],
    ),
    Row(
        f"{EXT}.tools.semantic_kernel.KernelFunctionFromTool",
        calling(kernel_function),
        "a tool that is called as a function of Semantic Kernel",
        stand_ins=["semantic_kernel"],
    ),
    Row(
        f"{EXT}.models.anthropic.AnthropicBedrockChatCompletionClient",
        bedrock,
        "calls a server on loopback; the signing of its requests is left out",
        parts=_parts(
            f"{EXT}.models.anthropic",
            "AnthropicBedrockClientConfiguration BedrockInfo AnthropicBedrockClientConfigurationConfigModel",
        ),
    ),
    Row(
        f"{EXT}.models.openai.AzureOpenAIChatCompletionClient",
        azure_openai,
        "calls a server on loopback, with a token",
        parts=[
            f"{EXT}.models.openai.AzureOpenAIClientConfigurationConfigModel",
            *_parts(f"{EXT}.auth.azure", "AzureTokenProvider TokenProviderConfig"),
        ],
        stand_ins=["azure.identity"],
    ),
]
