// The kernels of steps that follow guesses, each against a plain loop.
#include <vector>

#include "cuda/test_util.h"
#include "mlc_native/detail/page.h"

namespace mlc_native::kernels::cuda {
namespace {

class GuessesTest : public CudaKernelTest {};
using Ints = std::vector<int32_t>;

TEST_F(GuessesTest, CountsAreAddedWhereThereAreSome) {
  DeviceArray<int32_t> tokens(Ints{7, 0, 3}), counts(Ints{2, -1, 1, 0}),
      values(Ints{10, 20, 30, 40});
  AddCounts({.tokens = tokens.data(), .counts = counts.data(), .values = values.data(), .m = 3},
            nullptr);
  EXPECT_EQ(values.Download(), (Ints{13, 20, 30, 40}));
}

TEST_F(GuessesTest, RowsBeginBehindTheGuessesThatAreRight) {
  // A row that is not moved; two of a sequence whose pages begin at 2, moved across a page; one
  // whose token is read.
  const int64_t page = kKvPageSize;
  DeviceArray<int32_t> tokens(Ints{3, 111, 222}), from(Ints{-1, 1, 2, 1}),
      counts(Ints{-1, 0, 0, -1}), ids(Ints{5, 0, 0, 0}), positions(Ints{4, 30, 31, 9}),
      lengths(Ints{5, 31, 32, 10}), tables(Ints{0, 2, 2, 5}),
      rope_positions(Ints{1, 2, 3, 20, 20, 20, 21, 21, 21, 4, 5, 6}),
      block_tables(Ints{8, 9, 20, 21, 22, 6});
  DeviceArray<int64_t> slots(
      std::vector<int64_t>{8 * page + 4, 21 * page + 14, 21 * page + 15, 6 * page + 9});
  ResolveRows({.tokens = tokens.data(),
               .from = from.data(),
               .counts = counts.data(),
               .ids = ids.data(),
               .positions = positions.data(),
               .lengths = lengths.data(),
               .rope_positions = rope_positions.data(),
               .slots = slots.data(),
               .tables = tables.data(),
               .block_tables = block_tables.data(),
               .ld_block_tables = 1,
               .m = 4},
              nullptr);
  EXPECT_EQ(ids.Download(), (Ints{5, 111, 222, 111}));
  EXPECT_EQ(positions.Download(), (Ints{4, 33, 34, 9}));
  EXPECT_EQ(lengths.Download(), (Ints{5, 34, 35, 10}));
  EXPECT_EQ(rope_positions.Download(), (Ints{1, 2, 3, 23, 23, 23, 24, 24, 24, 4, 5, 6}));
  EXPECT_EQ(slots.Download(),
            (std::vector<int64_t>{8 * page + 4, 22 * page + 1, 22 * page + 2, 6 * page + 9}));
}

TEST_F(GuessesTest, GuessesAreRightUpToTheFirstThatIsNot) {
  // No guess; two right ones of three, and one behind the wrong one; a row that cannot be sampled.
  const std::vector<GuessedRows> sequences{
      {.first_row = 0, .first_drawn = 0, .num_guesses = 0, .place = 0},
      {.first_row = 1, .first_drawn = 2, .num_guesses = 4, .place = 3},
      {.first_row = 6, .first_drawn = 7, .num_guesses = 1, .place = 10}};
  DeviceArray<GuessedRows> device(sequences);
  DeviceArray<int32_t> ids(Ints{1, 10, 11, 12, 13, 14, 20, 21}),
      drawn(Ints{50, 99, 11, 12, 60, 14, 61, -1, 70}), guesses(Ints(9, 0)), tokens(Ints(14, 88));
  AcceptGuesses({.sequences = device.data(),
                 .m = 3,
                 .ids = ids.data(),
                 .drawn = drawn.data(),
                 .guesses = guesses.data(),
                 .tokens = tokens.data()},
                nullptr);
  EXPECT_EQ(tokens.Download(), (Ints{0, 50, 50, 2, 60, 11, 12, 60, 14, 61, 0, 0, 0, 70}));
  EXPECT_EQ(guesses.Download(), (Ints{0, 0, 11, 12, 13, 14, 0, 21, 0}));
}

TEST_F(GuessesTest, TokensArePutWhereTheyBelong) {
  DeviceArray<int32_t> drawn(Ints{2, -1, 0}), ids(Ints{100, 101, 102}), places(Ints{4, 0, 2});
  for (const bool stands_for : {false, true}) {
    DeviceArray<int32_t> tokens(Ints(5, 7));
    PlaceTokens({.drawn = drawn.data(),
                 .ids = stands_for ? ids.data() : nullptr,
                 .places = places.data(),
                 .m = 3,
                 .tokens = tokens.data()},
                nullptr);
    EXPECT_EQ(tokens.Download(), stands_for ? (Ints{100, 7, 100, 7, 102}) : (Ints{0, 7, 0, 7, 2}));
  }
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
