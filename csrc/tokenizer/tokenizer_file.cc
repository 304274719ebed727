#include "tokenizer/tokenizer_file.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "support/error.h"

namespace mlc_native {

std::string ReadTokenizerFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) FailTokenizerFile(path, "cannot be opened");
  std::ostringstream text;
  text << in.rdbuf();  // a directory opens, too, but cannot be read
  if (in.bad() || text.fail()) FailTokenizerFile(path, "cannot be read");
  return std::move(text).str();
}

void FailTokenizerFile(const std::string& path, const std::string& what) {
  throw LoadError("tokenizer.json", path + ": " + what);
}

}  // namespace mlc_native
