"""Train the demo model, its draft model and its draft heads on text written by this script.

    python tools/train_demo_model.py                 # everything: three hours on one core
    python tools/train_demo_model.py --part draft    # only the draft
    python tools/train_demo_model.py --part main --go-on   # the steps that the recipe has more
    python tools/train_demo_model.py --part eagle3   # only a head, for the main model in --out

Nothing is downloaded. The text comes from tools/demo_model/text.py (greetings, small arithmetic,
capitals, colours, counting, spelling, JSON, tool calls, short stories), seeded; training runs on
CPU and resumes from --work if it was stopped. The results are two Hugging Face folders,
mlc_native/demo_model and mlc_native/demo_model/draft, with the same tokenizer, and the heads in
mlc_native/demo_model/eagle3 and mtp; each holds a training.json that says how its weights came
about. A head belongs to the weights of its main model: train it again after them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from demo_model import heads
from demo_model.tokenizer import BOS, END, EOS, PAD, save_tokenizer, train_tokenizer
from demo_model.training import (
    CONTEXT,
    HELD_OUT_SEED,
    RECIPES,
    Progress,
    Recipe,
    accuracy,
    build_model,
    held_out_loss,
    train,
)
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM
from transformers.utils import logging as transformers_logging

VOCAB_SIZE = 2048
TOKENIZER_SEED = 0
STORED_DTYPE = torch.bfloat16
DEFAULT_OUT = Path(__file__).resolve().parents[1] / "mlc_native" / "demo_model"


def get_tokenizer(work: Path) -> Tokenizer:
    """The tokenizer; made once per work folder, so that both models have the same."""
    path = work / "tokenizer.json"
    if not path.exists():
        train_tokenizer(TOKENIZER_SEED, VOCAB_SIZE).save(str(path))
    return Tokenizer.from_file(str(path))


def export(model: LlamaForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    """Write a Hugging Face folder with the weights in STORED_DTYPE."""
    stored: torch.nn.Module = model
    stored.to(STORED_DTYPE)
    model.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    save_tokenizer(tokenizer, folder, CONTEXT)
    generation = {"bos_token_id": BOS, "eos_token_id": [END, EOS], "pad_token_id": PAD,
                  "do_sample": True, "temperature": 0.7, "top_p": 0.95}  # fmt: skip
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def report(recipe: Recipe, progress: Progress, tokenizer: Tokenizer, folder: Path) -> dict:
    """What training.json says; losses and accuracies are of the stored weights, run in float32."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    shares, missed = accuracy(model, tokenizer)
    for question, right, given in missed[:40]:
        print(f"  missed: {question!r}: {given!r}, not {right!r}")
    return {
        "recipe": dataclasses.asdict(recipe),
        "parameters": sum(p.numel() for p in model.parameters()),
        "stored_dtype": str(STORED_DTYPE).removeprefix("torch."),
        "data": {
            "generator": "tools/demo_model/text.py",
            "documents": progress.documents,
            "tokens": progress.tokens,
            "learned_tokens": progress.learned_tokens,
            "note": "learned: the assistant's tokens of chats and all tokens of plain documents; "
            "rows of 256 tokens, every tenth step rows of 1024",
        },
        "tokenizer_seed": TOKENIZER_SEED,
        "steps": progress.step,
        "seconds": round(progress.seconds),
        "seconds_note": "wall time of the training loop beside other work on the same cores; "
        "checkpoints and evaluation are not counted",
        "hardware": f"{platform.machine()} CPU, {torch.get_num_threads()} thread, float32, "
        f"torch {torch.__version__.split('+')[0]}",
        "train_loss": round(progress.train_loss, 4),
        "held_out_loss": round(held_out_loss(model, tokenizer), 4),
        "held_out": f"text of seed {HELD_OUT_SEED}, never drawn in training; it asks about the "
        "same facts, so this measures recall, not generalisation",
        "exact_answers": shares,
        "exact_answers_note": "100 questions per topic, temperature 0; arithmetic_unseen_pairs: "
        "two-digit operands whose pairs training leaves out",
        "loss_by_step": progress.history,
    }


def stored(folder: Path) -> tuple[LlamaForCausalLM, Tokenizer, Progress, list[int]]:
    """A model as it was exported, and how far its training had come.

    The last value are the steps at which training went on like this, without the optimizer's state
    and from weights in STORED_DTYPE.
    """
    told = json.loads((folder / "training.json").read_text())
    data = {name: told["data"][name] for name in ("documents", "tokens", "learned_tokens")}
    history = [(step, loss) for step, loss in told["loss_by_step"]]
    progress = Progress(step=told["steps"], seconds=told["seconds"], history=history, **data)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return model, tokenizer, progress, [*told.get("went_on_at", []), progress.step]


def run_part(part: str, work: Path, out: Path, go_on: bool) -> None:
    """Train (or finish training) one model, export it and write its training.json."""
    recipe = RECIPES[part]
    folder = out if part == "main" else out / part
    went_on_at: list[int] = []
    begin = None
    if go_on:
        model, tokenizer, begin, went_on_at = stored(folder)
    else:
        model, tokenizer = build_model(recipe, VOCAB_SIZE), get_tokenizer(work)
    num_known = len(begin.history) if begin else 0
    progress = train(
        *(recipe, model, tokenizer, work / f"{part}.pt"),
        log=lambda line: print(f"{part}: {line}", flush=True),
        begin=begin,
    )
    progress.history = progress.history[:num_known] + progress.history[num_known:][3::4]
    export(model, tokenizer, folder)
    told = report(recipe, progress, tokenizer, folder)
    if went_on_at:
        told["went_on_at"] = went_on_at
        told["went_on_note"] = (
            "steps from which training went on from the stored weights, without the optimizer's "
            "state; the text had fewer phrasings before"
        )
    (folder / "training.json").write_text(json.dumps(told, indent=1) + "\n")
    print(f"{part}: held-out loss {told['held_out_loss']}, {told['exact_answers']}")


def head_config(kind: str, main: dict) -> dict:
    """The config.json of a head: that of its target, except what differs."""
    recipe = heads.RECIPES[kind]
    names = ("bos_token_id", "eos_token_id", "head_dim", "hidden_act", "max_position_embeddings",
             "rms_norm_eps", "rope_parameters", "vocab_size")  # fmt: skip
    config = {name: main[name] for name in names} | {
        "dtype": str(STORED_DTYPE).removeprefix("torch."),
        "hidden_size": recipe.hidden,
        "intermediate_size": recipe.ffn,
        "num_attention_heads": recipe.heads,
        "num_key_value_heads": recipe.kv_heads,
        "attention_bias": False,
        "tie_word_embeddings": False,
    }
    if kind == "eagle3":
        return config | {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "num_hidden_layers": 1,
            "draft_vocab_size": heads.DRAFT_VOCAB,
            "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(heads.AUX_LAYERS)},
        }
    return config | {
        "architectures": ["MiMoForCausalLM"],
        "model_type": "mimo",
        "num_hidden_layers": main["num_hidden_layers"],
        "num_nextn_predict_layers": 1,
    }


def run_head(kind: str, out: Path) -> None:
    """Train a head for the main model in `out`, export it and write its training.json."""
    model = LlamaForCausalLM.from_pretrained(out, dtype=torch.float32)
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    head, seconds = heads.train_head(
        *(kind, model, tokenizer), log=lambda line: print(f"{kind}: {line}", flush=True)
    )
    folder = out / kind
    folder.mkdir(exist_ok=True)
    head.to(STORED_DTYPE)
    save_file(heads.tensors(head), folder / "model.safetensors")
    head.float()
    config = head_config(kind, json.loads((out / "config.json").read_text()))
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    told = {
        "recipe": dataclasses.asdict(heads.RECIPES[kind]),
        "parameters": sum(p.numel() for p in head.parameters()),
        "stored_dtype": str(STORED_DTYPE).removeprefix("torch."),
        "seconds": round(seconds),
        "taken": heads.taken(head, model, tokenizer),
        "taken_note": "shares of the positions of held-out answers at which the target would take "
        f"the first, the first two and all {heads.STEPS} greedy drafts",
        "target_training_steps": json.loads((out / "training.json").read_text())["steps"],
    }
    (folder / "training.json").write_text(json.dumps(told, indent=1) + "\n")
    print(f"{kind}: taken {told['taken']}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parts = [*RECIPES, *heads.RECIPES]
    parser.add_argument("--part", choices=["all", *parts], default="all")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--work", type=Path, default=Path("/tmp/mlc_native_demo_training"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--go-on",
        action="store_true",
        help="from the stored weights, by the steps that the recipe has more",
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    transformers_logging.disable_progress_bar()
    args.work.mkdir(parents=True, exist_ok=True)
    for part in parts if args.part == "all" else [args.part]:
        if part in RECIPES:
            run_part(part, args.work, args.out, args.go_on)
        else:
            run_head(part, args.out)


if __name__ == "__main__":
    main()
