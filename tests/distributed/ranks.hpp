// Shared by tests on several ranks. Every rank draws the whole call and takes its shard; results are
// concatenated on rank 0.
#pragma once

#include <mpi.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heed/distributed/attention.hpp"
#include "random_call.hpp"

namespace heed::test {

inline int rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
inline int ranks() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// Broadcasts rank 0's text. An empty text continues the test; any other ends it on all ranks.
inline std::string agreed(std::string text) {
  int size = static_cast<int>(text.size());
  MPI_Bcast(&size, 1, MPI_INT, 0, MPI_COMM_WORLD);
  text.resize(static_cast<std::size_t>(size));
  MPI_Bcast(text.data(), size, MPI_CHAR, 0, MPI_COMM_WORLD);
  return text;
}

inline Sharding random_sharding(Draw& draw, std::int64_t length, int ranks) {
  switch (draw.between(0, 4)) {
    case 0:
      return Sharding::contiguous(length, ranks);
    case 1:
      return Sharding::zigzag(length, ranks);
    case 2:
      return Sharding::striped(length, ranks, draw.between(1, 5));
    case 3: {  // all on one rank
      std::vector<std::vector<PositionRange>> ranges(static_cast<std::size_t>(ranks));
      ranges[static_cast<std::size_t>(draw.between(0, ranks - 1))] = {{0, length}};
      return Sharding::from_ranges(ranges);
    }
    default: {
      std::vector<int> of(static_cast<std::size_t>(length));
      for (int& one : of) one = static_cast<int>(draw.between(0, ranks - 1));
      return Sharding::from_ranks(of, ranks);
    }
  }
}

/// Gives size 1 to every axis along which a view repeats; such an axis broadcasts.
inline TensorView collapsed(TensorView view) {
  for (int axis = 0; axis < view.rank(); ++axis)
    if (view.strides()[axis] == 0 && view.size(axis) > 1) view = view.narrow(axis, 0, 1);
  return view;
}

/// A rank's shard along an axis (counted from the end). A view that broadcasts along it is the same on all
/// ranks.
inline Tensor shard_of(const Sharding& sharding, const TensorView& view, int axis_from_end, int rank) {
  const int axis = view.rank() - axis_from_end;
  if (axis < 0 || (view.size(axis) == 1 && sharding.length() != 1)) return Tensor::copy_of(view);
  return sharding.shard(view, axis, rank);
}

/// A rank's shard of a call.
class ShardedCall {
 public:
  ShardedCall(const RandomCall& call, distributed::Layout of) : layout(std::move(of)), options(call.options) {
    const int own = rank();
    query = layout.query.shard(call.query, -2, own);
    key = layout.key.shard(call.key, -2, own);
    value = layout.key.shard(call.value, -2, own);
    memory_.reserve(2);
    for (std::optional<TensorView>* view : {&options.mask, &options.bias})
      if (*view) {
        memory_.push_back(shard_of(layout.query, collapsed(**view), 2, own));
        *view = memory_.back().view();
      }
  }

  Tensor query, key, value;
  distributed::Layout layout;
  AttentionOptions options;

 private:
  std::vector<Tensor> memory_;
};

/// Concatenates the shards of all ranks along an axis, on rank 0; returns nothing elsewhere.
inline Tensor joined(const Tensor& shard, const Sharding& sharding, int axis_from_end) {
  const int axis = shard.rank() - axis_from_end;
  const auto bytes = [](const Tensor& tensor) {
    return static_cast<int>(static_cast<std::size_t>(tensor.count()) * size_of(tensor.dtype()));
  };
  if (rank() != 0) {
    MPI_Send(shard.view().data(), bytes(shard), MPI_BYTE, 0, 7, MPI_COMM_WORLD);
    return {};
  }
  std::vector<Tensor> shards{shard};
  for (int from = 1; from < ranks(); ++from) {
    Dims shape = shard.shape();
    shape[axis] = sharding.rows(from);
    Tensor& one = shards.emplace_back(shape, shard.dtype());
    MPI_Recv(one.mutable_view().data(), bytes(one), MPI_BYTE, from, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  std::vector<TensorView> views(shards.begin(), shards.end());
  return sharding.join(views, axis);
}

/// A result of all ranks, on rank 0. A result that every rank holds whole is taken from rank 0.
inline Tensor joined_result(const Tensor& result, ResultShape shape, const distributed::Layout& layout) {
  if (shape == ResultShape::map) return result;
  const bool row = shape == ResultShape::row || shape == ResultShape::key || shape == ResultShape::key_last;
  return joined(result, has_rows(shape) ? layout.query : layout.key, row ? 1 : 2);
}

}  // namespace heed::test
