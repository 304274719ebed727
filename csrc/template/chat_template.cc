#include "template/chat_template.h"

#include "support/check.h"
#include "template/globals.h"
#include "template/input_builder.h"
#include "template/interpreter.h"
#include "template/parser.h"
#include "template/rendering.h"

namespace mlc_native {
namespace {

using templates::Program;
using templates::Scope;
using templates::Value;

// The number of a name; one that no name has if the template does not use it.
int NumberIn(const Program& program, std::string_view name) {
  for (size_t i = 0; i < program.names.size(); ++i) {
    if (program.names[i] == name) return static_cast<int>(i);
  }
  return -1;
}

// The variables that a template names, from what it is given, what is its own, and the functions.
void FillScope(const Program& program, const templates::Dict* given, const templates::Dict* own,
               templates::Arena& arena, Scope* scope) {
  for (size_t i = 0; i < program.names.size(); ++i) {
    const std::string_view name = program.names[i];
    const auto number = static_cast<int>(i);
    // What is its own comes last, as in a union of objects.
    if (const Value* value = own != nullptr ? own->Find(name) : nullptr) {
      scope->Set(arena, number, *value);
    } else if (const Value* variable = given->Find(name)) {
      scope->Set(arena, number, *variable);
    } else if (const templates::Callable* function = templates::FindGlobal(name)) {
      scope->Set(arena, number, function);
    }
  }
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<const Program> program) : program_(std::move(program)) {}
ChatTemplate::~ChatTemplate() = default;

std::shared_ptr<const ChatTemplate> ChatTemplate::Compile(std::string_view source) {
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(templates::ParseTemplate(source)));
}

RenderedPrompt ChatTemplate::Render(TemplateInput input, const RenderLimits& limits) const {
  templates::InputBuilder& builder = input.builder();
  MLC_CHECK(builder.given() != nullptr) << "a rendering needs an object of variables";
  const bool trusted = builder.trusted();
  templates::Rendering rendering(builder.TakeArena(), limits, builder.num_bytes(),
                                 builder.num_values());
  templates::Arena& arena = rendering.arena();
  Scope* const variables = arena.New<Scope>(nullptr);
  FillScope(*program_, builder.given(), builder.own(), arena, variables);
  const templates::SpecialNames names{NumberIn(*program_, "loop"), NumberIn(*program_, "caller"),
                                      NumberIn(*program_, "varargs"),
                                      NumberIn(*program_, "kwargs")};
  templates::TextBuilder out;
  templates::Interpreter(rendering, names).Run(*program_, *variables, &out);
  RenderedPrompt prompt;
  prompt.has_input = out.foreign() && !trusted;
  if (prompt.has_input) {
    for (const templates::OwnRange& range : out.own())
      prompt.own.push_back({range.begin, range.end});
  } else if (out.size() > 0) {
    prompt.own.push_back({0, static_cast<uint32_t>(out.size())});
  }
  prompt.text = out.TakeBytes();
  return prompt;
}

RenderedPrompt ChatTemplate::Render(std::string_view variables, std::string_view own_variables,
                                    const RenderLimits& limits) const {
  TemplateInput input;
  ReadVariables(variables, &input);
  ReadVariables(own_variables, &input);
  return Render(std::move(input), limits);
}

}  // namespace mlc_native
