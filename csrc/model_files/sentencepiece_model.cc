#include "model_files/sentencepiece_model.h"

#include <bit>
#include <cmath>
#include <unordered_set>

#include "support/error.h"
#include "support/utf8.h"

namespace mlc_native {
namespace {

constexpr size_t kMaxVarintBytes = 10;

// One message in protobuf's wire format, field by field.
class ProtoReader {
 public:
  enum class Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  // `name` is that of the message in `path`.
  ProtoReader(const std::string& path, std::string name, std::string_view bytes)
      : path_(path), name_(std::move(name)), bytes_(bytes) {}

  // Goes to the next field. Returns false at the end.
  bool Next() {
    field_name_.clear();
    if (at_ == bytes_.size()) return false;
    const uint64_t tag = ReadVarint();
    number_ = tag >> 3;
    wire_ = static_cast<Wire>(tag & 7);
    if (number_ == 0 || number_ >= uint64_t{1} << 29) Fail("has a field without a number");
    switch (wire_) {
      case Wire::kVarint:
        integer_ = ReadVarint();
        return true;
      case Wire::kFixed64:
        value_ = Take(8);
        return true;
      case Wire::kBytes:
        value_ = Take(ReadVarint());
        return true;
      case Wire::kFixed32:
        value_ = Take(4);
        return true;
    }
    Fail("has a field " + std::to_string(number_) + " of a kind that does not exist");
  }

  uint64_t number() const { return number_; }

  // The value of the field, whose name is for messages. Each fails for a value of another kind.
  std::string_view Bytes(const char* name) {
    Require(name, Wire::kBytes);
    return value_;
  }
  float Float(const char* name) {
    Require(name, Wire::kFixed32);
    uint32_t bits = 0;
    for (size_t i = 4; i > 0; --i) bits = bits << 8 | static_cast<uint8_t>(value_[i - 1]);
    const float value = std::bit_cast<float>(bits);
    if (!std::isfinite(value)) Fail("is no finite number");
    return value;
  }
  int64_t Integer(const char* name, int64_t min, int64_t max) {
    Require(name, Wire::kVarint);
    const auto value = static_cast<int64_t>(integer_);
    if (value < min || value > max) {
      Fail("= " + std::to_string(value) + ", must be in [" + std::to_string(min) + ", " +
           std::to_string(max) + "]");
    }
    return value;
  }
  bool Bool(const char* name) { return Integer(name, 0, 1) != 0; }

  // <path>: "<message>.<field>" <what>
  [[noreturn]] void Fail(const std::string& what) const {
    const std::string field =
        name_ + (name_.empty() || field_name_.empty() ? "" : ".") + field_name_;
    const std::string shown = field.empty() ? "" : "\"" + field + "\" ";
    throw LoadError(field.empty() ? path_.substr(path_.rfind('/') + 1) : field,
                    path_ + ": " + shown + what);
  }

 private:
  void Require(const char* name, Wire wire) {
    field_name_ = name;
    if (wire_ != wire) Fail("has a value of another kind");
  }

  std::string_view Take(uint64_t size) {
    const uint64_t rest = bytes_.size() - at_;
    if (size > rest) {
      Fail("has a field " + std::to_string(number_) + " of " + std::to_string(size) +
           " bytes, but only " + std::to_string(rest) + " are left");
    }
    const std::string_view taken = bytes_.substr(at_, size);
    at_ += size;
    return taken;
  }

  uint64_t ReadVarint() {
    uint64_t value = 0;
    for (size_t i = 0; i < kMaxVarintBytes; ++i) {
      if (at_ == bytes_.size()) Fail("ends within a number");
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);
      if (byte < 0x80) return value;
    }
    Fail("has a number of more than 10 bytes");
  }

  const std::string& path_;
  const std::string name_;
  const std::string_view bytes_;
  size_t at_ = 0;
  uint64_t number_ = 0;
  Wire wire_ = Wire::kVarint;
  uint64_t integer_ = 0;
  std::string_view value_;
  std::string field_name_;
};

constexpr int64_t kLastId = static_cast<int64_t>(kMaxVocabulary) - 1;

SentencePieceModel::Piece ReadPiece(ProtoReader reader) {
  SentencePieceModel::Piece piece;
  while (reader.Next()) {
    switch (reader.number()) {
      case 1:
        piece.text = reader.Bytes("piece");
        if (!IsValidUtf8(piece.text)) reader.Fail("is not valid UTF-8");
        break;
      case 2:
        piece.score = reader.Float("score");
        break;
      case 3:
        piece.type = static_cast<TokenType>(reader.Integer("type", 1, 6));
        break;
      default:
        break;
    }
  }
  if (piece.text.empty()) reader.Fail("has no \"piece\"");
  return piece;
}

void ReadTrainer(ProtoReader reader, SentencePieceModel* model, int64_t* unk_id) {
  while (reader.Next()) {
    switch (reader.number()) {
      case 3:
        model->kind = static_cast<SentencePieceModel::Kind>(reader.Integer("model_type", 1, 4));
        if (model->kind > SentencePieceModel::Kind::kBpe) {
          reader.Fail("is words or characters; supported: 1 (unigram), 2 (BPE)");
        }
        break;
      case 24:
        if (reader.Bool("treat_whitespace_as_suffix")) reader.Fail("is not supported");
        break;
      case 35:
        model->byte_fallback = reader.Bool("byte_fallback");
        break;
      case 40:
        *unk_id = reader.Integer("unk_id", 0, kLastId);
        break;
      case 41:
        model->bos_id = reader.Integer("bos_id", -1, kLastId);
        break;
      case 42:
        model->eos_id = reader.Integer("eos_id", -1, kLastId);
        break;
      default:
        break;
    }
  }
}

void ReadNormalizer(ProtoReader reader, SentencePieceModel* model) {
  while (reader.Next()) {
    switch (reader.number()) {
      case 2:
        model->characters = reader.Bytes("precompiled_charsmap");
        break;
      case 3:
        model->add_dummy_prefix = reader.Bool("add_dummy_prefix");
        break;
      case 4:
        model->remove_extra_whitespaces = reader.Bool("remove_extra_whitespaces");
        break;
      case 5:
        if (!reader.Bool("escape_whitespaces")) reader.Fail("= false is not supported");
        break;
      default:
        break;
    }
  }
}

}  // namespace

SentencePieceModel::SentencePieceModel(const std::string& path, std::string_view content) {
  ProtoReader reader(path, "", content);
  std::unordered_set<std::string_view> known;
  int64_t unknown = 0;
  while (reader.Next()) {
    if (reader.number() == 1) {
      const std::string name = "pieces[" + std::to_string(pieces.size()) + "]";
      if (pieces.size() == kMaxVocabulary) {
        ProtoReader(path, "pieces", {})
            .Fail("are more than " + std::to_string(kMaxVocabulary) + ", which is the limit");
      }
      ProtoReader of_piece(path, name, reader.Bytes("pieces"));
      pieces.push_back(ReadPiece(of_piece));
      if (!known.insert(pieces.back().text).second) {
        of_piece.Fail("has the text of another piece");
      }
    } else if (reader.number() == 2) {
      ReadTrainer(ProtoReader(path, "trainer_spec", reader.Bytes("trainer_spec")), this, &unknown);
    } else if (reader.number() == 3) {
      ReadNormalizer(ProtoReader(path, "normalizer_spec", reader.Bytes("normalizer_spec")), this);
    }
  }
  const auto size = static_cast<int64_t>(pieces.size());
  const ProtoReader trainer(path, "trainer_spec", {});
  if (pieces.empty()) ProtoReader(path, "pieces", {}).Fail("are missing");
  if (unknown >= size)
    trainer.Fail("has an \"unk_id\" of " + std::to_string(unknown) + ", which is no piece");
  unk_id = static_cast<size_t>(unknown);
  // As the library has it, ids that are no pieces are as good as none.
  if (bos_id >= size) bos_id = -1;
  if (eos_id >= size) eos_id = -1;
}

}  // namespace mlc_native
