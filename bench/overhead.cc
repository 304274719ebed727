// Measures the engine without the model: the fake model takes no time. The vocabulary is small,
// because the cost of sampling grows with it and counts as the model's.
//
//   EngineStep/N           one Step() of N running sequences, with text (us per step: Time)
//   AdmitBeforeBacklog/N   a "high" request is added in front of N waiting "low" ones and aborted
//   EngineStepAndModel/N/C/A
//                          the same with a model that computes for 200 us. C = 1: constrained by a
//                          regex, with the real grammar library. A = 1: on a device, with steps in
//                          flight; the time above 200 us is host time that the device does not hide
//   SubmitToEngine         AddRequest until the idle engine's forward starts (p50_us, p99_us)
//   SubmitToCallback       AddRequest until the first token is in the stream-back callback
//   TextDelivery           token bytes -> TextStreamer (tokens/s)
//   StopStrings/K          the same through a StopStrHandler of K stop strings
//   TraceEvent, TraceDump  the event recorder
//
// Run it on an otherwise idle machine: build/bench/overhead
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "fake_model/fake_model.h"
#include "mlc_native/engine.h"
#include "mlc_native/threaded_engine.h"
#include "mlc_native/tokenizer.h"
#include "observe/event_trace.h"
#include "request/request.h"
#include "tokenizer/stop_str_handler.h"
#include "tokenizer/text_streamer.h"

namespace mlc_native {
namespace {

using testing::FakeModel;
using testing::FakeModelOptions;

constexpr int64_t kVocabSize = 256;
constexpr int64_t kMaxSequenceLength = 2048;

std::shared_ptr<const TokenTable> SingleBytes() {
  std::vector<std::string> bytes;
  for (int i = 0; i < kVocabSize; ++i) bytes.emplace_back(1, static_cast<char>(i));
  return std::make_shared<TokenTable>(std::move(bytes), std::vector<bool>(), false);
}

std::shared_ptr<const TokenTable> ByteTable() {
  std::vector<std::string> bytes;
  for (int i = 0; i < kVocabSize; ++i) {
    bytes.push_back("token " + std::string(1, static_cast<char>('a' + i % 26)));
  }
  return std::make_shared<TokenTable>(std::move(bytes), std::vector<bool>(), false);
}

std::unique_ptr<FakeModel> ZeroCostModel() {
  FakeModelOptions options;
  options.vocab_size = kVocabSize;
  options.history_window = 1;
  options.reuse_rows = true;  // greedy sampling does not change the logits
  return std::make_unique<FakeModel>(options);
}

std::unique_ptr<Engine> MakeEngine(std::unique_ptr<FakeModel> model, int64_t max_num_sequence,
                                   const EngineOptions& options,
                                   std::shared_ptr<const TokenTable> tokens = ByteTable()) {
  EngineConfig config;
  config.max_num_sequence = max_num_sequence;
  config.prefill_chunk_size = 2048;
  config.max_single_sequence_length = kMaxSequenceLength;
  config.max_total_sequence_length = kMaxSequenceLength * max_num_sequence;
  return Engine::FromModel(std::move(model), config, {}, std::move(tokens), options);
}

GenerationConfig GreedyConfig(int64_t max_tokens) {
  GenerationConfig config;
  config.temperature = 0;
  config.max_tokens = max_tokens;
  config.seed = 1;
  return config;
}

RequestPtr MakeRequest(const std::string& id, int64_t max_tokens) {
  const RequestLimits limits{kVocabSize, 1024, kMaxSequenceLength};
  return CreateRequest(id, {TokenData{std::vector<int32_t>(16, 7)}}, GreedyConfig(max_tokens),
                       limits);
}

// Steps of sequences that all run from the first step to the maximal length.
void RunSteps(benchmark::State& state, Engine* engine, const ResponseFormat& format) {
  int64_t generation = 0;
  for (auto _ : state) {
    if (engine->Empty()) {  // all have reached the maximal length together
      state.PauseTiming();
      for (int64_t i = 0; i < state.range(0); ++i) {
        GenerationConfig config = GreedyConfig(-1);
        config.response_format = format;
        engine->AddRequest(
            engine->CreateRequest(std::to_string(generation) + '.' + std::to_string(i),
                                  {TokenData{std::vector<int32_t>(16, 7)}}, config));
      }
      ++generation;
      engine->Step();  // prefill
      engine->Step();  // the rest of it
      state.ResumeTiming();
    }
    engine->Step();
  }
}

void EngineStep(benchmark::State& state) {
  int64_t num_tokens = 0;
  EngineOptions options;
  options.request_stream_callback = [&num_tokens](const std::vector<RequestStreamOutput>& outputs) {
    for (const RequestStreamOutput& output : outputs) {
      for (const SequenceDelta& delta : output.group) num_tokens += std::ssize(delta.token_ids);
    }
  };
  const auto engine = MakeEngine(ZeroCostModel(), state.range(0), options);
  RunSteps(state, engine.get(), {});
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(num_tokens), benchmark::Counter::kIsRate);
}
BENCHMARK(EngineStep)->Arg(1)->Arg(64)->Arg(256)->Unit(benchmark::kMicrosecond);

void AdmitBeforeBacklog(benchmark::State& state) {
  const auto engine = MakeEngine(ZeroCostModel(), 1, {});
  const auto with_priority = [](const std::string& id, RequestPriority priority) {
    auto request = std::make_shared<Request>(*MakeRequest(id, 1));
    request->generation_cfg.priority = priority;
    return request;
  };
  for (int64_t i = 0; i < state.range(0); ++i) {
    engine->AddRequest(with_priority(std::to_string(i), RequestPriority::kLow));
  }
  const RequestPtr high = with_priority("high", RequestPriority::kHigh);
  for (auto _ : state) {
    engine->AddRequest(high);
    engine->AbortRequest("high");
  }
}
BENCHMARK(AdmitBeforeBacklog)->Arg(10)->Arg(10000)->Unit(benchmark::kMicrosecond);

void EngineStepAndModel(benchmark::State& state) {
  FakeModelOptions options;
  options.vocab_size = kVocabSize;
  options.history_window = 1;
  options.us_per_step = 200;
  options.run_ahead = state.range(2) != 0;
  const auto engine = MakeEngine(std::make_unique<FakeModel>(options), state.range(0),
                                 EngineOptions(), SingleBytes());
  ResponseFormat format;
  if (state.range(1) != 0) {
    format = {
        ResponseFormatType::kRegex, R"((\{"name": "[a-z]{1,8}", "age": [0-9]{1,3}\}, )*)", {}};
  }
  RunSteps(state, engine.get(), format);
}
BENCHMARK(EngineStepAndModel)
    ->ArgNames({"", "constrained", "ahead"})
    ->ArgsProduct({{1, 64}, {0, 1}, {0, 1}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

// ---- latency of an idle ThreadedEngine

using Time = std::chrono::steady_clock::time_point;

double MicrosecondsBetween(Time from, Time to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

// A running ThreadedEngine that tells when a forward starts and when an output arrives.
class LatencyProbe {
 public:
  struct Sample {
    double to_engine_us = 0;
    double to_callback_us = 0;
  };

  LatencyProbe()
      : folder_(std::filesystem::temp_directory_path() /
                ("mlc_native_overhead_" + std::to_string(getpid()))),
        engine_(ThreadedEngine::Create([this](const EngineConfig&, const EngineOptions& options) {
          auto model = ZeroCostModel();
          model->set_on_forward(
              [this](const ForwardBatch&) { forward_start_ = std::chrono::steady_clock::now(); });
          return MakeEngine(std::move(model), 4, options);
        })) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "config.json") << "{}";
    engine_->InitThreadedEngine(
        "cpu", [this](std::vector<RequestStreamOutput>) { OnOutputs(); }, nullptr);
    engine_->Start();
    engine_->Reload("{\"model\": \"" + folder_.string() + "\"}");
  }
  ~LatencyProbe() {
    engine_->Stop();
    std::filesystem::remove_all(folder_);
  }

  // One request of one token: all outputs come in one callback.
  Sample Submit(int64_t number) {
    RequestPtr request = MakeRequest(std::to_string(number), 1);
    // Long enough for both loops to park; this is the latency of an idle engine.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const Time submitted = std::chrono::steady_clock::now();
    engine_->AddRequest(std::move(request));
    std::unique_lock<std::mutex> lock(mutex_);
    arrived_.wait(lock, [&] { return num_outputs_ > number; });
    return {MicrosecondsBetween(submitted, forward_start_),
            MicrosecondsBetween(submitted, callback_start_)};
  }

 private:
  void OnOutputs() {
    std::lock_guard<std::mutex> lock(mutex_);
    callback_start_ = std::chrono::steady_clock::now();
    ++num_outputs_;
    arrived_.notify_one();
  }

  const std::filesystem::path folder_;
  Time forward_start_;  // ordered before callback_start_ by the output channel
  std::unique_ptr<ThreadedEngine> engine_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  Time callback_start_;
  int64_t num_outputs_ = 0;
};

double Quantile(std::vector<double>* samples, double q) {
  const auto nth = samples->begin() + static_cast<int64_t>(q * (std::ssize(*samples) - 1));
  std::nth_element(samples->begin(), nth, samples->end());
  return *nth;
}

void RunLatency(benchmark::State& state, double LatencyProbe::Sample::* which) {
  LatencyProbe probe;
  std::vector<double> samples;
  for (auto _ : state) {
    samples.push_back(probe.Submit(std::ssize(samples)).*which);
    state.SetIterationTime(samples.back() * 1e-6);
  }
  state.counters["p50_us"] = Quantile(&samples, 0.5);
  state.counters["p99_us"] = Quantile(&samples, 0.99);
}

void SubmitToEngine(benchmark::State& state) {
  RunLatency(state, &LatencyProbe::Sample::to_engine_us);
}
void SubmitToCallback(benchmark::State& state) {
  RunLatency(state, &LatencyProbe::Sample::to_callback_us);
}
BENCHMARK(SubmitToEngine)->UseManualTime()->Iterations(2000)->Unit(benchmark::kMicrosecond);
BENCHMARK(SubmitToCallback)->UseManualTime()->Iterations(2000)->Unit(benchmark::kMicrosecond);

// ---- text

void TextDelivery(benchmark::State& state) {
  const auto table = ByteTable();
  TextStreamer streamer;
  std::string text;
  int32_t token = 0;
  for (auto _ : state) {
    text.clear();
    streamer.Put(table->text_bytes(token), &text);
    benchmark::DoNotOptimize(text.data());
    token = (token + 1) % kVocabSize;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(TextDelivery);

void StopStrings(benchmark::State& state) {
  const auto table = ByteTable();
  std::vector<std::string> stop_strs;
  for (int i = 0; i < state.range(0); ++i) {
    stop_strs.push_back("token " + std::string(1, static_cast<char>('A' + i % 26)) +
                        std::to_string(i));
  }
  StopStrHandler handler(std::make_shared<StopStrSet>(stop_strs));
  std::string text;
  std::vector<int32_t> ids;
  int32_t token = 0;
  for (auto _ : state) {
    text.clear();
    ids.clear();
    handler.Put(token, table->text_bytes(token), &text, &ids);
    benchmark::DoNotOptimize(text.data());
    token = (token + 1) % kVocabSize;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(StopStrings)->Arg(1)->Arg(16)->Arg(1000);

// ---- tracing

void TraceEvent(benchmark::State& state) {
  EventTraceRecorder recorder;
  std::vector<std::string> ids;
  for (int i = 0; i < 64; ++i) ids.push_back("chatcmpl-0123456789abcdef-" + std::to_string(i));
  size_t i = 0;
  for (auto _ : state) {
    recorder.AddEvent(ids[i % ids.size()], i % 2 == 0 ? "start decode" : "finish decode");
    ++i;
  }
}
BENCHMARK(TraceEvent);

void TraceDump(benchmark::State& state) {
  EventTraceRecorder recorder;
  for (int i = 0; i < EventTraceRecorder::kDefaultCapacity; ++i) {
    recorder.AddEvent("request " + std::to_string(i / 100), i % 2 == 0 ? "start x" : "finish x");
  }
  for (auto _ : state) benchmark::DoNotOptimize(recorder.DumpJSON());
}
BENCHMARK(TraceDump)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mlc_native

BENCHMARK_MAIN();
