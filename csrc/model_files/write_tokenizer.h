// WriteTokenizerJson writes a tokenizer.json (huggingface/tokenizers). Pure; any thread.
#pragma once

#include <string>

#include "model_files/vocabulary.h"

namespace mlc_native {

std::string WriteTokenizerJson(const Vocabulary& vocabulary);

}  // namespace mlc_native
