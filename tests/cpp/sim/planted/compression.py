"""Bugs in compressed attention, hyper-connections and experts of tokens, which DeepSeek V4 has."""

from __future__ import annotations

from planted.bug import Bug

SUMS = "kernels/cpu/compression.inl"
SEEN = "kernels/compression.cc"
MIXES = "kernels/cpu/hyper_connections.inl"
PAGES = "models/kv_storage.cc"

KERNELS = "kernels_test Isa/CompressionTest.*"
STREAMS = "kernels_test Isa/HyperConnectionsTest.*"
CHOICE = "kernels_test Isa/KeyChoiceTest.*"
EXPERTS = "kernels_test Isas/ExpertsTest.*"
STORAGE = "models_test KvStorageTest.*"
ORDER = "models_test RunLayers.*"


def _bug(name: str, file: str, old: str, new: str, tests: str) -> Bug:
    return Bug(f"compression: {name}", file, old, new, tests)


BUGS = [
    _bug("the tokens in front of a window have the channels of its own", SUMS,
         "a.overlaps && i >= num_before ? a.dim : 0", "a.overlaps ? a.dim : 0", KERNELS),
    _bug("the bias of the window in front counts on", SUMS,
         "a.bias + i % a.num_tokens * ld_bias",
         "a.bias + (i < a.num_tokens ? i : 0) * ld_bias", KERNELS),
    _bug("an entry is in the slot behind its window", SEEN,
         "return (number + 1) * shape.num_tokens - 1;",
         "return number * shape.num_tokens;", KERNELS),
    _bug("rows see one token more", SEEN,
         "AttentionWindow(shape.window).First(position)",
         "AttentionWindow(shape.window + 1).First(position)", KERNELS),
    _bug("entries are copied to the first slots of a page", "kernels/cpu/key_choice.inl",
         "const int64_t to_slot = tokens.first_slot;", "const int64_t to_slot = 0;", KERNELS),
    _bug("scores are those of the first position of each window", "kernels/key_choice.cc",
         "scores[(key + 1) * shape.step - 1]", "scores[key * shape.step]", CHOICE),
    _bug("the matrix of the streams is transposed", MIXES,
         "kept[count + j * count + i]", "kept[count + i * count + j]", STREAMS),
    _bug("rows are divided before the first columns", MIXES,
         "round > 0 && i < count", "i < count", STREAMS),
    _bug("the experts are those of the row's number", "kernels/experts.cc",
         "args.table + args.ids[row] * rule.num_chosen", "args.table + row * rule.num_chosen",
         EXPERTS),
    _bug("copies of pages lack what tokens leave", PAGES,
         "if (rows.data != nullptr) kernels::CopyPage", "if (false) kernels::CopyPage", STORAGE),
    _bug("copies of pages lack entries", PAGES,
         "if (entries.v_pages != nullptr) kernels::CopyPage", "if (false) kernels::CopyPage",
         STORAGE),
    _bug("the feed-forward block reads streams without attention", "models/run_layers.h",
         "      ops.ExpandStreams(layer, StreamReader::kAttention);\n"
         "      ops.CollapseStreams(layer, StreamReader::kFeedForward);\n",
         "      ops.CollapseStreams(layer, StreamReader::kFeedForward);\n"
         "      ops.ExpandStreams(layer, StreamReader::kAttention);\n", ORDER),
]  # fmt: skip
