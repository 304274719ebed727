// Hostile grammars: each ends within its limit in a clear error, and the compiler serves on.
#include <dirent.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "grammar/real_grammar.h"
#include "grammar/workers.h"
#include "support/error.h"

namespace mlc_native {
namespace {

using ::testing::HasSubstr;

// Returns another worker than `not_this` that the thread has started and that compiles.
pid_t AwaitWorkerAtWork(pid_t thread, pid_t not_this) {
  constexpr int64_t kTicksOfAStart = 50;
  for (;;) {  // the time limit of the test ends it
    for (pid_t worker : Children(std::to_string(thread))) {
      if (worker != not_this && CpuTicks(worker) > kTicksOfAStart) return worker;
    }
    std::this_thread::yield();
  }
}

std::string Repeat(const std::string& text, int count) {
  std::string repeated;
  for (int i = 0; i < count; ++i) repeated += text;
  return repeated;
}

int CountOpenFiles() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

void HostHandler(int signal) { std::signal(signal, SIG_DFL); }
// Before anything loads the grammar library.
[[maybe_unused]] const auto kOldHandler = std::signal(SIGSEGV, HostHandler);

class IsolationTest : public GrammarTest {
 protected:
  // The compiler still works.
  void ExpectServing(GrammarCompiler& compiler) {
    const auto grammar = compiler.Compile({GrammarKind::kRegex, "still (alive|here)"});
    EXPECT_TRUE(Matches(*grammar, "still here"));
  }
};

TEST_F(IsolationTest, TimeLimit) {
  GrammarLimits limits;
  limits.compile_seconds = 1.5;  // plenty for what is harmless, also on a loaded machine
  limits.max_text_bytes = 1 << 24;
  const auto compiler = NewCompiler(limits);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(Refusal(*compiler, {GrammarKind::kEbnf, SlowEbnf()}),
              HasSubstr("compile_seconds = 1.5"));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 30);  // the limit, not the work, decides; the rest is a loaded machine
  ExpectServing(*compiler);
}

TEST_F(IsolationTest, MemoryLimit) {
  GrammarLimits limits;
  limits.compile_memory_bytes = int64_t{256} << 20;
  limits.max_text_bytes = 1 << 24;
  limits.compile_seconds = 60;
  const auto compiler = NewCompiler(limits);
  std::string alternatives = "0z";
  for (int i = 1; i < 200000; ++i) alternatives += "|" + std::to_string(i) + "z";
  EXPECT_THAT(Refusal(*compiler, {GrammarKind::kRegex, alternatives}),
              HasSubstr("compile_memory_bytes = 268435456"));
  ExpectServing(*compiler);
}

TEST_F(IsolationTest, CompiledSizeLimit) {
  GrammarLimits limits;
  limits.max_compiled_bytes = 1000;
  const auto compiler = NewCompiler(limits);
  EXPECT_THAT(Refusal(*compiler, {GrammarKind::kRegex, "[a-z]{1,100}"}),
              HasSubstr("max_compiled_bytes = 1000"));
}

// No text of theirs is read by the library in this process before the worker has survived it.
TEST_F(IsolationTest, HostileTextsEndInAnAnswer) {
  GrammarLimits limits;
  limits.compile_seconds = 2;
  limits.compile_memory_bytes = int64_t{512} << 20;
  limits.max_text_bytes = 1 << 24;
  limits.max_depth = 1 << 24;  // the worker is to see it all
  const auto compiler = NewCompiler(limits);
  std::string bomb = R"({"$defs": {"d0": {"type": "string"})";
  for (int i = 1; i < 40; ++i) {
    const std::string ref = R"({"$ref": "#/$defs/d)" + std::to_string(i - 1) + "\"}";
    bomb += ", \"d" + std::to_string(i) + R"(": {"type": "object", "properties": {"a": )" + ref +
            ", \"b\": " + ref + R"(}, "required": ["a", "b"]})";
  }
  bomb += R"(}, "$ref": "#/$defs/d39"})";
  std::string members;
  for (int i = 0; i < 100000; ++i) members += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "x\"";
  for (const GrammarSpec& spec : {
           GrammarSpec{GrammarKind::kRegex, "(a|aa)+$(b|(a+)+)+" + Repeat("(a?){30}", 50)},
           GrammarSpec{GrammarKind::kRegex, "(((a{1,9999}){1,9999}){1,9999}){1,9999}"},
           GrammarSpec{GrammarKind::kRegex, "(a|b)*a(a|b){5000}"},
           GrammarSpec{GrammarKind::kRegex, "a{2147483647}"},
           GrammarSpec{GrammarKind::kRegex, "a{99999999999999999999}"},
           GrammarSpec{GrammarKind::kRegex, Repeat("(", 200000) + Repeat(")", 200000)},
           GrammarSpec{GrammarKind::kEbnf,
                       "root ::= " + Repeat("(", 200000) + "\"a\"" + Repeat(")", 200000)},
           GrammarSpec{GrammarKind::kJsonSchema, bomb},
           GrammarSpec{GrammarKind::kJsonSchema, "{\"enum\": [" + members + "]}"},
           GrammarSpec{GrammarKind::kJsonSchema,
                       Repeat("{\"items\":", 50000) + "{}" + Repeat("}", 50000)},
           GrammarSpec{GrammarKind::kJsonSchema, R"({"$ref": "#"})"},
           GrammarSpec{GrammarKind::kJsonSchema, R"({"$ref": "http://example.com/x"})"},
           GrammarSpec{GrammarKind::kJsonSchema, R"({"type": "string", "minLength": 1e308})"},
           GrammarSpec{GrammarKind::kJsonSchema, R"({"type": "array", "minItems": 4000000000})"},
           GrammarSpec{GrammarKind::kJsonSchema, R"({"type": "string", "pattern": "((a"})"},
           GrammarSpec{GrammarKind::kEbnf, "root ::= root"},
           GrammarSpec{GrammarKind::kStructuralTag, Repeat("[", 100000) + Repeat("]", 100000)},
       }) {
    try {
      compiler->Compile(spec);  // some of them are only odd
    } catch (const InvalidRequest& error) {
      EXPECT_THAT(error.what(), HasSubstr("response_format"));
    }
  }
  ExpectServing(*compiler);
}

TEST_F(IsolationTest, CheapChecksComeFirst) {
  GrammarLimits limits;
  limits.max_text_bytes = 100;
  limits.max_depth = 5;
  const auto compiler = NewCompiler(limits);
  const auto refusal = [&](GrammarKind kind, const std::string& text) {
    return Refusal(*compiler, {kind, text});
  };
  EXPECT_THAT(refusal(GrammarKind::kRegex, std::string(101, 'a')), HasSubstr("max_text_bytes"));
  EXPECT_THAT(refusal(GrammarKind::kRegex, Repeat("(", 6) + Repeat(")", 6)),
              HasSubstr("max_depth"));
  EXPECT_EQ(refusal(GrammarKind::kRegex, Repeat("\\(", 20) + "[((((((]"), "");
  EXPECT_EQ(refusal(GrammarKind::kEbnf, "root ::= \"((((((\""), "");
  EXPECT_EQ(refusal(GrammarKind::kJsonSchema, R"({"const": "[[[[[[\"{{{{{{"})"), "");
  EXPECT_THAT(refusal(GrammarKind::kRegex, "a\xFF"), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal(GrammarKind::kRegex, std::string("a\0b", 3)), HasSubstr("NUL"));
  EXPECT_THAT(refusal(GrammarKind::kJsonSchema, "{\"a\": 1,}"), HasSubstr("JSON"));
  EXPECT_THAT(Children(), ::testing::SizeIs(1));  // for the three that passed
}

// By the kernel that is out of memory, say: that is not the fault of the grammar.
TEST_F(IsolationTest, ATrialWhoseWorkerIsKilledIsRepeatedOnce) {
  GrammarLimits limits;
  limits.compile_seconds = 3600;
  const auto compiler = NewCompiler(limits);
  std::string refusal;
  std::atomic<pid_t> caller_id = 0;
  std::jthread caller([&] {
    caller_id = gettid();
    refusal = Refusal(*compiler, {GrammarKind::kEbnf, SlowEbnf()});
  });
  while (caller_id == 0) std::this_thread::yield();
  pid_t killed = 0;
  for (int i = 0; i < 2; ++i) {
    const pid_t worker = AwaitWorkerAtWork(caller_id, killed);
    kill(worker, SIGKILL);
    killed = worker;
  }
  caller.join();
  EXPECT_THAT(refusal, HasSubstr("from outside, twice (signal 9)"));
  ExpectServing(*compiler);
}

TEST_F(IsolationTest, AWorkerThatDiedIdleIsReplaced) {
  const auto compiler = NewCompiler();
  ExpectServing(*compiler);
  for (pid_t worker : Children()) {
    kill(worker, SIGKILL);
    siginfo_t info;
    waitid(P_PID, worker, &info, WEXITED | WNOWAIT);  // dead, and left to be reaped
  }
  EXPECT_EQ(Refusal(*compiler, {GrammarKind::kRegex, "[0-9]+"}), "");
}

TEST_F(IsolationTest, NothingIsLeftBehind) {
  compiler_.reset();
  const int files = CountOpenFiles();
  {
    GrammarLimits limits;
    limits.compile_seconds = 1.5;
    const auto compiler = NewCompiler(limits);
    for (int i = 0; i < 2; ++i) Refusal(*compiler, {GrammarKind::kEbnf, SlowEbnf()});
    ExpectServing(*compiler);
    EXPECT_EQ(Children().size(), 1);
  }
  EXPECT_THAT(Children(), ::testing::IsEmpty());
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no zombie either
  EXPECT_EQ(CountOpenFiles(), files);
}

TEST_F(IsolationTest, TheHostKeepsItsSignalHandler) {
  ExpectServing(*compiler_);
  struct sigaction now;
  sigaction(SIGSEGV, nullptr, &now);
  EXPECT_EQ(now.sa_handler, &HostHandler);
}

// Even while it is at work.
TEST_F(IsolationTest, AWorkerEndsWithItsEngine) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t engine = fork();
  if (engine == 0) {
    GrammarLimits limits;
    limits.compile_seconds = 300;
    const auto compiler = NewCompiler(limits);
    ExpectServing(*compiler);
    const pid_t worker = Children().at(0);
    AwaitWork(worker, [&] {
      std::thread([&] { Refusal(*compiler, {GrammarKind::kEbnf, SlowEbnf()}); }).detach();
    });
    if (write(pipe_ends[1], &worker, sizeof(worker)) == sizeof(worker)) kill(getpid(), SIGKILL);
    _exit(1);
  }
  pid_t worker = 0;
  ASSERT_EQ(read(pipe_ends[0], &worker, sizeof(worker)), static_cast<ssize_t>(sizeof(worker)));
  waitpid(engine, nullptr, 0);
  while (CpuTicks(worker) >= 0) std::this_thread::yield();  // the test's time limit ends this
  for (int end : pipe_ends) close(end);
}

// Then the kernel reaps children.
TEST_F(IsolationTest, AHostThatIgnoresSigchld) {
  const auto old = std::signal(SIGCHLD, SIG_IGN);
  {
    const auto compiler = NewCompiler();
    ExpectServing(*compiler);
  }
  std::signal(SIGCHLD, old);
}

}  // namespace
}  // namespace mlc_native
