// The files of a GGUF model: one, or the parts that it was split into.
//
// The first part has the metadata of all. A tensor may lie in any part, also one that says what the
// metadata leaves out. Immutable; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mlc_native/detail/export.h"
#include "model_files/gguf_file.h"

namespace mlc_native {

class MLC_NATIVE_PRIVATE_API GgufParts {
 public:
  // Throws LoadError: damaged, a part that is missing or of another model.
  explicit GgufParts(const std::string& path);

  const GgufFile& first() const { return files_.front(); }
  const std::vector<GgufFile>& files() const { return files_; }

  bool Has(std::string_view tensor) const { return Find(tensor).file != nullptr; }
  // Where a tensor is, in the header's order of the parts; null: there is none.
  struct Place {
    const GgufFile* file = nullptr;
    const GgufTensor* tensor = nullptr;
  };
  Place Find(std::string_view tensor) const;

  // The type of what is not kept in its stored form: that of the matrices of floats, the one with
  // the most bits, or float16.
  const char* DTypeOfMatrices() const;

 private:
  std::vector<GgufFile> files_;  // at least one
};

}  // namespace mlc_native
