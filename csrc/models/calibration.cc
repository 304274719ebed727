#include "models/calibration.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "arch/model_config.h"
#include "checkpoint/checkpoint.h"
#include "kernels/error_feedback.h"
#include "mlc_native/detail/page.h"
#include "models/loader.h"
#include "models/transformer.h"
#include "support/error.h"
#include "weights/calibration_line.h"
#include "weights/panel_form.h"
#include "weights/tensor_storage.h"
#include "weights/weight_packer.h"

namespace mlc_native {
namespace {

using kernels::ErrorFeedback;

// The tokens of a calibration, and the sequences that they are computed in.
struct CalibrationText {
  std::vector<int32_t> token_ids;  // sequence by sequence, all of the same length
  int64_t length = 0;              // of a sequence

  int64_t num_sequences() const { return std::ssize(token_ids) / length; }
};

// Sequences of equal length from the whole text, in order.
CalibrationText ChooseText(std::span<const int32_t> token_ids, const ModelConfig& config) {
  const auto count = static_cast<int64_t>(token_ids.size());
  if (count < kMinCalibrationTokens) {
    throw InvalidConfig("calibrate",
                        OutOfRangeMessage("calibrate", count,
                                          "a text of at least " +
                                              std::to_string(kMinCalibrationTokens) + " tokens"));
  }
  for (const int32_t id : token_ids) {
    if (id >= 0 && id < config.vocab_size) continue;
    throw InvalidConfig(
        "calibrate",
        OutOfRangeMessage("calibrate", id,
                          "a text of tokens in [0, " + std::to_string(config.vocab_size) + ")"));
  }
  CalibrationText text;
  const int64_t longest = std::min(kCalibrationSequence, config.max_positions);
  const int64_t all = (count + longest - 1) / longest;
  text.length = count / all;
  const int64_t computed = std::min(all, kMaxCalibrationTokens / text.length);
  for (int64_t i = 0; i < computed; ++i) {
    const auto part = token_ids.subspan(static_cast<size_t>(i * all / computed * text.length),
                                        static_cast<size_t>(text.length));
    text.token_ids.insert(text.token_ids.end(), part.begin(), part.end());
  }
  return text;
}

// A batch of the text, and what it asks for: the rows that the head would read.
struct TextBatch {
  std::vector<std::vector<int32_t>> pages;  // of each sequence
  std::vector<SequenceSlice> slices;
  std::vector<int32_t> rows;
  int64_t num_pages = 0;

  explicit TextBatch(const CalibrationText& text) : rows(text.token_ids.size()) {
    std::iota(rows.begin(), rows.end(), 0);
    const int64_t each = (text.length + kKvPageSize - 1) / kKvPageSize;
    num_pages = each * text.num_sequences();
    for (int64_t i = 0; i < text.num_sequences(); ++i) {
      std::vector<int32_t>& own = pages.emplace_back(static_cast<size_t>(each));
      std::iota(own.begin(), own.end(), static_cast<int32_t>(i * each));
    }
    for (int64_t i = 0; i < text.num_sequences(); ++i) {
      slices.push_back({.first_row = static_cast<int32_t>(i * text.length),
                        .num_tokens = static_cast<int32_t>(text.length),
                        .position = 0,
                        .block_table = pages[static_cast<size_t>(i)]});
    }
  }
};

void CheckPlan(const WeightPlan& plan) {
  for (size_t i = 0; i < plan.sources.size(); ++i) {
    const WeightSlot& slot = plan.map.slots[i];
    if (plan.map.parameters[slot.parameter].form != ParameterForm::kPacked) continue;
    for (const Checkpoint::Entry* part : plan.sources[i]->parts()) {
      if (part->tensor->dtype) continue;
      throw LoadError(slot.name, "tensor \"" + part->tensor->name + "\" is quantized already (" +
                                     part->tensor->dtype_name +
                                     "); \"calibrate\" takes checkpoints of floats");
    }
  }
}

// The weights of a model in memory, packed matrix by matrix as their inputs become known.
class WeightsInProgress final : public LinearObserver {
 public:
  WeightsInProgress(const WeightLayout& layout, const WeightLoadOptions& options)
      : layout_(layout),
        cpu_(options.cpu),
        storage_(std::make_shared<TensorStorage>(layout.bytes(), "the model's weights")),
        packer_(layout.plan(), layout.form(), *options.cpu.pool, options.progress),
        is_packed_(parameters().size(), false) {}

  // Packs what is not rounded for its inputs, and the embeddings that are also the head: they are
  // read before they are multiplied.
  void PackOthers() {
    const WeightMap& map = layout_.plan().map;
    for (size_t i : packer_.FileOrder()) {
      const bool is_read_first = map.embeddings == kAbsent && i == map.head;
      if (!IsRounded(i) || is_read_first) Pack(i, nullptr);
    }
  }
  // Packs the head, which reads these rows; embeddings that are also the head once more, since
  // what their rounding does to the logits counts more than what it does to single rows.
  void PackHead(const kernels::InputRows& inputs) {
    const size_t head = layout_.plan().map.head;
    if (IsRounded(head)) PackFor(head, inputs);
  }
  // Packs what no row has reached; returns how many matrices.
  int64_t PackTheRest() {
    int64_t count = 0;
    for (size_t i : packer_.FileOrder()) {
      if (is_packed_[i]) continue;
      Pack(i, nullptr);
      ++count;
    }
    return count;
  }

  void BeforeLinear(const kernels::PackedLinear& weight,
                    const kernels::InputRows& inputs) override {
    const size_t parameter = ParameterAt(static_cast<const std::byte*>(weight.data));
    if (!is_packed_[parameter]) PackFor(parameter, inputs);
  }

  CpuDecoderWeights View() const {
    return ViewWeights(layout_, *cpu_.isa,
                       {.data = storage_->data(), .size = layout_.bytes(), .owner = storage_});
  }
  std::span<const std::byte> bytes() const { return {storage_->data(), layout_.bytes()}; }

 private:
  const std::vector<Parameter>& parameters() const { return layout_.plan().map.parameters; }

  bool IsRounded(size_t parameter) const {
    return parameters()[parameter].form == ParameterForm::kPacked &&
           ErrorFeedback::Rounds(layout_.plan().formats[parameter]);
  }

  // The parameter that begins there.
  size_t ParameterAt(const std::byte* data) const {
    const auto offset = static_cast<size_t>(data - storage_->data());
    const auto indices = std::views::iota(size_t{0}, parameters().size());
    return *std::ranges::partition_point(indices,
                                         [&](size_t i) { return layout_.Offset(i) < offset; });
  }

  void PackFor(size_t parameter, const kernels::InputRows& inputs) {
    const ErrorFeedback feedback(cpu_, inputs, parameters()[parameter].columns);
    Pack(parameter, &feedback);
  }

  void Pack(size_t parameter, const ErrorFeedback* feedback) {
    packer_.Fill({parameter, 0, parameters()[parameter].rows},
                 layout_.Data(parameter, storage_->data()), feedback);
    is_packed_[parameter] = true;
  }

  const WeightLayout& layout_;
  const kernels::Cpu cpu_;
  const std::shared_ptr<TensorStorage> storage_;
  WeightPacker packer_;
  std::vector<bool> is_packed_;
};

// Runs the text through the decoder, which has its weights packed on the way. Returns the number of
// matrices that no row has reached.
int64_t PackForText(const ModelConfig& config, const CalibrationText& text,
                    std::unique_ptr<ThreadPool> pool, WeightsInProgress* weights) {
  weights->PackOthers();
  CpuDecoderWeights view = weights->View();
  const kernels::KvFormat kv_format = kernels::KvFormatOf(view.dtype);
  Transformer model(config, std::move(view), kv_format, kernels::SelectCpuKernels(),
                    std::move(pool));
  model.set_observer(weights);
  const TextBatch batch(text);
  const auto num_rows = std::ssize(text.token_ids);
  model.Allocate(batch.num_pages, num_rows, 1);
  const std::unique_ptr<StateMemory> states = model.MakeStateMemory(num_rows, config.hidden_size);
  const int32_t streams[] = {static_cast<int32_t>(config.layers.size()) + 1};
  model.Forward({.token_ids = text.token_ids,
                 .sequences = batch.slices,
                 .logits_rows = {},
                 .hidden = {batch.rows, streams, states.get(), batch.rows}});
  weights->PackHead({.x = states->data(), .ldx = config.hidden_size, .m = num_rows});
  return weights->PackTheRest();
}

}  // namespace

PackedFile PackCalibratedModel(const ModelSource& source, std::span<const int32_t> token_ids) {
  if (!source.quantization.quantizes()) {
    throw InvalidConfig("quantization",
                        "\"quantization\" must be \"q4\", \"q6\", \"q8\" or a number of bits "
                        "(\"q4.8\") for \"calibrate\", which decides how weights are rounded");
  }
  const std::unique_ptr<ThreadPool> pool = MakeThreadPool(source);
  const kernels::CpuKernels& isa = kernels::SelectCpuKernels();
  const WeightLoadOptions options = LoadOptionsOf(source, {&isa, pool.get()});
  const ModelConfig config = ReadModelConfig(source.path, source.longest_sequence);
  const CalibrationText text = ChooseText(token_ids, config);
  const Checkpoint checkpoint(source.path);
  const WeightPlan plan = PlanWeights(config, checkpoint, options.weights);
  CheckPlan(plan);
  const PanelForm form(isa);
  const WeightLayout layout(plan, form);
  const WeightCache cache(options.cache, WeightCacheKey(checkpoint, config.quantization, layout),
                          MakeCalibrationLine(text.token_ids, text.length), layout.bytes(), *pool);
  PackedFile file{.path = cache.path(),
                  .bytes = layout.bytes(),
                  .description = plan.description,
                  .num_calibration_tokens = std::ssize(text.token_ids)};
  file.was_there = cache.IsThere(options.progress);
  if (file.was_there) return file;
  WeightsInProgress weights(layout, options);
  file.num_not_reached = PackForText(config, text, MakeThreadPool(source), &weights);
  cache.Write([&](const WeightCache::PutFn& put) { put(0, weights.bytes()); });
  return file;
}

}  // namespace mlc_native
