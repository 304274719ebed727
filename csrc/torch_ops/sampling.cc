#include "torch_ops/sampling.h"

#include "support/error.h"
#include "support/token_mask.h"
#include "torch_ops/arguments.h"

namespace mlc_native::ops {
namespace {

// Lists of (token id, value). Those of row i are in [starts[i], starts[i + 1]).
struct TokenLists {
  std::vector<int64_t> starts;
  std::vector<int32_t> ids;
  std::vector<double> values;
};

TokenLists ReadLists(const TokenListArguments& a, int64_t m, int64_t vocab) {
  CheckValue(a.starts.has_value() == a.ids.has_value() && a.ids.has_value() == a.values.has_value(),
             a.names[0], ", ", a.names[1], " and ", a.names[2],
             " must be given together or not at all");
  TokenLists lists{.starts = PerRow<int64_t>(a.names[0], a.starts, m + 1, 0),
                   .ids = PerRow<int32_t>(a.names[1], a.ids, a.ids ? kAny : 0, 0),
                   .values = {}};
  const auto size = static_cast<int64_t>(lists.ids.size());
  lists.values = PerRow<double>(a.names[2], a.values, size, 0);
  for (int64_t i = 0; i < m; ++i) {
    const int64_t begin = lists.starts[i], end = lists.starts[i + 1];
    CheckValue(0 <= begin && begin <= end && end <= size, a.names[0], " must ascend within [0, ",
               size, "], got ", begin, " and ", end);
  }
  for (int32_t id : lists.ids) {
    CheckValue(id >= 0 && id < vocab, a.names[1], " must be in [0, ", vocab, "), got ", id);
  }
  return lists;
}

void CheckShapes(const SampleArguments& a) {
  Check("logits", a.logits, a.logits, {ScalarType::Float}, {kAny, kAny});
  const int64_t m = a.logits.size(0), vocab = a.logits.size(1);
  CheckValue(a.logits.is_contiguous() && vocab > 0,
             "logits must be contiguous and not without columns, got shape ", a.logits.sizes(),
             " and strides ", a.logits.strides());
  if (a.mask) Check("mask", *a.mask, a.logits, {ScalarType::Int}, {m, TokenMaskWords(vocab)});
  CheckValue(a.num_top_logprobs >= -1 && a.num_top_logprobs <= 20,
             "num_top_logprobs must be in [-1, 20], got ", a.num_top_logprobs);
}

std::vector<SampleRow> ReadRows(const SampleArguments& a) {
  const int64_t m = a.logits.size(0), vocab = a.logits.size(1);
  const auto positions = PerRow<int64_t>("positions", a.positions, m, 0);
  const auto seeds = PerRow<int64_t>("seeds", a.seeds, m, 0);
  const auto sequences = PerRow<int64_t>("sequences", a.sequences, m, 0);
  const auto temperature = PerRow<double>("temperature", a.temperature, m, 1);
  const auto top_k = PerRow<int32_t>("top_k", a.top_k, m, 0);
  const auto top_p = PerRow<double>("top_p", a.top_p, m, 1);
  const auto min_p = PerRow<double>("min_p", a.min_p, m, 0);
  const auto presence = PerRow<double>("presence_penalty", a.presence_penalty, m, 0);
  const auto frequency = PerRow<double>("frequency_penalty", a.frequency_penalty, m, 0);
  const auto repetition = PerRow<double>("repetition_penalty", a.repetition_penalty, m, 1);
  const TokenLists counts = ReadLists(a.counts, m, vocab);
  const TokenLists biases = ReadLists(a.biases, m, vocab);
  std::vector<SampleRow> rows(static_cast<size_t>(m));
  for (int64_t i = 0; i < m; ++i) {
    SampleRow& row = rows[i];
    row.sequence = static_cast<uint64_t>(sequences[i]);
    row.position = static_cast<uint64_t>(positions[i]);
    GenerationConfig& config = row.config;
    config.temperature = temperature[i];
    config.top_k = top_k[i];
    config.top_p = top_p[i];
    config.min_p = min_p[i];
    config.presence_penalty = presence[i];
    config.frequency_penalty = frequency[i];
    config.repetition_penalty = repetition[i];
    config.seed = seeds[i];
    config.logprobs = a.num_top_logprobs >= 0;
    config.top_logprobs = static_cast<int32_t>(std::max<int64_t>(a.num_top_logprobs, 0));
    for (int64_t j = biases.starts[i]; j < biases.starts[i + 1]; ++j) {
      config.logit_bias.emplace_back(biases.ids[j], biases.values[j]);
    }
    for (int64_t j = counts.starts[i]; j < counts.starts[i + 1]; ++j) {
      for (double n = 0; n < counts.values[j]; ++n) row.generated.Add(counts.ids[j]);
    }
    try {
      config.Validate(vocab);
    } catch (const InvalidRequest& error) {
      CheckValue(false, std::string_view(error.what()), " (row ", i, ")");
    }
  }
  return rows;
}

Sampled NewSampled(const SampleArguments& a) {
  const int64_t m = a.logits.size(0);
  const auto n = std::max<int64_t>(a.num_top_logprobs, 0);
  return {.tokens = Empty({m}, a.logits, ScalarType::Int),
          .logprobs = Empty({a.num_top_logprobs >= 0 ? m : 0}, a.logits, ScalarType::Float),
          .top_ids = Empty({m, n}, a.logits, ScalarType::Int),
          .top_logprobs = Empty({m, n}, a.logits, ScalarType::Float)};
}

}  // namespace

Sampled RunSample(const SampleArguments& arguments, SampleFunction function) {
  CheckShapes(arguments);
  Sampled sampled = NewSampled(arguments);
  if (function != nullptr && arguments.logits.size(0) > 0) {
    function({.logits = arguments.logits, .mask = arguments.mask, .rows = ReadRows(arguments)},
             &sampled);
  }
  return sampled;
}

}  // namespace mlc_native::ops
