// Weights that are not as a checkpoint stores them: ones in place of the weights of a norm that has
// none, and those that are normalized, multiplied, put side by side or padded with zeros as they
// are loaded. Threads: as of WeightSource.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "weights/weight_source.h"

namespace mlc_native {

// A vector of any number of ones, of which a checkpoint has nothing.
std::unique_ptr<WeightSource> Ones();

// The rows of `stored`, each divided by the root of its mean square and `eps`.
std::unique_ptr<WeightSource> WithNormalizedRows(std::unique_ptr<WeightSource> stored,
                                                 int64_t columns, float eps);

// The columns of several weights of as many rows, one behind the other.
struct SourceOfColumns {
  std::unique_ptr<WeightSource> source;
  int64_t columns = 0;
};
std::unique_ptr<WeightSource> SideBySide(std::vector<SourceOfColumns> parts);

// The rows or columns of `stored` and zeros behind those of each head. `columns`: of the result.
std::unique_ptr<WeightSource> Padded(std::unique_ptr<WeightSource> stored, int64_t columns,
                                     const PaddedHeads& heads);

// The values of `stored`, multiplied.
std::unique_ptr<WeightSource> Multiplied(std::unique_ptr<WeightSource> stored, int64_t columns,
                                         float factor);

}  // namespace mlc_native
