#include "engine_allocation.h"

#include <utility>

#include "request/scheduler.h"
#include "step/draft_model.h"
#include "step/head_drafter.h"

namespace mlc_native {

int64_t NumSlots(const Model& model, const EngineConfig& config) {
  if (model.metadata().recurrent_bytes_per_slot == 0) return 0;
  return NumRecurrentSlots(*config.max_num_sequence);
}

EngineParts Allocated(EngineParts loaded) {
  const int64_t chunk = *loaded.config.prefill_chunk_size;
  if (const int64_t num_slots = NumSlots(*loaded.model, loaded.config); num_slots > 0) {
    loaded.model->AllocateRecurrent(num_slots);
  }
  loaded.model->Allocate(NumPages(loaded.config), chunk,
                         MaxLogitsRows(*loaded.config.max_num_sequence, chunk));
  return loaded;
}

std::unique_ptr<BatchDrafter> MakeBatchDrafter(EngineParts* loaded, const Log& log) {
  if (loaded->draft_model == nullptr) return nullptr;
  const EngineConfig& config = loaded->config;
  const BatchDrafter::Sizes sizes{.num_pages = NumPages(config),
                                  .max_rows = *config.prefill_chunk_size,
                                  .max_sequences = *config.max_num_sequence,
                                  .target_vocab_size = loaded->model->metadata().vocab_size,
                                  .num_slots = NumSlots(*loaded->draft_model, config)};
  std::unique_ptr<Model> model = std::move(loaded->draft_model);
  if (!model->metadata().draft_head)
    return std::make_unique<DraftModel>(std::move(model), sizes, log);
  return std::make_unique<HeadDrafter>(std::move(model), *loaded->model, sizes, log);
}

}  // namespace mlc_native
