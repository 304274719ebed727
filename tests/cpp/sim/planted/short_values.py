"""Bugs in what MiMo-V2-Flash has of its own: values that are shorter than keys, and KV heads and
sinks of layers with a window."""

from __future__ import annotations

from planted.bug import Bug

MAP = "weights/layer_map.cc"
SIZES = "arch/layer_sizes.cc"
WEIGHTS = "weights/computed_weight.cc"
SOURCES = "weights/weight_source.h"
RULE = "models_test MimoV2Flash.*"
PADDED = "models_test PaddedWeight.*"


def _bug(name: str, file: str, old: str, new: str) -> Bug:
    test = PADDED if file in (WEIGHTS, SOURCES) else RULE
    return Bug(f"short values: {name}", file, old, new, test)


BUGS = [
    _bug("zeros follow all heads", SOURCES,
         "return i % padded < stored ? i / padded * stored + i % padded : -1;",
         "return i < stored ? i : -1;"),
    _bug("rows of zeros are what was there", WEIGHTS,
         "        std::fill_n(out, columns_, 0.0f);\n", ""),
    _bug("codes of zeros are what was there", WEIGHTS,
         "      std::fill_n(codes, columns_, int8_t{0});\n", ""),
    _bug("columns of zeros are those of the next head", WEIGHTS,
         "*out++ = at < 0 ? 0.0f : row[at];", "*out++ = row[at < 0 ? 0 : at];"),
    _bug("what reads values has no zeros between them", MAP,
         "(projection.rows != Rows::kValues && !is_out)) return {};",
         "projection.rows != Rows::kValues) return {};"),
    _bug("all layers have sinks", MAP,
         "      if (is_sink && config_.arch->has_sinks_in_windows && layer_.window.size == 0) "
         "continue;\n", ""),
    _bug("layers without a window have as many KV heads as others", SIZES,
         "layer.own_kv_heads = OwnSize(others, config.num_kv_heads);", "{}"),
    _bug("a window has no place for its own row", "arch/layer_rules.cc",
         "    window = fields.Integer(kBefore, std::nullopt, 0, kMaxPositions - 1) + 1;\n",
         "    window = fields.Integer(kBefore, std::nullopt, 1, kMaxPositions - 1);\n"),
    _bug("the first layer has a window", "arch/layer_rules.cc",
         "rule == WindowRule::kEveryButFirstAndNth && i > 0 && ",
         "rule == WindowRule::kEveryButFirstAndNth && "),
    _bug("values are not scaled", "arch/matrix_scales.cc",
         "  ReadScaleOfValues(fields, config);\n", ""),
]  # fmt: skip
