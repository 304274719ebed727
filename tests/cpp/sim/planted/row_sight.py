"""Bugs in rows that see others behind them, in places of three numbers and in what layers add to
rows, which tests of the kernels, of the decoders and of the engine find."""

from __future__ import annotations

from planted.bug import Bug

WINDOW = "kernels/window.h"
PREFILL = "kernels/cuda/prefill_rows.cuh"
SPLITS = "kernels/cuda/decode_splits.cu"
ROPE = "kernels/cuda/rope_head.cuh"
STEPS = "models/cuda/step_inputs.cc"
ROWS = "models/cuda/decoder_input_rows.cc"
ATTENTION = "models/cuda/decoder_attention.cc"

CPU = "kernels_test *AttentionTest.*:AttentionWindowTest.*"
KERNELS = "cuda_test PrefillAttentionTest.RowsThat*:DecodeAttentionTest.RowsThat*:RopeTest.Pairs*"
CUDA = "cuda_test CudaEngineInputRows.*:CudaStepsAhead.*"
ENGINE = "core_test *EngineEmbeddings.OfWholePrompts*:ResolveEngineConfig.WholePrompts"


def _bug(name: str, file: str, old: str, new: str, tests: str) -> Bug:
    return Bug(f"rows that see others: {name}", file, old, new, tests)


BUGS = [
    _bug(
        "a window ends one key late",
        WINDOW,
        "position + size - 1 : last_key",
        "position + size : last_key",
        CPU,
    ),
    _bug(
        "the CPU's rows see none behind them",
        "kernels/cpu/attention.inl",
        "args.window.Last(position, block.sequence->last_key)",
        "args.window.Last(position, 0)",
        CPU,
    ),
    _bug(
        "a tile's rows see as far as the first one",
        PREFILL,
        "const int span = tokens_.LastOf(args_, position) - first;",
        "const int span = tokens_.LastOf(args_, keys_.first_position) - first;",
        KERNELS,
    ),
    _bug(
        "steps that the first row does not see whole are taken as they are",
        PREFILL,
        "const int last_seen = tokens.LastOf(args_, keys.first_position);",
        "const int last_seen = tokens.LastOf(args_, tokens.end - 1);",
        KERNELS,
    ),
    _bug(
        "single rows have the window of their last key",
        SPLITS,
        "rows.positions == nullptr ? length - 1 : rows.positions[row]",
        "length - 1",
        KERNELS,
    ),
    _bug(
        "pairs turn by the next component",
        ROPE,
        "component == 0 ? numbers[0] : component == 1 ? numbers[1] : numbers[2]",
        "component == 0 ? numbers[1] : component == 1 ? numbers[2] : numbers[0]",
        KERNELS,
    ),
    _bug(
        "places do not move behind guesses",
        STEPS,
        "const_cast<int32_t*>(out.rope_positions)",
        "nullptr",
        CUDA,
    ),
    _bug(
        "tiles forget what they see",
        STEPS,
        ".last_key = last_key}",
        ".last_key = 0 * last_key}",
        CUDA,
    ),
    _bug("rows lack the last key of their image", STEPS, "last_key + 1);", "last_key);", CUDA),
    _bug(
        "the first layer's part is added by all layers",
        ROWS,
        "(static_cast<int64_t>(layer) + 1) * hidden",
        "hidden + 0 * static_cast<int64_t>(layer)",
        CUDA,
    ),
    _bug(
        "rows have no learned positions",
        ROWS,
        "if (weights_.positions == nullptr) return;",
        "return;",
        CUDA,
    ),
    _bug(
        "single rows do not know where they are",
        ATTENTION,
        "sees_more ? rows_.positions + first : nullptr",
        "sees_more && first < 0 ? rows_.positions : nullptr",
        CUDA,
    ),
    _bug(
        "a whole prompt is cut",
        "request/request.cc",
        "  if (is_whole && end < prompt_len()) return begin;\n",
        "",
        ENGINE,
    ),
    _bug(
        "whole prompts may be longer than a step",
        "config/resolve.cc",
        "std::min(*resolved.max_single_sequence_length, *resolved.prefill_chunk_size)",
        "*resolved.max_single_sequence_length",
        ENGINE,
    ),
]
