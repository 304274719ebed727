"""lm_eval: its `local-completions` on the server against its `hf` on the same checkpoint.

The task is a file of this test, in lm_eval's own format, with multiple choices.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, SERVER_PYTHON, Server
from demo_chat import KEY

# torch and transformers are in the environment of mlc_native alone.
_PRINT_FOLDER = "import sysconfig; print(sysconfig.get_path('purelib'))"
sys.path.append(subprocess.check_output([SERVER_PYTHON, "-c", _PRINT_FOLDER], text=True).strip())

os.environ["HF_HUB_OFFLINE"] = "1"  # which the libraries read when they are imported

import torch  # noqa: E402
import transformers  # noqa: E402
from lm_eval.evaluator import simple_evaluate  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.models.openai_completions import LocalCompletionsAPI  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

TASK = "endings"
QUESTIONS = [
    ("The capital of France is", ["Paris.", "Rome.", "a cat, and slept."], 0),
    ("One two three", ["four five six", "seven"], 0),
    ("A cat", ["sat on the mat, and slept.", "is 4", "barks"], 0),
    ("2 + 2 =", ["5", "4", "22"], 1),
]


def write_task(folder: Path) -> None:
    """A task for lm_eval: its description and its questions."""
    questions = folder / "questions.jsonl"
    with questions.open("w") as lines:
        for begin, endings, label in QUESTIONS:
            row = {"begin": begin, "endings": endings, "label": label}
            lines.write(json.dumps(row) + "\n")
    metrics = [{"metric": name, "higher_is_better": True} for name in ("acc", "acc_norm")]
    task = {
        "task": TASK,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(questions)}, "cache_dir": str(folder)},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{begin}}",
        "doc_to_choice": "{{endings}}",
        "doc_to_target": "label",
        "metric_list": metrics,
    }
    (folder / f"{TASK}.yaml").write_text(json.dumps(task))  # JSON is YAML


def evaluate(model: Any, folder: Path) -> tuple[dict[str, Any], list[tuple[float, bool]]]:
    """The task's metrics, and the log-likelihood of each ending with whether it is greedy."""
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    results = simple_evaluate(
        model, tasks=[TASK], task_manager=manager, bootstrap_iters=0, log_samples=True
    )
    samples = sorted(results["samples"][TASK], key=lambda sample: sample["doc_id"])
    scores = [
        (float(score), str(is_greedy) == "True")
        for sample in samples
        for score, is_greedy in sample["filtered_resps"]
    ]
    return results["results"][TASK], scores


def test_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    task = tmp_path / "task"
    task.mkdir()
    write_task(task)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(ROOT / "mlc_native/demo_model/tokenizer.json"),
        bos_token="<|bos|>",
        eos_token="<|end|>",
        pad_token="<|end|>",
    )
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.3,  # scores that differ
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = transformers.LlamaForCausalLM(config).float()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    hf = HFLM(pretrained=model, tokenizer=tokenizer, device="cpu", batch_size=1)
    expected_metrics, expected = evaluate(hf, task)

    server = Server(
        *(str(tmp_path), "--device", "cpu", "--served-model-name", "m", "--api-key", KEY)
    )
    try:
        client = LocalCompletionsAPI(
            model="m",
            base_url=f"{server.url}/v1/completions",
            tokenizer=str(tmp_path),
            tokenizer_backend="huggingface",
            max_retries=1,
            batch_size=2,
        )
        metrics, ours = evaluate(client, task)
    finally:
        server.stop()
    assert len(ours) == sum(len(endings) for _, endings, _ in QUESTIONS)
    for (score, is_greedy), (expected_score, expected_greedy) in zip(ours, expected, strict=True):
        assert score == pytest.approx(expected_score, abs=1e-3)
        assert is_greedy == expected_greedy
    for name in ("acc,none", "acc_norm,none"):
        assert metrics[name] == expected_metrics[name]
