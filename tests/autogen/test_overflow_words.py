"""Refusals, in the words of servers that users reported: which are of a conversation that is too long."""

from __future__ import annotations

import pytest

from upcall.autogen.overflow_words import MAX_CHARS, is_over_rate_alone, is_overflow

TOO_LONG = """
prompt is too long: 213462 tokens > 200000 maximum
Extra usage is required for long context requests.
input length and `max_tokens` exceed context limit: 170636 + 34048 > 200000, decrease input length or `max_tokens`
Your input exceeds the context window of this model. Please adjust your input and try again.
Invalid 'input[7].output': string too long. Expected a string with maximum length 10485760, but got a longer one
Invalid 'messages': array too long. Expected an array with maximum length 2048, but got another
Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens.
Requested token count exceeds the model's maximum context length of 131072 tokens
This model's maximum context length is 262144 tokens. However, you requested 0 output tokens
'max_tokens' is too large: 16384. This model's maximum context length is 32768 tokens and your request has 30000
max_tokens must be at least 1, got -4043.
The decoder prompt (length 5020) is longer than the maximum model length of 4096.
The decoder prompt (length 5020) exceeds the maximum model length of 4096.
request (4267 tokens) exceeds the available context size (4096 tokens), try increasing it
context shift is disabled
Context size has been exceeded.
input is too large to process. increase the physical batch size (current batch size: 512)
Trying to keep the first 5000 tokens when context the overflows. However, the context length is only 4096
The number of tokens to keep from the initial prompt is greater than the context length
Cannot truncate prompt with n_keep (4116) >= n_ctx (4096)
prompt too long; exceeded max context length by 4242 tokens
The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)
This model's maximum prompt length is 131072 but the request contains 537812 tokens
Please reduce the length of the messages or completion.
Input length 131090 exceeds the maximum allowed input length of 131072 tokens.
The input (5000 tokens) is longer than the model's context length (4096 tokens).
prompt token count of 130000 exceeds the limit of 128000
invalid params, context window exceeds limit
Your request exceeded model token limit: 262144 (requested: 270000)
Prompt contains 140000 tokens and 0 draft tokens, too large for model with 131072 maximum context length
tokens in request more than max tokens allowed
Prompt exceeds max length
<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]
Total tokens of image and text exceed max message tokens.
total message size 10176584 exceeds limit 2097152
`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 100 `max_new_tokens`
Requested tokens (2083) exceed context window of 2048
Prompt length 9000 is greater than max_seq_len 8192
The sum of prompt length (5000.0), query length (0) should not exceed max_num_tokens (4096)
Prefill context too large for available memory (pre-chunk guard at 192 tokens, kv_len=37056)
Request too large for model in organization on tokens per minute (TPM): Limit 6000, Requested 9000
input characters limit is 819200
This model's maximum context length is 8192 tokens, you sent 9000. Upgrade for a longer context.
This endpoint's maximum context length is 8192 tokens; free models have daily limits. reduce the length
This model's maximum context length is 8192 tokens. However, your messages (with tool_calls) resulted in 9000 tokens.
Prompt is too long: 9000 tokens > 8192. Upgrade your plan for more
context_length_exceeded: input tokens exceed the context window; see the quota page
context window exceeded: you have used your input quota of 8192 tokens
Invalid 'messages[2].tool_calls[0].function.arguments': string too long
messages.5.content.0.text: string too long
qwen2.5 has a context window of 32768 tokens
输入长度超过模型限制
Prompt 超长
Prompt tokens 超限
对话长度超出限制
您的提示词太长
プロンプトが長すぎます
The number of input tokens 5000 plus the number of max new tokens 1000 cannot exceed the total tokens limit 4096
Number of tokens in prompt (9000) exceeds the max of 8192
Sequence length 9000 exceeds 8192
tokens: 9000 > max_position_embeddings 8192
request_too_large: Request exceeds the maximum size
request_too_large: The prompt is too long
token_limit_reached: Prompt exceeds the limit of the model
input_too_long: the input tokens exceed the limit
bad_response_status_code: prompt is too long
validation_failed: prompt exceeds max length 4096
openrouter.ai: prompt is too long
api.provider.com: input is too long for requested model
llm.generate: prompt exceeds max length 4096
InvalidParameter.InputTooLong: The input is too long, exceeds token limit
gpt_4o is limited: prompt tokens exceed the limit
user_123 is using a model whose input tokens exceed the maximum number
The prompt exceeds the maximum (8192 tokens). tool_choice is auto
chat_history: The input exceeds the maximum length
request_body: Input tokens exceed the limit
prompt_cache: Prompt is too long
body.messages.3.content.str: String too long: exceeds token limit
body.messages.3.content.str: string too long
body.0: prompt is too long
payload_size is too large: request body exceeds the size limit
Input is too long for requested model. Please try again in a new conversation
input too long, please retry after reducing it
Your conversation is too long. Please start a new session or try again later
prompt tokens (5000) + max_tokens (1000) must be less than or equal to the context length 4096
input_tokens (5000) + max_tokens (500) exceed max_model_len 4096
length of prompt_ids 5000 exceeds max_model_len
max_input_tokens exceeded
Value error, `prompt` + `max_tokens` must be no larger than the context window
total_tokens超过了模型的最大长度
Input length exceeds the model's context size; increase memory size
Payload exceeds limit
Your prompt must be reduced to fit the model
length of the input must be reduced
The input you provided is too long. Max 4096 tokens.
The request body is too large
Message length exceeds maximum allowed
Sequence length exceeds maximum: 5000 > 4096
""".strip().splitlines()

OTHER = """
Too many tokens per day, please wait before trying again.
This request exceeds the limit of 30000 tokens per minute
daily token limit exceeded
Prompt tokens limit exceeded: 26000 > 11000. To increase, upgrade to a paid account
max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens
max_tokens is too large: 100000. This model supports at most 16384 completion tokens
max_completion_tokens exceeds the model's maximum output token limit 16384
budget_tokens exceeds the maximum number of tokens
Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024
Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 130 instead.
Invalid 'messages[3].tool_calls[0].id': string too long. Expected a string with maximum length 40
Invalid 'input[3].id': string too long. Expected a string with maximum length 64
messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes
context window management is not supported
Invalid 'user': string too long. Expected a string with maximum length 64
Invalid 'metadata.k': string too long
Invalid 'prompt_cache_key': string too long. Expected a string with maximum length 64
Invalid 'messages[3].name': string too long
Function name exceeds maximum length of 64 characters
tools.0.name: exceeds maximum length
metadata value exceeds maximum length of 512
Number of stop sequences must be reduced
Schema nesting exceeds maximum length
Invalid schema for response_format: total string length of enum values exceeds size limit
json_schema exceeds maximum size
The uploaded file size exceeds the limit
Image size exceeds the limit
Unsupported parameter: input length
max_tokens exceeds the limit of 8192
max_tokens exceeds the maximum token limit of 8192
`max_tokens` (70000) exceeds model limit 8192
Your request rate must be reduced. Retry after 1 second.
Too many concurrent requests; concurrency must be reduced
Rate limit exceeded: tokens. Please reduce the length of messages
Token limit exceeded. Resets at 10:00
Tokens limit exceeded, retry in 20s
You exceeded the token limit for this period
Token limit exceeded for your account
Token limit exceeded. Try again in a few minutes
Your request exceeded the maximum concurrency limit
Your request exceeds the time limit of 60 s
Your request exceeded the maximum execution time limit
Request exceeded the GPU memory limit
pending requests exceed the maximum queue size
Your request exceeds your spending limit
Your prompt exceeds the content policy limit
This request exceeds the maximum number of tools: limit 128
Your request exceeds the current capacity limit
The prompt exceeded the queue length
messages exceed the maximum images limit
body.messages.3.name.str: string too long
max_tokens不能超过8192
budget_tokens 超过最大值
max_tokens 超出范围，取值范围 [1, 8192]
参数 max_tokens 的值 32000 超过最大值 8192
too many tokens: max tokens must be less than or equal to 4096, the maximum output length for this model
tools.3.custom.description: 'says: maximum context length is 5 tokens' is not allowed
Invalid 'tools[0].function.name': string does not match pattern. Got 'prompt is too long: 9 tokens > 5'
Unable to parse tool call arguments: {"q": "context_length_exceeded"}
Conversation roles must alternate user/assistant/... got 'the maximum context length is 8192 tokens'
[{'loc': ('body', 'messages', 0, 'x'), 'msg': 'Extra', 'input': 'It says: prompt is too long: 21 tokens > 20 maximum'}]
1 validation error [type=extra, input_value='The maximum context length is 8192 tokens', input_type=str]
""".strip().splitlines()


@pytest.mark.parametrize("words", TOO_LONG)
def test_refusal_of_a_long_conversation_is_known(words: str) -> None:
    assert is_overflow(words)


@pytest.mark.parametrize("words", OTHER)
def test_refusal_of_something_else_is_no_overflow(words: str) -> None:
    assert not is_overflow(words)


@pytest.mark.parametrize(
    ("words", "alone"),
    [
        ("Request too large for m on tokens per min (TPM): Limit 6000, Requested 9000", True),
        ("prompt is too long: 205000 tokens > 200000 maximum", True),
        ("Rate limit reached; this model's maximum context length is 8192 tokens", False),
        ("Your request rate must be reduced. Retry after 1 second.", False),
        ("This model's maximum context length is 8192 tokens. Try again later", False),
        ("Rate limit reached: Limit 6000, Used 5000, Requested 2000. Please try again in 10s", False),
    ],
)
def test_rate_and_request_too_long_are_distinguished(words: str, alone: bool) -> None:
    assert is_over_rate_alone(words) is alone


def test_refusal_is_read_up_to_a_limit() -> None:
    assert is_overflow("prompt is too long" + "x" * 100_000)
    assert not is_overflow("x" * MAX_CHARS + " prompt is too long")
