"""Bugs in steps that follow guesses in flight."""

from __future__ import annotations

from planted.bug import Bug

# Few scenarios have steps that follow guesses, and fewer have what else is needed.
FOCUS = (
    "speculation,draft_model,run_ahead,aborts,prefix_cache,sampling,penalties,stops,near_limits,"
    "token_limits"
)
FAULTS = ",forward_fails,sample_fails,collect_fails"

SLICE = """                        .position = {position},
                        .block_table = kv.block_table(entry.mstate.internal_id).first(num_pages),
                        .rows_alone = slice.num_drawn > 1,
                        .of_prompt = !slice.is_decode && !is_behind,
                        {behind}
"""

BUGS = [
    Bug(
        "forwards of a draft that has failed stay in flight",
        "step/draft_model.cc",
        "    Discard();\n    for (const Wish& wish",
        "    for (const Wish& wish",
        focus=FOCUS,
    ),
    Bug(
        "hidden states are read before their step is collected",
        "step/head_drafter.cc",
        "std::ssize(known.places) - NumInFlight(known);\n",
        "std::ssize(known.places);\n",
        focus=FOCUS,
    ),
    Bug(
        "hidden states of the newest step are taken for those of the oldest",
        "step/head_drafter.cc",
        "const int64_t forward = num_collected_++;",
        "const int64_t forward = ++num_collected_;",
        focus=FOCUS,
    ),
    Bug(
        "hidden states of a lost step are read",
        "step/step_pipeline_collect.cc",
        "(i - 1).is_watched, false)) context_.batch_drafter->Unwatch();",
        "(i - 1).is_watched, false)) context_.batch_drafter->Collected();",
        focus=FOCUS + FAULTS,
    ),
    Bug(
        "a step behind guesses in flight begins as if none were right",
        "step/step_batch.cc",
        "                        .behind = behind,\n",
        "",
        focus=FOCUS,
    ),
    Bug(
        "keys and values of rejected guesses are read",
        "step/step_batch.cc",
        SLICE.format(position="position", behind=".behind = behind,"),
        SLICE.format(position="position + behind.num_guesses", behind=""),
        focus=FOCUS,
    ),
    Bug(
        "draws behind guesses in flight are those of the first position",
        "step/step_batch.cc",
        "    token_row.behind = behind.count();\n",
        "",
        focus=FOCUS,
    ),
    Bug(
        "a step goes on from the first token drawn behind guesses in flight",
        "step/step_batch.cc",
        "TokenAt(behind.next())",
        "TokenAt(behind.drawn(0))",
        focus=FOCUS,
    ),
    Bug(
        "a draft behind guesses in flight is longer than the sequence may become",
        "step/speculation.cc",
        "entry.RoomBeforeDraw(context_.max_sequence_length) - std::ssize(entry.pending_rows);",
        "entry.RoomBeforeDraw(context_.max_sequence_length);",
        focus=FOCUS,
    ),
    Bug(
        "a draft reads what the step in flight has not left yet",
        "step/token_blocks.cc",
        "  drafter_->RunBehind(*target_);\n",
        "",
        focus=FOCUS,
    ),
    Bug(
        "a step reads guesses that are not there yet",
        "step/token_blocks.cc",
        "  if (has_chain_) target_->RunBehind(*drafter_);\n",
        "",
        focus=FOCUS,
    ),
    Bug(
        "penalties do not count guesses in flight",
        "step/token_blocks.cc",
        "!leaf.is_limited && !HasPenalties(config) &&",
        "!leaf.is_limited &&",
        focus=FOCUS,
    ),
    Bug(
        "the first guess follows the step in flight as if no guess of it were right",
        "step/draft_chain.cc",
        "IsMoved(w) ? w.behind.count() : TokenBlock::kNone",
        "TokenBlock::kNone",
        test="core_test *GuessesAhead.AStepIsSubmitted*",
    ),
    Bug(
        "hidden states of wrong guesses stay in front of those in flight",
        "step/step_pipeline_collect.cc",
        "    context_.batch_drafter->Keep(entry.mstate.internal_id, "
        "entry.mstate.num_collected());\n",
        "",
        test="core_test *AHeadKeepsUp*",
    ),
    Bug(
        "a draft head goes on from nothing where guesses in flight may be wrong",
        "step/head_drafter.cc",
        "  if (position > std::ssize(*slice.tokens)) return false;\n",
        "",
        test="step_test *HeadDrafterTest.WhatItHasNotSeen*",
    ),
    Bug(
        "prompts lack pages that guesses in flight hold",
        "step/step_pipeline.cc",
        "         (oldest.max_drafts() > 0 && !context_.state.waiting_queue.empty());\n",
        "         false;\n",
        test="core_test *GuessesAhead.PromptsDoNotLackPages*",
    ),
]
