"""The agents, executors, memories, tools and stores of autogen-ext, on fakes of their services."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from autogen_agentchat.agents import CodeExecutorAgent
from autogen_agentchat.base import Team
from autogen_core.code_executor import CodeExecutor
from autogen_core.memory import MemoryContent, MemoryMimeType
from autogen_core.models import ModelInfo
from PIL import Image as Pictures

from shelf.rows import Build, Outcome, Row
from shelf.world import ANSWER, World, describe
from upcall.testing import Call, LoopbackServer, Reply
from upcall.testing.model import MODEL_INFO
from upcall.testing.script import Request

EXT = "autogen_ext"
SEES = ModelInfo(**{**MODEL_INFO, "vision": True})


# -- agents -----------------------------------------------------------------------------------------------------------


def reading_files(world: World) -> Team:
    """Return a team with a surfer on a folder: it opens a file, and tells what it was given."""
    from autogen_ext.agents.file_surfer import FileSurfer

    converter: Any = sys.modules["markitdown"]
    converter.MarkItDown.convert_stream = lambda _, stream, **__: _page(stream.read().decode())
    converter.MarkItDown.convert_local = lambda _, path: _page(Path(path).read_text())
    Path("a.txt").write_text("Paint dries slowly.")
    return world.beside(FileSurfer("member", world.caller("open_path", path="a.txt"), base_path="."))


def writing_code(world: World) -> Team:
    from autogen_ext.agents.magentic_one import MagenticOneCoderAgent

    return world.beside(MagenticOneCoderAgent("member", world.echo()))


def watching(world: World) -> Team:
    from autogen_ext.agents.video_surfer import VideoSurfer

    capture: Any = sys.modules["cv2"]
    frames = {"isOpened": lambda _: True, "get": lambda *_: 2.0, "release": lambda _: None}
    capture.VideoCapture = type("VideoCapture", (), {"__init__": lambda *_: None, **frames})
    return world.beside(VideoSurfer("member", world.caller("get_video_length", video_path="a.mp4")))


def _page(text: str) -> SimpleNamespace:
    return SimpleNamespace(title="A", text_content=text)


class Page:
    """Stands for a page of a browser, and for the browser: it is at an address, and has a text."""

    url = "about:blank"

    async def new_page(self) -> Page:
        return Page()

    async def goto(self, url: str) -> None:
        self.url = url

    async def title(self) -> str:
        return f"At {self.url}"

    async def screenshot(self, **_: Any) -> bytes:
        picture = io.BytesIO()
        Pictures.new("RGB", (1224, 765)).save(picture, "PNG")
        return picture.getvalue()

    async def evaluate(self, code: str) -> Any:
        if "getVisualViewport" in code:
            sides = ("height", "width", "offsetLeft", "offsetTop", "pageLeft", "pageTop", "scale")
            more = ("clientWidth", "clientHeight", "scrollWidth", "scrollHeight")
            return dict.fromkeys((*sides, *more), 1)
        return {} if "Rects" in code or "Metadata" in code else "A fence."

    def on(self, *_: Any) -> None: ...

    def set_default_timeout(self, _: int) -> None: ...

    async def close(self) -> None: ...

    set_viewport_size = add_init_script = wait_for_load_state = wait_for_timeout = bring_to_front = None  # set below


async def _nothing(*_: Any, **__: Any) -> None: ...


for name in ("set_viewport_size", "add_init_script", "wait_for_load_state", "wait_for_timeout", "bring_to_front"):
    setattr(Page, name, _nothing)


def surfing(world: World) -> Team:
    from autogen_ext.agents.web_surfer import MultimodalWebSurfer

    def script(request: Request) -> Reply:
        visited = "I say blue" in str(request.messages)
        there = "At https://paint.example" in str(request.messages)
        return (
            f"told and there: {there}"
            if visited
            else Call("visit_url", {"reasoning": "so", "url": "https://paint.example"})
        )

    browser: Any = Page()
    return world.beside(MultimodalWebSurfer("member", world.model(script, SEES), context=browser, playwright=browser))


class Responses:
    """Stands for the `responses` of OpenAI's client: it tells what it was sent, and counts."""

    def __init__(self) -> None:
        self.responses = self

    async def create(self, *, input: list[Any], previous_response_id: str | None = None, **_: Any) -> Any:
        text = " | ".join(str(each["content"])[:40] for each in input)
        before = int((previous_response_id or "r0")[1:])
        return SimpleNamespace(output_text=f"told {before} {text}", id=f"r{before + 1}")


def responding(world: World) -> Team:
    from autogen_ext.agents.openai import OpenAIAgent

    client: Any = Responses()
    return world.beside(OpenAIAgent("member", "Works.", client, "m", "Work."))


# -- code executors ---------------------------------------------------------------------------------------------------


def executing(
    make: Callable[[], CodeExecutor], code: str = "```python\nprint('painted')\n```"
) -> Callable[[World], Team]:
    def build(world: World) -> Team:
        def script(request: Request) -> Reply:
            return "told painted" if "painted" in str(request.messages[-1]) else code

        return world.beside(CodeExecutorAgent("member", make(), model_client=world.model(script)))

    return build


def local() -> CodeExecutor:
    from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

    return LocalCommandLineCodeExecutor(work_dir="code")


def jupyter() -> CodeExecutor:
    from autogen_ext.code_executors.jupyter import JupyterCodeExecutor

    return JupyterCodeExecutor(output_dir=Path("out"))


def python_tool(world: World) -> Team:
    from autogen_ext.tools.code_execution import PythonCodeExecutionTool

    tool = PythonCodeExecutionTool(local())  # type: ignore[arg-type]
    model = world.caller("CodeExecutor", code="print('painted')")
    return world.beside(world.member(model=model, tools=[tool], reflect_on_tool_use=True))


# -- memories ---------------------------------------------------------------------------------------------------------


def drawing(world: World) -> Team:
    """Return a team whose member writes on a canvas before the question, and reads it after the answer."""
    from autogen_ext.memory.canvas import TextCanvasMemory

    memory = TextCanvasMemory()

    def script(request: Request) -> Reply:
        from shelf.world import describe

        written = "I say blue" in str(request.messages) or bool(request.tool_results)
        return describe(request) if written else Call("update_file", {"filename": "a.md", "new_content": "red"})

    member = world.member(
        model=world.model(script), tools=[memory.get_update_file_tool()], memory=[memory], reflect_on_tool_use=True
    )
    return world.beside(member)


class Shelf:
    """Stands for a collection of `chromadb`, and for the client that has it."""

    def __init__(self, **_: Any) -> None:
        self.path = Path("kept.txt")

    def get_or_create_collection(self, **_: Any) -> Shelf:
        return self

    def add(self, documents: list[str], **_: Any) -> None:
        self.path.write_text("\n".join([*self._list(), *documents]))

    def query(self, **_: Any) -> dict[str, Any]:
        found = self._list()
        return {
            "documents": [found],
            "metadatas": [[{"mime_type": "text/plain"}] * len(found)],
            "distances": [[0.1] * len(found)],
            "ids": [found],
        }

    def _list(self) -> list[str]:
        return self.path.read_text().split("\n") if self.path.exists() else []


def remembering_vectors(world: World) -> Team:
    import chromadb
    import chromadb.api.client
    from chromadb.utils import embedding_functions

    chromadb.PersistentClient = Shelf  # type: ignore[attr-defined]
    embedding_functions.DefaultEmbeddingFunction = object
    from autogen_ext.memory.chromadb import ChromaDBVectorMemory, PersistentChromaDBVectorMemoryConfig

    memory = ChromaDBVectorMemory(PersistentChromaDBVectorMemoryConfig(persistence_path="."))
    return adding_to(world, memory)


def adding_to(world: World, memory: Any) -> Team:
    async def note(text: str) -> str:
        """Take a note."""
        await memory.add(MemoryContent(content=text, mime_type=MemoryMimeType.TEXT))
        return "added"

    def script(request: Request) -> Reply:
        noted = "I say blue" in str(request.messages) or bool(request.tool_results)
        return describe(request) if noted else Call("note", {"text": "dry"})

    model = world.model(script)
    return world.beside(world.member(model=model, tools=[note], memory=[memory], reflect_on_tool_use=True))


# -- tools ------------------------------------------------------------------------------------------------------------


def adapting(world: World) -> Team:
    """Return a team with a tool of LangChain's; the adapter needs the name, the arguments and the function of it."""
    from autogen_ext.tools.langchain import LangChainToolAdapter

    def note(text: str) -> str:
        return world.note(text)

    tool: Any = SimpleNamespace(name="note", description="Take a note.", args_schema=None, func=note, _run=note)
    adapted = LangChainToolAdapter(tool)
    return world.beside(world.member(model=world.caller("note", text="dry"), tools=[adapted], reflect_on_tool_use=True))


# -- models -----------------------------------------------------------------------------------------------------------


def replaying(world: World) -> Team:
    from autogen_ext.models.replay import ReplayChatCompletionClient

    return world.beside(world.member(model=ReplayChatCompletionClient(["told one", "told two"])))  # type: ignore[arg-type]


class Store:
    """Stands for a server of Redis, and for a cache of `diskcache`: a file."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.path = Path("cache.json")

    def get(self, key: str, default: Any = None) -> Any:
        found = json.loads(self.path.read_text()) if self.path.exists() else {}
        return found[key].encode() if key in found else default

    def set(self, key: str, value: Any, *_: Any) -> None:
        found = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.path.write_text(json.dumps({**found, key: value.decode() if isinstance(value, bytes) else str(value)}))


def caching(make: Callable[[], Any]) -> Build:
    def build(world: World) -> Team:
        from autogen_ext.models.cache import ChatCompletionCache

        return world.beside(world.member(model=ChatCompletionCache(world.echo(), make())))  # type: ignore[arg-type]

    return build


def in_redis() -> Any:
    from autogen_ext.cache_store.redis import RedisStore

    server: Any = Store()
    return RedisStore(server)


def on_disk() -> Any:
    from autogen_ext.cache_store.diskcache import DiskCacheStore

    cache: Any = Store()
    return DiskCacheStore(cache)


def serving(make: Callable[[str], Any]) -> Build:
    """Return a team with a client of OpenAI's protocol, on a server on loopback."""

    def build(world: World) -> Team:
        server = LoopbackServer(world.model(describe).script)
        server.start()
        return world.beside(world.member(model=make(server.base_url)))

    return build


def openai(url: str) -> Any:
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    return OpenAIChatCompletionClient(model="m", base_url=url, api_key="k", model_info=MODEL_INFO)


def orchestrating(world: World) -> Team:
    """Return the ready-made team, in which the user is one of its agents."""
    from autogen_ext.teams.magentic_one import MagenticOne

    converter: Any = sys.modules["markitdown"]
    converter.MarkItDown.convert_stream = lambda _, stream, **__: _page(stream.read().decode())
    speakers = ["Coder", "User", "Coder"]

    def script(request: Request) -> Reply:
        if "is_request_satisfied" not in str(request.messages[-1]):
            return "told by " + ("the user" if ANSWER in str(request.messages) else "nobody")
        at = sum(each.get("content") == "Go on." for each in request.messages)
        decided = {"is_request_satisfied": at >= len(speakers), "is_progress_being_made": True, "is_in_loop": False}
        more = {"instruction_or_question": "Go on.", "next_speaker": speakers[at % len(speakers)]}
        return json.dumps({name: {"reason": "so", "answer": each} for name, each in {**decided, **more}.items()})

    return MagenticOne(
        world.model(script, SEES),
        hil_mode=True,
        input_func=None if world.asks else lambda _: ANSWER,
        code_executor=local(),
    )


def remembering_facts(world: World) -> Team:
    import mem0
    from autogen_ext.memory.mem0 import Mem0Memory

    class Facts(Shelf):
        def add(self, messages: Any, **_: Any) -> None:  # type: ignore[override]
            super().add([each["content"] for each in messages])

        def search(self, *_: Any, **__: Any) -> Any:
            return {"results": [{"memory": each, "score": 0.9, "metadata": {}} for each in self._list()]}

    mem0.MemoryClient = Facts  # type: ignore[attr-defined]
    import autogen_ext.memory.mem0._mem0 as module

    module.MemoryClient = Facts  # type: ignore[attr-defined]
    return adding_to(world, Mem0Memory(user_id="me", is_cloud=True, api_key="k"))


CHROMA = f"{EXT}.memory.chromadb"
OPENAI = f"{EXT}.models.openai"

ROWS = [
    Row(
        f"{EXT}.agents.file_surfer.FileSurfer",
        reading_files,
        "opens a file, before the question and after the answer",
        result="Paint dries slowly.",
        stand_ins=["markitdown"],
    ),
    Row(f"{EXT}.agents.magentic_one.MagenticOneCoderAgent", writing_code, "says what it was given"),
    Row(
        f"{EXT}.agents.video_surfer.VideoSurfer",
        watching,
        "asks for the length of a video",
        result="1.00 seconds",
        stand_ins=["cv2", "ffmpeg", "whisper"],
    ),
    Row(f"{EXT}.agents.openai.OpenAIAgent", responding, "continues its server's response after the answer"),
    Row(
        f"{EXT}.agents.web_surfer.MultimodalWebSurfer",
        surfing,
        "visits a page, and is still there after the answer",
        result="told and there: True",
        outcome=Outcome.REMARKED,
        remark="its browser is opened anew, at the address it was at; what was typed there is gone",
        parts=[f"{EXT}.agents.web_surfer.PlaywrightController"],
        stand_ins=["markitdown"],
    ),
    Row(f"{EXT}.code_executors.local.LocalCommandLineCodeExecutor", executing(local), "runs code"),
    Row(
        f"{EXT}.code_executors.jupyter.JupyterCodeExecutor",
        executing(jupyter),
        "runs code in a kernel",
        outcome=Outcome.REMARKED,
        remark="the kernel is started anew after a pause: variables are gone",
        parts=[f"{EXT}.code_executors.jupyter.JupyterCodeResult"],
    ),
    Row(
        f"{EXT}.tools.code_execution.PythonCodeExecutionTool",
        python_tool,
        "runs code as a tool",
        parts=[f"{EXT}.tools.code_execution.{each}" for each in ("CodeExecutionInput", "CodeExecutionResult")],
    ),
    Row(
        f"{EXT}.memory.canvas.TextCanvasMemory",
        drawing,
        "a file is written before the question, and read after the answer",
        parts=[f"{EXT}.memory.canvas.TextCanvas"],
    ),
    Row(
        f"{EXT}.memory.chromadb.ChromaDBVectorMemory",
        remembering_vectors,
        "a tool adds to it before the question",
        outcome=Outcome.REMARKED,
        remark="a turn that is repeated after a kill looks into it again",
        parts=[
            f"{CHROMA}.{each}"
            for each in (
                "ChromaDBVectorMemoryConfig",
                "CustomEmbeddingFunctionConfig",
                "DefaultEmbeddingFunctionConfig",
                "HttpChromaDBVectorMemoryConfig",
                "OpenAIEmbeddingFunctionConfig",
                "PersistentChromaDBVectorMemoryConfig",
                "SentenceTransformerEmbeddingFunctionConfig",
            )
        ],
        stand_ins=["chromadb"],
    ),
    Row(
        f"{EXT}.tools.langchain.LangChainToolAdapter",
        adapting,
        "called before the question and after the answer",
        stand_ins=["langchain_core"],
    ),
    Row(
        f"{EXT}.models.replay.ReplayChatCompletionClient",
        replaying,
        "replays its second reply after the answer",
        outcome=Outcome.REMARKED,
        remark="after a kill it continues from where it was at the last question",
    ),
    Row(
        f"{EXT}.models.cache.ChatCompletionCache",
        caching(in_redis),
        "a cache in a store that all processes have",
        parts=[
            f"{EXT}.models.cache.CHAT_CACHE_VALUE_TYPE",
            f"{EXT}.cache_store.redis.RedisStore",
            f"{EXT}.cache_store.redis.RedisStoreConfig",
        ],
        stand_ins=["redis"],
    ),
    Row(
        f"{EXT}.cache_store.diskcache.DiskCacheStore",
        caching(on_disk),
        "the store of a cache",
        parts=[f"{EXT}.cache_store.diskcache.DiskCacheStoreConfig"],
        stand_ins=["diskcache"],
    ),
    Row(
        f"{OPENAI}.OpenAIChatCompletionClient",
        serving(openai),
        "calls a server on loopback",
        parts=[
            f"{OPENAI}.{each}"
            for each in (
                "BaseOpenAIChatCompletionClient",
                "BaseOpenAIClientConfigurationConfigModel",
                "CreateArgumentsConfigModel",
                "OpenAIClientConfigurationConfigModel",
            )
        ],
    ),
    Row(
        f"{EXT}.teams.magentic_one.MagenticOne",
        orchestrating,
        "its user is asked between two turns of its coder",
        stand_ins=["markitdown"],
        result="told by the user",
    ),
    Row(
        f"{EXT}.memory.mem0.Mem0Memory",
        remembering_facts,
        "a tool adds to it before the question",
        parts=[f"{EXT}.memory.mem0.Mem0MemoryConfig"],
        stand_ins=["mem0"],
    ),
]
