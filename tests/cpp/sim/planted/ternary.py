"""Bugs in weights of 2 bits and in norms within blocks, which BitNet has."""

from __future__ import annotations

from planted.bug import Bug

GROUPS = "kernels/stored_groups.h"
KERNELS = "kernels_test Isa/LinearTest.*"
CUDA = "cuda_test CudaModel.LogitsAreTheCpusInFloat32"


def _bug(name: str, file: str, old: str, new: str, tests: str) -> Bug:
    return Bug(f"ternary weights: {name}", file, old, new, tests)


BUGS = [
    _bug("codes of a byte are four neighbours", GROUPS,
         "return k / kStep * kQuad + k % kQuad;", "return k / 4;", KERNELS),
    _bug("the first code of a byte has its high bits", GROUPS,
         "return k % kStep / kQuad * 2;", "return 6 - k % kStep / kQuad * 2;", KERNELS),
    _bug("on CUDA norms within blocks are left out", "models/cuda/decoder_attention.cc",
         "  if (norm.weight == nullptr) return;\n  const Peer& peer = decoder_.peer_;\n",
         "  if (true) return;\n  const Peer& peer = decoder_.peer_;\n", CUDA),
    _bug("on CUDA the norm in front of the last product is left out",
         "models/cuda/decoder_forward.cc",
         "      NormalizeWithin(layer, NormRole::kFfnDown, buffers_.activated);\n", "", CUDA),
    _bug("on the CPU, too", "models/transformer_linears.cc",
         "      NormalizeWithin(layer, NormRole::kFfnDown, buffers_.ffn);\n", "", CUDA),
    _bug("on the CPU the first row alone is normalized", "models/transformer_forward.cc",
         "  args.dim = config_.norm_within_size(config_.layers[layer], role);\n",
         "  args.dim = config_.norm_within_size(config_.layers[layer], role);\n  args.m = 1;\n",
         CUDA),
]  # fmt: skip
