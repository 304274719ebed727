#include "grammar/regex.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "support/utf8.h"

namespace mlc_native {
namespace {

using Kind = RegexNode::Kind;

// ---- matching: the regex as a program that is run on all of its states at once

struct Instruction {
  enum class Op : uint8_t { kCharacter, kSplit, kStart, kEnd, kMatch };
  Op op = Op::kMatch;
  const RegexNode* node = nullptr;  // of kCharacter
  size_t next = 0;
  size_t other = 0;  // of kSplit
};

// Writes instructions from the last one to the first, so that each knows the next.
class RegexProgram {
 public:
  explicit RegexProgram(const RegexNode& root) { start_ = Add(root, Put({})); }

  bool IsFoundIn(std::string_view text) const {
    std::vector<size_t> active;
    std::vector<size_t> seen(code_.size(), 0);
    const std::u32string characters = DecodeUtf8(text).value_or(U"");
    for (size_t at = 0; at <= characters.size(); ++at) {
      const bool is_first = at == 0, is_last = at == characters.size();
      std::vector<size_t> stack = std::exchange(active, {});
      stack.push_back(start_);  // a match may begin here
      while (!stack.empty()) {
        const size_t here = stack.back();
        stack.pop_back();
        if (std::exchange(seen[here], at + 1) == at + 1) continue;
        const Instruction& step = code_[here];
        using Op = Instruction::Op;
        if (step.op == Op::kMatch) return true;
        if (step.op == Op::kSplit) stack.insert(stack.end(), {step.next, step.other});
        if (step.op == Op::kStart && is_first) stack.push_back(step.next);
        if (step.op == Op::kEnd && is_last) stack.push_back(step.next);
        if (step.op == Op::kCharacter && !is_last && Has(*step.node, characters[at])) {
          active.push_back(step.next);
        }
      }
    }
    return false;
  }

 private:
  static bool Has(const RegexNode& node, uint32_t c) {
    return std::ranges::any_of(
        node.ranges, [c](const CodeRange& range) { return c >= range.low && c <= range.high; });
  }

  size_t Put(Instruction instruction) {
    code_.push_back(instruction);
    return code_.size() - 1;
  }

  // Returns where the part begins, which `next` follows.
  size_t Add(const RegexNode& node, size_t next) {
    using Op = Instruction::Op;
    switch (node.kind) {
      case Kind::kCharacter:
        return Put({Op::kCharacter, &node, next});
      case Kind::kStart:
        return Put({Op::kStart, nullptr, next});
      case Kind::kEnd:
        return Put({Op::kEnd, nullptr, next});
      case Kind::kSequence:
        for (size_t i = node.parts.size(); i-- > 0;) next = Add(node.parts[i], next);
        return next;
      case Kind::kEither: {
        size_t first = Add(node.parts.back(), next);
        for (size_t i = node.parts.size() - 1; i-- > 0;) {
          first = Put({Op::kSplit, nullptr, Add(node.parts[i], next), first});
        }
        return first;
      }
      case Kind::kRepeat:
        return AddRepeat(node, next);
    }
    return next;
  }

  size_t AddRepeat(const RegexNode& node, size_t next) {
    using Op = Instruction::Op;
    const RegexNode& part = node.parts[0];
    if (node.most < 0) {
      const size_t loop = Put({Op::kSplit, nullptr, 0, next});
      code_[loop].next = Add(part, loop);
      next = loop;
    } else {
      const size_t after = next;
      for (int64_t i = node.least; i < node.most; ++i) {
        next = Put({Op::kSplit, nullptr, Add(part, next), after});
      }
    }
    for (int64_t i = 0; i < node.least; ++i) next = Add(part, next);
    return next;
  }

  std::vector<Instruction> code_;
  size_t start_ = 0;
};

// ---- writing

// Where the first character of each length in UTF-8, and of each run of valid ones, is: the library
// lets a class that spans several have bytes that are no UTF-8.
constexpr CodeRange kOneLength[] = {{0, 0x7F},          {0x80, 0x7FF},      {0x800, 0xFFF},
                                    {0x1000, 0xCFFF},   {0xD000, 0xD7FF},   {0xE000, 0xFFFF},
                                    {0x10000, 0x3FFFF}, {0x40000, 0xFFFFF}, {0x100000, 0x10FFFF}};
// What stands for itself in a JSON string, among the first 128.
constexpr CodeRange kUnescaped[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7F}};

void AppendCode(uint32_t code, std::string* out) {
  constexpr std::string_view kSpecial = "\\^$.*+?()[]{}|/-";
  if (code >= 0x20 && code < 0x7F) {
    if (kSpecial.find(static_cast<char>(code)) != kSpecial.npos) *out += '\\';
    *out += static_cast<char>(code);
    return;
  }
  char text[16];
  const char* form = code > 0xFFFF ? "\\u{%X}" : "\\u%04X";
  std::snprintf(text, sizeof(text), form, static_cast<unsigned>(code));
  *out += text;
}

class PatternWriter {
 public:
  explicit PatternWriter(Regex::Place place) : place_(place) {}

  // What a part matches when nothing (is_first) or something may be before it, and after it.
  // Returns nullopt if it never matches.
  std::optional<std::string> Write(const RegexNode& node, bool is_first, bool is_last) {
    switch (node.kind) {
      case Kind::kCharacter:
        return Class(node);
      case Kind::kStart:
        if (!is_first) fits_ = false;
        return "";
      case Kind::kEnd:
        if (!is_last) fits_ = false;
        return "";
      case Kind::kSequence:
        return Sequence(node, is_first, is_last);
      case Kind::kEither: {
        std::string text;
        bool matches = false;
        for (const RegexNode& part : node.parts) {
          const std::optional<std::string> written = Write(part, is_first, is_last);
          if (!written) continue;
          text += (matches ? "|" : "(") + *written;
          matches = true;
        }
        if (!matches) return std::nullopt;
        return text + ')';
      }
      case Kind::kRepeat:
        return Repeat(node);
    }
    return std::nullopt;
  }

  // No anchor was in the middle.
  bool fits() const { return fits_; }

 private:
  std::optional<std::string> Class(const RegexNode& node) const {
    std::vector<std::string> classes;
    for (const CodeRange& length : kOneLength) {
      std::string inside;
      const bool is_json_ascii = place_ == Regex::Place::kJsonString && length.low == 0;
      for (const CodeRange& range : node.ranges) {
        const auto add = [&](const CodeRange& limit) {
          const uint32_t low = std::max(range.low, limit.low);
          const uint32_t high = std::min(range.high, limit.high);
          if (low > high) return;
          AppendCode(low, &inside);
          if (high > low) {
            inside += '-';
            AppendCode(high, &inside);
          }
        };
        if (is_json_ascii) {
          for (const CodeRange& unescaped : kUnescaped) add(unescaped);
        } else {
          add(length);
        }
      }
      if (inside.empty()) continue;
      const bool is_one = node.ranges.size() == 1 && node.ranges[0].low == node.ranges[0].high;
      classes.push_back(is_one ? inside : '[' + inside + ']');
    }
    if (classes.empty()) return std::nullopt;
    if (classes.size() == 1) return classes[0];
    std::string text = "(" + classes[0];
    for (size_t i = 1; i < classes.size(); ++i) text += '|' + classes[i];
    return text + ')';
  }

  std::optional<std::string> Sequence(const RegexNode& node, bool is_first, bool is_last) {
    std::string text;
    const auto is_anchor = [](const RegexNode& part) {
      return part.kind == Kind::kStart || part.kind == Kind::kEnd;
    };
    for (size_t i = 0; i < node.parts.size(); ++i) {
      const auto begin = node.parts.begin(), here = begin + static_cast<std::ptrdiff_t>(i);
      const std::optional<std::string> part =
          Write(*here, is_first && std::all_of(begin, here, is_anchor),
                is_last && std::all_of(here + 1, node.parts.end(), is_anchor));
      if (!part) return std::nullopt;
      text += *part;
    }
    return text;
  }

  std::optional<std::string> Repeat(const RegexNode& node) {
    const std::optional<std::string> part = Write(node.parts[0], false, false);
    if (!part) return node.least == 0 ? std::optional<std::string>("") : std::nullopt;
    if (part->empty() || node.most == 0) return "";
    const RegexNode& inside = node.parts[0];
    const bool is_one = inside.kind == Kind::kCharacter && part->front() != '(';
    std::string text = is_one ? *part : '(' + *part + ')';
    if (node.most < 0 && node.least <= 1) return text + (node.least == 0 ? '*' : '+');
    // The library lets "(ab*)?" match "b", and not "(ab*){0,1}".
    if (is_one && node.most == 1 && node.least == 0) return text + '?';
    text += '{' + std::to_string(node.least);
    if (node.most != node.least) text += ',';
    if (node.most > node.least) text += std::to_string(node.most);
    return text + '}';
  }

  const Regex::Place place_;
  bool fits_ = true;
};

Regex::Lengths LengthsOf(const RegexNode& node) {
  switch (node.kind) {
    case Kind::kCharacter:
      return {1, 1};
    case Kind::kStart:
    case Kind::kEnd:
      return {0, 0};
    case Kind::kSequence: {
      Regex::Lengths all{0, 0};
      for (const RegexNode& part : node.parts) {
        const Regex::Lengths one = LengthsOf(part);
        all.least += one.least;
        all.most = all.most < 0 || one.most < 0 ? -1 : all.most + one.most;
      }
      return all;
    }
    case Kind::kEither: {
      Regex::Lengths any = LengthsOf(node.parts[0]);
      for (const RegexNode& part : node.parts) {
        const Regex::Lengths one = LengthsOf(part);
        any.least = std::min(any.least, one.least);
        any.most = any.most < 0 || one.most < 0 ? -1 : std::max(any.most, one.most);
      }
      return any;
    }
    case Kind::kRepeat: {
      const Regex::Lengths one = LengthsOf(node.parts[0]);
      const bool is_bounded = one.most == 0 || (one.most > 0 && node.most >= 0);
      return {one.least * node.least, is_bounded ? one.most * std::max<int64_t>(node.most, 0) : -1};
    }
  }
  return {0, -1};
}

}  // namespace

bool Regex::IsFoundIn(std::string_view text) const { return RegexProgram(root_).IsFoundIn(text); }

std::optional<std::string> Regex::ForLibrary(Place place) const {
  PatternWriter writer(place);
  const std::optional<std::string> text = writer.Write(root_, true, true);
  if (!text || !writer.fits()) return std::nullopt;
  return '^' + *text + '$';
}

Regex::Lengths Regex::lengths() const { return LengthsOf(root_); }

std::optional<Regex> Regex::WithLengths(int64_t least, int64_t most) const {
  const Lengths now = lengths();
  const bool fits = most < 0 || (now.most >= 0 && now.most <= most);
  if (now.least >= least && fits) return *this;
  Regex limited = *this;
  RegexNode* repeat = &limited.root_;
  std::vector<RegexNode>* parts = &limited.root_.parts;
  if (repeat->kind == Kind::kSequence) {
    std::erase_if(*parts, [](const RegexNode& part) {
      return part.kind == Kind::kStart || part.kind == Kind::kEnd;
    });
    if (parts->size() != 1) return std::nullopt;
    repeat = &parts->front();
  }
  if (repeat->kind != Kind::kRepeat || repeat->parts[0].kind != Kind::kCharacter) {
    const bool is_group = repeat->kind == Kind::kRepeat && repeat->parts[0].parts.size() == 1 &&
                          repeat->parts[0].parts[0].kind == Kind::kCharacter;
    if (!is_group) return std::nullopt;
  }
  repeat->least = std::max(repeat->least, least);
  if (most >= 0 && (repeat->most < 0 || repeat->most > most)) repeat->most = most;
  if (repeat->most >= 0 && repeat->least > repeat->most) return std::nullopt;
  return limited;
}

std::optional<std::string> PatternOfOthers(const std::vector<std::string>& texts) {
  size_t size = 0;
  for (const std::string& text : texts) size += text.size() * (text.size() + 1);
  if (size > static_cast<size_t>(kMaxRegexSize)) return std::nullopt;
  // What may follow each beginning of a text.
  std::map<std::u32string, std::set<uint32_t>> following;
  std::set<std::u32string> whole;
  following[U""];
  for (const std::string& text : texts) {
    const std::u32string characters = DecodeUtf8(text).value_or(U"");
    for (size_t i = 0; i < characters.size(); ++i) {
      following[characters.substr(0, i)].insert(characters[i]);
      following[characters.substr(0, i + 1)];
    }
    whole.insert(characters);
  }
  const auto write = [](std::vector<CodeRange> ranges) {
    const RegexNode node{.kind = Kind::kCharacter, .ranges = std::move(ranges)};
    return PatternWriter(Regex::Place::kJsonString).Write(node, false, false);
  };
  constexpr uint32_t kAscii = 0x80, kLast = 0x10FFFF;
  const std::string any = *write({{0, kLast}}), wide = *write({{kAscii, kLast}});
  std::string beginnings, others, followed_by_wide;  // alternatives
  const auto add = [](std::string_view part, std::string* to) {
    *to += (to->empty() ? "" : "|") + std::string(part);
  };
  for (const auto& [start, next] : following) {
    std::string beginning;
    bool is_plain = true;  // without what JSON escapes; else no such string begins with it
    for (const uint32_t c : start) {
      const std::optional<std::string> written = write({{c, c}});
      is_plain = is_plain && written;
      beginning += written.value_or("");
    }
    if (!is_plain) continue;
    if (!whole.contains(start)) add(start.empty() ? "()" : beginning, &beginnings);
    std::vector<CodeRange> rest;
    uint32_t from = 0;
    for (const uint32_t c : next) {
      if (c > from) rest.push_back({from, c - 1});
      from = c + 1;
    }
    if (from < kAscii) rest.push_back({from, kAscii - 1});
    const bool has_wide = !next.empty() && *next.rbegin() >= kAscii;
    if (has_wide && from <= kLast) rest.push_back({from, kLast});
    if (const auto written = write(rest)) add(beginning + *written, &others);
    if (!has_wide) add(start.empty() ? "()" : beginning, &followed_by_wide);
  }
  if (!followed_by_wide.empty()) add('(' + followed_by_wide + ')' + wide, &others);
  return "^((" + others + ')' + any + '*' + (beginnings.empty() ? "" : '|' + beginnings) + ")$";
}

}  // namespace mlc_native
