// The engine as a whole on a real checkpoint folder, next to the limit of this machine: tokens
// through the public Engine, greedy, text and callback included, the prefix cache on (no prompt
// hits it).
//
//   python tools/make_random_checkpoint.py --like qwen3-0.6b --dtype bfloat16 --out /tmp/qwen3
//   build/torch/bench/end_to_end --model /tmp/qwen3
//                                [--rows prefill,decode1,decode4,decode16,decode4096]
//                                [--quantization none,q8,q4,auto]
// Threads: MLC_NATIVE_BENCH_THREADS (default 2). ISA: MLC_NATIVE_ISA. A figure is that of the
// median step of a row. The limit of a step is
//
//   max(bytes / read bandwidth, linear operations / peak of their format
//                               + attention operations / peak of the KV type)
//
// with everything counted once, whatever the engine does:
//   bytes                packed weights of all matrices with their scales (of experts: of those
//                        that the rows choose on average), K and V of every sequence's context
//                        read, K and V of the new rows written
//   linear operations    2 n k per row; per row of logits alone: the head and, in the last layer,
//                        what comes after attention
//   attention operations 4 heads head_dim per row and key that it attends
// The bandwidth is the better one of right before and right after a row (GB/s), because what a
// shared machine gives changes with time. Activations stay in caches and are not counted. `engine`
// is the part of the time outside Model::Forward: planning, pages, sampling, text, callback.
#include <algorithm>
#include <chrono>
#include <cmath>
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
#include "kernels/packed_format.h"
#include "kernels_machine.h"
#include "mlc_native/engine.h"
#include "models/kv_storage.h"

namespace mlc_native {
namespace {

using kernels::Arithmetic;
using kernels::TheMachine;

struct RowKind {
  std::string_view name;
  int64_t sequences;
  int64_t prompt_len;
  int64_t steps;  // that are measured
  bool prefill;   // a step is a prompt; else a token of each sequence
};
constexpr RowKind kRows[] = {
    {"prefill", 1, 512, 5, true},       {"decode1", 1, 128, 48, false},
    {"decode4", 4, 128, 32, false},     {"decode16", 16, 128, 24, false},
    {"decode4096", 1, 4080, 32, false},  // the middle of its steps has 4,096 tokens of context
};

struct Quantization {
  std::string_view name;
  WeightQuantization quantization;
  Arithmetic arithmetic;
};
constexpr Quantization kQuantizations[] = {
    {"none", WeightQuantization::kOff, Arithmetic::kBFloat16},
    {"auto", WeightQuantization::kAuto, Arithmetic::kInt8},  // as the folder has it
    {"q8", WeightQuantization::kQ8, Arithmetic::kInt8},
    {"q4", WeightQuantization::kQ4, Arithmetic::kInt8},
};

// ---- The limit ----

// One step: `rows` new tokens of each of `sequences`, whose context is `context` before it.
struct StepShape {
  int64_t sequences;
  int64_t rows;
  int64_t context;

  double Keys() const {  // per sequence, over its rows
    return static_cast<double>(rows * context) + 0.5 * static_cast<double>(rows * (rows + 1));
  }
};

class Limit {
 public:
  // weight_bytes: all that is loaded, as it is packed.
  Limit(const ModelConfig& config, const Quantization& quantization, int64_t weight_bytes)
      : config_(config), quantization_(quantization) {
    for (const LayerConfig& layer : config.layers) AddLayer(layer);
    qkv_size_ /= num_layers();
    rest_size_ /= num_layers();
    if (!config.tie_word_embeddings) {  // a step reads some rows only
      weight_bytes -= config.vocab_size * config.hidden_size *
                      static_cast<int64_t>(DTypeSize(DType::kBFloat16));
    }
    weight_bytes_ = static_cast<double>(weight_bytes);
  }

  double Seconds(const StepShape& step) const {
    const kernels::Machine& machine = TheMachine();
    return std::max(StepBytes(step) / machine.bytes_per_second,
                    LinearOperations(step) / machine.Peak(quantization_.arithmetic) +
                        AttentionOperations(step) / machine.Peak(Arithmetic::kBFloat16));
  }

 private:
  double num_layers() const { return static_cast<double>(config_.layers.size()); }

  void AddLayer(const LayerConfig& layer) {
    for (const LinearRole role : kLinearRoles) {
      const int64_t count = config_.num_linears(layer, role);
      if (count == 0) continue;
      const auto size =
          static_cast<double>(config_.linear_rows(role) * config_.linear_columns(role));
      const bool of_experts = role == LinearRole::kExpertGateUp || role == LinearRole::kExpertDown;
      const int64_t used = of_experts ? config_.experts->router.num_chosen : count;
      (role == LinearRole::kQkv ? qkv_size_ : rest_size_) += size * static_cast<double>(used);
      if (!of_experts) continue;
      const kernels::PanelLayout panel =
          kernels::LayoutOf(ExpertFormat(&layer == &config_.layers.front()));
      expert_bytes_ += size * static_cast<double>(count * panel.GroupBytes(1)) /
                       static_cast<double>(panel.group);
    }
  }

  // With 4 bits asked for, the first layer has 8.
  kernels::WeightFormat ExpertFormat(bool is_first_layer) const {
    const bool is_mxfp4 =
        config_.quantization && config_.quantization->format == QuantizedFormat::kMxfp4;
    switch (quantization_.quantization) {
      case WeightQuantization::kOff:
        break;
      case WeightQuantization::kAuto:
        if (!is_mxfp4) break;
        return kernels::WeightFormat::kMxfp4;
      case WeightQuantization::kQ8:
      case WeightQuantization::kQ4:
        if (is_mxfp4) return kernels::WeightFormat::kMxfp4;
        return quantization_.quantization == WeightQuantization::kQ8 || is_first_layer
                   ? kernels::WeightFormat::kQ8
                   : kernels::WeightFormat::kQ4;
    }
    return kernels::WeightFormat::kBFloat16;
  }

  // The part of the experts that the rows of a step choose, if their choices are independent and
  // all experts equally good.
  double UsedExperts(const StepShape& step) const {
    if (!config_.experts) return 1;
    const kernels::RouterRule& router = config_.experts->router;
    const double chosen =
        static_cast<double>(router.num_chosen) / static_cast<double>(router.num_experts);
    return 1 - std::pow(1 - chosen, static_cast<double>(step.sequences * step.rows));
  }

  double StepBytes(const StepShape& step) const {
    const auto kv_per_token =
        static_cast<double>(KvStorage::BytesPerToken(config_, kernels::KvFormat::kBFloat16));
    return weight_bytes_ - (1 - UsedExperts(step)) * expert_bytes_ +
           static_cast<double>(step.sequences * (step.context + 2 * step.rows)) * kv_per_token;
  }
  double LinearOperations(const StepShape& step) const {
    const auto logits_rows = static_cast<double>(step.sequences);
    const double rows = logits_rows * static_cast<double>(step.rows);
    const auto head = static_cast<double>(config_.vocab_size * config_.hidden_size);
    return 2 * (rows * qkv_size_ * num_layers() + rows * rest_size_ * (num_layers() - 1) +
                logits_rows * (rest_size_ + head));
  }
  double AttentionOperations(const StepShape& step) const {
    return 4 * static_cast<double>(config_.q_size() * step.sequences) * step.Keys() * num_layers();
  }

  const ModelConfig& config_;
  const Quantization& quantization_;
  double qkv_size_ = 0, rest_size_ = 0;  // elements of a layer's matrices that a row passes, mean
  double expert_bytes_ = 0;              // of all experts
  double weight_bytes_ = 0;
};

// ---- The engine ----

struct StepTime {
  double seconds = 0;
  double forward = 0;  // of it within Model::Forward
  int64_t tokens = 0;  // that reached the callback
};

class Session {
 public:
  Session(const std::string& model, WeightQuantization quantization, int64_t vocab_size)
      : any_token_(3, static_cast<int32_t>(vocab_size) - 4) {
    EngineConfig config;
    config.model = model;
    config.dtype = "bfloat16";
    config.quantization = quantization;
    config.num_threads = TheMachine().pool->num_threads();
    config.max_num_sequence = 16;
    config.max_single_sequence_length = 4608;
    config.max_total_sequence_length = 3 * 4608;
    config.prefill_chunk_size = 512;
    EngineOptions options;
    options.request_stream_callback = [this](const std::vector<RequestStreamOutput>& outputs) {
      for (const RequestStreamOutput& output : outputs) {
        for (const SequenceDelta& delta : output.group) num_tokens_ += std::ssize(delta.token_ids);
      }
    };
    engine_ = Engine::Create(config, options);
  }

  int64_t WeightBytes() {
    return nlohmann::json::parse(engine_->DebugCall("memory_summary")).at("weights").get<int64_t>();
  }

  std::vector<StepTime> Measure(const RowKind& row) {
    return row.prefill ? MeasurePrompts(row) : MeasureTokens(row);
  }

 private:
  std::vector<StepTime> MeasurePrompts(const RowKind& row) {
    std::vector<StepTime> times;
    for (int64_t i = 0; i <= row.steps; ++i) {
      engine_->Reset();  // so that all use the same pages
      Add(row.prompt_len, 1);
      times.push_back(Step());
    }
    times.erase(times.begin());  // it touched them for the first time
    return times;
  }

  std::vector<StepTime> MeasureTokens(const RowKind& row) {
    // All run at the same time: the first has not ended when the last prompt is computed.
    const int64_t max_tokens = row.steps + 2 * row.sequences;
    for (int64_t i = 0; i < row.sequences; ++i) Add(row.prompt_len, max_tokens);
    while (Step().tokens < row.sequences) {
    }
    std::vector<StepTime> times;
    for (int64_t i = 0; i < row.steps; ++i) {
      times.push_back(Step());
      if (times.back().tokens != row.sequences) throw std::runtime_error("not all sequences run");
    }
    engine_->AbortAllRequests();
    return times;
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
    const auto profile = nlohmann::json::parse(engine_->DebugCall("profiler_stop"));
    const auto seconds = [&](const char* phase) {
      return profile.at("phases").at(phase).at("sum_s").get<double>();
    };
    return {.seconds = seconds("step"), .forward = seconds("forward"), .tokens = num_tokens_};
  }

  std::minstd_rand random_{7};
  std::uniform_int_distribution<int32_t> any_token_;
  int64_t num_requests_ = 0;
  int64_t num_tokens_ = 0;
  std::unique_ptr<Engine> engine_;
};

// ---- The table ----

double Median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void PrintRow(const RowKind& row, const Quantization& quantization, const Limit& limit,
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

struct Options {
  std::string model;
  std::string rows = "prefill,decode1,decode16,decode4096";
  std::string quantization = "none,q8,q4";

  static bool Lists(const std::string& list, std::string_view name) {
    return ("," + list + ",").find("," + std::string(name) + ",") != std::string::npos;
  }
};

Options ParseOptions(int argc, char** argv) {
  Options options;
  const std::pair<const char*, std::string*> fields[] = {{"--model", &options.model},
                                                         {"--rows", &options.rows},
                                                         {"--quantization", &options.quantization}};
  for (int i = 1; i < argc; i += 2) {
    const auto field = std::find_if(std::begin(fields), std::end(fields), [&](const auto& f) {
      return std::strcmp(f.first, argv[i]) == 0;
    });
    if (field == std::end(fields) || i + 1 == argc) {
      throw std::invalid_argument(std::string("what is ") + argv[i] + "? see bench/end_to_end.cc");
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
  for (const Quantization& quantization : kQuantizations) {
    if (!Options::Lists(options.quantization, quantization.name)) continue;
    Session session(options.model, quantization.quantization, config.vocab_size);
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
    }
  }
}

}  // namespace
}  // namespace mlc_native

int main(int argc, char** argv) {
  try {
    mlc_native::Run(mlc_native::ParseOptions(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "end_to_end: %s\n", error.what());
    return 1;
  }
}
