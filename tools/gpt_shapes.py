"""Models from before Llama: learned positions, LayerNorm, biases, fields with names of their own.

For make_random_checkpoint.py.
"""

from __future__ import annotations

from typing import Any

# The numbers are small and differ from one another, so that a mix-up of two dimensions changes a
# shape.
GPT: dict[str, Any] = {
    "vocab_size": 512, "n_embd": 64, "n_inner": 160, "n_layer": 3, "n_head": 4,
    "n_positions": 1024,
}  # fmt: skip
FALCON: dict[str, Any] = {
    "vocab_size": 512, "hidden_size": 64, "ffn_hidden_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 4, "max_position_embeddings": 1024,
}  # fmt: skip

GPT_SHAPES: dict[str, dict[str, Any]] = {
    "gpt2": {
        "model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12,
        "n_positions": 1024,
    },
    "tiny-gpt2": {"model_type": "gpt2", **GPT},
    "tiny-gpt_bigcode": {"model_type": "gpt_bigcode", **GPT},
    "tiny-gpt_neo": {
        "model_type": "gpt_neo", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 160,
        "num_layers": 3, "num_heads": 4, "max_position_embeddings": 1024, "window_size": 40,
        "attention_types": [[["global", "local"], 1], [["global"], 1]],
    },
    "tiny-gptj": {"model_type": "gptj", **GPT, "rotary_dim": 8},
    "tiny-codegen": {"model_type": "codegen", **GPT, "rotary_dim": 12},
    # 6 heads are not a power of two, so that their slopes are of two kinds.
    "tiny-bloom": {
        "model_type": "bloom", "vocab_size": 512, "hidden_size": 96, "n_layer": 3, "n_head": 6,
        "seq_length": 1024,
    },
    "tiny-mpt": {
        "model_type": "mpt", "vocab_size": 512, "d_model": 96, "n_layers": 3, "n_heads": 6,
        "max_seq_len": 1024,
    },
    "tiny-opt": {
        "model_type": "opt", "vocab_size": 512, "hidden_size": 64, "ffn_dim": 160,
        "num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 1024,
        "word_embed_proj_dim": 64,
    },
    "tiny-falcon": {"model_type": "falcon", **FALCON},
    "tiny-falcon_new": {
        "model_type": "falcon", **FALCON, "new_decoder_architecture": True, "num_kv_heads": 2,
        "bias": True, "tie_word_embeddings": False,
    },
}  # fmt: skip
