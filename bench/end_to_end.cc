// The engine as a whole on a real checkpoint folder, next to the limit of this machine: tokens
// through the public Engine, greedy, text and callback included, the prefix cache on (no prompt
// hits it).
//
//   python tools/make_random_checkpoint.py --like qwen3-0.6b --dtype bfloat16 --out /tmp/qwen3
//   build/torch/bench/end_to_end --model /tmp/qwen3
//                                [--rows
//                                prefill,decode1,decode4,decode16,decode4096,decode16384,decode32768]
//                                [--quantization none,q8,q4,auto] [--profile]
// Threads: MLC_NATIVE_BENCH_THREADS (default 2). ISA: MLC_NATIVE_ISA. A figure is that of the
// median step of a row. The limit of a step is
//
//   max(bytes / read bandwidth, linear operations / peak of their format
//                               + attention operations / peak of the KV type)
//
// with everything counted once, whatever the engine does:
//   bytes                packed weights of all matrices with their scales (of experts: of those
//                        that the rows choose on average), K and V of every sequence's context
//                        read, K and V of the new rows written; states of recurrent layers read
//                        and written
//   linear operations    2 n k per row; per row of logits alone: the head and, in the last layer,
//                        what comes after attention
//   attention operations 4 heads head_dim per row and key that it attends; of linear attention 7
//                        per row and element of a state, of Mamba-2 5, in float32
// The bandwidth is the better one of right before and right after a row (GB/s), because what a
// shared machine gives changes with time. Activations stay in caches and are not counted. `engine`
// is the part of the time outside Model::Forward: planning, pages, sampling, text, callback.
//
// --profile adds where the threads' time of a row's steps went, kernel by kernel
// (bench/kernel_table.h; csrc/kernels/kernel_profile.h says what counts as a wait). Per step: `ms`,
// the time in the kernel, and `wait ms`, both as sums over threads divided by their number; `MB`,
// what it reads and writes at least once; `limit`, the share of the limit of memory or arithmetic,
// waits included. What lies in a cache may exceed the limit of memory.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "arch/model_config.h"
#include "kernel_table.h"
#include "kernels_machine.h"
#include "mlc_native/engine.h"
#include "step_limit.h"

namespace mlc_native {
namespace {

struct RowKind {
  std::string_view name;
  int64_t sequences;
  int64_t prompt_len;
  int64_t steps;  // that are measured
  bool prefill;   // a step is a prompt; else a token of each sequence
};
constexpr RowKind kRows[] = {
    {"prefill", 1, 512, 5, true},         {"decode1", 1, 128, 48, false},
    {"decode4", 4, 128, 32, false},       {"decode16", 16, 128, 24, false},
    {"decode4096", 1, 4080, 32, false},  // the middle of its steps has 4,096 tokens of context
    {"decode16384", 1, 16376, 16, false}, {"decode32768", 1, 32760, 16, false},
};

constexpr Precision kQuantizations[] = {
    {"none", WeightQuantization::kOff, Arithmetic::kBFloat16},
    {"auto", WeightQuantization::kAuto, Arithmetic::kInt8},  // as the folder has it
    {"q8", WeightQuantization::kQ8, Arithmetic::kInt8},
    {"q4", WeightQuantization::kQ4, Arithmetic::kInt8},
};

struct Options {
  std::string model;
  std::string rows = "prefill,decode1,decode16,decode4096";
  std::string quantization = "none,q8,q4";
  bool profile = false;

  static bool Lists(const std::string& list, std::string_view name) {
    return ("," + list + ",").find("," + std::string(name) + ",") != std::string::npos;
  }
  // Tokens of the longest sequence of the rows.
  int64_t LongestSequence() const {
    int64_t longest = 4096;
    for (const RowKind& row : kRows) {
      if (Lists(rows, row.name)) longest = std::max(longest, row.prompt_len);
    }
    return longest + 512;
  }
};

// ---- The engine ----

struct StepTime {
  double seconds = 0;
  double forward = 0;  // of it within Model::Forward
  double sample = 0;   // and for drawing tokens
  int64_t tokens = 0;  // that reached the callback
};

class Session {
 public:
  Session(const Options& options, WeightQuantization quantization, int64_t vocab_size)
      : profile_(options.profile), any_token_(3, static_cast<int32_t>(vocab_size) - 4) {
    EngineConfig config;
    config.model = options.model;
    config.dtype = "bfloat16";
    config.quantization = quantization;
    config.num_threads = TheMachine().pool->num_threads();
    config.max_num_sequence = 16;
    config.max_single_sequence_length = options.LongestSequence();
    config.max_total_sequence_length = 3 * options.LongestSequence();
    config.prefill_chunk_size = 512;
    EngineOptions callbacks;
    callbacks.request_stream_callback = [this](const std::vector<RequestStreamOutput>& outputs) {
      for (const RequestStreamOutput& output : outputs) {
        for (const SequenceDelta& delta : output.group) num_tokens_ += std::ssize(delta.token_ids);
        if (!output.error_message.empty()) error_ = output.error_message;
      }
    };
    engine_ = Engine::Create(config, callbacks);
  }

  int64_t WeightBytes() {
    return nlohmann::json::parse(engine_->DebugCall("memory_summary")).at("weights").get<int64_t>();
  }

  std::vector<StepTime> Measure(const RowKind& row) {
    return row.prefill ? MeasurePrompts(row) : MeasureTokens(row);
  }
  // What the kernels did in the steps measured last.
  const nlohmann::json& kernels() const { return kernels_; }

 private:
  std::vector<StepTime> MeasurePrompts(const RowKind& row) {
    std::vector<StepTime> times;
    for (int64_t i = 0; i <= row.steps; ++i) {
      engine_->Reset();  // so that all use the same pages
      Add(row.prompt_len, 1);
      if (i == 0) {
        Step();  // touches them for the first time
        StartKernelProfile();
        continue;
      }
      times.push_back(Step());
    }
    StopKernelProfile();
    return times;
  }

  std::vector<StepTime> MeasureTokens(const RowKind& row) {
    // All run at the same time: the first has not ended when the last prompt is computed.
    const int64_t max_tokens = row.steps + 2 * row.sequences;
    for (int64_t i = 0; i < row.sequences; ++i) Add(row.prompt_len, max_tokens);
    while (Step().tokens < row.sequences) {
    }
    std::vector<StepTime> times;
    StartKernelProfile();
    for (int64_t i = 0; i < row.steps; ++i) {
      times.push_back(Step());
      if (times.back().tokens != row.sequences) throw std::runtime_error("not all sequences run");
    }
    StopKernelProfile();
    engine_->AbortAllRequests();
    return times;
  }

  void StartKernelProfile() {
    if (profile_) engine_->DebugCall("kernel_profile_start");
  }
  void StopKernelProfile() {
    if (profile_) kernels_ = nlohmann::json::parse(engine_->DebugCall("kernel_profile_stop"));
  }

  void Add(int64_t prompt_len, int64_t max_tokens) {
    GenerationConfig generation;
    generation.temperature = 0;
    generation.max_tokens = max_tokens;
    generation.debug_config.ignore_eos = true;
    std::vector<int32_t> prompt(static_cast<size_t>(prompt_len));
    for (int32_t& token : prompt) token = any_token_(random_);
    engine_->AddRequest(engine_->CreateRequest(std::to_string(num_requests_++),
                                               {TokenData{std::move(prompt)}}, generation));
  }

  StepTime Step() {
    num_tokens_ = 0;
    engine_->DebugCall("profiler_start");
    engine_->Step();
    if (!error_.empty()) throw std::runtime_error(error_);
    const auto profile = nlohmann::json::parse(engine_->DebugCall("profiler_stop"));
    const auto seconds = [&](const char* phase) {
      return profile.at("phases").at(phase).at("sum_s").get<double>();
    };
    return {.seconds = seconds("step"),
            .forward = seconds("forward"),
            .sample = seconds("sample"),
            .tokens = num_tokens_};
  }

  const bool profile_;
  nlohmann::json kernels_;
  std::minstd_rand random_{7};
  std::uniform_int_distribution<int32_t> any_token_;
  int64_t num_requests_ = 0;
  int64_t num_tokens_ = 0;
  std::string error_;  // of a request
  std::unique_ptr<Engine> engine_;
};

// ---- The table ----

double Median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void PrintRow(const RowKind& row, const Precision& quantization, const Limit& limit,
              const std::vector<StepTime>& times) {
  std::vector<double> seconds, engine;
  for (const StepTime& time : times) {
    seconds.push_back(time.seconds);
    engine.push_back(time.seconds - time.forward);
  }
  const double step = Median(std::move(seconds));
  const StepShape shape = row.prefill ? StepShape{row.sequences, row.prompt_len, 0}
                                      : StepShape{row.sequences, 1, row.prompt_len + row.steps / 2};
  const double bound = limit.Seconds(shape);
  std::printf("%-11s %-5s %9.1f %9.2f %9.2f %6.1f %% %7.2f %% %7.1f\n", row.name.data(),
              quantization.name.data(), static_cast<double>(shape.sequences * shape.rows) / step,
              step * 1e3, bound * 1e3, 100 * bound / step, 100 * Median(std::move(engine)) / step,
              TheMachine().bytes_per_second / 1e9);
  std::fflush(stdout);
}

void PrintKernels(const ModelConfig& config, const std::vector<StepTime>& times,
                  const nlohmann::json& kernels) {
  KernelTimes sum{.steps = std::ssize(times), .kernels = kernels};
  for (const StepTime& time : times) {
    sum.step += time.seconds;
    sum.forward += time.forward;
    sum.sample += time.sample;
  }
  KernelTable(config, sum).Print();
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  const std::pair<const char*, std::string*> fields[] = {{"--model", &options.model},
                                                         {"--rows", &options.rows},
                                                         {"--quantization", &options.quantization}};
  for (int i = 1; i < argc; i += 2) {
    if (std::strcmp(argv[i], "--profile") == 0) {
      options.profile = true;
      --i;  // it has no value
      continue;
    }
    const auto field = std::find_if(std::begin(fields), std::end(fields), [&](const auto& f) {
      return std::strcmp(f.first, argv[i]) == 0;
    });
    if (field == std::end(fields) || i + 1 == argc) {
      throw std::invalid_argument(std::string("what is ") + argv[i] + "? see --help");
    }
    *field->second = argv[i + 1];
  }
  if (options.model.empty()) throw std::invalid_argument("--model FOLDER is missing");
  return options;
}

void PrintHeader() {
  PrintLimits(TheMachine());
  std::printf("%-17s %9s %9s %9s %8s %9s %7s\n", "", "tokens/s", "step ms", "limit ms", "share",
              "engine", "GB/s");
}

void Run(const Options& options) {
  const ModelConfig config = ReadModelConfig(options.model);
  for (const Precision& quantization : kQuantizations) {
    if (!Options::Lists(options.quantization, quantization.name)) continue;
    Session session(options, quantization.quantization, config.vocab_size);
    const Limit limit(config, quantization, session.WeightBytes());
    kernels::Machine& machine = TheMachine();
    machine.MeasurePeaks();  // again: others may have been busy the first time
    PrintHeader();
    for (const RowKind& row : kRows) {
      if (!Options::Lists(options.rows, row.name)) continue;
      machine.MeasureReads();
      const double reads_before = machine.bytes_per_second;
      const std::vector<StepTime> times = session.Measure(row);
      machine.MeasureReads();
      machine.bytes_per_second = std::max(machine.bytes_per_second, reads_before);
      PrintRow(row, quantization, limit, times);
      if (options.profile) PrintKernels(config, times, session.kernels());
    }
  }
}

}  // namespace
}  // namespace mlc_native

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--help") == 0) {
    std::printf("usage: %s --model FOLDER [--rows ROWS] [--quantization NAMES] [--profile]\n",
                argv[0]);
    return 0;
  }
  try {
    mlc_native::Run(mlc_native::ParseOptions(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "end_to_end: %s\n", error.what());
    return 1;
  }
}
