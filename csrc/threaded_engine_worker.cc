#include "threaded_engine_worker.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "observe/metrics.h"
#include "support/error.h"

namespace mlc_native {
namespace {

// Of an exception whose text there is no memory for, a text that needs none.
std::string DescribeCurrentException() noexcept {
  try {
    throw;
  } catch (const std::exception& e) {
    try {
      return e.what();
    } catch (const std::bad_alloc&) {
      return "out of memory";
    }
  } catch (...) {
    return "unknown error";
  }
}

[[noreturn]] void ThrowExited() { throw InvalidRequest("engine", "The engine has exited"); }

}  // namespace

void OnceLog::Write(std::initializer_list<std::string_view> parts) noexcept {
  if (written_.size() >= kMaxMessages) return;
  try {
    std::string message;
    for (const std::string_view part : parts) message += part;
    const auto [written, is_new] = written_.insert(std::move(message));
    if (is_new) log_.Write(LogLevel::kError, *written);
  } catch (const std::bad_alloc&) {
    log_.Write(LogLevel::kError, "Something failed that there is no memory to describe");
  }
}

void EngineWorker::Execute(Instruction instruction) {
  if (instruction.done) {
    std::exception_ptr failure;
    try {
      Run(instruction);
    } catch (...) {
      failure = std::current_exception();
    }
    instruction.done->Finish(std::move(failure));
  } else {
    Run(instruction);
  }
  AuditAccepted();
}

// Throws only in instructions that a caller waits for.
void EngineWorker::Run(Instruction& instruction) {
  switch (instruction.kind) {
    case InstructionKind::kAddRequest:
      return AddRequest(std::get<AddRequestArgument>(instruction.argument));
    case InstructionKind::kAbortRequest:
      if (engine_ == nullptr) return;
      return Guard("An abort",
                   [&] { engine_->AbortRequest(std::get<std::string>(instruction.argument)); });
    case InstructionKind::kAbortAllRequests:
      if (engine_ == nullptr) return;
      return Guard("Aborting all requests", [this] { engine_->AbortAllRequests(); });
    case InstructionKind::kReloadEngine:
      return Reload(std::get<ReloadArgument>(instruction.argument));
    case InstructionKind::kUnloadEngine:
      return Unload();
    case InstructionKind::kResetEngine:
      return Reset();
    case InstructionKind::kCallEngine:
    case InstructionKind::kDebugCallFuncOnAllAllWorker:
      return std::get<EngineFunction>(instruction.argument)(LoadedEngine());
  }
}

void EngineWorker::Step() {
  if (idle()) return;
  Guard("A step", [this] { engine_->Step(); });
  AuditAccepted();
}

void EngineWorker::Shutdown() {
  if (exited_) return;
  exited_ = true;
  Unload();
}

void EngineWorker::AddRequest(AddRequestArgument& argument) {
  const Request& request = *argument.request;
  if (exited_) return End(request, FinishReason::kAbort, "");
  if (engine_ == nullptr) return End(request, FinishReason::kError, "No model is loaded");
  try {
    accepted_.emplace(request.id, argument.request);  // first, since the engine may answer at once
  } catch (const std::bad_alloc&) {
    return End(request, FinishReason::kError, DescribeCurrentException());
  }
  try {
    engine_->AddRequest(argument.request, std::move(argument.submission));
  } catch (...) {
    const std::string message = DescribeCurrentException();
    if (accepted_.erase(request.id) > 0) End(request, FinishReason::kError, message);
  }
}

void EngineWorker::Reload(ReloadArgument& argument) {
  if (exited_) ThrowExited();
  Unload();
  Load(argument.config, std::move(argument.progress));
}

void EngineWorker::Reset() {
  if (exited_) ThrowExited();
  if (engine_ == nullptr) return;
  try {
    engine_->Reset();
  } catch (...) {
    Recover("A reset", DescribeCurrentException());
    throw;
  }
}

void EngineWorker::Load(const EngineConfig& config, LoadProgress progress) {
  EngineOptions options;
  options.request_stream_callback = [this](std::vector<RequestStreamOutput> outputs) {
    OnOutputs(std::move(outputs));
  };
  options.trace_recorder = options_.trace_recorder;
  options.device = options_.device;
  options.queue = options_.queue;
  options.load_progress = std::move(progress);
  options.log = options_.log;
  std::unique_ptr<Engine> engine = options_.factory(config, options);
  options_.publish(std::make_shared<const LoadedModel>(LoadedModel{
      engine->config(), engine->default_generation_config(), engine->request_limits(),
      engine->token_table(), engine->grammars(), engine->adapters(), engine->row_ids()}));
  engine_ = std::move(engine);
}

void EngineWorker::Unload() {
  if (engine_ == nullptr) return;
  options_.publish(nullptr);
  Guard("Aborting all requests", [this] { engine_->AbortAllRequests(); });
  engine_.reset();
  EndAll(FinishReason::kAbort, "");
}

Engine& EngineWorker::LoadedEngine() {
  if (exited_) ThrowExited();
  if (engine_ == nullptr) throw InvalidRequest("engine", "No model is loaded");
  return *engine_;
}

template <typename Action>
void EngineWorker::Guard(const char* what, const Action& action) {
  try {
    action();
  } catch (...) {
    Recover(what, DescribeCurrentException());
  }
}

void EngineWorker::Recover(const char* what, const std::string& message) noexcept {
  log_.Write({what, " failed: ", message});
  options_.reserve->Release();  // it may have lacked memory
  try {
    options_.reserve->Run([&] { engine_->FailAllRequests(message); });
    return;
  } catch (...) {
    log_.Write(
        {"The engine failed to end its requests and is dropped: ", DescribeCurrentException()});
  }
  options_.publish(nullptr);
  engine_.reset();
  EndAll(FinishReason::kError, message);
}

void EngineWorker::AuditAccepted() {
  if (accepted_.empty() || !idle()) return;
  log_.Write({"The engine is idle but requests have no final output; they end with an error"});
  EndAll(FinishReason::kError, "Internal error: the engine lost this request");
}

void EngineWorker::OnOutputs(std::vector<RequestStreamOutput> outputs) {
  for (const RequestStreamOutput& output : outputs) {
    if (output.is_final()) accepted_.erase(output.request_id);
  }
  options_.reserve->Run([&] { options_.emit(&outputs); });
}

void EngineWorker::EndAll(FinishReason reason, const std::string& message) {
  const auto accepted = std::exchange(accepted_, {});
  for (const auto& [id, request] : accepted) End(*request, reason, message);
}

void EngineWorker::End(const Request& request, FinishReason reason, const std::string& message) {
  options_.reserve->Run([&] {
    std::vector<RequestStreamOutput> outputs(2);
    outputs[0].request_id = outputs[1].request_id = request.id;
    outputs[0].group.resize(static_cast<size_t>(std::max(request.generation_cfg.n, 1)));
    for (SequenceDelta& delta : outputs[0].group) delta.finish_reason = reason;
    outputs[0].error_message = outputs[1].error_message = message;
    RequestMetrics metrics;
    metrics.prompt_tokens = request.prompt_len();
    outputs[1].usage = metrics.Usage();
    options_.emit(&outputs);
  });
}

}  // namespace mlc_native
