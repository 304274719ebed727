"""Topics about numbers: arithmetic, comparison, counting, numbers as words."""

from __future__ import annotations

import random

from .example import Turn

_WORDS = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    *("nineteen", "twenty"),
]


def spelled(number: int, rng: random.Random) -> str:
    """A number as people write it: mostly with digits, a small one also as a word."""
    if number < len(_WORDS) and rng.random() < 0.4:
        return _WORDS[number]
    return str(number)


def is_held_out(a: int, b: int) -> bool:
    """Pairs of two-digit operands that training never shows, one in sixteen, for evaluation."""
    low, high = sorted((a, b))
    return low > 20 and (high * 31 + low * 17) % 16 == 0


def operands(rng: random.Random, held_out: bool = False) -> tuple[int, int]:
    """Two operands: mostly up to 20, sometimes up to 99; or a pair kept out of training."""
    while True:
        top = 99 if held_out or rng.random() < 0.35 else 20
        a, b = rng.randint(0, top), rng.randint(0, top)
        if is_held_out(a, b) == held_out:
            return a, b


def arithmetic(rng: random.Random, held_out: bool = False) -> Turn:
    """a + b, a - b (never below zero) or, with factors up to 10, a * b."""
    a, b = operands(rng, held_out)
    op = rng.choice("++-" if held_out else "++-*")
    if op == "*":
        a, b = rng.randint(0, 10), rng.randint(0, 10)
    elif op == "-":
        a, b = max(a, b), min(a, b)
    value = {"+": a + b, "-": a - b, "*": a * b}[op]
    words = {"+": "plus", "-": "minus", "*": "times"}[op]
    question = rng.choice([
        f"What is {a} {op} {b}?", f"What is {a} {op} {b}?", f"What is {a} {op} {b}?",
        f"{a} {op} {b}", f"{a} {op} {b} = ?", f"Calculate {a} {op} {b}.", f"What is {a}{op}{b}?",
        f"What is {a} {words} {b}?", f"How much is {a} {op} {b}?",
        f"What is {spelled(a, rng)} {words} {spelled(b, rng)}?", f"What's {a} {op} {b}?",
        f"Add {a} and {b}." if op == "+" else f"How much is {a} {words} {b}?",
    ])  # fmt: skip
    return Turn(question, f"{a} {op} {b} = {value}", str(value))


def compare(rng: random.Random) -> Turn:
    """Which of two numbers is bigger or smaller; even or odd."""
    a, b = rng.sample(range(0, 100), 2)
    kind = rng.randrange(3)
    if kind == 0:
        return Turn(f"Which is bigger, {a} or {b}?", f"{max(a, b)} is bigger than {min(a, b)}.",
                    str(max(a, b)))  # fmt: skip
    if kind == 1:
        return Turn(f"Which is smaller, {a} or {b}?", f"{min(a, b)} is smaller than {max(a, b)}.",
                    str(min(a, b)))  # fmt: skip
    parity = "odd" if a % 2 else "even"
    return Turn(f"Is {a} even or odd?", f"{a} is {parity}.", parity)


def number_words(rng: random.Random) -> Turn:
    """Small numbers as words: counting, sums and differences, digits."""
    kind = rng.randrange(4)
    if kind == 0:
        end = rng.randint(2, 12)
        ask = rng.choice(["Count to {}.", "Count to {}.", "Count up to {}.", "Can you count to {}?",
                          "Please count to {}.", "Count from one to {}."])  # fmt: skip
        return Turn(ask.format(_WORDS[end]), ", ".join(map(str, range(1, end + 1))))
    if kind == 1:
        number = rng.randrange(len(_WORDS))
        return Turn(f"Write {_WORDS[number]} as a number.", str(number), str(number))
    a, b = rng.randint(0, 10), rng.randint(0, 10)
    op = rng.choice("++-")
    a, b = (max(a, b), min(a, b)) if op == "-" else (a, b)
    value = a + b if op == "+" else a - b
    words = f"{_WORDS[a]} {'plus' if op == '+' else 'minus'} {_WORDS[b]}"
    ask = rng.choice(["What is {}?", "What is {}?", "How much is {}?", "What's {}?"])
    return Turn(ask.format(words), f"{a} {op} {b} = {value}", str(value))


def counting(rng: random.Random) -> Turn:
    """Counting up, down and by twos; answers of up to 30 numbers."""
    kind = rng.randrange(6)
    if kind == 0:
        start = rng.randint(2, 20)
        numbers, question = list(range(start, 0, -1)), f"Count down from {start}."
    elif kind == 1:
        end = 2 * rng.randint(2, 15)
        numbers, question = list(range(2, end + 1, 2)), f"Count by twos to {end}."
    else:
        start = 1 if rng.random() < 0.6 else rng.randint(2, 40)
        end = start + rng.randint(2, 9 if rng.random() < 0.7 else 29)
        numbers = list(range(start, end + 1))
        question = f"Count from {start} to {end}."
        if start == 1 and rng.random() < 0.5:
            ask = rng.choice(["Count to {}.", "Count to {}.", "Count up to {}.",
                              "Can you count to {}?", "Please count to {}."])  # fmt: skip
            question = ask.format(spelled(end, rng))
        elif rng.random() < 0.2:
            question = f"Count from {spelled(start, rng)} to {spelled(end, rng)}."
    return Turn(question, ", ".join(map(str, numbers)))
