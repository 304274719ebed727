// What libmlc_native exports. Everything else in it is hidden.
#pragma once

// Declared in a public header.
#define MLC_NATIVE_API __attribute__((visibility("default")))
// GCC exports a specialization of a variable template whose type is deduced, unless this is said.
#define MLC_NATIVE_HIDDEN __attribute__((visibility("hidden")))
// For the other libraries of this package, which are built from the same sources: the Python
// module, the models on CUDA, the torch ops and the tests' model. No header of it is installed for
// hosts.
#define MLC_NATIVE_PRIVATE_API __attribute__((visibility("default")))
