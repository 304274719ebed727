// The tokenizer of a model folder that has no tokenizer.json, of the files that stand for one:
// SentencePiece's, tiktoken's, tekken.json, vocab.json with merges.txt, vocab.txt. Pure; any
// thread.
#pragma once

#include <string>

#include "model_files/vocabulary.h"

namespace mlc_native {

// Whether there are such files. Reads none.
bool HasFolderTokenizer(const std::string& folder);
// Throws LoadError for files that are damaged or not supported. Decoding needs no merges.
// Requires: HasFolderTokenizer.
Vocabulary ReadFolderTokenizer(const std::string& folder, bool with_merges);

}  // namespace mlc_native
