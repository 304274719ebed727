// The tokenizer.json of GGUF files of encoders: WordPiece, as BERT has it, and Unigram, as
// XLM-RoBERTa has it. Pure; any thread.
#pragma once

#include <string>

#include "model_files/gguf_file.h"

namespace mlc_native {

// Each throws LoadError for what the file lacks or what is not supported.
std::string GgufWordPieceJson(const GgufFile& file);
std::string GgufUnigramJson(const GgufFile& file);

}  // namespace mlc_native
