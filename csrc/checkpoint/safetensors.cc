#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "support/error.h"
#include "support/json.h"

namespace mlc_native {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as in the reference implementation
constexpr size_t kMaxDepth = 3;                    // header > tensor > shape
// Of all tensors: name, type, two offsets, and generously dimensions.
constexpr size_t kMaxValues = 16 * kMaxTensors;

// Reads one file's header; every error names the file.
class HeaderReader {
 public:
  explicit HeaderReader(const RegularFile& file) : file_(file) {}

  std::vector<TensorInfo> Read() {
    const JsonValue header = ParseHeader();
    std::vector<TensorInfo> tensors;
    if (header.AsObject().size() > kMaxTensors) {
      Fail("has " + std::to_string(header.AsObject().size()) + " tensors, allowed are " +
           std::to_string(kMaxTensors));
    }
    for (const auto& [name, entry] : header.AsObject()) {
      if (name == "__metadata__") continue;
      const Range range = ReadRange(name, entry);
      TensorInfo tensor = ReadType(name, entry);
      CheckSize(tensor, range);
      tensor.begin = data_begin_ + range.begin;
      tensor.bytes = range.end - range.begin;
      tensors.push_back(std::move(tensor));
    }
    return InFileOrder(file_, std::move(tensors), data_begin_);
  }

 private:
  struct Range {
    uint64_t begin;
    uint64_t end;
  };

  [[noreturn]] void Fail(const std::string& what) const {
    throw LoadError(file_.path(), file_.path() + ": " + what);
  }
  [[noreturn]] void FailTensor(const std::string& name, const std::string& what) const {
    mlc_native::FailTensor(file_.path(), name, what);
  }

  JsonValue ParseHeader() {
    if (file_.size() < kLengthBytes) {
      Fail("truncated: " + std::to_string(file_.size()) + " bytes, no safetensors header");
    }
    std::array<std::byte, kLengthBytes> length_bytes;
    file_.Read(0, length_bytes);
    uint64_t length = 0;  // little-endian
    for (uint64_t i = 0; i < kLengthBytes; ++i) {
      length |= std::to_integer<uint64_t>(length_bytes[i]) << 8 * i;
    }
    if (length > kMaxHeaderBytes || length > file_.size() - kLengthBytes) {
      Fail("truncated or no safetensors file: header length " + std::to_string(length) +
           ", file size " + std::to_string(file_.size()));
    }
    data_begin_ = kLengthBytes + length;
    std::string text(length, '\0');
    file_.Read(kLengthBytes, std::as_writable_bytes(std::span(text)));
    if (text.empty() || text[0] != '{') Fail("header is not a JSON object");
    try {
      return ParseJson(
          text, {.max_depth = kMaxDepth, .max_values = kMaxValues, .refuse_duplicates = true});
    } catch (const JsonParseError& error) {
      FailHeader(error);
    }
  }

  // The error's own text repeats bytes of the file that may be no text.
  [[noreturn]] void FailHeader(const JsonParseError& error) const {
    switch (error.kind) {
      case JsonParseError::Kind::kSyntax:
        Fail("header is not valid JSON at byte " + std::to_string(error.byte));
      case JsonParseError::Kind::kNumberRange:
        Fail("header has a number that is out of range");
      case JsonParseError::Kind::kDepth:
        Fail("header is nested too deeply");
      case JsonParseError::Kind::kSize:
        Fail("header " + std::string(error.what()));
      case JsonParseError::Kind::kDuplicateName:
        FailTensor(error.name, "key is there twice");
    }
    Fail("header is not valid JSON");
  }

  const JsonValue& Field(const std::string& name, const JsonValue& entry, const char* field) const {
    if (!entry.is_object()) FailTensor(name, "is not a JSON object");
    const JsonValue* value = entry.Find(field);
    if (value == nullptr) FailTensor(name, std::string("has no \"") + field + '"');
    return *value;
  }

  // No file has an offset, and no tensor a size, above int64_t.
  std::vector<int64_t> Integers(const std::string& name, const JsonValue& entry,
                                const char* field) const {
    const JsonValue& list = Field(name, entry, field);
    const auto is_unsigned = [](const JsonValue& item) {
      return item.is_integer() && !item.IsIntegerIn(std::numeric_limits<int64_t>::min(), -1);
    };
    if (!list.is_array() || !std::ranges::all_of(list.AsArray(), is_unsigned)) {
      FailTensor(name, std::string(field) + " is not a list of unsigned integers");
    }
    std::vector<int64_t> integers;
    for (const JsonValue& item : list.AsArray()) {
      if (!item.IsIntegerIn(0, std::numeric_limits<int64_t>::max())) {
        FailTensor(name, std::string(field) + " overflows");
      }
      integers.push_back(item.AsInteger());
    }
    return integers;
  }

  Range ReadRange(const std::string& name, const JsonValue& entry) const {
    const std::vector<int64_t> offsets = Integers(name, entry, "data_offsets");
    if (offsets.size() != 2) FailTensor(name, "data_offsets are not two integers");
    const Range range{static_cast<uint64_t>(offsets[0]), static_cast<uint64_t>(offsets[1])};
    const uint64_t data_bytes = file_.size() - data_begin_;
    if (range.begin > range.end || range.end > data_bytes) {
      FailTensor(name, "data_offsets [" + std::to_string(range.begin) + ", " +
                           std::to_string(range.end) + "] leave the file's " +
                           std::to_string(data_bytes) + " data bytes (truncated?)");
    }
    return range;
  }

  TensorInfo ReadType(const std::string& name, const JsonValue& entry) const {
    TensorInfo tensor;
    tensor.name = name;
    const JsonValue& dtype = Field(name, entry, "dtype");
    if (!dtype.is_string()) FailTensor(name, "dtype is not a string");
    tensor.dtype_name = dtype.AsString();
    tensor.dtype = WeightDType(tensor.dtype_name);
    tensor.shape = Integers(name, entry, "shape");
    return tensor;
  }

  void CheckSize(const TensorInfo& tensor, const Range& range) const {
    const std::optional<uint64_t> bytes = TensorBytes(file_.path(), tensor);
    if (!bytes) FailTensor(tensor.name, "unknown dtype \"" + tensor.dtype_name + '"');
    if (*bytes != range.end - range.begin) {
      FailTensor(tensor.name, "shape " + ShapeString(tensor.shape) + " of " + tensor.dtype_name +
                                  " needs " + std::to_string(*bytes) +
                                  " bytes, data_offsets give " +
                                  std::to_string(range.end - range.begin));
    }
  }

  const RegularFile& file_;
  uint64_t data_begin_ = 0;
};

}  // namespace

TensorFile ReadSafetensors(const std::string& path) {
  const RegularFile file = OpenTensors(path);
  return {path, file.stamp(), HeaderReader(file).Read()};
}

}  // namespace mlc_native
