#include "checkpoint/safetensors.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "support/error.h"

namespace mlc_native {
namespace {

using nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as in the reference implementation
constexpr size_t kMaxDepth = 3;                    // header > tensor > shape

// Reads one file's header; every error names the file.
class HeaderReader {
 public:
  explicit HeaderReader(const MappedFile& file) : file_(file) {}

  std::vector<TensorInfo> Read() {
    const json header = ParseHeader();
    std::vector<TensorInfo> tensors;
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      const Range range = ReadRange(name, entry);
      TensorInfo tensor = ReadType(name, entry);
      CheckSize(tensor, range);
      tensor.data = data_.subspan(range.begin, range.end - range.begin);
      tensors.push_back(std::move(tensor));
    }
    return InFileOrder(file_.path(), std::move(tensors), data_);
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

  json ParseHeader() {
    const std::span<const std::byte> bytes = file_.bytes();
    if (bytes.size() < kLengthBytes) {
      Fail("truncated: " + std::to_string(bytes.size()) + " bytes, no safetensors header");
    }
    uint64_t length = 0;  // little-endian
    for (uint64_t i = 0; i < kLengthBytes; ++i)
      length |= std::to_integer<uint64_t>(bytes[i]) << 8 * i;
    if (length > kMaxHeaderBytes || length > bytes.size() - kLengthBytes) {
      Fail("truncated or no safetensors file: header length " + std::to_string(length) +
           ", file size " + std::to_string(bytes.size()));
    }
    data_ = bytes.subspan(kLengthBytes + length);
    const auto* text = reinterpret_cast<const char*>(bytes.data()) + kLengthBytes;
    if (length == 0 || text[0] != '{') Fail("header is not a JSON object");
    try {
      return json::parse(text, text + length, DuplicateKeyCheck());
    } catch (const json::parse_error& error) {  // its text repeats bytes that may be no text
      Fail("header is not valid JSON at byte " + std::to_string(error.byte));
    } catch (const json::exception&) {
      Fail("header has a number that is out of range");
    }
  }

  // nlohmann::json keeps one of equal keys without a word.
  json::parser_callback_t DuplicateKeyCheck() {
    keys_.clear();
    return [this](int, json::parse_event_t event, json& value) {
      const bool opens =
          event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
      if (opens) {
        if (keys_.size() == kMaxDepth) Fail("header is nested too deeply");
        keys_.emplace_back();
      } else if (event == json::parse_event_t::key) {
        const auto& key = value.get_ref<const std::string&>();
        if (!keys_.back().insert(key).second) FailTensor(key, "key is there twice");
      } else if (event != json::parse_event_t::value) {
        keys_.pop_back();
      }
      return true;
    };
  }

  const json& Field(const std::string& name, const json& entry, const char* field) const {
    if (!entry.is_object()) FailTensor(name, "is not a JSON object");
    const auto it = entry.find(field);
    if (it == entry.end()) FailTensor(name, std::string("has no \"") + field + '"');
    return *it;
  }

  std::vector<uint64_t> Integers(const std::string& name, const json& entry,
                                 const char* field) const {
    const json& list = Field(name, entry, field);
    const bool right = list.is_array() && std::all_of(list.begin(), list.end(), [](const json& v) {
                         return v.is_number_unsigned();
                       });
    if (!right) FailTensor(name, std::string(field) + " is not a list of unsigned integers");
    return list.get<std::vector<uint64_t>>();
  }

  Range ReadRange(const std::string& name, const json& entry) const {
    const std::vector<uint64_t> offsets = Integers(name, entry, "data_offsets");
    if (offsets.size() != 2) FailTensor(name, "data_offsets are not two integers");
    const Range range{offsets[0], offsets[1]};
    if (range.begin > range.end || range.end > data_.size()) {
      FailTensor(name, "data_offsets [" + std::to_string(range.begin) + ", " +
                           std::to_string(range.end) + "] leave the file's " +
                           std::to_string(data_.size()) + " data bytes (truncated?)");
    }
    return range;
  }

  TensorInfo ReadType(const std::string& name, const json& entry) const {
    TensorInfo tensor;
    tensor.name = name;
    const json& dtype = Field(name, entry, "dtype");
    if (!dtype.is_string()) FailTensor(name, "dtype is not a string");
    tensor.dtype_name = dtype.get<std::string>();
    tensor.dtype = WeightDType(tensor.dtype_name);
    for (uint64_t size : Integers(name, entry, "shape")) {
      if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        FailTensor(name, "shape overflows");
      }
      tensor.shape.push_back(static_cast<int64_t>(size));
    }
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

  const MappedFile& file_;
  std::span<const std::byte> data_;
  std::vector<std::set<std::string>> keys_;  // of the objects being parsed, outermost first
};

}  // namespace

TensorFile ReadSafetensors(const std::string& path) {
  MappedFile file(path);
  std::vector<TensorInfo> tensors = HeaderReader(file).Read();
  return {std::move(file), std::move(tensors)};
}

}  // namespace mlc_native
