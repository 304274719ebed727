#include "observe/metrics.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace mlc_native {
namespace {

using nlohmann::json;

TimePoint At(double seconds) {
  return TimePoint{} +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(1000 + seconds));
}

// Two sequences: 10 prompt tokens; the first tokens at 0.5 s, then 4 decode steps until 2.5 s.
RequestMetrics TwoSequences() {
  RequestMetrics request;
  request.prompt_tokens = 10;
  request.prefill_tokens = 10;
  request.completion_tokens = 10;
  request.decode_tokens = 8;
  request.num_answers = 2;
  request.add_time_point = At(0);
  request.start_time_point = At(0.25);
  request.prefill_end_time_point = At(0.5);
  request.last_token_time_point = At(2.5);
  request.finish_time_point = At(2.5);
  return request;
}

TEST(RequestMetrics, Times) {
  const RequestMetrics request = TwoSequences();
  EXPECT_NEAR(request.queue_time_s(), 0.25, 1e-9);
  EXPECT_NEAR(request.ttft_s(), 0.5, 1e-9);
  EXPECT_NEAR(request.end_to_end_latency_s(), 2.5, 1e-9);
  EXPECT_NEAR(request.inter_token_latency_s(), 0.5, 1e-9);
}

TEST(RequestMetrics, TimesNotReachedAreZero) {
  RequestMetrics request;
  request.add_time_point = At(0);
  request.finish_time_point = At(1);
  EXPECT_EQ(request.queue_time_s(), 0);
  EXPECT_EQ(request.ttft_s(), 0);
  EXPECT_EQ(request.inter_token_latency_s(), 0);
  EXPECT_NEAR(request.end_to_end_latency_s(), 1, 1e-9);
  EXPECT_EQ(RequestMetrics().end_to_end_latency_s(), 0);
}

TEST(RequestMetrics, Usage) {
  const json usage = json::parse(UsageJSONString(TwoSequences().Usage()));
  EXPECT_EQ(usage["prompt_tokens"], 10);
  EXPECT_EQ(usage["completion_tokens"], 10);
  EXPECT_EQ(usage["total_tokens"], 20);
  const json& extra = usage["extra"];
  EXPECT_NEAR(extra["prefill_tokens_per_s"].get<double>(), 20, 1e-6);
  EXPECT_NEAR(extra["decode_tokens_per_s"].get<double>(), 4, 1e-6);
  EXPECT_EQ(extra["jump_forward_tokens"], 0);
  EXPECT_EQ(extra["cached_tokens"], 0);
  EXPECT_NEAR(extra["ttft_s"].get<double>(), 0.5, 1e-9);
  EXPECT_FALSE(json::parse(UsageJSONString(RequestMetrics().Usage()))["extra"].contains(
      "decode_tokens_per_s"));
}

TEST(Histogram, CountsByUpperBound) {
  Histogram histogram({1, 2});
  for (double value : {0.5, 1.0, 1.5, 3.0}) histogram.Observe(value);
  EXPECT_EQ(histogram.bucket_counts(), (std::vector<int64_t>{2, 1, 1}));
  EXPECT_EQ(histogram.count(), 4);
  EXPECT_DOUBLE_EQ(histogram.sum(), 6);
}

TEST(EngineMetrics, SumsFinishedRequests) {
  EngineMetrics metrics;
  metrics.RequestFinished(TwoSequences(), "stop");
  metrics.RequestFinished(TwoSequences(), "abort");
  metrics.RequestFinished(TwoSequences(), "error");
  EXPECT_EQ(metrics.prompt_tokens_sum, 30);
  EXPECT_EQ(metrics.decode_tokens_sum, 24);
  EXPECT_EQ(metrics.num_aborts, 1);
  EXPECT_EQ(metrics.num_errors, 1);
  EXPECT_EQ(metrics.finished_requests.at("stop"), 1);
}

TEST(EngineMetrics, Json) {
  EngineMetrics metrics;
  metrics.engine_decode_time_sum = 2;
  metrics.RequestFinished(TwoSequences(), "stop");
  metrics.decode_time_by_batch_size[2].Update(0.25);
  metrics.decode_time_by_batch_size[2].Update(0.75);
  metrics.ttft_s.Observe(0.003);
  metrics.ttft_s.Observe(1000);
  metrics.step_tokens.Observe(32);
  metrics.num_preemptions = 5;
  EngineGauges gauges;
  gauges.num_waiting = 1;
  gauges.kv_pages_total = 9;
  const json parsed = json::parse(metrics.AsJSONString(gauges));
  EXPECT_EQ(parsed["completion_tokens_sum"], 10);
  EXPECT_DOUBLE_EQ(parsed["decode_tokens_per_s"], 4);
  EXPECT_EQ(parsed["prefill_tokens_per_s"], 0);
  EXPECT_EQ(parsed["last_finished_request"]["completion_tokens"], 10);
  EXPECT_EQ(parsed["decode_time_by_batch_size"],
            (json{{"mean{batch_size=2}", 0.5}, {"count{batch_size=2}", 2}}));
  EXPECT_EQ(parsed["num_waiting_requests"], 1);
  EXPECT_EQ(parsed["kv_pages_total"], 9);
  EXPECT_EQ(parsed["num_preemptions"], 5);
  EXPECT_EQ(parsed["finished_requests"]["stop"], 1);
  EXPECT_EQ(parsed["ttft_s"]["buckets"]["0.001"], 0);
  EXPECT_EQ(parsed["ttft_s"]["buckets"]["0.005"], 1);
  EXPECT_EQ(parsed["ttft_s"]["buckets"]["80"], 1);
  EXPECT_EQ(parsed["ttft_s"]["buckets"]["+Inf"], 2);
  EXPECT_EQ(parsed["inter_token_latency_s"]["count"], 0);
  EXPECT_EQ(parsed["step_tokens"]["buckets"]["16"], 0);
  EXPECT_EQ(parsed["step_tokens"]["buckets"]["32"], 1);

  RequestUsage answer;
  answer.engine_metrics_json = metrics.AsJSONString(gauges);
  const json usage = json::parse(UsageJSONString(answer));
  EXPECT_EQ(usage["total_tokens"], 0);
  EXPECT_EQ(usage["extra"], parsed);
}

TEST(EngineMetrics, ResetClearsAll) {
  EngineMetrics metrics;
  metrics.RequestFinished(TwoSequences(), "stop");
  metrics.ttft_s.Observe(1);
  metrics.Reset();
  EXPECT_EQ(metrics.AsJSONString({}), EngineMetrics().AsJSONString({}));
}

}  // namespace
}  // namespace mlc_native
