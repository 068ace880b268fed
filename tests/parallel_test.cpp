// heed's threads and fork(): a process that is forked while heed's threads exist.
#include "heed/parallel.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

namespace {

constexpr int kThreads = 3;

std::int64_t sum_to(std::int64_t count) {
  std::atomic<std::int64_t> sum = 0;
  heed::parallel_for(count, kThreads, [&](std::int64_t index, int) { sum += index; });
  return sum;
}

class Fork : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer does not follow a fork of several threads";
#endif
    ASSERT_EQ(sum_to(100), 4950);  // starts the threads
  }
};

// The exit status of a child that runs `work`, or -1 if a signal ended it, as after a hang.
template <class Work>
int status_of_child(Work work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    work();
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

TEST_F(Fork, AChildHasThreadsOfItsOwn) {
  EXPECT_EQ(status_of_child([] { _exit(sum_to(100) == 4950 ? 7 : 1); }), 7);
  EXPECT_EQ(sum_to(100), 4950);
}

TEST_F(Fork, AChildThatComputesNothingEndsAsUsual) {
  // exit() runs the destructors of statics. The pool's must not wait for threads that the child does not
  // have.
  EXPECT_EQ(status_of_child([] { std::exit(7); }), 7);  // NOLINT(concurrency-mt-unsafe)
}

TEST_F(Fork, AGrandchildHasThreadsOfItsOwn) {
  EXPECT_EQ(status_of_child([] {
              if (sum_to(10) != 45) _exit(1);
              _exit(status_of_child([] { _exit(sum_to(100) == 4950 ? 7 : 1); }));
            }),
            7);
}

TEST_F(Fork, ChildrenOfAParentAtWorkDoTheirs) {
  std::atomic<bool> done = false;
  std::thread other([&] {
    while (!done) (void)sum_to(1000);
  });
  for (int i = 0; i < 20; ++i) EXPECT_EQ(status_of_child([] { _exit(sum_to(100) == 4950 ? 7 : 1); }), 7) << i;
  done = true;
  other.join();
}

}  // namespace
