"""Does the simulation find bugs? Plants them one at a time and counts the seeds it takes.

    python tests/cpp/sim/planted_bugs.py [--seeds 2000] [--jobs 2] [--table FILE] [NAME ...]

Each bug is one replacement in a scratch copy of the C++ sources, below TMPDIR, which is built
and given to mlc_native_sim, or to the named test of a bug that costs no more than speed. Exit
status 1 when one is missed. --table writes the results as a table in Markdown;
bench/results/planted_bugs.md is one. A few minutes.
tests/python/test_planted_bugs.py checks that the replacements still fit the sources.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Bug:
    """A replacement of text that occurs exactly once in a file of csrc."""

    name: str
    file: str
    old: str
    new: str
    test: str = ""  # "PROGRAM FILTER": the test that finds it; "": the simulation


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
        "  pins_.clear();\n  tree_.Clear();\n",
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
        "    ++context_.state.metrics.spec_decode.num_failures;\n    return Outcome::kPlanAnew;\n",
        "    ++context_.state.metrics.spec_decode.num_failures;\n",
    ),
    Bug(
        "a draft model goes on from tokens that were taken back",
        "step/draft_model.cc",
        "  known.resize(same);\n",
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
        "forwards of a draft that has failed stay in flight",
        "step/draft_model.cc",
        "    Discard();\n    for (const Wish& wish",
        "    for (const Wish& wish",
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
        "    if (found < position) return Restart(id, position);\n"
        "    return cache_.StartSequence(id, tokens, slice.space);\n",
        "    return cache_.StartSequence(id, tokens.first(found), slice.space);\n",
        test="step_test *HeadDraft*",
    ),
    Bug(
        "hidden states are read before their step is collected",
        "step/head_drafter.cc",
        "std::ssize(known.places) - NumInFlight(known);\n",
        "std::ssize(known.places);\n",
    ),
    Bug(
        "hidden states of the newest step are taken for those of the oldest",
        "step/head_drafter.cc",
        "const int64_t forward = num_collected_++;",
        "const int64_t forward = ++num_collected_;",
    ),
    Bug(
        "hidden states of a lost step are read",
        "step/step_pipeline_collect.cc",
        "(i - 1).is_watched, false)) context_.batch_drafter->Unwatch();",
        "(i - 1).is_watched, false)) context_.batch_drafter->Collected();",
    ),
    Bug(
        "a step behind guesses in flight begins as if none were right",
        "step/step_batch.cc",
        "                        .behind = behind,\n",
        "",
    ),
    Bug(
        "draws behind guesses in flight are those of the first position",
        "step/step_batch.cc",
        "    token_row.behind = behind.count();\n",
        "",
    ),
    Bug(
        "a step goes on from the first token drawn behind guesses in flight",
        "step/step_batch.cc",
        "TokenAt(behind.next())",
        "TokenAt(behind.drawn(0))",
    ),
    Bug(
        "a draft behind guesses in flight is longer than the sequence may become",
        "step/speculation.cc",
        "entry.RoomBeforeDraw(context_.max_sequence_length) - std::ssize(entry.pending_rows);",
        "entry.RoomBeforeDraw(context_.max_sequence_length);",
    ),
    Bug(
        "a draft reads what the step in flight has not left yet",
        "step/token_blocks.cc",
        "  drafter_->RunBehind(*target_);\n",
        "",
    ),
    Bug(
        "a step reads guesses that are not there yet",
        "step/token_blocks.cc",
        "  if (has_chain_) target_->RunBehind(*drafter_);\n",
        "",
    ),
    Bug(
        "penalties do not count guesses in flight",
        "step/token_blocks.cc",
        "!leaf.is_limited && !HasPenalties(config) &&",
        "!leaf.is_limited &&",
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
]


# A bug may leave a variable without a use, which the build treats as an error.
UNUSED = "".join(
    f'#pragma GCC diagnostic ignored "-Wunused-{what}"\n'
    for what in ("variable", "parameter", "function", "but-set-variable")
)


def apply_bug(bug: Bug, csrc: Path) -> str:
    """Plants the bug; the file's text before that. Raises ValueError when it does not fit."""
    path = csrc / bug.file
    text = path.read_text()
    if text.count(bug.old) != 1:
        raise ValueError(f"{bug.name}: {bug.file} has {text.count(bug.old)} places for it")
    path.write_text(UNUSED + text.replace(bug.old, bug.new))
    return text


BUILD = "build/core"  # as tools/test.sh has it, so that a compiler cache knows the files


def build(bug: Bug, scratch: Path, jobs: int) -> bool:
    """Whether the simulation, or the program of the bug's test, could be built."""
    target = bug.test.split()[0] if bug.test else "mlc_native_sim"
    command = ["cmake", "--build", str(scratch / BUILD), "--target", target]
    run = subprocess.run([*command, "-j", str(jobs)], check=False, capture_output=True, text=True)
    if run.returncode != 0:
        print(run.stdout[-2000:], file=sys.stderr)
    return run.returncode == 0


def find(bug: Bug, scratch: Path, seeds: int, jobs: int) -> str | None:
    """The first failure that the simulation or the test reports, None when there is none."""
    program, tests = bug.test.split() if bug.test else ("mlc_native_sim", "")
    command = [str(next((scratch / BUILD).rglob(program)))]
    command += (
        [f"--gtest_filter={tests}", "--gtest_brief=0"]
        if bug.test
        else ["--seeds", f"1..{seeds}", "--jobs", str(jobs)]
    )
    try:
        run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        return "hangs"
    found = re.search(r"^seed .*|(?<=^\[  FAILED  \] )\S+", run.stdout, re.MULTILINE)
    if found is None and run.returncode != 0:
        return f"status {run.returncode}"
    return found.group(0) if found else None


def table(rows: list[tuple[str, str | None, float]], arguments: argparse.Namespace) -> str:
    """The results as a document."""
    lines = [
        "# Planted bugs",
        "",
        "The seed of the simulation that finds each known kind of bug, and what it reports. Seeds",
        f"run from 1 to {arguments.seeds} on {arguments.jobs} threads; the seconds are wall time",
        "of the simulation, without the build.",
        "",
        "    python tests/cpp/sim/planted_bugs.py --table bench/results/planted_bugs.md",
        "",
        "| bug | seed | seconds | found by |",
        "|---|--:|--:|---|",
    ]
    for name, found, seconds in rows:
        seed = re.match(r"seed (\d+): (.*)", found or "missed")
        number, what = seed.groups() if seed else ("", found or "**missed**")
        what = re.sub(r"\S*/csrc/([\w/.]+):\d+", r"csrc/\1", what).replace("|", "\\|")
        lines.append(f"| {name} | {number} | {seconds:.1f} | {what[:120]} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Plants every bug (or those named) and prints what the simulation says to it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", help="parts of the names of bugs; default: all")
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--table", type=Path, help="write the results to this file")
    arguments = parser.parse_args()
    missed = 0
    rows = []
    with tempfile.TemporaryDirectory(prefix="planted_bugs_") as folder:
        scratch = Path(folder)
        for part in ("csrc", "include", "tests/cpp", "tests/fuzz"):
            shutil.copytree(ROOT / part, scratch / part)
        configure = ["cmake", "-S", str(scratch / "csrc"), "-B", str(scratch / BUILD)]
        for option in ("PYTHON=OFF", "CUDA=OFF", "BUILD_TESTS=ON"):
            configure.append(f"-DMLC_NATIVE_{option}")
        configure.append(f"-DPython_EXECUTABLE={sys.executable}")
        subprocess.run([*configure, "-G", "Ninja"], check=True, capture_output=True)
        for bug in BUGS:
            if arguments.names and not any(name in bug.name for name in arguments.names):
                continue
            original = apply_bug(bug, scratch / "csrc")
            built = build(bug, scratch, arguments.jobs)
            start = time.monotonic()
            found = "does not compile"
            if built:
                found = find(bug, scratch, arguments.seeds, arguments.jobs)
            rows.append((bug.name, found, time.monotonic() - start))
            (scratch / "csrc" / bug.file).write_text(original)
            is_missed = not built or found is None
            missed += is_missed
            print(f"{'MISSED' if is_missed else 'found '}  {bug.name}: {found}", flush=True)
    if arguments.table:
        arguments.table.write_text(table(rows, arguments))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
