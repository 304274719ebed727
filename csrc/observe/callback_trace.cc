#include "observe/callback_trace.h"

#include <algorithm>
#include <new>

namespace mlc_native {

CallbackTrace::CallbackTrace(EventTraceRecorder* recorder, std::string_view name,
                             const std::vector<RequestStreamOutput>& outputs) noexcept
    : recorder_(recorder), name_(name) {
  if (recorder_ == nullptr) return;
  try {
    for (const RequestStreamOutput& output : outputs) ids_.push_back(output.request_id);
  } catch (const std::bad_alloc&) {
    ids_.clear();
  }
  std::ranges::sort(ids_);
  const auto repeated = std::ranges::unique(ids_);
  ids_.erase(repeated.begin(), repeated.end());
  Record("start ");
}

CallbackTrace::~CallbackTrace() { Record("finish "); }

void CallbackTrace::Record(std::string_view prefix) const noexcept {
  if (ids_.empty()) return;
  try {
    const std::vector<std::string_view> ids(ids_.begin(), ids_.end());
    recorder_->AddEvent(ids, std::string(prefix).append(name_));
  } catch (const std::bad_alloc&) {
    return;
  }
}

}  // namespace mlc_native
