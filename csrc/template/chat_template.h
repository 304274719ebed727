// ChatTemplate: a chat template, compiled from the Jinja text that a checkpoint ships, which turns
// messages into the text of a prompt.
//
// It renders what transformers renders with jinja2 (trim_blocks, lstrip_blocks, loop controls and
// generation blocks), byte for byte, or refuses with an error that says so: TemplateError::Kind
// kNotSupported names a construct that a caller may hand to jinja2. A template has no access to
// anything except its input, and every rendering is bounded by RenderLimits.
//
// A ChatTemplate is immutable: any thread, and several at once. A TemplateInput belongs to one
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mlc_native/detail/export.h"
#include "template/input.h"
#include "template/limits.h"
#include "template/template_error.h"

namespace mlc_native {

namespace templates {
class Program;
}

// A range of bytes of a prompt.
struct PromptRange {
  uint32_t begin;
  uint32_t end;
  bool operator==(const PromptRange&) const = default;
};

// The text of a prompt, apart by author: only what the template wrote may become control tokens.
struct RenderedPrompt {
  std::string text;  // valid UTF-8
  // What the template wrote: ascending, not empty, not adjacent. Everything else is the input's.
  std::vector<PromptRange> own;
  // Whether a text of the input is in the prompt, be it empty.
  bool has_input = false;
};

class MLC_NATIVE_PRIVATE_API ChatTemplate {
 public:
  // Throws TemplateError: kSyntax or kNotSupported.
  static std::shared_ptr<const ChatTemplate> Compile(std::string_view source);

  // Renders with the variables of an input, which is used up. Throws TemplateError of any kind
  // except kSyntax.
  RenderedPrompt Render(TemplateInput input, const RenderLimits& limits = {}) const;

  // The same with the variables in a JSON object: "messages", "tools", "add_generation_prompt" and
  // others, and those that are the template's own, such as "bos_token", in another one.
  RenderedPrompt Render(std::string_view variables, std::string_view own_variables = "{}",
                        const RenderLimits& limits = {}) const;

  ~ChatTemplate();

 private:
  explicit ChatTemplate(std::unique_ptr<const templates::Program> program);

  const std::unique_ptr<const templates::Program> program_;
};

}  // namespace mlc_native
