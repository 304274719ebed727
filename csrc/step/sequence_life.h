// How sequences get pages and give them back: start, fork, preemption, end.
//
// Every function leaves queues, entries, ids and pages consistent with each other. Engine's thread
// only.
#pragma once

#include <string>

#include "step/step_context.h"

namespace mlc_native {

enum class FinishReason;
struct RequestState;
struct RequestStateEntry;

// Gives the entry an id and a sequence in the KV cache that starts with its first num_cached tokens
// from the prefix cache. Its request counts as started at `now`.
void StartSequence(StepContext& context, RequestStateEntry& entry, int64_t num_cached,
                   TimePoint now);

// Inserts the tokens that collected steps have computed for the entry into the prefix cache.
void CachePrefix(StepContext& context, const RequestStateEntry& entry);

// Pins the prompt of a request, which has just been computed, and counts its tokens as pinned. When
// other pins leave too little room, it stays in the cache like any other prompt.
void PinPrompt(StepContext& context, RequestState& rstate);

// Gives back the pages and the id of the entry, if it has any; what CachePrefix inserts stays in
// the prefix cache. kv_len is 0 afterwards.
void ReleaseSequence(StepContext& context, RequestStateEntry& entry);

// Starts the children of a root from the pages of its prompt. Requires: the whole prompt is in the
// KV cache.
void ForkChildren(StepContext& context, RequestStateEntry& root);

// Takes the pages of a running entry; it waits at the front of the queue to be computed again.
void Preempt(StepContext& context, RequestStateEntry& entry);

// Frees the pages of a waiting request that is partly prefilled; its prefill starts over. False if
// there is none.
bool DropPrefillProgress(StepContext& context);
// The same, of the last one that waits.
bool DropLastProgress(StepContext& context);

// Counts a token that is drawn for a sequence, the first of its answer or a further one.
void CountToken(StepContext& context, RequestStateEntry& leaf, bool is_first, TimePoint now);

// Ends one sequence.
void FinishEntry(StepContext& context, RequestStateEntry& leaf, FinishReason reason);

// Ends all sequences of a request that are not finished yet. The next post-process writes the
// outputs.
void EndRequest(StepContext& context, RequestState& rstate, FinishReason reason,
                const std::string& message);

}  // namespace mlc_native
