#include "torch_ops/check_value.h"

#include <charconv>

namespace mlc_native::ops {
namespace {

// "[2, 8]"
template <typename List>
std::string ListText(const List& list) {
  std::string text;
  for (const auto& item : list) text += (text.empty() ? "" : ", ") + Text(item);
  return "[" + text + "]";
}

std::string_view TypeName(DeviceType type) {
  switch (type) {
    case DeviceType::CPU:
      return "cpu";
    case DeviceType::CUDA:
      return "cuda";
    case DeviceType::Meta:
      return "meta";
    default:
      return "another device";
  }
}

}  // namespace

std::string Text(double value) {
  char text[32];
  const auto end =
      std::to_chars(text, text + sizeof(text), value, std::chars_format::general, 6).ptr;
  return {text, end};
}

std::string Text(ScalarType dtype) { return torch::headeronly::toString(dtype); }

std::string Text(const Device& device) {
  std::string text(TypeName(device.type()));
  if (device.has_index()) text += ":" + std::to_string(device.index());
  return text;
}

std::string Text(Sizes sizes) { return ListText(sizes); }
std::string Text(std::initializer_list<ScalarType> dtypes) { return ListText(dtypes); }

}  // namespace mlc_native::ops
