// HostEngine: what stands behind an mlcn_engine: the threaded engine, the text side of its model,
// the requests that are live, and the outputs that wait to be polled.
//
// Any thread calls the methods. No lock is held while a function of the host runs, except that a
// reload waits for another one, whose progress the host is told. It outlives its handle only in
// calls that have begun.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "c_api/host_model.h"
#include "c_api/output_batch.h"
#include "c_api/request_body.h"
#include "c_api/request_handle.h"
#include "mlc_native/threaded_engine.h"
#include "support/memory_reserve.h"
#include "support/mutex.h"

namespace mlc_native::c_api {

// What mlcn_submit is given, besides the body.
struct SubmitArguments {
  OutputFunction on_output = nullptr;
  void* user_data = nullptr;
  std::optional<std::string> request_id = {};
  std::optional<std::span<const int32_t>> tokens = {};
};

// A descriptor that is readable while its counter is not 0. Closed with its owner.
class EventFd {
 public:
  // Throws CallError if no descriptor is left.
  EventFd();
  ~EventFd();
  EventFd(const EventFd&) = delete;
  EventFd& operator=(const EventFd&) = delete;

  int get() const { return fd_; }
  void Signal() const;
  void Clear() const;

 private:
  const int fd_;
};

class HostEngine : public std::enable_shared_from_this<HostEngine> {
 public:
  // Throws InvalidConfig, LoadError.
  static std::shared_ptr<HostEngine> Create(const std::string& model, std::string_view config_json,
                                            const std::string& device, LoadProgress progress,
                                            Log log);
  ~HostEngine();

  void Reload(const std::string& model, std::string_view config_json);
  void Stop();
  void CancelAll();
  // Stores the request in *handle before anything is delivered.
  void Submit(std::string_view body, const SubmitArguments& arguments, mlcn_request** handle);
  // Nothing happens if it has ended.
  void Cancel(const mlcn_request& request);
  // Throws CallError in a process that was forked from the engine's.
  void RefuseAfterFork() const;
  bool IsForked() const;
  // Throws CallError within a callback, which would wait for itself.
  void RefuseInCallback(const char* what) const;

  // Null: there was nothing until the deadline (none: until the engine was stopped).
  std::unique_ptr<mlcn_outputs> Poll(size_t max_outputs,
                                     std::optional<std::chrono::steady_clock::time_point> deadline);
  int event_fd() const { return event_fd_.get(); }

  // Throws CallError (MLCN_INVALID_STATE) when no model is loaded.
  std::shared_ptr<const HostModel> model() const;
  std::string Info() const;
  std::string Metrics();
  int64_t PinPrefix(std::span<const int32_t> tokens);
  void UnpinPrefix(int64_t pin_id);
  void LoadAdapter(const std::string& name, const std::string& path);
  void UnloadAdapter(const std::string& name);

 private:
  HostEngine(const std::string& device, LoadProgress progress);
  // The function, which stores its thread in loading_ while it runs.
  LoadProgress NotingThread(LoadProgress progress);
  void Load(const EngineConfig& config, std::shared_ptr<const ModelText> text);
  void Deliver(std::vector<RequestStreamOutput> outputs);
  void FindRequests(OutputBatch* batch);
  void Enqueue(const OutputSlice& slice);
  RequestRef Register(const SubmitArguments& arguments);
  RequestPtr Create(const std::string& id, RequestBody body) const;
  std::string FreeId() MLC_REQUIRES(mutex_);
  void Forget(const std::string& id);

  const pid_t process_;
  const std::string device_;
  const LoadProgress progress_;
  // Readable exactly while the queue has outputs: changed under its mutex.
  const EventFd event_fd_;
  // The threads within on_output and on_progress.
  std::atomic<std::thread::id> delivering_{};
  std::atomic<std::thread::id> loading_{};
  MemoryReserve reserve_;
  // A cleared batch for the next delivery, or null. Of the thread that delivers.
  std::shared_ptr<OutputBatch> spare_batch_;

  // Held while another model is loaded, so that model_ and what the engine has loaded are the same.
  Mutex reload_mutex_;  // locked before mutex_
  mutable Mutex mutex_;
  std::shared_ptr<const HostModel> model_ MLC_GUARDED_BY(mutex_);  // null: none
  std::unordered_map<std::string, RequestRef> live_ MLC_GUARDED_BY(mutex_);
  uint64_t next_id_ MLC_GUARDED_BY(mutex_) = 0;

  Mutex queue_mutex_;
  CondVar queue_changed_;
  std::deque<OutputSlice> queue_ MLC_GUARDED_BY(queue_mutex_);  // each slice has outputs
  bool stopped_ MLC_GUARDED_BY(queue_mutex_) = false;

  std::unique_ptr<ThreadedEngine> engine_;  // the last member: its threads use the others
};

}  // namespace mlc_native::c_api

struct mlcn_engine {
  std::shared_ptr<mlc_native::c_api::HostEngine> host;
};
