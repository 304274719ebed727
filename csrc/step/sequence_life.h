// How sequences come to hold pages and give them back: admission, fork, preemption, end. Engine's
// thread only.
//
// Every function leaves queues, entries, ids and pages consistent with each other.
#pragma once

#include <string>

#include "step/action.h"

namespace mlc_native {

// Gives the entry an id and a sequence in the KV cache, with its first num_cached tokens from the
// prefix cache; its request counts as started at `now`.
void StartSequence(const EngineState& estate, const EngineParts& parts, RequestStateEntry& entry,
                   int64_t num_cached, TimePoint now);

// Shows what collected steps have computed of the entry to the prefix cache.
void CachePrefix(const EngineState& estate, const RequestStateEntry& entry);

// Pins the prompt of a request, which has just been computed, and counts its tokens as pinned. When
// other pins leave too little room, it stays in the cache like any other prompt.
void PinPrompt(const EngineState& estate, RequestState& rstate);

// Leaves what CachePrefix shows to the prefix cache and gives back its pages and its id, if it has
// any; kv_len is 0 afterwards.
void ReleaseSequence(const EngineState& estate, const EngineParts& parts, RequestStateEntry& entry);

// The prompt of a root is in the cache: its children start from its pages and run.
void ForkChildren(const EngineState& estate, const EngineParts& parts, RequestStateEntry& root);

// A running entry gives up its pages and waits in front to be computed again.
void Preempt(const EngineState& estate, const EngineParts& parts, RequestStateEntry& entry);

// Frees the pages of a waiting entry that is partly prefilled; it starts anew. False when there is
// none.
bool DropPrefillProgress(const EngineState& estate, const EngineParts& parts);

// Ends one sequence.
void FinishEntry(const EngineState& estate, const EngineParts& parts, RequestStateEntry& leaf,
                 FinishReason reason);

// Ends all sequences of a request that are not finished yet; the next post-process says so.
void EndRequest(const EngineState& estate, const EngineParts& parts, RequestState& rstate,
                FinishReason reason, const std::string& message);

}  // namespace mlc_native
