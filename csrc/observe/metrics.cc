#include "observe/metrics.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "support/check.h"
#include "support/json.h"
#include "support/message.h"

namespace mlc_native {
namespace {

double SecondsBetween(TimePoint from, TimePoint to) {
  if (from == TimePoint{} || to <= from) return 0;
  return std::chrono::duration<double>(to - from).count();
}

double Rate(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

std::vector<double> TtftBounds() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
          0.75,  1,     2.5,  5,    7.5,  10,   20,   40,  80};
}

std::vector<double> InterTokenBounds() {
  return {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,
          0.15,   0.2,   0.3,    0.4,   0.5,  0.75,  1,    2.5};
}

std::vector<double> StepTokenBounds() {
  return {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
}

std::string BoundName(double bound) {
  std::string name;
  AppendTo(&name, bound);
  return name;
}

// {"buckets": {upper bound: values at most that}, "count", "sum"}; buckets are cumulative.
void AddHistogram(const char* name, const Histogram& histogram, JsonWriter* json) {
  json->Name(name).BeginObject().Name("buckets").BeginObject();
  int64_t cumulative = 0;
  for (size_t i = 0; i < histogram.upper_bounds().size(); ++i) {
    cumulative += histogram.bucket_counts()[i];
    json->Add(BoundName(histogram.upper_bounds()[i]), cumulative);
  }
  json->Add("+Inf", histogram.count()).EndObject();
  json->Add("count", histogram.count()).Add("sum", histogram.sum()).EndObject();
}

void AddDrafts(const RequestUsage& usage, JsonWriter* json) {
  if (usage.num_drafts == 0) return;
  json->Add("num_drafts", usage.num_drafts)
      .Add("draft_tokens", usage.draft_tokens)
      .Add("accepted_draft_tokens", usage.accepted_draft_tokens);
  json->Name("acceptance_histogram").BeginArray();
  for (int64_t count : usage.acceptance_histogram) json->Put(count);
  json->EndArray();
}

void WriteExtra(const RequestUsage& usage, JsonWriter* json) {
  json->BeginObject()
      .Add("prompt_tokens", usage.prompt_tokens)
      .Add("completion_tokens", usage.completion_tokens)
      .Add("prefill_tokens", usage.prefill_tokens)
      .Add("decode_tokens", usage.decode_tokens)
      .Add("jump_forward_tokens", usage.jump_forward_tokens)
      .Add("cached_tokens", usage.cached_tokens)
      .Add("pinned_tokens", usage.pinned_tokens)
      .Add("num_preemptions", usage.num_preemptions);
  AddDrafts(usage, json);
  if (usage.prefill_tokens != 0) json->Add("prefill_tokens_per_s", usage.prefill_tokens_per_s);
  if (usage.decode_tokens != 0) json->Add("decode_tokens_per_s", usage.decode_tokens_per_s);
  json->Add("end_to_end_latency_s", usage.end_to_end_latency_s)
      .Add("queue_time_s", usage.queue_time_s)
      .Add("ttft_s", usage.ttft_s)
      .Add("inter_token_latency_s", usage.inter_token_latency_s)
      .EndObject();
}

template <size_t N>
void AddTimeByBatchSize(const char* name, const std::array<TimeCost, N>& costs, JsonWriter* json) {
  json->Name(name).BeginObject();
  for (size_t i = 0; i < N; ++i) {
    if (costs[i].count() == 0) continue;
    const std::string label = "{batch_size=" + std::to_string(i) + '}';
    json->Add("mean" + label, costs[i].mean()).Add("count" + label, costs[i].count());
  }
  json->EndObject();
}

// As MLC-LLM has it, if anything was drafted; `num_failures` and `num_steps_ahead` are ours.
void AddSpecDecode(const SpecDecodeMetrics& metrics, JsonWriter* json) {
  if (metrics.draft_count.empty() && metrics.num_failures == 0) return;
  json->Name("spec_decode").BeginObject();
  const auto add_counts = [&](const char* name, const std::vector<int64_t>& counts) {
    json->Name(name).BeginArray();
    for (int64_t count : counts) json->Put(count);
    json->EndArray();
  };
  add_counts("draft_count", metrics.draft_count);
  add_counts("accept_count", metrics.accept_count);
  const auto add_ratios = [&](const std::string& name, size_t first, const auto& ratio) {
    json->Name(name).BeginObject();
    for (size_t i = first; i < metrics.draft_count.size(); ++i) {
      json->Add(name + "{step=" + std::to_string(i) + '}', ratio(i));
    }
    json->EndObject();
  };
  const auto share = [](int64_t count, int64_t total) {
    return total == 0 ? 0.0 : static_cast<double>(count) / static_cast<double>(total);
  };
  const auto& [drafts, accepts, num_failures, num_steps_ahead] = metrics;
  add_ratios("accept_prob", 0, [&](size_t i) { return share(accepts[i], drafts[i]); });
  add_ratios("accept_rate", 1, [&](size_t i) { return share(accepts[i], accepts[i - 1]); });
  double length = 0;
  add_ratios("accept_len", 0, [&](size_t i) { return length += share(accepts[i], drafts[i]); });
  json->Add("num_drafts", metrics.num_drafts())
      .Add("num_draft_tokens", metrics.num_draft_tokens())
      .Add("num_accepted_tokens", metrics.num_accepted_tokens())
      .Add("num_failures", num_failures)
      .Add("num_steps_ahead", num_steps_ahead)
      .EndObject();
}

void AddTimesAndTokens(const EngineMetrics& metrics, JsonWriter* json) {
  json->Add("engine_prefill_time_sum", metrics.engine_prefill_time_sum)
      .Add("engine_decode_time_sum", metrics.engine_decode_time_sum)
      .Add("engine_jump_forward_time_sum", metrics.engine_jump_forward_time_sum)
      .Add("grammar_mask_time_sum", metrics.grammar_mask_time_sum)
      .Add("prompt_tokens_sum", metrics.prompt_tokens_sum)
      .Add("completion_tokens_sum", metrics.completion_tokens_sum)
      .Add("prefill_tokens_sum", metrics.prefill_tokens_sum)
      .Add("decode_tokens_sum", metrics.decode_tokens_sum)
      .Add("jump_forward_tokens_sum", metrics.jump_forward_tokens_sum)
      .Add("cached_tokens_sum", metrics.cached_tokens_sum)
      .Add("prefill_tokens_per_s",
           Rate(metrics.prefill_tokens_sum, metrics.engine_prefill_time_sum))
      .Add("decode_tokens_per_s", Rate(metrics.decode_tokens_sum, metrics.engine_decode_time_sum));
  json->Name("last_finished_request");
  WriteExtra(metrics.last_finished_request.Usage(), json);
  AddSpecDecode(metrics.spec_decode, json);
  AddTimeByBatchSize("decode_time_by_batch_size", metrics.decode_time_by_batch_size, json);
}

void AddCountsAndGauges(const EngineMetrics& metrics, const EngineGauges& gauges,
                        JsonWriter* json) {
  json->Add("num_waiting_requests", gauges.num_waiting)
      .Add("num_running_requests", gauges.num_running)
      .Add("queue_length", gauges.queue_length)
      .Add("kv_pages_total", gauges.kv_pages_total)
      .Add("kv_pages_used", gauges.kv_pages_used)
      .Add("kv_pages_free", gauges.kv_pages_free)
      .Add("kv_pages_cached", gauges.kv_pages_cached)
      .Add("kv_pages_pinned", gauges.kv_pages_pinned)
      .Add("prefix_cache_lookups", metrics.prefix_cache_lookups)
      .Add("prefix_cache_hits", metrics.prefix_cache_hits)
      .Add("prefix_cache_tokens_saved", metrics.prefix_cache_tokens_saved)
      .Add("prefix_cache_evicted_pages", gauges.prefix_cache_evicted_pages)
      .Add("num_preemptions", metrics.num_preemptions)
      .Add("num_aborts", metrics.num_aborts)
      .Add("num_errors", metrics.num_errors)
      .Add("num_timeouts", metrics.num_timeouts)
      .Add("num_queue_full", gauges.num_queue_full)
      .Add("num_steps", metrics.num_steps)
      .Add("num_constrained_requests", metrics.num_constrained_requests)
      .Add("grammars_cached", gauges.grammars_cached)
      .Add("grammar_cache_bytes", gauges.grammar_cache_bytes);
}

void WriteEngine(const EngineMetrics& metrics, const EngineGauges& gauges, JsonWriter* json) {
  json->BeginObject();
  AddTimesAndTokens(metrics, json);
  AddCountsAndGauges(metrics, gauges, json);
  json->Name("finished_requests").BeginObject();
  for (const auto& [reason, count] : metrics.finished_requests) json->Add(reason, count);
  json->EndObject();
  AddHistogram("ttft_s", metrics.ttft_s, json);
  AddHistogram("inter_token_latency_s", metrics.inter_token_latency_s, json);
  AddHistogram("step_tokens", metrics.step_tokens, json);
  json->EndObject();
}

}  // namespace

Histogram::Histogram(std::vector<double> upper_bounds)
    : upper_bounds_(std::move(upper_bounds)), counts_(upper_bounds_.size() + 1) {
  MLC_CHECK(std::is_sorted(upper_bounds_.begin(), upper_bounds_.end())) << "bounds must ascend";
}

void Histogram::Observe(double value) {
  const auto bucket = std::lower_bound(upper_bounds_.begin(), upper_bounds_.end(), value);
  ++counts_[static_cast<size_t>(bucket - upper_bounds_.begin())];
  ++count_;
  sum_ += value;
}

double RequestMetrics::queue_time_s() const {
  return SecondsBetween(add_time_point, start_time_point);
}

double RequestMetrics::ttft_s() const {
  return SecondsBetween(add_time_point, prefill_end_time_point);
}

double RequestMetrics::end_to_end_latency_s() const {
  return SecondsBetween(add_time_point, finish_time_point);
}

double RequestMetrics::inter_token_latency_s() const {
  if (decode_tokens <= 0 || num_answers <= 0) return 0;
  // Sequences decode side by side.
  const double decode_steps = static_cast<double>(decode_tokens) / static_cast<double>(num_answers);
  return SecondsBetween(prefill_end_time_point, finish_time_point) / decode_steps;
}

void SpecDecodeMetrics::Drafted(int64_t num_tokens) {
  const auto num_places = static_cast<size_t>(num_tokens) + 1;
  if (draft_count.size() < num_places) {
    accept_count.resize(num_places);
    draft_count.resize(num_places);
  }
  for (size_t i = 0; i < num_places; ++i) ++draft_count[i];
}

int64_t SpecDecodeMetrics::num_draft_tokens() const {
  return std::accumulate(draft_count.begin(), draft_count.end(), int64_t{0}) - num_drafts();
}

int64_t SpecDecodeMetrics::num_accepted_tokens() const {
  const int64_t num_verified = accept_count.empty() ? 0 : accept_count[0];
  return std::accumulate(accept_count.begin(), accept_count.end(), int64_t{0}) - num_verified;
}

// Up to the longest that was accepted.
std::vector<int64_t> RequestMetrics::AcceptanceHistogram() const {
  std::vector<int64_t> counts(acceptance_histogram.begin(), acceptance_histogram.end());
  while (!counts.empty() && counts.back() == 0) counts.pop_back();
  return counts;
}

RequestUsage RequestMetrics::Usage() const {
  std::optional<int64_t> accepted_of_prediction;
  std::optional<int64_t> rejected_of_prediction;
  if (prediction_len >= 0) {
    const int64_t num_left = std::max<int64_t>(prediction_len - accepted_prediction_tokens, 0);
    accepted_of_prediction = accepted_prediction_tokens;
    rejected_of_prediction = std::min(prediction_tokens - accepted_prediction_tokens, num_left);
  }
  const double decode_seconds = SecondsBetween(prefill_end_time_point, finish_time_point);
  return {.prompt_tokens = prompt_tokens,
          .completion_tokens = completion_tokens,
          .prefill_tokens = prefill_tokens,
          .decode_tokens = decode_tokens,
          .jump_forward_tokens = jump_forward_tokens,
          .cached_tokens = cached_tokens,
          .pinned_tokens = pinned_tokens,
          .num_preemptions = num_preemptions,
          .num_drafts = num_drafts,
          .draft_tokens = draft_tokens,
          .accepted_draft_tokens = accepted_draft_tokens,
          .acceptance_histogram = AcceptanceHistogram(),
          .accepted_prediction_tokens = accepted_of_prediction,
          .rejected_prediction_tokens = rejected_of_prediction,
          .prefill_tokens_per_s = Rate(prefill_tokens, ttft_s()),
          .decode_tokens_per_s = Rate(decode_tokens, decode_seconds),
          .end_to_end_latency_s = end_to_end_latency_s(),
          .queue_time_s = queue_time_s(),
          .ttft_s = ttft_s(),
          .inter_token_latency_s = inter_token_latency_s(),
          .engine_metrics_json = {}};
}

std::string UsageJSONString(const RequestUsage& usage) {
  JsonWriter json;
  json.BeginObject()
      .Add("prompt_tokens", usage.prompt_tokens)
      .Add("completion_tokens", usage.completion_tokens)
      .Add("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  if (usage.accepted_prediction_tokens) {
    json.Name("completion_tokens_details")
        .BeginObject()
        .Add("accepted_prediction_tokens", *usage.accepted_prediction_tokens)
        .Add("rejected_prediction_tokens", usage.rejected_prediction_tokens.value_or(0))
        .EndObject();
  }
  json.Name("extra");
  if (usage.engine_metrics_json.empty()) {
    WriteExtra(usage, &json);
  } else {
    json.Raw(usage.engine_metrics_json);
  }
  return json.EndObject().Take();
}

EngineMetrics::EngineMetrics()
    : ttft_s(TtftBounds()),
      inter_token_latency_s(InterTokenBounds()),
      step_tokens(StepTokenBounds()) {}

void EngineMetrics::RequestFinished(const RequestMetrics& request,
                                    const std::string& finish_reason) {
  prompt_tokens_sum += request.prompt_tokens;
  completion_tokens_sum += request.completion_tokens;
  prefill_tokens_sum += request.prefill_tokens;
  decode_tokens_sum += request.decode_tokens;
  jump_forward_tokens_sum += request.jump_forward_tokens;
  cached_tokens_sum += request.cached_tokens;
  last_finished_request = request;
  ++finished_requests[finish_reason];
  num_aborts += finish_reason == "abort";
  num_errors += finish_reason == "error";
  num_timeouts += finish_reason == "timeout";
}

std::string EngineMetrics::AsJSONString(const EngineGauges& gauges) const {
  JsonWriter json;
  WriteEngine(*this, gauges, &json);
  return json.Take();
}

}  // namespace mlc_native
