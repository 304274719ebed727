#include "torch_ops/sampling.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "support/error.h"
#include "torch_ops/arguments.h"

namespace mlc_native::ops {
namespace {

// Lists of (token id, value), those of row i in [starts[i], starts[i + 1]).
struct TokenLists {
  std::vector<int64_t> starts;
  std::vector<int32_t> ids;
  std::vector<double> values;
};

struct TokenListArguments {
  const char* names[3];
  const OptionalTensor& starts;
  const OptionalTensor& ids;
  const OptionalTensor& values;
};

TokenLists ReadLists(const TokenListArguments& a, int64_t m, int64_t vocab) {
  TORCH_CHECK_VALUE(
      a.starts.has_value() == a.ids.has_value() && a.ids.has_value() == a.values.has_value(),
      a.names[0], ", ", a.names[1], " and ", a.names[2], " must be given together or not at all");
  TokenLists lists{.starts = PerRow<int64_t>(a.names[0], a.starts, m + 1, 0),
                   .ids = PerRow<int32_t>(a.names[1], a.ids, a.ids ? kAny : 0, 0),
                   .values = {}};
  const auto size = static_cast<int64_t>(lists.ids.size());
  lists.values = PerRow<double>(a.names[2], a.values, size, 0);
  for (int64_t i = 0; i < m; ++i) {
    const int64_t begin = lists.starts[i], end = lists.starts[i + 1];
    TORCH_CHECK_VALUE(0 <= begin && begin <= end && end <= size, a.names[0],
                      " must ascend within [0, ", size, "], got ", begin, " and ", end);
  }
  for (int32_t id : lists.ids) {
    TORCH_CHECK_VALUE(id >= 0 && id < vocab, a.names[1], " must be in [0, ", vocab, "), got ", id);
  }
  return lists;
}

struct Arguments {
  const at::Tensor& logits;
  const at::Tensor& positions;
  const at::Tensor& seeds;
  const OptionalTensor& sequences;
  const OptionalTensor& temperature;
  const OptionalTensor& top_k;
  const OptionalTensor& top_p;
  const OptionalTensor& min_p;
  const OptionalTensor& presence_penalty;
  const OptionalTensor& frequency_penalty;
  const OptionalTensor& repetition_penalty;
  TokenListArguments counts;
  TokenListArguments biases;
  const OptionalTensor& mask;
  int64_t num_top_logprobs;
};

void CheckShapes(const Arguments& a) {
  Check("logits", a.logits, a.logits, {at::kFloat}, {kAny, kAny});
  const int64_t m = a.logits.size(0), vocab = a.logits.size(1);
  TORCH_CHECK_VALUE(a.logits.is_contiguous() && vocab > 0,
                    "logits must be contiguous and not without columns, got shape ",
                    a.logits.sizes(), " and strides ", a.logits.strides());
  if (a.mask) Check("mask", *a.mask, a.logits, {at::kInt}, {m, (vocab + 31) / 32});
  TORCH_CHECK_VALUE(a.num_top_logprobs >= -1 && a.num_top_logprobs <= 20,
                    "num_top_logprobs must be in [-1, 20], got ", a.num_top_logprobs);
}

std::vector<SampleRow> ReadRows(const Arguments& a) {
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
      TORCH_CHECK_VALUE(false, error.what(), " (row ", i, ")");
    }
  }
  return rows;
}

Sampled NewSampled(const Arguments& a) {
  const int64_t m = a.logits.size(0);
  const auto n = std::max<int64_t>(a.num_top_logprobs, 0);
  const auto ints = a.logits.options().dtype(at::kInt);
  return {.tokens = at::empty({m}, ints),
          .logprobs = at::empty({a.num_top_logprobs >= 0 ? m : 0}, a.logits.options()),
          .top_ids = at::empty({m, n}, ints),
          .top_logprobs = at::empty({m, n}, a.logits.options())};
}

}  // namespace

void RegisterSample(torch::Library& library, SampleFunction function) {
  library.impl(
      "sample",
      [function](const at::Tensor& logits, const at::Tensor& positions, const at::Tensor& seeds,
                 const OptionalTensor& sequences, const OptionalTensor& temperature,
                 const OptionalTensor& top_k, const OptionalTensor& top_p,
                 const OptionalTensor& min_p, const OptionalTensor& presence_penalty,
                 const OptionalTensor& frequency_penalty, const OptionalTensor& repetition_penalty,
                 const OptionalTensor& count_starts, const OptionalTensor& count_ids,
                 const OptionalTensor& counts, const OptionalTensor& bias_starts,
                 const OptionalTensor& bias_ids, const OptionalTensor& biases,
                 const OptionalTensor& mask, int64_t num_top_logprobs) {
        const Arguments arguments{
            logits,
            positions,
            seeds,
            sequences,
            temperature,
            top_k,
            top_p,
            min_p,
            presence_penalty,
            frequency_penalty,
            repetition_penalty,
            {{"count_starts", "count_ids", "counts"}, count_starts, count_ids, counts},
            {{"bias_starts", "bias_ids", "biases"}, bias_starts, bias_ids, biases},
            mask,
            num_top_logprobs};
        CheckShapes(arguments);
        Sampled sampled = NewSampled(arguments);
        if (function != nullptr && logits.size(0) > 0) {
          function({.logits = logits, .mask = mask, .rows = ReadRows(arguments)}, &sampled);
        }
        return std::make_tuple(sampled.tokens, sampled.logprobs, sampled.top_ids,
                               sampled.top_logprobs);
      });
}

}  // namespace mlc_native::ops
