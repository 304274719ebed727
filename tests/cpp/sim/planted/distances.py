"""Bugs in what attention adds by distance: slopes, buckets, tables, vectors, and which heads a GPU
has."""

from __future__ import annotations

from planted.bug import Bug

CPU = "kernels/cpu/distance_bias.inl"
VECTORS = "kernels/cpu/distance_vectors.inl"
BIAS = "kernels/distance_bias.h"
CONFIG = "arch/distance_config.cc"
LANES = "kernels/cuda/decode_lanes.cuh"

KERNELS = "kernels_test *Attention*:DistanceBias.*"
MODELS = "models_test Alibi.*:Distance*"
DECODE = "cuda_test DecodeAttentionTest.BiasesByDistance"


def _bug(name: str, file: str, old: str, new: str, tests: str) -> Bug:
    return Bug(f"distances: {name}", file, old, new, tests)


BUGS = [
    _bug(
        "keys behind a row are as near as those in front of it",
        CPU,
        "Fma(Max(d, Vec::Zero() - d), slope,",
        "Fma(Max(Vec::Zero() - d, Vec::Zero()), slope,",
        KERNELS,
    ),
    _bug(
        "distances are those of the first row",
        "kernels/cpu/attention.inl",
        "const int64_t position = c.block.sequence->first_position + c.Row(query);",
        "const int64_t position = c.block.sequence->first_position;",
        KERNELS,
    ),
    _bug(
        "all heads of a block have the bias of the first one",
        "kernels/cpu/attention.inl",
        "c.block.q_head + query % c.block.num_heads,",
        "c.block.q_head,",
        KERNELS,
    ),
    _bug(
        "a vector is read from behind the table's end",
        BIAS,
        "first > reach ? reach : first;",
        "first > reach + kDistancePadding ? reach + kDistancePadding : first;",
        KERNELS,
    ),
    _bug(
        "the far end of a table is that of the near one",
        "kernels/distance_bias.cc",
        "std::clamp<int64_t>(i - kDistancePadding, 0, 2 * reach)",
        "std::max<int64_t>(i - kDistancePadding, 0) % (2 * reach + 1)",
        KERNELS,
    ),
    _bug(
        "keys behind a row have the buckets of those in front of it",
        CONFIG,
        "const int64_t side = distance > 0 ? of_side : 0;",
        "const int64_t side = 0;",
        MODELS,
    ),
    _bug(
        "heads behind a power of two have slopes in order",
        CONFIG,
        "std::ssize(slopes) < heads; i += 2)",
        "std::ssize(slopes) < heads; i += 1)",
        MODELS,
    ),
    _bug(
        "the norm of BLOOM's embeddings leaves the residual as it is",
        "weights/decoder_map.cc",
        "map->embedding_norm.gives_residual = true;",
        "map->embedding_norm.gives_residual = false;",
        MODELS,
    ),
    _bug(
        "the norm in front of the layers does not run",
        "models/run_layers.h",
        "if (weights.embedding_norm.weight != Vector{})",
        "if (false)",
        "models_test RunLayers*",
    ),
    _bug(
        "the kernel's distances are those of the last key",
        LANES,
        "const int distance = position - item_.split.position;",
        "const int distance = position - (item_.split.begin + item_.split.count - 1);",
        DECODE,
    ),
    _bug(
        "the second GPU has the slopes of the first one",
        "models/cuda/cuda_model.cc",
        "return model.peer_ ? model.peer_.rank * model.config_.num_heads : 0;",
        "return 0;",
        "cuda_test ShardedModelTest.LogitsAreThoseOfOneDevice:CudaEncoders.OfTwo*",
    ),
    _bug(
        "rows of prompts are left to kernels without biases",
        "models/cuda/decoder_attention.cc",
        "if (weights_.distance_bias) return false;",
        "",
        "cuda_test CudaEncoders.Agree*",
    ),
    _bug(
        "later rows of a tile are farther from keys",
        VECTORS,
        "PlaceOfDistance(vectors.reach, tile.distance - i)",
        "PlaceOfDistance(vectors.reach, tile.distance + i)",
        KERNELS,
    ),
    _bug(
        "keys are multiplied with the vectors of keys",
        VECTORS,
        "const float* const entries = vectors.queries + e * row_size;",
        "const float* const entries =\n"
        "          (vectors.keys == nullptr ? vectors.queries : vectors.keys) + e * row_size;",
        KERNELS,
    ),
    _bug(
        "products with keys of 8 bits lack their scales",
        VECTORS,
        "if constexpr (T::kFormat == KvFormat::kInt8) {",
        "if constexpr (false && T::kFormat == KvFormat::kInt8) {",
        KERNELS,
    ),
    _bug(
        "products with vectors are not in units of log2",
        "kernels/cpu/attention.inl",
        ".unit = a.scale * kLog2E,",
        ".unit = a.scale,",
        KERNELS,
    ),
    _bug(
        "all heads of a block have the vectors of the first one",
        "kernels/cpu/attention.inl",
        ".head = c.block.q_head + head,",
        ".head = c.block.q_head,",
        KERNELS,
    ),
    _bug(
        "keys behind a query have the rows of those in front of it",
        CONFIG,
        "half + (distance > 0 ? -place : place)",
        "half + (distance > 0 ? place : -place)",
        MODELS,
    ),
    _bug(
        "logarithms of distances are rounded down",
        CONFIG,
        "static_cast<int64_t>(std::ceil(far * static_cast<float>(exact - 1)))",
        "static_cast<int64_t>(far * static_cast<float>(exact - 1))",
        MODELS,
    ),
    _bug(
        "rows end one distance later",
        CONFIG,
        "std::log(static_cast<float>(farthest - 1) / middle)",
        "std::log(static_cast<float>(farthest) / middle)",
        MODELS,
    ),
    _bug(
        "scores are scaled as if they were one product",
        "arch/model_config.cc",
        "static_cast<double>(config.distances.rows.NumProducts())",
        "1.0",
        MODELS,
    ),
]
