#include "template/input.h"

#include <utility>

#include "support/check.h"
#include "support/utf8.h"
#include "template/input_builder.h"
#include "template/template_error.h"
#include "template/text.h"
#include "template/unicode.h"

namespace mlc_native {
namespace templates {
namespace {

constexpr size_t kMaxInputDepth = 200;
constexpr size_t kMessageDepth = 3;  // of a message's members: variables, messages, a message

void CheckUtf8(std::string_view text) {
  if (!IsValidUtf8(text)) {
    throw TemplateError(TemplateError::Kind::kFailed, "a text of its input is not valid UTF-8", 0);
  }
}

}  // namespace

void InputBuilder::Begin(bool is_object) {
  if (open_.size() >= kMaxInputDepth) {
    throw TemplateError(TemplateError::Kind::kLimit, "its input is nested deeper than 200 levels",
                        0);
  }
  Open opened{is_object ? arena_.New<Dict>() : nullptr};
  opened.first_item = items_.size();
  if (is_object) opened.dict->given = !is_own();
  open_.push_back(opened);
}

void InputBuilder::End() {
  MLC_CHECK(!open_.empty());
  const Open closed = open_.back();
  open_.pop_back();
  if (closed.dict != nullptr) {
    if (!open_.empty()) return Add(static_cast<const Dict*>(closed.dict));
    tops_.push_back(closed.dict);
    return;
  }
  const auto items = arena_.Copy(std::span<const Value>(items_).subspan(closed.first_item));
  items_.resize(closed.first_item);
  Add(arena_.New<List>(List{items, !is_own()}));
}

void InputBuilder::Key(std::string_view name) {
  MLC_CHECK(!open_.empty() && open_.back().dict != nullptr);
  CheckUtf8(name);
  const bool foreign = !is_own() && open_.size() > 1;  // the name of a variable is no text
  open_.back().key = NewText(arena_, name, foreign);
  open_.back().is_role = open_.size() == kMessageDepth && name == "role";
  if (tops_.empty()) {
    num_bytes_ += name.size();
    ++num_values_;
  }
}

void InputBuilder::Add(const Value& value) {
  MLC_CHECK(!open_.empty());
  if (tops_.empty()) ++num_values_;
  Open& open = open_.back();
  if (open.dict != nullptr) {
    open.dict->Set(arena_, open.key, value);
  } else {
    items_.push_back(value);
  }
}

void InputBuilder::AddText(std::string_view text) {
  MLC_CHECK(!open_.empty());
  CheckUtf8(text);
  bool foreign = !is_own();
  if (foreign && open_.back().is_role) {  // a template may make a control token of a role
    const std::optional<bool> is_identifier = IsIdentifier(text);
    if (!is_identifier) {
      throw TemplateError(TemplateError::Kind::kNotSupported, "a role that is not ASCII", 0);
    }
    foreign = !*is_identifier;
  }
  if (tops_.empty()) num_bytes_ += text.size();
  Add(NewText(arena_, text, foreign));
}

}  // namespace templates

TemplateInput::TemplateInput(bool trusted)
    : builder_(std::make_unique<templates::InputBuilder>(trusted)) {}
TemplateInput::TemplateInput(TemplateInput&&) noexcept = default;
TemplateInput& TemplateInput::operator=(TemplateInput&&) noexcept = default;
TemplateInput::~TemplateInput() = default;

TemplateInput& TemplateInput::BeginObject() {
  builder_->Begin(true);
  return *this;
}

TemplateInput& TemplateInput::EndObject() {
  builder_->End();
  return *this;
}

TemplateInput& TemplateInput::BeginArray() {
  builder_->Begin(false);
  return *this;
}

TemplateInput& TemplateInput::EndArray() {
  builder_->End();
  return *this;
}

TemplateInput& TemplateInput::Key(std::string_view name) {
  builder_->Key(name);
  return *this;
}

TemplateInput& TemplateInput::Null() {
  builder_->Add(templates::Value::None());
  return *this;
}

TemplateInput& TemplateInput::Put(bool value) {
  builder_->Add(templates::Value::Bool(value));
  return *this;
}

TemplateInput& TemplateInput::Put(int64_t value) {
  builder_->Add(templates::Value::Int(value));
  return *this;
}

TemplateInput& TemplateInput::Put(double value) {
  builder_->Add(templates::Value::Float(value));
  return *this;
}

TemplateInput& TemplateInput::Put(std::string_view text) {
  builder_->AddText(text);
  return *this;
}

}  // namespace mlc_native
