"""Bugs in experts that read a projection of the input, which tests of C++ find."""

from __future__ import annotations

from planted.bug import Bug


def _order(name: str, old: str, new: str) -> Bug:
    test = "models_test RunLayers.ExpertsMayReadAProjection"
    return Bug(f"latent experts: {name}", "models/run_layers.h", old, new, test)


def _sizes(name: str, file: str, old: str, new: str) -> Bug:
    test = "models_test ModelConfig.ExpertsThatReadAProjection"
    return Bug(f"latent experts: {name}", file, old, new, test)


BUGS = [
    _order(
        "they read the input",
        "  if (reads_latents) ops.Project(layer, LinearRole::kExpertsIn);\n",
        "",
    ),
    _order(
        "what the shared expert gives is left out",
        "      return ops.AddShared();\n",
        "      return;\n",
    ),
    _order(
        "their outputs are mixed as those of the input's size",
        "    if (reads_latents) {\n",
        "    if (false) {\n",
    ),
    _sizes(
        "a field that is given counts as absent",
        "arch/expert_config.cc",
        "!latent_size.empty() && fields_.Has(latent_size.c_str())",
        "!latent_size.empty() && !fields_.Has(latent_size.c_str())",
    ),
    _sizes(
        "what they give has the input's size",
        "arch/model_shapes.cc",
        "    case LinearRole::kExpertDown:\n    case LinearRole::kExpertsIn:\n"
        "      return expert_input_size();\n",
        "    case LinearRole::kExpertDown:\n      return hidden_size;\n"
        "    case LinearRole::kExpertsIn:\n      return expert_input_size();\n",
    ),
    _sizes(
        "layers without experts have the projections",
        "arch/model_shapes.cc",
        "layer.has_experts && experts->latent_size > 0",
        "experts->latent_size > 0",
    ),
    _sizes(
        "the projections have no biases",
        "arch/model_shapes.cc",
        "    case LinearRole::kExpertsIn:\n    case LinearRole::kExpertsOut:\n"
        "      return ffn_bias;\n",
        "      return ffn_bias;\n",
    ),
]
