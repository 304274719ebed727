#include "tokenizer/retokenizer.h"

#include <algorithm>
#include <utility>

namespace mlc_native {
namespace {

bool IsAllowed(std::span<const int32_t> allowed, int32_t token_id) {
  if (allowed.empty()) return true;
  const auto word = static_cast<size_t>(token_id) / 32;
  return word < allowed.size() &&
         (static_cast<uint32_t>(allowed[word]) >> (token_id % 32) & 1) != 0;
}

}  // namespace

Retokenizer::Retokenizer(std::shared_ptr<const TokenTable> table,
                         std::shared_ptr<const TextEncoder> encoder)
    : table_(std::move(table)), encoder_(std::move(encoder)) {
  for (int32_t id = 0; id < table_->size(); ++id) {
    if (!TextOf(id).empty()) sorted_.push_back(id);
  }
  std::sort(sorted_.begin(), sorted_.end(),
            [this](int32_t a, int32_t b) { return TextOf(a) < TextOf(b); });
}

std::optional<Retokenizer::Extension> Retokenizer::Extend(std::span<const int32_t> last,
                                                          std::string_view text) const {
  size_t num_fixed = last.size();
  while (num_fixed > 0 && !TextOf(last[num_fixed - 1]).empty()) --num_fixed;
  std::string all;
  for (int32_t token_id : last.subspan(num_fixed)) all += TextOf(token_id);
  all += text;
  Extension result;
  if (!encoder_->Encode(all, &result.added)) return std::nullopt;
  // The encoder reproduces its input; a table with other bytes would change the text.
  std::string_view rest = all;
  for (int32_t token_id : result.added) {
    if (!rest.starts_with(TextOf(token_id))) return std::nullopt;
    rest.remove_prefix(TextOf(token_id).size());
  }
  if (!rest.empty()) return std::nullopt;
  const auto old = last.subspan(num_fixed);
  const auto differs =
      std::mismatch(old.begin(), old.end(), result.added.begin(), result.added.end()).second;
  result.num_kept = num_fixed + static_cast<size_t>(differs - result.added.begin());
  result.added.erase(result.added.begin(), differs);
  return result;
}

bool Retokenizer::MayBeLonger(int32_t token_id, std::span<const int32_t> allowed) const {
  const std::string_view prefix = TextOf(token_id);
  auto it =
      std::lower_bound(sorted_.begin(), sorted_.end(), prefix,
                       [this](int32_t id, std::string_view text) { return TextOf(id) < text; });
  for (; it != sorted_.end() && TextOf(*it).starts_with(prefix); ++it) {
    if (TextOf(*it).size() > prefix.size() && IsAllowed(allowed, *it)) return true;
  }
  return false;
}

}  // namespace mlc_native
