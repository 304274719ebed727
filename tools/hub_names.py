"""How the hub names the tensors of models that name them differently in transformers.

For make_random_checkpoint.py, whose models are those of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from random_weights import Weight

# How the hub spells what the models of transformers call otherwise: where a parameter has the name
# of a key, the checkpoint has these, with a number for each expert if there is a place for it. Two
# names share the rows of the parameter. Of a name with TRANSPOSED behind it, rows are columns.
TRANSPOSED = "^T"
_QWEN_EXPERTS = {
    "mlp.experts.gate_up_proj": (
        "mlp.experts.{}.gate_proj.weight",
        "mlp.experts.{}.up_proj.weight",
    ),
    "mlp.experts.down_proj": ("mlp.experts.{}.down_proj.weight",),
}
_MIXTRAL_EXPERTS = {
    "mlp.gate.weight": ("block_sparse_moe.gate.weight",),
    "mlp.experts.gate_up_proj": (
        "block_sparse_moe.experts.{}.w1.weight",
        "block_sparse_moe.experts.{}.w3.weight",
    ),
    "mlp.experts.down_proj": ("block_sparse_moe.experts.{}.w2.weight",),
}
_GRANITE_EXPERTS = {
    "block_sparse_moe.router.weight": ("block_sparse_moe.router.layer.weight",),
    "block_sparse_moe.experts.gate_up_proj": ("block_sparse_moe.input_linear.weight",),
    "block_sparse_moe.experts.down_proj": ("block_sparse_moe.output_linear.weight",),
}
_PHI_EXPERTS = {
    "mlp.router.weight" if name == "mlp.gate.weight" else name: spelled
    for name, spelled in _MIXTRAL_EXPERTS.items()
}
_MINIMAX_EXPERTS = _MIXTRAL_EXPERTS | {
    "mlp.e_score_correction_bias": ("block_sparse_moe.e_score_correction_bias",)
}
_ERNIE_EXPERTS = _QWEN_EXPERTS | {
    "mlp.gate.moe_statics.e_score_correction_bias": ("mlp.moe_statics.e_score_correction_bias",)
}
_HY3_EXPERTS = _QWEN_EXPERTS | {
    "mlp.gate.weight": ("mlp.router.gate.weight",),
    "mlp.e_score_correction_bias": ("mlp.expert_bias",),
    "mlp.shared_experts.gate_proj.weight": ("mlp.shared_mlp.gate_proj.weight",),
    "mlp.shared_experts.up_proj.weight": ("mlp.shared_mlp.up_proj.weight",),
    "mlp.shared_experts.down_proj.weight": ("mlp.shared_mlp.down_proj.weight",),
    "mlp.shared_experts.gate_proj.bias": ("mlp.shared_mlp.gate_proj.bias",),
    "mlp.shared_experts.up_proj.bias": ("mlp.shared_mlp.up_proj.bias",),
    "mlp.shared_experts.down_proj.bias": ("mlp.shared_mlp.down_proj.bias",),
}
_KOLIBRI_NAMES = _QWEN_EXPERTS | {
    "mlp.gate.e_score_correction_bias": ("moe.router.expert_bias",),
    "post_self_attn_layernorm.weight": ("post_attn_norm.weight",),
    "post_mlp_layernorm.weight": ("post_ffn_norm.weight",),
}
_LAGUNA_NAMES = _QWEN_EXPERTS | {
    "mlp.gate.e_score_correction_bias": ("mlp.experts.e_score_correction_bias",),
    "mlp.shared_experts.gate_proj.weight": ("mlp.shared_expert.gate_proj.weight",),
    "mlp.shared_experts.up_proj.weight": ("mlp.shared_expert.up_proj.weight",),
    "mlp.shared_experts.down_proj.weight": ("mlp.shared_expert.down_proj.weight",),
}
_LFM2_EXPERTS = {
    "experts.gate_up_proj": ("experts.{}.w1.weight", "experts.{}.w3.weight"),
    "experts.down_proj": ("experts.{}.w2.weight",),
}
_KIMI_LAYERS = _MIXTRAL_EXPERTS | {
    "mlp.gate.e_score_correction_bias": ("block_sparse_moe.gate.e_score_correction_bias",),
    "mlp.shared_experts.gate_proj.weight": ("block_sparse_moe.shared_experts.gate_proj.weight",),
    "mlp.shared_experts.up_proj.weight": ("block_sparse_moe.shared_experts.up_proj.weight",),
    "mlp.shared_experts.down_proj.weight": ("block_sparse_moe.shared_experts.down_proj.weight",),
    "forget_gate.f_a_proj.weight": ("f_a_proj.weight",),
    "forget_gate.f_b_proj.weight": ("f_b_proj.weight",),
    "forget_gate.dt_bias": ("dt_bias",),
    "forget_gate.A_log": ("A_log",),
    "conv1d.weight": ("q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"),
}
_NEMOTRON_EXPERTS = {
    "experts.up_proj": ("experts.{}.up_proj.weight",),
    "experts.down_proj": ("experts.{}.down_proj.weight",),
}
# As transformers writes them, too.
_V4_ENTRIES = {
    "kv_proj.weight": "wkv.weight", "gate_proj.weight": "wgate.weight",
    "position_bias": "ape", "kv_norm.weight": "norm.weight",
}  # fmt: skip
_DEEPSEEK_V4_NAMES: dict[str, tuple[str, ...]] = {
    "lm_head.weight": ("head.weight",),
    "input_layernorm.weight": ("attn_norm.weight",),
    "post_attention_layernorm.weight": ("ffn_norm.weight",),
    "mlp.gate.weight": ("ffn.gate.weight",),
    "mlp.gate.e_score_correction_bias": ("ffn.gate.bias",),
    "mlp.gate.tid2eid": ("ffn.gate.tid2eid",),
    "mlp.experts.gate_up_proj": ("ffn.experts.{}.w1.weight", "ffn.experts.{}.w3.weight"),
    "mlp.experts.down_proj": ("ffn.experts.{}.w2.weight",),
    **{
        f"mlp.shared_experts.{own}_proj.weight": (f"ffn.shared_experts.{hub}.weight",)
        for own, hub in (("gate", "w1"), ("up", "w3"), ("down", "w2"))
    },
    **{
        f"{own}_hc.{part}": (f"hc_{own}_{part}",)
        for own in ("attn", "ffn")
        for part in ("fn", "base", "scale")
    },
    "self_attn.sinks": ("attn.attn_sink",),
    "self_attn.q_a_proj.weight": ("attn.wq_a.weight",),
    "self_attn.q_a_norm.weight": ("attn.q_norm.weight",),
    "self_attn.q_b_proj.weight": ("attn.wq_b.weight",),
    "self_attn.kv_proj.weight": ("attn.wkv.weight",),
    "self_attn.kv_norm.weight": ("attn.norm.weight",),
    "self_attn.o_a_proj.weight": ("attn.wo_a.weight",),
    "self_attn.o_b_proj.weight": ("attn.wo_b.weight",),
    "self_attn.compressor.indexer.q_b_proj.weight": ("attn.indexer.wq_b.weight",),
    "self_attn.compressor.indexer.scorer.weights_proj.weight": (
        "attn.indexer.weights_proj.weight",
    ),
    **{
        f"self_attn.compressor.{own}": (f"attn.compressor.{hub}",)
        for own, hub in _V4_ENTRIES.items()
    },
    **{
        f"self_attn.compressor.indexer.{own}": (f"attn.indexer.compressor.{hub}",)
        for own, hub in _V4_ENTRIES.items()
    },
}
_JAMBA_EXPERTS = {
    "experts.gate_up_proj": ("experts.{}.gate_proj.weight", "experts.{}.up_proj.weight"),
    "experts.down_proj": ("experts.{}.down_proj.weight",),
}
HUB_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "jamba": _JAMBA_EXPERTS,
    "lfm2_moe": _LFM2_EXPERTS,
    "afmoe": _QWEN_EXPERTS,
    "flint": _QWEN_EXPERTS | {"self_attn.sinks": ("self_attn.softmax_offset",)},
    "kolibri1": _KOLIBRI_NAMES,
    "laguna": _LAGUNA_NAMES,
    "cohere2_moe": _QWEN_EXPERTS,
    "mimo_v2_flash": _QWEN_EXPERTS | {"self_attn.sinks": ("self_attn.attention_sink_bias",)},
    "qwen3_omni_moe_thinker": _QWEN_EXPERTS,
    "qwen3_moe": _QWEN_EXPERTS,
    "olmoe": _QWEN_EXPERTS,
    "qwen2_moe": _QWEN_EXPERTS,
    "glm4_moe": _QWEN_EXPERTS,
    "deepseek_v3": _QWEN_EXPERTS,
    "deepseek_v32": _QWEN_EXPERTS,
    "deepseek_v4": _DEEPSEEK_V4_NAMES,
    "glm_moe_dsa": _QWEN_EXPERTS,
    "deepseek_v2": _QWEN_EXPERTS,
    "glm4_moe_lite": _QWEN_EXPERTS,
    "ernie4_5_moe": _ERNIE_EXPERTS,
    "mixtral": _MIXTRAL_EXPERTS,
    "minimax_m2": _MINIMAX_EXPERTS,
    "phimoe": _PHI_EXPERTS,
    "gpt_neox": {"lm_head.weight": ("embed_out.weight",)},
    "granitemoe": _GRANITE_EXPERTS,
    "granitemoeshared": _GRANITE_EXPERTS,
    "granitemoehybrid": _GRANITE_EXPERTS,
    "nemotron_h": _NEMOTRON_EXPERTS,
    "kimi_linear": _KIMI_LAYERS,
    "dots1": _QWEN_EXPERTS,
    "hunyuan_v1_moe": _QWEN_EXPERTS,
    "glm4v_moe": _QWEN_EXPERTS,
    "solar_open": _QWEN_EXPERTS,
    "kimi_k25": _QWEN_EXPERTS,
    "flex_olmo": _QWEN_EXPERTS,
    "mellum": _QWEN_EXPERTS,
    "hy_v3": _HY3_EXPERTS,
    "qwen3_next": _QWEN_EXPERTS,
    "qwen3_5_moe": _QWEN_EXPERTS,
    "qwen3_5_moe_text": _QWEN_EXPERTS,
    "exaone_moe": _QWEN_EXPERTS
    | {"mlp.gate.e_score_correction_bias": ("mlp.e_score_correction_bias",)},
    "axk1": _QWEN_EXPERTS | {"mlp.post_mlp_layernorm.weight": ("post_mlp_layernorm.weight",)},
    "qwen3_vl_moe": {
        "mlp.experts.gate_up_proj": ("mlp.experts.gate_up_proj" + TRANSPOSED,),
        "mlp.experts.down_proj": ("mlp.experts.down_proj" + TRANSPOSED,),
    },
}
# How names begin in transformers, and on the hub.
HUB_PREFIXES = {"nemotron_h": ("model.", "backbone.")}


def under_hub_names(weights: list[Weight], model_type: str) -> list[Weight]:
    """The weights of a model as its checkpoint on the hub has them."""
    weights = _spelled(weights, HUB_NAMES.get(model_type, {}))
    if model_type in HUB_PREFIXES:
        own, spelled = HUB_PREFIXES[model_type]
        weights = [replace(w, name=w.name.replace(own, spelled, 1)) for w in weights]
    return weights


def _spelled(weights: list[Weight], names: Mapping[str, tuple[str, ...]]) -> list[Weight]:
    """The same weights under the names that HUB_NAMES has for them."""
    spelled = []
    for weight in weights:
        own = next((own for own in names if weight.name.endswith(own)), None)
        if own is None:
            spelled.append(weight)
            continue
        before = weight.name.removesuffix(own)
        numbered = "{}" in names[own][0]
        shape = weight.shape[1:] if numbered else list(weight.shape)
        shape[0] //= len(names[own])
        if names[own][0].endswith(TRANSPOSED):
            shape[-2:] = reversed(shape[-2:])
        spelled += [
            replace(weight, name=before + name.format(expert).removesuffix(TRANSPOSED), shape=shape)
            for expert in range(weight.shape[0] if numbered else 1)
            for name in names[own]
        ]
    return spelled
