#include "tokenizer/precompiled_map.h"

#include "support/base64.h"
#include "support/error.h"
#include "support/utf8.h"
#include "tokenizer/unicode.h"

namespace mlc_native {
namespace {

constexpr size_t kLongestCluster = 5;  // bytes that are looked up together
constexpr size_t kUnitBytes = 4;

[[noreturn]] void DamagedMap() {
  throw LoadError("tokenizer.json", "tokenizer.json: \"precompiled_charsmap\" is damaged");
}

uint32_t ReadUnit(std::string_view bytes) {
  uint32_t unit = 0;
  for (size_t i = kUnitBytes; i > 0; --i) unit = unit << 8 | static_cast<uint8_t>(bytes[i - 1]);
  return unit;
}

// The fields of a unit of a double array (darts-clone).
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t ValueOf(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t LabelOf(uint32_t unit) { return unit & 0x800000FF; }
uint32_t OffsetOf(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

enum class HangulPart : uint8_t { kNone, kLead, kVowel, kTail, kOpen, kClosed };

// Of a syllable: kOpen has no last part.
HangulPart HangulPartOf(char32_t c) {
  const auto is_in = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
  if (is_in(0x1100, 0x115F) || is_in(0xA960, 0xA97C)) return HangulPart::kLead;
  if (is_in(0x1160, 0x11A7) || is_in(0xD7B0, 0xD7C6)) return HangulPart::kVowel;
  if (is_in(0x11A8, 0x11FF) || is_in(0xD7CB, 0xD7FB)) return HangulPart::kTail;
  if (!is_in(0xAC00, 0xD7A3)) return HangulPart::kNone;
  return (c - 0xAC00) % 28 == 0 ? HangulPart::kOpen : HangulPart::kClosed;
}

bool JoinsHangul(char32_t before, char32_t after) {
  using enum HangulPart;
  const HangulPart left = HangulPartOf(before), right = HangulPartOf(after);
  if (left == kLead) return right != kNone && right != kTail;
  if (left == kVowel || left == kOpen) return right == kVowel || right == kTail;
  return (left == kTail || left == kClosed) && right == kTail;
}

// Whether there is no border of clusters between two characters (UAX 29). Of longer clusters, whose
// bytes are not looked up together, emoji and Indic conjuncts are left out.
bool JoinsCluster(char32_t before, char32_t after) {
  if (before == '\r') return after == '\n';
  if (unicode::ClusterControls().Has(before) || unicode::ClusterControls().Has(after)) return false;
  return unicode::ClusterExtenders().Has(after) || unicode::ClusterPrefixes().Has(before) ||
         JoinsHangul(before, after);
}

}  // namespace

PrecompiledMap::PrecompiledMap(std::string_view base64) {
  const std::optional<std::string> decoded = FromBase64(base64);
  if (!decoded || decoded->size() < kUnitBytes) DamagedMap();
  const std::string& bytes = *decoded;
  const size_t size = ReadUnit(bytes);
  if (size % kUnitBytes != 0 || size == 0 || size > bytes.size() - kUnitBytes) DamagedMap();
  const std::string_view units = std::string_view(bytes).substr(kUnitBytes, size);
  for (size_t at = 0; at < size; at += kUnitBytes) units_.push_back(ReadUnit(units.substr(at)));
  results_ = bytes.substr(kUnitBytes + size);
  if (!IsValidUtf8(results_)) DamagedMap();
}

std::optional<std::string_view> PrecompiledMap::Find(std::string_view part) const {
  size_t at = OffsetOf(units_[0]);
  for (char c : part) {
    if (c == '\0') return std::nullopt;
    at ^= static_cast<uint8_t>(c);
    if (at >= units_.size() || LabelOf(units_[at]) != static_cast<uint8_t>(c)) return std::nullopt;
    const uint32_t unit = units_[at];
    at ^= OffsetOf(unit);
    if (!HasLeaf(unit)) continue;
    const size_t begin = at < units_.size() ? ValueOf(units_[at]) : results_.size();
    if (begin >= results_.size()) return std::string_view();
    const std::string_view rest = std::string_view(results_).substr(begin);
    return rest.substr(0, std::min(rest.find('\0'), rest.size()));
  }
  return std::nullopt;
}

std::string PrecompiledMap::Replaced(std::string_view text, size_t max_bytes) const {
  std::string result;
  result.reserve(text.size());
  const auto replace_chars = [&](std::string_view cluster) {
    while (!cluster.empty() && result.size() <= max_bytes) {
      const std::string_view part = cluster.substr(0, FirstChar(cluster).length);
      result += Find(part).value_or(part);
      cluster.remove_prefix(part.size());
    }
  };
  for (size_t at = 0; at < text.size() && result.size() <= max_bytes;) {
    TextChar last = FirstChar(text.substr(at));
    size_t end = at + last.length;
    while (end < text.size()) {
      const TextChar next = FirstChar(text.substr(end));
      if (last.code_point < 0x80 && next.code_point < 0x80 && last.code_point != '\r') break;
      if (!JoinsCluster(last.code_point, next.code_point)) break;
      end += next.length;
      last = next;
    }
    const std::string_view cluster = text.substr(at, end - at);
    const auto whole = cluster.size() <= kLongestCluster ? Find(cluster) : std::nullopt;
    if (whole) {
      result += *whole;
    } else {
      replace_chars(cluster);
    }
    at = end;
  }
  return result;
}

}  // namespace mlc_native
