// Attention for few rows. Queries travel to all ranks. Each rank computes the softmax states of all rows over
// the spans of which it has most keys. One rank merges these partial results in the order of spans, and
// returns the results to the ranks of the rows. A state is a few hundred bytes per row and span; the span's
// keys and values are megabytes.
#include <algorithm>
#include <optional>

#include "distributed/cost_model.hpp"
#include "distributed/mpi/left_out.hpp"
#include "distributed/mpi/schemes.hpp"
#include "distributed/mpi/travel.hpp"
#include "heed/attention/streamed.hpp"

namespace heed::distributed {
namespace {

// Tensors that travel in addition to the blocks' pieces have slots after theirs.
constexpr std::size_t kKey = 0, kValue = 1, kStates = 2;

class Decode {
 public:
  Decode(const Communicator& comm, const Call& call, const AttentionOutputs& outputs)
      : comm_(comm),
        call_(call),
        keys_(call.layout.key),
        queries_(call.layout.query),
        outputs_(outputs),
        sends_(comm),
        receives_(comm),
        states_(comm),
        results_(comm),
        returns_(comm) {}

  Work run() {
    merger_ = merging_rank();
    gather_queries();
    find_blocks();
    if (comm_.rank() == merger_) receive_states();
    send_pieces();
    for (std::size_t block = 0; block < blocks_.size(); ++block)
      if (owners_[block] == comm_.rank()) compute(block);
    Work work;
    if (comm_.rank() == merger_) work.add(merge());
    bring_home();
    sends_.wait();
    work.add(compute_left_out(comm_, call_, outputs_, own_left_out()));
    work.bytes_sent += sends_.bytes_sent() + results_.bytes_sent();
    return work;
  }

 private:
  // The rank that merges the states: the one with the most rows.
  int merging_rank() const {
    int best = 0;
    for (int rank = 1; rank < comm_.size(); ++rank)
      if (queries_.rows(rank) > queries_.rows(best)) best = rank;
    return best;
  }

  // Gathers a tensor of all rows on every rank.
  Tensor of_all_rows(const TensorView& own, std::int64_t slot, std::size_t index) {
    Dims shape = own.shape();
    shape[2] = queries_.length();
    Tensor whole = Tensor::uninitialized(shape, own.dtype());
    const std::vector<PositionRange> rows = side_by_side(queries_.ranges(comm_.rank()));
    for (int rank = 0; rank < comm_.size(); ++rank) {
      sends_.send(own, rows, rank, tag_of(slot, index));
      receives_.receive(whole, queries_.ranges(rank), rank, tag_of(slot, index));
    }
    scatter_rows(own, whole, queries_.ranges(comm_.rank()));
    return whole;
  }

  void gather_queries() {
    const std::int64_t slot = keys_.length() / kSpanKeys + call_.units() + 2;  // after all blocks' slots
    query_ = of_all_rows(call_.query, slot, 0);
    AttentionOptions options = call_.options;
    if (call_.mask_has_rows) options.mask = (mask_ = of_all_rows(*options.mask, slot, 1)).view();
    if (call_.bias_has_rows) options.bias = (bias_ = of_all_rows(*options.bias, slot, 2)).view();
    receives_.wait();
    AttentionOutputs views;
    for (std::size_t i = 0; i < kResultCount; ++i) {
      const MutableTensorView& own = result(outputs_, i);
      if (own.data() == nullptr) continue;
      Dims shape = own.shape();
      shape[2] = queries_.length();
      result(whole_, i) = Tensor(shape, own.dtype());
      result(views, i) = result(whole_, i).mutable_view();
    }
    all_ = {0, queries_.length()};
    rows_.emplace(query_, KeyShape{call_.kv_heads(), keys_.length(), call_.value.size(3)}, options,
                  call_.whole_part({&all_, 1}), views);
  }

  // Finds the blocks that some row may see, and the rank with the most keys of each.
  void find_blocks() {
    for (const PositionRange& block : rows_->ranges(kSpanKeys)) {
      if (!rows_->needs(block)) continue;
      int owner = 0;
      std::int64_t most = -1;
      for (int rank = 0; rank < comm_.size(); ++rank) {
        const PositionRange rows = rows_in(keys_, rank, block);
        if (rows.end - rows.begin > most) owner = rank;
        most = std::max(most, rows.end - rows.begin);
      }
      blocks_.push_back(block);
      owners_.push_back(owner);
    }
    bytes_.resize(blocks_.size());
  }

  void receive_states() {
    for (std::size_t block = 0; block < blocks_.size(); ++block) {
      bytes_[block].resize(rows_->state_bytes(blocks_[block]));
      states_.receive(bytes_[block], owners_[block], tag_of(static_cast<std::int64_t>(block), kStates));
    }
  }

  void send_pieces() {
    for (std::size_t block = 0; block < blocks_.size(); ++block) {
      const std::vector<PositionRange> rows =
          side_by_side(positions_in(keys_, comm_.rank(), blocks_[block]),
                       rows_in(keys_, comm_.rank(), blocks_[block]).begin);
      sends_.send(call_.key, rows, owners_[block], tag_of(static_cast<std::int64_t>(block), kKey));
      sends_.send(call_.value, rows, owners_[block], tag_of(static_cast<std::int64_t>(block), kValue));
    }
  }

  // The keys or values of a block, in place or gathered into `memory`.
  TensorView pieces_of(std::size_t at, const TensorView& own, std::size_t index, Tensor& memory) {
    const PositionRange& block = blocks_[at];
    const std::int64_t count = block.end - block.begin;
    const PositionRange rows = rows_in(keys_, comm_.rank(), block);
    const TensorView mine = own.narrow(2, rows.begin, rows.end - rows.begin);
    if (mine.size(2) == count) return mine;
    Dims shape = own.shape();
    shape[2] = count;
    memory = Tensor::uninitialized(shape, own.dtype());
    Messages pieces(comm_);
    for (int from = 0; from < comm_.size(); ++from) {
      const std::vector<PositionRange> places = moved(positions_in(keys_, from, block), block.begin);
      pieces.receive(memory, places, from, tag_of(static_cast<std::int64_t>(at), index));
      if (from == comm_.rank()) scatter_rows(mine, memory, places);
    }
    pieces.wait();
    return memory;
  }

  void compute(std::size_t block) {
    Tensor key_memory, value_memory;
    const TensorView key = pieces_of(block, call_.key, kKey, key_memory);
    const TensorView value = pieces_of(block, call_.value, kValue, value_memory);
    bytes_[block].resize(rows_->state_bytes(blocks_[block]));
    rows_->states(blocks_[block], key, value, bytes_[block]);
    sends_.send(bytes_[block], merger_, tag_of(static_cast<std::int64_t>(block), kStates));
    sends_.test();
  }

  AttentionRun merge() {
    states_.wait();
    for (std::size_t block = 0; block < blocks_.size(); ++block) rows_->merge(blocks_[block], bytes_[block]);
    return rows_->finish();
  }

  void bring_home() {
    const auto slot = std::ssize(blocks_);
    for (std::size_t i = 0; i < kResultCount; ++i) {
      const MutableTensorView& view = result(outputs_, i);
      if (view.data() == nullptr) continue;
      const MutableTensorView own = result_rows(view, result_entry(i).shape);
      returns_.receive(own, side_by_side(queries_.ranges(comm_.rank())), merger_, tag_of(slot, i));
      if (comm_.rank() != merger_) continue;
      const TensorView whole = result_rows(result(whole_, i).mutable_view(), result_entry(i).shape);
      for (int to = 0; to < comm_.size(); ++to)
        results_.send(whole, queries_.ranges(to), to, tag_of(slot, i));
      collect_rows(whole, queries_.ranges(comm_.rank()), own);
    }
    returns_.wait();
    results_.wait();
  }

  // This rank's rows among those that the merging rank left out.
  std::vector<PartRow> own_left_out() const {
    std::vector<std::int64_t> numbers;
    if (comm_.rank() == merger_)
      for (const PartRow& row : rows_->left_out())
        for (const std::int64_t number : {row.batch, row.head, row.row}) numbers.push_back(number);
    auto count = std::ssize(numbers);
    check(MPI_Bcast(&count, 1, MPI_INT64_T, merger_, comm_.get()), "MPI_Bcast");
    numbers.resize(static_cast<std::size_t>(count));
    check(MPI_Bcast(numbers.data(), static_cast<int>(count), MPI_INT64_T, merger_, comm_.get()), "MPI_Bcast");
    std::vector<PartRow> own;
    for (std::size_t i = 0; i < numbers.size(); i += 3)
      if (queries_.rank_of(numbers[i + 2]) == comm_.rank())
        own.push_back({numbers[i], numbers[i + 1], queries_.row_of(numbers[i + 2])});
    return own;
  }

  const Communicator& comm_;
  const Call& call_;
  const Sharding& keys_;
  const Sharding& queries_;
  const AttentionOutputs& outputs_;
  int merger_ = 0;
  Tensor query_, mask_, bias_;  // of all rows
  PositionRange all_{};
  ResultSet<Tensor> whole_;
  std::optional<StreamedAttention> rows_;
  std::vector<PositionRange> blocks_;
  std::vector<int> owners_;                    // the rank that computes each block
  std::vector<std::vector<std::byte>> bytes_;  // the states of each block
  Messages sends_, receives_, states_, results_, returns_;
};

}  // namespace

Work decode(const Communicator& comm, const Call& call, const AttentionOutputs& outputs) {
  return Decode(comm, call, outputs).run();
}

}  // namespace heed::distributed
