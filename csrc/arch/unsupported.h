// Architectures that are not supported, and what a decoder of this engine lacks for them. Constant;
// any thread.
#pragma once

#include <span>
#include <string_view>

namespace mlc_native {

struct UnsupportedArchitecture {
  std::string_view architecture;
  std::string_view lacks;  // as in "needs <lacks>"
};

std::span<const UnsupportedArchitecture> UnsupportedArchitectures();
// "" for an architecture that the table does not have.
std::string_view WhatItLacks(std::string_view architecture);

}  // namespace mlc_native
