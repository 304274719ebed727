"""Bugs in layers that differ in their query heads and in gates that multiply by their softplus,
which Laguna has."""

from __future__ import annotations

from planted.bug import Bug

FORWARD = "models/transformer_forward.cc"
ATTENTION = "models/cuda/decoder_attention.cc"
SHARDS = "weights/weight_shard.cc"
LOGITS = "cuda_test CudaModel.LogitsAreTheCpusInFloat32"
CPU = "kernels_test *RowwiseTest.Gates*:*ExpertsTest*"
CUDA = "cuda_test DeltaRuleTest.Gate*:DecodeAttentionTest.Layers*:CudaExpertsTest.*"
SEVERAL = "cuda_test ShardOf.*:ShardedLayersTest.*"


def _bug(name: str, file: str, old: str, new: str, tests: str) -> Bug:
    return Bug(f"heads of layers: {name}", file, old, new, tests)


BUGS = [
    _bug("on the CPU gates lie where those of the widest layer do", FORWARD,
         "  return {qkv.data - config_.attention_gates_size(config_.layers[layer]), qkv.width};",
         "  return buffers_.gated_qkv;", LOGITS),
    _bug("on the CPU all layers have the heads of the model", FORWARD,
         ".q_heads = config_.heads_of(config_.layers[layer]),", ".q_heads = config_.num_heads,",
         LOGITS),
    _bug("on the CPU the rope is of the heads of the model", FORWARD,
         ".heads = config_.heads_of(sizes) + kv_heads,", ".heads = config_.num_heads + kv_heads,",
         LOGITS),
    _bug("on CUDA all layers have the heads of the model", ATTENTION,
         ".q_heads = config_.heads_of(config_.layers[layer]),", ".q_heads = config_.num_heads,",
         LOGITS),
    _bug("on CUDA the rope is of the heads of the model", ATTENTION,
         ".q_heads = config_.heads_of(sizes),", ".q_heads = config_.num_heads,", LOGITS),
    _bug("on CUDA queries lie behind the gates of the first layer", "models/cuda/decoder_ops.h",
         "config_.attention_gates_size(config_.layers[layer])",
         "config_.attention_gates_size(config_.layers[0])", LOGITS),
    _bug("on CUDA what layers leave in the memory is divided by the heads of each",
         "kernels/cuda/decode_items.cuh", "std::max(rows.most_heads, heads_of_call);",
         "heads_of_call;", CUDA),
    _bug("on CUDA a softplus is a sigmoid", "kernels/cuda/delta_rule.cu",
         "args.softplus ? SoftplusOf(gate[j]) : Sigmoid(gate[j]);", "Sigmoid(gate[j]);", CUDA),
    _bug("on the CPU a softplus is a sigmoid", "kernels/cpu/rowwise.inl",
         "  if (a.softplus) {\n", "  if (false) {\n", CPU),
    _bug("on the CPU a router's logits have no cap", "kernels/experts.cc",
         "return cap > 0 ? cap * std::tanh(logit / cap) : logit;", "return logit;", CPU),
    _bug("on CUDA a router's logits have no cap", "kernels/cuda/experts.cu",
         "return cap > 0.0f ? cap * tanhf(logit / cap) : logit;", "return logit;", CUDA),
    _bug("several GPUs have the heads of another layer", SHARDS,
         "return Share(part_.heads_of(*of_part_));", "return Share(part_.num_heads);", SEVERAL),
]  # fmt: skip
