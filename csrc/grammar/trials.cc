#include "grammar/trials.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <system_error>
#include <utility>
#include <vector>

#include "grammar/backend.h"
#include "support/error.h"

namespace mlc_native {
namespace {

constexpr std::chrono::seconds kStartTime{60};  // for loading the library, sorting the vocabulary
constexpr uint64_t kMaxReplyBytes = 1 << 20;

std::chrono::steady_clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds));
}

std::string TooSlow(const GrammarLimits& limits) {
  std::string message = "compiling the grammar takes more than compile_seconds = ";
  AppendTo(&message, limits.compile_seconds);
  return message;
}

[[noreturn]] void ThrowNoTurn(const GrammarLimits& limits, int num_waiting) {
  std::string message = "The grammar has waited for its compilation for compile_seconds = ";
  AppendTo(&message, limits.compile_seconds);
  message += ", behind those of other requests; " + std::to_string(num_waiting) + " more wait";
  throw QueueFull("grammar_compile_timeout_s", message, num_waiting, limits.max_waiting);
}

// Whether a helper that ended by the signal has exceeded a limit. Otherwise it was killed from
// outside.
bool IsOfLimits(int signal) {
  return signal == SIGXCPU || signal == SIGSEGV || signal == SIGBUS || signal == SIGABRT;
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
      return "the process that compiles grammars was ended from outside, twice (signal " +
             std::to_string(signal) + ")";
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
  Trial trial{.spec = spec, .stop = stop, .left = Seconds(limits_.compile_seconds)};
  while (TakeTurn(&trial)) {
    const std::optional<TrialReply> reply = RunInTurn(&trial);
    if (!reply) continue;
    if (reply->status != TrialStatus::kCompiled) throw GrammarError(reply->message);
    return reply;
  }
  return std::nullopt;
}

bool GrammarTrials::TakeTurn(Trial* trial) {
  const Clock::time_point start = Clock::now();
  const TrialTurns::Outcome outcome =
      turns_.Take(trial->kind, trial->spec.text.size(), start + trial->left, trial->stop);
  trial->left -= Clock::now() - start;
  if (outcome == TrialTurns::Outcome::kTimeout) ThrowNoTurn(limits_, turns_.num_waiting());
  return outcome == TrialTurns::Outcome::kTaken;
}

std::optional<TrialReply> GrammarTrials::RunInTurn(Trial* trial) {
  // A trial may become a long one in its turn, and is to wait as one after it.
  struct Turn {
    TrialTurns& turns;
    const TrialTurns::Kind& kind;
    ~Turn() { turns.End(kind); }
  };
  Ending ending = Ending::kStopped;
  TrialReply reply;
  Worker worker;
  {
    const Turn turn{turns_, trial->kind};
    worker = GetWorker(trial->stop);
    if (worker != nullptr) ending = Ask(*worker, trial, &reply);
    if (ending == Ending::kReplied) {
      const MutexLock lock(mutex_);
      if (idle_ == nullptr) idle_ = std::move(worker);
    }
  }
  switch (ending) {
    case Ending::kReplied:
      return reply;
    case Ending::kStopped:
      return std::nullopt;  // and so is the next turn
    case Ending::kTimeout:
      throw GrammarError(TooSlow(limits_));
    case Ending::kTooLong:
      trial->kind = TrialTurns::Kind::kLong;
      return std::nullopt;
    case Ending::kLost:
      break;
  }
  const int signal = worker->Kill();  // NOLINT(bugprone-use-after-move): there was no reply
  if (IsOfLimits(signal) || ++trial->num_lost > 1) throw GrammarError(Postmortem(signal, limits_));
  return std::nullopt;
}

GrammarTrials::Worker GrammarTrials::GetWorker(const std::stop_token& stop) {
  Worker worker;
  {
    const MutexLock lock(mutex_);
    worker = std::move(idle_);
  }
  if (worker != nullptr && worker->IsIdle()) return worker;  // otherwise it died between two trials
  worker.reset();
  return Start(stop);
}

GrammarTrials::Worker GrammarTrials::Start(const std::stop_token& stop) const {
  const auto seconds = static_cast<int64_t>(std::ceil(limits_.compile_seconds));
  const std::vector<std::string> arguments = {std::to_string(limits_.compile_memory_bytes),
                                              std::to_string(seconds),
                                              std::to_string(limits_.max_compiled_bytes)};
  for (bool is_repeated = false;; is_repeated = true) {
    Worker worker;
    try {
      worker = std::make_unique<WorkerProcess>(program_, arguments);
    } catch (const std::system_error& error) {
      throw NoWorker(error.what());
    }
    std::string bytes;
    const Transfer transfer =
        Exchange(*worker, encoded_vocab_, Clock::now() + kStartTime, stop, &bytes);
    if (stop.stop_requested()) return nullptr;
    if (transfer == Transfer::kDone) {
      const TrialReply reply = DecodeReply(bytes);
      if (reply.status != TrialStatus::kReady) throw NoWorker(reply.message);
      return worker;
    }
    const int signal = worker->Kill();
    if (transfer == Transfer::kClosed && signal == SIGKILL && !is_repeated) continue;
    throw NoWorker(program_ + " does not start (signal " + std::to_string(signal) +
                   "); is compile_memory_bytes = " + std::to_string(limits_.compile_memory_bytes) +
                   " enough for the vocabulary?");
  }
}

GrammarTrials::Ending GrammarTrials::Ask(WorkerProcess& worker, Trial* trial, TrialReply* reply) {
  const std::stop_callback hang_up(trial->stop, [&worker] { worker.HangUp(); });
  const Clock::time_point start = Clock::now();
  const Clock::time_point deadline = start + trial->left;
  Ending ending = Ending::kReplied;
  std::string bytes;
  Transfer transfer = SendMessage(worker.socket(), EncodeSpec(trial->spec), deadline);
  if (transfer == Transfer::kDone) ending = AwaitReply(worker, trial, deadline);
  if (transfer == Transfer::kDone && ending == Ending::kReplied) {
    transfer = ReceiveMessage(worker.socket(), kMaxReplyBytes, deadline, &bytes);
  }
  trial->left -= Clock::now() - start;
  if (trial->stop.stop_requested()) return Ending::kStopped;
  if (transfer == Transfer::kTimeout) return Ending::kTimeout;
  if (transfer == Transfer::kClosed) return Ending::kLost;
  if (ending == Ending::kReplied) *reply = DecodeReply(bytes);
  return ending;
}

GrammarTrials::Ending GrammarTrials::AwaitReply(WorkerProcess& worker, Trial* trial,
                                                Clock::time_point deadline) {
  if (trial->kind == TrialTurns::Kind::kShort) {
    const Clock::time_point end = Clock::now() + Seconds(TrialTurns::kShortSeconds);
    if (AwaitMessage(worker.socket(), std::min(end, deadline))) return Ending::kReplied;
    if (end < deadline && !turns_.BecomeLong()) return Ending::kTooLong;
    if (end < deadline) trial->kind = TrialTurns::Kind::kLong;
  }
  return AwaitMessage(worker.socket(), deadline) ? Ending::kReplied : Ending::kTimeout;
}

}  // namespace mlc_native
