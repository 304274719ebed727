"""Bugs in encoders: norms that give the residual, rows of second texts, what is pooled and cut."""

from __future__ import annotations

from planted.bug import Bug

FORWARD = "models/transformer_forward.cc"
STEPS = "models/cuda/step_inputs.cc"
REQUEST = "request/request.cc"

CUDA = "cuda_test CudaEncoders.*"
ENGINE = "core_test EngineEmbedding.*"


def _bug(name: str, file: str, old: str, new: str, tests: str) -> Bug:
    return Bug(f"encoders: {name}", file, old, new, tests)


BUGS = [
    _bug(
        "the CPU adds to the residual in front of a norm",
        FORWARD,
        "kernels::NormalizeArgs norm = Norm(buffers_.output, pre_norm, out);",
        "kernels::NormalizeArgs norm = Norm(buffers_.output, pre_norm, buffers_.hidden);",
        CUDA,
    ),
    _bug(
        "the norm of embeddings leaves the residual as it is",
        "weights/layer_map.cc",
        "IsOfEmbeddings(role) || config_.arch->norms_give_residual",
        "config_.arch->norms_give_residual",
        "models_test EncoderWeights.*",
    ),
    _bug(
        "a norm is that of its own layer",
        "weights/layer_map.cc",
        "return PrefixOfLayer(config_, names_, index_ - 1) + std::string(named.name);",
        "return PrefixOfLayer(config_, names_, index_) + std::string(named.name);",
        "models_test EncoderWeights.*",
    ),
    _bug(
        "the kernel keeps the sum",
        "kernels/cuda/norm.cu",
        "if constexpr (kKeeps) StoreFloats(residual + column, sum.values[i]);",
        "",
        "cuda_test NormTest.Keeps*",
    ),
    _bug(
        "runs of rows grow over those of another text",
        STEPS,
        "text_runs_.back().type == type;",
        "text_runs_.back().type >= type;",
        CUDA,
    ),
    _bug(
        "a second text begins one row late",
        STEPS,
        "std::clamp<int64_t>(slice.second_text - slice.position, 0, rows)",
        "std::clamp<int64_t>(slice.second_text - slice.position + 1, 0, rows)",
        CUDA,
    ),
    _bug(
        "the CPU has the rows of first texts only",
        FORWARD,
        "config_.TextTypeOf(s.IsOfSecondText(position));",
        "config_.TextTypeOf(false);",
        CUDA,
    ),
    _bug(
        "a window has all of its tokens on each side",
        "arch/model_config.cc",
        "(is_of_family || is_encoder ? window / 2 : window) + 1;",
        "(is_of_family ? window / 2 : window) + 1;",
        "models_test EncoderConfig.*",
    ),
    _bug(
        "the rows of padding are positions",
        "arch/model_config.cc",
        "kMaxPositions) -\n      unused;",
        "kMaxPositions);",
        "models_test EncoderConfig.*",
    ),
    _bug(
        "the first token is that of the batch's end",
        "step/step_batch.cc",
        "request.embeds(Pooling::kCls) ? slice.num_tokens : num_rows;",
        "num_rows;",
        ENGINE,
    ),
    _bug(
        "a text that is cut loses its last token",
        REQUEST,
        "const auto end = max_tokens > 1 ? token_ids.end() - 1 : token_ids.end();",
        "const auto end = token_ids.end();",
        ENGINE,
    ),
    _bug(
        "a second text begins behind the end",
        REQUEST,
        "second = std::min(second, request->prompt_len());",
        "",
        ENGINE,
    ),
]
