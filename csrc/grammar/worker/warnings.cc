#include "grammar/worker/warnings.h"

#include <cctype>
#include <iostream>
#include <string_view>

namespace mlc_native {
namespace {

constexpr std::string_view kMark = ": Warning: ";

// "Escape sequence '\!' is not recognized. The character itself will be matched": a character that
// is no letter or digit means itself with and without the escape.
bool IsHarmless(std::string_view warning) {
  constexpr std::string_view kEscape = "Escape sequence '\\";
  const size_t at = warning.find(kEscape);
  if (at == warning.npos || at + kEscape.size() >= warning.size()) return false;
  const auto escaped = static_cast<unsigned char>(warning[at + kEscape.size()]);
  return escaped < 0x80 && std::ispunct(escaped) != 0;
}

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
  std::istringstream lines(log_.str());
  for (std::string line; std::getline(lines, line);) {
    const size_t mark = line.find(kMark);
    if (mark == line.npos || IsHarmless(line)) continue;
    return line.substr(mark + kMark.size());
  }
  return "";
}

}  // namespace mlc_native
