// ExpressionParser: reads the expressions of a template from its tokens, with jinja2's precedence.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "template/lexer.h"
#include "template/program.h"
#include "template/syntax.h"

namespace mlc_native::templates {

class ExpressionParser {
 public:
  ExpressionParser(Program& program, std::vector<Token> tokens)
      : program_(program), tokens_(std::move(tokens)) {}

  // ---- tokens
  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token Take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool Skip(std::string_view operation);
  bool SkipName(std::string_view name);
  void Expect(std::string_view operation);
  std::string_view ExpectName();

  [[noreturn]] void Fail(const std::string& message) const;
  [[noreturn]] void NotSupported(const std::string& message) const;

  // Guards what is parsed within something else against stacks that are too small.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser);
    ~Nesting() { --parser_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExpressionParser& parser_;
  };

  // ---- expressions
  ExpressionPtr ParseExpression(bool with_condition = true);
  // One expression, or several with commas between them as a tuple. `end` is a name that ends it.
  ExpressionPtr ParseTuple(bool with_condition = true, std::string_view end = {});
  // Filters with nothing in front of them, as in a filter block: the first name, then pipes.
  ExpressionPtr ParseFilters();
  // A tuple of names, or attributes of namespaces.
  Target ParseTarget(bool with_namespace, std::string_view end = {});
  // The arguments of a call, with the brackets, become parts and keywords.
  void ParseArguments(Expression* call);

  ExpressionPtr ParseUnary(bool with_filters = true);
  const Text* Constant(std::string_view bytes);
  // How often a name has been used so far, such as "caller".
  int Uses(std::string_view name) const;

 private:
  std::unique_ptr<Expression> New(Op op);
  ExpressionPtr Made(std::unique_ptr<Expression> expression);
  ExpressionPtr Binary(Op op, ExpressionPtr left, ExpressionPtr right);
  ExpressionPtr ParseCondition();
  ExpressionPtr ParseOr();
  ExpressionPtr ParseAnd();
  ExpressionPtr ParseNot();
  ExpressionPtr ParseCompare();
  std::optional<ComparisonOp> TakeComparison();
  ExpressionPtr ParseSum();
  ExpressionPtr ParseConcat();
  ExpressionPtr ParseProduct();
  ExpressionPtr ParsePower();
  ExpressionPtr ParsePrimary();
  ExpressionPtr ParseName();
  ExpressionPtr ParseString();
  ExpressionPtr ParseNumber();
  ExpressionPtr ParseList();
  ExpressionPtr ParseDict();
  ExpressionPtr ParsePostfix(ExpressionPtr expression);
  ExpressionPtr ParseSubscript(ExpressionPtr expression);
  ExpressionPtr ParseFilterChain(ExpressionPtr expression);
  ExpressionPtr ParseFilter(ExpressionPtr expression);
  ExpressionPtr ParseTest(ExpressionPtr expression);
  Target ParseOneTarget(bool with_namespace);
  bool IsTupleEnd(std::string_view end) const;

  Program& program_;
  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  std::map<std::string_view, int> uses_;
};

// The text that a literal with its quotes stands for.
std::string DecodeStringLiteral(std::string_view literal, int line);

}  // namespace mlc_native::templates
