"""Tokens per second with and without speculation, in pairs, and what became of the guesses.

    python bench/speculation.py [--model demo] [--mode ngram] [--draft FOLDER] [--batch 1 4]
        [--precision bf16 q4] [--task repeat edit random] [--tokens 200] [--rounds 5]

Tasks: `repeat` goes on with a text that repeats itself (lookup), `edit` writes a text with one
change (a prediction of the text before the change), `json` writes records that a schema forces in
part, `questions` asks the demo model what it was trained for, `random` samples at temperature 1.5,
where hardly a guess is right. Three engines answer in turn, each round in another order: without
guesses, with them, and without once more. A figure is the median of the rounds; `again` is the
speed of the third engine over the first, which would be 1 without noise. `accepted` is the mean
number of tokens that a step with guesses yields. Real shapes: bench/speculation_pair.cc.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from mlc_native import MLCEngine

REPEATED = "one, two, three, four, five, " * 4
RECORDS: dict[str, Any] = {
    "type": "array",
    "minItems": 8,
    "items": {
        "type": "object",
        "properties": {
            "identifier": {"type": "integer", "maximum": 999},
            "description": {"type": "string", "maxLength": 8},
            "available": {"type": "boolean"},
        },
        "required": ["identifier", "description", "available"],
    },
}
TASKS = ("repeat", "edit", "json", "questions", "random")
PRECISIONS: dict[str, dict[str, Any]] = {
    "fp32": {"dtype": "float32"},
    "bf16": {"dtype": "bfloat16"},
    "q8": {"quantization": "q8"},
    "q4": {"quantization": "q4"},
}
DRAFTS = {"small_draft": "demo-draft", "eagle3": "demo-eagle3", "mtp": "demo-mtp"}
QUESTIONS = Path(__file__).parents[1] / "tests" / "python" / "data" / "demo_questions.json"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--mode", default="ngram", choices=["ngram", "suffix", *DRAFTS])
    parser.add_argument("--draft", help="the draft model or head; default: the demo model's")
    parser.add_argument("--length", type=int, default=0, help="spec_draft_length")
    parser.add_argument("--jump", action="store_true", help="json: jump-forward decoding, too")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4])
    parser.add_argument(
        "--precision", nargs="+", default=["as stored"], choices=["as stored", *PRECISIONS]
    )
    parser.add_argument("--task", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    return parser.parse_args()


def request(task: str, off: MLCEngine, args: argparse.Namespace) -> dict[str, Any]:
    """What is asked of both engines."""
    asked: dict[str, Any] = {
        "prompt": REPEATED,
        "temperature": 1.5 if task == "random" else 0,
        "seed": 1,
        "max_tokens": args.tokens,
        "ignore_eos": task != "json",
    }
    if task == "questions":
        return {"temperature": 0, "max_tokens": args.tokens}
    if task == "json":
        asked["response_format"] = {"type": "json_schema", "json_schema": {"schema": RECORDS}}
        if not args.jump:
            asked["debug_config"] = {"grammar_execution_mode": "constraint"}
    if task == "edit":
        asked["prompt"] = "The quick brown fox"
        text = off.completions.create(**asked).choices[0].text
        middle = len(text) // 2
        changed = text[:middle] + " zebra" + text[middle:]
        asked["prediction"] = {"type": "content", "content": changed}
    return asked


def measure(engine: MLCEngine, asked: dict[str, Any], batch: int) -> tuple[float, int, Any]:
    """Tokens per second, steps, and the answers."""
    if "prompt" not in asked:
        return measure_questions(engine, asked, batch)
    prompts = [asked["prompt"]] * batch
    steps = engine.metrics()["num_steps"]
    start = time.perf_counter()
    response = engine.completions.create(**{**asked, "prompt": prompts})
    seconds = time.perf_counter() - start
    assert response.usage is not None
    texts = [choice.text for choice in response.choices]
    rate = response.usage.completion_tokens / seconds
    return rate, engine.metrics()["num_steps"] - steps, texts


def measure_questions(
    engine: MLCEngine, asked: dict[str, Any], batch: int
) -> tuple[float, int, Any]:
    """The same for the questions, `batch` of them at once."""
    questions = [question["question"] for question in json.loads(QUESTIONS.read_text())]
    chats = [[{"role": "user", "content": question}] for question in questions]
    settings = dict(asked)
    settings |= settings.pop("extra_body", {})
    steps = engine.metrics()["num_steps"]
    start = time.perf_counter()
    results = []
    for begin in range(0, len(chats), batch):
        results += engine.generate(chats[begin : begin + batch], **settings)
    seconds = time.perf_counter() - start
    num_tokens = sum(len(result.token_ids) for result in results)
    texts = [result.text for result in results]
    return num_tokens / seconds, engine.metrics()["num_steps"] - steps, texts


def drafted(engine: MLCEngine) -> tuple[int, int]:
    """Drafts so far, and tokens of them that were right."""
    spec = engine.metrics().metrics.get("spec_decode", {})
    return spec.get("num_drafts", 0), spec.get("num_accepted_tokens", 0)


def compare(
    engines: dict[str, MLCEngine], precision: str, task: str, batch: int, args: argparse.Namespace
) -> None:
    """Prints one row of the table."""
    asked = request(task, engines["off"], args)
    without = {**asked, "extra_body": {"speculative": False}}
    rates: dict[str, list[float]] = {name: [] for name in engines}
    steps: dict[str, int] = {}
    names = list(engines)
    for i in range(args.rounds + 1):  # the first one warms up
        texts = {}
        before = drafted(engines["on"])
        for name in names[i % 3 :] + names[: i % 3]:
            body = asked if name == "on" else without
            rate, steps[name], texts[name] = measure(engines[name], body, batch)
            rates[name].append(rate)
        drafts, right = (b - a for a, b in zip(before, drafted(engines["on"]), strict=True))
        assert texts["off"] == texts["on"], "speculation has changed an answer"

    def ratio(name: str) -> float:
        pairs = zip(rates["off"][1:], rates[name][1:], strict=True)
        return statistics.median(rate / off for off, rate in pairs)

    tokens = {name: statistics.median(of[1:]) for name, of in rates.items()}
    print(
        f"| {precision} | {task} | {batch} | {tokens['off']:.0f} | {tokens['on']:.0f} "
        f"| {ratio('on'):.2f} | {ratio('again'):.2f} "
        f"| {steps['off']} | {steps['on']} | {1 + right / max(1, drafts):.2f} |",
        flush=True,
    )


def main() -> None:
    args = arguments()
    settings: dict[str, Any] = {"max_num_sequence": max(args.batch), "num_threads": args.threads}
    settings["max_total_sequence_length"] = 2 * max(args.batch) * (args.tokens + 512)
    draft = args.draft or DRAFTS.get(args.mode)
    guessing = {
        "speculative_mode": args.mode,
        "additional_models": [draft] if draft else [],
        "spec_draft_length": args.length,
    }
    print("| | task | batch | tok/s off | on | speed-up | again | steps off | on | accepted |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for precision in args.precision:
        settings |= PRECISIONS.get(precision, {})
        engines = {
            "off": MLCEngine(args.model, **settings),
            "on": MLCEngine(args.model, **settings, **guessing),
            "again": MLCEngine(args.model, **settings),
        }
        for batch in args.batch:
            for task in args.task:
                compare(engines, precision, task, batch, args)
        print(engines["on"].metrics().metrics.get("spec_decode"), file=sys.stderr)
        for engine in engines.values():
            engine.terminate()
        for setting in PRECISIONS.get(precision, {}):
            del settings[setting]


if __name__ == "__main__":
    main()
