"""Worked examples, sent as turns of a chat before the task: a small model follows them far better than a rule.

They come in pairs, the same kind of request once with something missing and once clear. No task of
benchmarks/data/ask_well.jsonl may stand here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Example:
    """A request, and what the clarifier works out about it. The fields after `request` are those of the reply."""

    request: str
    clarification_question: str
    answer: str = "unknown"
    known_from: Literal["request", "default", "user"] = "user"
    weight: Literal["high", "medium", "low"] = "high"
    options: tuple[str, ...] = ()


def _in_request(request: str, question: str, answer: str) -> Example:
    return Example(request, question, answer, "request")


def _default(request: str, question: str, answer: str) -> Example:
    return Example(request, question, answer, "default", "low")


def _missing(request: str, question: str, *options: str) -> Example:
    return Example(request, question, options=options)


EXAMPLES: tuple[Example, ...] = (
    _missing("Proofread the cover letter.", "Which cover letter do you mean?", "I paste the text", "I upload a file"),
    _in_request(
        "Proofread this: 'I am writing too apply for the job.'",
        "Which text shall be proofread?",
        "'I am writing too apply for the job.'",
    ),
    _missing(
        "What does a driving licence cost, and which tests are there?",
        "In which country do you want the licence?",
        "Germany",
        "France",
        "United States",
    ),
    _in_request(
        "What does a driving licence cost in Denmark, and which tests are there?",
        "In which country is the licence wanted?",
        "Denmark",
    ),
    _in_request("Why do volcanoes erupt?", "What shall be explained?", "why volcanoes erupt"),
    _missing("Write an essay of two pages with footnotes.", "What subject shall the essay be about?"),
    _in_request(
        "Write an essay of two pages with footnotes on the fall of Carthage.",
        "What subject shall the essay be about?",
        "the fall of Carthage",
    ),
    _missing("the page is broken again, repair it", "Which page is broken, and what goes wrong?"),
    _default("Write a web page with a stopwatch.", "How shall the page look?", "plain and simple"),
    _missing(
        "Carry on with the translation.", "Which text shall be translated?", "I paste the text", "I upload a file"
    ),
    _in_request(
        "Translate into Spanish: 'Where is the station?'", "Which text shall be translated?", "'Where is the station?'"
    ),
    _missing(
        "Prepare a talk on Apollo: origin, importance, end.",
        "Do you mean the Greek god or the space programme?",
        "the god",
        "the space programme",
    ),
    _in_request(
        "Prepare a talk on the Apollo space programme: origin, importance, end.",
        "Which Apollo is meant?",
        "the Apollo space programme",
    ),
    _default("Write a C function that sorts an array of numbers.", "Which algorithm shall it use?", "any common one"),
    _missing("How many bricks do I need?", "How large is the wall that you want to build?"),
    _in_request(
        "How many bricks of 25 by 12 cm are needed for a wall of 3 by 2 metres?",
        "How large is the wall?",
        "3 by 2 metres",
    ),
    _missing(
        "Prepare the speech for the ceremony on Saturday. Ten minutes, warm, a little humour, and end with a toast to "
        "everybody who helped.",
        "Which ceremony is it, and who is honoured?",
        "a wedding",
        "a retirement",
        "an award",
    ),
    _in_request(
        "Write a ten-minute talk about the life of bees for a garden club, warm, with three anecdotes and a question "
        "to the audience at the end.",
        "What shall the talk be about?",
        "the life of bees",
    ),
    _default(
        "Write a program that reads numbers from a file and prints their mean.",
        "What is the name of the file?",
        "given when the program is started",
    ),
    _missing(
        "Move our mail server, it has to stay reachable all the time, and nobody may lose a message.",
        "Which mail server do you have now, and where shall it move?",
        "to another host",
        "to Microsoft 365",
        "to Google",
    ),
    _in_request(
        "Write a Python script that copies a table from SQLite to PostgreSQL.",
        "From where to where shall the table be copied?",
        "from SQLite to PostgreSQL",
    ),
    _missing("Draw up a business plan with staff, costs and a schedule for three years.", "Which business is it for?"),
    _in_request("Retell the story of the Odyssey in one page.", "Which story shall be retold?", "the Odyssey"),
    _missing(
        "Tell me all about Amazon: beginnings, today, prospects.",
        "Do you mean the river or the company?",
        "the river",
        "the company",
    ),
    _missing("What happened to it after the war, and who paid for that?", "What do you mean by 'it'?"),
    _in_request(
        "What happened to the German railways after the Second World War, and who paid for that?",
        "What is the question about?",
        "the German railways after the Second World War",
    ),
    _missing(
        "Connect our shop to the payment service and test it.",
        "Which shop system and which payment service do you use?",
        "Shopify and PayPal",
        "WooCommerce and Stripe",
    ),
    _in_request(
        "I get \"KeyError: 'age'\" at print(person['age']). What does it mean and how do I avoid it?",
        "Which error do you get?",
        "KeyError: 'age' at print(person['age'])",
    ),
    _missing(
        "May my neighbour build a wall 2 metres high between our gardens without asking me? Look up the rules.",
        "In which country or state are the gardens?",
    ),
    _in_request(
        "We run a school in Norway with 300 pupils. Find out which fire drills the law asks for.",
        "In which country is the school?",
        "Norway",
    ),
    _missing("Our staff want to know how much sick pay they get and for how long.", "In which country do they work?"),
    _default("Describe the climate of the Alps and its changes.", "Which part of the Alps?", "all of them"),
    _missing(
        "Develop a workshop on communication for one afternoon.",
        "Who is the workshop for?",
        "managers",
        "sales staff",
        "pupils",
    ),
    _in_request(
        "Invite our colleagues to the summer party on 6 June at five in the garden.",
        "When and where is the party?",
        "6 June at five in the garden",
    ),
    _missing(
        "Find out why the costs went up, and draw a chart.", "Where are the figures of the costs?", "I upload a file"
    ),
    _default(
        "Recommend five board games for two players.", "Which kind of board games?", "well-known ones of any kind"
    ),
    _missing("Do a risk assessment with causes, likelihood and counter-measures.", "Which undertaking is it about?"),
    _default("Write a JavaScript function that removes duplicates.", "What is the input?", "an array of any values"),
    _missing("Go on with the experiment from last time.", "Which experiment do you mean?"),
    _in_request(
        "Research how the Swiss pension system works and what is criticised in it.",
        "Which pension system is meant?",
        "the Swiss one",
    ),
    _missing("I heard of a book about memory on the radio. Check whether its main claim holds.", "Which book is it?"),
    _default(
        "Build a REST service in Express for recipes, with search and tests.",
        "Which fields does a recipe have?",
        "title, ingredients and steps",
    ),
    _missing(
        "How much does a divorce cost us with 80,000 a year together, and how long does it take?",
        "In which country do you live?",
    ),
    _in_request("Explain how a suspension bridge carries its load.", "What shall be explained?", "suspension bridges"),
    _missing(
        "Put together what new tenants have to know about deposit, repairs and notice, with links to the laws.",
        "In which country are the flats?",
    ),
    _default(
        "Give me an overview of the Renaissance with its artists.", "Which countries?", "Italy and its neighbours"
    ),
)


@dataclass(frozen=True)
class CheckedExample:
    """A question about a request, and what a second look at it finds. The fields after `question` are the reply's."""

    request: str
    question: str
    my_answer: str
    found_in: Literal["request", "knowledge", "choice", "user"]


CHECKED_EXAMPLES: tuple[CheckedExample, ...] = (
    CheckedExample("Proofread the cover letter.", "What is the cover letter about?", "cannot know", "user"),
    CheckedExample(
        "Why do volcanoes erupt?",
        "What is a volcano?",
        "an opening in the earth's crust where magma comes out",
        "knowledge",
    ),
    CheckedExample("Write a web page with a stopwatch.", "What is the name of the page?", "Stopwatch", "choice"),
    CheckedExample(
        "What does a driving licence cost in Denmark, and which tests are there?",
        "Which country is it about?",
        "Denmark",
        "request",
    ),
    CheckedExample(
        "What does a driving licence cost, and which tests are there?",
        "Which country is it about?",
        "cannot know",
        "user",
    ),
    CheckedExample("the page is broken again, repair it", "Which page is broken?", "cannot know", "user"),
    CheckedExample(
        "Tell our members that the pool is closed on 4 July for repairs.",
        "Who are the members, and when is it closed?",
        "the pool's members; on 4 July",
        "request",
    ),
    CheckedExample("How do submarines dive?", "What is the question about?", "how submarines dive", "request"),
    CheckedExample(
        "Write a C function that sorts an array of integers.",
        "What is the input and what is the output?",
        "an array of integers; the same array sorted",
        "request",
    ),
    CheckedExample(
        "Describe how Norway taxes electric cars and what has changed.",
        "What is an electric car, and what has changed?",
        "a car with an electric motor; can be looked up",
        "knowledge",
    ),
    CheckedExample("Shorten the article for the newsletter.", "What is the article about?", "cannot know", "user"),
    CheckedExample("Write a speech of ten minutes.", "What is the occasion of the speech?", "cannot know", "user"),
    CheckedExample(
        "Retell the story of Robinson Crusoe in 100 words.",
        "What is the story of Robinson Crusoe?",
        "a man stranded on an island",
        "knowledge",
    ),
    CheckedExample(
        "Write a shell script that renames photos by date.",
        "What is the name of the script?",
        "rename_photos.sh",
        "choice",
    ),
    CheckedExample(
        "We are a school in Oslo with 300 pupils. Find out which fire drills the law asks for.",
        "Which school is it, and how many pupils does it have?",
        "a school in Oslo with 300 pupils",
        "request",
    ),
    CheckedExample("How many bricks do I need?", "How large is the wall?", "cannot know", "user"),
    CheckedExample("Which of the two is better?", "Which two things shall be compared?", "cannot know", "user"),
    CheckedExample(
        "Move our mail server to another provider this weekend.", "What is the mail server?", "cannot know", "user"
    ),
    CheckedExample(
        "Answer the guest who wrote to us yesterday, in a friendly tone.",
        "What did the guest write?",
        "cannot know",
        "user",
    ),
    CheckedExample("What do the critics say of it?", "What is the subject?", "cannot know", "user"),
    CheckedExample("Find out whether my neighbour may cut our hedge.", "Where do you live?", "cannot know", "user"),
    CheckedExample(
        "Which rivers flow into the Black Sea, and how clean are they?",
        "Which rivers?",
        "that is what is to be found out",
        "knowledge",
    ),
    CheckedExample("What does health insurance cost for a student?", "In which country?", "cannot know", "user"),
    CheckedExample(
        "How does the House of Lords work?", "Which country is it about?", "the United Kingdom", "knowledge"
    ),
    CheckedExample(
        "Turn this list into a table: red 3, blue 4, green 1", "What is the list?", "red 3, blue 4, green 1", "request"
    ),
    CheckedExample("Convert the file to PDF.", "What is the file?", "cannot know", "user"),
    CheckedExample(
        "Compare SQLite and DuckDB for monthly reports.",
        "What is the purpose of the reports?",
        "any usual monthly reports",
        "choice",
    ),
    CheckedExample(
        "Write two pages about Delphi.", "Is the Greek oracle or the programming language meant?", "cannot know", "user"
    ),
    CheckedExample(
        "How long does a letter take from Lisbon to Oslo?", "What is the distance?", "can be looked up", "knowledge"
    ),
    CheckedExample("Write the minutes of our meeting.", "What was said at the meeting?", "cannot know", "user"),
    CheckedExample("Plan the garden for us.", "How large is the garden?", "cannot know", "user"),
    CheckedExample(
        "Write a stopwatch for the terminal in Go.", "What is the terminal?", "where commands are typed", "knowledge"
    ),
    CheckedExample("Develop a training for one afternoon.", "Who takes part in the training?", "cannot know", "user"),
    CheckedExample(
        "Write tests for the module and cover the error paths.", "What does the module do?", "cannot know", "user"
    ),
    CheckedExample(
        "Every morning I do the same chore on my computer. Write a tool that does it for me.",
        "What is the chore?",
        "cannot know",
        "user",
    ),
    CheckedExample(
        "I need ten slides for Tuesday, short sentences, no pictures.",
        "What are the slides about?",
        "cannot know",
        "user",
    ),
    CheckedExample("Describe how bread is made.", "What is bread?", "a baked food of flour and water", "knowledge"),
    CheckedExample("Pick a phone for me.", "What is the phone for?", "cannot know", "user"),
    CheckedExample("Sort these words by length: tree, sea, mountain", "Which words?", "tree, sea, mountain", "request"),
    CheckedExample(
        "Write a palindrome checker in Java.", "What is the input?", "a word, given by whoever calls it", "choice"
    ),
    CheckedExample("Our second test keeps failing, mend it.", "What is the test?", "cannot know", "user"),
    CheckedExample("Filter a list of names in Ruby.", "What is the list?", "any list, given by the caller", "choice"),
    CheckedExample("Sort the list as we agreed.", "What is the list, and how was it agreed?", "cannot know", "user"),
    CheckedExample(
        "Write a timer in C whose duration is given as an argument.",
        "What is the duration?",
        "given as an argument when it is started",
        "request",
    ),
    CheckedExample(
        "Write a Makefile for a C program that consists of main.c and list.c.",
        "What is the name of the program?",
        "main",
        "choice",
    ),
    CheckedExample("Write a small program for our club.", "What shall the program do?", "cannot know", "user"),
    CheckedExample(
        'Turn this JSON into YAML: {"city": "Oslo", "people": 700000}',
        "What is the JSON file?",
        '{"city": "Oslo", "people": 700000}',
        "request",
    ),
    CheckedExample("What is known about sleep and memory?", "Which country?", "any; all of them", "choice"),
    CheckedExample("May I put up a fence without asking anybody?", "Which country?", "cannot know", "user"),
    CheckedExample(
        "Find out how Portugal's health service works and what it costs.",
        "Which health service?",
        "Portugal's",
        "request",
    ),
    CheckedExample(
        "Write a shopping list program for the terminal.",
        "What is the terminal?",
        "where commands are typed",
        "knowledge",
    ),
    CheckedExample("Find the fastest way to Rome next Friday.", "Where does the journey start?", "cannot know", "user"),
)
