// OutputView: an mlcn_output, and all that it points to. Immutable once it is made; any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "c_api/request_handle.h"
#include "mlc_native/data.h"
#include "mlc_native/mlc_native.h"

namespace mlc_native::c_api {

class OutputView {
 public:
  OutputView(const OutputView&) = delete;
  OutputView& operator=(const OutputView&) = delete;

  const mlcn_output* get() const { return &output_; }

  // Appends what the output of a request has new: one view for each answer that has something, and
  // one for the end of the request.
  static void Append(const RequestRef& request, RequestStreamOutput output,
                     std::vector<std::unique_ptr<OutputView>>* views);

 private:
  struct Logprobs {
    mlcn_logprobs view{};
    std::vector<int32_t> tokens;
    std::vector<float> values;
    std::vector<int32_t> top_tokens;
    std::vector<float> top_values;
    explicit Logprobs(const std::vector<SampleResult>& results);
  };

  explicit OutputView(RequestRef request);
  void SetDelta(int32_t index, SequenceDelta delta, const std::string& error);
  void SetPromptLogprobs(const PromptLogprobs& logprobs);
  void SetUsage(const RequestUsage& usage);

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
  std::vector<std::unique_ptr<mlc_native::c_api::OutputView>> views;
};
