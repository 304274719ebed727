// From the parts of an expression to the automaton: instructions with alternatives in the order of
// preference, then a state for each list of instructions that can be reached.
#include "tokenizer/text_regex.h"

#include <algorithm>
#include <map>
#include <utility>

namespace mlc_native {
namespace {

using Kind = RegexPart::Kind;

constexpr size_t kMaxSets = 62;
constexpr size_t kMaxClasses = 63;  // and the end of the text
constexpr size_t kMaxInstructions = 4000;
constexpr size_t kMaxStates = 2000;
constexpr size_t kMaxBuildSteps = 1'000'000;
// A match of a known expression reads its own characters and those of a run behind it.
constexpr size_t kMaxReads = 16;
constexpr size_t kFreeReads = size_t{64} << 10;

[[noreturn]] void TooLarge() { throw UnsupportedPattern("a regular expression that is too large"); }

struct Instruction {
  enum class Op : uint8_t { kChar, kSplit, kCheck, kMatch };
  Op op;
  uint64_t classes = 0;  // kChar, kCheck: a bit per class
  size_t next = 0;
  size_t other = 0;  // kSplit: less preferred than `next`
};

}  // namespace

class RegexBuilder {
 public:
  RegexBuilder(const RegexPart& root, TextRegex* regex) : regex_(*regex) {
    CollectSets(root);
    MakeClasses();
    regex_.is_run_ = IsRun(root);
    const size_t match = Add({.op = Instruction::Op::kMatch});
    start_ = Compile(root, match);
    MakeStates();
  }

 private:
  using Op = Instruction::Op;
  using State = std::vector<size_t>;  // instructions

  static bool IsRun(const RegexPart& root) {
    if (root.kind != Kind::kEither || root.parts.size() != 1) return false;
    const std::vector<RegexPart>& parts = root.parts[0].parts;
    if (parts.empty() || parts[0].kind != Kind::kRepeat || parts[0].most != -1) return false;
    return parts[0].parts[0].kind == Kind::kSet &&
           std::all_of(parts.begin() + 1, parts.end(), [](const RegexPart& part) {
             return part.kind == Kind::kNextIs || part.kind == Kind::kNextIsNot;
           });
  }

  // ---- classes of characters ----

  void CollectSets(const RegexPart& part) {
    if (part.kind == Kind::kSet || part.kind == Kind::kNextIs || part.kind == Kind::kNextIsNot) {
      if (IndexOf(part.set) == sets_.size()) sets_.push_back(&part.set);
      if (sets_.size() > kMaxSets) TooLarge();
    }
    for (const RegexPart& inner : part.parts) CollectSets(inner);
  }

  size_t IndexOf(const CharRanges& set) const {
    const auto equal = [](const CharRange& a, const CharRange& b) {
      return a.first == b.first && a.last == b.last;
    };
    const auto same = [&](const CharRanges* other) {
      return std::equal(set.begin(), set.end(), other->begin(), other->end(), equal);
    };
    return static_cast<size_t>(std::find_if(sets_.begin(), sets_.end(), same) - sets_.begin());
  }

  // Characters that are in the same sets are of one class.
  void MakeClasses() {
    std::vector<std::pair<char32_t, uint64_t>> borders;  // where a set begins or ends
    for (size_t i = 0; i < sets_.size(); ++i) {
      for (const CharRange& range : *sets_[i]) {
        borders.emplace_back(range.first, uint64_t{1} << i);
        borders.emplace_back(range.last + 1, uint64_t{1} << i);
      }
    }
    std::ranges::sort(borders, {}, &std::pair<char32_t, uint64_t>::first);
    std::vector<std::pair<char32_t, uint8_t>> runs = {{0, ClassOfSets(0)}};
    uint64_t in_sets = 0;
    for (size_t i = 0; i < borders.size();) {
      const char32_t at = borders[i].first;
      for (; i < borders.size() && borders[i].first == at; ++i) in_sets ^= borders[i].second;
      if (at > kMaxCodePoint) break;
      runs.emplace_back(at, ClassOfSets(in_sets));
    }
    FillPages(runs);
    regex_.num_classes_ = static_cast<uint32_t>(class_sets_.size()) + 1;
  }

  uint8_t ClassOfSets(uint64_t in_sets) {
    const auto found = std::ranges::find(class_sets_, in_sets);
    const auto index = static_cast<size_t>(found - class_sets_.begin());
    if (found == class_sets_.end()) class_sets_.push_back(in_sets);
    if (class_sets_.size() > kMaxClasses) TooLarge();
    return static_cast<uint8_t>(index);
  }

  void FillPages(const std::vector<std::pair<char32_t, uint8_t>>& runs) {
    std::map<std::vector<uint8_t>, uint16_t> known;
    std::vector<uint8_t> page(256);
    size_t run = 0;
    for (char32_t first = 0; first <= kMaxCodePoint; first += 256) {
      for (char32_t i = 0; i < 256; ++i) {
        while (run + 1 < runs.size() && runs[run + 1].first <= first + i) ++run;
        page[i] = runs[run].second;
      }
      const auto [found, is_new] = known.emplace(page, static_cast<uint16_t>(known.size()));
      if (is_new) regex_.chars_.insert(regex_.chars_.end(), page.begin(), page.end());
      regex_.pages_.push_back(found->second);
    }
  }

  // The classes of the characters of a set.
  uint64_t ClassesOf(const CharRanges& set) const {
    const size_t index = IndexOf(set);
    uint64_t classes = 0;
    for (size_t i = 0; i < class_sets_.size(); ++i) {
      if ((class_sets_[i] >> index & 1) != 0) classes |= uint64_t{1} << i;
    }
    return classes;
  }

  // ---- instructions, from the last one to the first ----

  size_t Add(Instruction instruction) {
    if (program_.size() >= kMaxInstructions) TooLarge();
    program_.push_back(instruction);
    return program_.size() - 1;
  }

  // Returns where the instructions of a part begin that is followed by `next`.
  size_t Compile(const RegexPart& part, size_t next) {
    switch (part.kind) {
      case Kind::kSequence:
        for (size_t i = part.parts.size(); i > 0; --i) next = Compile(part.parts[i - 1], next);
        return next;
      case Kind::kEither: {
        size_t start = Compile(part.parts.back(), next);
        for (size_t i = part.parts.size() - 1; i > 0; --i) {
          const size_t preferred = Compile(part.parts[i - 1], next);
          start = Add({.op = Op::kSplit, .next = preferred, .other = start});
        }
        return start;
      }
      case Kind::kSet:
        return Add({.op = Op::kChar, .classes = ClassesOf(part.set), .next = next});
      case Kind::kNextIs:
        return Add({.op = Op::kCheck, .classes = ClassesOf(part.set), .next = next});
      case Kind::kNextIsNot:
        return Add({.op = Op::kCheck, .classes = ~ClassesOf(part.set), .next = next});
      case Kind::kRepeat:
        return Repeat(part, next);
    }
    return next;
  }

  size_t Repeat(const RegexPart& part, size_t next) {
    const auto choose = [&](size_t again, size_t done) {
      return Instruction{
          .op = Op::kSplit, .next = part.lazy ? done : again, .other = part.lazy ? again : done};
    };
    if (part.most < 0) {
      const size_t loop = Add({.op = Op::kSplit});
      program_[loop] = choose(Compile(part.parts[0], loop), next);
      next = loop;
    } else {
      const size_t end = next;
      for (int i = part.least; i < part.most; ++i) {
        next = Add(choose(Compile(part.parts[0], next), end));
      }
    }
    for (int i = 0; i < part.least; ++i) next = Compile(part.parts[0], next);
    return next;
  }

  // ---- states ----

  void MakeStates() {
    std::map<State, uint32_t> numbers;
    std::vector<const State*> states;
    const auto number_of = [&](State state) {
      const auto [found, is_new] = numbers.emplace(std::move(state), numbers.size());
      if (is_new) states.push_back(&found->first);
      if (states.size() > kMaxStates) TooLarge();
      return found->second;
    };
    number_of({});
    number_of({start_});
    for (uint32_t i = 0; i < states.size(); ++i) {
      for (uint32_t c = 0; c < regex_.num_classes_; ++c) {
        bool matches = false;
        State next = Step(*states[i], uint64_t{1} << c, &matches);
        if (matches && i == TextRegex::kStart) {
          throw UnsupportedPattern("a regular expression that matches an empty text");
        }
        regex_.next_.push_back(number_of(std::move(next)) * 2 + (matches ? 1 : 0));
      }
    }
    for (uint32_t c = 0; c < regex_.num_classes_; ++c) {
      const uint32_t next = regex_.next_[TextRegex::kStart * regex_.num_classes_ + c] / 2;
      regex_.begins_.push_back(next != TextRegex::kDead ? 1 : 0);
    }
  }

  // The instructions behind a character of the class whose bit is `next_class`.
  State Step(const State& state, uint64_t next_class, bool* matches) {
    State result;
    std::vector<bool> seen(program_.size()), added(program_.size());
    std::vector<size_t> stack;
    for (size_t first : state) {
      stack.push_back(first);
      while (!stack.empty()) {
        const size_t at = stack.back();
        stack.pop_back();
        if (++num_steps_ > kMaxBuildSteps) TooLarge();
        if (seen[at]) continue;
        seen[at] = true;
        const Instruction& instruction = program_[at];
        if (instruction.op == Op::kMatch) {
          *matches = true;
          return result;  // what is left is less preferred
        }
        if (instruction.op == Op::kSplit) {
          stack.push_back(instruction.other);
          stack.push_back(instruction.next);
        } else if ((instruction.classes & next_class) == 0) {
          continue;
        } else if (instruction.op == Op::kCheck) {
          stack.push_back(instruction.next);
        } else if (!added[instruction.next]) {
          added[instruction.next] = true;
          result.push_back(instruction.next);
        }
      }
    }
    return result;
  }

  TextRegex& regex_;
  std::vector<const CharRanges*> sets_;
  std::vector<uint64_t> class_sets_;  // of each class the sets that it is in, a bit each
  std::vector<Instruction> program_;
  size_t start_ = 0;
  size_t num_steps_ = 0;
};

TextRegex::TextRegex(const RegexPart& root) { RegexBuilder(root, this); }

TextRegex::TextRegex(std::string_view pattern) : TextRegex(ParseTextRegex(pattern)) {}

TextRegex TextRegex::OfText(std::string_view text) {
  RegexPart root;
  while (!text.empty()) {
    const TextChar next = FirstChar(text);
    root.parts.push_back({.kind = Kind::kSet, .set = {{next.code_point, next.code_point}}});
    text.remove_prefix(next.length);
  }
  return TextRegex(root);
}

size_t TextRegex::MatchAt(std::string_view text, size_t at, size_t* stop, size_t* work) const {
  size_t end = at;
  uint32_t state = kStart;
  size_t here = at;
  while (here < text.size()) {
    const TextChar next = FirstChar(text.substr(here));
    const uint32_t step = next_[state * num_classes_ + ClassOf(next.code_point)];
    if ((step & 1) != 0) end = here;
    state = step >> 1;
    if (state == kDead) break;
    here += next.length;
  }
  if (state != kDead && (next_[state * num_classes_ + num_classes_ - 1] & 1) != 0) end = here;
  *stop = here;
  *work += here - at + 1;
  return end;
}

void TextRegex::FindAll(std::string_view text, std::vector<Match>* matches) const {
  matches->clear();
  size_t work = 0;
  for (size_t at = 0; at < text.size();) {
    const TextChar next = FirstChar(text.substr(at));
    const bool may_begin = begins_[ClassOf(next.code_point)] != 0;
    size_t stop = at;
    const size_t end = may_begin ? MatchAt(text, at, &stop, &work) : at;
    if (work > kMaxReads * text.size() + kFreeReads) {
      throw TextTooCostly("a regular expression of the tokenizer takes too long for it");
    }
    if (end > at) {
      matches->push_back({at, end});
      at = end;
    } else {
      at = is_run_ && stop > at ? stop : at + next.length;
    }
  }
}

}  // namespace mlc_native
