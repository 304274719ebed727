// The vocabularies of vocab.json with merges.txt (byte-level BPE: GPT-2, OPT, RoBERTa, Qwen2) and
// of vocab.txt (WordPiece: BERT). Pure; any thread.
#pragma once

#include <string>

#include "model_files/tokenizer_settings.h"
#include "model_files/vocabulary.h"

namespace mlc_native {

// How the files are read follows from the family in the folder; one that is not known is refused by
// name. Both throw LoadError, which names the file and the line or the field.
Vocabulary ReadVocabJson(const std::string& folder, const TokenizerSettings& settings,
                         bool with_merges);
Vocabulary ReadVocabTxt(const std::string& folder, const TokenizerSettings& settings);

}  // namespace mlc_native
