"""Tokens through the C API are those of Python, on a random checkpoint of each family.

Each family has a process of its own, which ends with what its engines hold.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))
from make_random_checkpoint import make_checkpoint  # noqa: E402
from model_shapes import SHAPES  # noqa: E402

FAMILIES = [shape for shape in SHAPES if shape.startswith("tiny-")]

pytestmark = [pytest.mark.nightly, pytest.mark.slow]

PROGRAM = """
import sys
from c_library import CEngine
from mlc_native import EngineConfig, SyncMLCEngine
from mlc_native.protocol.generation_config import GenerationConfig

SETTINGS = {"max_num_sequence": 4, "num_threads": 1, "max_total_sequence_length": 1024}
BODIES = [
    {"temperature": 0.0, "max_tokens": 12},
    {"temperature": 1.0, "seed": 7, "max_tokens": 12, "n": 2},
    {"temperature": 0.7, "seed": 3, "top_p": 0.9, "top_k": 40, "max_tokens": 12, "n": 2},
    {"temperature": 0.0, "max_tokens": 12, "repetition_penalty": 1.2, "frequency_penalty": 0.5},
]
CHAT = [{"role": "user", "content": "Who are you?"}]
TEXT = "The capital of France is"


def tokens_of(engine, prompt, config, begins_turn):
    answers = [[] for _ in range(config.n)]

    def collect(outputs):
        for output in outputs:
            _, group = output.unpack()
            if not output.is_final:
                for answer, delta in zip(answers, group, strict=True):
                    answer += delta.delta_token_ids

    engine.set_request_stream_callback(collect)
    engine.add_request(engine.create_request("r", prompt, config, begins_turn=begins_turn))
    while not engine.empty():
        engine.step()
    return answers


path = sys.argv[1]
num_tokens = 0
python = SyncMLCEngine(path, device="cpu", engine_config=EngineConfig(verbose=False, **SETTINGS))
with CEngine(path, **SETTINGS) as c:
    rendered = python.render_chat(CHAT)
    for body in BODIES:
        config = GenerationConfig(**body)
        for given, prompt in (({"prompt": TEXT}, TEXT), ({"messages": CHAT}, rendered.token_ids)):
            expected = tokens_of(python, prompt, config, "messages" in given)
            got = [answer.tokens for answer in c.answers({**given, **body})]
            assert got == expected, (given, body, got, expected)
            num_tokens += sum(map(len, got))
assert num_tokens > 60, num_tokens  # some answers end early
"""


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_pythons(family: str, tmp_path: Path) -> None:
    path = make_checkpoint(family, tmp_path / family)
    program = tmp_path / "compare.py"
    program.write_text(PROGRAM, encoding="utf-8")
    folders = [ROOT / "tests/python", ROOT]
    done = subprocess.run(
        [sys.executable, program, path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
