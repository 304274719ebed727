#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bindings/bindings.h"
#include "mlc_native/tokenizer.h"
#include "support/machine_info.h"
#include "support/thread_pool.h"
#include "tokenizer/stop_str_handler.h"
#include "tokenizer/text_streamer.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlc_native::bindings {
namespace {

using TokenTablePtr = std::shared_ptr<const TokenTable>;

// TextStreamer on token ids, as mlc_llm.tokenizers has it.
class TokenTextStreamer {
 public:
  explicit TokenTextStreamer(TokenTablePtr table)
      : table_(std::move(table)), streamer_(table_->strip_leading_space()) {}

  std::string Put(const std::vector<int32_t>& token_ids) {
    std::string text;
    for (int32_t id : token_ids) streamer_.Put(table_->text_bytes(id), &text);
    return text;
  }
  std::string Finish() {
    std::string text;
    streamer_.Finish(&text);
    return text;
  }

 private:
  TokenTablePtr table_;
  TextStreamer streamer_;
};

// StopStrHandler on token ids, as mlc_llm.tokenizers has it.
class TokenStopStrHandler {
 public:
  TokenStopStrHandler(const std::vector<std::string>& stop_strs, TokenTablePtr table)
      : table_(std::move(table)), handler_(std::make_shared<const StopStrSet>(stop_strs)) {}

  std::vector<int32_t> Put(int32_t token_id) {
    std::vector<int32_t> released;
    handler_.Put(token_id, table_->text_bytes(token_id), &text_, &released);
    return released;
  }
  std::vector<int32_t> Finish() {
    std::vector<int32_t> released;
    handler_.Finish(&text_, &released);
    return released;
  }
  bool stop_triggered() const { return handler_.stop_triggered(); }
  nb::bytes TakeText() {
    nb::bytes text(text_.data(), text_.size());
    text_.clear();
    return text;
  }

 private:
  TokenTablePtr table_;
  StopStrHandler handler_;
  std::string text_;
};

// Pairs of characters' positions as spans of bytes. Requires: the pairs ascend.
std::vector<TextSpan> SpansOfCharacters(std::string_view text,
                                        const std::vector<std::pair<size_t, size_t>>& pairs) {
  std::vector<TextSpan> spans;
  size_t character = 0, byte = 0;
  const auto byte_of = [&](size_t wanted) {
    for (; byte < text.size(); ++byte) {
      const bool begins = (static_cast<unsigned char>(text[byte]) & 0xC0) != 0x80;
      if (begins && character++ == wanted) {
        --character;
        break;
      }
    }
    return byte;
  };
  for (const auto& [begin, end] : pairs) {
    const size_t first = byte_of(begin);
    spans.push_back({first, byte_of(end)});
  }
  return spans;
}

std::vector<std::vector<int32_t>> EncodeBatch(const Tokenizer& tokenizer,
                                              const std::vector<std::string>& texts) {
  // Less than this takes about as long as to start a thread.
  constexpr size_t kBytesPerThread = size_t{64} << 10;
  size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  const size_t most = std::min(texts.size(), bytes / kBytesPerThread);
  const auto num_threads = std::clamp<int64_t>(static_cast<int64_t>(most), 1, ComputeCpus());
  std::vector<std::vector<int32_t>> ids(texts.size());
  ThreadPool pool(static_cast<int>(num_threads));
  pool.ParallelFor(std::ssize(texts), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) ids[i] = tokenizer.Encode(texts[i]);
  });
  return ids;
}

std::vector<std::string> SpecialTexts(const Tokenizer& tokenizer) {
  const TokenTablePtr table = tokenizer.token_table();
  std::vector<std::string> texts;
  for (int32_t id = 0; id < table->size(); ++id) {
    if (table->is_special(id)) texts.emplace_back(table->bytes(id));
  }
  return texts;
}

void BindEncoding(nb::module_& m) {
  nb::class_<Tokenizer>(m, "Tokenizer", "The tokenizer of a tokenizer.json. Immutable.")
      .def_static(
          "from_tokenizer_json",
          [](const std::string& path) {
            std::string reason;
            auto tokenizer =
                std::const_pointer_cast<Tokenizer>(Tokenizer::FromTokenizerJson(path, &reason));
            return std::make_pair(std::move(tokenizer), std::move(reason));
          },
          "path"_a, ReleaseGil(),
          "The tokenizer, or None and the part of the file that is not supported. Raises LoadError "
          "for a missing or damaged file.")
      .def(
          "encode",
          [](const Tokenizer& self, const std::string& text) { return self.Encode(text); },
          "text"_a, ReleaseGil(),
          "Token ids of a text. Raises InvalidRequest for one that cannot be encoded.")
      .def(
          "encode_prompt",
          [](const Tokenizer& self, const std::string& text,
             const std::vector<std::pair<size_t, size_t>>& own) {
            return self.Encode(text, SpansOfCharacters(text, own));
          },
          "text"_a, "own"_a, ReleaseGil(),
          "The same with control tokens in these ranges of characters alone.")
      .def(
          "encode_batch",
          [](const Tokenizer& self, const std::vector<std::string>& texts) {
            return EncodeBatch(self, texts);
          },
          "texts"_a, ReleaseGil(),
          "Token ids of each text. Many texts are encoded on all cores that the process may use.")
      .def(
          "decode",
          [](const Tokenizer& self, const std::vector<int32_t>& token_ids, bool skip) {
            return self.Decode(token_ids, skip);
          },
          "token_ids"_a, "skip_special_tokens"_a, ReleaseGil())
      .def("id_of", &Tokenizer::IdOf, "token"_a)
      .def("token_of", &Tokenizer::TokenOf, "token_id"_a)
      .def_prop_ro("special_tokens",
                   [](const Tokenizer& self) {
                     return std::make_pair(self.special_tokens().front, self.special_tokens().back);
                   })
      .def_prop_ro("vocab_size", &Tokenizer::vocab_size)
      .def_prop_ro("most_text_bytes", &Tokenizer::most_text_bytes,
                   "No token stands for more bytes of a text; 0: that is not known.")
      .def_prop_ro("patterns", &Tokenizer::patterns, "The regular expressions of the file.")
      .def_prop_ro("special_texts", &SpecialTexts, "The texts of the special tokens, by id.")
      .def_prop_ro("token_table", [](const Tokenizer& self) {
        return std::const_pointer_cast<TokenTable>(self.token_table());
      });
}

}  // namespace

void BindTokenizer(nb::module_& m) {
  BindEncoding(m);
  nb::class_<TokenTable>(m, "TokenTable", "The bytes of every token id. Immutable.")
      .def_static(
          "from_tokenizer_json",
          [](const std::string& path) {
            return std::const_pointer_cast<TokenTable>(TokenTable::FromTokenizerJson(path));
          },
          "path"_a, ReleaseGil(),
          "Raises LoadError for a missing, damaged or unsupported tokenizer.json.")
      .def_prop_ro("size", &TokenTable::size)
      .def(
          "bytes",
          [](const TokenTable& self, int32_t id) {
            const std::string_view bytes = self.bytes(id);
            return nb::bytes(bytes.data(), bytes.size());
          },
          "token_id"_a)
      .def("is_special", &TokenTable::is_special, "token_id"_a);

  nb::class_<TokenTextStreamer>(m, "TextStreamer", "Token ids to valid UTF-8 text, piece by piece.")
      .def(
          "__init__",
          [](TokenTextStreamer* self, std::shared_ptr<TokenTable> table) {
            new (self) TokenTextStreamer(std::move(table));
          },
          "token_table"_a)
      .def("put", &TokenTextStreamer::Put, "token_ids"_a, nb::lock_self())
      .def("finish", &TokenTextStreamer::Finish, nb::lock_self());

  nb::class_<TokenStopStrHandler>(m, "StopStrHandler",
                                  "Withholds what may belong to a stop string.")
      .def(
          "__init__",
          [](TokenStopStrHandler* self, const std::vector<std::string>& stop_strs,
             std::shared_ptr<TokenTable> table) {
            new (self) TokenStopStrHandler(stop_strs, std::move(table));
          },
          "stop_strs"_a, "token_table"_a)
      .def("put", &TokenStopStrHandler::Put, "token_id"_a, nb::lock_self(),
           "Returns the token ids that are released.")
      .def("finish", &TokenStopStrHandler::Finish, nb::lock_self())
      .def("take_text", &TokenStopStrHandler::TakeText, nb::lock_self(),
           "Bytes released since the last call, cut exactly before a stop string.")
      .def_prop_ro("stop_triggered", &TokenStopStrHandler::stop_triggered, nb::lock_self());
}

}  // namespace mlc_native::bindings
