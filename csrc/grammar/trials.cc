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

InvalidConfig NoWorker(const std::string& what) {
  return InvalidConfig("grammar", "grammars cannot be compiled: " + what);
}

}  // namespace

GrammarTrials::GrammarTrials(std::string program, const GrammarVocab& vocab,
                             const GrammarLimits& limits)
    : program_(std::move(program)), encoded_vocab_(EncodeVocab(vocab)), limits_(limits) {
  if (access(program_.c_str(), X_OK) != 0) throw NoWorker(program_ + " is missing");
}

TrialReply GrammarTrials::Run(const GrammarSpec& spec) {
  Worker worker;
  TrialReply reply;
  try {
    worker = Take();
    reply = Ask(*worker, spec);
  } catch (...) {
    worker.reset();
    GiveBack(nullptr);
    throw;
  }
  GiveBack(std::move(worker));
  if (reply.status == TrialStatus::kCompiled) return reply;
  throw GrammarError(reply.message);
}

GrammarTrials::Worker GrammarTrials::Take() {
  Worker worker;
  {
    const MutexLock lock(mutex_);
    while (num_taken_ == kMaxWorkers) freed_.Wait(mutex_);
    ++num_taken_;
    if (!idle_.empty()) {
      worker = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (worker != nullptr && worker->IsIdle()) return worker;
  worker.reset();  // it died between two trials
  return Start();
}

GrammarTrials::Worker GrammarTrials::Start() const {
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
  if (SendMessage(worker->socket(), encoded_vocab_, deadline) != Transfer::kDone ||
      ReceiveMessage(worker->socket(), kMaxReplyBytes, deadline, &bytes) != Transfer::kDone) {
    throw NoWorker(program_ + " does not start (signal " + std::to_string(worker->Kill()) +
                   "); is compile_memory_bytes = " + std::to_string(limits_.compile_memory_bytes) +
                   " enough for the vocabulary?");
  }
  const TrialReply reply = DecodeReply(bytes);
  if (reply.status != TrialStatus::kReady) throw NoWorker(reply.message);
  return worker;
}

// Returns null if the worker was lost.
void GrammarTrials::GiveBack(Worker worker) {
  {
    const MutexLock lock(mutex_);
    --num_taken_;
    if (worker != nullptr && idle_.empty()) idle_.push_back(std::move(worker));
  }
  freed_.NotifyOne();
}

TrialReply GrammarTrials::Ask(WorkerProcess& worker, const GrammarSpec& spec) const {
  const TrialDeadline deadline = After(limits_.compile_seconds);
  std::string bytes;
  Transfer transfer = SendMessage(worker.socket(), EncodeSpec(spec), deadline);
  if (transfer == Transfer::kDone) {
    transfer = ReceiveMessage(worker.socket(), kMaxReplyBytes, deadline, &bytes);
  }
  if (transfer == Transfer::kTimeout) throw GrammarError(TooSlow(limits_));
  if (transfer == Transfer::kClosed) throw GrammarError(Postmortem(worker.Kill(), limits_));
  return DecodeReply(bytes);
}

}  // namespace mlc_native
