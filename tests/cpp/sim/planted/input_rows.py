"""Bugs of rows in place of tokens, in what a step reads of them and how the cache knows them."""

from __future__ import annotations

from planted.bug import Bug

BATCH = "step/step_batch.cc"
IDS = "request/input_row_ids.cc"


def _bug(name: str, file: str, old: str, new: str, focus: str = "input_rows") -> Bug:
    return Bug(f"input rows: {name}", file, old, new, focus=focus)


BUGS = [
    _bug(
        "a chunk begins with the first row again",
        BATCH,
        "rows.first_value + (from - rows.begin) * width",
        "rows.first_value",
    ),
    _bug(
        "places of rows are counted from the prompt",
        BATCH,
        "first_row + from - position",
        "from",
    ),
    _bug(
        "rows of a step before stay",
        BATCH,
        "  input_rows_.clear();\n",
        "",
    ),
    _bug(
        "all rows have the same ids",
        IDS,
        "  num_given_ += num_rows;\n",
        "",
        "input_rows,prefix_cache,shared_prefixes",
    ),
    _bug(
        "rows are known by their number",
        IDS,
        "hashes.push_back(HashOf(rows, key_));",
        "hashes.push_back({static_cast<uint64_t>(rows.num_rows), 0});",
        "input_rows,prefix_cache,shared_prefixes",
    ),
    _bug(
        "rows are guessed",
        "step/speculation.cc",
        "token_id < context_.model.metadata().vocab_size &&\n",
        "true &&\n",
        "input_rows,speculation,shared_prefixes",
    ),
    _bug(
        "a draft model is told of rows",
        "step/draft_model.cc",
        "return token >= vocab_size; })) return false;",
        "return token < 0; })) return false;",
        "input_rows,speculation,draft_model",
    ),
    _bug(
        "a draft head is told of rows",
        "step/step_pipeline.cc",
        "entry.rstate->may_draft && entry.rstate->request->prompt_rows.empty()",
        "entry.rstate->may_draft",
        "input_rows,speculation,draft_model",
    ),
]
