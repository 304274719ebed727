"""Bugs of adapters: in the engine that lends them to requests, and in what they add on CPUs."""

from __future__ import annotations

from planted.bug import Bug

FOCUS = "adapters,prefix_cache,shared_prefixes,branches,tiny_pool,aborts"


def _of_a_forward(name: str, file: str, old: str, new: str) -> Bug:
    """Without an engine: for a test."""
    return Bug(name, file, old, new, "models_test *Adapter.*")


BUGS = [
    Bug(
        "the prefix cache does not know the adapter",
        "request/request.h",
        "return {generation_cfg.cache_salt, adapter != nullptr ? adapter->id : 0, row_round};",
        "return {generation_cfg.cache_salt, 0, row_round};",
        focus=FOCUS,
    ),
    Bug(
        "a name that is loaded again has the number of before",
        "engine_adapters.cc",
        ".id = num_loaded_ + 1,",
        ".id = static_cast<int64_t>(name.size()),",
        focus=FOCUS,
    ),
    Bug(
        "a step computes without the adapter",
        "step/step_batch.cc",
        ".adapter = entry.rstate->request->adapter_weights(),",
        ".adapter = slice.is_decode ? nullptr : entry.rstate->request->adapter_weights(),",
        focus=FOCUS,
    ),
    Bug(
        "another adapter of the same name is loaded twice",
        "engine_adapters.cc",
        "  if (!adapters_.try_emplace(name, adapter).second) RefuseName(name);",
        "  adapters_[name] = adapter;",
        "threads_test EngineAdapters.*",
    ),
    Bug(
        "an adapter of another engine is taken",
        "engine_adapters.cc",
        "  if (request.adapter != nullptr && request.adapter->loader == loader_) return;",
        "  if (request.adapter != nullptr) return;",
        "threads_test EngineAdapters.*",
    ),
    _of_a_forward(
        "rows that are kept have the adapters of the first ones",
        "models/transformer_states.cc",
        "  model_.adapter_rows_.Keep(model_.last_rows_);\n",
        "",
    ),
    _of_a_forward(
        "rows of the first of several adapters",
        "models/cpu_adapter.cc",
        "groups_[j].weight = &linears_[j]->ups[i].matrix;",
        "groups_[j].weight = &first.ups[i].matrix;",
    ),
    _of_a_forward(
        "adapters of other ranks go on where the first began",
        "models/cpu_adapter.cc",
        "!linears_.front()->HasShapeOf(*linear)) AddTaken(cpu, args);",
        "!linears_.front()->HasShapeOf(*linear)) continue;",
    ),
    _of_a_forward(
        "rows of long prompts that exceed a part are lost",
        "models/cpu_adapter.cc",
        "      begin = end;\n      if (std::ssize(taken_) == kMostRows) AddTaken(cpu, args);",
        "      begin = end;\n      if (std::ssize(taken_) == kMostRows) break;",
    ),
    _of_a_forward(
        "sums go to the first rows",
        "kernels/cpu/rowwise.inl",
        "    const int64_t to = a.rows == nullptr ? row : a.rows[row];",
        "    const int64_t to = row;",
    ),
    _of_a_forward(
        "rows of a tensor's groups are taken as they are stored",
        "weights/adapter_weights.cc",
        "    if (slot.part.num_rows > 0) {\n      source = std::make_unique<PartOfWeight>",
        "    if (slot.part.num_rows > slot.rows() * 9) {\n"
        "      source = std::make_unique<PartOfWeight>",
    ),
    _of_a_forward(
        "heads are not padded",
        "weights/adapter_weights.cc",
        "    if (slot.padding.padded > 0 && slot.padding.in_columns) {",
        "    if (slot.padding.padded > 99 && slot.padding.in_columns) {",
    ),
    _of_a_forward(
        "what multiplies a projection is forgotten",
        "weights/adapter_weights.cc",
        "config_.ScaleOf(*part.module, rank) * slot.scale;",
        "config_.ScaleOf(*part.module, rank);",
    ),
    _of_a_forward(
        "tensors of a linear share the columns of the first",
        "weights/adapter_weights.cc",
        "                            .column = columns.at(part.update),\n",
        "                            .column = 0,\n",
    ),
    _of_a_forward(
        "the root of the rank is forgotten",
        "weights/adapter_weights.cc",
        "(uses_root_ ? std::sqrt(size) : size)",
        "size",
    ),
    _of_a_forward(
        "the ending of a name is enough",
        "weights/adapter_weights.cc",
        'return !alpha.whole && module.ends_with("." + alpha.module);',
        "return !alpha.whole && module.ends_with(alpha.module);",
    ),
    _of_a_forward(
        "adapters of other models are taken",
        "models/cpu_adapter.cc",
        "(adapter != nullptr && adapter->targets() == targets))",
        "(adapter != nullptr && targets != nullptr))",
    ),
]
