// GgufLayerKeys reads the keys of a family ("lfm2.<name>") that say how its layers differ: numbers
// that the file must have, and lists with an element for each layer.
//
// A view of the file, which must outlive it. Immutable; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model_files/gguf_file.h"

namespace mlc_native {

class GgufLayerKeys {
 public:
  GgufLayerKeys(const GgufFile& file, std::string_view family) : file_(file), family_(family) {}

  std::string Key(std::string_view name) const { return family_ + '.' + std::string(name); }
  // Throws LoadError, which names the file and the key.
  [[noreturn]] void Fail(std::string_view name, const std::string& what) const;

  void Require(std::string_view name) const;  // throws LoadError when the key is missing
  int64_t Required(std::string_view name) const;
  // Throws LoadError unless `value` is a multiple of `divisor`, the value of the key `of`, which
  // must be at least 1.
  void CheckMultiple(std::string_view name, int64_t value, std::string_view of,
                     int64_t divisor) const;

  // A number of each layer, of which the file may have one for all. Layers that guess further
  // tokens, the last ones of the file, are left out.
  std::vector<int64_t> OfLayers(std::string_view name) const;
  // The number that all layers with one other than 0 have; 0: all have 0. Throws LoadError where
  // layers differ; `those` says which layers these are.
  int64_t OnlyOne(std::string_view name, const std::vector<int64_t>& of_layers,
                  const char* those) const;

 private:
  const GgufFile& file_;
  const std::string family_;
};

}  // namespace mlc_native
