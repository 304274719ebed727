// SharedWeight is a weight of which several other weights are parts. It is loaded for the first of
// them, and dropped when all of them have been. Its views, which the sources of those parts own,
// share it. Threads: as of WeightSource; the loading thread makes, loads and drops views.
#pragma once

#include <cstdint>
#include <memory>

#include "weights/weight_source.h"

namespace mlc_native {

class SharedWeight {
 public:
  explicit SharedWeight(std::unique_ptr<WeightSource> source) : source_(std::move(source)) {}

  // Returns one more of its views, which keep it alive.
  static std::unique_ptr<WeightSource> View(std::shared_ptr<SharedWeight> weight);

 private:
  class ViewOfWeight;

  const std::unique_ptr<WeightSource> source_;
  int64_t num_views_ = 0;
  int64_t num_dropped_ = 0;  // views, since it was loaded
};

}  // namespace mlc_native
