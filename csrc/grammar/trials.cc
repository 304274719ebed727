#include "grammar/trials.h"

#include <unistd.h>

#include <csignal>
#include <sstream>
#include <system_error>
#include <utility>

#include "grammar/backend.h"
#include "support/error.h"

namespace mlc_native {
namespace {

constexpr std::chrono::seconds kStartTime{60};  // for loading the library, sorting the vocabulary
constexpr uint64_t kMaxReplyBytes = 1 << 20;

TrialDeadline After(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
             std::chrono::duration<double>(seconds));
}

std::string TooSlow(const GrammarLimits& limits) {
  std::ostringstream message;
  message << "compiling the grammar takes more than compile_seconds = " << limits.compile_seconds;
  return message.str();
}

// Explains why a helper ended during a trial.
std::string Postmortem(int signal, const GrammarLimits& limits) {
  switch (signal) {
    case SIGXCPU:
      return TooSlow(limits);
    case SIGSEGV:
    case SIGBUS:
      return "the grammar is nested too deeply: compiling it overflows the stack";
    case SIGABRT:
      return "compiling the grammar takes more than compile_memory_bytes = " +
             std::to_string(limits.compile_memory_bytes);
    default:
      return "the process that compiles grammars ended (signal " + std::to_string(signal) + ")";
  }
}

// Sends a message and receives the answer to it. A stop ends it at once and makes the worker
// useless.
Transfer Exchange(WorkerProcess& worker, const std::string& message, TrialDeadline deadline,
                  const std::stop_token& stop, std::string* answer) {
  const std::stop_callback hang_up(stop, [&worker] { worker.HangUp(); });
  const Transfer sent = SendMessage(worker.socket(), message, deadline);
  if (sent != Transfer::kDone) return sent;
  return ReceiveMessage(worker.socket(), kMaxReplyBytes, deadline, answer);
}

InvalidConfig NoWorker(const std::string& what) {
  return InvalidConfig("grammar", "grammars cannot be compiled: " + what);
}

}  // namespace

GrammarTrials::GrammarTrials(std::string program, const GrammarVocab& vocab,
                             const GrammarLimits& limits)
    : program_(std::move(program)), encoded_vocab_(EncodeVocab(vocab)), limits_(limits) {
  if (access(program_.c_str(), X_OK) != 0) throw NoWorker(program_ + " is missing");
}

std::optional<TrialReply> GrammarTrials::Run(const GrammarSpec& spec, const std::stop_token& stop) {
  Worker worker;
  if (!TakeTurn(stop, &worker)) return std::nullopt;
  std::optional<TrialReply> reply;
  try {
    if (worker != nullptr && !worker->IsIdle()) worker.reset();  // it died between two trials
    if (worker == nullptr) worker = Start(stop);
    if (worker != nullptr) reply = Ask(*worker, spec, stop);
  } catch (...) {
    worker.reset();
    EndTurn(nullptr);
    throw;
  }
  if (!reply) worker.reset();
  EndTurn(std::move(worker));
  if (reply && reply->status != TrialStatus::kCompiled) throw GrammarError(reply->message);
  return reply;
}

bool GrammarTrials::TakeTurn(const std::stop_token& stop, Worker* worker) {
  const std::stop_callback wake(stop, [this] {
    const MutexLock lock(mutex_);
    freed_.NotifyAll();
  });
  const MutexLock lock(mutex_);
  while (num_taken_ == kMaxWorkers && !stop.stop_requested()) freed_.Wait(mutex_);
  if (stop.stop_requested()) return false;
  ++num_taken_;
  if (!idle_.empty()) {
    *worker = std::move(idle_.back());
    idle_.pop_back();
  }
  return true;
}

// The worker is null if it was lost.
void GrammarTrials::EndTurn(Worker worker) {
  {
    const MutexLock lock(mutex_);
    --num_taken_;
    if (worker != nullptr && idle_.empty()) idle_.push_back(std::move(worker));
  }
  freed_.NotifyAll();  // one of those that wait may have been stopped
}

GrammarTrials::Worker GrammarTrials::Start(const std::stop_token& stop) const {
  Worker worker;
  try {
    worker = std::make_unique<WorkerProcess>(
        program_, std::vector<std::string>{std::to_string(limits_.compile_memory_bytes),
                                           std::to_string(limits_.compile_seconds),
                                           std::to_string(limits_.max_compiled_bytes)});
  } catch (const std::system_error& error) {
    throw NoWorker(error.what());
  }
  const TrialDeadline deadline = std::chrono::steady_clock::now() + kStartTime;
  std::string bytes;
  const Transfer transfer = Exchange(*worker, encoded_vocab_, deadline, stop, &bytes);
  if (stop.stop_requested()) return nullptr;
  if (transfer != Transfer::kDone) {
    throw NoWorker(program_ + " does not start (signal " + std::to_string(worker->Kill()) +
                   "); is compile_memory_bytes = " + std::to_string(limits_.compile_memory_bytes) +
                   " enough for the vocabulary?");
  }
  const TrialReply reply = DecodeReply(bytes);
  if (reply.status != TrialStatus::kReady) throw NoWorker(reply.message);
  return worker;
}

std::optional<TrialReply> GrammarTrials::Ask(WorkerProcess& worker, const GrammarSpec& spec,
                                             const std::stop_token& stop) const {
  std::string bytes;
  const Transfer transfer =
      Exchange(worker, EncodeSpec(spec), After(limits_.compile_seconds), stop, &bytes);
  if (stop.stop_requested()) return std::nullopt;
  if (transfer == Transfer::kTimeout) throw GrammarError(TooSlow(limits_));
  if (transfer == Transfer::kClosed) throw GrammarError(Postmortem(worker.Kill(), limits_));
  return DecodeReply(bytes);
}

}  // namespace mlc_native
