"""Bugs in what Cohere 2 with experts has of its own: the mean of chosen experts and the shared one,
patterns of windows by kinds of layers, and a field that says which norm it is."""

from __future__ import annotations

from planted.bug import Bug

EXPERTS = "arch/expert_config.cc"
LAYERS = "arch/layer_rules.cc"
RULE = "models_test Cohere2Moe.*"
LOGITS = "cuda_test CudaModel.LogitsAreTheCpusInFloat32"


def _bug(name: str, file: str, old: str, new: str, tests: str) -> Bug:
    return Bug(f"parallel experts: {name}", file, old, new, tests)


BUGS = [
    _bug("chosen experts count in full", EXPERTS,
         "      config.router.scale *= kHalf;\n", "", RULE),
    _bug("the shared expert counts in full", EXPERTS,
         "      config.shared_scale = kHalf;\n", "", RULE),
    _bug("softmax is of all experts", EXPERTS,
         "    if (!rule_.score_name.empty() && router.score == kernels::RouterScore::kSoftmax) {\n",
         "    if (false) {\n", RULE),
    _bug("dense layers count for the pattern of others", LAYERS, "(i - num_dense + 1) % nth)",
         "(i + 1) % nth)", RULE),
    _bug("dense layers have no rope of their own", LAYERS, " && sparse[i]) layers[i].rope",
         ") layers[i].rope", RULE),
    _bug("the epsilon of RMSNorm is that of LayerNorm", "arch/layer_math.cc",
         "    config.norm_eps = static_cast<float>(fields.Positive(kRmsEps, std::nullopt));\n", "",
         RULE),
    _bug("on the CPU the shared expert counts in full", "models/transformer_experts.cc",
         "    mix.shared_scale = experts.shared_scale;\n", "", LOGITS),
    _bug("on CUDA the shared expert counts in full", "models/cuda/decoder_experts.cc",
         "  args.shared_scale = experts.shared_scale;\n", "", LOGITS),
    _bug("kernels of the CPU leave out the shared expert's factor", "kernels/cpu/rowwise.inl",
         "    Vec factor = Vec::Set(a.shared_scale);\n", "    Vec factor = Vec::Set(1.0f);\n",
         "kernels_test *ExpertsTest.Mix*"),
    _bug("kernels of CUDA leave out the shared expert's factor", "kernels/cuda/experts.cu",
         "    add(args.shared, row, args.shared_scale * factor);\n",
         "    add(args.shared, row, factor);\n", "cuda_test CudaExpertsTest.Mix*"),
    _bug("on CUDA the norm is the family's", "models/cuda/decoder_forward.cc",
         "           .subtract_mean = config_.norm_kind == NormKind::kLayer,\n",
         "           .subtract_mean = config_.arch->norm_kind == NormKind::kLayer,\n", LOGITS),
]  # fmt: skip
