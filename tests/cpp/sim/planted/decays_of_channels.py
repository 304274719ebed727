"""Bugs in linear attention of which each channel of the keys has a decay of its own (Kimi Delta
Attention), and in what its weights are made of, which tests of the kernels and models find."""

from __future__ import annotations

from planted.bug import Bug

LOOPS = "kernels/cpu/delta_rule.inl"
MATH = "kernels/cpu/vec_math.inl"
CUDA = "kernels/cuda/delta_rule.cu"
CUDA_STATES = "kernels/cuda/recurrent.cuh"

CPU_TESTS = "kernels_test *DeltaRule*"
CUDA_TESTS = "cuda_test DeltaRuleTest.*"
MODELS = "cuda_test CudaModel.LogitsAreTheCpusInFloat32"
SHARDS = "cuda_test ShardedLayersTest.BlocksAndStates*"


def _bug(name: str, file: str, old: str, new: str, test: str) -> Bug:
    return Bug(f"decays of channels: {name}", file, old, new, test)


BUGS = [
    _bug(
        "keys are compared with a state that has not decayed",
        LOOPS,
        "kOfChannels ? scratch.decayed_keys : scratch.k;",
        "scratch.k;",
        CPU_TESTS,
    ),
    _bug(
        "the next key has the decays of the row before it",
        LOOPS,
        ".next_k = compared + (i + 1) * scratch.ld_keys,",
        ".next_k = scratch.k + (i + 1) * scratch.ld_keys,",
        CPU_TESTS,
    ),
    _bug(
        "all channels have the first one's decay",
        LOOPS,
        "Vec::Set(u.decays[row]) : u.decay;",
        "Vec::Set(u.decays[0]) : u.decay;",
        CPU_TESTS,
    ),
    _bug(
        "all rows of a chunk have the decays of the first one",
        LOOPS,
        ".decays = scratch.decays + i * scratch.ld_keys}",
        ".decays = scratch.decays}",
        CPU_TESTS,
    ),
    _bug(
        "all heads have the decays of the first one",
        LOOPS,
        "const int64_t dim = a.shape.key_dim, first = chunk.value_head * dim;",
        "const int64_t dim = a.shape.key_dim, first = 0;",
        CPU_TESTS,
    ),
    _bug(
        "all heads forget as fast as the first one",
        LOOPS,
        "Exp(Vec::Set(a.decay[chunk.value_head]))",
        "Exp(Vec::Set(a.decay[0]))",
        CPU_TESTS,
    ),
    _bug(
        "decays are those of the rows of the sequence before",
        LOOPS,
        "a.channel_decays + row * a.ld_channel_decays + first;",
        "a.channel_decays + (chunk.row_begin + i) * a.ld_channel_decays + first;",
        CPU_TESTS,
    ),
    _bug(
        "the decay has no bias",
        LOOPS,
        "load(x) + load(a.decay_bias + first)",
        "load(x)",
        CPU_TESTS,
    ),
    _bug(
        "the output gate is a silu",
        LOOPS,
        "a.sigmoid_out_gates ? TimesSigmoid(normalized, gate)",
        "a.sigmoid_out_gates ? TimesSigmoid(normalized * gate, gate)",
        CPU_TESTS,
    ),
    _bug(
        "softplus of large numbers is linear only from below",
        MATH,
        "return Fma(p, s, Max(Vec::Zero(), x));",
        "return p * s;",
        CPU_TESTS,
    ),
    _bug(
        "on CUDA keys are compared with a state that has not decayed",
        CUDA,
        "kOfChannels ? state.DecayedProduct(decays[r], keys[r]) : state.Product(keys[r]);",
        "state.Product(keys[r]);",
        CUDA_TESTS,
    ),
    _bug(
        "on CUDA a row has the decays of the first one at a time",
        CUDA,
        "state.DecayedProduct(decays[r], keys[r])",
        "state.DecayedProduct(decays[0], keys[r])",
        CUDA_TESTS,
    ),
    _bug(
        "on CUDA a head has the decays of the key head",
        CUDA,
        "shape.decays() + head * shape.key_dim + key;",
        "shape.decays() + key_head * shape.key_dim + key;",
        CUDA_TESTS,
    ),
    _bug(
        "on CUDA the first vector of channels alone is prepared",
        CUDA,
        "for (int64_t i = Lane(); i < count; i += kWarp) {",
        "for (int64_t i = Lane(); i < min(count, int64_t{kWarp} / 2); i += kWarp) {",
        CUDA_TESTS,
    ),
    _bug(
        "on CUDA decays of channels behind a head's end are another head's",
        CUDA,
        "a.channel_decays + row * shape.decays() + head * count",
        "a.channel_decays + row * shape.decays() + max(head - 1, int64_t{0}) * count",
        CUDA_TESTS,
    ),
    _bug(
        "on CUDA the second run of channels has the decays of the first",
        CUDA_STATES,
        "*reinterpret_cast<const float4*>(decays + Key(run));",
        "*reinterpret_cast<const float4*>(decays + Key(0));",
        CUDA_TESTS,
    ),
    _bug(
        "on CUDA the output gate is a silu",
        CUDA,
        "a.sigmoid_out_gates ? 1.0f : gate;",
        "gate;",
        CUDA_TESTS,
    ),
    _bug(
        "decays and output gates come from the same numbers",
        "models/cuda/decoder_delta.cc",
        "(is_decays ? 0 : delta.gate_rank)",
        "0",
        MODELS,
    ),
    _bug(
        "on the CPU, too",
        "models/transformer_ops.h",
        "config_.delta->conv_size() + index * config_.delta->gate_rank;",
        "config_.delta->conv_size();",
        MODELS,
    ),
    _bug(
        "convolutions of keys are those of queries",
        "weights/computed_weight.cc",
        "      first += part.columns;\n",
        "      first += &part == &parts_.front() ? 0 : part.columns;\n",
        "cuda_test SideBySide.*",
    ),
    _bug(
        "each GPU has the decays of the first one's heads",
        "weights/state_shares.h",
        "IndexRange Decays() const { return Share(part_.delta->decays_size()); }",
        "IndexRange Decays() const { return {0, part_.delta->decays_size()}; }",
        SHARDS,
    ),
    _bug(
        "each GPU has a part of what decays come from",
        "weights/state_shares.cc",
        "rows.push_back({whole_.delta->conv_size(), whole_.delta->inputs_size()});",
        "rows.push_back(Share(whole_.delta->gate_rank, whole_.delta->conv_size()));"
        " rows.push_back(Share(whole_.delta->gate_rank, whole_.delta->conv_size()));",
        SHARDS,
    ),
]
