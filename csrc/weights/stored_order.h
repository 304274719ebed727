// Weights whose tensor has another order of rows or columns than transformers, or other values, as
// TensorInfo says: what the converter of GGUF files does to them is undone as they are read. Any
// thread.
#pragma once

#include <memory>

#include "weights/weight_source.h"

namespace mlc_native {

// `stored` has the rows of the tensor as they are. Throws LoadError from Load where the values are
// not those of such a tensor.
std::unique_ptr<WeightSource> InStoredOrder(std::unique_ptr<WeightSource> stored,
                                            const TensorInfo& tensor);

}  // namespace mlc_native
