"""Bugs in how CUDA runs layers of one block alone, and attention beside Mamba-2, on one GPU and on
several, which tests on the emulator find."""

from __future__ import annotations

from planted.bug import Bug

BUFFERS = "models/cuda/decoder.cc"
KEPT_ROWS = "models/cuda/decoder_states.cc"
STATES = "models/cuda/decoder_delta.cc"
LOADING = "models/cuda/create_model.cc"
SIZES = "weights/shard_config.cc"


def _bug(name: str, tests: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"blocks in CUDA: {name}", file, old, new, f"cuda_test {tests}")


LOGITS = "CudaModel.LogitsAreTheCpusInFloat32"
HIDDEN = "CudaHiddenStates.OfRowsThatLeaveEarlyAreThoseOfTheCpu"
REFUSED = "CudaModel.WhatDoesNotFitIsRefusedByName"
SEVERAL = "ShardedLayersTest.BlocksAndStatesAreThoseOfOneDevice"
DIVIDED = "ShardOf.*"

BUGS = [
    _bug(
        "a state beside attention gives what attention gave",
        LOGITS,
        BUFFERS,
        "    buffers->state_output = take(max_rows * outputs, DTypeSize(dtype));",
        "    buffers->state_output = buffers->attention;",
    ),
    _bug(
        "the last rows have what attention gave in place of what the state beside it did",
        LOGITS,
        KEPT_ROWS,
        "keep(buffers_.state_output, ",
        "keep(buffers_.attention, ",
    ),
    _bug(
        "the last rows of attention beside a state have the width of the state",
        LOGITS,
        "models/cuda/decoder.h",
        "if (layer.attends()) return AttentionSize(config, layer);",
        "if (!layer.is_recurrent) return AttentionSize(config, layer);",
    ),
    _bug(
        "all rows of hidden states read what is kept for the last ones",
        HIDDEN,
        KEPT_ROWS,
        "  state_output_ = buffers_.state_output;\n",
        "",
    ),
    _bug(
        "layers that read keys of others have no numbers of their rows",
        HIDDEN,
        BUFFERS,
        "[](const LayerConfig& layer) { return layer.attends(); }",
        "[](const LayerConfig& layer) { return layer.is_recurrent; }",
    ),
    _bug(
        "experts without a gate have one",
        LOGITS,
        "models/cuda/decoder_experts.cc",
        ", .gated = !config_.arch->plain_ffn",
        "",
    ),
    _bug(
        "a shared expert that is larger than the blocks has their memory",
        LOGITS,
        BUFFERS,
        "config.experts ? config.linear_rows({}, LinearRole::kSharedGateUp) : 0;",
        "0;",
    ),
    _bug(
        "several GPUs add up the squares of a norm that there is not",
        SEVERAL,
        STATES,
        "  if (!config_.mamba->norm_has_parts()) return Mamba(args, stream_);",
        "  if (config_.mamba->num_group_parts == 1) return Mamba(args, stream_);",
    ),
    _bug(
        "each of several GPUs normalizes its heads of a group",
        SEVERAL,
        STATES,
        "  if (!config_.mamba->norm_has_parts()) return Mamba(args, stream_);",
        "  if (config_.mamba->num_group_parts > 0) return Mamba(args, stream_);",
    ),
    _bug(
        "the sizes of blocks that no layer has must be divided",
        DIVIDED,
        SIZES,
        "    if (layer.has_dense_ffn() && !is_even",
        "    if (!layer.has_experts && !is_even",
    ),
    _bug(
        "the KV heads must be divided where no layer attends",
        DIVIDED,
        SIZES,
        "    if (layer.attends() && kv_heads",
        "    if (kv_heads",
    ),
    _bug(
        "several GPUs name sizes of blocks that there are not",
        DIVIDED,
        SIZES,
        "  return std::ranges::any_of(config.layers, &LayerConfig::has_dense_ffn);",
        "  return !std::ranges::all_of(config.layers, &LayerConfig::has_experts);",
    ),
    _bug(
        "sizes have names of other families",
        REFUSED,
        LOADING,
        "CheckSize(names.head_dim, ",
        'CheckSize("mamba_d_head", ',
    ),
    _bug(
        "the size of blocks that no layer has must suit the kernels",
        REFUSED,
        LOADING,
        "    if (!layer.has_dense_ffn()) continue;\n",
        "",
    ),
]
