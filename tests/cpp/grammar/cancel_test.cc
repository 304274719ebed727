// Callers that give up while their grammar compiles: the compilation ends with the last of them.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "grammar/compile_cache.h"
#include "grammar/fake_compiled.h"
#include "grammar/real_grammar.h"
#include "grammar/workers.h"
#include "support/error.h"
#include "testing/threads.h"

namespace mlc_native {
namespace {

using Grammar = CompileCache::Grammar;

template <typename Condition>
void AwaitThat(const Condition& condition) {  // the time limit of the test ends it
  while (!condition()) std::this_thread::yield();
}

// ---- the cache, with compilations that the test controls

class CancelTest : public ::testing::Test {
 protected:
  // A compilation that ends when it is told to stop or allowed to finish.
  Grammar Compile(const std::stop_token& stop) {
    ++num_started_;
    AwaitThat([&] { return stop.stop_requested() || may_finish_; });
    if (stop.stop_requested()) return nullptr;
    return std::make_shared<const FakeGrammar>();
  }

  struct Caller {
    Grammar grammar;
    std::stop_source source;
    std::jthread thread;
  };
  void Call(Caller* caller) {
    const int num_callers = cache_.num_callers(spec_);
    caller->thread = std::jthread([this, caller] {
      caller->grammar = cache_.Get(
          spec_, [this](const std::stop_token& stop) { return Compile(stop); },
          caller->source.get_token());
    });
    AwaitThat([&] { return cache_.num_callers(spec_) == num_callers + 1; });
  }

  const GrammarSpec spec_ = Regex("x");
  CompileCache cache_{1 << 20};
  std::atomic<int> num_started_ = 0;
  std::atomic<bool> may_finish_ = false;
};

TEST_F(CancelTest, TheOnlyCallerStopsTheCompilation) {
  Caller only;
  Call(&only);
  only.source.request_stop();
  only.thread.join();
  EXPECT_EQ(only.grammar, nullptr);
  EXPECT_EQ(cache_.num_callers(spec_), 0);
  EXPECT_EQ(cache_.num_cached(), 0);
}

TEST_F(CancelTest, AnotherCallerKeepsItAlive) {
  std::array<Caller, 3> callers;
  for (Caller& caller : callers) Call(&caller);
  callers[1].source.request_stop();  // one that only waits returns at once
  callers[1].thread.join();
  EXPECT_EQ(callers[1].grammar, nullptr);
  callers[0].source.request_stop();  // the one that compiles
  EXPECT_EQ(cache_.num_callers(spec_), 1);
  may_finish_ = true;
  callers[2].thread.join();
  EXPECT_NE(callers[2].grammar, nullptr);
  callers[0].thread.join();
  EXPECT_EQ(callers[0].grammar, callers[2].grammar);
  EXPECT_EQ(num_started_, 1);
  EXPECT_EQ(cache_.num_cached(), 1);
}

TEST_F(CancelTest, ItEndsWithTheLastOfItsCallersInAnyOrder) {
  for (const auto& [first, last] : {std::pair(0, 1), std::pair(1, 0)}) {
    std::array<Caller, 2> callers;
    for (Caller& caller : callers) Call(&caller);
    callers[first].source.request_stop();
    callers[last].source.request_stop();
    for (Caller& caller : callers) {
      caller.thread.join();
      EXPECT_EQ(caller.grammar, nullptr);
    }
  }
  EXPECT_EQ(num_started_, 2);
}

// A compilation may take a while to notice that it is to stop, or may be ready by then.
TEST_F(CancelTest, WhoeverAsksAfterAStopDoesNotWaitForIt) {
  std::stop_source source;
  std::atomic<bool> entered = false, may_return = false;
  Grammar late;
  std::jthread given_up([&] {
    late = cache_.Get(
        spec_,
        [&](const std::stop_token&) {
          entered = true;
          AwaitThat([&] { return may_return.load(); });
          return std::make_shared<const FakeGrammar>();
        },
        source.get_token());
  });
  AwaitThat([&] { return entered.load(); });
  source.request_stop();
  may_finish_ = true;
  const auto compile = [this](const std::stop_token& stop) { return Compile(stop); };
  const Grammar fresh = cache_.Get(spec_, compile);
  EXPECT_NE(fresh, nullptr);
  may_return = true;
  given_up.join();
  EXPECT_NE(late, fresh);
  EXPECT_EQ(cache_.Get(spec_, compile), fresh);
  EXPECT_EQ(cache_.num_cached(), 1);
  EXPECT_EQ(cache_.cached_bytes(), 1 + static_cast<int64_t>(spec_.text.size()));
}

TEST_F(CancelTest, AStopBeforeTheCall) {
  std::stop_source stopped;
  stopped.request_stop();
  const auto compile = [this](const std::stop_token& stop) { return Compile(stop); };
  EXPECT_EQ(cache_.Get(spec_, compile, stopped.get_token()), nullptr);
  may_finish_ = true;
  const Grammar grammar = cache_.Get(spec_, compile);
  EXPECT_EQ(cache_.Get(spec_, compile, stopped.get_token()), grammar);  // it costs nothing
}

TEST_F(CancelTest, ManyCallersGiveUpAtAnyTime) {
  constexpr int kThreads = 4, kRounds = 200;
  CompileCache small(0);  // keeps nothing
  std::atomic<int> num_wrong = 0;
  testing::Threads threads(kThreads, [&](int thread) {
    for (int round = 0; round < kRounds; ++round) {
      std::stop_source source;
      std::jthread stopper;
      const bool stops = (round + thread) % 3 != 0;
      if (stops) stopper = std::jthread([&source] { source.request_stop(); });
      const Grammar grammar = small.Get(
          Regex(std::to_string(round % 2)),
          [](const std::stop_token& stop) -> Grammar {
            for (int i = 0; i < 50; ++i) {
              if (stop.stop_requested()) return nullptr;
              std::this_thread::yield();
            }
            return std::make_shared<const FakeGrammar>();
          },
          source.get_token());
      if (grammar == nullptr && !stops) ++num_wrong;
    }
  });
  threads.Join();
  EXPECT_EQ(num_wrong, 0);
  EXPECT_EQ(small.num_callers(Regex("0")) + small.num_callers(Regex("1")), 0);
}

TEST_F(CancelTest, CallersBeyondTheLimitAreRefused) {
  CompileCache limited(1 << 20, /*max_waiting=*/2);
  const auto compile = [this](const std::stop_token& stop) { return Compile(stop); };
  const auto get = [&](const std::string& text) { return limited.Get(Regex(text), compile); };
  may_finish_ = true;
  EXPECT_NE(get("cached"), nullptr);
  may_finish_ = false;
  std::array<std::jthread, 2> callers;  // of one compilation
  for (std::jthread& caller : callers) caller = std::jthread([&] { get("slow"); });
  AwaitThat([&] { return limited.num_waiting() == 2; });
  try {
    get("other");
    ADD_FAILURE() << "a third caller waits";
  } catch (const QueueFull& full) {
    EXPECT_EQ(full.field(), "max_grammar_queue_length");
    EXPECT_EQ(full.queue_length(), 2);
    EXPECT_EQ(full.max_queue_length(), 2);
  }
  EXPECT_NE(get("cached"), nullptr);  // it waits for nothing
  may_finish_ = true;
  for (std::jthread& caller : callers) caller.join();
  EXPECT_EQ(limited.num_waiting(), 0);
  EXPECT_NE(get("other"), nullptr);
}

// ---- the helper processes

class CancelTrialTest : public GrammarTest {
 protected:
  void SetUp() override {
    GrammarTest::SetUp();
    if (compiler_ == nullptr) return;
    GrammarLimits limits;
    limits.compile_seconds = 3600;  // nothing here ends by itself
    compiler_ = NewCompiler(limits);
  }
  void ExpectServing() { EXPECT_TRUE(Matches(*Compile(GrammarKind::kRegex, "a|b"), "b")); }
};

TEST_F(CancelTrialTest, TheWorkerEndsAtOnce) {
  ExpectServing();
  const pid_t worker = Children().at(0);
  std::stop_source source;
  std::shared_ptr<const CompiledGrammar> grammar;
  std::jthread caller;
  AwaitWork(worker, [&] {
    caller = std::jthread([&] {
      grammar = compiler_->Compile({GrammarKind::kEbnf, SlowEbnf()}, source.get_token());
    });
  });
  source.request_stop();
  caller.join();
  EXPECT_EQ(grammar, nullptr);
  EXPECT_EQ(CpuTicks(worker), -1);
  EXPECT_THAT(Children(), ::testing::IsEmpty());
  ExpectServing();
  EXPECT_NE(compiler_->Compile({GrammarKind::kRegex, "c|d"}), nullptr);
}

// More than there may be workers, so that some of them start, some work and some wait.
TEST_F(CancelTrialTest, AllThatWorkStartOrWait) {
  constexpr int kCallers = 6;
  std::array<std::stop_source, kCallers> sources;
  std::atomic<int> num_grammars = 0;
  {
    testing::Threads callers(kCallers, [&](int i) {
      const GrammarSpec slow{GrammarKind::kEbnf, SlowEbnf(i)};
      if (compiler_->Compile(slow, sources[i].get_token()) != nullptr) ++num_grammars;
    });
    for (std::stop_source& source : sources) source.request_stop();
  }
  EXPECT_EQ(num_grammars, 0);
  ExpectServing();
}

// They take every turn that long ones may have, and all of the others wait.
TEST_F(CancelTrialTest, LongCompilationsDoNotKeepAShortOneWaiting) {
  constexpr int kLong = 6;
  std::array<std::stop_source, kLong> sources;
  {
    testing::Threads callers(kLong, [&](int i) {
      compiler_->Compile({GrammarKind::kEbnf, SlowEbnf(i)}, sources[i].get_token());
    });
    ExpectServing();  // the time limit of the test ends it otherwise
    for (std::stop_source& source : sources) source.request_stop();
  }
}

// The wait for a turn counts: in this time, there are not enough of them for all.
TEST_F(CancelTrialTest, ATurnThatDoesNotComeInTime) {
  GrammarLimits limits;
  limits.compile_seconds = 1.5;
  compiler_ = NewCompiler(limits);
  constexpr int kCallers = 12;
  std::atomic<int> num_slow = 0, num_without_turn = 0;
  testing::Threads callers(kCallers, [&](int i) {
    try {
      compiler_->Compile({GrammarKind::kEbnf, SlowEbnf(i)});
    } catch (const QueueFull& full) {
      EXPECT_EQ(full.field(), "grammar_compile_timeout_s");
      EXPECT_THAT(full.what(), ::testing::HasSubstr("compile_seconds = 1.5"));
      ++num_without_turn;
    } catch (const InvalidRequest&) {
      ++num_slow;
    }
  });
  callers.Join();
  EXPECT_EQ(num_slow + num_without_turn, kCallers);
  EXPECT_GT(num_without_turn, 0);
  ExpectServing();
}

}  // namespace
}  // namespace mlc_native
