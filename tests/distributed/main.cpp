// Runs GoogleTest on every rank; only rank 0 prints. A test fails if it fails on any rank.
#include <gtest/gtest.h>
#include <mpi.h>

#include "mpi_layer.hpp"

namespace {

// Expects that every request has ended, and that every datatype and communicator was freed.
class NothingIsLeft : public testing::Environment {
 public:
  void TearDown() override {
    const heed::test::mpi_layer::Left left = heed::test::mpi_layer::left();
    EXPECT_EQ(left.requests, 0);
    EXPECT_EQ(left.types, 0);
    EXPECT_EQ(left.communicators, 0);
  }
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  testing::InitGoogleTest(&argc, argv);
  testing::AddGlobalTestEnvironment(new NothingIsLeft);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) delete listeners.Release(listeners.default_result_printer());
  int failed = RUN_ALL_TESTS();
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return failed;
}
