// OutputView: an mlcn_output, and all that it points to. Views are made in lists, which are joined
// and divided without memory. Immutable once it is made; any thread.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "c_api/request_handle.h"
#include "mlc_native/data.h"
#include "mlc_native/mlc_native.h"

namespace mlc_native::c_api {

class OutputView;
using OutputViews = std::list<OutputView>;

class OutputView {
 public:
  // The view of an answer, given by its index, without text and tokens.
  OutputView(const RequestRef& request, const RequestStreamOutput& output, size_t index);
  // That of the end of a request.
  OutputView(const RequestRef& request, const RequestUsage& usage);
  OutputView(const OutputView&) = delete;
  OutputView& operator=(const OutputView&) = delete;

  const mlcn_output* get() const { return &output_; }

  // Appends what the output of a request has new: one view for each answer that has something, and
  // one for the end of the request. Takes the texts and the tokens, and leaves the usage. If it
  // throws std::bad_alloc, nothing has changed.
  static void Append(const RequestRef& request, RequestStreamOutput* output, OutputViews* views);

 private:
  struct Logprobs {
    mlcn_logprobs view{};
    std::vector<int32_t> tokens;
    std::vector<float> values;
    std::vector<int32_t> top_tokens;
    std::vector<float> top_values;
    explicit Logprobs(const std::vector<SampleResult>& results);
  };

  explicit OutputView(const RequestRef& request);
  void SetPromptLogprobs(const PromptLogprobs& logprobs);
  void TakeText(SequenceDelta* delta) noexcept;

  const RequestRef request_;
  std::string text_;
  std::string error_;
  std::vector<int32_t> tokens_;
  // Of the few that have them: most outputs are a token.
  std::unique_ptr<Logprobs> logprobs_;
  std::unique_ptr<Logprobs> prompt_logprobs_;
  std::unique_ptr<mlcn_usage> usage_;
  mlcn_output output_{};
};

}  // namespace mlc_native::c_api

// What mlcn_poll returns.
struct mlcn_outputs {
  std::vector<const mlcn_output*> outputs;
  mlc_native::c_api::OutputViews views;  // what the outputs are of
};
