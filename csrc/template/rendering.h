// Rendering: what one rendering may use, and what it has used. An operation pays before it runs,
// for every value that it visits and every byte that it reads; what it makes lies in the arena,
// which is limited by itself. No operation can therefore be long or large, however often a template
// puts a list into itself. One rendering, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "template/arena.h"
#include "template/limits.h"
#include "template/template_error.h"
#include "template/value.h"

namespace mlc_native::templates {

inline constexpr int kMaxDepth = 200;  // of lists and objects within each other

class Rendering {
 public:
  // The arena has the input already. `input_bytes` and `input_values` add to the limits.
  Rendering(Arena arena, const RenderLimits& limits, size_t input_bytes, size_t input_values);

  Arena& arena() { return arena_; }

  // Pays for steps that come next.
  void Pay(int64_t steps) {
    steps_ += steps;
    if (steps_ >= next_check_) Check();
  }
  // Pays for reading or copying a text once.
  void PayBytes(size_t bytes) { Pay(1 + static_cast<int64_t>(bytes / 256)); }
  // Throws if the stack is nearly used up. Called wherever one operation is within another.
  void CheckStack() const;
  // Pays for a value that lies `depth` levels deep in the one that is visited.
  void Visit(int depth) {
    Pay(1);
    if (depth > kMaxDepth) Refuse("a value is nested deeper than 200 levels");
    CheckStack();
  }
  void CheckOutput(size_t bytes) const {
    if (bytes > max_output_) Refuse("it wrote more than " + std::to_string(max_output_) + " bytes");
  }

  // Each throws a TemplateError with the line that is being rendered.
  [[noreturn]] void Fail(const std::string& message) const;          // kFailed
  [[noreturn]] void Refuse(const std::string& message) const;        // kLimit
  [[noreturn]] void NotSupported(const std::string& message) const;  // kNotSupported
  [[noreturn]] void FailOnUndefined(const Value& value) const;

  int line = 0;  // of the source, being rendered

 private:
  void Check();

  Arena arena_;
  const char* const stack_;  // where the rendering began
  const size_t stack_bytes_;
  const size_t max_output_;
  const int64_t max_steps_;
  const double seconds_;
  const double deadline_;
  int64_t steps_ = 0;
  int64_t next_check_;
};

}  // namespace mlc_native::templates
