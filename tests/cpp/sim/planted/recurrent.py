"""Bugs in the bookkeeping of states of recurrent layers."""

from __future__ import annotations

from planted.bug import Bug

FOCUS = (
    "recurrent,prefix_cache,shared_prefixes,branches,speculation,predictions,grammar,slow_grammars,"
    "jump_forward,text,pins,pin_calls,tiny_pool,aborts,logprobs"
)

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
]
