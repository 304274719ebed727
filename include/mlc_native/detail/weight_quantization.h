// WeightQuantization: in how many bits the matrices of a model are kept. A value; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "mlc_native/detail/export.h"

namespace mlc_native {

class MLC_NATIVE_API WeightQuantization {
 public:
  enum Kind : uint8_t {
    kAuto,  // integers of the checkpoint that the kernels can run stay so, all else becomes `dtype`
    kOff,   // everything becomes `dtype`
    kQ8,
    kQ6,
    kQ4,      // the first layer and the output head in 8 bits
    kBudget,  // each matrix in 4, 6 or 8 bits, within a mean of bits()
  };
  // A weight of q4 takes 4.5 bits and one of q8 8.25, with its part of a scale.
  static constexpr int64_t kMinMillibits = 4500, kMaxMillibits = 8250;

  // Implicit, so that a kind without bits stands for itself. Requires: not kBudget.
  constexpr WeightQuantization(Kind kind = kAuto) : kind_(kind) {}  // NOLINT(*-explicit-*)

  // "off", "q8", "q6", "q4", or "q4.8" for a budget of 4.8 bits: a number with a point and one to
  // three digits behind it, from kMinMillibits to kMaxMillibits. nullopt for all else.
  static std::optional<WeightQuantization> Parse(std::string_view text);
  // What Parse takes, for messages.
  static std::string Allowed();

  constexpr Kind kind() const { return kind_; }
  // Thousandths of a bit per weight. Requires: kBudget.
  constexpr int64_t millibits() const { return millibits_; }
  // What Parse takes; "" for kAuto.
  std::string ToString() const;
  // Whether it asks for integers.
  constexpr bool quantizes() const { return kind_ != kAuto && kind_ != kOff; }

  friend constexpr bool operator==(const WeightQuantization&, const WeightQuantization&) = default;

 private:
  Kind kind_;
  int32_t millibits_ = 0;
};

}  // namespace mlc_native
