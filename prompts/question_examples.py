"""Worked examples of a question for what a task lacks. No task of benchmarks/data may be among them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class QuestionExample:
    """A task, what it lacks, and the question for that. The fields after `missing` are the reply's."""

    request: str
    missing: str
    detail: str
    question: str
    reason: str
    options: tuple[str, ...] = ()
    default: str = ""


QUESTION_EXAMPLES: tuple[QuestionExample, ...] = (
    QuestionExample(
        "Shorten our application so that it fits on one page.",
        "the text of the application",
        "input",
        "What is the text of the application? You can paste it or name the file.",
        "I can only shorten a text that I have.",
    ),
    QuestionExample(
        "Recommend five board games for two players.",
        "kind of games",
        "style",
        "Which kind of board games do you two like?",
        "Somebody who likes quick games does not enjoy a long strategy game.",
        ("strategy", "quick card games", "cooperative games"),
        "strategy",
    ),
    QuestionExample(
        "What does a driving licence cost, and which tests are there?",
        "the country",
        "place",
        "In which country do you want the driving licence?",
        "Each country has its own tests and fees.",
        ("Germany", "United Kingdom", "United States"),
    ),
    QuestionExample(
        "Tell me all about Amazon: beginnings, today, prospects.",
        "the river or the company",
        "meaning",
        "Do you mean Amazon the company or the river?",
        "They have nothing but the name in common.",
        ("the company", "the river"),
        "the company",
    ),
    QuestionExample(
        "How many bricks do I need for the wall, 25 by 12 cm each, with 5 % spare?",
        "the size of the wall",
        "budget",
        "How long and how high is the wall?",
        "The number of bricks follows from the area of the wall.",
    ),
    QuestionExample(
        "the page is broken again, repair it",
        "which page, and what goes wrong",
        "meaning",
        "Which page is broken?",
        "I must know where to look before I can repair anything.",
    ),
    QuestionExample(
        "Write a welcome text for our website, 100 words, we are a bakery in Leeds that has been there since 1931.",
        "tone",
        "style",
        "Which tone should the welcome text have?",
        "The same facts sound quite different in each of them.",
        ("warm and homely", "modern and short", "proud of tradition"),
        "warm and homely",
    ),
    QuestionExample(
        "My regex does not match the last line, what is wrong with it? Python, multiline is on.",
        "the regex and the text",
        "input",
        "What is your regex? You can paste it with the text.",
        "The mistake can only be seen in the regex itself.",
    ),
    QuestionExample(
        "Empfiehl mir einen Film für heute Abend, unter zwei Stunden.",
        "genre",
        "style",
        "Welche Art von Film möchtest du heute Abend sehen?",
        "Wer eine Komödie will, hat an einem Thriller keine Freude.",
        ("Komödie", "Thriller", "Drama"),
        "Komödie",
    ),
    QuestionExample(
        "Set up monitoring for our server so that we get a mail when something is wrong.",
        "which server, and what to watch",
        "platform",
        "Which operating system does the server have?",
        "Each system is watched with other programs.",
        ("Linux", "Windows Server"),
        "Linux",
    ),
    QuestionExample(
        "Draw up a training plan for my half marathon in ten weeks, I run 25 km a week now, four days.",
        "target time",
        "level",
        "Which time do you want to run the half marathon in?",
        "The pace of every training run follows from it.",
        ("just finish", "under 2 hours", "under 1:45"),
        "just finish",
    ),
    QuestionExample(
        "Calculate my monthly rate for the house, 30 years, fixed interest, first payment in May.",
        "the amount and the interest rate",
        "budget",
        "How much do you borrow for the house?",
        "The monthly rate grows with the amount of the loan.",
    ),
)
"""Tasks that lack something, of each kind: a text, a choice, a meaning, an amount."""
