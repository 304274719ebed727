#include "observe/metrics.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "support/check.h"

namespace mlc_native {
namespace {

using nlohmann::ordered_json;

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

std::string BoundName(double bound) {
  char name[32];
  std::snprintf(name, sizeof(name), "%g", bound);
  return name;
}

// {"buckets": {upper bound: values at most that}, "count", "sum"}; buckets are cumulative.
ordered_json HistogramJson(const Histogram& histogram) {
  ordered_json buckets = ordered_json::object();
  int64_t cumulative = 0;
  for (size_t i = 0; i < histogram.upper_bounds().size(); ++i) {
    cumulative += histogram.bucket_counts()[i];
    buckets[BoundName(histogram.upper_bounds()[i])] = cumulative;
  }
  buckets["+Inf"] = histogram.count();
  return {{"buckets", std::move(buckets)}, {"count", histogram.count()}, {"sum", histogram.sum()}};
}

// Flat JSON objects by hand. The usage of a request is written within a step, where the JSON
// library may not be used: its destructor allocates and ends the process when that fails.
class ObjectWriter {
 public:
  void Add(const char* name, int64_t value) { AddNumber(name, value); }
  void Add(const char* name, double value) {
    AddNumber(name, value);
    const std::string_view digits(text_.data() + number_begin_, text_.size() - number_begin_);
    if (digits.find_first_of(".e") == digits.npos) text_ += ".0";  // stays a float in Python
  }
  void AddObject(const char* name, const std::string& object) {
    AddName(name);
    text_ += object;
  }
  std::string Take() {
    text_ += '}';
    return std::move(text_);
  }

 private:
  void AddName(const char* name) {
    text_ += text_.size() > 1 ? ",\"" : "\"";
    text_ += name;
    text_ += "\":";
  }
  template <typename Number>
  void AddNumber(const char* name, Number value) {
    AddName(name);
    number_begin_ = text_.size();
    char digits[32];
    text_.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
  }

  std::string text_ = "{";
  size_t number_begin_ = 0;
};

std::string RequestJson(const RequestMetrics& request) {
  ObjectWriter object;
  object.Add("prompt_tokens", request.prompt_tokens);
  object.Add("completion_tokens", request.completion_tokens);
  object.Add("prefill_tokens", request.prefill_tokens);
  object.Add("decode_tokens", request.decode_tokens);
  object.Add("jump_forward_tokens", request.jump_forward_tokens);
  object.Add("cached_tokens", request.cached_tokens);
  object.Add("pinned_tokens", request.pinned_tokens);
  if (request.prefill_tokens != 0) {
    object.Add("prefill_tokens_per_s", Rate(request.prefill_tokens, request.ttft_s()));
  }
  if (request.decode_tokens != 0) {
    object.Add("decode_tokens_per_s",
               Rate(request.decode_tokens,
                    SecondsBetween(request.prefill_end_time_point, request.finish_time_point)));
  }
  object.Add("end_to_end_latency_s", request.end_to_end_latency_s());
  object.Add("queue_time_s", request.queue_time_s());
  object.Add("ttft_s", request.ttft_s());
  object.Add("inter_token_latency_s", request.inter_token_latency_s());
  return object.Take();
}

template <size_t N>
ordered_json TimeByBatchSizeJson(const std::array<TimeCost, N>& costs) {
  ordered_json result = ordered_json::object();
  for (size_t i = 0; i < N; ++i) {
    if (costs[i].count() == 0) continue;
    const std::string label = "{batch_size=" + std::to_string(i) + '}';
    result["mean" + label] = costs[i].mean();
    result["count" + label] = costs[i].count();
  }
  return result;
}

ordered_json EngineJson(const EngineMetrics& metrics, const EngineGauges& gauges) {
  ordered_json finished = ordered_json::object();
  for (const auto& [reason, count] : metrics.finished_requests) finished[reason] = count;
  return {
      {"engine_prefill_time_sum", metrics.engine_prefill_time_sum},
      {"engine_decode_time_sum", metrics.engine_decode_time_sum},
      {"engine_jump_forward_time_sum", metrics.engine_jump_forward_time_sum},
      {"grammar_mask_time_sum", metrics.grammar_mask_time_sum},
      {"prompt_tokens_sum", metrics.prompt_tokens_sum},
      {"completion_tokens_sum", metrics.completion_tokens_sum},
      {"prefill_tokens_sum", metrics.prefill_tokens_sum},
      {"decode_tokens_sum", metrics.decode_tokens_sum},
      {"jump_forward_tokens_sum", metrics.jump_forward_tokens_sum},
      {"cached_tokens_sum", metrics.cached_tokens_sum},
      {"prefill_tokens_per_s", Rate(metrics.prefill_tokens_sum, metrics.engine_prefill_time_sum)},
      {"decode_tokens_per_s", Rate(metrics.decode_tokens_sum, metrics.engine_decode_time_sum)},
      {"last_finished_request", ordered_json::parse(RequestJson(metrics.last_finished_request))},
      {"decode_time_by_batch_size", TimeByBatchSizeJson(metrics.decode_time_by_batch_size)},
      {"num_waiting_requests", gauges.num_waiting},
      {"num_running_requests", gauges.num_running},
      {"queue_length", gauges.queue_length},
      {"kv_pages_total", gauges.kv_pages_total},
      {"kv_pages_used", gauges.kv_pages_used},
      {"kv_pages_free", gauges.kv_pages_free},
      {"kv_pages_cached", gauges.kv_pages_cached},
      {"kv_pages_pinned", gauges.kv_pages_pinned},
      {"prefix_cache_lookups", metrics.prefix_cache_lookups},
      {"prefix_cache_hits", metrics.prefix_cache_hits},
      {"prefix_cache_tokens_saved", metrics.prefix_cache_tokens_saved},
      {"prefix_cache_evicted_pages", gauges.prefix_cache_evicted_pages},
      {"num_preemptions", metrics.num_preemptions},
      {"num_aborts", metrics.num_aborts},
      {"num_errors", metrics.num_errors},
      {"num_timeouts", metrics.num_timeouts},
      {"num_queue_full", gauges.num_queue_full},
      {"num_steps", metrics.num_steps},
      {"num_constrained_requests", metrics.num_constrained_requests},
      {"grammars_cached", gauges.grammars_cached},
      {"grammar_cache_bytes", gauges.grammar_cache_bytes},
      {"finished_requests", std::move(finished)},
      {"ttft_s", HistogramJson(metrics.ttft_s)},
      {"inter_token_latency_s", HistogramJson(metrics.inter_token_latency_s)},
  };
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

std::string RequestMetrics::UsageJSONString() const {
  ObjectWriter object;
  object.Add("prompt_tokens", prompt_tokens);
  object.Add("completion_tokens", completion_tokens);
  object.Add("total_tokens", prompt_tokens + completion_tokens);
  object.AddObject("extra", RequestJson(*this));
  return object.Take();
}

EngineMetrics::EngineMetrics() : ttft_s(TtftBounds()), inter_token_latency_s(InterTokenBounds()) {}

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
  return EngineJson(*this, gauges).dump();
}

std::string EngineMetrics::AsUsageJSONString(const EngineGauges& gauges) const {
  return ordered_json{{"prompt_tokens", 0},
                      {"completion_tokens", 0},
                      {"total_tokens", 0},
                      {"extra", EngineJson(*this, gauges)}}
      .dump();
}

}  // namespace mlc_native
