// XXH64 (xxHash's specification 0.1.1), a checksum of 64 bits: fast on every processor without
// special instructions. It finds damage; it is no protection from forgery. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace mlc_native {

uint64_t Hash64(std::span<const std::byte> bytes, uint64_t seed = 0);

}  // namespace mlc_native
