#include "step/make_batch_drafter.h"

#include <utility>

#include "step/draft_model.h"
#include "step/head_drafter.h"

namespace mlc_native {

std::unique_ptr<BatchDrafter> MakeBatchDrafter(std::unique_ptr<Model> model, Model& target,
                                               const BatchDrafter::Sizes& sizes, const Log& log) {
  if (model->metadata().draft_head) {
    return std::make_unique<HeadDrafter>(std::move(model), target, sizes, log);
  }
  return std::make_unique<DraftModel>(std::move(model), sizes, log);
}

}  // namespace mlc_native
