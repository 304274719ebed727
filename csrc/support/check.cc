#include "support/check.h"

#include <string_view>

#include "support/message.h"

namespace mlc_native::detail {

struct CheckMessage::Text {
  std::string text;
};

CheckMessage::CheckMessage(const char* condition, const char* file, int line)
    : text_(new Text{std::string(file) + ':' + std::to_string(line) +
                     ": check failed: " + condition + ' '}) {}
CheckMessage::~CheckMessage() { delete text_; }

void CheckMessage::AddText(const char* text) { text_->text += text; }
void CheckMessage::AddText(const char* text, size_t size) { text_->text.append(text, size); }
void CheckMessage::AddInteger(int64_t value) { AppendTo(&text_->text, value); }
void CheckMessage::AddCount(uint64_t value) { AppendTo(&text_->text, value); }
void CheckMessage::AddReal(double value) { AppendTo(&text_->text, value); }

void CheckMessage::Throw() const { throw InternalError(text_->text); }

}  // namespace mlc_native::detail
