// SipHash-2-4 with 128 bits (Aumasson and Bernstein), a keyed hash: without the key, it is
// infeasible to find two inputs with the same hash. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace mlc_native {

// The result is little-endian, as in the authors' vectors: the first number is bytes 0 to 7.
std::array<uint64_t, 2> SipHash128(std::span<const std::byte> bytes,
                                   const std::array<uint64_t, 2>& key);

}  // namespace mlc_native
