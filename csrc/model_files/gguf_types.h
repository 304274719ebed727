// The types that tensors of a GGUF file have: how many elements a block of one has, and how many
// bytes. Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace mlc_native {

struct GgufType {
  uint32_t id = 0;
  std::string_view name;    // "F32", "Q8_0", ...
  int64_t block = 1;        // elements, neighbours in a row
  int64_t block_bytes = 0;  // of so many elements
};

const GgufType* FindGgufType(uint32_t id);  // nullptr: unknown

}  // namespace mlc_native
