// GgufFile is what the header of a GGUF file (version 2 or 3) says: metadata by key, and where the
// tensors lie.
//
// Every field is checked against the file before it is used. A damaged or hostile file throws
// LoadError, which names the file and the key or tensor. The header's bytes are kept, at most
// kMaxHeaderBytes; values are decoded when they are asked for. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mlc_native/detail/export.h"
#include "model_files/gguf_types.h"
#include "support/regular_file.h"

namespace mlc_native {

struct GgufTensor {
  std::string name;
  const GgufType* type = nullptr;  // static
  std::vector<int64_t> shape;      // rows first: the reverse of the file's order
  uint64_t begin = 0;              // in the file
  uint64_t bytes = 0;
};

class MLC_NATIVE_PRIVATE_API GgufFile {
 public:
  static constexpr uint64_t kMaxHeaderBytes = uint64_t{32} << 20;  // the largest known has 16 MB
  static constexpr size_t kMaxKeys = size_t{1} << 16;
  static constexpr size_t kMaxGgufTensors = 200'000;

  explicit GgufFile(std::string path);

  const std::string& path() const { return path_; }
  const FileStamp& stamp() const { return stamp_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // in the header's order
  const GgufTensor* FindTensor(std::string_view name) const;           // null: there is none
  std::vector<double> ReadFloats(const GgufTensor& tensor) const;      // of type F32

  // The value of a key; nullopt, or an empty list, when the key is absent. Throws LoadError for a
  // value of another type.
  bool Has(std::string_view key) const { return values_.find(key) != values_.end(); }
  bool IsList(std::string_view key) const;
  std::optional<int64_t> Integer(std::string_view key) const;
  // Of a key that may be a list with an element for each layer, which are all the same.
  std::optional<int64_t> IntegerOfLayers(std::string_view key) const;
  // A float32 is read as the shortest decimal number that it is nearest to.
  std::optional<double> Number(std::string_view key) const;
  std::optional<bool> Bool(std::string_view key) const;
  std::optional<std::string> String(std::string_view key) const;
  std::vector<std::string_view> Strings(std::string_view key) const;  // views of this object
  std::vector<int64_t> Integers(std::string_view key) const;          // also of booleans
  std::vector<double> Numbers(std::string_view key, bool may_be_infinite = false) const;
  // Where the elements of a list of float32 are in the file, and how many; nullopt: no such key.
  struct Place {
    uint64_t begin = 0;
    uint64_t count = 0;
  };
  std::optional<Place> PlaceOfFloats(std::string_view key) const;

  // <path>: "<key>" <what>
  [[noreturn]] void Fail(std::string_view key, const std::string& what) const;

 private:
  class Reader;

  enum class Kind : uint32_t {
    kUint8,
    kInt8,
    kUint16,
    kInt16,
    kUint32,
    kInt32,
    kFloat32,
    kBool,
    kString,
    kArray,
    kUint64,
    kInt64,
    kFloat64,
  };
  static constexpr uint32_t kNumKinds = 13;

  // One value, or the elements of a list: `count` of this kind from header_[begin] on.
  struct Value {
    Kind kind = Kind::kUint8;
    bool is_list = false;
    uint64_t count = 1;
    size_t begin = 0;
  };

  static size_t SizeOf(Kind kind);  // 0 for texts
  static bool IsInteger(Kind kind);
  const Value* Find(std::string_view key, bool is_list) const;
  template <typename T>
  T At(size_t place) const;
  int64_t IntegerAt(std::string_view key, const Value& value, uint64_t index) const;
  double NumberAt(std::string_view key, const Value& value, uint64_t index,
                  bool may_be_infinite = false) const;

  std::string path_;
  FileStamp stamp_;
  std::string header_;
  std::map<std::string, Value, std::less<>> values_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace mlc_native
