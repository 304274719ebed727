// The vocabulary of a model file of SentencePiece (tokenizer.model, spiece.model,
// sentencepiece.bpe.model, spm.model), with the ids and the special tokens that the family in a
// model folder has. Pure; any thread.
#pragma once

#include <string>

#include "model_files/tokenizer_settings.h"
#include "model_files/vocabulary.h"

namespace mlc_native {

// `content` is that of the file `path`. Throws LoadError, which names the file and the field.
Vocabulary ReadSentencePieceTokenizer(const std::string& path, std::string content,
                                      const TokenizerSettings& settings, bool with_merges);

}  // namespace mlc_native
