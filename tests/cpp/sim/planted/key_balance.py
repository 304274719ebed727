"""Bugs in what evens out the channels of keys before these become 8 bits."""

from __future__ import annotations

from planted.bug import Bug

BALANCE = "models/key_balance.cc"
PROBE = "models/transformer_key_balance.cc"


def _bug(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"key balance: {name}", file, old, new, "models_test KeyBalance.*")


BUGS = [
    _bug(
        "queries stay as they are",
        BALANCE,
        "scales.insert(scales.end(), of_key.begin(), of_key.end());",
        "scales.insert(scales.end(), of_key.size(), 1.0f);",
    ),
    _bug(
        "channels that rope mixes are divided by different powers",
        BALANCE,
        "return channel < half ? channel + half : channel - half;",
        "return half > 0 ? channel : 0;",
    ),
    _bug(
        "large channels become larger",
        BALANCE,
        "std::round(kShare * std::log2(of_head[i] / usual))",
        "std::round(-kShare * std::log2(of_head[i] / usual))",
    ),
    _bug(
        "queries of a layer that reads another's keys stay as they are",
        PROBE,
        "balances[i] = balances[static_cast<size_t>(layer.kv_source)];",
        "balances[i].assign(static_cast<size_t>(heads.kv_heads * heads.head_dim), 1.0f);",
    ),
    _bug(
        "the biases of keys are left out",
        PROBE,
        "                   .bias = linear.bias,\n",
        "",
    ),
    _bug(
        "the norm of keys is left out",
        PROBE,
        "has_norm && weight != nullptr",
        "has_norm && weight == nullptr",
    ),
]
