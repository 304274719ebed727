#include "template/lexer.h"

#include <algorithm>
#include <array>

#include "template/template_error.h"
#include "template/unicode.h"

namespace mlc_native::templates {
namespace {

constexpr size_t kMaxTokens = 20'000;
constexpr size_t kNowhere = std::string_view::npos;

bool IsWordChar(char c) { return IsAsciiLetter(c) || IsAsciiDigit(c) || c == '_'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> Read() {
    while (at_ < source_.size()) ReadData();
    Add(TokenKind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void Fail(const std::string& message) const {
    throw TemplateError(TemplateError::Kind::kSyntax, message, line_);
  }

  std::string_view rest() const { return source_.substr(at_); }

  void Add(TokenKind kind, std::string_view text) {
    if (tokens_.size() > kMaxTokens) Fail("it has more than 20000 tokens");
    tokens_.push_back({kind, text, line_});
  }

  // Moves behind some bytes.
  void Skip(size_t count) {
    if (count == 0) return;
    line_ += static_cast<int>(std::ranges::count(source_.substr(at_, count), '\n'));
    at_ += count;
    at_line_start_ = source_[at_ - 1] == '\n';
  }

  // A tag of its kind may strip the white space on its left: the sign behind its opening brace.
  char SignBehind(size_t brace) const {
    const char sign = brace + 2 < source_.size() ? source_[brace + 2] : ' ';
    return sign == '-' || sign == '+' ? sign : ' ';
  }

  size_t FindTag() const {
    for (size_t found = source_.find('{', at_); found != kNowhere;
         found = source_.find('{', found + 1)) {
      const char next = found + 1 < source_.size() ? source_[found + 1] : ' ';
      if (next == '{' || next == '%' || next == '#') return found;
    }
    return kNowhere;
  }

  // The text up to a tag, without what the tag strips.
  std::string_view TextBefore(size_t tag) const {
    std::string_view text = source_.substr(at_, tag - at_);
    const char sign = SignBehind(tag);
    if (sign == '-') {
      text.remove_suffix(TrailingSpace(text));
    } else if (sign == ' ' && source_[tag + 1] != '{') {
      const size_t newline = text.rfind('\n');
      const size_t start = newline == kNowhere ? 0 : newline + 1;
      const std::string_view indent = text.substr(start);
      if ((start > 0 || at_line_start_) && LeadingSpace(indent) == indent.size()) {
        text = text.substr(0, start);
      }
    }
    return text;
  }

  void ReadData() {
    const size_t tag = FindTag();
    if (tag == kNowhere) {
      Add(TokenKind::kData, rest());
      return Skip(rest().size());
    }
    const std::string_view text = TextBefore(tag);
    if (!text.empty()) Add(TokenKind::kData, text);
    Skip(tag - at_);
    if (source_[tag + 1] == '#') return ReadComment();
    if (source_[tag + 1] == '%' && ReadRaw()) return;
    const bool is_block = source_[tag + 1] == '%';
    Add(is_block ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, source_.substr(tag, 2));
    Skip(SignBehind(tag) == ' ' ? 2 : 3);
    ReadTag(is_block);
  }

  // The end of a tag at a place: how many bytes it has with the white space that it strips; 0 if
  // there is none.
  size_t EndOfTag(size_t at, std::string_view brace, bool trims) const {
    const std::string_view text = source_.substr(at);
    const auto ends = [&](std::string_view sign) {
      return text.starts_with(sign) && text.substr(sign.size()).starts_with(brace);
    };
    if (ends("-")) return 3 + LeadingSpace(text.substr(3));
    if (ends("+") && trims) return 3;
    if (!ends("")) return 0;
    return trims && text.substr(2).starts_with('\n') ? 3 : 2;
  }

  void ReadComment() {
    Skip(SignBehind(at_) == ' ' ? 2 : 3);
    for (size_t found = source_.find("#}", at_); found != kNowhere;
         found = source_.find("#}", found + 1)) {
      const bool signed_end =
          found > at_ && (source_[found - 1] == '-' || source_[found - 1] == '+');
      const size_t begin = signed_end ? found - 1 : found;
      return Skip(begin - at_ + EndOfTag(begin, "#}", true));
    }
    Fail("Missing end of comment tag");
  }

  // Reads {% raw %} ... {% endraw %}; false if the tag at this place is another one.
  bool ReadRaw() {
    size_t at = at_ + (SignBehind(at_) == ' ' ? 2 : 3);
    at = SkipSpace(at);
    if (!source_.substr(at).starts_with("raw")) return false;
    at = SkipSpace(at + 3);
    const size_t size = EndOfTag(at, "%}", false);
    if (size == 0) return false;
    Skip(at + size - at_);
    for (size_t tag = source_.find("{%", at_); tag != kNowhere; tag = source_.find("{%", tag + 1)) {
      size_t end = SkipSpace(tag + (SignBehind(tag) == ' ' ? 2 : 3));
      if (!source_.substr(end).starts_with("endraw")) continue;
      end = SkipSpace(end + 6);
      const size_t end_size = EndOfTag(end, "%}", true);
      if (end_size == 0) continue;
      const std::string_view text = TextBefore(tag);
      if (!text.empty()) Add(TokenKind::kData, text);
      Skip(end + end_size - at_);
      return true;
    }
    Fail("Missing end of raw directive");
  }

  size_t SkipSpace(size_t at) const { return at + LeadingSpace(source_.substr(at)); }

  void ReadTag(bool is_block) {
    const std::string_view brace = is_block ? "%}" : "}}";
    while (at_ < source_.size()) {
      if (brackets_.empty()) {
        if (const size_t size = EndOfTag(at_, brace, is_block)) {
          Add(is_block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, brace);
          return Skip(size);
        }
      }
      if (const size_t space = LeadingSpace(rest())) {
        Skip(space);
      } else {
        ReadToken();
      }
    }
    Fail("unexpected end of template");
  }

  void ReadToken() {
    const char c = rest()[0];
    if (IsAsciiDigit(c)) return ReadNumber();
    if (IsWordChar(c)) {
      size_t size = 1;
      while (size < rest().size() && IsWordChar(rest()[size])) ++size;
      return Take(TokenKind::kName, size);
    }
    if (c == '\'' || c == '"') return ReadString(c);
    if (static_cast<uint8_t>(c) >= 0x80) {
      throw TemplateError(TemplateError::Kind::kNotSupported, "a name that is not ASCII", line_);
    }
    ReadOperator();
  }

  void Take(TokenKind kind, size_t size) {
    Add(kind, rest().substr(0, size));
    Skip(size);
  }

  size_t DigitsAt(size_t at) const {
    size_t end = at;
    while (end < source_.size() && (IsAsciiDigit(source_[end]) || source_[end] == '_')) ++end;
    return end - at;
  }

  void ReadNumber() {
    const auto at = [&](size_t i) { return at_ + i < source_.size() ? source_[at_ + i] : ' '; };
    size_t size = DigitsAt(at_);
    const bool may_be_float = at_ == 0 || source_[at_ - 1] != '.';
    bool is_float = false;
    if (may_be_float && at(size) == '.' && IsAsciiDigit(at(size + 1))) {
      size += 1 + DigitsAt(at_ + size + 1);
      is_float = true;
    }
    if (may_be_float && (at(size) == 'e' || at(size) == 'E')) {
      const size_t sign = at(size + 1) == '-' || at(size + 1) == '+' ? 1 : 0;
      if (IsAsciiDigit(at(size + 1 + sign))) {
        size += 1 + sign + DigitsAt(at_ + size + 1 + sign);
        is_float = true;
      }
    }
    if (IsWordChar(at(size)) || rest().substr(0, size).find('_') != kNowhere ||
        (!is_float && size > 1 && at(0) == '0')) {
      throw TemplateError(TemplateError::Kind::kNotSupported,
                          "a number that is written in such a way", line_);
    }
    Take(is_float ? TokenKind::kFloat : TokenKind::kInteger, size);
  }

  void ReadString(char quote) {
    size_t end = 1;
    while (end < rest().size() && rest()[end] != quote) end += rest()[end] == '\\' ? 2 : 1;
    if (end >= rest().size()) Fail("a text has no end");
    Take(TokenKind::kString, end + 1);
  }

  void ReadOperator() {
    static constexpr std::array<std::string_view, 6> kLong{"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,;";
    const auto is_long = [&](std::string_view operation) { return rest().starts_with(operation); };
    if (std::ranges::any_of(kLong, is_long)) return Take(TokenKind::kOperator, 2);
    const char c = rest()[0];
    if (kShort.find(c) == kNowhere) Fail(std::string("unexpected char '") + c + "'");
    if (c == '(' || c == '[' || c == '{') {
      if (brackets_.size() > 500) Fail("its brackets are nested too deep");
      brackets_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets_.empty() || brackets_.back() != c) Fail(std::string("unexpected '") + c + "'");
      brackets_.pop_back();
    }
    Take(TokenKind::kOperator, 1);
  }

  const std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::string brackets_;  // that are open: how each of them closes
  std::vector<Token> tokens_;
};

}  // namespace

std::string NormalizeLines(std::string_view source) {
  std::string lines;
  lines.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    const bool is_pair = source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n';
    if (!is_pair) lines += source[i] == '\r' ? '\n' : source[i];
  }
  if (lines.ends_with('\n')) lines.pop_back();
  return lines;
}

std::vector<Token> ReadTokens(std::string_view source) { return Lexer(source).Read(); }

}  // namespace mlc_native::templates
