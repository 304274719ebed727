#include "request/input_row_ids.h"

#include <numeric>
#include <random>
#include <vector>

#include "support/error.h"
#include "support/siphash.h"

namespace mlc_native {
namespace {

std::array<uint64_t, 2> RandomKey() {
  std::random_device device;
  const auto word = [&] { return (uint64_t{device()} << 32) | device(); };
  const uint64_t first = word();
  return {first, word()};
}

int64_t NumRows(const Request& request) {
  int64_t sum = 0;
  for (const PromptRows& rows : request.prompt_rows) sum += rows.num_rows;
  return sum;
}

// Of the rows that a prompt has of a piece, not of those that are cut off.
std::array<uint64_t, 2> HashOf(const PromptRows& rows, const std::array<uint64_t, 2>& key) {
  const std::span<const float> values =
      std::span(*rows.values).subspan(static_cast<size_t>(rows.first_value));
  const std::array<uint64_t, 2> of_values = SipHash128(std::as_bytes(values), key);
  if (rows.positions.empty()) return of_values;
  const std::array<uint64_t, 2> of_positions =
      SipHash128(std::as_bytes(std::span(rows.positions)), key);
  const std::array<uint64_t, 5> all = {of_values[0], of_values[1], of_positions[0], of_positions[1],
                                       static_cast<uint64_t>(rows.advance)};
  return SipHash128(std::as_bytes(std::span(all)), key);
}

}  // namespace

InputRowIds::InputRowIds(const Options& options) : options_(options), key_(RandomKey()) {}

void InputRowIds::ResolveFor(Request* request) {
  if (request->prompt_rows.empty()) return;
  std::vector<Hash> hashes;
  hashes.reserve(request->prompt_rows.size());
  for (const PromptRows& rows : request->prompt_rows) hashes.push_back(HashOf(rows, key_));
  const MutexLock lock(mutex_);
  // All pieces of a request are of one round.
  if (num_given_ + NumRows(*request) > options_.num_ids) BeginRound();
  for (size_t i = 0; i < hashes.size(); ++i) {
    const PromptRows& rows = request->prompt_rows[i];
    const auto begin = request->prompt_token_ids.begin() + rows.begin;
    std::iota(begin, begin + rows.num_rows, FirstIdOf(hashes[i], rows.num_rows));
  }
  request->row_round = round_;
  request->row_ids = shared_from_this();
}

void InputRowIds::Check(const Request& request) const {
  if (request.prompt_rows.empty() || request.row_ids.get() == this) return;
  throw InvalidRequest("inputs",
                       "The request was not created for this model, so its EmbeddingData "
                       "cannot be served");
}

int32_t InputRowIds::FirstIdOf(const Hash& hash, int64_t num_rows) {
  const auto known = by_hash_.find(hash);
  if (known != by_hash_.end()) {
    pieces_.splice(pieces_.begin(), pieces_, known->second);
    return known->second->first_id;
  }
  if (pieces_.size() == options_.max_remembered) {
    by_hash_.erase(pieces_.back().hash);
    pieces_.pop_back();
  }
  const auto first_id = static_cast<int32_t>(kFirstInputRow + num_given_);
  pieces_.push_front({hash, first_id});
  by_hash_.emplace(hash, pieces_.begin());
  num_given_ += num_rows;
  return first_id;
}

void InputRowIds::BeginRound() {
  pieces_.clear();
  by_hash_.clear();
  num_given_ = 0;
  ++round_;
}

}  // namespace mlc_native
