// What the C API costs on top of the C++ API: both stream the same tokens of the fake model, which
// takes no time. The model has no tokenizer, so that an output is tokens without text.
//
//   Stream/CPP/N, Stream/C/N, Stream/CPoll/N
//                   N sequences of kTokens tokens each, to the last output (tokens/s; CPU time per
//                   token of all threads: cpu_ns_per_token)
//   FirstToken/CPP, FirstToken/C
//                   submission of a request with one token until its first output is there; C reads
//                   a JSON body (us: Time)
//
// Python's figures: bench/streaming.py and bench/first_token.py. Run it on an otherwise idle
// machine: build/bench/native
#include <benchmark/benchmark.h>
#include <sys/resource.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "fake_model/path.h"
#include "mlc_native/mlc_native.h"
#include "mlc_native/threaded_engine.h"

namespace mlc_native {
namespace {

constexpr int kTokens = 1000;
const std::vector<int32_t> kPrompt = {1, 2, 3, 4, 5, 6, 7, 8};

// A model folder, removed with the program.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() / ("native." + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
    std::ofstream(path_ / "config.json")
        << R"({"fake": {"history_window": 1, "reuse_rows": true}})";
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::string Config(const Folder& folder) {
  return R"({"model": ")" + folder.path() + R"(", "model_lib": ")" + kFakeModelPath +
         R"(", "max_num_sequence": 64, "max_total_sequence_length": 131072,
            "prefix_cache_mode": "disable"})";
}

// Counts requests that have ended.
class Countdown {
 public:
  void Start(int64_t count) {
    const std::lock_guard lock(mutex_);
    left_ = count;
  }
  void Step() {
    const std::lock_guard lock(mutex_);
    if (--left_ == 0) reached_.notify_one();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    reached_.wait(lock, [this] { return left_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable reached_;
  int64_t left_ = 0;
};

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Runs one round after another, and reports what a token takes.
template <typename Round>
void Measure(benchmark::State& state, Round round) {
  round();  // the first one allocates
  const double before = CpuSeconds();
  for (auto _ : state) round();
  const double num_tokens = static_cast<double>(state.iterations() * state.range(0)) * kTokens;
  state.counters["cpu_ns_per_token"] = (CpuSeconds() - before) / num_tokens * 1e9;
  state.counters["tokens/s"] = benchmark::Counter(num_tokens, benchmark::Counter::kIsRate);
}

class CppHost {
 public:
  CppHost() {
    engine_->InitThreadedEngine(
        "cpu",
        [this](const std::vector<RequestStreamOutput>& outputs) {
          for (const RequestStreamOutput& output : outputs) {
            for (const SequenceDelta& delta : output.group) benchmark::DoNotOptimize(&delta);
            if (output.is_final()) ended_.Step();
          }
        },
        nullptr);
    engine_->Start();
    engine_->Reload(Config(folder_));
  }
  void Run(int64_t count, int64_t num_tokens) {
    ended_.Start(count);
    for (int64_t i = 0; i < count; ++i) {
      GenerationConfig generation = engine_->GetDefaultGenerationConfig();
      generation.temperature = 0;
      generation.max_tokens = num_tokens;
      engine_->AddRequest(
          engine_->CreateRequest(std::to_string(next_id_++), {TokenData{kPrompt}}, generation));
    }
    ended_.Wait();
  }

 private:
  Folder folder_;
  Countdown ended_;
  int64_t next_id_ = 0;
  std::unique_ptr<ThreadedEngine> engine_ = ThreadedEngine::Create();
};

class CHost {
 public:
  explicit CHost(bool polls) : polls_(polls) {
    mlcn_engine_options options = MLCN_ENGINE_OPTIONS_INIT;
    options.device = "cpu";
    Check(mlcn_engine_create(folder_.path().c_str(), Config(folder_).c_str(), &options, &engine_,
                             nullptr));
  }
  CHost(const CHost&) = delete;
  CHost& operator=(const CHost&) = delete;
  ~CHost() { mlcn_engine_destroy(engine_, nullptr); }

  void Run(int64_t count, int64_t num_tokens) {
    ended_.Start(count);
    const std::string body =
        R"({"temperature": 0, "max_tokens": )" + std::to_string(num_tokens) + '}';
    for (int64_t i = 0; i < count; ++i) {
      mlcn_submit_options options = MLCN_SUBMIT_OPTIONS_INIT;
      options.on_output = polls_ ? nullptr : &Receive;
      options.user_data = &ended_;
      options.tokens = kPrompt.data();
      options.num_tokens = kPrompt.size();
      mlcn_request* request = nullptr;
      Check(mlcn_submit(engine_, body.c_str(), body.size(), &options, &request, nullptr));
      mlcn_request_release(request);
    }
    if (!polls_) return ended_.Wait();
    for (int64_t left = count; left > 0;) left -= Poll();
  }

 private:
  static void Check(int32_t code) {
    if (code != MLCN_OK) throw std::runtime_error("the C API failed: " + std::to_string(code));
  }
  static void Receive(const mlcn_output* output) {
    benchmark::DoNotOptimize(output->num_tokens);
    if (output->is_final != 0) static_cast<Countdown*>(output->user_data)->Step();
  }
  int64_t Poll() {
    mlcn_outputs* outputs = nullptr;
    Check(mlcn_poll(engine_, 1024, MLCN_FOREVER, &outputs, nullptr));
    int64_t ended = 0;
    for (size_t i = 0; i < mlcn_outputs_count(outputs); ++i) {
      ended += mlcn_outputs_at(outputs, i)->is_final;
    }
    mlcn_outputs_release(outputs);
    return ended;
  }

  const bool polls_;
  Folder folder_;
  Countdown ended_;
  mlcn_engine* engine_ = nullptr;
};

void StreamCpp(benchmark::State& state) {
  CppHost host;
  Measure(state, [&] { host.Run(state.range(0), kTokens); });
}
void StreamC(benchmark::State& state) {
  CHost host(/*polls=*/false);
  Measure(state, [&] { host.Run(state.range(0), kTokens); });
}
void StreamCPoll(benchmark::State& state) {
  CHost host(/*polls=*/true);
  Measure(state, [&] { host.Run(state.range(0), kTokens); });
}
BENCHMARK(StreamCpp)->Name("Stream/CPP")->Arg(1)->Arg(64)->UseRealTime();
BENCHMARK(StreamC)->Name("Stream/C")->Arg(1)->Arg(64)->UseRealTime();
BENCHMARK(StreamCPoll)->Name("Stream/CPoll")->Arg(1)->Arg(64)->UseRealTime();

void FirstTokenCpp(benchmark::State& state) {
  CppHost host;
  for (auto _ : state) host.Run(1, 1);
}
void FirstTokenC(benchmark::State& state) {
  CHost host(/*polls=*/false);
  for (auto _ : state) host.Run(1, 1);
}
BENCHMARK(FirstTokenCpp)->Name("FirstToken/CPP")->UseRealTime();
BENCHMARK(FirstTokenC)->Name("FirstToken/C")->UseRealTime();

}  // namespace
}  // namespace mlc_native

BENCHMARK_MAIN();
