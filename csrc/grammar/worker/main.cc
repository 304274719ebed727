// mlc_native_grammar_worker compiles untrusted grammars and reports whether the compilation ends
// within the limits (grammar/trials.h). The engine starts it, with its socket as file 3.
//
//   mlc_native_grammar_worker MEMORY_BYTES SECONDS MAX_COMPILED_BYTES
//
// The first thread waits for the socket to close and then ends the process, so that the process
// does not outlive the engine. The second thread compiles, on a stack of the size that the engine
// will compile with.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>

#include "grammar/big_stack.h"
#include "grammar/spec_check.h"
#include "grammar/trial_protocol.h"
#include "grammar/worker/forced_text.h"
#include "grammar/worker/warnings.h"
#include "grammar/worker_process.h"
#include "grammar/xgrammar/compile.h"
#include "support/error.h"

namespace mlc_native {
namespace {

constexpr uint64_t kMaxRequestBytes = uint64_t{1} << 32;

struct Limits {
  int64_t memory_bytes, seconds, max_compiled_bytes;
};

void SetLimit(int resource, rlim_t value) {
  rlimit limit{};
  getrlimit(static_cast<__rlimit_resource>(resource), &limit);
  limit.rlim_cur = std::min(value, limit.rlim_max);
  setrlimit(static_cast<__rlimit_resource>(resource), &limit);
}

void CloseInheritedFiles() {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, kWorkerSocket + 1, ~0U, 0) == 0) return;
#endif
  const int64_t end = std::min<int64_t>(sysconf(_SC_OPEN_MAX), 1 << 16);
  for (int file = kWorkerSocket + 1; file < end; ++file) close(file);
}

// The engine kills a late worker by the wall clock. This limit also holds while the engine itself
// is stopped.
void AllowMoreCpu(int64_t seconds) {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  SetLimit(RLIMIT_CPU,
           static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec + seconds + 2));
}

void Isolate(const Limits& limits) {
  CloseInheritedFiles();
  prctl(PR_SET_DUMPABLE, 0);
  SetLimit(RLIMIT_CORE, 0);
  SetLimit(RLIMIT_AS, static_cast<rlim_t>(limits.memory_bytes));
  std::signal(SIGSEGV, SIG_DFL);  // tvm-ffi prints a backtrace, on the stack that has overflowed
}

TrialReply Refused(const std::string& message) { return {TrialStatus::kRefused, false, message}; }

TrialReply Try(const GrammarTokens& tokens, const GrammarSpec& asked, const Limits& limits) {
  try {
    const GrammarSpec spec = RewriteGrammar(asked);
    const CapturedWarnings warnings;
    const ForcedText forced = AnalyzeForcedText(SerializeGrammar(tokens.library(), spec));
    if (forced.matches_nothing) return Refused("no finite text matches the grammar");
    const int64_t size = CompiledBytes(tokens.library(), CompileWithXGrammar(tokens, spec));
    if (size > limits.max_compiled_bytes) {
      return Refused(OutOfRangeMessage(
          "size of the compiled grammar", size,
          "at most max_compiled_bytes = " + std::to_string(limits.max_compiled_bytes) + " bytes"));
    }
    if (const std::string warning = warnings.First(); !warning.empty()) {
      return Refused("the grammar library does not enforce all of it: " + warning);
    }
    return {TrialStatus::kCompiled, forced.is_bounded, ""};
  } catch (const GrammarError& error) {
    return Refused(error.what());
  }
}

bool Reply(const TrialReply& reply) {
  return SendMessage(kWorkerSocket, EncodeReply(reply), TrialDeadline::max()) == Transfer::kDone;
}

void Serve(const Limits& limits) {
  std::string bytes;
  const auto receive = [&] {
    return ReceiveMessage(kWorkerSocket, kMaxRequestBytes, TrialDeadline::max(), &bytes) ==
           Transfer::kDone;
  };
  if (!receive()) return;
  try {
    const GrammarTokens tokens(XGrammar::Load(), DecodeVocab(bytes));
    bool open = Reply({TrialStatus::kReady, false, ""});
    while (open && receive()) {
      AllowMoreCpu(limits.seconds);
      open = Reply(Try(tokens, DecodeSpec(bytes), limits));
    }
  } catch (const CallerError& error) {
    Reply({TrialStatus::kUnavailable, false, error.what()});
  }
}

void WaitForTheEnd() {
  pollfd entry{kWorkerSocket, POLLRDHUP, 0};
  while (poll(&entry, 1, -1) <= 0) {
  }
}

}  // namespace
}  // namespace mlc_native

int main(int argc, char** argv) {
  using namespace mlc_native;
  if (argc != 4) return 2;
  const Limits limits{std::strtoll(argv[1], nullptr, 10), std::strtoll(argv[2], nullptr, 10),
                      std::strtoll(argv[3], nullptr, 10)};
  Isolate(limits);
  std::set_new_handler(std::abort);  // SIGABRT means "memory", even where bad_alloc is caught
  std::thread([&limits] {
    RunOnBigStack(kCompileStackBytes, [&] { Serve(limits); });
    _exit(0);
  }).detach();
  WaitForTheEnd();
  _exit(0);
}
