#include "c_api/host_engine.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "c_api/call.h"
#include "config/device.h"
#include "support/error.h"
#include "support/json.h"

namespace mlc_native::c_api {
namespace {

[[noreturn]] void ThrowInvalidState(const std::string& message) {
  throw CallError(MLCN_INVALID_STATE, "engine", message);
}

EngineConfig ReadConfig(const std::string& model, std::string_view config_json) {
  EngineConfig config = EngineConfig::FromJSONString(std::string(config_json));
  if (!config.model.empty() && config.model != model) {
    throw InvalidConfig("model", "the argument \"model\" is \"" + model +
                                     "\", and the config names \"" + config.model + '"');
  }
  config.model = model;
  return config;
}

}  // namespace

EventFd::EventFd() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd_ < 0) ThrowInvalidState("no file descriptor is left for the event of outputs");
}

EventFd::~EventFd() { close(fd_); }

void EventFd::Signal() const {
  const uint64_t one = 1;
  static_cast<void>(!write(fd_, &one, sizeof(one)));
}

void EventFd::Clear() const {
  uint64_t count = 0;
  static_cast<void>(!read(fd_, &count, sizeof(count)));
}

HostEngine::HostEngine(const std::string& device, LoadProgress progress)
    : process_(getpid()),
      device_(device),
      progress_(NotingThread(std::move(progress))),
      engine_(ThreadedEngine::Create()) {}

LoadProgress HostEngine::NotingThread(LoadProgress progress) {
  if (!progress) return progress;
  return [this, progress = std::move(progress)](int64_t done, int64_t total) {
    loading_ = std::this_thread::get_id();
    progress(done, total);
    loading_ = std::thread::id();
  };
}

std::shared_ptr<HostEngine> HostEngine::Create(const std::string& model,
                                               std::string_view config_json,
                                               const std::string& device, LoadProgress progress,
                                               Log log) {
  const EngineConfig config = ReadConfig(model, config_json);
  std::shared_ptr<const ModelText> text = ModelText::Load(config);
  const std::shared_ptr<HostEngine> host(new HostEngine(device, std::move(progress)));
  // The engine is a member, and its last callback is over when it is destroyed.
  host->engine_->InitThreadedEngine(
      device,
      [raw = host.get()](std::vector<RequestStreamOutput> outputs) {
        raw->Deliver(std::move(outputs));
      },
      nullptr, std::move(log));
  host->engine_->Start();
  host->Load(config, std::move(text));
  return host;
}

HostEngine::~HostEngine() = default;

void HostEngine::Load(const EngineConfig& config, std::shared_ptr<const ModelText> text) {
  auto model = std::make_shared<HostModel>();
  model->name = config.model;
  model->device = ResolveDevice(device_, config.model_lib);
  engine_->Reload(config.AsJSONString(), progress_);
  model->text = std::move(text);
  // The engine has the new model now, and no request may reach it that was made for the one before.
  reserve_.Run([&] {
    model->config = engine_->GetCompleteEngineConfig();
    model->limits = engine_->GetRequestLimits();
    model->defaults = engine_->GetDefaultGenerationConfig();
  });
  const MutexLock lock(mutex_);
  model_ = std::move(model);
}

void HostEngine::Reload(const std::string& model, std::string_view config_json) {
  RefuseInCallback("load a model");
  const EngineConfig config = ReadConfig(model, config_json);
  std::shared_ptr<const ModelText> text = ModelText::Load(config);
  const MutexLock one_at_a_time(reload_mutex_);
  std::shared_ptr<const HostModel> before;
  {
    // From here on requests are refused, so that none reaches a model that it was not made for.
    const MutexLock lock(mutex_);
    before = std::exchange(model_, nullptr);
  }
  try {
    Load(config, std::move(text));
  } catch (...) {
    try {
      reserve_.Run([&] { engine_->GetRequestLimits(); });
    } catch (const InvalidRequest&) {
      before = nullptr;  // it was unloaded
    }
    const MutexLock lock(mutex_);
    if (model_ == nullptr) model_ = std::move(before);
    throw;
  }
}

void HostEngine::Stop() {
  RefuseInCallback("stop the engine");
  engine_->Stop();
  {
    const MutexLock lock(mutex_);
    model_ = nullptr;
  }
  {
    const MutexLock lock(queue_mutex_);
    stopped_ = true;
  }
  queue_changed_.NotifyAll();
}

void HostEngine::CancelAll() { engine_->AbortAllRequests(); }

// Under the lock, so that a request that takes over the name cannot be meant.
void HostEngine::Cancel(const mlcn_request& request) {
  const MutexLock lock(mutex_);
  const auto found = live_.find(request.id);
  if (found != live_.end() && found->second.get() == &request) engine_->AbortRequest(request.id);
}

bool HostEngine::IsForked() const { return getpid() != process_; }

void HostEngine::RefuseAfterFork() const {
  if (!IsForked()) return;
  ThrowInvalidState("The engine belongs to the process that forked this one: create another one");
}

void HostEngine::RefuseInCallback(const char* what) const {
  const std::thread::id self = std::this_thread::get_id();
  if (delivering_.load() == self || loading_.load() == self) {
    ThrowInvalidState(std::string("a callback cannot ") + what + ", which waits for callbacks");
  }
}

std::shared_ptr<const HostModel> HostEngine::model() const {
  const MutexLock lock(mutex_);
  if (model_ == nullptr) ThrowInvalidState("No model is loaded, or the engine was stopped");
  return model_;
}

void HostEngine::Submit(std::string_view body, const SubmitArguments& arguments,
                        mlcn_request** handle) {
  const std::shared_ptr<const HostModel> model = this->model();
  RequestBody read = ReadRequestBody(body, *model, arguments.tokens);
  const RequestRef request = Register(arguments);
  try {
    RequestPtr created = Create(request->id, std::move(read));
    RequestRef held = request;
    const MutexLock lock(mutex_);
    if (model_ != model) ThrowInvalidState("The model was replaced while the request was prepared");
    *handle = held.get();
    engine_->AddRequest(std::move(created));
    static_cast<void>(held.Release());
  } catch (...) {
    *handle = nullptr;
    Forget(request->id);
    throw;
  }
}

RequestPtr HostEngine::Create(const std::string& id, RequestBody body) const {
  std::vector<Data> inputs = {TokenData{std::move(body.tokens)}};
  if (!body.embedding) {
    return engine_->CreateRequest(id, std::move(inputs), std::move(body.generation),
                                  body.begins_turn);
  }
  return WithErrorsAboutInput([&] {
    return engine_->CreateEmbeddingRequest(id, std::move(inputs), *body.embedding, body.generation);
  });
}

RequestRef HostEngine::Register(const SubmitArguments& arguments) {
  const MutexLock lock(mutex_);
  std::string id = arguments.request_id ? *arguments.request_id : FreeId();
  if (live_.contains(id)) {
    throw InvalidRequest("request_id", "\"request_id\" \"" + id +
                                           "\" is in use by a request that has not ended yet");
  }
  RequestRef request = RequestRef::Adopt(
      new mlcn_request(id, arguments.on_output, arguments.user_data, weak_from_this()));
  live_.emplace(std::move(id), request);
  return request;
}

// The host may have given such a name to a request of its own.
std::string HostEngine::FreeId() {
  std::string id;
  do {
    id = "request-" + std::to_string(++next_id_);
  } while (live_.contains(id));
  return id;
}

void HostEngine::Forget(const std::string& id) {
  const MutexLock lock(mutex_);
  live_.erase(id);
}

// Does not throw: what the engine has made arrives, if need be after a wait for memory.
void HostEngine::Deliver(std::vector<RequestStreamOutput> outputs) {
  delivering_ = std::this_thread::get_id();
  reserve_.Refill();
  std::shared_ptr<OutputBatch> batch = std::exchange(spare_batch_, nullptr);
  reserve_.Run([&] {
    if (batch == nullptr) batch = std::make_shared<OutputBatch>();
    batch->Take(&outputs);
  });
  FindRequests(batch.get());
  batch->MakeViews();
  // Pollers do not wait for the callbacks of others, and are woken once.
  if (!batch->polled().empty()) Enqueue({batch, batch->polled()});
  for (const mlcn_output& view : batch->polled()) {
    if (view.is_final != 0) view.request->Finish();
  }
  for (const mlcn_output& view : batch->called()) {
    view.request->on_output(&view);
    if (view.is_final != 0) view.request->Finish();
  }
  if (batch->polled().empty()) {
    batch->Clear();
    spare_batch_ = std::move(batch);
  }
  delivering_ = std::thread::id();
}

// All at once: a name may be used again from the moment that its request has ended.
void HostEngine::FindRequests(OutputBatch* batch) {
  const MutexLock lock(mutex_);
  for (const RequestStreamOutput& output : batch->outputs()) {
    const auto found = live_.find(output.request_id);
    if (output.is_final()) {
      batch->AddRequest(std::move(found->second));
      live_.erase(found);
    } else {
      batch->AddRequest(found->second);
    }
  }
}

// ---- polling

void HostEngine::Enqueue(const OutputSlice& slice) {
  reserve_.Run([&] {
    const MutexLock lock(queue_mutex_);
    const bool was_empty = queue_.empty();
    queue_.push_back(slice);
    if (was_empty) event_fd_.Signal();
  });
  queue_changed_.NotifyAll();
}

std::unique_ptr<mlcn_outputs> HostEngine::Poll(
    size_t max_outputs, std::optional<std::chrono::steady_clock::time_point> deadline) {
  const MutexLock lock(queue_mutex_);
  while (queue_.empty() && !stopped_) {
    if (!deadline) {
      queue_changed_.Wait(queue_mutex_);
    } else if (!queue_changed_.WaitUntil(queue_mutex_, *deadline)) {
      break;
    }
  }
  if (queue_.empty()) return nullptr;
  // What takes memory comes first.
  size_t num_slices = 0;
  for (size_t count = 0; num_slices < queue_.size() && count < max_outputs; ++num_slices) {
    count += queue_[num_slices].views.size();
  }
  auto taken = std::make_unique<mlcn_outputs>(num_slices);
  while (num_slices-- > 0) {
    taken->Append(queue_.front().TakeFirst(max_outputs - taken->size()));
    if (queue_.front().views.empty()) queue_.pop_front();
  }
  if (queue_.empty()) event_fd_.Clear();
  return taken;
}

// ---- what else an engine answers

std::string HostEngine::Info() const {
  const std::shared_ptr<const HostModel> model = this->model();
  JsonWriter json;
  json.BeginObject()
      .Add("model", model->name)
      .Add("device", model->device)
      .Add("vocab_size", model->limits.vocab_size)
      .Add("max_sequence_length", model->limits.max_sequence_length)
      .Add("generates", model->limits.generates)
      .Add("embedding_size", model->limits.embedding_size)
      .Add("num_classes", model->limits.num_classes);
  const EmbeddingDefaults& embedding = model->limits.embedding;
  json.Name("pooling");
  if (embedding.refusal.empty()) {
    json.Put(ToString(embedding.pooling));
  } else {
    json.Null();
  }
  json.Add("normalize", embedding.normalize)
      .Add("has_tokenizer", model->text->has_tokenizer())
      .Add("has_chat_template", model->text->has_chat_template());
  json.Name("config").Raw(model->config.AsJSONString());
  return json.EndObject().Take();
}

std::string HostEngine::Metrics() {
  RefuseInCallback("wait for a step");
  return engine_->JSONMetrics();
}

int64_t HostEngine::PinPrefix(std::span<const int32_t> tokens) {
  RefuseInCallback("wait for a step");
  const std::vector<int32_t> prefix(tokens.begin(), tokens.end());
  return engine_->Call([&](Engine& engine) { return engine.PinPrefix(prefix); });
}

void HostEngine::UnpinPrefix(int64_t pin_id) {
  RefuseInCallback("wait for a step");
  engine_->Call([=](Engine& engine) { engine.UnpinPrefix(pin_id); });
}

void HostEngine::LoadAdapter(const std::string& name, const std::string& path) {
  engine_->LoadAdapter(name, path);
}

void HostEngine::UnloadAdapter(const std::string& name) { engine_->UnloadAdapter(name); }

}  // namespace mlc_native::c_api
