// OutputBatch: the outputs of one delivery as the host sees them: an mlcn_output for each answer of
// a request that has something new and one for the end of a request, which point into the engine's
// outputs. What takes memory is in Take; nothing is allocated for a single output.
//
// First come the views of requests that are polled, then those of requests with a callback, each in
// the order of the outputs. One thread fills a batch; then it is immutable and of any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "c_api/request_handle.h"
#include "mlc_native/data.h"
#include "mlc_native/mlc_native.h"

namespace mlc_native::c_api {

class OutputBatch {
 public:
  // Takes the outputs and the memory for all that follows. If it throws std::bad_alloc, the outputs
  // stay where they are and it may be called again. Requires: the batch is new or cleared.
  void Take(std::vector<RequestStreamOutput>* outputs);
  std::span<const RequestStreamOutput> outputs() const { return outputs_; }
  // The request of the next output.
  void AddRequest(RequestRef request) { requests_.push_back(std::move(request)); }
  // Requires: each output has its request.
  void MakeViews() noexcept;
  // Lets go of the outputs and keeps the memory of the views.
  void Clear() noexcept;

  std::span<const mlcn_output> polled() const { return {views_.data(), num_polled_}; }
  std::span<const mlcn_output> called() const { return std::span(views_).subspan(num_polled_); }

 private:
  struct Logprobs {
    mlcn_logprobs view{};
    std::vector<int32_t> tokens;
    std::vector<float> values;
    std::vector<int32_t> top_tokens;
    std::vector<float> top_values;
    explicit Logprobs(const std::vector<SampleResult>& results);
  };

  void AddScores(const RequestStreamOutput& output);
  void ViewAnswer(const RequestStreamOutput& output, size_t index, mlcn_output* view) noexcept;
  void ViewEnd(const RequestUsage& usage, mlcn_output* view) noexcept;

  std::vector<RequestStreamOutput> outputs_;
  std::vector<RequestRef> requests_;  // of each output
  std::vector<mlcn_output> views_;
  size_t num_polled_ = 0;
  // What views point to besides the outputs, in the order of the outputs. Take makes the scores,
  // and MakeViews the usages.
  std::vector<Logprobs> scores_;
  size_t num_scores_used_ = 0;
  std::vector<mlcn_usage> usages_;
};

// Some of the polled views of a batch.
struct OutputSlice {
  std::shared_ptr<const OutputBatch> batch;
  std::span<const mlcn_output> views;

  // Takes the first views, at most so many.
  OutputSlice TakeFirst(size_t count);
};

}  // namespace mlc_native::c_api

// What mlcn_poll returns: slices, one after another. Mostly there is one.
struct mlcn_outputs {
 public:
  // Makes room for so many slices.
  explicit mlcn_outputs(size_t num_slices) { slices_.reserve(num_slices); }
  void Append(mlc_native::c_api::OutputSlice slice) noexcept;

  size_t size() const { return size_; }
  // Requires: i < size().
  const mlcn_output* at(size_t i) const;

 private:
  struct Placed {
    size_t begin;  // the number of views before it
    mlc_native::c_api::OutputSlice slice;
  };
  std::vector<Placed> slices_;
  size_t size_ = 0;
};
