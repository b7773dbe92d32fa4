#include <accel/batch_share.h>

#include <gtest/gtest.h>

#include <vector>

using accel::BatchShare;

namespace {

std::vector<int64_t> parts(int64_t global, int64_t world) {
  std::vector<int64_t> local;
  for (int64_t rank = 0; rank < world; ++rank) {
    local.push_back(BatchShare::of(global, rank, world).local);
  }
  return local;
}

} // namespace

TEST(BatchShare, SplitsIntoContiguousParts) {
  for (int64_t world = 1; world <= 9; ++world) {
    for (int64_t global = 0; global <= 40; ++global) {
      int64_t next = 0;
      const auto first = BatchShare::of(global, 0, world);
      for (int64_t rank = 0; rank < world; ++rank) {
        const auto share = BatchShare::of(global, rank, world);
        EXPECT_EQ(share.global, global);
        EXPECT_LE(share.rows(), first.rows());
        if (share.ghost()) {
          EXPECT_EQ(share.offset, 0);
          EXPECT_EQ(share.weight(), 0);
          EXPECT_LE(share.rows(), std::max<int64_t>(global, 1));
        } else {
          EXPECT_EQ(share.offset, next);
          EXPECT_EQ(share.rows(), share.local);
          EXPECT_LE(first.local - share.local, 1);
        }
        // One row only where it cannot be helped.
        EXPECT_TRUE(share.rows() > 1 || global <= 1 || global == world);
        next += share.local;
      }
      EXPECT_EQ(next, global) << "of " << global << " in " << world;
    }
  }
}

TEST(BatchShare, KeepsPairsWhereTheModelNeedsThem) {
  using Parts = std::vector<int64_t>;
  BatchShare::keep_pairs(true);
  EXPECT_EQ(parts(4, 4), (Parts{2, 2, 0, 0}));
  EXPECT_EQ(parts(3, 3), (Parts{3, 0, 0}));
  EXPECT_EQ(parts(1, 1), (Parts{1}));
  EXPECT_EQ(parts(8, 4), (Parts{2, 2, 2, 2}));
  BatchShare::keep_pairs(false);
  EXPECT_EQ(parts(4, 4), (Parts{1, 1, 1, 1}));
}

TEST(BatchShare, LeavesNoProcessWithOneRow) {
  using Parts = std::vector<int64_t>;
  EXPECT_EQ(parts(64, 3), (Parts{22, 21, 21}));
  EXPECT_EQ(parts(7, 4), (Parts{3, 2, 2, 0}));
  EXPECT_EQ(parts(3, 2), (Parts{3, 0}));
  EXPECT_EQ(parts(4, 4), (Parts{1, 1, 1, 1}));
  EXPECT_EQ(parts(2, 4), (Parts{2, 0, 0, 0}));
  EXPECT_EQ(parts(1, 2), (Parts{1, 0}));
  EXPECT_EQ(BatchShare::of(2, 3, 4).rows(), 2);
  EXPECT_EQ(BatchShare::of(1, 1, 2).rows(), 1);
}
