#include "c_api/raw_json.h"

#include "support/json.h"

namespace mlc_native::c_api {
namespace {

// Walks through a text that is known to be JSON.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  char Peek() {
    at_ = text_.find_first_not_of(" \t\r\n", at_);
    return text_[at_];
  }
  void Skip(char expected) {
    if (Peek() == expected) ++at_;
  }
  std::string_view TakeValue() {
    Peek();
    const size_t begin = at_;
    int depth = 0;
    do {
      const char c = Peek();
      if (c == '"') {
        SkipString();
      } else if (c == '{' || c == '[') {
        ++depth;
        ++at_;
      } else if (c == '}' || c == ']') {
        --depth;
        ++at_;
      } else if (c == ',' || c == ':') {
        ++at_;
      } else {
        at_ = text_.find_first_of(" \t\r\n,:]}", at_);
        if (at_ == text_.npos) at_ = text_.size();
      }
    } while (depth > 0);
    return text_.substr(begin, at_ - begin);
  }

 private:
  void SkipString() {
    for (++at_; text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\') ++at_;
    }
    ++at_;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

RawMembers ReadRawMembers(std::string_view object) {
  RawMembers members;
  Cursor cursor(object);
  cursor.Skip('{');
  while (cursor.Peek() != '}') {
    std::string name = ParseJson(cursor.TakeValue()).AsString();
    cursor.Skip(':');
    members.emplace_back(std::move(name), cursor.TakeValue());
    cursor.Skip(',');
  }
  return members;
}

std::string_view FindRaw(const RawMembers& members, std::string_view name) {
  std::string_view found = "null";
  for (const auto& [member, value] : members) {
    if (member == name) found = value;
  }
  return found;
}

std::vector<std::string_view> ReadRawItems(std::string_view array) {
  std::vector<std::string_view> items;
  Cursor cursor(array);
  cursor.Skip('[');
  while (cursor.Peek() != ']') {
    items.push_back(cursor.TakeValue());
    cursor.Skip(',');
  }
  return items;
}

}  // namespace mlc_native::c_api
