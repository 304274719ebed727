#include "model_files/gguf_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <utility>

#include "support/error.h"

namespace mlc_native {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint64_t kFirstBytes = 64 << 10;
constexpr uint32_t kMaxDimensions = 4;
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr size_t kMaxNameBytes = 1024;
constexpr char kAlignment[] = "general.alignment";

bool IsPlainText(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

// What a configuration said before it was rounded to float32: 0.1, and not 0.10000000149011612.
double ShortestDecimal(float value) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  double decimal = value;
  std::from_chars(text.data(), end, decimal);
  return decimal;
}

}  // namespace

// Reads the header from left to right; the bytes are fetched as they are needed.
class GgufFile::Reader {
 public:
  Reader(const RegularFile& in, GgufFile* out) : in_(in), out_(*out) {}

  void Read() {
    ReadMagic();
    const auto num_tensors = Take<uint64_t>();
    const auto num_keys = Take<uint64_t>();
    RequireAtMost("tensors", num_tensors, kMaxGgufTensors);
    RequireAtMost("keys", num_keys, kMaxKeys);
    for (uint64_t i = 0; i < num_keys; ++i) ReadKey();
    for (uint64_t i = 0; i < num_tensors; ++i) ReadTensor();
    PlaceTensors();
    out_.header_.resize(at_);
    out_.header_.shrink_to_fit();
  }

 private:
  [[noreturn]] void FailFile(const std::string& what) const {
    throw LoadError(out_.path_, out_.path_ + ": " + what);
  }
  [[noreturn]] void FailTensor(const std::string& name, const std::string& what) const {
    throw LoadError(name, out_.path_ + ": tensor \"" + name + "\": " + what);
  }

  void RequireAtMost(const char* what, uint64_t count, uint64_t limit) const {
    if (count <= limit) return;
    FailFile("has " + std::to_string(count) + " " + what + ", allowed are " +
             std::to_string(limit));
  }

  // Makes the next `count` bytes of the header available.
  void Need(uint64_t count) {
    std::string& header = out_.header_;
    if (count <= header.size() - at_) return;
    if (count > in_.size() - at_) {
      FailFile("truncated: its header needs " + std::to_string(count) + " bytes at byte " +
               std::to_string(at_) + ", the file has " + std::to_string(in_.size()));
    }
    const uint64_t end = at_ + count;
    if (end > kMaxHeaderBytes) {
      FailFile("has a header of more than " + std::to_string(kMaxHeaderBytes) +
               " bytes, which is the limit");
    }
    const uint64_t old = header.size();
    header.resize(std::min({in_.size(), kMaxHeaderBytes, std::max({end, 2 * old, kFirstBytes})}));
    in_.Read(old, std::as_writable_bytes(std::span(header)).subspan(old));
  }

  template <typename T>
  T Take() {
    Need(sizeof(T));
    const T value = out_.At<T>(at_);
    at_ += sizeof(T);
    return value;
  }

  std::string_view TakeText() {
    const auto length = Take<uint64_t>();
    Need(length);
    at_ += length;
    return std::string_view(out_.header_).substr(at_ - length, length);
  }

  std::string TakeName(const char* what) {
    const std::string_view name = TakeText();
    if (name.empty() || name.size() > kMaxNameBytes || !IsPlainText(name)) {
      FailFile(std::string("the name of a ") + what + " at byte " +
               std::to_string(at_ - name.size()) + " is not 1 to " + std::to_string(kMaxNameBytes) +
               " characters of plain text");
    }
    return std::string(name);
  }

  void ReadMagic() {
    Need(kMagic.size());
    if (!std::string_view(out_.header_).starts_with(kMagic)) {
      FailFile("is no GGUF file (it does not begin with \"GGUF\")");
    }
    at_ = kMagic.size();
    const auto version = Take<uint32_t>();
    if (version == 2 || version == 3) return;
    const bool is_swapped = version == 2u << 24 || version == 3u << 24;
    FailFile(is_swapped
                 ? "is big-endian, which is not supported"
                 : "has version " + std::to_string(version) + " of GGUF, supported are 2 and 3");
  }

  Kind TakeKind(const std::string& key) {
    const auto kind = Take<uint32_t>();
    if (kind >= kNumKinds) out_.Fail(key, "has the unknown type " + std::to_string(kind));
    return static_cast<Kind>(kind);
  }

  void ReadKey() {
    const std::string key = TakeName("key");
    Value value{.kind = TakeKind(key)};
    if (value.kind == Kind::kArray) {
      value.kind = TakeKind(key);
      if (value.kind == Kind::kArray) out_.Fail(key, "is a list of lists, which is not supported");
      value.is_list = true;
      value.count = Take<uint64_t>();
    }
    value.begin = at_;
    Skip(key, value);
    if (!out_.values_.emplace(key, value).second) out_.Fail(key, "is there twice");
  }

  void Skip(const std::string& key, const Value& value) {
    const uint64_t size = std::max<uint64_t>(SizeOf(value.kind), 1);
    if (value.count > kMaxHeaderBytes / size) {
      out_.Fail(key, "has " + std::to_string(value.count) + " elements (truncated?)");
    }
    if (value.kind == Kind::kString) {
      for (uint64_t i = 0; i < value.count; ++i) TakeText();
      return;
    }
    Need(value.count * size);
    at_ += value.count * size;
  }

  void ReadTensor() {
    GgufTensor tensor;
    tensor.name = TakeName("tensor");
    const auto dimensions = Take<uint32_t>();
    if (dimensions == 0 || dimensions > kMaxDimensions) {
      FailTensor(tensor.name, "has " + std::to_string(dimensions) +
                                  " dimensions, allowed are 1 to " +
                                  std::to_string(kMaxDimensions));
    }
    for (uint32_t i = 0; i < dimensions; ++i) {
      const auto size = Take<uint64_t>();
      if (size == 0 || size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        FailTensor(tensor.name, "has a dimension of " + std::to_string(size));
      }
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
    }
    const auto type = Take<uint32_t>();
    tensor.type = FindGgufType(type);
    if (tensor.type == nullptr) FailTensor(tensor.name, "unknown type " + std::to_string(type));
    tensor.begin = Take<uint64_t>();
    tensor.bytes = BytesOf(tensor);
    out_.tensors_.push_back(std::move(tensor));
  }

  uint64_t BytesOf(const GgufTensor& tensor) const {
    const int64_t block = tensor.type->block;
    if (tensor.shape.back() % block != 0) {
      FailTensor(tensor.name, "rows of " + std::to_string(tensor.shape.back()) + " of type " +
                                  std::string(tensor.type->name) + ", which has blocks of " +
                                  std::to_string(block));
    }
    auto bytes = static_cast<uint64_t>(tensor.type->block_bytes);
    bool overflows = false;
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      const bool is_last = i + 1 == tensor.shape.size();
      const auto size = static_cast<uint64_t>(tensor.shape[i] / (is_last ? block : 1));
      overflows |= __builtin_mul_overflow(bytes, size, &bytes);
    }
    if (overflows) FailTensor(tensor.name, "its size overflows");
    return bytes;
  }

  // Offsets count from the end of the header, aligned.
  void PlaceTensors() {
    const int64_t given = out_.Integer(kAlignment).value_or(32);
    const auto alignment = static_cast<uint64_t>(given);
    if (given < 1 || alignment > kMaxAlignment || (alignment & (alignment - 1)) != 0) {
      out_.Fail(kAlignment, "= " + std::to_string(given) + " must be a power of two of at most " +
                                std::to_string(kMaxAlignment));
    }
    const uint64_t data = (at_ + alignment - 1) / alignment * alignment;
    const uint64_t size = in_.size();
    for (GgufTensor& tensor : out_.tensors_) {
      if (tensor.begin % alignment != 0) {
        FailTensor(tensor.name, "its offset " + std::to_string(tensor.begin) +
                                    " is no multiple of " + std::to_string(alignment));
      }
      if (data > size || tensor.begin > size - data || tensor.bytes > size - data - tensor.begin) {
        FailTensor(tensor.name, std::to_string(tensor.bytes) + " bytes at offset " +
                                    std::to_string(tensor.begin) + " leave the file's " +
                                    std::to_string(size) + " bytes (truncated?)");
      }
      tensor.begin += data;
    }
    CheckOverlaps();
  }

  void CheckOverlaps() const {
    std::vector<const GgufTensor*> order;
    order.reserve(out_.tensors_.size());
    for (const GgufTensor& tensor : out_.tensors_) order.push_back(&tensor);
    std::ranges::sort(order, {}, [](const GgufTensor* t) { return t->begin; });
    for (size_t i = 1; i < order.size(); ++i) {
      if (order[i]->begin < order[i - 1]->begin + order[i - 1]->bytes) {
        FailTensor(order[i]->name, "overlaps \"" + order[i - 1]->name + '"');
      }
    }
  }

  const RegularFile& in_;
  GgufFile& out_;
  uint64_t at_ = 0;
};

GgufFile::GgufFile(std::string path) : path_(std::move(path)) {
  const RegularFile file(path_);
  stamp_ = file.stamp();
  Reader(file, this).Read();
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &GgufTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

std::vector<double> GgufFile::ReadFloats(const GgufTensor& tensor) const {
  constexpr uint64_t kMaxFloats = 1 << 16;
  if (tensor.type->name != "F32" || tensor.bytes > kMaxFloats * sizeof(float)) {
    throw LoadError(tensor.name, path_ + ": tensor \"" + tensor.name + "\": must be at most " +
                                     std::to_string(kMaxFloats) + " numbers of type F32");
  }
  std::vector<float> values(tensor.bytes / sizeof(float));
  const RegularFile file(path_);
  file.RequireStamp(stamp_);
  file.Read(tensor.begin, std::as_writable_bytes(std::span(values)));
  return {values.begin(), values.end()};
}

void GgufFile::Fail(std::string_view key, const std::string& what) const {
  throw LoadError(std::string(key), path_ + ": \"" + std::string(key) + "\" " + what);
}

size_t GgufFile::SizeOf(Kind kind) {
  static constexpr std::array<uint8_t, kNumKinds> kSizes{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kSizes[static_cast<size_t>(kind)];
}

bool GgufFile::IsInteger(Kind kind) {
  return kind != Kind::kFloat32 && kind != Kind::kFloat64 && kind != Kind::kString &&
         kind != Kind::kArray;
}

const GgufFile::Value* GgufFile::Find(std::string_view key, bool is_list) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return nullptr;
  if (found->second.is_list != is_list) {
    Fail(key, is_list ? "must be a list, got one value" : "must be one value, got a list");
  }
  return &found->second;
}

template <typename T>
T GgufFile::At(size_t place) const {
  T value;
  std::memcpy(&value, header_.data() + place, sizeof value);
  return value;
}

int64_t GgufFile::IntegerAt(std::string_view key, const Value& value, uint64_t index) const {
  const size_t place = value.begin + index * SizeOf(value.kind);
  switch (value.kind) {
    case Kind::kUint8:
    case Kind::kBool:
      return At<uint8_t>(place);
    case Kind::kInt8:
      return At<int8_t>(place);
    case Kind::kUint16:
      return At<uint16_t>(place);
    case Kind::kInt16:
      return At<int16_t>(place);
    case Kind::kUint32:
      return At<uint32_t>(place);
    case Kind::kInt32:
      return At<int32_t>(place);
    case Kind::kInt64:
      return At<int64_t>(place);
    case Kind::kUint64:
      if (At<uint64_t>(place) <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return At<int64_t>(place);
      }
      Fail(key, "is above 2^63");
    case Kind::kFloat32:
    case Kind::kFloat64:
    case Kind::kString:
    case Kind::kArray:
      break;
  }
  Fail(key, "must be an integer");
}

double GgufFile::NumberAt(std::string_view key, const Value& value, uint64_t index,
                          bool may_be_infinite) const {
  const size_t place = value.begin + index * SizeOf(value.kind);
  double number = 0;
  if (value.kind == Kind::kFloat32) {
    number = ShortestDecimal(At<float>(place));
  } else if (value.kind == Kind::kFloat64) {
    number = At<double>(place);
  } else if (IsInteger(value.kind)) {
    number = static_cast<double>(IntegerAt(key, value, index));
  } else {
    Fail(key, "must be a number");
  }
  if (!std::isfinite(number) && !(may_be_infinite && std::isinf(number))) {
    Fail(key, "is not a finite number");
  }
  return number;
}

bool GgufFile::IsList(std::string_view key) const {
  const auto found = values_.find(key);
  return found != values_.end() && found->second.is_list;
}

std::optional<int64_t> GgufFile::Integer(std::string_view key) const {
  const Value* value = Find(key, false);
  return value == nullptr ? std::nullopt : std::optional(IntegerAt(key, *value, 0));
}

std::optional<int64_t> GgufFile::IntegerOfLayers(std::string_view key) const {
  if (!IsList(key)) return Integer(key);
  const std::vector<int64_t> values = Integers(key);
  const auto other = std::ranges::adjacent_find(values, std::not_equal_to{});
  if (other != values.end()) {
    Fail(key, "is " + std::to_string(*other) + " in one layer and " + std::to_string(other[1]) +
                  " in the next, which is not supported");
  }
  if (values.empty()) Fail(key, "is an empty list");
  return values.front();
}

std::optional<double> GgufFile::Number(std::string_view key) const {
  const Value* value = Find(key, false);
  return value == nullptr ? std::nullopt : std::optional(NumberAt(key, *value, 0));
}

std::optional<bool> GgufFile::Bool(std::string_view key) const {
  const Value* value = Find(key, false);
  if (value == nullptr) return std::nullopt;
  if (value->kind != Kind::kBool) Fail(key, "must be true or false");
  return At<uint8_t>(value->begin) != 0;
}

std::optional<std::string> GgufFile::String(std::string_view key) const {
  const Value* value = Find(key, false);
  if (value == nullptr) return std::nullopt;
  if (value->kind != Kind::kString) Fail(key, "must be a text");
  return header_.substr(value->begin + sizeof(uint64_t), At<uint64_t>(value->begin));
}

std::vector<std::string_view> GgufFile::Strings(std::string_view key) const {
  const Value* value = Find(key, true);
  if (value == nullptr) return {};
  if (value->kind != Kind::kString) Fail(key, "must be a list of texts");
  std::vector<std::string_view> texts;
  texts.reserve(value->count);
  size_t place = value->begin;
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto length = At<uint64_t>(place);
    texts.push_back(std::string_view(header_).substr(place + sizeof length, length));
    place += sizeof length + length;
  }
  return texts;
}

std::vector<int64_t> GgufFile::Integers(std::string_view key) const {
  const Value* value = Find(key, true);
  std::vector<int64_t> integers;
  for (uint64_t i = 0; value != nullptr && i < value->count; ++i) {
    integers.push_back(IntegerAt(key, *value, i));
  }
  return integers;
}

std::vector<double> GgufFile::Numbers(std::string_view key, bool may_be_infinite) const {
  const Value* value = Find(key, true);
  std::vector<double> numbers;
  for (uint64_t i = 0; value != nullptr && i < value->count; ++i) {
    numbers.push_back(NumberAt(key, *value, i, may_be_infinite));
  }
  return numbers;
}

std::optional<GgufFile::Place> GgufFile::PlaceOfFloats(std::string_view key) const {
  const Value* value = Find(key, true);
  if (value == nullptr) return std::nullopt;
  if (value->kind != Kind::kFloat32) Fail(key, "must be a list of numbers of type float32");
  return Place{.begin = value->begin, .count = value->count};
}

}  // namespace mlc_native
