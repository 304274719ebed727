"""Bugs in what adapters add on CUDA, which tests of its kernels and of models find."""

from __future__ import annotations

from planted.bug import Bug

CUDA = "kernels/cuda/adapters.cu"
LAYERS = "models/cuda/decoder_forward.cc"
PACK = "models/cuda/cuda_adapter.cc"
ADD = "models/cuda/decoder_adapters.cc"
INPUTS = "models/cuda/step_inputs.cc"
STEPS = "models/cuda/cuda_steps.cc"
KERNELS = "cuda_test AdaptersTest.*"
ANSWERS = "cuda_test CudaAdapters.AnswersOfAnEngineAreTheCpus"
BITS = "cuda_test CudaAdapters.SixteenBitsAreNearFloat32"
STATES = "cuda_test CudaAdapters.HiddenStatesAreTheCpus"
GRAPHS = "cuda_test CudaAdapters.ReplayedStepsHaveTheBitsOfTheFirstOnes"
MEMORY = "cuda_test AdapterMemory.*"


def _bug(name: str, file: str, old: str, new: str, tests: str) -> Bug:
    return Bug(f"adapters on CUDA: {name}", file, old, new, tests)


BUGS = [
    _bug("a row has the adapter of its neighbour", CUDA,
         "args.adapters[of];", "args.adapters[of > 0 ? of - 1 : of];", KERNELS),
    _bug("rows of a block have the adapter of the first", CUDA,
         "while (row < end && MatricesOf(args, row) == matrices) ++row;",
         "while (row < end) ++row;", KERNELS),
    _bug("all adapters have the rank of one", CUDA,
         "column * matrices.rank;", "column * kVector;", KERNELS),
    _bug("shared memory goes to the next elements at once", CUDA,
         "__syncthreads();  // shared memory goes to the next elements", "", KERNELS),
    _bug("rows that are computed later have the first adapters", CUDA,
         "part.adapters += first;", "", KERNELS),
    _bug("columns behind the rank are those of the next row", PACK,
         "(up.row + row) * width +", "(up.row + row) * linear.rank +", ANSWERS),
    _bug("gates are activated in front of what is added", LAYERS,
         "has_activation && !HasAdapters()", "has_activation", BITS),
    _bug("the residual gets what a block gives without it", LAYERS,
         "num_rows_ > 1 || HasAdapters() ||", "num_rows_ > 1 ||", BITS),
    _bug("rows that are kept have the adapters of the first ones", ADD,
         "has_kept_rows() ? batch_.logits_rows : nullptr", "nullptr", STATES),
    _bug("rows without one have that of a step before", INPUTS,
         "  std::ranges::fill(arrays.adapters, nullptr);\n", "", ANSWERS),
    _bug("steps with and without them share a graph", STEPS,
         ".adapters = inputs.adapters", ".adapters = nullptr", GRAPHS),
    _bug("memory is free before the last step has read it", STEPS,
         "adapters_.Release(++num_collected_);", "adapters_.Release(++num_collected_ + 1);",
         MEMORY),
]  # fmt: skip
