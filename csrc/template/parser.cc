#include "template/parser.h"

#include <initializer_list>
#include <string>
#include <utility>

#include "support/utf8.h"
#include "template/expression_parser.h"
#include "template/template_error.h"

namespace mlc_native::templates {
namespace {

// The bodies that end with a tag of one of these names.
using EndNames = std::initializer_list<std::string_view>;

class StatementParser {
 public:
  explicit StatementParser(Program& program)
      : program_(program), in_(program, ReadTokens(program.source)) {}

  Body ParseAll() {
    Body body;
    ParseInto(&body, {});
    return body;
  }

 private:
  std::unique_ptr<Statement> New(StatementKind kind) {
    auto made = std::make_unique<Statement>();
    made->kind = kind;
    made->line = in_.current().line;
    return made;
  }

  // Reads statements up to a tag of one of the names, of which it has read the name.
  void ParseInto(Body* body, EndNames ends) {
    const ExpressionParser::Nesting nesting(in_);
    for (;;) {
      switch (in_.current().kind) {
        case TokenKind::kEnd:
          if (ends.size() > 0) in_.Fail("unexpected end of template: a block is not closed");
          return;
        case TokenKind::kData: {
          auto data = New(StatementKind::kData);
          data->text = in_.Constant(in_.Take().text);
          body->push_back(std::move(data));
          break;
        }
        case TokenKind::kVariableBegin: {
          auto output = New(StatementKind::kOutput);
          in_.Take();
          output->expression = in_.ParseTuple();
          ExpectEnd(TokenKind::kVariableEnd);
          body->push_back(std::move(output));
          break;
        }
        default:
          in_.Take();
          for (const std::string_view end : ends) {
            if (in_.SkipName(end)) {
              end_ = end;
              return;
            }
          }
          ParseStatement(body);
      }
    }
  }

  void ExpectEnd(TokenKind kind) {
    if (in_.current().kind != kind) {
      in_.Fail("unexpected '" + std::string(in_.current().text.substr(0, 40)) + "'");
    }
    in_.Take();
  }
  void ExpectBlockEnd() { ExpectEnd(TokenKind::kBlockEnd); }

  // A body between this tag and the end tag, both of which are read whole.
  Body ParseBody(std::string_view end) {
    Body body;
    ExpectBlockEnd();
    ParseInto(&body, {end});
    ExpectBlockEnd();
    return body;
  }

  void ParseStatement(Body* body) {
    const std::string_view name = in_.ExpectName();
    std::unique_ptr<Statement> made;
    if (name == "if") made = ParseIf();
    if (name == "for") made = ParseFor();
    if (name == "set") made = ParseSet();
    if (name == "macro") made = ParseMacro();
    if (name == "call") made = ParseCall();
    if (name == "filter") made = ParseFilterBlock();
    if (name == "with") made = ParseWith();
    if (name == "generation") made = ParseGeneration();
    if (name == "break" || name == "continue") made = ParseJump(name);
    if (made == nullptr) in_.NotSupported("the tag " + std::string(name.substr(0, 40)));
    body->push_back(std::move(made));
  }

  std::unique_ptr<Statement> ParseIf() {
    auto made = New(StatementKind::kIf);
    do {
      Branch branch;
      branch.condition = in_.ParseTuple(/*with_condition=*/false);
      ExpectBlockEnd();
      ParseInto(&branch.body, {"elif", "else", "endif"});
      made->branches.push_back(std::move(branch));
    } while (end_ == "elif");
    if (end_ == "else") {
      made->other_body = ParseBody("endif");
    } else {
      ExpectBlockEnd();
    }
    return made;
  }

  std::unique_ptr<Statement> ParseFor() {
    auto made = New(StatementKind::kFor);
    made->target = in_.ParseTarget(/*with_namespace=*/false, "in");
    if (!in_.SkipName("in")) in_.Fail("expected 'in'");
    made->expression = in_.ParseTuple(/*with_condition=*/false, "recursive");
    if (in_.SkipName("if")) made->condition = in_.ParseExpression();
    if (in_.current().IsName("recursive")) in_.NotSupported("a recursive loop");
    ExpectBlockEnd();
    ++loops_;
    ParseInto(&made->body, {"endfor", "else"});
    --loops_;
    if (end_ == "else") {
      made->other_body = ParseBody("endfor");
    } else {
      ExpectBlockEnd();
    }
    return made;
  }

  std::unique_ptr<Statement> ParseJump(std::string_view name) {
    if (loops_ == 0) in_.NotSupported("break or continue outside of a loop");
    auto made = New(name == "break" ? StatementKind::kBreak : StatementKind::kContinue);
    ExpectBlockEnd();
    return made;
  }

  std::unique_ptr<Statement> ParseSet() {
    auto made = New(StatementKind::kSet);
    made->target = in_.ParseTarget(/*with_namespace=*/true);
    if (in_.Skip("=")) {
      made->expression = in_.ParseTuple();
      ExpectBlockEnd();
      return made;
    }
    made->kind = StatementKind::kSetBlock;
    if (!made->target.members.empty())
      in_.NotSupported("a block that is assigned to several names");
    if (in_.Skip("|")) made->filter = in_.ParseFilters();
    made->body = ParseInner("endset");
    return made;
  }

  // A body that a loop around it cannot be left from.
  Body ParseInner(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body body = ParseBody(end);
    loops_ = loops;
    return body;
  }

  std::unique_ptr<Statement> ParseMacro() {
    auto made = New(StatementKind::kMacro);
    const std::string_view name = in_.ExpectName();
    made->macro = std::make_unique<MacroSyntax>();
    made->macro->name = program_.NumberOf(name);
    made->macro->text = name;
    ParseSignature(made->macro.get());
    ParseMacroBody(made->macro.get(), "endmacro");
    return made;
  }

  void ParseMacroBody(MacroSyntax* macro, std::string_view end) {
    const int caller = in_.Uses("caller"), varargs = in_.Uses("varargs"),
              kwargs = in_.Uses("kwargs");
    macro->body = ParseInner(end);
    macro->uses_caller = in_.Uses("caller") > caller;
    macro->uses_varargs = in_.Uses("varargs") > varargs;
    macro->uses_kwargs = in_.Uses("kwargs") > kwargs;
  }

  void ParseSignature(MacroSyntax* macro) {
    in_.Expect("(");
    while (!in_.current().Is(")")) {
      if (!macro->parameters.empty()) in_.Expect(",");
      if (in_.current().Is(")")) break;
      const std::string_view name = in_.ExpectName();
      if (name == "caller" || name == "varargs" || name == "kwargs") {
        in_.NotSupported("a parameter of this name");
      }
      MacroParameter parameter{program_.NumberOf(name), name, nullptr};
      if (in_.Skip("=")) {
        parameter.default_value = in_.ParseExpression();
      } else if (!macro->parameters.empty() && macro->parameters.back().default_value != nullptr) {
        in_.Fail("non-default argument follows default argument");
      }
      macro->parameters.push_back(std::move(parameter));
    }
    in_.Expect(")");
  }

  std::unique_ptr<Statement> ParseCall() {
    auto made = New(StatementKind::kCall);
    made->macro = std::make_unique<MacroSyntax>();
    made->macro->text = "caller";
    if (in_.current().Is("(")) ParseSignature(made->macro.get());
    made->expression = in_.ParseUnary();
    if (made->expression->op != Op::kCall) in_.Fail("expected call");
    ParseMacroBody(made->macro.get(), "endcall");
    return made;
  }

  std::unique_ptr<Statement> ParseFilterBlock() {
    auto made = New(StatementKind::kFilter);
    made->filter = in_.ParseFilters();
    made->body = ParseInner("endfilter");
    return made;
  }

  std::unique_ptr<Statement> ParseWith() {
    auto made = New(StatementKind::kWith);
    while (in_.current().kind != TokenKind::kBlockEnd) {
      if (!made->branches.empty()) in_.Expect(",");
      Branch variable;
      variable.target = in_.ParseTarget(/*with_namespace=*/false);
      in_.Expect("=");
      variable.condition = in_.ParseExpression();
      made->branches.push_back(std::move(variable));
    }
    made->body = ParseBody("endwith");
    return made;
  }

  // Marks texts for training; its body has variables of its own.
  std::unique_ptr<Statement> ParseGeneration() {
    auto made = New(StatementKind::kWith);
    made->body = ParseBody("endgeneration");
    return made;
  }

  Program& program_;
  ExpressionParser in_;
  std::string_view end_;  // the name of the tag that ended the last body
  int loops_ = 0;         // that a break may leave
};

}  // namespace

std::unique_ptr<const Program> ParseTemplate(std::string_view source) {
  if (!IsValidUtf8(source)) {
    throw TemplateError(TemplateError::Kind::kSyntax, "the template is not valid UTF-8", 0);
  }
  auto program = std::make_unique<Program>();
  program->source = NormalizeLines(source);
  program->body = StatementParser(*program).ParseAll();
  return program;
}

}  // namespace mlc_native::templates
