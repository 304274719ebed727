"""Grammars that take long, with the real library: the same answers, and an end."""

from __future__ import annotations

from typing import Any

import pytest

from mlc_native import MLCEngine
from mlc_native.errors import EngineRequestError

pytest.importorskip("xgrammar")

AMBIGUOUS = {"type": "grammar", "grammar": 'root ::= root root | "a" | ""'}
RECORD = {
    "type": "object",
    "properties": {
        "customer_identifier": {"type": "integer", "minimum": 0, "maximum": 9999},
        "preferred_language": {"enum": ["english", "german", "french"]},
        "is_premium_member": {"type": "boolean"},
    },
    "required": ["customer_identifier", "preferred_language", "is_premium_member"],
}
FORMATS: list[dict[str, Any]] = [
    {"type": "json_schema", "json_schema": {"name": "record", "schema": RECORD}},
    {"type": "regex", "regex": "([a-z]+ ){3,30}[a-z]+"},
    {"type": "choice", "choice": ["an owl", "an otter", "another owl"]},
]


def answers(engine: MLCEngine, **options: Any) -> list[str]:
    found = []
    for number, response_format in enumerate(FORMATS):
        for mode in ("jump_forward", "constraint"):
            answer = engine.completions.create(
                prompt="Tell me",
                response_format=response_format,
                seed=number,
                temperature=1,
                max_tokens=80,
                n=2,
                extra_body={"debug_config": {"grammar_execution_mode": mode}},
                **options,
            )
            found += [choice.text for choice in answer.choices]
    return found


@pytest.mark.parametrize("mode", ["disable", "ngram"])
def test_answers_do_not_depend_on_the_budget(mode: str) -> None:
    settings: dict[str, Any] = {"verbose": False, "speculative_mode": mode}
    with MLCEngine("demo", grammar_step_budget_s=3600, **settings) as engine:
        expected = answers(engine)
    with MLCEngine("demo", grammar_step_budget_s=1e-7, **settings) as engine:  # all are slow
        assert answers(engine) == expected


def test_beyond_the_limit_a_request_ends_with_an_error() -> None:
    with MLCEngine("demo", grammar_time_limit_s=0.2, verbose=False) as engine:
        token = engine.tokenizer.encode("a")[0]
        chunks = engine.completions.create(
            prompt="x",
            stream=True,
            max_tokens=4000,
            response_format=AMBIGUOUS,
            logit_bias={str(token): 50},
            extra_body={"ignore_eos": True},
        )
        texts: list[str] = []
        with pytest.raises(EngineRequestError, match=r'"grammar_time_limit_s" is 0\.2'):
            texts.extend(chunk.choices[0].text for chunk in chunks)
        text = "".join(texts)
        assert text
        assert set(text) == {"a"}
        assert engine.completions.create(prompt="x", max_tokens=3).choices[0].finish_reason
