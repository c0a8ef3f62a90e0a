"""The forms in which models write calls into their text, as data: one row a form, with the grammar of its arguments.

Servers turn these forms into `tool_calls`, if they have the parser for their model and were started with it. A model
with a form of its own needs a row here, or a mark if only its marks are new. The sources are the chat templates of the
models, the tool parsers of vLLM (``vllm/tool_parsers``), the detectors of SGLang
(``python/sglang/srt/function_call``) and the chat formats of llama.cpp (``common/chat.cpp``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from upcall.autogen.text_calls.arguments import (
    SPACE,
    Grammar,
    read_gemma,
    read_json,
    read_json_calls,
    read_pairs,
    read_python,
    read_tags,
)
from upcall.lazy_pattern import LazyPattern

_WORDS = (
    r"(?:\w+:|longcat_|begin_|start_|end_)?(?:(?:tool|function)[_▁ ]?calls?|tool_requests?|calls?|tools)"
    r"(?:[_▁]section)?(?:[_▁](?:begin|start|end))?"
)
"""What tags around calls are called. A tag of another name, such as `<example>`, is a part of the text."""

_MARKS = "|".join(
    (
        rf"</?{_WORDS}>",  # Hermes, Qwen, GLM, MiniMax, Seed, Hunyuan, Jamba, Nemotron (TOOLCALL), FunctionGemma.
        rf"</?[|｜]/?(?:DSML[|｜])?{_WORDS}[|｜]?>",  # Kimi, DeepSeek, Granite, Phi, LFM2, Gemma 4.
        rf"<{_WORDS}\|>",  # Gemma 4.
        rf"\[/?(?:END_)?{_WORDS}\]",  # Mistral, LM Studio.
        r"functools(?=\s*\[)",  # Phi 4 mini, FireFunction.
        r"<\|python_(?:tag|start|end)\|>",  # Llama.
        r"<\|(?:START|END)_ACTION\|>",  # Command.
        r"<\|(?:action_(?:start|end)|plugin)\|>",  # InternLM.
        r"<\|tools_(?:prefix|suffix)\|>",  # Apertus.
        r"function call<\|role_sep\|>",  # GigaChat.
    )
)
_ENDS = (
    r"<\|(?:eom_id|eot_id|im_end|end|endoftext|observation|user|return|call|message_sep)\|>|</s>|"
    r"<[|｜]end▁of▁sentence[|｜]>"
)
"""Tokens that end a reply."""

MARK = LazyPattern(_MARKS, re.IGNORECASE)
"""A mark of calls."""

AROUND = LazyPattern(rf"(?:\s|[,;]|{_ENDS}|{_MARKS})*", re.IGNORECASE)
"""What may stand around calls and between them."""

NOISE = "]<]minimax[>["
"""A token that MiniMax M3 writes before each of its tags."""

_NAME = r"(?P<name>[A-Za-z_][\w.-]*)"
_SEPARATOR = r"<[|｜]tool[▁_]sep[|｜]>"


@dataclass(frozen=True)
class CallFormat:
    """How some models write a call.

    Attributes:
        models: which of them.
        begins: the pattern of what stands before the arguments, with the ``name`` of the tool where it stands there.
        arguments: reads them, from there on.
        ends: the pattern of what must stand behind them.
        is_mark: only calls begin so, so a reply that begins so and is none is broken.
        needs_mark: it counts only behind a mark of calls: without one it is an example in a text.
    """

    models: str
    begins: str
    arguments: Grammar
    ends: str = ""
    is_mark: bool = False
    needs_mark: bool = False

    @cached_property
    def beginning(self) -> re.Pattern[str]:
        """What stands before the arguments."""
        return re.compile(self.begins)

    @property
    def names_tool(self) -> bool:
        """Whether what stands before the arguments is a call beyond doubt, also in the middle of a text."""
        return _NAME in self.begins and not (self.needs_mark and self.arguments is read_json)

    def beginning_of(self, tool: str) -> re.Pattern[str]:
        """Return what stands before the arguments of a tool."""
        return re.compile(self.begins.replace(_NAME, f"(?P<name>{re.escape(tool)})"))

    @cached_property
    def ending(self) -> re.Pattern[str]:
        """What stands behind them."""
        return re.compile(self.ends)


FORMATS = (
    CallFormat(
        "MiniMax, Claude's, DeepSeek V3.2 and V4, Step 3",
        rf"""(?:function)?(?:{_SEPARATOR})?\s*<{SPACE}invoke\s+name\s*=\s*["']?{_NAME}["']?\s*>""",
        read_tags,
        rf"\s*</{SPACE}invoke>",
        needs_mark=True,
    ),
    CallFormat(
        "Qwen3-Coder, Seed-OSS, MiMo, Llama 3.1, Functionary 3.1",
        rf"""<function(?:\s*=\s*|\s+name\s*=\s*)["']?{_NAME}["']?\s*>""",
        read_tags,
        r"\s*</function>",
        is_mark=True,
    ),
    CallFormat(
        "GLM 4.5 and later, Hunyuan 3",
        rf"{_NAME}\s*(?:<tool_sep>\s*)?(?=<arg_key>|</\w*tool_call>)",
        read_pairs,
        needs_mark=True,
    ),
    CallFormat(
        "Kimi K2",
        rf"(?:functions\.)?{_NAME}(?::\d+)?\s*<\|tool_call_argument_begin\|>\s*",
        read_json,
        is_mark=True,
    ),
    CallFormat(
        "DeepSeek V3 and R1", rf"(?:function)?{_SEPARATOR}{_NAME}\s*```(?:json)?\s*", read_json, r"\s*```", is_mark=True
    ),
    CallFormat("DeepSeek V3.1", rf"{_NAME}{_SEPARATOR}\s*", read_json, is_mark=True),
    CallFormat(
        "Mistral since 2025", rf"{_NAME}\s*(?:\[CALL_ID\][\w-]+)?\s*\[ARGS\]\s*(?=\{{)", read_json, is_mark=True
    ),
    CallFormat("those that lose a mark on the way", rf"{_NAME}\s*(?=\{{)", read_json, needs_mark=True),
    CallFormat(
        "gpt-oss",
        r"(?:<\|start\|>)?(?:assistant)?\s*(?:<\|channel\|>)?(?:commentary|analysis)?\s*"
        rf"to=(?:functions\.)?{_NAME}\s*(?:<\|channel\|>\s*(?:commentary|analysis))?\s*"
        r"(?:<\|constrain\|>)?\s*(?:json|code)?\s*(?:<\|message\|>)?\s*(?=\{)",
        read_json,
        is_mark=True,
    ),
    CallFormat("Functionary 3.2", rf">>>{_NAME}[ \t]*\r?\n\s*(?=\{{)", read_json, is_mark=True),
    CallFormat("Gemma 4, FunctionGemma", rf"call:{_NAME}\s*(?=\{{)", read_gemma, needs_mark=True),
    CallFormat("Llama 4, LFM2", r"(?=\[\s*[A-Za-z_][\w.]*\()", read_python),
    CallFormat("Llama 3.1's own tools, Olmo 3", r"(?=[A-Za-z_][\w.]*\()", read_python, needs_mark=True),
    CallFormat("Hermes, Qwen, Mistral, Llama, Granite, Phi and most others", r"(?=[{\[])", read_json_calls),
)

OPENING = "|".join(
    [
        rf"(?:{_ENDS})*(?:{_MARKS}|{re.escape(NOISE)})",
        *(
            each.begins.replace("(?P<name>", "(?:")
            for each in FORMATS
            if each.is_mark and not each.begins.startswith(_NAME)
        ),
        r"\[\s*[A-Za-z_][\w.]*\(",  # Llama 4's, without a mark.
        r"(?:`{3}|~{3})tool_code\b",
    ]
)
"""What a reply begins with that is calls, except JSON."""
