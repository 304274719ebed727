// DrawnTokens holds the results of SampleTokens (tokens and log-probabilities) on the device, and
// the copies that the host reads a step later. Engine's thread only.
#pragma once

#include <array>
#include <vector>

#include "kernels/cuda/guesses.h"
#include "kernels/cuda/runtime.h"
#include "mlc_native/model.h"

namespace mlc_native {

class DrawnTokens {
 public:
  // For steps of at most max_rows rows.
  explicit DrawnTokens(int64_t max_rows);

  static size_t Bytes(int64_t max_rows);

  // Returns the tokens of the last submitted step, in device memory.
  const int32_t* tokens() const;
  // Makes SampleTokens write the results of the next step's rows from `first` on.
  void PlaceInto(int64_t first, kernels::cuda::SampleArgs* args) const;

  // The guesses behind the rows of the next step, on the device.
  int32_t* guesses() const;

  // Queues the copy of the next step's results on the stream. `blocks` are those of its slices.
  void Submit(std::span<const TokenRow> rows, std::span<const kernels::cuda::GuessedRows> blocks,
              kernels::cuda::Stream stream);
  // Waits for the oldest step that is not collected, and returns its tokens.
  void Collect(std::vector<DrawnToken>* tokens);

 private:
  struct Row {  // what the request asks for
    bool logprobs = false;
    int32_t top_logprobs = 0;
    int32_t scored_token = TokenRow::kNone;
    bool has_guess = false;
  };
  struct Step {
    kernels::cuda::DeviceMemory results;
    kernels::cuda::PinnedMemory copy;
    kernels::cuda::Event done;
    std::vector<Row> rows;
  };
  // Consecutive arrays of max_rows_ rows, in `results` and in `copy`.
  struct Arrays {
    int32_t* tokens;
    int32_t* guesses;
    float* logprobs;
    int32_t* top_ids;
    float* top_logprobs;
  };
  Arrays Place(std::byte* memory) const;
  static void Read(const Arrays& arrays, size_t row, const Row& wanted, DrawnToken* out);

  size_t Index(int64_t step) const { return static_cast<size_t>(step) % steps_.size(); }

  const int64_t max_rows_;
  std::array<Step, StepQueue::kMaxInFlight> steps_;  // a ring
  int64_t num_submitted_ = 0;
  int64_t num_collected_ = 0;
};

}  // namespace mlc_native
