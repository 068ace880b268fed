// Keys and values travel in blocks of whole spans, in the order of positions. A row's spans are merged in the
// same order, so its bits agree with one process. A rank receives a block from its owners into one of two
// buffers, while it computes the previous block. The owners post their sends at once and wait for no rank.
// Each rank goes at its own pace, and takes only blocks that its rows may see. (After Liu et al. 2023, Ring
// Attention, where blocks pass from neighbour to neighbour.)
#include <array>

#include "distributed/cost_model.hpp"
#include "distributed/mpi/left_out.hpp"
#include "distributed/mpi/schemes.hpp"
#include "distributed/mpi/travel.hpp"
#include "heed/attention/streamed.hpp"

namespace heed::distributed {
namespace {

class Ring {
 public:
  Ring(const Communicator& comm, const Call& call, const AttentionOutputs& outputs)
      : comm_(comm),
        call_(call),
        keys_(call.layout.key),
        outputs_(outputs),
        rows_(call.query, {call.kv_heads(), keys_.length(), call.value.size(3)}, call.options,
              call.whole_part(call.layout.query.ranges(comm.rank())), outputs),
        blocks_(rows_.ranges(kSpanKeys)),
        sends_(comm),
        buffers_{Buffer(comm), Buffer(comm)} {}

  Work run() {
    find_needs();
    send_blocks();
    for (Buffer& buffer : buffers_) {
      buffer.key = memory_for(call_.key);
      buffer.value = memory_for(call_.value);
      receive(buffer);
    }
    for (std::size_t turn = 0; !buffers_[turn % 2].is_empty; ++turn) {
      Buffer& buffer = buffers_[turn % 2];
      buffer.messages.wait();
      const PositionRange& block = blocks_[buffer.block];
      const std::int64_t count = block.end - block.begin;
      rows_.attend(block, buffer.key.view().narrow(2, 0, count), buffer.value.view().narrow(2, 0, count));
      receive(buffer);
      sends_.test();
    }
    Work work;
    work.add(rows_.finish());
    work.add(compute_left_out(comm_, call_, outputs_, rows_.left_out()));
    sends_.wait();
    work.bytes_sent += sends_.bytes_sent();
    return work;
  }

 private:
  struct Buffer {
    explicit Buffer(const Communicator& comm) : messages(comm) {}
    Tensor key, value;
    Messages messages;
    std::size_t block = 0;
    bool is_empty = true;
  };

  // Finds the blocks that each rank's rows may see.
  void find_needs() {
    needs_.resize(blocks_.size() * static_cast<std::size_t>(comm_.size()));
    std::vector<char> own;
    for (const PositionRange& block : blocks_) own.push_back(rows_.needs(block) ? 1 : 0);
    const int count = static_cast<int>(own.size());
    check(MPI_Allgather(own.data(), count, MPI_CHAR, needs_.data(), count, MPI_CHAR, comm_.get()),
          "MPI_Allgather");
  }
  bool needs(int rank, std::size_t block) const {
    return needs_[static_cast<std::size_t>(rank) * blocks_.size() + block] != 0;
  }

  void send_blocks() {
    for (std::size_t block = 0; block < blocks_.size(); ++block) {
      const std::vector<PositionRange> rows =
          side_by_side(positions_in(keys_, comm_.rank(), blocks_[block]),
                       rows_in(keys_, comm_.rank(), blocks_[block]).begin);
      const auto slot = static_cast<std::int64_t>(block);
      for (int to = 0; to < comm_.size(); ++to) {
        if (!needs(to, block)) continue;
        sends_.send(call_.key, rows, to, tag_of(slot, 0));
        sends_.send(call_.value, rows, to, tag_of(slot, 1));
      }
    }
  }

  Tensor memory_for(const TensorView& view) const {
    std::int64_t most = 0;
    for (const PositionRange& block : blocks_) most = std::max(most, block.end - block.begin);
    return Tensor::uninitialized({view.size(0), view.size(1), most, view.size(3)}, view.dtype());
  }

  // Receives the next block that this rank's rows may see.
  void receive(Buffer& buffer) {
    while (next_ < blocks_.size() && !needs(comm_.rank(), next_)) ++next_;
    buffer.is_empty = next_ == blocks_.size();
    if (buffer.is_empty) return;
    buffer.block = next_++;
    const PositionRange& block = blocks_[buffer.block];
    const auto slot = static_cast<std::int64_t>(buffer.block);
    for (int from = 0; from < comm_.size(); ++from) {
      const std::vector<PositionRange> places = moved(positions_in(keys_, from, block), block.begin);
      buffer.messages.receive(buffer.key.mutable_view(), places, from, tag_of(slot, 0));
      buffer.messages.receive(buffer.value.mutable_view(), places, from, tag_of(slot, 1));
      if (from != comm_.rank()) continue;
      const PositionRange rows = rows_in(keys_, from, block);
      const std::int64_t count = rows.end - rows.begin;
      scatter_rows(call_.key.narrow(2, rows.begin, count), buffer.key, places);
      scatter_rows(call_.value.narrow(2, rows.begin, count), buffer.value, places);
    }
  }

  const Communicator& comm_;
  const Call& call_;
  const Sharding& keys_;
  const AttentionOutputs& outputs_;
  StreamedAttention rows_;
  const std::vector<PositionRange> blocks_;
  std::vector<char> needs_;  // [ranks][blocks]
  Messages sends_;
  std::array<Buffer, 2> buffers_;
  std::size_t next_ = 0;
};

}  // namespace

Work ring(const Communicator& comm, const Call& call, const AttentionOutputs& outputs) {
  return Ring(comm, call, outputs).run();
}

}  // namespace heed::distributed
