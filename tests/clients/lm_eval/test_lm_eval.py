"""lm_eval: its `local-completions` on the server against its `hf` on the same checkpoint."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, SERVER_PYTHON, Server
from demo_chat import KEY

# torch and transformers are in the environment of mlc_native alone.
_PRINT_FOLDER = "import sysconfig; print(sysconfig.get_path('purelib'))"
sys.path.append(subprocess.check_output([SERVER_PYTHON, "-c", _PRINT_FOLDER], text=True).strip())

import torch  # noqa: E402
import transformers  # noqa: E402
from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.models.openai_completions import LocalCompletionsAPI  # noqa: E402

PAIRS = [
    ("The capital of France is", " Paris."),
    ("One two three", " four five six"),
    ("A cat", " sat on the mat, and slept."),
    ("2 + 2 =", " 4"),
]


def test_log_likelihoods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
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
    requests = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(PAIRS)]
    hf = HFLM(pretrained=model, tokenizer=tokenizer, device="cpu", batch_size=1)
    expected = hf.loglikelihood(requests)

    server = Server(
        *(str(tmp_path), "--device", "cpu", "--served-model-name", "m", "--api-key", KEY)
    )
    try:
        ours = LocalCompletionsAPI(
            model="m",
            base_url=f"{server.url}/v1/completions",
            tokenizer=str(tmp_path),
            tokenizer_backend="huggingface",
            max_retries=1,
            batch_size=2,
        ).loglikelihood(requests)
    finally:
        server.stop()
    for (score, is_greedy), (expected_score, expected_greedy) in zip(ours, expected, strict=True):
        assert score == pytest.approx(expected_score, abs=1e-3)
        assert is_greedy == expected_greedy
