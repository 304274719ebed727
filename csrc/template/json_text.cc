#include "template/json_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "template/dict.h"
#include "template/python_text.h"
#include "template/unicode.h"

namespace mlc_native::templates {
namespace {

class JsonTextWriter {
 public:
  JsonTextWriter(Rendering& rendering, const JsonTextOptions& options)
      : rendering_(rendering), options_(options) {}

  void Write(const Value& value, int depth) {
    rendering_.Visit(depth);
    rendering_.arena().ReserveText(out_.size());
    switch (value.kind) {
      case Kind::kText:
        foreign_ = foreign_ || value.text->foreign;
        return Quote(value.text->bytes);
      case Kind::kList:
      case Kind::kTuple:
        foreign_ = foreign_ || value.list->given;
        return Items(value.list->items, depth);
      case Kind::kDict:
        foreign_ = foreign_ || value.dict->given;
        return Members(*value.dict, depth);
      default:
        out_ += Scalar(value);
    }
  }

  std::string TakeText() { return std::move(out_); }
  bool foreign() const { return foreign_; }

 private:
  std::string Scalar(const Value& value) {
    switch (value.kind) {
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return value.boolean ? "true" : "false";
      case Kind::kInt:
        return std::to_string(value.integer);
      case Kind::kFloat:
        if (std::isnan(value.real)) return "NaN";
        if (std::isinf(value.real)) return value.real < 0 ? "-Infinity" : "Infinity";
        return FloatText(value.real);
      default:
        rendering_.Fail(std::string("Object of type ") + TypeName(value) +
                        " is not JSON serializable");
    }
  }

  void Items(std::span<const Value> items, int depth) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    bool first = true;
    for (const Value& item : items) {
      Separate(&first, depth + 1);
      Write(item, depth + 1);
    }
    NewLine(depth);
    out_ += ']';
  }

  void Members(const Dict& dict, int depth) {
    if (dict.size() == 0) {
      out_ += "{}";
      return;
    }
    out_ += '{';
    bool first = true;
    const auto write = [&](const DictEntry& entry) {
      Separate(&first, depth + 1);
      if (entry.key.is_text()) {
        foreign_ = foreign_ || entry.key.text->foreign;
        Quote(entry.key.text->bytes);
      } else {
        Quote(Scalar(entry.key));
      }
      out_ += options_.key_separator;
      Write(entry.value, depth + 1);
    };
    if (options_.sort_keys) {
      for (const DictEntry* entry : Sorted(dict)) write(*entry);
    } else {
      std::ranges::for_each(dict.entries(), write);
    }
    NewLine(depth);
    out_ += '}';
  }

  std::vector<const DictEntry*> Sorted(const Dict& dict) {
    std::vector<const DictEntry*> sorted;
    for (const DictEntry& entry : dict.entries()) {
      if (!entry.key.is_text())
        rendering_.NotSupported("tojson(sort_keys) of keys that are no texts");
      sorted.push_back(&entry);
    }
    std::ranges::sort(sorted, {}, [](const DictEntry* entry) { return entry->key.text->bytes; });
    rendering_.Pay(static_cast<int64_t>(sorted.size()) * 4);
    return sorted;
  }

  void Separate(bool* first, int depth) {
    if (!*first) out_ += options_.item_separator;
    *first = false;
    NewLine(depth);
  }

  void NewLine(int depth) {
    if (!options_.indent) return;
    out_ += '\n';
    rendering_.arena().ReserveText(out_.size() +
                                   static_cast<size_t>(depth) * options_.indent->size());
    for (int i = 0; i < depth; ++i) out_ += *options_.indent;
  }

  void Quote(std::string_view text) {
    rendering_.PayBytes(text.size());
    out_ += '"';
    size_t plain = 0;  // where the bytes begin that are written as they are
    for (size_t at = 0; at < text.size();) {
      const auto byte = static_cast<uint8_t>(text[at]);
      if (byte >= 0x20 && byte != '"' && byte != '\\' && (byte < 0x7F || !options_.ensure_ascii)) {
        ++at;
        continue;
      }
      out_ += text.substr(plain, at - plain);
      Escape(NextCodePoint(text, &at));
      plain = at;
    }
    out_ += text.substr(plain);
    out_ += '"';
  }

  void Escape(uint32_t code_point) {
    static constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b";
    static constexpr std::string_view kNames = "\"\\nrtfb";
    const size_t known =
        code_point < 0x80 ? kEscaped.find(static_cast<char>(code_point)) : std::string_view::npos;
    if (known != std::string_view::npos) {
      out_ += '\\';
      out_ += kNames[known];
    } else if (code_point < 0x10000) {
      Unit(code_point);
    } else {
      Unit(0xD800 + ((code_point - 0x10000) >> 10));
      Unit(0xDC00 + ((code_point - 0x10000) & 0x3FF));
    }
  }

  void Unit(uint32_t unit) {
    char escape[16];
    std::snprintf(escape, sizeof(escape), "\\u%04x", unit);
    out_ += escape;
  }

  Rendering& rendering_;
  const JsonTextOptions& options_;
  std::string out_;
  bool foreign_ = false;
};

}  // namespace

std::string JsonText(Rendering& rendering, const Value& value, const JsonTextOptions& options,
                     bool* foreign) {
  JsonTextWriter writer(rendering, options);
  writer.Write(value, 0);
  *foreign = *foreign || writer.foreign();
  return writer.TakeText();
}

}  // namespace mlc_native::templates
