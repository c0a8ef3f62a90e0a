"""Questions in prose: which texts ask the user something, and what becomes of one that does."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from autogen_agentchat.messages import TextMessage, ThoughtEvent, ToolCallRequestEvent, UserInputRequestedEvent
from autogen_core.models import AssistantMessage, ChatCompletionClient, CreateResult, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient
from conversation import answers, carried, say

from upcall.agents import PausableAgent
from upcall.agents.tool_loop.prose_questions import question_in_prose
from upcall.agents.tool_loop.turn import Turn
from upcall.questions.question import MAX_LABEL_CHARS, MAX_QUESTION_CHARS
from upcall.research.reports import Report
from upcall.testing import Call, Calls, Reply, ScriptedModelClient

WHICH = "I found two set-ups. Which framework should I use?"
LISTED = f"{WHICH}\n\n1. **Express** - small\n2. FastAPI"

ASKS = {
    "a choice": WHICH,
    "nothing but the question": "Which framework?",
    "what, alone": "What is the target Python version?",
    "what, and why": "I cannot go on without it. What is the target Python version?",
    "you": "The file has two tables. Do you want the sales or the returns?",
    "permission": "This will delete 300 rows. Should I proceed?",
    "may I": "There is a file of that name. May I overwrite it?",
    "an offer that is a choice": "Would you like me to use Express or FastAPI?",
    "an offer with a list": "Would you like me to:\n- keep the old table\n- drop it",
    "after what was done": "I have implemented the login. Which database should it use?",
    "a request": "The address is missing. Please tell me which server to deploy to.",
    "a request with a list": "Please choose one of these:\n1. Express\n2. FastAPI",
    "a colon and a list": "Which would you prefer:\n- Express\n- FastAPI",
    "a remark behind": "Which port should I use? I recommend 8080. Let me know and I will start.",
    "a remark below the list": f"{LISTED}\n\nLet me know, then I can go on.",
    "bold": "Both work. **Which one do you want?**",
    "in brackets": "Which one do you want (or is it all the same to you?)",
    "an emoji behind": "Which one do you want? 😊",
    "e.g.": "Which database should I use, e.g. Postgres?",
    "code before": "It is called twice:\n\n```js\na ? b : c\n```\n\nWhich call should I remove?",
    "code within": "Should I rename `is_ok?` to `ok`?",
    "an address before": "See https://example.com/?q=1 first. Which page do you mean?",
    "a letter before each": "Which of these do you prefer?\n\nA) Monolith\nB) Microservices",
    "a list above": "There are two:\n- a.yml\n- b.yml\n\nWhich of these should I change?",
    "what would you like": "What would you like the new endpoint to be called?",
    "where would you like": "Where would you like me to save the file?",
    "a choice where it cannot go on": "The target isn't specified. Is this for Node or the browser?",
    "before a colon": "Before I write the migration: should existing rows keep their timestamps?",
    "a colon and a choice": "How should errors be handled: retry or fail?",
    "announced": "One question:\nWhich framework do you want?",
    "and why": "Do you want to stay compatible? This affects the design.",
    "is it okay if": "Is it okay if I drop the `users` table?",
    "a word in quotes": 'Could you clarify what you mean by "fast"?',
    "please provide": "I cannot reach the bucket. Please provide the region.",
    "several": "Before I start I need to know:\n1. Which database?\n2. Which region?",
    "after a thought": "<think>Why ask?</think>Which framework should I use?",
    "Spanish": "¿Qué base de datos prefieres?",
    "Spanish, after a sentence": "Hay dos opciones. ¿Cuál debo usar?",
    "German": "Es gibt zwei Tabellen. Welche soll ich nehmen?",
    "French": "Il y a deux fichiers. Lequel dois-je garder ? Merci !",
    "Chinese, politely": "请问目标平台是什么？",
    "Chinese": "有两个框架。您想使用哪个框架？",
    "Japanese": "どちらのデータベースを使いますか？",
    "Korean": "어떤 프레임워크를 사용할까요?",
    "Russian": "Какой фреймворк вам нужен?",
    "Arabic, alone with you": "Which one do you want؟",
}

ASKS_NOT = {
    "empty": "",
    "a report": "I wrote the login and its tests. All pass.",
    "a closing": "Done. Let me know if you have any questions.",
    "a closing question": "The tests pass. Do you have any questions?",
    "anything else": "I fixed the bug. Is there anything else you need?",
    "an offer below a report": "I wrote the login. Would you like me to add tests?",
    "an offer": "Paris is the capital of France. Would you like me to tell you more about it?",
    "an offer with a choice below a report": "I finished the login. Would you like me to add tests or documents?",
    "an offer with a list below a report": "I have added it. Would you like me to:\n- add tests\n- add documents",
    "want": "Here is the summary. Do you want me to translate it?",
    "shall I also": "The report is complete. Shall I also send it?",
    "going on": "I finished step 1. Should I proceed with step 2?",
    "what next": "The build is done. What would you like to do next?",
    "does that help": "Use a left join there. Does that help?",
    "sound good": "I will start on Monday. Sound good?",
    "what do you think": "I drew three logos. What do you think?",
    "why": "The cache is never emptied. Why?",
    "why, answered": "Why does it fail? The cache is never emptied.",
    "what could go wrong": "It runs as root. What could possibly go wrong?",
    "who knows": "It may rain. Who knows?",
    "rhetorical with you": "Have you ever wondered what a monad is?",
    "isn't it": "It runs without a server. Isn't that what you wanted?",
    "rhetorical what": "The index is gone. What does this mean for you?",
    "no user in it": "The paper leaves one thing open. Is light a wave?",
    "a question and its answer": "Do you need to restart? No, the change is read at once.",
    "a question and what to do": "Do you use Windows? Install it with winget.",
    "only further up": "Which one should I use? I took Express, since it is there already. All tests pass.",
    "code at the end": "The line is:\n\n```js\nwhich ? you : me?\n```",
    "an open fence": "The line is:\n```\nwhich one do you want?",
    "code within at the end": "The method is called `do you want it?`",
    "a quotation": 'The form asks: "Which country are you from?"',
    "curly quotes": "The form asks: “Which country are you from?”",
    "single quotes": "The form asks 'Which country are you from?'",
    "a quoted line": "The mail says:\n> Which country are you from?",
    "Japanese quotes": "画面には「どちらにしますか？」",
    "an address": "The source is https://example.com/search?you=which?",
    "a headline": "Here is the headline: Are you ready to change your life?",
    "the end of another text": "I wrote the post. It closes with: What will you build?",
    "another text below": "Her mail ends like this:\n\nCan you call me tomorrow?",
    "a look at it": "Completed. Can you review it and let me know if any changes are needed?",
    "any changes": "I have updated the file. Is there anything you'd like me to change?",
    "want me to": "Fixed. Want me to push it?",
    "Shakespeare": "I've written the poem:\n\nShall I compare thee to a summer's day?",
    "a manual": "The form opens in the browser. Please select a plan.",
    "a manual, too": "The request needs a header. Please provide the token in it.",
    "an open question of a report": "## Open questions\n- Who owns the data?\n- Which region should it be in?",
    "questions made for others": "Here is the quiz:\n1. What is 2 + 2?\n2. Which planet do you live on?",
    "a list of results": "These files changed:\n1. a.py\n2. b.py",
    "JSON": '{"question": "Which one do you want?"}',
    "a list as JSON": '["Which one do you want?"]',
    "a note": "Please note that the port is 8080.",
    "a request to review": "Please review the changes.",
    "Spanish, an offer": "Listo. ¿Quieres que añada pruebas?",
    "Spanish, a closing": "He terminado. ¿Algo más?",
    "Chinese, a closing": "已经完成。还有什么问题吗？",
    "Chinese, an offer": "报告在上面。需要我继续吗？",
    "German, an offer": "Fertig. Soll ich noch Tests schreiben?",
    "a thought alone": "<think>Which one should I use?</think>",
    "too long": "x " * MAX_QUESTION_CHARS + "Which one do you want?",
}


@pytest.mark.parametrize("text", ASKS.values(), ids=ASKS.keys())
def test_a_text_that_asks_the_user(text: str) -> None:
    assert question_in_prose(text) is not None


@pytest.mark.parametrize("text", ASKS_NOT.values(), ids=ASKS_NOT.keys())
def test_a_text_that_does_not_ask_the_user(text: str) -> None:
    assert question_in_prose(text) is None


@pytest.mark.parametrize(
    ("below", "options"),
    [
        ("1. Express\n2. FastAPI", ("Express", "FastAPI")),
        ("1) Express\n2) FastAPI", ("Express", "FastAPI")),
        ("(a) Express\n(b) FastAPI", ("Express", "FastAPI")),
        ("- Express\n- FastAPI", ("Express", "FastAPI")),
        ("* **Express** - small\n\n* `FastAPI`", ("Express - small", "`FastAPI`")),
        ("\n  • Express: small\n  • FastAPI", ("Express: small", "FastAPI")),
        ("- Express\n- Express", ()),
        ("- Express", ()),
        ("- Express\n    which is small\n- FastAPI", ()),
        (f"- Express\n- {'x' * (MAX_LABEL_CHARS + 1)}", ()),
    ],
    ids=repr,
)
def test_the_items_right_under_the_question_are_its_options(below: str, options: tuple[str, ...]) -> None:
    found = question_in_prose(f"Two fit.\n\nWhich one do you want?\n{below}")
    assert found is not None
    assert found.options == options
    whole = f"Two fit.\n\nWhich one do you want?\n{below}"
    assert found.question == ("Two fit.\n\nWhich one do you want?" if options else whole)


def test_what_stands_below_the_options_stays_in_the_question() -> None:
    found = question_in_prose(f"{LISTED}\n\nLet me know.")
    assert found is not None
    assert found.question == f"{WHICH}\n\n\nLet me know."
    assert found.options == ("Express - small", "FastAPI")


def test_a_list_above_the_question_is_not_its_options() -> None:
    text = "Two fit:\n- Express\n- FastAPI\n\nWhich one do you want?"
    found = question_in_prose(text)
    assert found is not None
    assert (found.question, found.options) == (text, ())


def coder(client: ChatCompletionClient, **options: Any) -> PausableAgent:
    return PausableAgent("coder", client, **{"catch_prose": True} | options)


async def test_a_text_that_asks_becomes_a_question_and_its_answer_the_result_of_that_call() -> None:
    """S1-24: the opt-in detector."""
    with ScriptedModelClient([LISTED, "Written."]) as client:
        first = coder(client)
        rest = await say(first, "Build it")
        (question,) = rest.questions
        second = await carried(first, coder(client))
        done = await say(second, answers(rest, "1"))
    assert (question.question, [each.label for each in question.options]) == (WHICH, ["Express - small", "FastAPI"])
    assert (question.path, done.text) == (("coder",), "Written.")
    assert list(client.requests[-1].tool_results.values()) == ["1"]
    assert client.requests[-1].unpaired() == []
    (request,) = rest.told(ToolCallRequestEvent)
    assert (request.content[0].name, request.content[0].id) == ("ask_user", question.calls[0])  # type: ignore[union-attr,index]
    assert len(rest.told(UserInputRequestedEvent)) == 1


async def test_without_the_option_a_text_that_asks_is_the_result() -> None:
    """S1-24: only what the model calls is a question."""
    with ScriptedModelClient([WHICH]) as client:
        rest = await say(coder(client, catch_prose=False), "Build it")
    assert (type(rest.message), rest.text, rest.questions) == (TextMessage, WHICH, [])


async def test_an_agent_that_may_not_ask_does_not_ask_in_prose_either() -> None:
    with ScriptedModelClient([WHICH]) as client:
        rest = await say(coder(client, ask_user=False), "Build it")
    assert (rest.text, rest.questions) == (WHICH, [])


async def test_a_finished_report_stays_the_result() -> None:
    text = ASKS_NOT["an offer below a report"]
    with ScriptedModelClient([text]) as client:
        rest = await say(coder(client), "Build it")
    assert (rest.text, rest.questions) == (text, [])


@pytest.mark.parametrize("first", [WHICH, Call("ask_user", {"question": "Which one?"})], ids=["prose", "call"])
async def test_at_the_cap_the_text_stays_the_result(first: Reply) -> None:
    with ScriptedModelClient([first, "Which port should I use?"]) as client:
        made = coder(client, max_questions=1)
        rest = await say(made, "Build it")
        rest = await say(made, answers(rest, "Express"))
    assert (rest.text, rest.questions) == ("Which port should I use?", [])


async def test_the_cap_counts_anew_in_the_next_turn() -> None:
    with ScriptedModelClient([WHICH, "Done.", WHICH]) as client:
        made = coder(client, max_questions=1)
        await say(made, answers(await say(made, "Build it"), "Express"))
        assert (await say(made, "Again")).questions


async def test_the_thought_of_a_text_that_asks_is_kept() -> None:
    usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
    replies = [
        CreateResult(finish_reason="stop", content=said, usage=usage, cached=False, thought=thought)
        for said, thought in ((WHICH, "Two fit."), ("Done.", None))
    ]
    made = coder(ReplayChatCompletionClient(replies))
    rest = await say(made, "Build it")
    assert [event.to_text() for event in rest.told(ThoughtEvent)] == ["Two fit."]
    await say(made, answers(rest, "Express"))
    state = Turn.model_validate(dict(await made.save_state()))
    (call,) = [each for each in state.messages if isinstance(each, AssistantMessage) and isinstance(each.content, list)]
    assert call.thought == "Two fit."
    assert (made.usage["coder"].prompt_tokens, made.usage["coder"].completion_tokens) == (2, 2)


async def test_a_text_that_asks_is_not_repaired_where_json_was_asked_for() -> None:
    with ScriptedModelClient([WHICH, '{"summary": "Written."}']) as client:
        made = coder(client, output_type=Report)
        rest = await say(made, "Build it")
        assert [each.question for each in rest.questions] == [WHICH]
        assert (await say(made, answers(rest, "Express"))).text == "Written."


async def test_the_output_is_the_result_whatever_stands_around_it() -> None:
    with ScriptedModelClient(['{"summary": "Written."}\n\nWhich one do you want?']) as client:
        rest = await say(coder(client, output_type=Report), "Build it")
    assert (rest.text, rest.questions) == ("Written.", [])


@pytest.mark.parametrize("depth", [2, 3])
async def test_a_question_in_prose_comes_up_from_any_depth(depth: int) -> None:
    levels = ("lead", "coder", "tester")[:depth]

    def tower(client: ChatCompletionClient) -> PausableAgent:
        made: PausableAgent | None = None
        for name in reversed(levels):
            nested = [] if made is None else [made]
            made = PausableAgent(name, client, system_message=f"I am {name}.", agents=nested, catch_prose=True)
        assert made is not None
        return made

    script: dict[str, list[Reply]] = {
        f"I am {above}.": [Call(below, {"task": "Build it"}), f"{above} done"] for above, below in pairwise(levels)
    }
    with ScriptedModelClient(script | {f"I am {levels[-1]}.": [WHICH, "Written."]}) as client:
        first = tower(client)
        rest = await say(first, "Build it")
        assert [each.path for each in rest.questions] == [levels]
        second = await carried(first, tower(client))
        assert (await say(second, answers(rest, "Express"))).text == "lead done"
    assert list(client.requests[depth].tool_results.values()) == ["Express"]


async def test_siblings_may_ask_in_prose_and_by_a_call() -> None:
    script: dict[str, list[Reply]] = {
        "I am lead.": [Calls([Call("coder", {"task": "Code"}), Call("tester", {"task": "Test"})]), "Done."],
        "I am coder.": [WHICH, "Coded."],
        "I am tester.": [Call("ask_user", {"question": "Which browser?"}), "Tested."],
    }
    with ScriptedModelClient(script) as client:
        nested = [
            PausableAgent(name, client, system_message=f"I am {name}.", catch_prose=True)
            for name in ("coder", "tester")
        ]
        lead = PausableAgent("lead", client, system_message="I am lead.", agents=nested)
        rest = await say(lead, "Build it")
        assert [each.question for each in rest.questions] == [WHICH, "Which browser?"]
        await say(lead, answers(rest, "Express", "Firefox"))
    assert list(client.requests[-1].tool_results.values()) == ["Coded.", "Tested."]


def test_the_option_is_in_the_component() -> None:
    client = ReplayChatCompletionClient(["Hello."])
    assert PausableAgent.load_component(coder(client).dump_component())._catch_prose
    assert not PausableAgent.load_component(coder(client, catch_prose=False).dump_component())._catch_prose
