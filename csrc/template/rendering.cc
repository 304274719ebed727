#include "template/rendering.h"

#include <time.h>

#include <utility>

#include "support/message.h"
#include "template/text.h"

namespace mlc_native::templates {
namespace {

constexpr int64_t kStepsPerCheck = 4096;  // of the time

// Of the thread, so that a busy machine does not end a rendering.
double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

const char* StackHere() { return static_cast<const char*>(__builtin_frame_address(0)); }

}  // namespace

Rendering::Rendering(Arena arena, const RenderLimits& limits, size_t input_bytes,
                     size_t input_values)
    : arena_(std::move(arena)),
      stack_(StackHere()),
      stack_bytes_(limits.stack_bytes),
      max_output_(limits.output_chars + 4 * input_bytes + 64 * input_values),
      max_steps_(limits.steps + static_cast<int64_t>(input_bytes / 4 + 64 * input_values)),
      seconds_(limits.seconds + 1e-6 * static_cast<double>(input_bytes) +
               5e-5 * static_cast<double>(input_values)),
      deadline_(ThreadSeconds() + seconds_),
      next_check_(kStepsPerCheck) {
  arena_.SetRoom(limits.memory_bytes + 16 * input_bytes + 256 * input_values);
}

void Rendering::Check() {
  if (steps_ > max_steps_) Refuse("it took more than " + std::to_string(max_steps_) + " steps");
  if (ThreadSeconds() > deadline_) {
    std::string text = "it ran for more than ";
    AppendTo(&text, seconds_);
    Refuse(text + " s");
  }
  next_check_ = steps_ + kStepsPerCheck;
}

void Rendering::CheckStack() const {
  const char* const here = StackHere();
  const auto used = here < stack_ ? stack_ - here : here - stack_;
  if (static_cast<size_t>(used) > stack_bytes_) {
    Refuse("its macros or values are within each other without end");
  }
}

void Rendering::Fail(const std::string& message) const {
  throw TemplateError(TemplateError::Kind::kFailed, message, line);
}

void Rendering::Refuse(const std::string& message) const {
  throw TemplateError(TemplateError::Kind::kLimit, message, line);
}

void Rendering::NotSupported(const std::string& message) const {
  throw TemplateError(TemplateError::Kind::kNotSupported, message, line);
}

void Rendering::FailOnUndefined(const Value& value) const {
  const std::string name =
      value.text == nullptr ? "a value" : "'" + std::string(value.text->bytes) + "'";
  Fail(name + " is undefined");
}

}  // namespace mlc_native::templates
