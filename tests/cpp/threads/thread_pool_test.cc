#include "support/thread_pool.h"

#include <gtest/gtest.h>

#if defined(__linux__)
#include <sched.h>
#endif

#include <atomic>
#include <chrono>
#include <ctime>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/check.h"

namespace mlc_native {
namespace {

using namespace std::chrono_literals;

TEST(ThreadPoolTest, EveryIndexOnceForEverySizeAndThreadCount) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (int64_t n : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<std::atomic<int>> hits(n);
      pool.ParallelFor(n, [&](int64_t begin, int64_t end, int thread) {
        EXPECT_LT(begin, end);
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, threads);
        for (int64_t i = begin; i < end; ++i) ++hits[i];
      });
      for (auto& hit : hits) ASSERT_EQ(hit, 1);
    }
  }
}

TEST(ThreadPoolTest, TheCutIsAFunctionOfSizeThreadsAndGrain) {
  ThreadPool pool(2);
  const auto cut = [&](int64_t n, int64_t grain) {
    std::mutex mutex;
    std::map<int64_t, int64_t> parts;
    pool.ParallelFor(
        n,
        [&](int64_t begin, int64_t end, int) {
          std::lock_guard lock(mutex);
          parts[begin] = end;
        },
        grain);
    return parts;
  };
  for (int repeat = 0; repeat < 50; ++repeat) {
    using Parts = std::map<int64_t, int64_t>;
    ASSERT_EQ(cut(10, 4), (Parts{{0, 5}, {5, 10}}));
    ASSERT_EQ(cut(3, 1), (Parts{{0, 1}, {1, 2}, {2, 3}}));
    ASSERT_EQ(cut(1000, 1).size(), cut(1000, 1).size());
  }
}

using Nodes = std::vector<ThreadNode>;

TEST(ThreadPoolTest, EveryIndexOnceOnSeveralNodes) {
  for (const Nodes& nodes : {Nodes{{1, {}}, {1, {}}}, Nodes{{2, {}}, {3, {}}, {1, {}}}}) {
    ThreadPool pool(nodes, ThreadPool::kSpinTime);
    EXPECT_EQ(pool.num_nodes(), std::ssize(nodes));
    for (int64_t grain : {1, 3}) {
      for (int64_t n : {0, 1, 2, 3, 7, 64, 1000}) {
        std::vector<std::atomic<int>> hits(n);
        pool.ParallelFor(
            n,
            [&](int64_t begin, int64_t end, int thread) {
              EXPECT_LT(begin, end);
              EXPECT_LT(thread, pool.num_threads());
              for (int64_t i = begin; i < end; ++i) ++hits[i];
            },
            grain);
        for (auto& hit : hits) ASSERT_EQ(hit, 1);
      }
    }
  }
}

// No thread takes a second part before each has one, so all of those are of their own nodes.
TEST(ThreadPoolTest, AThreadBeginsWithTheIntervalOfItsNode) {
  const Nodes nodes = {{2, {}}, {1, {}}, {3, {}}};
  constexpr int kFirstThread[] = {0, 2, 3, 6};
  ThreadPool pool(nodes, ThreadPool::kSpinTime);
  for (int64_t n : {6, 60, 6000}) {
    std::atomic<int> num_begun = 0;
    std::vector<std::atomic<bool>> has_begun(6);
    pool.ParallelFor(n, [&](int64_t begin, int64_t end, int thread) {
      if (has_begun[thread].exchange(true)) return;
      const int node = thread < 2 ? 0 : thread < 3 ? 1 : 2;
      EXPECT_GE(begin, n * kFirstThread[node] / 6) << thread;
      EXPECT_LE(end, n * kFirstThread[node + 1] / 6) << thread;
      ++num_begun;
      while (num_begun < 6) std::this_thread::yield();
    });
  }
}

TEST(ThreadPoolTest, ANodeThatIsDoneHelpsTheOthers) {
  ThreadPool pool({{1, {}}, {1, {}}}, ThreadPool::kSpinTime);
  std::atomic<int64_t> num_done = 0;
  pool.ParallelFor(8, [&](int64_t begin, int64_t end, int thread) {
    // The caller is stuck in its first part until all others are done.
    if (thread == 0) {
      while (num_done < 8 - (end - begin)) std::this_thread::yield();
    }
    num_done += end - begin;
  });
  EXPECT_EQ(num_done, 8);
}

TEST(ThreadPoolTest, ThreadsAreDividedInProportionToTheCpusOfNodes) {
  const auto numbers = [](int num_threads, const std::vector<std::vector<int>>& cpus) {
    std::vector<int> out;
    for (const ThreadNode& node : DivideThreads(num_threads, cpus)) out.push_back(node.num_threads);
    return out;
  };
  const std::vector<std::vector<int>> two = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  EXPECT_EQ(numbers(8, two), (std::vector{4, 4}));
  EXPECT_EQ(numbers(5, two), (std::vector{2, 3}));
  EXPECT_EQ(numbers(20, two), (std::vector{10, 10}));
  EXPECT_EQ(numbers(3, {{0}, {1, 2}}), (std::vector{1, 2}));
  EXPECT_EQ(numbers(2, {{0, 1}, {2}, {3, 4}}), (std::vector{1, 1})) << "one node has no thread";
  EXPECT_EQ(DivideThreads(8, two)[1].cpus, two[1]);
  for (const Nodes& one : {DivideThreads(4, {{0, 1, 2, 3}}), DivideThreads(1, two)}) {
    ASSERT_EQ(one.size(), 1u);
    EXPECT_TRUE(one[0].cpus.empty()) << "it may run anywhere";
  }
}

#if defined(__linux__)
TEST(ThreadPoolTest, ThreadsOfANodeStayOnItsCpus) {
  const int here = sched_getcpu();
  ThreadPool pool({{1, {}}, {1, {here}}}, ThreadPool::kSpinTime);
  std::atomic<bool> has_run = false;
  pool.ParallelFor(2, [&](int64_t, int64_t, int thread) {
    if (thread == 0) {
      while (!has_run) std::this_thread::yield();
      return;
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
    EXPECT_EQ(CPU_COUNT(&set), 1);
    EXPECT_TRUE(CPU_ISSET(here, &set));
    has_run = true;
  });
}
#endif

// A thread that is late with the last part delays the others by the length of that part.
TEST(ThreadPoolTest, TheLastPartsOfALoopAreShort) {
  for (int threads : {2, 3, 8}) {
    ThreadPool pool(threads);
    for (int64_t n : {100, 64 * threads - 1, 1000, 100000}) {
      std::vector<std::atomic<int64_t>> ends(static_cast<size_t>(n));
      std::atomic<int64_t> parts = 0;
      pool.ParallelFor(n, [&](int64_t begin, int64_t end, int) {
        ends[static_cast<size_t>(begin)] = end;
        ++parts;
      });
      EXPECT_LE(parts, 16 * threads);
      int64_t longest = n, size = 0;
      for (int64_t begin = 0; begin < n; begin += size) {
        size = ends[static_cast<size_t>(begin)] - begin;
        ASSERT_LE(size, longest + 1) << "part at " << begin << " of " << n;
        longest = size;
      }
      EXPECT_LE(size, n / (24 * threads) + 1);
    }
  }
}

TEST(ThreadPoolTest, AStuckWorkerLeavesTheOtherPartsToTheRest) {
  ThreadPool pool(2);
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::atomic<int64_t> finished = 0;
    pool.ParallelFor(8, [&](int64_t begin, int64_t end, int thread) {
      // A worker ends its first part only when the caller has done all others.
      while (thread != 0 && finished < 8 - (end - begin)) std::this_thread::yield();
      finished += end - begin;
    });
    ASSERT_EQ(finished, 8);
  }
}

TEST(ThreadPoolTest, SmallLoopsStayOnTheCaller) {
  ThreadPool pool(4);
  const auto caller = std::this_thread::get_id();
  int calls = 0;
  pool.ParallelFor(
      99,
      [&](int64_t begin, int64_t end, int) {
        EXPECT_EQ(std::this_thread::get_id(), caller);
        EXPECT_EQ(end - begin, 99);
        ++calls;
      },
      50);
  EXPECT_EQ(calls, 1);
}

TEST(ThreadPoolTest, WritesOfOneLoopAreSeenByTheNext) {
  for (const std::chrono::microseconds spin_time : {ThreadPool::kSpinTime, 0us}) {
    ThreadPool pool(3, spin_time);
    EXPECT_EQ(pool.spin_time(), spin_time);
    std::vector<int64_t> values(300, 0);
    for (int loop = 0; loop < 4000; ++loop) {
      pool.ParallelFor(300, [&](int64_t begin, int64_t end, int) {
        // Reads what another thread wrote in the loop before.
        for (int64_t i = begin; i < end; ++i) values[i] = loop % 2 == 0 ? loop : values[i] + 1;
      });
    }
    for (int64_t value : values) ASSERT_EQ(value, 3999);
  }
}

TEST(ThreadPoolTest, TheFirstExceptionArrivesAndThePoolGoesOn) {
  ThreadPool pool(3);
  for (int thrower : {0, 1, 2}) {
    std::atomic<int> finished = 0;
    try {
      pool.ParallelFor(3, [&](int64_t begin, int64_t, int) {
        if (begin >= thrower) throw std::runtime_error("part " + std::to_string(begin));
        ++finished;
      });
      FAIL() << "nothing thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), "part " + std::to_string(thrower));
    }
    EXPECT_EQ(finished, thrower);
  }
  int64_t sum = 0;
  pool.ParallelFor(1, [&](int64_t, int64_t end, int) { sum += end; });
  EXPECT_EQ(sum, 1);
}

TEST(ThreadPoolTest, NestedCallsAreInternalErrors) {
  for (int threads : {1, 2}) {
    ThreadPool pool(threads);
    EXPECT_THROW(
        pool.ParallelFor(
            2, [&](int64_t, int64_t, int) { pool.ParallelFor(2, [](int64_t, int64_t, int) {}); }),
        InternalError);
    pool.ParallelFor(2, [](int64_t, int64_t, int) {});  // still usable
  }
}

TEST(ThreadPoolTest, ConcurrentCallsAreInternalErrors) {
  ThreadPool pool(2);
  pool.ParallelFor(2, [&](int64_t begin, int64_t, int) {
    if (begin != 0) return;
    std::thread other(
        [&] { EXPECT_THROW(pool.ParallelFor(2, [](int64_t, int64_t, int) {}), InternalError); });
    other.join();
  });
}

TEST(ThreadPoolTest, NoThreadsIsAnInternalError) { EXPECT_THROW(ThreadPool(0), InternalError); }

// Processor time of the whole process, all threads.
double ProcessSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

TEST(ThreadPoolTest, AParkedPoolUsesNoProcessorTimeAndWakesUp) {
  ThreadPool pool(3);
  pool.ParallelFor(3, [](int64_t, int64_t, int) {});
  const double before = ProcessSeconds();
  // Not a synchronization: the time over which idleness is observed.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(ProcessSeconds() - before, 0.1);  // two spinning workers would use 0.6 s
  std::atomic<int> parts = 0;
  pool.ParallelFor(3, [&](int64_t, int64_t, int) { ++parts; });
  EXPECT_EQ(parts, 3);
}

}  // namespace
}  // namespace mlc_native
