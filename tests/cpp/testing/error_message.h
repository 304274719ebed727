// What an error of the library says. For any test; any thread.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "support/error.h"

namespace mlc_native::testing {

// Runs `action`, which must throw Error naming `field`; returns the message.
template <typename Error>
std::string MessageOf(const std::string& field, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(e.field(), field) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown for " << field;
  return "";
}

// Runs `action`, which must throw InvalidRequest; returns the message.
template <typename Action>
std::string Refusal(const Action& action) {
  try {
    action();
  } catch (const InvalidRequest& e) {
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace mlc_native::testing
