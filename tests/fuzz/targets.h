// The functions that read what others have written, each as a fuzz target: it takes any bytes, and
// returns when they were read or refused with an error for callers. What else happens is a finding:
// another exception, a report of a sanitizer, or an input that takes longer than the driver allows.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace mlc_native::fuzz {

using Bytes = std::span<const uint8_t>;

struct Target {
  std::string_view name;  // also of its folder in tests/fuzz/corpus
  void (*run)(Bytes input);
};

// All targets.
std::span<const Target> Targets();

// The part of an input that is text.
inline std::string_view TextOf(Bytes input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

// Takes the first byte of an input away, which chooses among `count` variants; 0 of an empty one.
inline int TakeChoice(Bytes& input, int count) {
  if (input.empty()) return 0;
  const int choice = input[0] % count;
  input = input.subspan(1);
  return choice;
}

}  // namespace mlc_native::fuzz
