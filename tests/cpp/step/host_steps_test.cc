// The queue of a model that computes on the host.
#include "step/host_steps.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "support/check.h"

namespace mlc_native {
namespace {

// Answers row r with the token r.
class RowModel : public Model {
 public:
  const ModelMetadata& metadata() const override { return metadata_; }
  void Allocate(int64_t, int64_t, int64_t) override {}
  LogitsView Forward(const ForwardBatch& batch) override {
    asked_for_.assign(batch.logits_rows.begin(), batch.logits_rows.end());
    logits_.assign(asked_for_.size() * kVocabSize, 0.0f);
    for (size_t i = 0; i < asked_for_.size(); ++i) {
      const bool is_bad = asked_for_[i] == bad_row_;
      logits_[i * kVocabSize + asked_for_[i]] =
          is_bad ? std::numeric_limits<float>::quiet_NaN() : 9.0f;
    }
    return {logits_.data(), std::ssize(asked_for_), kVocabSize};
  }
  void CopyPages(std::span<const PageCopy>) override {}

  static constexpr int64_t kVocabSize = 8;
  int32_t bad_row_ = -1;
  std::vector<int32_t> asked_for_;

 private:
  ModelMetadata metadata_;
  std::vector<float> logits_;
};

std::vector<DrawnToken> RunStep(RowModel& model, const std::vector<int32_t>& logits_rows,
                                const std::vector<GenerationConfig>& configs) {
  HostSteps steps(&model);
  steps.Forward({.token_ids = {}, .sequences = {}, .logits_rows = logits_rows});
  std::vector<TokenRow> rows(configs.size());
  for (size_t i = 0; i < configs.size(); ++i) rows[i].config = &configs[i];
  steps.Sample(rows);
  std::vector<DrawnToken> drawn;
  steps.Collect(&drawn);
  EXPECT_THROW(steps.Collect(&drawn), InternalError);
  return drawn;
}

// With a bias that sampling writes into the row.
GenerationConfig Biased(int32_t token_id) {
  GenerationConfig config;
  config.temperature = 0;
  config.logit_bias = {{token_id, 50}};
  return config;
}

TEST(HostSteps, TheModelIsAskedOnceForARowThatIsNamedTwice) {
  RowModel model;
  GenerationConfig plain = Biased(0);
  plain.logit_bias.clear();
  const auto drawn =
      RunStep(model, {1, 3, 3, 3, 5, 5}, {plain, Biased(6), plain, Biased(7), plain, Biased(2)});
  EXPECT_EQ(model.asked_for_, (std::vector<int32_t>{1, 3, 5}));
  std::vector<int32_t> tokens;
  for (const DrawnToken& token : drawn) tokens.push_back(token.result.token.token_id);
  EXPECT_EQ(tokens, (std::vector<int32_t>{1, 6, 3, 7, 5, 2}));
}

TEST(HostSteps, ARowThatCannotBeSampledFromSaysSo) {
  RowModel model;
  model.bad_row_ = 2;
  const auto drawn = RunStep(model, {1, 2, 3}, {Biased(1), Biased(1), Biased(1)});
  EXPECT_EQ(drawn[0].error, "");
  EXPECT_NE(drawn[1].error.find("NaN"), std::string::npos) << drawn[1].error;
  EXPECT_EQ(drawn[2].error, "");
}

}  // namespace
}  // namespace mlc_native
