// Changes of an input, drawn with a seed: bits, bytes, pieces of the corpus, and words that the
// readers know. A value; one thread.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>

namespace mlc_native::fuzz {

class Mutator {
 public:
  // Requires: the corpus is not empty. It must outlive the mutator.
  Mutator(std::span<const std::string> corpus, uint64_t seed);

  // Returns an input of the corpus with one to eight changes.
  std::string Next();

 private:
  size_t Below(size_t limit);  // in [0, limit); 0 if limit is 0
  const std::string& Pick();
  void Change(std::string* text);

  std::span<const std::string> corpus_;
  std::mt19937_64 random_;
};

}  // namespace mlc_native::fuzz
