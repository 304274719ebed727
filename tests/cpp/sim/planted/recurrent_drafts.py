"""Bugs in what a draft model does with states of recurrent layers."""

from __future__ import annotations

from planted.bug import Bug

FOCUS = (
    "recurrent,recurrent_drafts,draft_model,speculation,prefix_cache,shared_prefixes,branches,"
    "tiny_pool,aborts,run_ahead,salts,logprobs,text,grammar,jump_forward"
)
FILE = "step/draft_model.cc"


def _in_the_simulation(name: str, old: str, new: str, file: str = FILE) -> Bug:
    return Bug(name, file, old, new, focus=FOCUS)


def _in_a_test(name: str, old: str, new: str, test: str = "step_test *DraftModelTest*") -> Bug:
    """Costs no more than guesses or time."""
    return Bug(name, FILE, old, new, test)


BUGS = [
    _in_the_simulation(
        "a draft model keeps the state behind a wrong guess",
        "  kv_.PopN(sequence_id, std::ssize(known.tokens) - length);\n",
        "  const int64_t rest = std::ssize(known.tokens) - length;\n"
        "  kv_.PopN(sequence_id, std::max<int64_t>(rest - 1, 0));\n",
    ),
    _in_the_simulation(
        "a draft model goes on from a state one token too far",
        "  const int64_t length = kv_.LengthToGoOnFrom(id, same);\n",
        "  const int64_t length = kv_.LengthToGoOnFrom(id, same + 1);\n",
    ),
    _in_the_simulation(
        "a draft leaves no state behind a guess",
        "state_places_.push_back({.num_tokens = active.num_fed + i});",
        "if (i + 1 == num_places || i == 0)\n"
        "      state_places_.push_back({.num_tokens = active.num_fed + i});",
    ),
    _in_the_simulation(
        "the guesses of a draft share one state",
        "  for (RecurrentWrite& write : seq.writes) write.num_tokens -= "
        "static_cast<int32_t>(num_tokens);\n",
        "  for (RecurrentWrite& write : seq.writes) {\n"
        "    write.num_tokens -= static_cast<int32_t>(num_tokens);\n"
        "    write.slot = seq.writes.front().slot;\n"
        "  }\n",
        "kv/paged_kv_cache.cc",
    ),
    _in_the_simulation(
        "a forward writes the states of the forwards behind it",
        "std::ranges::upper_bound(writes, num_tokens, {}, &RecurrentWrite::num_tokens);",
        "writes.begin() + (num_tokens > 0 ? std::ssize(writes) : 0);",
    ),
    _in_the_simulation(
        "a device goes on from states that the host has not chosen",
        "return same_ids && !kv_.has_states() ? model_->step_queue() : nullptr;",
        "return same_ids ? model_->step_queue() : nullptr;",
        "step/draft_model.h",
    ),
    _in_the_simulation(
        "states of the draft model stay with sequences that have ended",
        "  kv_.RemoveSequence(sequence_id);\n  known_[sequence_id].tokens.clear();\n",
        "  kv_.PopN(sequence_id, 0);\n",
    ),
    _in_the_simulation(
        "guesses that were right count as guesses",
        "  known_[id].num_given = length;  // guesses that were right, too\n",
        "",
    ),
    _in_the_simulation(
        "each draft takes all slots of states",
        "return kv_.slots().num_available() / num_wishes;",
        "return kv_.slots().num_total();",
    ),
    _in_a_test(
        "a draft model takes the state of other tokens for that of its own",
        "  const int64_t same = std::ranges::mismatch(known, tokens).in1 - known.begin();\n"
        "  const int64_t length",
        "  const int64_t same = std::min(std::ssize(known), std::ssize(tokens));\n"
        "  const int64_t length",
    ),
    _in_a_test(
        "a sequence that has ended leaves the state behind its guesses",
        "    TakeBack(sequence_id, known.num_given);\n    kv_.KeepState",
        "    kv_.KeepState",
    ),
    _in_a_test(
        "a draft model does not keep the state where prompts diverge",
        "state_places_.push_back({.num_tokens = divergence, .is_kept = true});",
        "state_places_.push_back({.num_tokens = divergence, .is_kept = false});",
    ),
    _in_a_test(
        "what a draft model keeps waits until the sequence ends",
        "  if (kv_.kept_states(id).empty()) return;\n",
        "  if (known.num_given > 0) return;\n",
    ),
    _in_a_test(
        "a draft model that has lost its state begins anew",
        "  if (length == 0 && same > 0) {",
        "  if (length > 0 && same == 0) {",
    ),
    _in_a_test(
        "sequences hold all slots of their guesses",
        "    kv_.ReserveStates(id, {});\n",
        "",
    ),
]
