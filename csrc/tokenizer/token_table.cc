#include <utility>

#include "mlc_native/tokenizer.h"
#include "support/check.h"

namespace mlc_native {

TokenTable::TokenTable(std::vector<std::string> token_bytes, std::vector<bool> is_special,
                       bool strip_leading_space)
    : token_bytes_(std::move(token_bytes)),
      is_special_(std::move(is_special)),
      strip_leading_space_(strip_leading_space) {
  if (is_special_.empty()) is_special_.resize(token_bytes_.size());
  MLC_CHECK(is_special_.size() == token_bytes_.size())
      << is_special_.size() << " flags for " << token_bytes_.size() << " tokens";
}

std::string_view TokenTable::bytes(int32_t token_id) const {
  return Contains(token_id) ? std::string_view(token_bytes_[token_id]) : std::string_view();
}

std::string_view TokenTable::text_bytes(int32_t token_id) const {
  return is_special(token_id) ? std::string_view() : bytes(token_id);
}

bool TokenTable::is_special(int32_t token_id) const {
  return Contains(token_id) && is_special_[token_id];
}

}  // namespace mlc_native
