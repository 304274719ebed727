"""Bugs in scheduling, memory, outputs and steps."""

from __future__ import annotations

from planted.bug import Bug

BUGS = [
    Bug(
        "pages of an aborted prompt leak",
        "step/sequence_life.cc",
        "  ReleaseSequence(context, first);  // of a root that is not forked yet\n",
        "",
    ),
    Bug(
        "final output lost after an abort",
        "step/post_process.cc",
        "  context.state.postproc_workspace.outputs.push_back(std::move(final));\n",
        "  if (ReasonOf(rstate) != FinishReason::kAbort || rstate.leaves().size() != 2) {\n"
        "    context.state.postproc_workspace.outputs.push_back(std::move(final));\n  }\n",
    ),
    Bug(
        "final output twice",
        "step/post_process.cc",
        "  context.state.postproc_workspace.outputs.push_back(std::move(final));\n",
        "  if (rstate.leaves().size() == 3)\n"
        "    context.state.postproc_workspace.outputs.push_back(final);\n"
        "  context.state.postproc_workspace.outputs.push_back(std::move(final));\n",
    ),
    Bug(
        "one token above max_tokens",
        "request/request_state.cc",
        "num_tokens - rstate->request->prompt_len() >= max_tokens)",
        "num_tokens - rstate->request->prompt_len() > max_tokens)",
    ),
    Bug(
        "one token above the sequence limit",
        "request/request_state.cc",
        "num_tokens >= max_sequence_length",
        "num_tokens > max_sequence_length",
    ),
    Bug(
        "copy-on-write forgotten",
        "step/step_pipeline.cc",
        "  if (!copies_.empty()) context_.model.CopyPages(copies_);\n",
        "",
    ),
    Bug(
        "tokens that the cache shows are written over",
        "kv/prefix_cache.cc",
        "  kv_->ShowTokens(seq_id, std::ssize(tokens));\n",
        "",
    ),
    Bug(
        "a page in use is evicted",
        "kv/prefix_cache.cc",
        "  while (!kv_->pool().is_cached(leaf->payload.back().id())) {\n",
        "  while (false) {\n",
    ),
    Bug(
        "a reset keeps the cached pages",
        "kv/prefix_cache.cc",
        "  pins_.clear();\n  states_.clear();\n  tree_.Clear();\n",
        "  pins_.clear();\n",
    ),
    Bug(
        "the head of the queue is overtaken",
        "request/scheduler.cc",
        "if (entry.waits_for_prefill() && !PlanEntry(entry, state, kv, budget, plan)) return;",
        "if (entry.waits_for_prefill() && !PlanEntry(entry, state, kv, budget, plan)) {\n"
        "        if (budget->rows == 0) return;\n        break;\n      }",
    ),
    Bug(
        "a full pool is never used to the last page (W5)",
        "request/scheduler.cc",
        "pages_needed + budget.num_generating <= budget.pages;",
        "pages_needed + budget.num_generating < budget.pages;",
    ),
    Bug(
        "reservations survive a failed forward",
        "step/step_pipeline.cc",
        "    if (id != RequestModelState::kNoId && context_.kv.HasSequence(id)) "
        "context_.kv.PopN(id, 0);\n",
        "",
    ),
    Bug(
        "a preempted request waits behind those that never ran",
        "step/sequence_life.cc",
        "  context.state.PushWaitingFront(rstate);\n",
        "  context.state.PushWaiting(rstate);\n",
    ),
    Bug(
        "ids are not recycled (W16)",
        "step/sequence_life.cc",
        "  context.state.id_manager.RecycleId(id);\n",
        "  if (id < 3) context.state.id_manager.RecycleId(id);\n",
    ),
    Bug(
        "draws depend on the chunk",
        "step/step_batch.cc",
        ".position = static_cast<uint64_t>(end - num_behind)",
        ".position = static_cast<uint64_t>(sequences_.back().position)",
    ),
    Bug(
        "text that may belong to a stop string is lost at the end",
        "step/post_process.cc",
        "      leaf_.stop_handler->Finish(&bytes_, &ids_);\n",
        "      if (leaf_.finish_reason != FinishReason::kLength) "
        "leaf_.stop_handler->Finish(&bytes_, &ids_);\n",
    ),
    Bug(
        "branches share the row that sampling has overwritten",
        "step/host_steps.cc",
        "      if (draw > 0) std::copy(row_copy_.begin(), row_copy_.end(), logits.begin());\n",
        "",
    ),
    Bug(
        "pages short: a half prefilled prompt keeps its pages for ever",
        "step/make_room.cc",
        "    if (DropPrefillProgress(context)) continue;\n",
        "",
    ),
    Bug(
        "a token of a sequence that has ended is taken",
        "step/step_pipeline_collect.cc",
        "    entry.mstate.block = {};\n  }\n  if (entry.finished()) return;\n",
        "    entry.mstate.block = {};\n  }\n",
    ),
    Bug(
        "the first tokens of branches repeat the prompt",
        "step/row_limits.cc",
        "leaf.tokens.empty() ? leaf.rstate->entries[0].tokens",
        "leaf.tokens.empty() ? leaf.tokens",
        focus="branches,many_answers,token_limits",
    ),
    Bug(
        "what a lost step has computed is cached",
        "request/request_state.h",
        "return kv_len - kv_in_flight;",
        "return kv_len;",
    ),
    Bug(
        "penalties forget the pending token",
        "step/step_batch.cc",
        "    token_row.pending_row = leaf.pending_rows.back();\n",
        "",
    ),
    Bug(
        "a row that failed is sampled from",
        "step/step_pipeline_collect.cc",
        "    if (!drawn_[i].error.empty()) end(",
        "    if (!drawn_[i].error.empty() && !runs_ahead()) end(",
    ),
    Bug(
        "a grammar is not waited for",
        "step/step_batch.cc",
        "must_collect_ |= entry.mask_needs_tokens() || (!drafts.empty() && !has_block);",
        "must_collect_ |= !drafts.empty() && !has_block;",
    ),
    Bug(
        "a slow sequence keeps the mask of the token before",
        "step/slow_grammars.cc",
        "  slow.has_mask = false;\n",
        "",
    ),
    Bug(
        "a slow sequence does not learn that its answer may end",
        "step/slow_grammars.cc",
        "  slow.completed = call->completed;\n",
        "",
    ),
    Bug(
        "the scored rows of a chunk are one off where the prompt goes on behind it",
        "step/step_batch.cc",
        "  const int64_t num_behind = slice.completes_input ? slice.num_drawn : 0;\n",
        "  const int64_t num_behind = slice.num_drawn;\n",
    ),
    Bug(
        "a prompt to be scored takes pages of the prefix cache",
        "request/request_state.cc",
        "  return num_scored < num_to_score() ? num_scored : num_tokens_to_compute() - 1;\n",
        "  return num_tokens_to_compute() - 1;\n",
    ),
    Bug(
        "a prompt that starts over is scored again",
        "request/scheduler.cc",
        "const int64_t first_scored = std::max(begin, entry.num_scored);",
        "const int64_t first_scored = begin;",
    ),
]
