"""No JSON schema is accepted and not enforced: grammars against the package jsonschema.

Nightly, with the cases of JSON-Schema-Test-Suite (draft 2020-12), which the source archive of
jsonschema on PyPI carries; nothing of it is kept here. Otherwise with schemas drawn at random,
others for each commit. MLC_NATIVE_SCHEMA_SEED draws the same again.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from schema_grammars import ROOT, SchemaDraw, SchemaGrammars, is_valid, program, read, texts_of

pytestmark = pytest.mark.skipif(
    not program().exists(), reason="needs mlc_native_schemas (MLC_NATIVE_BUILD_TESTS=1)"
)
NUM_SAMPLES = 200
# What is about another dialect, or another document.
LEFT_OUT = ("vocabulary.json", "refRemote.json")


@pytest.fixture(scope="module")
def grammars() -> Iterator[SchemaGrammars]:
    answers = SchemaGrammars()
    yield answers
    answers.close()


def check_samples(schema: Any, samples: tuple[str, ...], strict: bool) -> None:
    for text in samples:
        if "\ufffd" in text:  # bytes that are no UTF-8; the grammar library lets surrogates pass
            continue
        assert is_valid(schema, read(text)), (json.dumps(schema), strict, text)


def check_drawn(grammars: SchemaGrammars, seed: int, num_samples: int) -> bool:
    """Whether one drawn schema is accepted; then it is enforced."""
    draw = SchemaDraw(seed)
    schema, strict = draw.with_definition(), seed % 2 == 0
    first = grammars.ask(schema, strict, [], samples=num_samples, seed=seed)
    if first.refused:
        return False
    check_samples(schema, first.samples, strict)
    values = [draw.value() for _ in range(20)]
    values += [draw.mutated(read(text)) for text in first.samples for _ in range(2)]
    texts = [text for value in values for text in texts_of(value)]
    for text, accepts in zip(texts, grammars.ask(schema, strict, texts).accepts, strict=True):
        assert not accepts or is_valid(schema, read(text)), (json.dumps(schema), strict, text)
    return True


def first_seed() -> int:
    """Another one for each commit, so that CI looks at other schemas each time."""
    if "MLC_NATIVE_SCHEMA_SEED" in os.environ:
        return int(os.environ["MLC_NATIVE_SCHEMA_SEED"])
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=7", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return int(commit or "0", 16) * 1000


def test_drawn_schemas_are_enforced(grammars: SchemaGrammars) -> None:
    first = first_seed()
    accepted = sum(check_drawn(grammars, first + i, 10) for i in range(60))
    assert accepted > 10


def drawn_pattern(rng: random.Random, depth: int) -> str:
    """Alternatives, groups and repetitions of three letters."""

    def part() -> str:
        if depth > 0 and rng.random() < 0.5:
            return f"({drawn_pattern(rng, depth - 1)})"
        return rng.choice(["a", "b", "c", "[ab]", "[^a]"])

    repetitions = ["", "", "?", "*", "+", "{0,2}", "{2}", "{2,}"]
    branches = [
        "".join(part() + rng.choice(repetitions) for _ in range(rng.randint(1, 3)))
        for _ in range(rng.choice([1, 1, 2]))
    ]
    return "|".join(branches)


def test_patterns_match_what_they_say(grammars: SchemaGrammars) -> None:
    """On all short texts, since the grammar library reads "(ab*)?" in a way of its own."""
    rng = random.Random(11)
    texts = ["".join(text) for size in range(5) for text in itertools.product("abc", repeat=size)]
    patterns = ["(ab*)?", "(b*a)?", "(b{2,})?c", *(drawn_pattern(rng, 2) for _ in range(80))]
    for pattern in patterns:
        schema = {"type": "string", "pattern": f"^({pattern})$"}
        answer = grammars.ask(schema, True, [f'"{text}"' for text in texts])
        assert not answer.refused, pattern
        expected = tuple(re.fullmatch(pattern, text) is not None for text in texts)
        assert answer.accepts == expected, pattern


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.hangs_after(3600)
def test_many_drawn_schemas_are_enforced(grammars: SchemaGrammars) -> None:
    first = first_seed()
    accepted = sum(check_drawn(grammars, first + i, 40) for i in range(5000))
    print(f"{accepted} of 5000 drawn schemas are accepted")
    assert accepted > 1000


def suite_folder(tmp_path: Path) -> Path:
    """The cases of the installed version of jsonschema."""
    if "MLC_NATIVE_SCHEMA_SUITE" in os.environ:
        return Path(os.environ["MLC_NATIVE_SCHEMA_SUITE"])
    wanted = f"jsonschema=={jsonschema.__version__}"
    download = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:"]
    command = [*download, wanted, "-d", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no source archive of {wanted}: {done.stderr[-300:]}")
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    return next(tmp_path.glob("*/json/tests/draft2020-12"))


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.hangs_after(3600)
def test_the_suite_is_enforced(grammars: SchemaGrammars, tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    errors = []
    for file in sorted(suite_folder(tmp_path).glob("*.json")):
        if file.name in LEFT_OUT:
            continue
        for group in json.loads(file.read_text(encoding="utf-8")):
            for strict in (True, False):
                errors += check_group(grammars, group, strict, counts, refusals)
    print(dict(counts), refusals.most_common(), sep="\n")
    assert errors == []
    assert counts["strict=False schemas accepted"] > counts["strict=False schemas"] / 2


def check_group(
    grammars: SchemaGrammars,
    group: dict[str, Any],
    strict: bool,
    counts: Counter[str],
    refusals: Counter[str],
) -> list[str]:
    """The samples and instances of a schema that are accepted and invalid."""
    schema, where = group["schema"], f"strict={strict} "
    texts = [(text, test["valid"]) for test in group["tests"] for text in texts_of(test["data"])]
    answer = grammars.ask(schema, strict, [text for text, _ in texts], NUM_SAMPLES, seed=1)
    counts[where + "schemas"] += 1
    if answer.refused:
        refusals[where + answer.refused.split(" of the JSON schema")[0].rsplit("/", 1)[-1]] += 1
        return []
    counts[where + "schemas accepted"] += 1
    counts[where + "samples"] += len(answer.samples)
    errors = []
    for (text, valid), accepts in zip(texts, answer.accepts, strict=True):
        counts[where + ("valid" if valid else "invalid") + " texts"] += 1
        counts[where + ("valid" if valid else "invalid") + " texts accepted"] += accepts
        if accepts and not valid:
            errors.append(f"{group['description']} {json.dumps(schema)} accepts {text}")
    for text in answer.samples:
        try:
            valid = is_valid(schema, read(text))
        except ValueError:
            valid = False
        if not valid:
            errors.append(f"{group['description']} {json.dumps(schema)} writes {text}")
            break
    return errors
