// The namespace of the ops: mlc_native, or what a build for tests says. torch's macros paste their
// argument, so that it must be a macro's value before they see it.
#pragma once

#include <torch/csrc/stable/library.h>

#ifndef MLC_NATIVE_OPS_NAMESPACE
#define MLC_NATIVE_OPS_NAMESPACE mlc_native
#endif

#define MLC_NATIVE_OPS_LIBRARY_OF(ns, m) STABLE_TORCH_LIBRARY(ns, m)
#define MLC_NATIVE_OPS_IMPL_OF(ns, key, m) STABLE_TORCH_LIBRARY_IMPL(ns, key, m)
#define MLC_NATIVE_OPS_LIBRARY(m) MLC_NATIVE_OPS_LIBRARY_OF(MLC_NATIVE_OPS_NAMESPACE, m)
#define MLC_NATIVE_OPS_IMPL(key, m) MLC_NATIVE_OPS_IMPL_OF(MLC_NATIVE_OPS_NAMESPACE, key, m)
