"""Bugs in the choice of keys, which tests of its kernels and of models find."""

from __future__ import annotations

from planted.bug import Bug

SCORES = "kernels/cpu/key_choice.inl"
CHOICE = "kernels/key_choice.cc"
BEST = "kernels/best_keys.h"
MODEL = "models/transformer_key_choice.cc"
CUDA = "kernels/cuda/key_choice.cu"
WORKER = "kernels/cuda/latent_worker.cuh"
KERNELS = "kernels_test *KeyChoice*"
CUDA_KERNELS = "cuda_test KeyChoiceTest.*"
CHOSEN = "cuda_test LatentAttentionTest.SingleRowsOfChosenKeys"


def _bug(name: str, file: str, old: str, new: str, tests: str) -> Bug:
    return Bug(f"choice of keys: {name}", file, old, new, tests)


BUGS = [
    _bug("products below zero count", SCORES, "Fma(Max(product, Vec::Zero()),", "Fma(product,",
         KERNELS),
    _bug("only the first heads count", SCORES, "if (c.block.q_head == 0) {", "if (true) {",
         KERNELS),
    _bug("all rows have the weights of the first", SCORES,
         "args.weights + c.block.sequence->row_begin * args.ld_weights + c.block.q_head;",
         "args.weights + c.block.q_head;", KERNELS),
    _bug("of equal scores the later ones are taken", BEST,
         "if (key == threshold.value() && equal_left-- <= 0) continue;",
         "if (key == threshold.value() && --equal_left > 0) continue;", KERNELS),
    _bug("the last bits of scores are not compared", BEST, "{11, 11, 10}", "{11, 11}", KERNELS),
    _bug("rows behind the first sixteen get their choice", CHOICE,
         "args.chosen + static_cast<int64_t>(begin) * shape.num_chosen);", "args.chosen);",
         KERNELS),
    _bug("a key has the parts of its value in their order", SCORES,
         "keys[i] = source(token + i, latent);", "keys[i] = source(token + i, 0);", KERNELS),
    _bug("a token is that of its page's other half", SCORES,
         "pairs >> (token_ % 2 * 8 * sizeof(Storage))", "pairs >> 0", KERNELS),
    _bug("scales are not copied", SCORES, "KvScales(page, row)[token] = KvScales(page_, row)",
         "KvScales(page, row)[token] = 1 + 0 * KvScales(page_, row)", KERNELS),
    _bug("one page is left out", CHOICE, "std::ssize(part.rows) * layout.pages_per_row, copy);",
         "std::ssize(part.rows) * layout.pages_per_row - 1, copy);", KERNELS),
    _bug("on CUDA products below zero count", CUDA,
         "scores[tile][j] += weight * fmaxf(products[tile][2 * half + j], 0.0f);",
         "scores[tile][j] += weight * products[tile][2 * half + j];", CUDA_KERNELS),
    _bug("on CUDA shared memory goes to the next keys at once", CUDA,
         "__syncthreads();  // shared memory goes to the next keys", "", CUDA_KERNELS),
    _bug("on CUDA rows have the table of the first of their group", CUDA,
         "part.a.block_tables += first * args.ld_block_tables;", "", CUDA_KERNELS),
    _bug("on CUDA more than are wanted have the least score", CUDA,
         "(is_equal && equal < num_equal)", "is_equal", CUDA_KERNELS),
    _bug("on CUDA the key's bias is left out", CUDA,
         "x[j] * scale * weight[j] + bias[j] : 0.0f", "x[j] * scale * weight[j] : 0.0f",
         CUDA_KERNELS),
    _bug("on CUDA a chosen key is the first of its page", WORKER,
         "of_page_ = position % kPageKeys;", "of_page_ = 0;", CHOSEN),
    _bug("on CUDA keys in order are read", WORKER,
         "if (keys.chosen != nullptr) position = keys.chosen[position];", "", CHOSEN),
    _bug("on CUDA float rows read keys in order", "kernels/cuda/latent_attention.cu",
         "const int position = chosen == nullptr ? key : chosen[key];", "const int position = key;",
         CHOSEN),
]  # fmt: skip
