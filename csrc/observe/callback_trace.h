// CallbackTrace: the span of a callback, for each request that its outputs are of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mlc_native/data.h"
#include "observe/event_trace.h"

namespace mlc_native {

// Records "start NAME" when it is made and "finish NAME" when it ends, once per request. Without
// memory there is no span: the outputs go on their way all the same.
class CallbackTrace {
 public:
  // `recorder` may be null; `name` must outlive the object.
  CallbackTrace(EventTraceRecorder* recorder, std::string_view name,
                const std::vector<RequestStreamOutput>& outputs) noexcept;
  ~CallbackTrace();
  CallbackTrace(const CallbackTrace&) = delete;
  CallbackTrace& operator=(const CallbackTrace&) = delete;

 private:
  void Record(std::string_view prefix) const noexcept;

  EventTraceRecorder* const recorder_;
  const std::string_view name_;
  std::vector<std::string> ids_;  // each once
};

}  // namespace mlc_native
