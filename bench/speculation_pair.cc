// The speed of a target with a draft model in their real shapes, when guesses are right as often as
// asked for: predicted from the times of single forwards, and measured.
//
//   python tools/make_random_checkpoint.py --like llama-3.1-8b ... --out TARGET
//   python tools/make_random_checkpoint.py --like qwen3-0.6b ... --out DRAFT
//   build/torch/bench/speculation_pair --target TARGET --draft DRAFT [--lengths 0,2,4]
//                                      [--acceptances 0.6,0.7,0.8] [--batch 1] [--tokens 96]
//
// Weights are random, so the draft model would never be right. It is computed all the same, and
// then the logits of the answer's next token, which is known from a run without guesses, are
// raised: at each position with the probability that was asked for. Length 0 is the automatic one.
// Predicted is
//
//   (1 + a + ... + a^k) * forward of 1 row / (forward of 1 + k rows + k * forward of the draft)
//
// with the median times of the forwards; for length 0 the largest of all k. Threads:
// MLC_NATIVE_BENCH_THREADS (default 2).
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine_parts.h"
#include "mlc_native/engine.h"
#include "mlc_native/model.h"
#include "support/random.h"

namespace mlc_native {
namespace {

constexpr int64_t kPromptLength = 32;
constexpr int64_t kMaxLength = 10;
constexpr float kRaised = 1e9F;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Median(std::vector<double> values) {
  if (values.empty()) throw std::runtime_error("nothing was measured");
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A model whose forwards are timed by their rows, and whose logits may be changed.
class WatchedModel final : public Model {
 public:
  using ChangeLogits = std::function<void(int64_t position, std::span<float> logits)>;

  explicit WatchedModel(std::unique_ptr<Model> model) : model_(std::move(model)) {}

  const ModelMetadata& metadata() const override { return model_->metadata(); }
  void Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_logits) override {
    model_->Allocate(num_pages, max_num_rows, max_num_logits);
  }
  void CopyPages(std::span<const PageCopy> copies) override { model_->CopyPages(copies); }
  LogitsView Forward(const ForwardBatch& batch) override {
    const double start = Now();
    LogitsView logits = model_->Forward(batch);
    seconds_[std::ssize(batch.token_ids)].push_back(Now() - start);
    if (!change_) return logits;
    for (int64_t i = 0; i < logits.num_rows; ++i) {
      const int64_t row = batch.logits_rows[static_cast<size_t>(i)];
      for (const SequenceSlice& slice : batch.sequences) {
        if (row < slice.first_row || row >= slice.first_row + slice.num_tokens) continue;
        change_(slice.position + row - slice.first_row, logits.row(i));
      }
    }
    return logits;
  }

  void set_change(ChangeLogits change) { change_ = std::move(change); }
  // Of a forward of this many rows, or of the next larger one that was seen.
  double Seconds(int64_t num_rows) const {
    const auto found = seconds_.lower_bound(num_rows);
    return found == seconds_.end() ? std::nan("") : Median(found->second);
  }

 private:
  const std::unique_ptr<Model> model_;
  ChangeLogits change_;
  std::map<int64_t, std::vector<double>> seconds_;
};

struct Options {
  std::string target, draft;
  std::string lengths = "0,2,4";
  std::string acceptances = "0.6,0.7,0.8";
  int64_t batch = 1;
  int64_t tokens = 96;
  int64_t rounds = 3;
};

class Pair {
 public:
  explicit Pair(const Options& options) : options_(options) {
    const char* const threads = std::getenv("MLC_NATIVE_BENCH_THREADS");
    EngineConfig config;
    config.model = options.target;
    config.additional_models = {options.draft};
    config.speculative_mode = SpeculativeMode::kSmallDraft;
    config.quantization = WeightQuantization::kQ4;
    config.num_threads = threads != nullptr ? std::atoi(threads) : 2;
    config.max_num_sequence = options.batch;
    config.max_single_sequence_length = 1024;
    config.max_total_sequence_length = 1024 * options.batch;
    config.prefill_chunk_size = 256;
    EngineParts parts = LoadParts(config, {});
    auto target = std::make_unique<WatchedModel>(std::move(parts.model));
    target_ = target.get();
    EngineOptions engine_options;
    engine_options.request_stream_callback = [this](const auto& outputs) { Receive(outputs); };
    engine_options.make_draft_model = [&] {
      auto draft = std::make_unique<WatchedModel>(std::move(parts.draft_model));
      draft_ = draft.get();
      return draft;
    };
    engine_ = Engine::FromModel(std::move(target), parts.config, parts.defaults, parts.token_table,
                                engine_options);
    vocab_size_ = target_->metadata().vocab_size;
    Run(-1);  // the answer, which all sequences give
    answer_ = tokens_;
  }

  void Measure(int64_t length, double acceptance) {
    draft_->set_change([this, acceptance](int64_t position, std::span<float> logits) {
      const int64_t next = position + 1 - kPromptLength;
      if (next < 0 || next >= std::ssize(answer_)) return;
      const bool is_right = RandomUniform(11, 0, static_cast<uint64_t>(next)) < acceptance;
      const int64_t token = (answer_[static_cast<size_t>(next)] + (is_right ? 0 : 1)) % vocab_size_;
      logits[static_cast<size_t>(token)] = kRaised;
    });
    std::vector<double> speedups;
    for (int64_t round = 0; round <= options_.rounds; ++round) {
      const double without = Run(-1);
      const double with = Run(length);
      if (tokens_ != answer_) throw std::runtime_error("guesses have changed the answer");
      if (round > 0) speedups.push_back(without / with);
    }
    std::printf("| %s | %.1f | %.2f | %.2f | %.1f | %.1f | %.1f |\n",
                length == 0 ? "auto" : std::to_string(length).c_str(), acceptance,
                Predicted(length, acceptance), Median(speedups),
                1e3 * target_->Seconds(options_.batch),
                1e3 * target_->Seconds(options_.batch * (1 + std::max<int64_t>(length, 1))),
                1e3 * draft_->Seconds(options_.batch));
    std::fflush(stdout);
  }

 private:
  double Predicted(int64_t length, double acceptance) const {
    const double one = target_->Seconds(options_.batch);
    double best = length == 0 ? 1 : 0;
    double tokens = 1;
    for (int64_t k = 1; k <= kMaxLength; ++k) {
      tokens += std::pow(acceptance, k);
      if (length != 0 && k != length) continue;
      const double verify = target_->Seconds(options_.batch * (1 + k));
      const double draft = static_cast<double>(k) * draft_->Seconds(options_.batch);
      if (!std::isnan(verify)) best = std::max(best, tokens * one / (verify + draft));
    }
    return best;
  }

  // Returns the seconds behind the first token. Length -1: without guesses.
  double Run(int64_t length) {
    tokens_.clear();
    GenerationConfig generation;
    generation.temperature = 0;
    generation.max_tokens = options_.tokens;
    generation.debug_config.ignore_eos = true;
    generation.speculative = length >= 0;
    if (length >= 0) generation.spec_draft_length = length;
    for (int64_t i = 0; i < options_.batch; ++i) {
      std::vector<int32_t> prompt(kPromptLength);
      for (size_t k = 0; k < prompt.size(); ++k) prompt[k] = static_cast<int32_t>(10 + 7 * k);
      engine_->AddRequest(
          engine_->CreateRequest(std::to_string(i), {TokenData{std::move(prompt)}}, generation));
    }
    while (tokens_.empty()) engine_->Step();
    const double start = Now();
    while (!engine_->Empty()) engine_->Step();
    return Now() - start;
  }

  // Keeps the answer of the first sequence.
  void Receive(const std::vector<RequestStreamOutput>& outputs) {
    for (const RequestStreamOutput& output : outputs) {
      if (output.request_id != "0") continue;
      for (const SequenceDelta& delta : output.group) {
        tokens_.insert(tokens_.end(), delta.token_ids.begin(), delta.token_ids.end());
      }
    }
  }

  const Options options_;
  WatchedModel* target_ = nullptr;  // owned by engine_, like the next one
  WatchedModel* draft_ = nullptr;
  int64_t vocab_size_ = 0;
  std::vector<int32_t> answer_;
  std::vector<int32_t> tokens_;
  std::unique_ptr<Engine> engine_;
};

template <typename Value>
std::vector<Value> List(const std::string& text) {
  std::vector<Value> values;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    values.push_back(static_cast<Value>(std::stod(part)));
  }
  return values;
}

Options Parse(int argc, char** argv) {
  Options options;
  const std::pair<const char*, std::string*> texts[] = {{"--target", &options.target},
                                                        {"--draft", &options.draft},
                                                        {"--lengths", &options.lengths},
                                                        {"--acceptances", &options.acceptances}};
  const std::pair<const char*, int64_t*> numbers[] = {
      {"--batch", &options.batch}, {"--tokens", &options.tokens}, {"--rounds", &options.rounds}};
  for (int i = 1; i < argc; i += 2) {
    const auto is_it = [&](const auto& field) { return std::string_view(argv[i]) == field.first; };
    const auto text = std::ranges::find_if(texts, is_it);
    const auto number = std::ranges::find_if(numbers, is_it);
    if (i + 1 == argc || (text == std::end(texts) && number == std::end(numbers))) {
      throw std::runtime_error(std::string("what is ") + argv[i] + "? see --help");
    }
    if (text != std::end(texts)) *text->second = argv[i + 1];
    if (number != std::end(numbers)) *number->second = std::stoll(argv[i + 1]);
  }
  if (options.target.empty() || options.draft.empty()) {
    throw std::runtime_error("--target and --draft are needed");
  }
  return options;
}

void Main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  Pair pair(options);
  std::printf(
      "| length | right | predicted | measured | ms: 1 row | ms: 1 + length | ms: draft |\n");
  std::printf("|--:|--:|--:|--:|--:|--:|--:|\n");
  // Fixed lengths first: the prediction for the automatic one uses their times.
  std::vector<int64_t> lengths = List<int64_t>(options.lengths);
  std::ranges::sort(lengths, std::greater<>());
  for (const int64_t length : lengths) {
    for (const double acceptance : List<double>(options.acceptances)) {
      pair.Measure(length, acceptance);
    }
  }
}

}  // namespace
}  // namespace mlc_native

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--help") {
    std::printf(
        "usage: %s --target FOLDER --draft FOLDER [--lengths 0,2,4] [--acceptances 0.6,0.7,0.8]\n"
        "       [--batch N] [--tokens N] [--rounds N]\n",
        argv[0]);
    return 0;
  }
  try {
    mlc_native::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
