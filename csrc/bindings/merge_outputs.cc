#include "bindings/merge_outputs.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <new>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace mlc_native::bindings {
namespace {

// Grows as push_back does: many calls take linear time.
template <typename Items>
void MakeRoom(Items* items, size_t num_more) {
  const size_t size = items->size() + num_more;
  if (size > items->capacity()) items->reserve(std::max(size, 2 * items->capacity()));
}

template <typename T>
void Append(std::vector<T>* to, std::vector<T> from) {
  to->insert(to->end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

// Requires: there is room.
void AppendDelta(SequenceDelta* to, SequenceDelta from) {
  to->text += from.extra_prefix_string;
  to->text += from.text;
  Append(&to->token_ids, std::move(from.token_ids));
  Append(&to->logprobs, std::move(from.logprobs));
  if (to->token_table == nullptr) to->token_table = std::move(from.token_table);
  if (!to->finish_reason) to->finish_reason = from.finish_reason;
}

// Throws std::bad_alloc; then both are as they were.
void Join(RequestStreamOutput* first, RequestStreamOutput* next) {
  for (size_t i = 0; i < first->group.size(); ++i) {
    SequenceDelta& to = first->group[i];
    const SequenceDelta& from = next->group[i];
    MakeRoom(&to.text, from.extra_prefix_string.size() + from.text.size());
    MakeRoom(&to.token_ids, from.token_ids.size());
    MakeRoom(&to.logprobs, from.logprobs.size());
  }
  if (!first->prompt_logprobs) first->prompt_logprobs = std::move(next->prompt_logprobs);
  if (first->embedding.empty()) first->embedding = std::move(next->embedding);
  for (size_t i = 0; i < first->group.size(); ++i) {
    AppendDelta(&first->group[i], std::move(next->group[i]));
  }
}

bool IsPlain(const RequestStreamOutput& output) {
  return !output.is_final() && output.error_message.empty();
}

}  // namespace

std::vector<RequestStreamOutput> MergeOutputs(std::vector<RequestStreamOutput> outputs) noexcept {
  std::vector<RequestStreamOutput> merged;
  // Keys view the ids in `merged`, which never grows beyond what is reserved.
  std::unordered_map<std::string_view, size_t> last_plain;
  try {
    merged.reserve(outputs.size());
  } catch (const std::bad_alloc&) {
    return outputs;
  }
  for (RequestStreamOutput& output : outputs) {
    const auto found = last_plain.find(output.request_id);
    const bool is_plain = IsPlain(output);
    try {
      if (is_plain && found != last_plain.end()) {
        Join(&merged[found->second], &output);
        continue;
      }
    } catch (const std::bad_alloc&) {
    }
    if (found != last_plain.end()) last_plain.erase(found);
    merged.push_back(std::move(output));
    try {
      if (is_plain) last_plain.emplace(merged.back().request_id, merged.size() - 1);
    } catch (const std::bad_alloc&) {
    }
  }
  return merged;
}

}  // namespace mlc_native::bindings
