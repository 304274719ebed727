"""Bugs in the rows that are added to embeddings by positions, which tests of models find."""

from __future__ import annotations

from planted.bug import Bug

FORWARD = "models/transformer_forward.cc"
EMBED = "kernels/cuda/elementwise.cu"
MAP = "weights/decoder_map.cc"
CPU = "models_test LearnedPositions.*"
KERNELS = "kernels_test *AddsRowsOfTables*"
EMBEDDING = "cuda_test ElementwiseTest.Embeds*"
CUDA = "cuda_test CudaModel.LogitsAreTheCpusInFloat32:CudaModel.APromptIsTheSameInEveryChunk"


def _bug(name: str, file: str, old: str, new: str, tests: str) -> Bug:
    return Bug(f"learned positions: {name}", file, old, new, tests)


BUGS = [
    _bug("a token has the row of its id", FORWARD,
         "add(weights.positions, positions());",
         "add(weights.positions, batch_.token_ids.data());", CPU),
    _bug("only the first chunk has them", FORWARD,
         "add(weights.positions, positions());",
         "if (positions()[0] == 0) add(weights.positions, positions());", CPU),
    _bug("rows in front of position 0 are not left out", MAP, ".first = table.first};",
         ".first = 0};", CPU),
    _bug("rows are stored in place of embeddings", "kernels/packed_weights.cc",
         "args.adds ? out[j] + value : value", "value", KERNELS),
    _bug("on CUDA all rows have that of the first", EMBED,
         "int64_t position = args.positions[row];", "int64_t position = args.positions[0];",
         EMBEDDING),
    _bug("on CUDA they are stored in place of embeddings", EMBED, "x[j] += of_position[j];",
         "x[j] = of_position[j];", EMBEDDING),
    _bug("on CUDA they have the scale of embeddings", EMBED, "x[j] += of_position[j];",
         "x[j] += args.scale * of_position[j];", EMBEDDING),
    _bug("on CUDA a token has the row behind it", "models/cuda/decoder_forward.cc",
         ".positions = batch_.positions,", ".positions = batch_.lengths,", CUDA),
    _bug("on CUDA rows of prompts have none", EMBED,
         "if (args.position_table != nullptr) {",
         "if (args.position_table != nullptr && args.m == 1) {", CUDA),
    _bug("on CUDA they are forgotten", "models/cuda/device_weights.cc",
         "if (plan.map.positions != kAbsent) view.positions", "if (false) view.positions", CUDA),
]  # fmt: skip
