#include "bindings/merge_outputs.h"

#include <cstddef>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace mlc_native::bindings {
namespace {

template <typename T>
void Append(std::vector<T>* to, std::vector<T> from) {
  to->insert(to->end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

void AppendDelta(SequenceDelta* to, SequenceDelta from) {
  to->text += from.extra_prefix_string;
  to->text += from.text;
  Append(&to->token_ids, std::move(from.token_ids));
  Append(&to->logprobs, std::move(from.logprobs));
  if (to->token_table == nullptr) to->token_table = std::move(from.token_table);
  if (!to->finish_reason) to->finish_reason = from.finish_reason;
}

bool IsPlain(const RequestStreamOutput& output) {
  return !output.is_final() && output.error_message.empty();
}

}  // namespace

std::vector<RequestStreamOutput> MergeOutputs(std::vector<RequestStreamOutput> outputs) {
  std::vector<RequestStreamOutput> merged;
  merged.reserve(outputs.size());
  // Keys view the ids in `merged`, which never grows beyond what is reserved.
  std::unordered_map<std::string_view, size_t> last_plain;
  for (RequestStreamOutput& output : outputs) {
    const auto found = last_plain.find(output.request_id);
    if (!IsPlain(output)) {
      if (found != last_plain.end()) last_plain.erase(found);
      merged.push_back(std::move(output));
    } else if (found == last_plain.end()) {
      merged.push_back(std::move(output));
      last_plain.emplace(merged.back().request_id, merged.size() - 1);
    } else {
      RequestStreamOutput& first = merged[found->second];
      if (!first.prompt_logprobs) first.prompt_logprobs = std::move(output.prompt_logprobs);
      for (size_t i = 0; i < first.group.size(); ++i) {
        AppendDelta(&first.group[i], std::move(output.group[i]));
      }
    }
  }
  return merged;
}

}  // namespace mlc_native::bindings
