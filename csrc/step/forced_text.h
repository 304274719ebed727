// The drafter of text that the grammar of an answer forces, encoded as the tokenizer would.
//
// Jump-forward decoding (jump_forward.h) stays apart from it, because it does something else: its
// tokens become part of the answer without being drawn, and it encodes tokens before them again. A
// draft is a guess of what the model draws, which may spell the same text in other tokens. So a
// request with jumps has the same answer with and without drafts, and so has one without jumps,
// where a guess saves the forwards that a jump would have saved. What a jump leaves to the model is
// not guessed: finding the text once more costs more than it saves. Owned by the drafts of its
// sequence; engine's thread only.
#pragma once

#include <memory>

#include "draft/drafter.h"

namespace mlc_native {

struct RequestStateEntry;

// Returns null if the answer has no grammar, if its text is not encoded here or if it jumps. The
// entry outlives the drafter.
std::unique_ptr<Drafter> MakeForcedTextDrafter(RequestStateEntry& entry);

}  // namespace mlc_native
