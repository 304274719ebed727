#include "observe/prometheus.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "support/json.h"

namespace mlc_native {
namespace {

constexpr std::string_view kPrefix = "mlc_native_";
constexpr std::string_view kFinishedRequests = "finished_requests";
constexpr std::string_view kFinishedTotal = "finished_requests_total";
// What only grows, besides the sums of the whole.
constexpr std::array<std::string_view, 17> kCounters = {"num_aborts",
                                                        "num_constrained_requests",
                                                        "num_errors",
                                                        "num_preemptions",
                                                        "num_queue_full",
                                                        "num_steps",
                                                        "num_timeouts",
                                                        "prefix_cache_evicted_pages",
                                                        "prefix_cache_hits",
                                                        kFinishedTotal,
                                                        "prefix_cache_lookups",
                                                        "prefix_cache_tokens_saved",
                                                        "spec_decode_num_accepted_tokens",
                                                        "spec_decode_num_draft_tokens",
                                                        "spec_decode_num_drafts",
                                                        "spec_decode_num_failures",
                                                        "spec_decode_num_steps_ahead"};

std::string NumberText(double value) {
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  return {text, end};
}

// A name, and the label of one that has it: mean{batch_size=3}.
struct SampleName {
  std::string_view name;
  std::string_view label = {};
  std::string_view value = {};
};

SampleName SplitLabel(std::string_view key) {
  const size_t brace = key.find('{');
  const size_t equals = key.find('=', brace);
  if (equals == std::string_view::npos || !key.ends_with('}')) return {key};
  return {key.substr(0, brace), key.substr(brace + 1, equals - brace - 1),
          key.substr(equals + 1, key.size() - equals - 2)};
}

class PrometheusWriter {
 public:
  void AddScope(const JsonObject& scope, const std::string& path) {
    for (const JsonMember& member : scope) {
      const std::string name = path.empty() ? member.name : path + '_' + member.name;
      if (member.value.is_number()) {
        AddNumber(SplitLabel(member.name), path, member.value.AsNumber());
      } else if (member.value.is_object() && member.value.Find("buckets") != nullptr) {
        AddHistogram(name, member.value);
      } else if (member.value.is_object() && path.empty() && member.name == kFinishedRequests) {
        for (const JsonMember& reason : member.value.AsObject()) {
          AddNumber({kFinishedTotal, "reason", reason.name}, path, reason.value.AsNumber());
        }
      } else if (member.value.is_object()) {
        AddScope(member.value.AsObject(), name);
      }
    }
  }

  std::string Take() {
    std::string text;
    for (const auto& [name, family] : families_) {
      std::string words = name;
      std::ranges::replace(words, '_', ' ');
      const std::string full = std::string(kPrefix) + name + family.suffix;
      text += "# HELP " + full + ' ' + words + '\n';
      text += "# TYPE " + full + ' ' + family.type + '\n' + family.samples;
    }
    return text;
  }

 private:
  struct Family {
    const char* type = "gauge";
    const char* suffix = "";
    std::string samples;
  };

  void AddNumber(const SampleName& sample, const std::string& path, double value) {
    const std::string key(sample.name);
    const std::string name = path.empty() ? key : path + '_' + key;
    const bool is_counter =
        (path.empty() && key.ends_with("_sum")) || std::ranges::count(kCounters, name) != 0;
    Family& family = families_[name];
    if (is_counter) {
      family = {"counter", key.ends_with("_total") ? "" : "_total", std::move(family.samples)};
    }
    std::string& line = family.samples;
    line += kPrefix;
    line += name + family.suffix;
    if (!sample.label.empty()) {
      line += '{';
      line += sample.label;
      line += "=\"";
      line += sample.value;
      line += "\"}";
    }
    line += ' ' + NumberText(value) + '\n';
  }

  void AddHistogram(const std::string& name, const JsonValue& histogram) {
    std::vector<std::pair<double, const JsonMember*>> buckets;  // by bound, not by its name
    for (const JsonMember& bucket : histogram.At("buckets").AsObject()) {
      double bound = std::numeric_limits<double>::infinity();
      std::from_chars(bucket.name.data(), bucket.name.data() + bucket.name.size(), bound);
      buckets.emplace_back(bound, &bucket);
    }
    std::ranges::sort(buckets, {}, [](const auto& each) { return each.first; });
    Family& family = families_[name];
    family.type = "histogram";
    const std::string full = std::string(kPrefix) + name;
    for (const auto& [bound, bucket] : buckets) {
      family.samples += full + "_bucket{le=\"" + bucket->name + "\"} " +
                        NumberText(bucket->value.AsNumber()) + '\n';
    }
    family.samples += full + "_count " + NumberText(histogram.At("count").AsNumber()) + '\n';
    family.samples += full + "_sum " + NumberText(histogram.At("sum").AsNumber()) + '\n';
  }

  std::map<std::string, Family> families_;
};

}  // namespace

std::string PrometheusText(std::string_view metrics_json) {
  PrometheusWriter writer;
  writer.AddScope(ParseJson(metrics_json).AsObject(), "");
  return writer.Take();
}

}  // namespace mlc_native
