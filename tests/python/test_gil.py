"""What reads the files of a model lets the other threads of Python run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mlc_native import _core

gguf = pytest.importorskip("gguf")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file with a vocabulary, and a tokenizer.json of it beside the file."""
    path = tmp_path_factory.mktemp("gil") / "model.gguf"
    tokens = [*(chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256)))]
    tokens += [chr(256 + i) for i in range(68)] + ["t1"] + [f"t{i}" for i in range(10, 20_000)]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(tokens)
    writer.add_token_merges(["t 1"])
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
    writer.add_tensor("token_embd.weight", np.zeros((len(tokens), 32), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    text = _core.made_text(f"{path}/tokenizer.json")
    assert text is not None
    (path.parent / "tokenizer.json").write_text(text, encoding="utf-8")
    return path


def another_runs(call: Callable[[], object]) -> bool:
    """Whether a thread that wants to run does so before the call ends.

    It does not get the GIL because it waits, but only because the call releases it.
    """
    turns: list[bool] = []
    begin = threading.Lock()

    def take_turn() -> None:
        with begin:
            turns.append(True)

    before = sys.getswitchinterval()
    begin.acquire()
    thread = threading.Thread(target=take_turn)
    thread.start()
    try:
        sys.setswitchinterval(1000)
        begin.release()
        call()
        return bool(turns)
    finally:
        sys.setswitchinterval(before)
        thread.join()


CALLS: dict[str, Callable[[Path], object]] = {
    "has_model_file": lambda model: _core.has_model_file(f"{model}/tokenizer.json"),
    "made_text": lambda model: _core.made_text(f"{model}/tokenizer.json"),
    "TokenTable": lambda model: _core.TokenTable.from_tokenizer_json(
        str(model.parent / "tokenizer.json")
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_other_threads_run(name: str, model: Path) -> None:
    # The system may take its time to wake a thread.
    assert any(another_runs(lambda: CALLS[name](model)) for _ in range(100))
