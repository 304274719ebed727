#include "mlc_native/detail/weight_quantization.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace mlc_native {
namespace {

struct NamedKind {
  std::string_view name;
  WeightQuantization::Kind kind;
};
constexpr NamedKind kNamedKinds[] = {{"off", WeightQuantization::kOff},
                                     {"q8", WeightQuantization::kQ8},
                                     {"q6", WeightQuantization::kQ6},
                                     {"q4", WeightQuantization::kQ4}};
constexpr size_t kMaxDigits = 3;  // behind the point

// The number in digits; nullopt if there is any other character, or none.
std::optional<int64_t> Digits(std::string_view text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const bool begins = !text.empty() && text[0] >= '0' && text[0] <= '9';
  if (!begins || std::from_chars(text.data(), end, value).ptr != end) return std::nullopt;
  return value;
}

// "q4.8" -> 4800
std::optional<int64_t> Millibits(std::string_view text) {
  const size_t point = text.find('.');
  if (!text.starts_with('q') || point != 2) return std::nullopt;
  std::string behind(text.substr(point + 1));
  if (behind.size() > kMaxDigits) return std::nullopt;
  const auto whole = Digits(text.substr(1, 1)), part = Digits(behind);
  if (!whole || !part) return std::nullopt;
  behind.resize(kMaxDigits, '0');
  return *whole * 1000 + *Digits(behind);
}

// 4800 -> "4.8"
std::string InBits(int64_t millibits) {
  char text[32];
  std::snprintf(text, sizeof text, "%d.%03d", static_cast<int>(millibits / 1000),
                static_cast<int>(millibits % 1000));
  std::string bits = text;
  while (bits.ends_with('0') && !bits.ends_with(".0")) bits.pop_back();
  return bits;
}

}  // namespace

std::optional<WeightQuantization> WeightQuantization::Parse(std::string_view text) {
  const auto* const named = std::ranges::find(kNamedKinds, text, &NamedKind::name);
  if (named != std::end(kNamedKinds)) return named->kind;
  const std::optional<int64_t> millibits = Millibits(text);
  if (!millibits || *millibits < kMinMillibits || *millibits > kMaxMillibits) return std::nullopt;
  WeightQuantization budget;
  budget.kind_ = kBudget;
  budget.millibits_ = static_cast<int32_t>(*millibits);
  return budget;
}

std::string WeightQuantization::Allowed() {
  std::string allowed;
  for (const NamedKind& each : kNamedKinds) allowed += '"' + std::string(each.name) + "\", ";
  return allowed + "or \"q\" and bits per weight in [" + InBits(kMinMillibits) + ", " +
         InBits(kMaxMillibits) + "] with a point, such as \"q4.8\"";
}

std::string WeightQuantization::ToString() const {
  if (kind_ == kBudget) return 'q' + InBits(millibits_);
  const auto* const named = std::ranges::find(kNamedKinds, kind_, &NamedKind::kind);
  return named == std::end(kNamedKinds) ? "" : std::string(named->name);
}

}  // namespace mlc_native
