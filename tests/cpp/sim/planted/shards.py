"""Bugs in how several GPUs divide a model whose layers have sizes of their own, which tests on the
emulator find."""

from __future__ import annotations

from planted.bug import Bug

CUTS = "weights/weight_shard.cc"
SIZES = "weights/shard_config.cc"
EXPERTS = "models/cuda/decoder_experts.cc"
FORWARD = "models/cuda/decoder_forward.cc"


def _bug(name: str, file: str, old: str, new: str) -> Bug:
    tests = "cuda_test ShardedLayersTest.*:ShardOf.*:TakeShard.*"
    return Bug(f"several GPUs: {name}", file, old, new, tests)


BUGS = [
    _bug(
        "heads of a layer have the size of the decoder's",
        CUTS,
        "const int64_t size = whole_.head_dim_of(layer);",
        "const int64_t size = whole_.head_dim;",
    ),
    _bug(
        "a layer that reads other keys and values has rows of its own",
        CUTS,
        "    if (!layer.has_own_kv()) return rows;\n",
        "",
    ),
    _bug(
        "keys that are values have rows of values",
        CUTS,
        "    if (!layer.keys_are_values) rows.push_back",
        "    rows.push_back",
    ),
    _bug(
        "the KV heads of a layer are those of the decoder",
        CUTS,
        "shard_.rank * whole_.kv_heads_of(*of_whole_) / shard_.size;",
        "shard_.rank * whole_.num_kv_heads / shard_.size;",
    ),
    _bug(
        "the output of attention has columns of the decoder's heads",
        CUTS,
        "Scaled(Heads(), whole_.values_size(*of_whole_) / NumHeads())",
        "Scaled(Heads(), whole_.values_size() / whole_.num_heads)",
    ),
    _bug(
        "wide blocks are cut as the others are",
        CUTS,
        "        return config.ffn_size_of(layer);",
        "        return config.ffn_size;",
    ),
    _bug(
        "all layers have the sizes of the first one",
        CUTS,
        "      of_part_ = &part_.layers[i];",
        "      of_part_ = &part_.layers[0];",
    ),
    _bug(
        "a GPU has all KV heads of a layer",
        SIZES,
        "    if (layer.own_kv_heads > 0) layer.own_kv_heads /= NumKvParts(layer.own_kv_heads, "
        "num_shards);\n",
        "",
    ),
    _bug(
        "a GPU has all of a wide block",
        SIZES,
        "    layer.own_ffn_size /= num_shards;\n",
        "",
    ),
    _bug(
        "what the layers' inputs give is added up",
        FORWARD,
        "      return launch(LinearArgs(linear, buffers_.ffn, buffers_.output));",
        "      return defer(LinearArgs(linear, buffers_.ffn, buffers_.output));",
    ),
    _bug(
        "a part of what experts give is normalized",
        EXPERTS,
        "  SumOverPeers(buffers_.output);\n  SumOverPeers(buffers_.shared);\n",
        "  SumOverPeers(buffers_.shared);\n",
    ),
    _bug(
        "a part of what the block beside experts gives is normalized",
        EXPERTS,
        "  SumOverPeers(buffers_.output);\n  SumOverPeers(buffers_.shared);\n",
        "  SumOverPeers(buffers_.output);\n",
    ),
]
