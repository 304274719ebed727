// mlcn_request: a request as the host sees it. It is alive as long as anybody has a reference: the
// host, the engine until the final output has been delivered, and each batch of outputs.
//
// Its members are constant, except what the mutex guards; any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "mlc_native/mlc_native.h"
#include "support/mutex.h"

namespace mlc_native::c_api {
class HostEngine;
using OutputFunction = void (*)(const mlcn_output*);
}  // namespace mlc_native::c_api

struct mlcn_request {
 public:
  mlcn_request(std::string id, mlc_native::c_api::OutputFunction on_output, void* user_data,
               std::weak_ptr<mlc_native::c_api::HostEngine> engine)
      : id(std::move(id)), on_output(on_output), user_data(user_data), engine(std::move(engine)) {}

  void Retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void Release() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  void Finish() {
    {
      const mlc_native::MutexLock lock(mutex_);
      finished_ = true;
    }
    changed_.NotifyAll();
  }
  bool finished() {
    const mlc_native::MutexLock lock(mutex_);
    return finished_;
  }
  // Returns whether it has finished. Without a deadline it waits as long as it takes.
  bool Wait(std::optional<std::chrono::steady_clock::time_point> deadline) {
    const mlc_native::MutexLock lock(mutex_);
    while (!finished_) {
      if (!deadline) {
        changed_.Wait(mutex_);
      } else if (!changed_.WaitUntil(mutex_, *deadline)) {
        break;
      }
    }
    return finished_;
  }

  const std::string id;
  const mlc_native::c_api::OutputFunction on_output;  // null: outputs are polled
  void* const user_data;
  const std::weak_ptr<mlc_native::c_api::HostEngine> engine;

 private:
  std::atomic<int64_t> references_{1};
  mlc_native::Mutex mutex_;
  mlc_native::CondVar changed_;
  bool finished_ MLC_GUARDED_BY(mutex_) = false;
};

namespace mlc_native::c_api {

// A reference to a request.
class RequestRef {
 public:
  // Takes over the reference that a new request has.
  static RequestRef Adopt(mlcn_request* request) { return RequestRef(request); }

  RequestRef(const RequestRef& other) : request_(other.request_) {
    if (request_ != nullptr) request_->Retain();
  }
  RequestRef(RequestRef&& other) noexcept : request_(std::exchange(other.request_, nullptr)) {}
  RequestRef& operator=(RequestRef other) noexcept {
    std::swap(request_, other.request_);
    return *this;
  }
  ~RequestRef() {
    if (request_ != nullptr) request_->Release();
  }

  mlcn_request* get() const { return request_; }
  mlcn_request* operator->() const { return request_; }
  // The reference becomes the caller's.
  mlcn_request* Release() { return std::exchange(request_, nullptr); }

 private:
  explicit RequestRef(mlcn_request* request) : request_(request) {}

  mlcn_request* request_;
};

}  // namespace mlc_native::c_api
