"""Bugs in what OLMo Hybrid has of its own: norms in front of the blocks of layers with linear
attention and behind those of others, rows that write twice as much, and an epsilon of its norms."""

from __future__ import annotations

from planted.bug import Bug

SHAPES = "arch/model_shapes.cc"
CONFIG = "arch/delta_config.cc"
RULE = "models_test OlmoHybrid.*"
CPU = "kernels_test *DeltaRule*Recurrence*"
CUDA = "cuda_test DeltaRuleTest.Matches*"


def _bug(name: str, file: str, old: str, new: str, tests: str) -> Bug:
    return Bug(f"norms by state: {name}", file, old, new, tests)


BUGS = [
    _bug("all layers have norms in front of their blocks", SHAPES,
         "if (is_pre || is_post) return is_pre == layer.is_recurrent;",
         "if (is_pre || is_post) return is_pre;", RULE),
    _bug("layers with attention have them in front", SHAPES,
         "if (is_pre || is_post) return is_pre == layer.is_recurrent;",
         "if (is_pre || is_post) return is_pre != layer.is_recurrent;", RULE),
    _bug("a model of few layers does not attend", CONFIG,
         "if (config.arch->is_olmo_delta && !attends) config.layers.back().is_recurrent = false;",
         "", RULE),
    _bug("keys have all of the hidden size", CONFIG, "3 * config.hidden_size / (4 * ",
         "4 * config.hidden_size / (4 * ", RULE),
    _bug("a rope_theta of null is the family's", "arch/layer_rules.cc",
         "RopeParameters(fields, arch).IsNull(\"rope_theta\")", "false", RULE),
    _bug("on the CPU a row writes once", "kernels/delta.cc",
         "a.beta_scale / (1.0f + std::exp(-gates[0]));", "1.0f / (1.0f + std::exp(-gates[0]));",
         CPU),
    _bug("on CUDA a row writes once", "kernels/cuda/delta_rule.cu",
         "a.beta_scale * Sigmoid(gates[0]);", "Sigmoid(gates[0]);", CUDA),
    _bug("on CUDA a model's rows write once", "models/cuda/decoder_delta.cc",
         "       .beta_scale = delta.beta_scale,\n", "",
         "cuda_test CudaModel.LogitsAreTheCpusInFloat32"),
]  # fmt: skip
