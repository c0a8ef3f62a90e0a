"""Worked examples of the first look at a task: what is missing in it, in the words of the model's reply.

All are sent as turns of a chat before the task. Many kinds of tasks appear twice, with something missing and with
everything said, so that the kind alone does not decide. No task of benchmarks/data may be among them.
"""

from __future__ import annotations

NOTHING = "nothing"
"""The reply if nothing is missing, or any usual choice will do."""

TASTE = "taste: "
"""The beginning of the reply if only tastes differ."""

FIRST_LOOK_EXAMPLES: tuple[tuple[str, str], ...] = (
    ("What does a driving licence cost, and which tests are there?", "the country"),
    ("What does a driving licence for a car cost in Denmark, and which tests are there?", NOTHING),
    ("Recommend five board games for two players.", TASTE + "kind of games"),
    ("Shorten our application so that it fits on one page.", "the text of the application"),
    (
        "Shorten this so that it fits in a tweet: 'We regret that the pool stays closed on Monday, since the pump "
        "is being replaced.'",
        NOTHING,
    ),
    ("Why do volcanoes erupt?", NOTHING),
    ("the page is broken again, repair it", "which page, and what goes wrong"),
    ("Write a C function that sorts an array of integers.", NOTHING),
    (
        "Prepare the speech for the ceremony on Saturday. Ten minutes, warm, a little humour, and end with a toast "
        "to everybody who helped.",
        "which ceremony it is",
    ),
    ("Plan three quick dinners for this week, we are two, no fish.", TASTE + "cuisine"),
    ("I get \"KeyError: 'age'\" at print(person['age']). What does it mean and how do I avoid it?", NOTHING),
    ("Tell me all about Amazon: beginnings, today, prospects.", "the river or the company"),
    ("How many bricks of 25 by 12 cm are needed for a wall of 3 by 2 metres?", NOTHING),
    ("How many bricks do I need for the wall, 25 by 12 cm each, with 5 % spare?", "the size of the wall"),
    ("Our staff want to know how much sick pay they get and for how long.", "the country"),
    (
        "Write a welcome text for our website, 100 words, we are a bakery in Leeds that has been there since 1931.",
        TASTE + "tone",
    ),
    ("Go through the minutes and write down who promised what until when, as a table.", "the minutes"),
    (
        "Minutes: 'Ann orders chairs by Friday. Bob calls the hall tomorrow.' Write down who promised what until "
        "when, as a table.",
        NOTHING,
    ),
    ("Convert 12 stone 4 pounds to kilograms.", NOTHING),
    ("Which of the two offers is cheaper over three years? Include the interest.", "the two offers"),
    ("Offer A: 40 a month for 36 months. Offer B: 1,300 at once. Which is cheaper over three years?", NOTHING),
    (
        "My regex does not match the last line, what is wrong with it? Python, multiline is on.",
        "the regex and the text",
    ),
    ("why does re.findall('^a.*$', text) give only one line of my text? python 3.12", NOTHING),
    ("Write a bedtime story for my daughter, she is four.", TASTE + "what it is about"),
    ("Write a bedtime story about a hedgehog who is afraid of the dark, for a child of four, 300 words.", NOTHING),
    ("Translate the attached contract clause so that our partner understands it.", "the clause, and the language"),
    ("Translate 'Where is the nearest pharmacy?' into Portuguese.", NOTHING),
    ("Is it allowed to record a phone call without telling the other one?", "the country"),
    ("When was the Eiffel Tower built, how high is it, and who paid for it?", NOTHING),
    (
        "I want to learn an instrument at fifty, which one do you advise? I have little time and thin walls.",
        TASTE + "kind of music",
    ),
    (
        "Calculate my monthly rate for the house, 30 years, fixed interest, first payment in May.",
        "the amount and the interest rate",
    ),
    ("Monthly rate for a loan of 200,000 at 3 % a year over 30 years, please with the formula.", NOTHING),
    ("Make a poster for our summer festival: 5 July, 2 pm, schoolyard, cake and games.", TASTE + "style"),
    ("Answer him that I cannot come, politely, two sentences.", "who he is, and to what"),
    (
        "Write two polite sentences to my landlord Mr Reed that I cannot be there for the meter reading on Tuesday.",
        NOTHING,
    ),
    ("Explain how vaccination works, for a class of ten-year-olds, with one comparison from everyday life.", NOTHING),
    (
        "Set up monitoring for our server so that we get a mail when something is wrong.",
        "which server, and what to watch",
    ),
    ("Bash: print the five largest files below /var/log, human readable, no errors for those I may not read.", NOTHING),
    ("Compare Rome and Lisbon for a long weekend in March: flights from Berlin, weather, food, one table.", NOTHING),
    ("Find a hotel for us near the conference, two nights, with breakfast.", "where and when the conference is"),
    ("Name our new cat.", TASTE + "kind of name"),
    ("Correct the mistakes: 'He go to school every days and dont like it.'", NOTHING),
    ("Correct the mistakes in my essay, but keep my style and mark what you changed.", "the essay"),
    (
        "Draw up a training plan for my half marathon in ten weeks, I run 25 km a week now, four days.",
        TASTE + "target time",
    ),
    ("Which tyres fit my car? All-season, not the cheapest, not the dearest, I drive 9,000 km a year.", "which car"),
    ("Which tyre sizes are allowed on a VW Golf 7 1.4 TSI of 2015?", NOTHING),
    ("Put our sales of the last quarter into a chart and say what stands out, three bullets.", "the sales figures"),
    ("Sales: Jan 120, Feb 90, Mar 160. Make a chart and say what stands out, three bullets.", NOTHING),
    ("Summarise the plot of Hamlet in five sentences.", NOTHING),
    ("Summarise chapter 4 in five sentences, my exam is on Friday.", "which book"),
    ("Suggest a film for tonight, under two hours, nothing brutal.", TASTE + "genre"),
    ("Split the costs of the trip fairly: Mia drove, Jon paid the house, I paid the food.", "the amounts"),
    ("Three friends share 240 euros for petrol and 600 for a house equally. What does each pay?", NOTHING),
    ("How long may my neighbour's hedge be, and what can I do if he does not cut it?", "the country"),
    ("Write a JSON schema for an address with street, zip code, town and an optional country.", NOTHING),
    ("Refactor the module so that it can be tested without the database, keep the public names.", "the code"),
    ("Give me ideas for the birthday of a man who turns 70, budget 50 euros.", TASTE + "his interests"),
    ("What is the difference between TCP and UDP, with one example each?", NOTHING),
    (
        "Is the dose right? He took two in the morning and one at night, and feels dizzy now.",
        "which medicine, and who he is",
    ),
    ("What is the maximum daily dose of paracetamol for a healthy adult?", NOTHING),
    (
        "Write the letter of application for the job, one page, I have five years of experience and can start in May.",
        "which job",
    ),
    ("Decorate my living room: 20 square metres, white walls, oak floor, at most 800 euros.", TASTE + "style"),
    ("Write a haiku about the first snow.", NOTHING),
    ("Update the price list by 4 percent, round to full five cents, keep the order.", "the price list"),
    ("Prices: tea 2.10, coffee 2.80, cake 3.40. Add 4 percent and round to full five cents.", NOTHING),
    ("Is he still alive, and what did he do after leaving the band?", "who he is"),
    ("Who was the drummer of Queen, and is he still alive?", NOTHING),
    ("Make a quiz for our family evening, 15 questions with answers, ages 9 to 75.", TASTE + "topics"),
    ("Write unit tests for my function, pytest, with the edge cases.", "the function"),
    ("Write pytest tests for: def half(n): return n // 2", NOTHING),
)
"""Tasks, each with what only the user can tell."""

REFERRING_EXAMPLES: tuple[tuple[str, str], ...] = (
    ("Book the team dinner again, same place as last time, Thursday at seven, eleven people.", "which place that was"),
    ("Put the dates of the concerts into our usual format: 3 May, 17 June, 1 August.", "what your usual format is"),
    (
        "Translate this sign for the guests who come on Monday: 'Please leave your boots outside.'",
        "which language the guests speak",
    ),
    ("How much is 45 dollars in our money, with last Friday's rate?", "which currency your money is"),
    (
        "Sort these names the way the choir director wants it: Tom Bell, Ann Archer, Zoe Bell.",
        "how the director wants them sorted",
    ),
    (
        "What has the rent of a small flat in my street done since I moved in? Percent per year.",
        "which street, and when you moved in",
    ),
    (
        "Write a function that reads the log lines of our pump, one record per line, typed, with tests.",
        "what a log line looks like",
    ),
    ("Give the marks for these points by the scale of our school: 12, 17, 9, 20.", "the scale of the school"),
    (
        "Which of my three phone plans was the cheapest last year? One sentence, with the difference.",
        "what each plan cost",
    ),
    ("Write the reference for our trainee Paul, two paragraphs, he leaves in May.", "how well he worked"),
    ("Is 38.2 too high for her, and what can I do tonight?", "who she is, and how old"),
    ("How late may I still return it? I have the receipt and the box was never opened.", "which shop and country"),
)
"""Tasks that say nearly everything, and refer to one thing that is not there. What is missing is named after them, too;
the decision does without, since its threshold was chosen without them."""
