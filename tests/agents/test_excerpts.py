"""Excerpts of a conversation hold what the task asks for, word for word, in the room that they get."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from upcall.agents.tool_loop.excerpts import Happening, write_excerpts

PLAIN = "The wind blew over the fields. Nobody was there to see it.\nIt rained in the night."


def steps_of(*texts: str) -> list[Happening]:
    """Return calls that returned texts."""
    return [Happening(f'read {{"page": {number}}}', text, "read") for number, text in enumerate(texts, 1)]


@pytest.mark.parametrize(
    ("task", "fact"),
    [
        ("Remember the clerks of the towns.", "The clerk of Fernhill is Osborne."),
        ("Merke dir die Preise der Geräte.", "Der Preis des Geräts ist 1.299,50 Euro."),
        ("记住每个城市的邮政编码。", "北京的邮政编码是 100000。"),
        ("Find the port of the service.", 'server.listen(host="0.0.0.0", port=8127)'),
        ("Which tests fail, and why?", "E   AssertionError: assert 3 == 4, test_sum failed"),
    ],
)
def test_excerpts_hold_what_the_task_asks(task: str, fact: str) -> None:
    texts = [f"{PLAIN} Page {number}." for number in range(50)]
    texts[20] = f"{PLAIN}\n{fact}\n{PLAIN}"
    written = write_excerpts(steps_of(*texts), task, 1_200)
    assert f'- read {{"page": 21}}: {fact}' in written
    assert len(written.encode()) <= 1_200


LEDGER = "Report for the harbour office in Emden the total amount, the responsible clerk and the invoice number."


def restate(kind: str, steps: Sequence[Happening]) -> list[Happening]:
    """Return the steps among texts that say the task again."""
    match kind:
        case "plan":
            return [Happening("It wrote", f"Plan:\n1. I will {LEDGER.lower()}\n2. Check it.", is_own=True), *steps]
        case "thoughts":
            thoughts = [
                Happening("It thought", f"My task: {LEDGER} Next is {each.label}.", is_own=True) for each in steps
            ]
            return [each for pair in zip(thoughts, steps, strict=True) for each in pair]
        case "errors":
            return [Happening("failed: read {}", f'Error: timeout at "{LEDGER}"', "read"), *steps]
        case "search":
            found = [Happening("search {}", f'Results for "{LEDGER}": see page {n}.', "search") for n in range(5)]
            return [*found, *steps]
        case _:
            heads = f"You asked me: {LEDGER} Here is what I found."
            return [step._replace(text=f"{heads}\n{step.text}") for step in steps]


@pytest.mark.parametrize("kind", ["plan", "thoughts", "errors", "search", "replies of an agent"])
def test_texts_that_restate_the_task_displace_no_fact(kind: str) -> None:
    facts = [f"Emden: amount {100 + n} EUR.\nClerk: Person{n}.\nInvoice R-{900 + n}." for n in range(8)]
    texts = [each for fact in facts for each in (f"{fact}\n{PLAIN}", PLAIN)]
    written = write_excerpts(restate(kind, steps_of(*texts)), LEDGER, 3_000)
    assert [line for fact in facts for line in fact.splitlines() if line not in written] == []


@pytest.mark.parametrize(
    ("task", "facts"),
    [
        (
            "Sort each file (auth.py, db.py, ui.py, net.py) into one of the owners alice, bob, carol.",
            ["auth.py: owner alice", "db.py: owner bob", "ui.py: owner carol", "net.py: owner bob"],
        ),
        ("Is service web green or red? And service api? And service jobs?", ["web: green", "api: red", "jobs: green"]),
        ("Is the capital of Peru Lima or Quito? And that of Ecuador?", ["The capital of Peru is Lima."]),
        (
            "What is the invoice number of the delivery to the harbour office?",
            ["The invoice number of the delivery to the harbour office is R-77."],
        ),
    ],
)
def test_facts_made_of_the_words_of_the_task_stay(task: str, facts: list[str]) -> None:
    texts = [f"{PLAIN * 3}\n{fact}\n{PLAIN * 3} Page {number}." for number, fact in enumerate(facts)]
    assert [fact for fact in facts if fact not in write_excerpts(steps_of(*texts * 5), task, 1_500)] == []


def test_same_result_of_calls_the_task_tells_apart_stays() -> None:
    things = ["lamp", "chair", "table", "mirror", "clock", "shelf"]
    task = f"Which of {', '.join(things)} are in stock?"
    steps = [Happening(f'check {{"item": "{each}"}}', "yes", "check") for each in things]
    written = write_excerpts([*steps, *steps_of(*[PLAIN] * 20)], task, 2_000)
    assert [each for each in things if f'- check {{"item": "{each}"}}: yes' not in written] == []


def test_result_is_rated_with_the_words_of_its_call() -> None:
    things = ["lamp", "chair", "table", "mirror", "clock", "shelf"]
    prices = [
        Happening(f'get_price {{"item": "{n}"}}', f"{10 + at}.50 EUR", "get_price") for at, n in enumerate(things)
    ]
    page = Happening("read_page {}", f"We sell the lamp of your dreams. Our prices are fair. {PLAIN * 9}", "read_page")
    written = write_excerpts([page, *prices, page], f"Sum up the prices of {', '.join(things)}.", 1_200)
    assert [each.text for each in prices if each.text not in written] == []


def test_rows_of_a_table_follow_its_head() -> None:
    rows = [f"| {name} | {555_000 + at} |" for at, name in enumerate(["Ann", "Bob", "Cid", "Dan", "Eve", "Fay"])]
    table = "\n".join(["| Name | Phone |", "|---|---|", *rows])
    written = write_excerpts(steps_of(table), "Give me the phone of all people.", 1_500)
    assert [row for row in rows if row not in written] == []


def test_what_others_said_has_the_room_first() -> None:
    guesses = [Happening("It thought", f"I guess that clerk {n} is called Nobody{n}.", is_own=True) for n in range(40)]
    facts = [f"The clerk of town {n} is Pell{n}." for n in range(10)]
    reported = [Happening("scout wrote", fact) for fact in facts[:5]]
    steps = [*guesses, *reported, *steps_of(*facts[5:]), *guesses]
    written = write_excerpts(steps, "Who is the clerk of each town?", 1_000)
    assert [fact for fact in facts if fact not in written] == []


def test_records_on_one_line_stay_whole() -> None:
    orders = [
        {"order": n, "customer": f"Customer{n}", "status": "overdue" if n % 20 == 7 else "paid"} for n in range(200)
    ]
    written = write_excerpts(steps_of(json.dumps(orders)), "List the customers of the overdue orders.", 2_000)
    assert [each for each in orders if each["status"] == "overdue" and json.dumps(each)[1:-1] not in written] == []


def test_excerpts_of_many_tools_fit_their_room() -> None:
    steps = [Happening("call {}", "The clerk is Pell.", f"tool_with_a_name_{n}") for n in range(500)]
    written = write_excerpts(steps, "Who is the clerk?", 600)
    assert "The clerk is Pell." in written
    assert len(written.encode()) <= 700


def test_excerpts_find_a_fact_deep_in_a_long_result() -> None:
    text = f"{PLAIN} " * 300 + "The key of the cellar is under the blue pot. " + f"{PLAIN} " * 300
    assert "under the blue pot." in write_excerpts(steps_of(text), "Where is the key of the cellar?", 600)


def test_excerpts_name_calls_and_own_words() -> None:
    steps = [
        *steps_of("Nothing."),
        Happening("It wrote", "The parser is in lexer.py."),
        *steps_of("Nothing.", "Nothing."),
    ]
    written = write_excerpts(steps, "Mend the parser.", 1_000)
    assert "Calls made: read (3)" in written
    assert "- It wrote: The parser is in lexer.py." in written


def test_excerpts_say_the_same_once() -> None:
    written = write_excerpts(steps_of(*["The clerk is Pell."] * 30), "Who is the clerk?", 2_000)
    assert written.count("The clerk is Pell.") == 1


@pytest.mark.parametrize("text", ["", " \n ", "....", "\ud800", "\ud800 read \ud800", "x" * 300_000])
def test_excerpts_of_texts_without_words_fit(text: str) -> None:
    written = write_excerpts(steps_of(text), "Read.", 400)
    assert written.startswith("Calls made: read (1)")
    assert len(written.encode("utf-8", "surrogatepass")) < 1_000


def test_excerpts_of_nothing_are_empty() -> None:
    assert write_excerpts([], "Read.", 400) == ""
