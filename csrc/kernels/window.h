// Which keys a row of attention sees, on the CPU and on GPUs: all up to its own, only the last ones
// (a sliding window), or only those of its chunk; and as many behind its own, where it sees those.
// A value; any thread.
#pragma once

#include <compare>
#include <cstdint>

namespace mlc_native::kernels {

struct AttentionWindow {
  // NOLINTNEXTLINE(google-explicit-constructor): a number of keys is a sliding window.
  constexpr AttentionWindow(int64_t size = 0, bool is_chunk = false)
      : size(size), is_chunk(is_chunk) {}

  // The first key that a row at this position sees; it sees all from there to its own. Never below
  // that of an earlier position.
  constexpr int64_t First(int64_t position) const {
    if (size == 0) return 0;
    if (is_chunk) return position - position % size;
    return position >= size ? position - size + 1 : 0;
  }
  // The last key that it sees, of those up to `last_key`. Never below that of an earlier position.
  constexpr int64_t Last(int64_t position, int64_t last_key) const {
    if (last_key <= position) return position;
    const bool is_sliding = size > 0 && !is_chunk;
    return is_sliding && last_key - position >= size ? position + size - 1 : last_key;
  }
  auto operator<=>(const AttentionWindow&) const = default;

  int64_t size;   // keys; 0: all are seen
  bool is_chunk;  // keys are divided into chunks of `size`, and a row sees those of its own
};

}  // namespace mlc_native::kernels
