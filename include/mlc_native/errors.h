// The errors that callers can cause. Each names the field, its value and the allowed range.
//
//   InvalidRequest  One request is wrong; other requests are not affected.
//   QueueFull       An InvalidRequest that may succeed later.
//   InvalidConfig   An engine setting is wrong.
//   LoadError       Files of a model are missing, damaged or of an unsupported kind.
//
// Python has the same types.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "mlc_native/detail/export.h"

namespace mlc_native {

class MLC_NATIVE_API CallerError : public std::runtime_error {
 public:
  CallerError(std::string field, const std::string& message)
      : std::runtime_error(message), field_(std::move(field)) {}
  // The name of the offending field, file or tensor.
  const std::string& field() const { return field_; }

 private:
  std::string field_;
};

class MLC_NATIVE_API InvalidRequest : public CallerError {
 public:
  using CallerError::CallerError;
};

// Too many requests are waiting. The same request may be accepted later (HTTP 429).
class MLC_NATIVE_API QueueFull : public InvalidRequest {
 public:
  QueueFull(int64_t queue_length, int64_t max_queue_length);
  // Of another queue than that of requests that wait to be started.
  QueueFull(std::string field, const std::string& message, int64_t queue_length,
            int64_t max_queue_length)
      : InvalidRequest(std::move(field), message),
        queue_length_(queue_length),
        max_queue_length_(max_queue_length) {}
  int64_t queue_length() const { return queue_length_; }
  int64_t max_queue_length() const { return max_queue_length_; }

 private:
  int64_t queue_length_;
  int64_t max_queue_length_;
};

class MLC_NATIVE_API InvalidConfig : public CallerError {
 public:
  using CallerError::CallerError;
};

class MLC_NATIVE_API LoadError : public CallerError {
 public:
  using CallerError::CallerError;
};

inline QueueFull::QueueFull(int64_t queue_length, int64_t max_queue_length)
    : InvalidRequest("max_queue_length",
                     "The queue is full: " + std::to_string(queue_length) +
                         " requests wait to be started, \"max_queue_length\" is " +
                         std::to_string(max_queue_length)),
      queue_length_(queue_length),
      max_queue_length_(max_queue_length) {}

}  // namespace mlc_native
