"""Bugs of embeddings, in what the engine makes of the hidden states of prompts."""

from __future__ import annotations

from planted.bug import Bug

POOLING = "step/state_pooling.cc"
BATCH = "step/step_batch.cc"
# Prompts that start over for want of pages, which seldom happens to one that is half computed.
FOCUS = "embeddings,tiny_pool,priorities,branches"


def _bug(name: str, file: str, old: str, new: str, focus: str = "") -> Bug:
    return Bug(f"embeddings: {name}", file, old, new, focus=focus)


BUGS = [
    _bug(
        "steps in flight write to the same places",
        "step/step_pipeline.cc",
        "flights_[i].place = static_cast<int64_t>(i);",
        "flights_[i].place = 0;",
    ),
    _bug(
        "the states of the other step in flight are read",
        POOLING,
        "memory_->Read(flight * max_rows(), ",
        "memory_->Read((flight ^ 1) * max_rows(), ",
    ),
    _bug(
        "a mean counts rows twice that are computed again",
        BATCH,
        "is_mean ? slice.num_pooled :",
        "is_mean ? slice.num_tokens :",
        FOCUS,
    ),
    _bug(
        "rows of a mean are not counted, so that they count twice",
        POOLING,
        "  if (entry.num_to_score() > 0) entry.num_scored += pooled.num_rows;\n",
        "",
        FOCUS,
    ),
    _bug(
        "a mean forgets its rows when its prompt starts over",
        "step/sequence_life.cc",
        "    ReleaseSequence(context, entry);\n    dropped = true;\n",
        "    ReleaseSequence(context, entry);\n    entry.pooled.clear();\n    dropped = true;\n",
        FOCUS,
    ),
    _bug(
        "a mean is that of the last chunk",
        POOLING,
        "  pooled.entry->pooled.resize(size);\n",
        "  pooled.entry->pooled.assign(size, 0);\n",
    ),
    _bug(
        "a mean leaves out what is cached",
        "request/request_state.cc",
        "return num_scored < num_to_score() ?",
        "return num_scored < num_to_score() && !rstate->request->embedding ?",
    ),
    _bug(
        "a mean is divided by the last position",
        POOLING,
        "static_cast<double>(request.prompt_len())",
        "static_cast<double>(std::max<int64_t>(request.prompt_len() - 1, 1))",
    ),
    _bug(
        "normalized before it is cut",
        POOLING,
        "for (const double value : state) squares += value * value;",
        "for (const double value : entry.pooled) squares += value * value;",
    ),
    _bug(
        "complete with the first chunk",
        BATCH,
        ".is_complete = slice.completes_input});",
        ".is_complete = true});",
    ),
    _bug(
        "the last rows of all chunks are added up",
        BATCH,
        ": int64_t{slice.completes_input});",
        ": int64_t{1});",
    ),
    _bug(
        "the first rows of a slice instead of the last ones",
        BATCH,
        "request.embeds(Pooling::kCls) ? slice.num_tokens : num_rows;",
        "slice.num_tokens;",
    ),
    _bug(
        "rows of a request that has ended are its neighbour's",
        POOLING,
        "    if (!pooled.entry->finished()) Add(pooled, states);\n",
        "    if (pooled.entry->finished()) continue;\n    Add(pooled, states);\n",
    ),
    _bug(
        "a request that has ended is embedded",
        POOLING,
        "    if (!pooled.entry->finished()) Add(pooled, states);\n",
        "    Add(pooled, states);\n",
    ),
    _bug(
        "what there is of a request that has ended is delivered",
        "step/post_process.cc",
        "if (!entry.is_embedded || entry.finish_reason != rstate.ends_with_prompt) return;",
        "if (entry.pooled.empty()) return;",
    ),
    _bug(
        "states that are no numbers are delivered",
        POOLING,
        "if (!std::ranges::all_of(entry.pooled, [](double sum) { return std::isfinite(sum); })) {",
        "if (entry.pooled.empty()) {",
    ),
    _bug(
        "the head of a draft waits for states that others get",
        "step/step_pipeline.cc",
        "  if (!states.rows.empty()) return states;\n  states = Watch(flight->plan);\n",
        "  const HiddenStates watched = Watch(flight->plan);\n"
        "  if (!states.rows.empty()) return states;\n  states = watched;\n",
        "embeddings,speculation,draft_model,run_ahead,chunked_mode",
    ),
    _bug(
        "computed without the adapter",
        "request/request.cc",
        "  if (complete) complete(request.get());\n  return request;\n}\n\nint32_t CheckedTokenId",
        "  return request;\n}\n\nint32_t CheckedTokenId",
    ),
    _bug(
        "the salt is forgotten",
        "request/request.cc",
        "  service.speculative = false;\n",
        "  service.speculative = false;\n  service.cache_salt = {};\n",
    ),
]
