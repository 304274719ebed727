"""Bugs in chunks of attention, in gates of what attention gives and in experts whose inputs are
scaled, which tests of the kernels find."""

from __future__ import annotations

from planted.bug import Bug

WINDOW = "kernels/window.h"
PREFILL = "kernels/cuda/prefill_rows.cuh"
SPLITS = "kernels/cuda/decode_splits.cu"
ROWWISE = "kernels/cpu/rowwise.inl"
EXPERTS = "kernels/experts.cc"
EXPERTS_ON_GPUS = "kernels/cuda/experts.cu"
GATES_ON_GPUS = "kernels/cuda/delta_rule.cu"

CPU = "kernels_test *AttentionTest.MatchesReference*:*ExpertsTest*:*Gates*:AttentionWindowTest.*"
CUDA = "cuda_test PrefillAttentionTest.*:DecodeAttentionTest.*:CudaExpertsTest.*:*GateIsASigmoid*"


def _bug(name: str, file: str, old: str, new: str, tests: str) -> Bug:
    return Bug(f"chunks, gates and scaled inputs: {name}", file, old, new, tests)


BUGS = [
    _bug(
        "a chunk begins one key late",
        WINDOW,
        "    if (is_chunk) return position - position % size;",
        "    if (is_chunk) return position - position % size + 1;",
        CPU,
    ),
    _bug(
        "attention of the CPU takes chunks for windows",
        "kernels/cpu/attention.inl",
        "  return {args.window.First(position), ",
        "  return {AttentionWindow(args.window.size).First(position), ",
        CPU,
    ),
    _bug(
        "rows of a tile have the chunk of the first one",
        PREFILL,
        "position - first >= args.chunk ? first + args.chunk : first;",
        "first;",
        CUDA,
    ),
    _bug(
        "the last row of a tile sees what the first one does",
        PREFILL,
        "const int first_seen = keys.FirstOf(args_, tokens.end - 1);",
        "const int first_seen = keys.FirstOf(args_, keys.first_position);",
        CUDA,
    ),
    _bug(
        "single rows see the keys of the row behind them",
        SPLITS,
        "static_cast<int>(window.First(position))",
        "static_cast<int>(window.First(position + 1))",
        CUDA,
    ),
    _bug(
        "a head has the gate of its element",
        ROWWISE,
        "Vec::Set(gate[i / a.per_gate])",
        "Vec::Set(gate[i % (a.n / a.per_gate)])",
        CPU,
    ),
    _bug(
        "on CUDA all heads have the first one's gate",
        GATES_ON_GPUS,
        "ToFloat(gates[column / args.per_gate])",
        "ToFloat(gates[column / args.n])",
        CUDA,
    ),
    _bug(
        "inputs go where those of the first expert belong",
        ROWWISE,
        "float* out = a.out + a.places[j] * a.ldo;",
        "float* out = a.out + a.places[row * a.num_chosen] * a.ldo;",
        CPU,
    ),
    _bug(
        "inputs have the weight of a row's first expert",
        ROWWISE,
        "const Vec weight = Vec::Set(a.weights[j]);\n      ForVectors(a.n",
        "const Vec weight = Vec::Set(a.weights[row * a.num_chosen]);\n      ForVectors(a.n",
        CPU,
    ),
    _bug(
        "on CUDA inputs are those of another row",
        EXPERTS_ON_GPUS,
        "choice / args.num_chosen * args.n + column, x);",
        "choice % args.m * args.n + column, x);",
        CUDA,
    ),
    _bug(
        "on CUDA what experts give is weighed, too",
        EXPERTS_ON_GPUS,
        "args.weights == nullptr ? 1.0f : args.weights[j]",
        "args.weights == nullptr ? 0.5f : args.weights[j]",
        CUDA,
    ),
    _bug(
        "scores that are equal by rounding decide",
        EXPERTS,
        "rule_.judges_logits ? logits[i] : scores_[i]",
        "scores_[i]",
        CPU,
    ),
    _bug(
        "on CUDA scores that are equal by rounding decide",
        EXPERTS_ON_GPUS,
        "rule_.judges_logits ? logits_[i] : scores_[i]",
        "scores_[i]",
        CUDA,
    ),
]
