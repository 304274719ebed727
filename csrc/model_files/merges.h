// The merges of BPE, of a vocabulary that says in other ways which tokens come first. `path` is
// that of its file: of tokens that can be made in far too many ways, a LoadError names it. Pure;
// any thread.
#pragma once

#include <string>
#include <vector>

#include "model_files/vocabulary.h"

namespace mlc_native {

// The merges that spell the tokens, in the order of their scores. SentencePiece joins the two
// neighbours whose union has the best score; that is a list of merges in which the scores fall.
std::vector<MergePair> MergesByScore(const Vocabulary& vocabulary, const std::string& path);

// Those of tokens whose ids are their ranks: the two neighbours are joined whose union has the
// lowest one, which is what tiktoken does. `bytes` are those of the tokens, by id; ids without a
// token have none.
std::vector<MergePair> MergesByRank(const std::vector<std::string>& bytes, const std::string& path);

}  // namespace mlc_native
