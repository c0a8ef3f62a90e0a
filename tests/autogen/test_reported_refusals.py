"""What becomes of a request that a server on loopback refuses, in words that users reported from 2024 to 2026.

Each has the issue or pull request that it was read in; what followed the cause is cut off. Those without a number are
from reviews.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_core.models import UserMessage
from autogen_core.tools import ToolSchema
from web_servers import Request, Sent, serving

from upcall import OpenAICompatibleClient
from upcall.autogen.model_calls import call_model
from upcall.autogen.openai_client.mends import OF_CONVERSATION
from upcall.autogen.openai_client.requests import JsonObject
from upcall.autogen.openai_client.server_rules import apply_mends, find_mends
from upcall.autogen.overflow_words import is_over_rate_alone
from upcall.errors import ConversationTooLong, ModelError, ModelUnavailable
from upcall.testing.zoo import completion

LOOK: Any = ToolSchema(
    name="look", parameters={"type": "object", "properties": {"at": {"type": "string", "const": "a", "examples": []}}}
)


@dataclass
class Played:
    """What a client made of a refusal: its requests, oldest first, and the error that it raised in the end."""

    requests: list[dict[str, Any]] = field(default_factory=list)
    error: ModelError | None = None


async def play(
    status: int, body: object, calls: int = 1, *, refused: Callable[[Any], bool] | None = None, **options: Any
) -> Played:
    """Refuse the requests that are like the first, or those that `refused` names."""
    played = Played()

    def answer(request: Request) -> Sent:
        sent = json.loads(request.body)
        played.requests.append(sent)
        if sent == played.requests[0] if refused is None else refused(sent):
            text = json.dumps({"error": {"message": body}} if isinstance(body, str) else body)
            return Sent(text, "application/json", status)
        return Sent(json.dumps(completion({"content": "Done."})), "application/json")

    with serving(answer) as server:
        client = OpenAICompatibleClient("m", base_url=f"{server.url}/v1", max_retries=0, **options)
        for _ in range(calls):
            call = call_model(
                client,
                [UserMessage(content="Go", source="user")],
                agent="a",
                tools=[LOOK],
                cancellation_token=CancellationToken(),
            )
            try:
                await anext(call)
            except ModelError as error:
                played.error = error
        await client.close()
    return played


def openai_error(message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def rows(*given: tuple[Any, ...]) -> list[Any]:
    return [pytest.param(*rest, id=source) for source, *rest in given]


TOO_LONG = rows(
    (
        "OpenHands/OpenHands#9227",
        400,
        "The maximum context length of DeepSeek-V3-0324 is 32768. However, answering your request will take 39732 "
        "tokens. Please reduce the length of the messages or the specified max_completion_tokens value.",
    ),
    (
        "BerriAI/litellm#10793",
        400,
        "The input (85050 tokens) is longer than the model's context length (32768 tokens).",
    ),
    (
        "BerriAI/litellm#15968",
        400,
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens. Please "
        "reduce the length of the messages.",
    ),
    (
        "anomalyco/opencode#44888",
        400,
        "ContextWindowExceededError: litellm.BadRequestError: Context Window exceeded for given call. No models have "
        "context window large enough for this call.",
    ),
    (
        "entropy-research/Devon#88",
        400,
        'litellm.ContextWindowExceededError: AnthropicError - {"type":"error","error":{"type":"invalid_request_error",'
        '"message":"prompt is too long: 209353 tokens > 199999 maximum"}}',
    ),
    ("langgenius/dify#32221", 400, "Input length 203743 exceeds the maximum length 202752"),
    (
        "oobabooga/textgen#7257",
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size. try increasing the context size or enable "
                "context shift",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 14429,
                "n_ctx": 8192,
            }
        },
    ),
    (
        "daisuke-awaji/moca#254",
        400,
        "The model returned the following errors: prompt is too long: 200049 tokens > 200000 maximum",
    ),
    (
        "google-gemini/gemini-cli#6678",
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576)",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
    ),
    (
        "iBUHub/AIStudioToAPI#268",
        400,
        "[original: beyond::dependency::INVALID_ARGUMENT] Cannot truncate to 89998, required 355220: text:355351, "
        "control:9,  (inaccurate, last turn truncated by 141 in addition)",
    ),
    (
        "ElVit/ha-groq-cloud-api#27",
        413,
        {
            "error": {
                "message": "Request too large for model llama-3.1-8b-instant in organization org_x service tier "
                "on_demand on tokens per minute (TPM): Limit 6000, Requested 12328, please reduce your message size "
                "and try again. Need more tokens? Upgrade to Dev Tier today",
                "type": "tokens",
                "code": "rate_limit_exceeded",
            }
        },
    ),
    (
        "continuedev/continue#11717",
        429,
        "Request too large for gpt-4.1-2025-04-14 (for limit gpt-4.1) in organization org-x on tokens per min (TPM): "
        "Limit 30000, Requested 37313. The input or output tokens must be reduced in order to run successfully.",
    ),
    (
        "amurex-backend#51",
        400,
        openai_error("Please reduce the length of the messages or completion.", "messages", "context_length_exceeded"),
    ),
    (
        "MoonshotAI/kimi-cli#2011",
        400,
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)",
    ),
    (
        "cline/cline#3120",
        400,
        {"error": "This model's maximum prompt length is 131072 but the request contains 136973 tokens."},
    ),
    (
        "cline/cline#5140",
        400,
        "Please reduce the length of the messages or completion. Current length is 42328 while limit is 40000",
    ),
    (
        "lmstudio-bug-tracker#546",
        400,
        "Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with context "
        "length of only 32768 tokens, which is not enough.",
    ),
    (
        "Gitlawb/openclaude#353",
        400,
        {
            "error": "The number of tokens to keep from the initial prompt is greater than the context length "
            "(n_keep: 13055>= n_ctx: 4096)."
        },
    ),
    ("dyad-sh/dyad#3498", 400, {"error": "prompt too long; exceeded max context length by 540451 tokens (ref: 00ad)"}),
    (
        "BerriAI/litellm#21647 (Mistral)",
        400,
        "Prompt contains 140000 tokens and 0 draft tokens, too large for model with 131072 maximum context length",
    ),
    ("BerriAI/litellm#21647 (Perplexity)", 400, "The total length of all messages is too long."),
    (
        "Azure: inner",
        400,
        {"error": {"message": "The request was rejected", "innererror": {"code": "context_length_exceeded"}}},
    ),
    (
        "Azure: details",
        400,
        {"error": {"message": "Operation failed", "details": [{"code": "context_length_exceeded"}]}},
    ),
    ("zeroclaw#4124", 400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}),
    ("MiniMax-AI/MiniMax-M2#119", 400, "invalid params, context window exceeds limit (2013)"),
    ("sjzar/chatlog#30", 400, "length of prompt_tokens (163280) must be less than max_seq_len (32768)."),
    ("QwenLM/qwen-code#98", 400, "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 9]"),
    (
        "microsoft/vscode#289514",
        400,
        {
            "error": {
                "message": "prompt token count of 514673 exceeds the limit of 128000",
                "code": "model_max_prompt_tokens_exceeded",
            }
        },
    ),
    (
        "eslint/tsc-meetings#593",
        413,
        {
            "error": {
                "code": "tokens_limit_reached",
                "message": "Request body too large for gpt-4o model. Max size: 8000 tokens.",
            }
        },
    ),
    (
        "vllm-project/vllm#12165",
        400,
        "The prompt (total length 25938) is too long to fit into the model (context length 4096). Make sure that "
        "`max_model_len` is no smaller than the number of text tokens plus multimodal tokens.",
    ),
    ("ddalcu/mlx-serve#66", 400, "Prompt exceeds maximum context length"),
    (
        "NVIDIA/TensorRT-LLM#9277",
        400,
        "The sum of prompt length (9351.0), query length (0) should not exceed max_num_tokens (8192)",
    ),
)


@pytest.mark.parametrize(("status", "body"), TOO_LONG)
async def test_overflow_that_users_reported_is_known(status: int, body: object) -> None:
    played = await play(status, body, refused=bool)
    assert isinstance(played.error, ConversationTooLong)
    assert len(played.requests) == 1


CROWDED = rows(
    (
        "anomalyco/opencode#25230",
        170_941,
        "Requested token count exceeds the model's maximum context length of 202752 tokens. You requested a total of "
        "202941 tokens: 170941 tokens from the input messages and 32000 tokens for the completion. Please reduce the "
        "number of tokens in the input messages or the completion to fit within the limit.",
    ),
    (
        "continuedev/continue#6080",
        8192,
        "input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input length or "
        "`max_tokens` and try again",
    ),
    ("a review: room", 4096, "max_tokens must be at most 768, because your input has 2000 tokens (of 2768)"),
    ("a review: rest", 32_000, "max_tokens (32000) exceeds the remaining context: 1200 tokens left"),
    ("a review: sum", 1000, "prompt_tokens (2000) + max_tokens (1000) must be <= 2768"),
    (
        "zebbern/Devonz#9",
        8192,
        "This model's maximum context length is 131072 tokens. However, you requested 139162 tokens (130970 in the "
        "messages, 8192 in the completion). Please reduce the length of the messages or completion.",
    ),
    (
        "stepfun-ai/Step-Audio-R1#3",
        32_000,
        "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 32768 "
        "tokens and your request has 1217 input tokens (32000 > 32768 - 1217).",
    ),
)


@pytest.mark.parametrize(("limit", "body"), CROWDED)
async def test_reply_limit_is_left_out_of_crowded_requests(limit: int, body: str) -> None:
    played = await play(400, body, calls=2, max_tokens=limit)
    assert [each.get("max_tokens") for each in played.requests] == [limit, None, limit, None]


TOO_LARGE = rows(
    (
        "catwalk#41 (Azure)",
        20_000,
        16_384,
        openai_error(
            "max_tokens is too large: 20000. This model supports at most 16384 completion tokens, whereas you provided "
            "20000.",
            "max_tokens",
            "invalid_value",
        ),
    ),
    (
        "Aider-AI/aider#4125 (DeepSeek)",
        99_999,
        65_536,
        "Invalid max_tokens value, the valid range of max_tokens is [1, 65536]",
    ),
    (
        "opencode#40770 (Qwen)",
        384_000,
        131_072,
        {"error": {"code": "invalid_parameter_error", "message": "Range of max_tokens should be [1, 131072]"}},
    ),
    (
        "open-webui#10507 (Qwen)",
        9000,
        8192,
        "<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]",
    ),
    (
        "TOKENICODE#3 (Volcengine)",
        64_000,
        32_768,
        openai_error(
            "The parameter max_tokens specified in the request is not valid: integer above maximum value, expected a "
            "value <= 32768, but got 64000 instead. Request id: 0217724325966514087c9e55f8b322b8",
            "max_tokens",
        ),
    ),
    (
        "RooCodeInc/Roo-Code#5729 (Groq)",
        32_000,
        16_384,
        openai_error(
            "max_tokens must be less than or equal to 16384, the maximum value for max_tokens is less than the "
            "context_window for this model",
            "max_tokens",
        ),
    ),
    (
        "hyper-grok-build#44 (Ollama)",
        384_000,
        65_536,
        "max_tokens (384000) exceeds model's maximum output tokens (65536) for model deepseek-v4-flash:0731",
    ),
    (
        "claude-code#24451 (Anthropic)",
        128_001,
        64_000,
        "max_tokens: 128001 > 64000, which is the maximum allowed number of output tokens for claude-opus-4-5-20251101",
    ),
    (
        "crush#946 (Bedrock)",
        64_000,
        32_768,
        {"message": "The maximum tokens you requested exceeds the model limit of 32768"},
    ),
    (
        "opensquilla#782 (GLM)",
        200_000,
        131_072,
        {"code": 70000, "msg": "Exceeding the limiting length: [max_tokens should be less or equal to 131072]"},
    ),
    (
        "AQBot-Desktop/AQBot#93",
        1_048_576,
        131_072,
        {
            "error": {
                "message": "Param Incorrect",
                "type": "upstream_error",
                "param": "max_tokens is too large: 1048576. This model supports at most 131072 completion tokens, "
                "whereas you provided 1048576.",
                "code": "400",
            }
        },
    ),
    ("a review: a proxy", 9000, 8192, "{'code': 20015, 'message': 'max_tokens must be less than or equal to 8192'}"),
    ("a review: at most", 32_000, 8192, "max_tokens不能超过8192"),
    ("a review: a range", 32_000, 8192, "max_tokens 超出范围，取值范围 [1, 8192]"),
    ("a review: a parameter", 32_000, 8192, "参数 max_tokens 的值 32000 超过最大值 8192"),
    (
        "Gemini",
        100_000,
        8192,
        "Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range is from 1 "
        "(inclusive) to 8193 (exclusive). Update the value and try again.",
    ),
    (
        "Cohere",
        8192,
        4096,
        "too many tokens: max tokens must be less than or equal to 4096, the maximum output length for this model - "
        "received 8192.",
    ),
    # Numbers of something else.
    (
        "LiteLLM",
        32_000,
        None,
        "max_tokens exceeds the maximum of 4k tokens. LiteLLM Retried: 2 times, LiteLLM Max Retries: 3",
    ),
    ("MiniMax", 32_000, None, "invalid params, max_tokens exceeds limit (2013)"),
    ("a review: a place", 32_000, None, "Invalid max_tokens (line 12, column 400): value too large"),
    ("a review: a port", 32_000, None, "max_tokens is too large (code 400, port 8080)"),
    ("GLM", 32_000, None, "[1210][max_tokens is too large]"),
    ("a review: a rate", 32_000, None, "max_tokens is too large. Limits: 2 requests within 600 seconds"),
    # The reply alone is as long as all that the model takes: no limit of this size leaves room for a conversation.
    (
        "Aider-AI/aider#3721 (OpenRouter)",
        131_072,
        None,
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 141607 tokens (10535 of "
        "text input, 131072 in the output). Please reduce the length of either one.",
    ),
    (
        "ogx-ai/ogx#4534 (vLLM)",
        6048,
        None,
        "This model's maximum context length is 6048 tokens. However, you requested 6616 tokens (568 in the messages, "
        "6048 in the completion). Please reduce the length of the messages or completion.",
    ),
)


@pytest.mark.parametrize(("limit", "then", "body"), TOO_LARGE)
async def test_reply_limit_above_the_servers_is_learned(limit: int, then: int | None, body: object) -> None:
    played = await play(400, body, calls=2, max_tokens=limit)
    assert played.error is None
    assert [each.get("max_tokens") for each in played.requests] == [limit, then, then]


@pytest.mark.parametrize(
    "body",
    rows(
        ("CLIProxyAPI#424", "max_tokens must be greater than thinking.budget_tokens"),
        ("higress#4107", "`max_tokens` must be greater than `thinking.budget_tokens` (1024)"),
    ),
)
async def test_reasoning_is_left_out_of_short_replies_once(body: str) -> None:
    played = await play(400, body, calls=2, max_tokens=16_384, reasoning_effort="high")
    assert [each.get("reasoning_effort") for each in played.requests] == ["high", None, "high", None]
    assert {each["max_tokens"] for each in played.requests} == {16_384}


async def test_reply_limit_above_a_rate_is_learned() -> None:
    """Groq counts it against the tokens of a minute (zeeyado/koassistant.koplugin#106)."""
    body = "Request too large for model `m` in organization `o` on tokens per minute (TPM): Limit 8000, Requested 32979"
    played = await play(413, body, calls=2, max_tokens=32_768)
    assert [each.get("max_tokens") for each in played.requests] == [32_768, None, None]


LEFT_OUT = rows(
    (
        "llxprt-code#2135",
        "prompt_cache_key",
        openai_error(
            "Invalid 'prompt_cache_key': string too long. Expected a string with maximum length 64, but got a string "
            "with length 69 instead.",
            "prompt_cache_key",
            "string_above_max_length",
        ),
    ),
    ("a review: JSONPath", "temperature", openai_error("Unsupported value", "$.temperature")),
    ("a review: its value", "temperature", openai_error("Invalid request", "temperature: 0.2")),
    ("a review: an arrow", "temperature", openai_error("Unsupported value", "body -> temperature")),
    ("OpenAI", "user", "Invalid 'user': string too long. Expected a string with maximum length 64"),
    ("a proxy", "stop", "Number of stop sequences must be reduced"),
    ("CLIProxyAPI#1028", "safety_identifier", {"detail": "Unsupported parameter: safety_identifier"}),
    (
        "zed-industries/zed#52000",
        "prompt_cache_key",
        openai_error("Unrecognized request argument supplied: prompt_cache_key"),
    ),
    ("opencyvis-phone#12", "temperature", openai_error("invalid temperature: only 1 is allowed for this model")),
    (
        "lobehub/lobehub#8381",
        "presence_penalty",
        {
            "code": "Client specified an invalid argument",
            "error": "Argument not supported on this model: presencePenalty",
        },
    ),
    (
        "BerriAI/litellm#16265",
        "reasoning_effort",
        {
            "code": "Client specified an invalid argument",
            "error": "Model grok-4-latest does not support parameter reasoningEffort.",
        },
    ),
    (
        "SkyrimNet-GamePlugin#77",
        "frequency_penalty",
        [
            {
                "error": {
                    "code": 400,
                    "message": 'Invalid JSON payload received. Unknown name "frequency_penalty": Cannot',
                }
            }
        ],
    ),
    (
        "platform-docs-public#7",
        "frequency_penalty",
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "frequency_penalty"], "msg": "Extra inputs are not"}]},
    ),
)


@pytest.mark.parametrize(("name", "body"), LEFT_OUT)
async def test_optional_field_that_is_refused_is_left_out(name: str, body: object) -> None:
    played = await play(400, body, calls=2, **{name: "x"})
    assert played.error is None
    assert [name in each for each in played.requests] == [True, False, False]


@pytest.mark.parametrize(
    ("keyword", "body"),
    rows(
        (
            "AstrBot#7572",
            "examples",
            "Invalid JSON payload received. Unknown name \"examples\" at 'tools[0].function_declarations[38]': Cannot",
        ),
        (
            "zed-industries/zed#44875",
            "const",
            "Unknown name \"const\" at 'tools[0].function_declarations[5].parameters.properties[8]': Cannot find",
        ),
    ),
)
async def test_keyword_of_a_tool_is_left_out(keyword: str, body: str) -> None:
    played = await play(400, body, calls=2, refused=lambda sent: keyword in json.dumps(sent["tools"]))
    assert [keyword in json.dumps(each["tools"]) for each in played.requests[-2:]] == [False, False]
    assert len(played.requests) <= 4


async def test_long_requests_that_must_stream_are_streamed() -> None:
    """Fireworks (nullclaw/nullclaw#231)."""
    body = openai_error("Requests with max_tokens > 4096 must have stream=true", "max_tokens", "BAD_REQUEST")
    played = await play(400, body, max_tokens=8192)
    assert [(each.get("stream"), each["max_tokens"]) for each in played.requests[:2]] == [(None, 8192), (True, 8192)]


THESE_IMAGES = (
    "At most 2 image(s) may be provided in one request.",
    "Too much media: 0 document pages + 107 images > 100",
    "too many images and documents: 120 + 0 > 100",
    "request contains 54 images, exceeding the maximum of 50",
    "Invalid image data",
    "Failed to download image from https://example.com",
    "Image size exceeds the limit",
    "You uploaded an unsupported image. Please make sure your image is valid.",
    "Image format webp is not supported",
    "The model does not support more than 4 images",
    "Images larger than 5 MB are not supported",
    "Unknown error while downloading the image",
)
NO_IMAGES = (
    "This model does not support images",
    "image_url is not supported by this model",
    "unknown variant `image_url`, expected `text`",
    "No endpoints found that support image input",
    "Only text content is supported: got an image",
    "Invalid content type. image_url is only supported by certain models.",
    "Invalid value: 'image_url'. Supported values are: 'text'.",
    "At most 0 image(s) may be provided in one request.",
    "m is not a multimodal model",
    "messages[1].content must be a string",
)


def image(name: str) -> JsonObject:
    part = {"type": "image_url", "image_url": {"url": f"data:{name}"}}
    return {"role": "user", "content": [{"type": "text", "text": name}, part]}


def mend_images(words: str, *refused: str) -> list[tuple[list[str], bool]]:
    """Return the images that each further request has, while it has one that is refused, and whether what was left out
    is remembered."""
    body: JsonObject = {"model": "m", "messages": [image("first"), image("second")]}
    names, sent = list[str](), list[tuple[list[str], bool]]()
    while new := find_mends(apply_mends(deepcopy(body), names), 400, words, names):
        names += new
        text = json.dumps(apply_mends(deepcopy(body), names))
        left = [each for each in ("first", "second") if f"data:{each}" in text]
        sent.append((left, not {*new} <= OF_CONVERSATION))
        if not {*left} & {*refused}:
            break
    return sent


@pytest.mark.parametrize("words", THESE_IMAGES)
def test_refused_images_are_left_out_of_one_request(words: str) -> None:
    assert mend_images(words, "first") == [(["second"], False)]
    assert mend_images(words, "first", "second") == [(["second"], False), ([], False)]


@pytest.mark.parametrize("words", NO_IMAGES)
def test_model_without_images_is_remembered(words: str) -> None:
    assert mend_images(words, "first", "second") == [([], True)]


RATES = rows(
    (
        "jasonacox/TinyLLM#17",
        429,
        "litellm.RateLimitError: AzureException RateLimitError - Requests to the ChatCompletions_Create Operation "
        "under Azure OpenAI API version 2023-05-15 have exceeded token rate limit of your current AIServices S0 "
        "pricing tier. Please retry after 86400 seconds.",
    ),
    (
        "pollinations#6260",
        429,
        "Your request exceeds the maximum usage size allowed during peak load. Please retry after 20 seconds.",
    ),
    (
        "FoundationAgents/OpenManus#746",
        429,
        "This request would exceed the rate limit for your organization of 20,000 input tokens per minute. Please "
        "reduce the prompt length or the maximum tokens requested, or try again later.",
    ),
    ("RooCodeInc/Roo-Code#5050", 429, "Too many tokens, please wait before trying again."),
    (
        "elizaOS/eliza#4040",
        429,
        "Rate limit reached for model `m` on tokens per minute (TPM): Limit 6000, Used 5034, Requested 1443. Please "
        "try again in 4.77s. Need more tokens? Upgrade to Dev Tier today",
    ),
    (
        "continuedev/continue#9729",
        429,
        "You exceeded your current quota. * Quota exceeded for metric: generate_content_free_tier_input_token_count, "
        "limit: 0, model: gemini-3-pro Please retry in 3.98361248s.",
    ),
    (
        "MoonshotAI/kimi-cli#1599",
        429,
        "Your account org-x request reached organization TPD rate limit, current: 1526210, limit: 1500000",
    ),
    (
        "Gitlawb/openclaude#1125",
        402,
        "This request requires more credits, or fewer max_tokens. You requested up to 32000 tokens, but can only "
        "afford 27342. To increase, visit https://openrouter.ai/settings/credits and upgrade to a paid account",
    ),
    ("agent-book#29", 503, "Too many tokens per day, please wait before trying again."),
)


@pytest.mark.parametrize(("status", "words"), RATES)
async def test_rate_that_users_reported_is_no_overflow(status: int, words: str) -> None:
    played = await play(status, words, refused=bool, max_tokens=1000)
    assert isinstance(played.error, ModelUnavailable)
    assert not is_over_rate_alone(words)  # Time helps, so it is waited for where the server says how long.
    assert len(played.requests) == 1


OF_OTHER_FIELDS = rows(
    (
        "ida-pro-mcp#129",
        "Invalid 'tools[43].function.name': string too long. Expected a string with maximum length 64, but got a "
        "string with length 71 instead.",
    ),
    (
        "QwenLM/Qwen3-VL#2069",
        "<400> InternalError.Algo.InvalidParameter: The length of the tool name cannot exceed 64.",
    ),
    ("claude-code#3102", "tools.17.custom.name: String should have at most 64 characters"),
    ("Kiro#7684", "Tool name(s) exceed Kiro API limit of 64 characters: - 'mcp__a__b' (69 characters)"),
    (
        "hexstrike-ai#29",
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got 150 instead.",
    ),
    (
        "fastllm#45",
        "Invalid 'input[95].call_id': string too long. Expected a string with maximum length 64, but got 116",
    ),
    ("langmanus#119", "Invalid 'messages[10].tool_calls[0].id': string too long."),
    (
        "claude-code#14412",
        "messages.59.content.12.image.source.base64.data: At least one of the image dimensions exceed max allowed size "
        "for many-image requests: 2000 pixels",
    ),
    (
        "anthropic-sdk-typescript#885",
        "The compiled grammar is too large, which would cause performance issues. Simplify your tool schemas or reduce "
        "the number of strict tools.",
    ),
    (
        "dynamo#15153",
        "Invalid schema for response_format 'choice': In context=('properties', 'data'), 'oneOf' is not permitted.",
    ),
)


@pytest.mark.parametrize("words", OF_OTHER_FIELDS)
async def test_refusal_of_another_field_is_no_overflow(words: str) -> None:
    played = await play(400, words, refused=bool)
    assert isinstance(played.error, ModelError)
    assert not isinstance(played.error, ConversationTooLong)
