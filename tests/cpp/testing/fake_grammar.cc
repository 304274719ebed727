#include "testing/fake_grammar.h"

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "support/check.h"
#include "support/error.h"

namespace mlc_native::testing {
namespace {

struct FakeGrammarRules {
  std::vector<std::string> answers;
  bool anything = false;
  bool is_slow = false;
  int64_t max_rollback = 0;
  std::shared_ptr<const GrammarVocab> vocab;
  std::shared_ptr<const FakeGrammarHooks> hooks;
};

class FakeGrammarMatcher : public GrammarMatcher {
 public:
  explicit FakeGrammarMatcher(std::shared_ptr<const FakeGrammarRules> rules)
      : rules_(std::move(rules)) {
    for (size_t i = 0; i < rules_->answers.size(); ++i) positions_.push_back({i, 0});
  }

  bool FillMask(std::span<int32_t> mask) override {
    Work();
    if (rules_->hooks->on_fill) rules_->hooks->on_fill();
    MLC_CHECK(std::ssize(mask) == (rules_->vocab->vocab_size + 31) / 32) << mask.size();
    if (rules_->anything && !terminated_) return false;
    for (int32_t& word : mask) word = 0;
    for (int32_t token = 0; token < rules_->vocab->vocab_size; ++token) {
      if (Allows(token)) mask[token / 32] |= static_cast<int32_t>(uint32_t{1} << (token % 32));
    }
    return true;
  }

  bool AcceptToken(int32_t token_id) override {
    Work();
    if (rules_->hooks->on_accept) rules_->hooks->on_accept(token_id);
    if (!Allows(token_id)) return false;
    ++num_accepted_;
    history_.emplace_back(positions_, terminated_);
    if (std::ssize(history_) > rules_->max_rollback) history_.erase(history_.begin());
    if (IsStop(token_id)) {
      terminated_ = true;
    } else if (!rules_->anything) {
      positions_ = After(rules_->vocab->token_bytes[token_id]);
    }
    return true;
  }

  void Rollback(int64_t num_tokens) override {
    MLC_CHECK(num_tokens <= std::ssize(history_)) << num_tokens << " of " << history_.size();
    for (; num_tokens > 0; --num_tokens) {
      std::tie(positions_, terminated_) = std::move(history_.back());
      history_.pop_back();
      --num_accepted_;
    }
  }

  std::string FindJumpForwardString() override {
    std::string text;
    FakeGrammarMatcher ahead(*this);
    while (!rules_->anything && !terminated_ && !ahead.IsCompleted()) {
      const std::optional<char> next = ahead.OnlyNextByte();
      if (!next) break;
      text += *next;
      ahead.positions_ = ahead.After(std::string(1, *next));
    }
    return text;
  }

  bool IsTerminated() const override { return terminated_; }
  bool IsCompleted() const override {
    if (rules_->anything) return true;
    for (const Position& at : positions_) {
      if (at.byte == Body(at).size()) return true;
    }
    return false;
  }
  std::unique_ptr<GrammarMatcher> Fork() const override {
    return std::make_unique<FakeGrammarMatcher>(*this);
  }

 private:
  struct Position {
    size_t answer = 0;
    size_t byte = 0;
  };

  void Work() const {
    if (rules_->is_slow && rules_->hooks->on_work) rules_->hooks->on_work(1e-3 * num_accepted_);
  }

  bool IsStop(int32_t token) const {
    for (int32_t stop : rules_->vocab->stop_token_ids) {
      if (stop == token) return true;
    }
    return false;
  }

  bool Allows(int32_t token) const {
    if (terminated_ || token < 0 || token >= rules_->vocab->vocab_size) return false;
    if (IsStop(token)) return IsCompleted();
    if (rules_->anything) return true;
    if (token >= std::ssize(rules_->vocab->token_bytes)) return false;
    const std::string& bytes = rules_->vocab->token_bytes[token];
    return !bytes.empty() && !After(bytes).empty();
  }

  // The fixed part of an answer: for "ab*" it is "a", which any number of 'b' may follow.
  std::string_view Body(const Position& at) const {
    const std::string_view answer = rules_->answers[at.answer];
    return Repeats(at) ? answer.substr(0, answer.size() - 2) : answer;
  }
  bool Repeats(const Position& at) const {
    const std::string& answer = rules_->answers[at.answer];
    return answer.size() > 1 && answer.back() == '*';
  }
  // Returns the byte that is allowed at a position, or none.
  std::optional<char> ByteAt(const Position& at) const {
    const std::string_view body = Body(at);
    if (at.byte < body.size()) return body[at.byte];
    if (Repeats(at)) return rules_->answers[at.answer][body.size()];
    return std::nullopt;
  }

  std::vector<Position> After(std::string_view bytes) const {
    std::vector<Position> positions = positions_;
    for (char byte : bytes) {
      std::vector<Position> next;
      for (const Position& at : positions) {
        if (ByteAt(at) != byte) continue;
        next.push_back({at.answer, at.byte < Body(at).size() ? at.byte + 1 : at.byte});
      }
      positions = std::move(next);
    }
    return positions;
  }

  std::optional<char> OnlyNextByte() const {
    std::optional<char> only;
    for (const Position& at : positions_) {
      const std::optional<char> next = ByteAt(at);
      if (!next || (only && *only != *next)) return std::nullopt;
      only = next;
    }
    return only;
  }

  std::shared_ptr<const FakeGrammarRules> rules_;
  std::vector<Position> positions_;  // positions in the answers that are still possible
  bool terminated_ = false;
  int num_accepted_ = 0;
  std::vector<std::pair<std::vector<Position>, bool>> history_;
};

class FakeCompiledGrammar : public CompiledGrammar {
 public:
  explicit FakeCompiledGrammar(FakeGrammarRules rules) : rules_(std::move(rules)) {}
  std::unique_ptr<GrammarMatcher> NewMatcher(int64_t max_rollback_tokens) const override {
    FakeGrammarRules rules = rules_;
    rules.max_rollback = max_rollback_tokens;
    return std::make_unique<FakeGrammarMatcher>(
        std::make_shared<const FakeGrammarRules>(std::move(rules)));
  }
  int64_t memory_bytes() const override { return 100; }

 private:
  const FakeGrammarRules rules_;
};

class FakeGrammarCompiler : public GrammarCompiler {
 public:
  FakeGrammarCompiler(GrammarVocab vocab, FakeGrammarHooks hooks)
      : vocab_(std::make_shared<const GrammarVocab>(std::move(vocab))),
        hooks_(std::make_shared<const FakeGrammarHooks>(std::move(hooks))) {}

  std::shared_ptr<const CompiledGrammar> Compile(const GrammarSpec& spec,
                                                 const std::stop_token& stop) override {
    if (hooks_->on_compile) hooks_->on_compile(spec);
    if (spec.text == "!") throw InvalidRequest("response_format", "\"!\" is no grammar");
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [cached_spec, grammar] : cache_) {
      if (cached_spec == spec) return grammar;
    }
    if (stop.stop_requested()) return nullptr;
    FakeGrammarRules rules;
    rules.is_slow = spec.text.starts_with('~');
    rules.anything = spec.text == "*" || spec.text == "~*";
    rules.answers = Answers(spec);
    rules.vocab = vocab_;
    rules.hooks = hooks_;
    cache_.emplace_back(spec, std::make_shared<FakeCompiledGrammar>(std::move(rules)));
    return cache_.back().second;
  }

  int64_t num_cached() const override {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::ssize(cache_);
  }
  int64_t cached_bytes() const override { return 100 * num_cached(); }

 private:
  static std::vector<std::string> Answers(const GrammarSpec& spec) {
    std::string text = spec.text;
    if (text.starts_with('~')) text.erase(0, 1);
    const std::string ebnf = "root ::= ";
    if (text.starts_with(ebnf)) {
      std::erase_if(text, [](char c) { return c == ' ' || c == '"'; });
      text = text.substr(ebnf.size() - 2);
    }
    std::vector<std::string> answers(1);
    for (char c : text) {
      if (c == '|') {
        answers.emplace_back();
      } else {
        answers.back() += c;
      }
    }
    return answers;
  }

  const std::shared_ptr<const GrammarVocab> vocab_;
  const std::shared_ptr<const FakeGrammarHooks> hooks_;
  mutable std::mutex mutex_;
  std::vector<std::pair<GrammarSpec, std::shared_ptr<const FakeCompiledGrammar>>> cache_;
};

}  // namespace

GrammarCompilerFactory FakeGrammarFactory(const FakeGrammarHooks& hooks) {
  return [hooks](GrammarVocab vocab, const GrammarLimits&) -> std::unique_ptr<GrammarCompiler> {
    return std::make_unique<FakeGrammarCompiler>(std::move(vocab), hooks);
  };
}

}  // namespace mlc_native::testing
