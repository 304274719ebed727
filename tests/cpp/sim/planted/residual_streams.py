"""Bugs in residual streams, LAuReL and gates that are cut, which Gemma 3n has, on CPUs and CUDA."""

from __future__ import annotations

from planted.bug import Bug

CPU = "kernels/cpu/residual_streams.inl"
STEPS = "models/transformer_streams.cc"
ORDER = "models/run_layers.h"
ROWS = "models/transformer_states.cc"
DEVICE = "kernels/cuda/residual_streams.cu"
DEVICE_STEPS = "models/cuda/decoder_streams.cc"
DEVICE_ROWS = "models/cuda/decoder_states.cc"
CUTS = "kernels/cuda/gate_cut.cu"
CONFIG = "arch/gemma3n_config.cc"

KERNELS = "kernels_test Isa/ResidualStreamsTest.*"
SIZES = "models_test LayerSizes.*"
ORDERS = "models_test RunLayers.*"
CUDA_KERNELS = "cuda_test ResidualStreamsTest.*"
CUDA = "cuda_test CudaModel.LogitsAreTheCpusInFloat32"
STATES = "cuda_test CudaHiddenStates.OfRowsThatLeaveEarlyAreThoseOfTheCpu"
SEVERAL = "cuda_test ShardedLayersTest.BlocksAndStatesAreThoseOfOneDevice"


def _bug(name: str, file: str, old: str, new: str, tests: str) -> Bug:
    return Bug(f"residual streams: {name}", file, old, new, tests)


BUGS = [
    _bug("the matrix of a prediction is transposed", CPU,
         "factors[i * s.count + j]", "factors[j * s.count + i]", KERNELS),
    _bug("a prediction reads streams that are predicted already", CPU,
         "sum = Fma(Vec::Set(factors[i * s.count + j]), before[j], sum);",
         "sum = Fma(Vec::Set(factors[i * s.count + j]), load(first + j * s.step), sum);", KERNELS),
    _bug("a correction lacks its one", CPU,
         "Vec::Set(1.0f + factors[i])", "Vec::Set(factors[i])", KERNELS),
    _bug("the scale is a part of the stream", CPU,
         "store(first + i * s.step, corrected);",
         "store(first + i * s.step, i == s.active && a.scale != nullptr ? corrected * load(a.scale)"
         " : corrected);", KERNELS),
    _bug("the first stream is added to, too", CPU,
         "for (int64_t i = 1; i < a.streams.count; ++i) {\n      float* stream = first",
         "for (int64_t i = 0; i < a.streams.count; ++i) {\n      float* stream = first", KERNELS),
    _bug("small vectors are scaled to the magnitude", CPU,
         "(own < kLeastMeanSquare ? kLeastMeanSquare : own)", "own", KERNELS),
    _bug("a share below a half cuts above the mean", CONFIG,
         "is_below ? -x : x", "x", SIZES),
    _bug("the first kinds of layers have no default cuts", CONFIG,
         "constexpr size_t kSparse = 10;", "constexpr size_t kSparse = 9;", SIZES),
    _bug("on the CPU, LAuReL does not add its input", STEPS,
         "  remembered_.Add(kernels::AddArgs{.x = input_->data,",
         "  if (false) remembered_.Add(kernels::AddArgs{.x = input_->data,", CUDA),
    _bug("on the CPU, rows that leave keep the streams of others", ROWS,
         "config_.residual_streams || config_.hyper_connections ? &buffers_.streams : nullptr",
         "nullptr", STATES),
    _bug("on the CPU, tokens beyond the table have its last row", "kernels/packed_weights.cc",
         "args.ids[i] < table.n ? args.ids[i] : 0;",
         "args.ids[i] < table.n ? args.ids[i] : table.n - 1;", CUDA),
    _bug("the input of a layer is added before the streams are corrected", ORDER,
         "  ops.CorrectStreams(layer);\n  ops.Project(layer, LinearRole::kLayerInputGate);\n",
         "  ops.Project(layer, LinearRole::kLayerInputGate);\n  ops.CorrectStreams(layer);\n",
         ORDERS),
    _bug("on CUDA, a correction lacks its one", DEVICE,
         "const float factor = 1.0f + factors[i];", "const float factor = factors[i];",
         CUDA_KERNELS),
    _bug("on CUDA, the sums of a router leave out the last streams", DEVICE,
         "    if (i >= count) continue;\n    const float sum",
         "    if (i >= 2) continue;\n    const float sum", CUDA_KERNELS),
    _bug("on CUDA, the parts are of one stream", DEVICE,
         "const float* part = parts + (i - 1) * args.added_step;", "const float* part = parts;",
         CUDA_KERNELS),
    _bug("on CUDA, what a block gives is added behind the correction", DEVICE_STEPS,
         "  LaunchAddNorm(TakeAdded(), {}, nullptr);\n", "", CUDA),
    _bug("on CUDA, rows that leave keep the streams of others", DEVICE_ROWS,
         "  if (config_.residual_streams) KeepStreams();\n", "", CUDA),
    _bug("on CUDA, all rows of hidden states have the streams of the last ones", DEVICE_ROWS,
         "  streams_ = StreamsAt(buffers_.streams, decoder_.limits_.max_rows *"
         " config_.hidden_size);\n", "", STATES),
    _bug("on CUDA, a cut is of the variance", CUTS,
         "fmaf(args.deviations, sqrtf(variance), mean)", "fmaf(args.deviations, variance, mean)",
         CUDA_KERNELS),
    _bug("each of several GPUs cuts its gates by their own mean", DEVICE_STEPS,
         "    args.sums = buffers_.square_sums;\n", "", SEVERAL),
    _bug("tokens beyond the table have rows behind it on CUDA", "kernels/cuda/elementwise.cu",
         "  if (args.num_rows > 0 && id >= args.num_rows) id = 0;\n", "", CUDA),
]  # fmt: skip
