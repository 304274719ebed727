"""Bugs in guesses, and in steps with guesses that are waited for."""

from __future__ import annotations

from planted.bug import Bug

BUGS = [
    Bug(
        "a wrong draft token is accepted",
        "step/step_pipeline_collect.cc",
        "drawn_[i].error.empty() && drawn_[i].result.token.token_id == row.draft_token;",
        "drawn_[i].error.empty() && row.draft_token >= 0;",
    ),
    Bug(
        "penalties behind draft tokens do not count them",
        "step/step_batch.cc",
        "  for (int32_t token_id : drafts) counts.Add(token_id);\n",
        "  for (int32_t token_id : drafts.first(0)) counts.Add(token_id);\n",
    ),
    Bug(
        "what is forbidden behind draft tokens does not depend on them",
        "step/step_pipeline.cc",
        "limits_.Restrict(*rows[i].entry, flight->batch.drafts_before(i),",
        "limits_.Restrict(*rows[i].entry, flight->batch.drafts_before(i).first(0),",
    ),
    Bug(
        "min_tokens counts as if there were no draft tokens",
        "step/step_pipeline.cc",
        "static_cast<int64_t>(token_rows[i].position),",
        "static_cast<int64_t>(token_rows[i].position - rows[i].num_drafts),",
    ),
    Bug(
        "a row behind draft tokens has the mask of the first row",
        "step/grammar_masks.cc",
        "num_drafts == 0 ? first : first.behind[num_drafts - 1];",
        "num_drafts < 99 ? first : first.behind[num_drafts - 1];",
    ),
    Bug(
        "a grammar does not take draft tokens back",
        "grammar/mask_filler.cc",
        "  if (num_accepted > 0) matcher.Rollback(num_accepted);\n",
        "",
    ),
    Bug(
        "draft tokens that were not accepted are cached",
        "step/step_pipeline_collect.cc",
        "kv_in_flight -= slice.num_tokens - (slice.num_drawn - 1);",
        "kv_in_flight -= slice.num_tokens;",
    ),
    Bug(
        "what was computed for rejected draft tokens stays",
        "step/step_pipeline_collect.cc",
        "  context_.kv.PopN(entry.mstate.internal_id, 1);\n  --entry.mstate.kv_len;\n",
        "",
    ),
    Bug(
        "draft tokens behind a stop are taken",
        "step/step_pipeline_collect.cc",
        "    PostProcess(context_);\n    jump_forward_.Run();\n",
        "    jump_forward_.Run();\n",
    ),
    Bug(
        "text that a grammar forces is not looked for between draft tokens",
        "step/step_pipeline_collect.cc",
        "    PostProcess(context_);\n    jump_forward_.Run();\n",
        "    PostProcess(context_);\n",
    ),
    Bug(
        "drafts take pages that others need",
        "step/speculation.cc",
        "int64_t pages = context_.kv.pool().num_free();",
        "int64_t pages = context_.kv.pool().num_total();",
    ),
    Bug(
        "a sequence ends because its draft cannot be computed",
        "step/step_pipeline.cc",
        "if (CatchUp() || had_drafts) return Outcome::kPlanAnew;",
        "if (CatchUp()) return Outcome::kPlanAnew;",
    ),
    Bug(
        "a draft model goes on from tokens that were taken back",
        "step/draft_model.cc",
        "  known.tokens.resize(static_cast<size_t>(length));\n",
        "",
    ),
    Bug(
        "a draft model keeps the pages of sequences that have ended",
        "step/sequence_life.cc",
        "  if (context.batch_drafter != nullptr) context.batch_drafter->Forget(id);\n",
        "",
    ),
    Bug(
        "a failing draft model fails its sequences",
        "step/speculation_batch.cc",
        "    drafter.Propose(wishes_);\n  } catch (const std::exception&) {\n",
        "    drafter.Propose(wishes_);\n  } catch (const std::bad_alloc&) {\n",
    ),
    Bug(
        "a draft head keeps the pages of sequences that have ended",
        "step/head_drafter.cc",
        "                  known.space);\n  }\n  Drop(sequence_id);\n",
        "                  known.space);\n  }\n",
    ),
    Bug(
        "a row behind a rejected draft token ends its sequence",
        "step/step_pipeline_collect.cc",
        "row.num_drafts != num_drafts || row.is_rejected || ",
        "row.num_drafts != num_drafts || ",
    ),
    Bug(
        "a draft is longer than the sequence may become",
        "step/speculation.cc",
        "entry.RoomBeforeDraw(context_.max_sequence_length) - std::ssize(entry.pending_rows);",
        "entry.RoomBeforeDraw(context_.max_sequence_length) + 9;",
    ),
    Bug(
        "a draft goes on behind a token that its grammar refuses",
        "step/speculation.cc",
        "  GrammarMatcher* const matcher = entry.grammar_matcher.get();\n"
        "  int64_t num_allowed = 0;\n",
        "  GrammarMatcher* const matcher =\n"
        "      entry.num_scored < 0 ? entry.grammar_matcher.get() : nullptr;\n"
        "  int64_t num_allowed = 0;\n",
    ),
    Bug(
        "a grammar stays where a draft has been tried",
        "step/speculation.cc",
        "    if (matcher != nullptr && num_allowed > 0) matcher->Rollback(num_allowed);\n",
        "",
    ),
    Bug(
        "a grammar that begins within a draft does not bind the rows behind it",
        "grammar/mask_filler.cc",
        "    if (error == nullptr) {\n      FillMask(matcher, &behind);\n",
        "    if (error == nullptr) {\n      FillMask(matcher, &behind);\n"
        "      behind.constrained = row->constrained;\n",
        test="grammar_test MaskFiller.*",
    ),
    Bug(
        "a token behind a draft token has the log-probability of the one before it",
        "step/step_pipeline_collect.cc",
        "    if (rows[i].num_drafts == num_drafts) CollectRow(rows[i], &drawn_[i].result, now);\n",
        "    if (rows[i].num_drafts != num_drafts) continue;\n"
        "    const size_t other = num_drafts > 0 ? i - 1 : i;\n"
        "    drawn_[i].result.token.logprob = drawn_[other].result.token.logprob;\n"
        "    CollectRow(rows[i], &drawn_[i].result, now);\n",
    ),
    Bug(
        "all draws of a draft are that of its last position",
        "step/step_batch.cc",
        "token_row.position = static_cast<uint64_t>(end - num_behind);",
        "token_row.position = static_cast<uint64_t>(end);",
    ),
    Bug(
        "branches share what a draft model has read",
        "step/speculation.cc",
        "wish{.sequence_id = entry.mstate.internal_id,",
        "wish{.sequence_id = entry.rstate->leaves()[0].mstate.internal_id,",
    ),
    Bug(
        "drafts take rows that the model lacks",
        "step/speculation.cc",
        ".rows = std::min(max_rows - plan.num_rows, context_.limits.max_num_scored - num_scored),",
        ".rows = std::min(max_rows, context_.limits.max_num_scored - num_scored),",
    ),
    Bug(
        "a prompt is followed by draft tokens",
        "step/speculation.cc",
        "if (!slice.is_decode || !slice.completes_input || slice.num_tokens != 1) return false;",
        "if (!slice.completes_input || slice.num_tokens != 1) return false;",
    ),
    Bug(
        "a preempted sequence keeps its drafters",
        "step/sequence_life.cc",
        "  entry.drafts.reset();\n  entry.status",
        "  entry.status",
    ),
    Bug(
        "a draft goes on from a token that is not known",
        "step/speculation.cc",
        "  return entry.pending_rows.empty();\n}\n\n// ---- What is left over",
        "  return true;\n}\n\n// ---- What is left over",
        test="core_test Speculation.StepsRunAhead*",
    ),
    Bug(
        "a request that wants no guesses gets some",
        "step/speculation.cc",
        "((make_extra_ || context_.batch_drafter != nullptr) && generation.speculative);",
        "make_extra_ || context_.batch_drafter != nullptr;",
    ),
    Bug(
        "a request's own draft length is ignored",
        "step/speculation.cc",
        "const int64_t length = entry.rstate->config().spec_draft_length.value_or(of_engine);",
        "const int64_t length = of_engine;",
    ),
    Bug(
        "a draft head takes the rows in its cache for those of all tokens before",
        "step/head_drafter.cc",
        "  if (found < position) {\n    RestartRows(id, position);\n  } else {\n"
        "    cache_.StartSequence(id, tokens, slice.space);\n  }\n",
        "  cache_.StartSequence(id, tokens.first(found), slice.space);\n",
        test="step_test *HeadDraft*",
    ),
    Bug(
        "a draft model may have another tokenizer",
        "engine_parts.cc",
        "    CheckSameTokens(source.path, parts.token_table.get(), "
        "config.visible_special_tokens);\n",
        "",
        test="core_test EngineCreateTest.ADraftModel*",
    ),
]
