// The CUDA kernels of the transformer and of sampling, the counterpart of kernels/kernels.h for the
// CPU. Functions take device pointers, sizes and strides (in elements), and a stream. No globals.
//
// Steps in flight: the inputs of a step are at fixed addresses. Embed reads tokens that the host
// does not know yet from where SampleTokens of the previous step has written them; penalties read
// them there too (SamplingRow::pending).
//
// Graphs: every launch depends only on pointers, sizes and strides, not on lengths or ids in device
// memory. A captured decode step of b rows therefore serves every batch of at most b rows: unused
// rows have length 0, and every kernel skips them.
//
// Bitwise contract: a row's result depends only on its own inputs. The splits of attention depend
// on the row's own length, and the key tiles of prefill start at multiples of kPrefillKeys for any
// chunk. Sums run in a fixed order, without floating-point atomics. Gemv and Gemm add in the same
// order for any number of rows.
//
// What only one .cu file uses is in an inline namespace of its name: nvcc would put a hash of the
// file's path into the symbols of a nameless one, and two builds would differ.
//
// Launches throw DeviceError. Shapes are checked. Requires: contents are valid (ids in range,
// finite numbers), and rows start at multiples of 16 bytes.
#pragma once

#include "kernels/cuda/attention.h"
#include "kernels/cuda/guesses.h"
#include "kernels/cuda/kv_pages.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/rowwise.h"
#include "kernels/cuda/sample_tokens.h"
