#include "sim/input_rows.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "fake_model/fake_model.h"

namespace mlc_native::sim {
namespace {

using testing::FakeModel;

constexpr int64_t kNumRows = 40;  // different ones

bool IsRow(int32_t token) { return token >= FakeModel::TokenOfRow(0); }

}  // namespace

bool HasRows(const std::vector<int32_t>& prompt) { return std::ranges::any_of(prompt, IsRow); }

void PutRows(SimRandom& rng, std::vector<int32_t>* prompt) {
  const int64_t length = std::ssize(*prompt);
  for (int64_t i = rng.Range(1, 3); i > 0; --i) {
    const int64_t begin = rng.Range(0, length - 1);
    const int64_t end = rng.Chance(0.1) ? length : begin + rng.LogRange(1, length - begin);
    // An image is given by its first row.
    int64_t row = rng.Range(0, kNumRows - 1);
    for (int64_t at = begin; at < end; ++at, ++row) {
      (*prompt)[static_cast<size_t>(at)] =
          FakeModel::TokenOfRow(static_cast<float>(row % kNumRows));
    }
  }
}

std::vector<int32_t> TokensInFront(std::vector<int32_t> prompt) {
  prompt.erase(std::ranges::find_if(prompt, IsRow), prompt.end());
  return prompt;
}

std::vector<Data> InputsOf(const std::vector<int32_t>& prompt) {
  std::vector<Data> inputs;
  for (auto begin = prompt.begin(); begin != prompt.end();) {
    const auto end = std::find_if(begin, prompt.end(),
                                  [&](int32_t token) { return IsRow(token) != IsRow(*begin); });
    if (!IsRow(*begin)) {
      inputs.emplace_back(TokenData{{begin, end}});
    } else {
      std::vector<float> values;
      for (auto row = begin; row != end; ++row) {
        values.push_back(static_cast<float>(*row - FakeModel::TokenOfRow(0)));
      }
      const int64_t num_rows = std::ssize(values);
      inputs.emplace_back(
          EmbeddingData{.num_rows = num_rows,
                        .values = std::make_shared<const std::vector<float>>(std::move(values))});
    }
    begin = end;
  }
  if (inputs.empty()) inputs.emplace_back(TokenData{});
  return inputs;
}

std::vector<int32_t> PromptOf(const Request& request) {
  std::vector<int32_t> prompt = request.prompt_token_ids;
  for (const PromptRows& rows : request.prompt_rows) {
    for (int64_t i = 0; i < rows.num_rows; ++i) {
      prompt[static_cast<size_t>(rows.begin + i)] =
          FakeModel::TokenOfRow((*rows.values)[static_cast<size_t>(rows.first_value + i)]);
    }
  }
  return prompt;
}

}  // namespace mlc_native::sim
