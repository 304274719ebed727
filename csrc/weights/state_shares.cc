#include "weights/state_shares.h"

namespace mlc_native {

std::vector<IndexRange> StateShares::Inputs() const {
  if (whole_.convolution) {
    const int64_t size = whole_.convolution->channels, part = part_.convolution->channels;
    return {Share(part), Share(part, size), Share(part, 2 * size)};
  }
  std::vector<IndexRange> rows = Channels();
  if (whole_.mamba) {  // gates, what the convolutions read, and steps
    const int64_t values = whole_.mamba->values_size();
    for (IndexRange& range : rows) range = {values + range.begin, values + range.end};
    rows.insert(rows.begin(), Outputs());
    rows.push_back(Share(part_.mamba->num_heads, values + whole_.mamba->conv_size()));
  } else if (whole_.delta->decays_channels()) {  // and what decays and gates come from, whole
    rows.push_back({whole_.delta->conv_size(), whole_.delta->inputs_size()});
  } else {  // and gates of what comes out
    rows.push_back(Share(part_.delta->values_size(), whole_.delta->conv_size()));
  }
  return rows;
}

std::vector<IndexRange> StateShares::Gates() const {
  const int64_t heads = part_.delta->num_value_heads;
  if (whole_.delta->decays_channels()) return {Share(heads)};
  return {Share(heads), Share(heads, whole_.delta->num_value_heads)};
}

std::vector<IndexRange> StateShares::Channels() const {
  if (whole_.convolution) return {Share(part_.convolution->channels)};
  if (whole_.mamba) return ChannelsOfMamba();
  const int64_t keys = whole_.delta->keys_size(), part = part_.delta->keys_size();
  return {Share(part), Share(part, keys), Share(part_.delta->values_size(), 2 * keys)};
}

std::vector<IndexRange> StateShares::ChannelsOfMamba() const {
  const int64_t values = whole_.mamba->values_size(), keys = whole_.mamba->keys_size();
  const auto of_groups = [&](int64_t offset) -> IndexRange {
    if (part_.mamba->num_group_parts > 1) return {offset, offset + keys};
    return Share(part_.mamba->keys_size(), offset);
  };
  return {Share(part_.mamba->values_size()), of_groups(values), of_groups(values + keys)};
}

IndexRange StateShares::Outputs() const {
  if (whole_.convolution) return Share(part_.convolution->channels);
  return Share(whole_.mamba ? part_.mamba->values_size() : part_.delta->values_size());
}

}  // namespace mlc_native
