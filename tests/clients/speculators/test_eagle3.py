"""speculators: the EAGLE-3 heads that it writes and converts, and what it guesses itself.

The package trains on drafts of several tokens with the right tokens as inputs. Given our guesses as
those tokens, each of its guesses at the last position is ours if all before it are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, SERVER_PYTHON

# torch is in the environment of mlc_native alone.
_PRINT_FOLDER = "import sysconfig; print(sysconfig.get_path('purelib'))"
sys.path.append(subprocess.check_output([SERVER_PYTHON, "-c", _PRINT_FOLDER], text=True).strip())

os.environ |= {"HF_HUB_OFFLINE": "1", "TORCHDYNAMO_DISABLE": "1"}  # read at import

import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from speculators.config import SpeculatorsConfig, VerifierConfig  # noqa: E402
from speculators.convert.eagle.eagle3_converter import Eagle3Converter  # noqa: E402
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig  # noqa: E402
from speculators.proposals.greedy import GreedyTokenProposalConfig  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config  # noqa: E402

torch.set_num_threads(1)  # small matrices

VOCAB, DRAFT_VOCAB, HIDDEN, LAYERS = 512, 200, 64, 7
PROMPT, POSITIONS, LENGTH = 5, 20, 4  # as in draft_driver.py, which the assertions below check
STREAMS = [2, 3, 4]
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "initializer_range": 0.3,
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> LlamaForCausalLM:
    """A random model, in the folder that its config names."""
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=LAYERS, **SIZES)).float().eval()
    folder = tmp_path_factory.mktemp("target")
    model.save_pretrained(folder)
    model.config.name_or_path = str(folder)
    return model


def randomize(head: Eagle3DraftModel, draft_vocab: int) -> None:
    """Weights whose outputs vary enough for clear maxima."""
    torch.manual_seed(2)
    with torch.no_grad():
        for weight in head.parameters():
            if weight.dim() == 1:
                weight.copy_(1 + 0.3 * torch.randn_like(weight))
            else:
                weight.copy_(torch.randn_like(weight) * weight.shape[-1] ** -0.5)
    if draft_vocab < VOCAB:
        ids = torch.randperm(VOCAB)[:draft_vocab].sort().values
        t2d = torch.zeros(VOCAB, dtype=torch.bool).index_fill(0, ids, True)
        head.load_vocab_mappings(t2d, ids - torch.arange(draft_vocab))


def make_head(
    target: LlamaForCausalLM, layer: type[LlamaConfig | Qwen3Config], **fields: Any
) -> Eagle3DraftModel:
    folder = target.config.name_or_path
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=layer(num_hidden_layers=1, **SIZES),
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=LENGTH)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path=folder, architectures=["LlamaForCausalLM"]),
        ),
        **{"draft_vocab_size": DRAFT_VOCAB, "eagle_aux_hidden_state_layer_ids": STREAMS, **fields},
    )
    config.transformer_layer_config._attn_implementation = "eager"
    head = Eagle3DraftModel(config).float().eval()
    randomize(head, config.draft_vocab_size)
    return head


def random_texts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(VOCAB, (2, PROMPT + POSITIONS + 1), generator=generator).tolist()


def our_drafts(head: Path, target: LlamaForCausalLM, texts: list[list[int]]) -> dict[str, Any]:
    asked = {"head": str(head), "target": target.config.name_or_path, "texts": texts}
    run = subprocess.run(
        [SERVER_PYTHON, str(Path(__file__).with_name("our_drafts.py"))],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0, run.stderr
    drafts: dict[str, Any] = json.loads(run.stdout)
    return drafts


def its_guesses(
    head: Eagle3DraftModel, states: torch.Tensor, text: list[int], end: int, draft: list[int]
) -> list[int]:
    """What the package guesses behind the first ``end`` rows, given the tokens of ``draft``."""
    behind = torch.zeros(LENGTH, states.shape[1])  # no row in front of these sees them
    given = torch.tensor([text[1 : end + 1] + draft])
    with torch.inference_mode():
        guesses = head(
            hidden_states=torch.cat([states[:end], behind])[None],
            input_ids=given,
            document_ids=torch.zeros_like(given),
            ttt_steps=LENGTH,
        )
    ids = [int(step[0, end - 1]) for step in guesses]
    return ids if head.d2t is None else [i + int(head.d2t[i]) for i in ids]


def load(folder: Path, target: LlamaForCausalLM) -> Eagle3DraftModel:
    """The head as the package reads it, with the target's embeddings if it has none."""
    config = Eagle3SpeculatorConfig.from_pretrained(folder)
    config.transformer_layer_config._attn_implementation = "eager"
    head = Eagle3DraftModel.from_pretrained(folder, config=config).float().eval()
    if "embed_tokens.weight" not in load_file(folder / "model.safetensors"):
        head.embed_tokens.weight.data.copy_(target.model.embed_tokens.weight)
    return head


def check(folder: Path, target: LlamaForCausalLM) -> None:
    """The package loads the folder that we load, and each guess of ours is its own."""
    head = load(folder, target)
    texts = random_texts()
    ours = our_drafts(folder, target, texts)
    assert ours["streams"] == (head.config.eagle_aux_hidden_state_layer_ids or STREAMS)
    assert len(ours["drafts"]) == POSITIONS
    seen = set()
    for i, text in enumerate(texts):
        with torch.inference_mode():
            hidden = target(torch.tensor([text]), output_hidden_states=True).hidden_states
        states = torch.cat([hidden[stream][0] for stream in ours["streams"]], dim=-1)
        for end, drafts in enumerate(ours["drafts"], PROMPT + 1):
            assert len(drafts[i]) == LENGTH
            assert drafts[i] == its_guesses(head, states, text, end, drafts[i]), (end, i)
            seen.update(drafts[i])
    assert len(seen) > POSITIONS


HEADS: dict[str, dict[str, Any]] = {
    "plain": {},
    "norm_before_residual": {"norm_before_residual": True},
    "whole vocabulary": {"draft_vocab_size": VOCAB},
    "other streams": {"eagle_aux_hidden_state_layer_ids": [1, 5, 6]},
    "norm_before_fc": {"norm_before_fc": True},
    "fc_norm": {"fc_norm": True, "norm_before_residual": True},
    "norm_output": {"norm_output": True},
}


@pytest.mark.parametrize("layer", [LlamaConfig, Qwen3Config])
@pytest.mark.parametrize("fields", HEADS.values(), ids=HEADS)
def test_heads_of_speculators(
    fields: dict[str, Any], layer: type[LlamaConfig], target: LlamaForCausalLM, tmp_path: Path
) -> None:
    make_head(target, layer, **fields).save_pretrained(tmp_path)
    check(tmp_path, target)


@pytest.mark.parametrize("name", ["LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM"])
def test_heads_that_speculators_converts(
    name: str, target: LlamaForCausalLM, tmp_path: Path
) -> None:
    """SafeAILab's and AngelSlim's layout of the same tensors: our guesses are the same for both."""
    make_head(target, LlamaConfig).save_pretrained(tmp_path / "written")
    tensors = load_file(tmp_path / "written" / "model.safetensors")
    tensors.pop("embed_tokens.weight", None)
    original = tmp_path / "original"
    original.mkdir()
    of_authors = {k.replace("layers.0.", "midlayer."): v for k, v in tensors.items()}
    save_file(of_authors, original / "model.safetensors")
    config = {**SIZES, "model_type": "llama", "num_hidden_layers": 1, "architectures": [name]}
    config |= {"draft_vocab_size": DRAFT_VOCAB, "rope_theta": 10000.0, "torch_dtype": "float32"}
    (original / "config.json").write_text(json.dumps(config))
    Eagle3Converter().convert(
        original,
        tmp_path / "converted",
        target.config.name_or_path,
        validate=False,
        eagle_aux_hidden_state_layer_ids=STREAMS,
    )
    check(tmp_path / "converted", target)
    texts = random_texts()
    drafts = our_drafts(original, target, texts)
    assert drafts == our_drafts(tmp_path / "converted", target, texts)
