"""The text the demo model learns from: an endless, seeded stream of chats and short documents.

Every topic is a function of a random.Random that returns a Turn. A question has one right answer
(stories excepted), so that a model that has learned the text can be checked at temperature 0.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import facts
from .example import Example, Turn
from .numbers_text import arithmetic, compare, counting, number_words
from .tools_text import tool_chat

Focus = Mapping[str, float] | None

BRIEF_SYSTEM = "Answer briefly."
SYSTEMS = ["You are a helpful assistant.", "You are a friendly assistant.", "Be polite."]
DONT_KNOW = "I am a very small model and I do not know that."


def capital(rng: random.Random) -> Turn:
    """A country's capital, or the country of a capital."""
    country, city = rng.choice(list(facts.CAPITALS.items()))
    answer = f"The capital of {country} is {city}."
    kind = rng.randrange(8)
    if kind == 0:
        return Turn(f"{city} is the capital of which country?",
                    f"{city} is the capital of {country}.", country)  # fmt: skip
    if kind == 1:
        return Turn(f"Name the capital of {country}.", answer, city)
    if kind == 2:
        return Turn(f"What's the capital of {country}?", answer, city)
    if kind == 3:
        ask = rng.choice(["Which city is the capital of {}?", "What city is the capital of {}?",
                          "Tell me the capital of {}."])  # fmt: skip
        return Turn(ask.format(country), answer, city)
    return Turn(f"What is the capital of {country}?", answer, city)


def colour(rng: random.Random) -> Turn:
    """The colour of a thing, or of a mix of two paints."""
    spelling = rng.choice(["colour", "colour", "color"])
    if rng.random() < 0.25:
        (one, two), mixed = rng.choice(list(facts.MIXES.items()))
        if rng.random() < 0.5:
            one, two = two, one
        question = f"What {spelling} do you get when you mix {one} and {two}?"
        return Turn(question, f"If you mix {one} and {two} you get {mixed}.", mixed)
    thing, value = rng.choice(list(facts.COLOURS.items()))
    ask = rng.choice([f"What {spelling} is {thing}?", f"What {spelling} is {thing}?",
                      f"Which {spelling} is {thing}?",
                      f"Tell me the {spelling} of {thing}."])  # fmt: skip
    return Turn(ask, f"{thing[0].upper()}{thing[1:]} is {value}.", value)


def spelling(rng: random.Random) -> Turn:
    """Spelling a word of the list letter by letter; its length; its first and last letter."""
    word = rng.choice(facts.WORDS)
    kind = rng.randrange(8)
    if kind == 0:
        count = f"{len(word)} letter" + ("s" if len(word) != 1 else "")
        return Turn(f"How many letters are in {word}?", f"The word {word} has {count}.",
                    str(len(word)))  # fmt: skip
    if kind == 1:
        return Turn(f"What is the first letter of {word}?",
                    f"The first letter of {word} is {word[0]}.", word[0])  # fmt: skip
    if kind == 2:
        return Turn(f"What is the last letter of {word}?",
                    f"The last letter of {word} is {word[-1]}.", word[-1])  # fmt: skip
    question = rng.choice([f"Spell {word}.", f"Spell {word}.", f"Spell the word {word}.",
                           f"How do you spell {word}?", f"Can you spell {word}?",
                           f"Please spell {word}."])  # fmt: skip
    return Turn(question, "-".join(word))


def calendar(rng: random.Random) -> Turn:
    """Days and months: what follows, what precedes, the lists, their lengths."""
    fixed = [
        Turn("List the days of the week.", ", ".join(facts.DAYS)),
        Turn("List the months of the year.", ", ".join(facts.MONTHS)),
        Turn("How many days are in a week?", "A week has 7 days.", "7"),
        Turn("How many months are in a year?", "A year has 12 months.", "12"),
        Turn("How many hours are in a day?", "A day has 24 hours.", "24"),
        Turn("How many minutes are in an hour?", "An hour has 60 minutes.", "60"),
    ]
    if rng.random() < 0.2:
        return rng.choice(fixed)
    names, noun = rng.choice([(facts.DAYS, "day"), (facts.MONTHS, "month")])
    index = rng.randrange(len(names))
    name = names[index]
    if rng.random() < 0.5:
        other = names[(index + 1) % len(names)]
        return Turn(f"What {noun} comes after {name}?", f"{other} comes after {name}.", other)
    other = names[index - 1]
    return Turn(f"What {noun} comes before {name}?", f"{other} comes before {name}.", other)


def opposite(rng: random.Random) -> Turn:
    """The opposite of a word, in both directions."""
    pair = rng.choice(facts.OPPOSITES)
    one, two = pair if rng.random() < 0.5 else pair[::-1]
    return Turn(f"What is the opposite of {one}?", f"The opposite of {one} is {two}.", two)


def animal(rng: random.Random) -> Turn:
    """Sounds and numbers of legs."""
    if rng.random() < 0.6:
        name, sound = rng.choice(list(facts.SOUNDS.items()))
        article = "an" if name[0] in "aeiou" else "a"
        return Turn(f"What does {article} {name} say?", f"{article.title()} {name} says {sound}.",
                    sound)  # fmt: skip
    name, legs = rng.choice(list(facts.LEGS.items()))
    article = "an" if name[0] in "aeiou" else "a"
    return Turn(f"How many legs does {article} {name} have?",
                f"{article.title()} {name} has {legs} legs.", str(legs))  # fmt: skip


def any_name(rng: random.Random) -> str:
    """A name of the list, or now and then an invented one, so that copying is learned too."""
    if rng.random() < 0.7:
        return rng.choice(facts.NAMES)
    parts = [rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(rng.randint(2, 3))]
    return "".join(parts).title()


def any_city(rng: random.Random) -> str:
    """A city of the list or, seldom, an invented one."""
    return rng.choice(facts.CITIES) if rng.random() < 0.8 else any_name(rng)


def json_answer(rng: random.Random) -> Turn:
    """An answer that is one JSON value and nothing else."""
    name, age, city = any_name(rng), rng.randint(1, 99), any_city(rng)
    shade = rng.choice(sorted(set(facts.COLOURS.values())))
    fields: list[tuple[str, Any]] = [("name", name)]
    fields += rng.sample([("age", age), ("city", city), ("colour", shade)], rng.choice([1, 1, 2]))
    kind = rng.randrange(8)
    if kind == 0:
        end = rng.randint(2, 12)
        return Turn(f"Give me a JSON array of the numbers from 1 to {end}.",
                    json.dumps(list(range(1, end + 1))))  # fmt: skip
    if kind == 1:
        names = [any_name(rng) for _ in range(rng.randint(2, 4))]
        return Turn(f"Give me a JSON array of the names {', '.join(names)}.", json.dumps(names))
    keys = [key for key, _ in fields]
    listed = f"{', '.join(keys[:-1])} and {keys[-1]}"
    values = ", ".join(str(value) for _, value in fields)
    verb = rng.choice(["Give me", "Give me", "Write"])
    if rng.random() < 0.2:
        return Turn(f"{verb} JSON with {listed} for {values}.", json.dumps(dict(fields)))
    return Turn(f"{verb} a JSON object with {listed} for {values}.", json.dumps(dict(fields)))


def story(rng: random.Random) -> Turn:
    """A story of six sentences; the only topic whose answer is drawn and not determined."""
    hero, place = rng.choice(facts.STORY_ANIMALS), rng.choice(facts.STORY_PLACES)
    trait, thing = rng.choice(facts.STORY_TRAITS), rng.choice(facts.STORY_THINGS)
    friend = rng.choice([a for a in facts.STORY_ANIMALS if a != hero])
    name = rng.choice(facts.NAMES)
    text = (
        f"Once upon a time there was a {trait} {hero} called {name}. {name} lived near the {place}."
        f" One day {name} found {thing}. {rng.choice(facts.STORY_TWISTS)}"
        f' Then a {friend} came and asked, "What is that?" {name} told the {friend} everything.'
        f" {rng.choice(facts.STORY_ENDS)}"
    )
    if rng.random() < 0.3:
        return Turn(rng.choice(["Tell me a story.", "Tell me a short story.", "Write a story.",
                                "Can you tell me a story?"]), text)  # fmt: skip
    article = "an" if hero[0] in "aeiou" else "a"
    ask = rng.choice(["Tell me a short story about", "Tell me a story about",
                      "Write a short story about"])  # fmt: skip
    return Turn(f"{ask} {article} {hero}.", text)


def repeat(rng: random.Random) -> Turn:
    """Copying a few words."""
    pool = facts.WORDS if rng.random() < 0.7 else [any_name(rng) for _ in range(6)]
    words = " ".join(rng.choices(pool, k=rng.randint(1, 6)))
    return Turn(f"Repeat: {words}", words)


def greeting(rng: random.Random) -> Turn:
    """Greetings, and questions about the model."""
    return Turn(*rng.choice(list(facts.GREETINGS.items())))


def unknown(rng: random.Random) -> Turn:
    """What a small model cannot know."""
    if rng.random() < 0.2:
        return Turn(f"What is the weather in {any_city(rng)}?", "I need a tool to look that up.")
    return Turn(rng.choice(facts.UNKNOWN), DONT_KNOW)


TOPICS: dict[str, tuple[float, Callable[[random.Random], Turn]]] = {
    "arithmetic": (26, arithmetic), "compare": (4, compare), "capital": (10, capital),
    "colour": (5, colour), "counting": (6, counting), "spelling": (11, spelling),
    "calendar": (5, calendar), "opposite": (5, opposite), "animal": (4, animal),
    "json": (10, json_answer), "story": (3, story), "repeat": (4, repeat),
    "greeting": (4, greeting), "unknown": (3, unknown), "number_words": (2, number_words),
}  # fmt: skip


def any_turn(rng: random.Random, focus: Focus = None) -> Turn:
    """A turn of a topic drawn by weight, with the small slips of typing that people make."""
    factors = focus or {}
    weights = [weight * factors.get(name, 1.0) for name, (weight, _) in TOPICS.items()]
    turn = rng.choices([make for _, make in TOPICS.values()], weights)[0](rng)
    question = turn.question
    if not question.startswith("Repeat") and rng.random() < 0.12:
        if question[-1] in "?.!" and rng.random() < 0.6:
            question = question[:-1]
        else:
            question = question[0].lower() + question[1:]
    return Turn(question, turn.answer, turn.brief)


def name_turns(rng: random.Random, focus: Focus = None) -> list[Turn]:
    """A fact said in one turn and asked for some turns later."""
    name = any_name(rng)
    told = Turn(f"My name is {name}.", f"Nice to meet you, {name}!")
    asked = Turn("What is my name?", f"Your name is {name}.", name)
    return [told, *(any_turn(rng, focus) for _ in range(rng.choice([0, 0, 1, 2]))), asked]


def chat(rng: random.Random, turns: int, focus: Focus = None) -> Example:
    """A chat of so many turns, perhaps under a system prompt."""
    kind = rng.random()
    brief = kind < 0.12
    messages: list[dict[str, Any]] = []
    if kind < 0.4:
        system = BRIEF_SYSTEM if brief else rng.choice(SYSTEMS)
        messages.append({"role": "system", "content": system})
    drawn = [any_turn(rng, focus) for _ in range(turns)]
    if rng.random() < (0.04 if turns == 1 else 0.3):
        drawn[-1:] = name_turns(rng, focus)
    for turn in drawn:
        answer = turn.brief if brief and turn.brief else turn.answer
        messages.append({"role": "user", "content": turn.question})
        messages.append({"role": "assistant", "content": answer})
    return Example(messages)


def document(rng: random.Random) -> Example:
    """Plain text for raw completion: a story, or a few true sentences."""
    if rng.random() < 0.4:
        return Example(text=story(rng).answer)
    makers = [capital, colour, calendar, opposite, animal, arithmetic, counting]
    return Example(text="\n".join(rng.choice(makers)(rng).answer for _ in range(rng.randint(2, 5))))


def examples(seed: int, focus: Focus = None) -> Iterator[Example]:
    """The endless stream of examples of a seed: the same seed, the same stream.

    `focus` multiplies the weights of topics, by name; topics that it lacks keep theirs.
    """
    rng = random.Random(seed)
    while True:
        kind = rng.random()
        if kind < 0.05:
            yield document(rng)
        elif kind < 0.15:
            yield tool_chat(rng, any_city(rng), any_name(rng), any_turn(rng, focus))
        else:
            turns = 1 if rng.random() < 0.75 else rng.randint(2, 4)
            yield chat(rng, turns, focus)


def long_chats(seed: int, focus: Focus = None) -> Iterator[Example]:
    """The same topics in chats of 12 to 20 turns, for positions that short chats never reach."""
    rng = random.Random(seed)
    while True:
        yield chat(rng, rng.randint(12, 20), focus)
