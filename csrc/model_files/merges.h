// The merges of BPE, of a vocabulary that says in other ways which tokens come first. Pure; any
// thread.
#pragma once

#include <vector>

#include "model_files/vocabulary.h"

namespace mlc_native {

// The merges that spell the tokens, in the order of their scores. SentencePiece joins the two
// neighbours whose union has the best score; that is a list of merges in which the scores fall.
std::vector<MergePair> MergesByScore(const Vocabulary& vocabulary);

}  // namespace mlc_native
