// SentencePieceModel is what a model file of SentencePiece says (ModelProto of
// sentencepiece_model.proto, in protobuf's wire format).
//
// Every length is checked against the file before it is used, and every field against what it may
// be; fields of other names are passed over. A damaged or hostile file throws LoadError, which
// names the file and the field. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model_files/vocabulary.h"

namespace mlc_native {

struct SentencePieceModel {
  enum class Kind : uint8_t { kUnigram = 1, kBpe = 2, kWord = 3, kCharacter = 4 };
  struct Piece {
    std::string_view text;
    float score = 0.0F;
    TokenType type = TokenType::kNormal;
  };

  // `content` is that of the file `path`; the texts are its.
  SentencePieceModel(const std::string& path, std::string_view content);

  std::vector<Piece> pieces;
  Kind kind = Kind::kUnigram;
  bool byte_fallback = false;
  size_t unk_id = 0;
  int64_t bos_id = 1;  // -1: none; so is the one below
  int64_t eos_id = 2;
  std::string_view characters;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
};

}  // namespace mlc_native
