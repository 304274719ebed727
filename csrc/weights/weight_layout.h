// WeightLayout is the position of each parameter of a decoder in one block of memory. It does not
// depend on the contents, so a block that was filled earlier has the same layout. A value; plan and
// form must outlive it.
#pragma once

#include <vector>

#include "mlc_native/detail/export.h"
#include "weights/weight_form.h"
#include "weights/weight_plan.h"

namespace mlc_native {

struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
};

class MLC_NATIVE_PRIVATE_API WeightLayout {
 public:
  WeightLayout(const WeightPlan& plan, const WeightForm& form);

  const WeightPlan& plan() const { return plan_; }
  const WeightForm& form() const { return form_; }
  size_t bytes() const { return bytes_; }

  size_t Offset(size_t parameter) const { return offsets_[parameter]; }
  std::byte* Data(size_t parameter, std::byte* memory) const { return memory + Offset(parameter); }
  // The bytes of the first `rows` rows of a parameter. Requires: all its rows, or whole panels.
  size_t BytesOfRows(size_t parameter, int64_t rows) const;
  // The bytes that every forward may read: all but the experts, of which it reads the chosen ones.
  // Ascending.
  std::vector<ByteRange> BytesOfEveryForward() const;

 private:
  const WeightPlan& plan_;
  const WeightForm& form_;
  std::vector<size_t> offsets_;
  size_t bytes_ = 0;
};

}  // namespace mlc_native
