#include "kernels/amx_emulator.h"

#if defined(__x86_64__)

#include <signal.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace mlc_native::kernels {
namespace {

constexpr int kTiles = 8, kMaxRows = 16, kMaxRowBytes = 64;

struct TilesOfThread {
  bool configured = false;
  int rows[kTiles];
  int row_bytes[kTiles];
  unsigned char data[kTiles][kMaxRows][kMaxRowBytes];
};
thread_local TilesOfThread tiles;

// An instruction with the prefix VEX of three bytes, of the map 0F38.
struct Decoded {
  int length;
  int prefix;  // 0: none, 1: 66, 2: F3, 3: F2
  int opcode;
  bool in_memory;     // the operand that `address` and `stride` are of
  int reg, rm, vvvv;  // tiles
  uintptr_t address;
  int64_t stride;  // of the index register, times its scale
};

int64_t Register(const greg_t* registers, int number) {
  constexpr int kOrder[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                              REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                              REG_R12, REG_R13, REG_R14, REG_R15};
  return registers[kOrder[number]];
}

// Reads the operand in memory, and completes the length.
void DecodeAddress(const unsigned char* code, const greg_t* registers, Decoded* decoded) {
  const int mode = code[4] >> 6, extended = ~code[1];
  int at = 5, base = code[4] & 7;
  const bool has_index = base == 4;
  int64_t address = 0;
  if (has_index) {
    const int sib = code[at++];
    const int index = (sib >> 3 & 7) | (extended >> 6 & 1) << 3;
    if (index != 4) decoded->stride = Register(registers, index) << (sib >> 6);
    base = sib & 7;
  }
  const bool no_base = mode == 0 && base == 5;
  if (!no_base) address = Register(registers, base | (extended >> 5 & 1) << 3);
  if (mode == 1) {
    address += static_cast<int8_t>(code[at]);
    at += 1;
  } else if (mode == 2 || no_base) {
    int32_t displacement;
    std::memcpy(&displacement, code + at, sizeof(displacement));
    at += 4;
    address += displacement;
    if (no_base && !has_index) address += reinterpret_cast<int64_t>(code) + at;  // behind it
  }
  decoded->address = static_cast<uintptr_t>(address);
  decoded->length = at;
}

bool Decode(const unsigned char* code, const greg_t* registers, Decoded* decoded) {
  constexpr int kVex = 0xc4, kMap0F38 = 2;
  if (code[0] != kVex || (code[1] & 31) != kMap0F38 || (code[2] & 0x84) != 0) return false;
  *decoded = {.length = 5,
              .prefix = code[2] & 3,
              .opcode = code[3],
              .in_memory = code[4] >> 6 != 3,
              .reg = code[4] >> 3 & 7,
              .rm = code[4] & 7,
              .vvvv = ~code[2] >> 3 & 7,
              .address = 0,
              .stride = 0};
  if (decoded->in_memory) DecodeAddress(code, registers, decoded);
  return true;
}

float Flushed(float x) {
  return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

float OfBFloat16(const unsigned char* p) {
  uint16_t half;
  std::memcpy(&half, p, sizeof(half));
  const uint32_t bits = uint32_t{half} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return Flushed(value);
}

// Calls add(row, column, sum) for each sum of 32 bits.
template <typename T, typename Add>
void ForSums(int sums, Add add) {
  for (int row = 0; row < tiles.rows[sums]; ++row) {
    for (int column = 0; column < tiles.row_bytes[sums] / 4; ++column) {
      unsigned char* const place = tiles.data[sums][row] + 4 * column;
      T sum;
      std::memcpy(&sum, place, sizeof(sum));
      sum = add(row, column, sum);
      std::memcpy(place, &sum, sizeof(sum));
    }
  }
}

// tdpbf16ps. A product of two bfloat16 is exact in 24 bits, so that the sum of it rounds once, as
// the instruction's multiply-add does.
void MultiplyPairs(int sums, int a, int b) {
  ForSums<float>(sums, [&](int row, int column, float sum) {
    float even = 0, odd = 0;
    for (int k = 0; k < tiles.row_bytes[a] / 4; ++k) {
      const unsigned char* const x = tiles.data[a][row] + 4 * k;
      const unsigned char* const w = tiles.data[b][k] + 4 * column;
      even = Flushed(even + OfBFloat16(x) * OfBFloat16(w));
      odd = Flushed(odd + OfBFloat16(x + 2) * OfBFloat16(w + 2));
    }
    return Flushed(Flushed(sum) + Flushed(even + odd));
  });
}

// tdpbsud: signed bytes by unsigned ones.
void MultiplyBytes(int sums, int a, int b) {
  ForSums<int32_t>(sums, [&](int row, int column, int32_t sum) {
    for (int k = 0; k < tiles.row_bytes[a]; ++k) {
      sum += static_cast<int8_t>(tiles.data[a][row][k]) * tiles.data[b][k / 4][4 * column + k % 4];
    }
    return sum;
  });
}

bool Configure(const unsigned char* shapes) {
  if (shapes[0] != 1 || shapes[1] != 0) return false;  // the palette, and the row to start at
  for (int tile = 0; tile < kTiles; ++tile) {
    uint16_t row_bytes;
    std::memcpy(&row_bytes, shapes + 16 + 2 * tile, sizeof(row_bytes));
    tiles.row_bytes[tile] = row_bytes;
    tiles.rows[tile] = shapes[48 + tile];
    if (row_bytes > kMaxRowBytes || tiles.rows[tile] > kMaxRows) return false;
    if ((row_bytes == 0) != (tiles.rows[tile] == 0)) return false;
  }
  std::memset(tiles.data, 0, sizeof(tiles.data));
  tiles.configured = true;
  return true;
}

// Runs an instruction; false if there is none of AMX, or the processor would raise an exception.
bool Run(const Decoded& d) {
  constexpr int kNone = 0, kF3 = 2, kF2 = 3;
  if (d.opcode == 0x49 && d.prefix == kNone) {
    if (d.in_memory) return Configure(reinterpret_cast<const unsigned char*>(d.address));
    tiles.configured = false;
    return true;
  }
  if (!tiles.configured || tiles.rows[d.reg] == 0) return false;
  const int rows = tiles.rows[d.reg];
  const auto bytes = static_cast<size_t>(tiles.row_bytes[d.reg]);
  if (d.opcode == 0x49 && d.prefix == kF2) {  // tilezero
    std::memset(tiles.data[d.reg], 0, sizeof(tiles.data[d.reg]));
    return true;
  }
  if (d.opcode == 0x4b && d.in_memory && (d.prefix == kF2 || d.prefix == kF3)) {
    for (int row = 0; row < rows; ++row) {
      auto* const p = reinterpret_cast<unsigned char*>(d.address) + row * d.stride;
      d.prefix == kF2 ? std::memcpy(tiles.data[d.reg][row], p, bytes)
                      : std::memcpy(p, tiles.data[d.reg][row], bytes);
    }
    return true;
  }
  if (d.in_memory || (d.opcode != 0x5c && d.opcode != 0x5e) || d.prefix != kF3) return false;
  const int a = d.rm, b = d.vvvv;
  if (a == b || a == d.reg || b == d.reg || tiles.rows[a] != rows ||
      tiles.row_bytes[b] != tiles.row_bytes[d.reg] || tiles.row_bytes[a] != 4 * tiles.rows[b]) {
    return false;
  }
  d.opcode == 0x5c ? MultiplyPairs(d.reg, a, b) : MultiplyBytes(d.reg, a, b);
  return true;
}

// Runs the instructions of AMX from the one that was refused on.
void OnIllegalInstruction(int signal, siginfo_t*, void* context) {
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto* const begin = reinterpret_cast<const unsigned char*>(registers[REG_RIP]);
  const unsigned char* code = begin;
  Decoded decoded;
  while (Decode(code, registers, &decoded) && Run(decoded)) code += decoded.length;
  if (code == begin) ::signal(signal, SIG_DFL);  // the instruction is refused again
  registers[REG_RIP] = reinterpret_cast<greg_t>(code);
}

}  // namespace

void EmulateAmx() {
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = OnIllegalInstruction;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGILL, &action, nullptr) == 0;
  }();
  static_cast<void>(installed);
}

}  // namespace mlc_native::kernels

#endif
