// The text of a tokenizer.json. Any thread.
#pragma once

#include <string>

namespace mlc_native {

// Throws LoadError when the file cannot be read.
std::string ReadTokenizerFile(const std::string& path);

[[noreturn]] void FailTokenizerFile(const std::string& path, const std::string& what);

}  // namespace mlc_native
