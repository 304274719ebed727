// The vocabulary of tekken.json, Mistral's own form. Pure; any thread.
#pragma once

#include <string>

#include "model_files/tokenizer_settings.h"
#include "model_files/vocabulary.h"

namespace mlc_native {

// Throws LoadError, which names the file and the field.
Vocabulary ReadTekkenTokenizer(const std::string& path, const TokenizerSettings& settings,
                               bool with_merges);

}  // namespace mlc_native
