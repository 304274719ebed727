// The vocabularies of GGUF files of encoders: WordPiece, as BERT has it, and Unigram, as
// XLM-RoBERTa has it. Pure; any thread.
#pragma once

#include "model_files/gguf_file.h"
#include "model_files/vocabulary.h"

namespace mlc_native {

// Each throws LoadError for what the file lacks or what is not supported.
Vocabulary ReadGgufWordPiece(const GgufFile& file);
Vocabulary ReadGgufUnigram(const GgufFile& file);

}  // namespace mlc_native
