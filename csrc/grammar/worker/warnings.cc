#include "grammar/worker/warnings.h"

#include <iostream>
#include <string_view>

namespace mlc_native {
namespace {

constexpr std::string_view kMark = ": Warning: ";

}  // namespace

CapturedWarnings::CapturedWarnings() : before_(std::cerr.rdbuf(log_.rdbuf())) {}

CapturedWarnings::~CapturedWarnings() {
  std::cerr.rdbuf(before_);
  std::istringstream lines(log_.str());
  for (std::string line; std::getline(lines, line);) {
    if (line.find(kMark) == line.npos) std::cerr << line << '\n';
  }
}

std::string CapturedWarnings::First() const {
  const std::string text = log_.str();
  const size_t mark = text.find(kMark);
  if (mark == text.npos) return "";
  const size_t start = mark + kMark.size();
  return text.substr(start, text.find('\n', start) - start);
}

}  // namespace mlc_native
