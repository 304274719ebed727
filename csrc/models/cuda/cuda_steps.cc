#include "models/cuda/cuda_steps.h"

#include <algorithm>

#include "support/check.h"

namespace mlc_native {

using kernels::cuda::AcceptGuessesArgs;
using kernels::cuda::SampleArgs;
using kernels::cuda::SampleWorkspaceBytes;

namespace {

size_t PlaceBytes(int64_t max_num_logits) {
  return UploadBuffer::ArrayBytes(max_num_logits, sizeof(int32_t));
}

}  // namespace

CudaSteps::CudaSteps(ModelDevice& device, CudaDecoder& decoder, const StepInputs::Limits& limits,
                     kernels::cuda::Stream stream, const Log& log)
    : device_(device),
      decoder_(decoder),
      limits_(limits),
      stream_(stream),
      inputs_(limits),
      graphs_(stream, log, decoder.peer()),
      sampling_inputs_(limits.vocab_size, limits.batch.max_num_logits),
      sampling_workspace_(SampleWorkspaceBytes(limits.batch.max_num_logits, limits.vocab_size)),
      drawn_(limits.batch.max_num_logits),
      places_(PlaceBytes(limits.batch.max_num_logits)) {}

size_t CudaSteps::SamplingBytes(int64_t vocab_size, int64_t max_num_logits) {
  return SamplingInputs::Bytes(vocab_size, max_num_logits) +
         SampleWorkspaceBytes(max_num_logits, vocab_size) + DrawnTokens::Bytes(max_num_logits) +
         PlaceBytes(max_num_logits);
}

void CudaSteps::Forward(const ForwardBatch& batch) {
  device_.Run([&] {
    CudaBatch inputs = inputs_.Upload(batch, num_drawn_, stream_);
    adapters_.Hold(batch.sequences, num_sampled_);
    inputs.sampled = drawn_.tokens();
    const auto forward = [&] { logits_ = decoder_.Forward(inputs); };
    if (inputs_.is_decode()) {
      const std::span<const int32_t> streams = inputs.streams.streams;
      if (!streams.empty() && !std::ranges::equal(streams, streams_)) {
        graphs_.Clear();
        streams_.assign(streams.begin(), streams.end());
      }
      graphs_.Run({.num_rows = inputs.num_rows,
                   .rows_at_once = decoder_.DecodeRowsAtOnce(inputs),
                   .sampled = inputs.sampled,
                   .states_out = inputs.streams.out,
                   .target_states = inputs.target_states,
                   .adapters = inputs.adapters},
                  forward);
    } else {
      forward();
    }
    num_logits_ = batch.logits_rows.size();
    tokens_ = batch.tokens;
  });
}

void CudaSteps::Sample(std::span<const TokenRow> rows) {
  MLC_CHECK(rows.size() == num_logits_) << rows.size() << " of " << num_logits_;
  const Peer& peer = decoder_.peer();
  device_.Run([&] {
    if (peer.is_first()) Draw(rows);
    if (peer && !rows.empty()) {
      peer.peers->SendTokens(peer.rank, DrawnOfNext(), std::ssize(rows), stream_);
    }
    AcceptGuessesArgs args = inputs_.accept_args();
    args.drawn = DrawnOfNext();
    args.guesses = drawn_.guesses();
    kernels::cuda::AcceptGuesses(args, stream_);
    drawn_.Submit(rows, inputs_.blocks(), stream_);
    ++num_sampled_;
    num_drawn_ = static_cast<int64_t>(rows.size());
  });
}

// The results are where those of the next step will be, which follow on the stream.
void CudaSteps::SampleInto(std::span<const TokenRow> rows, std::span<const int32_t> places) {
  MLC_CHECK(rows.size() == num_logits_ && places.size() == num_logits_)
      << rows.size() << " rows and " << places.size() << " places of " << num_logits_;
  for (const int32_t place : places) {
    MLC_CHECK(tokens_ != nullptr && place >= 0 && place < tokens_->num_places()) << place;
  }
  device_.Run([&] {
    Draw(rows);
    const int32_t* on_device = nullptr;
    places_.Begin();
    std::ranges::copy(places, places_.Add(std::ssize(places), &on_device).begin());
    places_.Upload(stream_);
    if (!places.empty()) {
      kernels::cuda::PlaceTokens({.drawn = DrawnOfNext(),
                                  .ids = decoder_.target_ids(),
                                  .places = on_device,
                                  .m = std::ssize(places),
                                  .tokens = tokens_->data()},
                                 stream_);
    }
    num_drawn_ = static_cast<int64_t>(rows.size());
  });
}

int32_t* CudaSteps::DrawnOfNext() const {
  SampleArgs args;
  drawn_.PlaceInto(0, &args);
  return args.tokens;
}

void CudaSteps::Draw(std::span<const TokenRow> rows) {
  for (size_t first = 0; first < rows.size();) {
    const int64_t size =
        sampling_inputs_.Upload(rows.subspan(first), drawn_.tokens(), tokens_, stream_);
    const auto at = static_cast<int64_t>(first);
    SampleArgs args{.logits = logits_ + at * decoder_.ld_logits(),
                    .ld = decoder_.ld_logits(),
                    .m = size,
                    .vocab = limits_.vocab_size,
                    .rows = sampling_inputs_.rows(),
                    .positions = sampling_inputs_.positions(),
                    .workspace = sampling_workspace_.data()};
    drawn_.PlaceInto(at, &args);
    kernels::cuda::SampleTokens(args, stream_);
    first += static_cast<size_t>(size);
  }
}

void CudaSteps::Collect(std::vector<DrawnToken>* tokens) {
  device_.Run([&] {
    drawn_.Collect(tokens);
    adapters_.Release(++num_collected_);
  });
}

void CudaSteps::WaitFor(CudaSteps& other) {
  device_.Run([&] {
    other.given_.Record(other.stream_);
    other.given_.MakeWait(stream_);
  });
}

}  // namespace mlc_native
