// Many threads use the C API at once. MLC_NATIVE_STRESS_SECONDS says how long; a sanitizer watches.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "c_api/harness.h"
#include "mlc_native/mlc_native.h"
#include "testing/threads.h"

namespace mlc_native::testing {
namespace {

std::chrono::steady_clock::time_point EndOfStress() {
  const char* seconds = std::getenv("MLC_NATIVE_STRESS_SECONDS");
  return std::chrono::steady_clock::now() +
         std::chrono::milliseconds(seconds == nullptr ? 500 : std::atoi(seconds) * 1000);
}

// One thread's requests: it submits, cancels some, waits for some, and releases all.
class Submitter {
 public:
  Submitter(mlcn_engine* engine, int seed) : engine_(engine), random_(seed) {}

  // Returns false once the engine is stopped.
  bool SubmitOne() {
    const std::vector<int32_t> prompt(1 + random_() % 40, static_cast<int32_t>(random_() % 250));
    const std::string body = "{\"max_tokens\": " + std::to_string(random_() % 30) + '}';
    all_.push_back(std::make_unique<Received>());
    const mlcn_submit_options options = OptionsFor(all_.back().get(), prompt);
    mlcn_request* request = nullptr;
    mlcn_error* error = nullptr;
    const int32_t code =
        mlcn_submit(engine_, body.c_str(), body.size(), &options, &request, &error);
    mlcn_error_release(error);
    if (code == MLCN_QUEUE_FULL || code == MLCN_INVALID_STATE) {
      all_.pop_back();
      return code == MLCN_QUEUE_FULL;
    }
    EXPECT_EQ(code, MLCN_OK);
    switch (random_() % 4) {
      case 0:
        mlcn_request_cancel(request);
        break;
      case 1:
        EXPECT_EQ(mlcn_request_wait(request, MLCN_FOREVER, nullptr), MLCN_OK);
        break;
      case 2:
        if (random_() % 50 == 0) mlcn_engine_cancel_all(engine_, nullptr);
        break;
    }
    mlcn_request_release(request);
    return true;
  }

  // Requires: the engine is stopped, so that no callback runs.
  void ExpectOneFinalEach() const {
    for (const auto& received : all_) {
      EXPECT_EQ(received->num_finals, 1);
      EXPECT_EQ(received->num_after_final, 0);
      EXPECT_EQ(received->reasons.size(), 1u);
    }
  }

 private:
  mlcn_engine* engine_;
  std::minstd_rand random_;
  std::vector<std::unique_ptr<Received>> all_;
};

TEST(CApiThreads, EachRequestHasOneFinalOutputThoughOthersStopTheEngine) {
  constexpr int kThreads = 8;
  constexpr int kRequestsOfARound = 400;
  const auto end = EndOfStress();
  int round = 0;
  do {
    const HostedEngine engine;
    std::atomic<int> left = kRequestsOfARound;
    std::vector<Submitter> submitters;
    for (int i = 0; i < kThreads; ++i) submitters.emplace_back(engine, 1 + round * kThreads + i);
    Threads threads(kThreads, [&](int i) {
      while (submitters[i].SubmitOne()) {
        // The last one stops the engine under the hands of the others.
        if (--left == 0) EXPECT_EQ(mlcn_engine_stop(engine, nullptr), MLCN_OK);
      }
    });
    threads.Join();
    for (const Submitter& submitter : submitters) submitter.ExpectOneFinalEach();
    ++round;
  } while (std::chrono::steady_clock::now() < end);
}

TEST(CApiThreads, PollersShareTheOutputs) {
  const HostedEngine engine;
  constexpr int kRequests = 60;
  std::atomic<int> finals = 0;
  std::atomic<int64_t> tokens = 0;
  mlcn_submit_options options = MLCN_SUBMIT_OPTIONS_INIT;
  const std::vector<int32_t> prompt = {3, 1, 4};
  options.tokens = prompt.data();
  options.num_tokens = prompt.size();
  Threads pollers(3, [&](int) {
    mlcn_outputs* outputs = nullptr;
    while (mlcn_poll(engine, 5, MLCN_FOREVER, &outputs, nullptr) == MLCN_OK && outputs != nullptr) {
      for (size_t i = 0; i < mlcn_outputs_count(outputs); ++i) {
        const mlcn_output* output = mlcn_outputs_at(outputs, i);
        tokens += static_cast<int64_t>(output->num_tokens);
        finals += output->is_final;
      }
      mlcn_outputs_release(outputs);
    }
  });
  for (int i = 0; i < kRequests; ++i) {
    mlcn_request* request = engine.Submit("{\"max_tokens\": 10}", options);
    if (i % 2 == 0) EXPECT_EQ(mlcn_request_wait(request, MLCN_FOREVER, nullptr), MLCN_OK);
    mlcn_request_release(request);
  }
  while (finals < kRequests) {  // the pollers have taken every request's last output
    std::this_thread::yield();
  }
  EXPECT_EQ(mlcn_engine_stop(engine, nullptr), MLCN_OK);  // wakes the pollers
  pollers.Join();
  EXPECT_EQ(finals, kRequests);
  EXPECT_EQ(tokens, kRequests * 10);
}

// A request must reach the model that it was made for.
TEST(CApiThreads, TheModelIsTheOneThatWasLoadedLast) {
  const HostedEngine engine;
  const HostedEngine other("{\"vocab_size\": 300}");
  const std::string paths[] = {engine.path(), other.path()};
  for (int round = 0; round < 30; ++round) {
    Threads threads(2, [&](int t) {
      EXPECT_EQ(mlcn_engine_reload(engine, paths[t].c_str(), engine.config(), nullptr), MLCN_OK);
    });
    threads.Join();
    char* json = nullptr;
    ASSERT_EQ(mlcn_engine_info(engine, &json, nullptr, nullptr), MLCN_OK);
    const std::string info = json;
    mlcn_free(json);
    const bool is_other = info.find('"' + other.path() + '"') != std::string::npos;
    EXPECT_EQ(info.find("\"vocab_size\":300") != std::string::npos, is_other) << info;
    Received received;
    mlcn_request* request = engine.Submit(kGreedy, OptionsFor(&received, {is_other ? 299 : 255}));
    EXPECT_EQ(mlcn_request_wait(request, MLCN_FOREVER, nullptr), MLCN_OK);
    EXPECT_EQ(received.tokens.size(), 20u) << "round " << round;
    mlcn_request_release(request);
  }
}

}  // namespace
}  // namespace mlc_native::testing
