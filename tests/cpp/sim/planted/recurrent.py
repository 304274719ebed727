"""Bugs in the bookkeeping of states of recurrent layers."""

from __future__ import annotations

from planted.bug import Bug

FOCUS = (
    "recurrent,prefix_cache,shared_prefixes,branches,speculation,predictions,grammar,slow_grammars,"
    "jump_forward,text,pins,pin_calls,tiny_pool,aborts,logprobs"
)


def _of_a_sequence(name: str, file: str, old: str, new: str) -> Bug:
    """Costs no more than speed or memory, or the engine never comes there: for a test."""
    return Bug(name, file, old, new, "kv_test RecurrentStatesTest.*")


BUGS = [
    Bug(
        "states of tokens that were taken back stay",
        "kv/paged_kv_cache.cc",
        "  for (std::vector<PlacedState>* states : {&seq.states, &seq.kept}) {\n    while",
        "  for (std::vector<PlacedState>* states : {&seq.kept}) {\n    while",
        focus=FOCUS,
    ),
    Bug(
        "the state from which a forward begins is given away before the forward",
        "kv/paged_kv_cache.cc",
        "seq.states.erase(seq.states.begin(), seq.states.end() - 1);",
        "seq.states.erase(seq.states.begin(), seq.states.end());",
        focus=FOCUS,
    ),
    Bug(
        "a draft leaves the state behind its last token only",
        "step/step_pipeline.cc",
        "  const int64_t first = slice.completes_input ? last + 1 : slice.num_tokens;",
        "  const int64_t first = slice.num_tokens;",
        focus=FOCUS,
    ),
    Bug(
        "a prompt leaves no state in front of its last token",
        "step/step_pipeline.cc",
        "  if (slice.completes_input && (last > 0 || !slice.is_decode)) {",
        "  if (slice.completes_input && last > 0 && has_cache) {",
        focus=FOCUS,
    ),
    Bug(
        "a jump takes back tokens whose states are gone",
        "step/jump_forward.cc",
        "context_.kv.has_states() ? 1 : kMaxGrammarRollback",
        "kMaxGrammarRollback",
        focus=FOCUS,
    ),
    Bug(
        "a prompt starts from a state behind what it shares",
        "kv/prefix_cache.cc",
        "      if (state.node != node || state.position > match.length) continue;",
        "      if (state.node != node) continue;",
        focus=FOCUS,
    ),
    Bug(
        "the states of a node that is split stay with its lower part",
        "kv/prefix_cache.cc",
        "    if (state.node == &node && state.position <= position) state.node = &upper;",
        "",
        focus=FOCUS,
    ),
    Bug(
        "a leaf that loses its last page keeps its states",
        "kv/prefix_cache.cc",
        "    tree_.TruncateLeaf(*node, end);\n    DropStates(*node, end);",
        "    tree_.TruncateLeaf(*node, end);",
        focus=FOCUS,
    ),
    Bug(
        "guesses take slots that the step needs",
        "step/speculation.cc",
        "context_.kv.slots().num_available() - kStatesOfASlice * std::ssize(plan.slices)",
        "context_.kv.slots().num_total()",
        focus=FOCUS,
    ),
    _of_a_sequence(
        "states that are kept for the cache stay when tokens are taken back",
        "kv/paged_kv_cache.cc",
        "  for (std::vector<PlacedState>* states : {&seq.states, &seq.kept}) {\n    while",
        "  for (std::vector<PlacedState>* states : {&seq.states}) {\n    while",
    ),
    _of_a_sequence(
        "a fork cannot go back as far as its parent",
        "kv/paged_kv_cache.cc",
        "  Get(child_id).states = std::move(states);\n",
        "",
    ),
    _of_a_sequence(
        "a state that is kept twice takes two places",
        "kv/paged_kv_cache.cc",
        "  if (!seq.kept.empty() && seq.kept.back().position == seq.length) return;\n",
        "",
    ),
    _of_a_sequence(
        "states that the cache has are offered again",
        "kv/paged_kv_cache.cc",
        "return state.position <= num_tokens; });",
        "return state.position < num_tokens; });",
    ),
    _of_a_sequence(
        "states that prompts start from count as unused",
        "kv/prefix_cache.cc",
        "    state->last_use = ++num_uses_;\n    slot",
        "    slot",
    ),
    _of_a_sequence(
        "the state that was used last is reclaimed first",
        "kv/prefix_cache.cc",
        "state->last_use < oldest->last_use",
        "state->last_use > oldest->last_use",
    ),
    _of_a_sequence(
        "a pin does not hold its state",
        "kv/prefix_cache.cc",
        "if (state != nullptr && num_slots < limits_.max_pinned_slots) pin.slot",
        "if (state != nullptr && num_slots < 0) pin.slot",
    ),
    _of_a_sequence(
        "states of steps in flight leave the list when an earlier step is cached",
        "kv/prefix_cache.cc",
        "    if (state.position > match.length) break;\n",
        "    if (state.position > match.length + 1) break;\n",
    ),
]
