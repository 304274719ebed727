// RenderLimits: what one rendering of a chat template may use without input. What the input brings
// adds to each limit. mlc_native/template_sandbox/budget.py has the same limits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mlc_native {

struct RenderLimits {
  double seconds = 0.2;     // of the processor. A million bytes add 1 s, a value 50 us
  int64_t steps = 300'000;  // iterations, calls and visited values. A byte adds 1/4, a value 64
  size_t memory_bytes = 48u << 20;  // of all that is made. A byte adds 16, a value 256
  size_t output_chars = 8u << 20;   // of the prompt. A byte adds 4, a value 64
  size_t stack_bytes = 160u << 10;  // of the thread that renders; input adds nothing
};

}  // namespace mlc_native
