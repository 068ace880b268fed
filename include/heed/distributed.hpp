// Attention and training over the ranks of MPI (libheed_mpi).
#pragma once

#include "heed/distributed/attention.hpp"
#include "heed/distributed/plan.hpp"
#include "heed/distributed/scheme.hpp"
#include "heed/distributed/train.hpp"
