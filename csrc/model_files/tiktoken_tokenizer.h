// The vocabulary of a file of tiktoken's form: lines of a token in base64 and its rank
// (tiktoken.model, qwen.tiktoken, and tokenizer.model of some families). Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "model_files/tokenizer_settings.h"
#include "model_files/vocabulary.h"

namespace mlc_native {

// Whether a file begins as one of this form does, and not as one of SentencePiece.
bool IsTiktoken(std::string_view content);

// How the file cuts texts follows from the family in the folder; one that is not known is refused
// by name. Throws LoadError, which names the file and the line.
Vocabulary ReadTiktokenTokenizer(const std::string& path, std::string_view content,
                                 const TokenizerSettings& settings, bool with_merges);

}  // namespace mlc_native
