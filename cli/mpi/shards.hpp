// This rank's shards of a call's tensors, read from the files by offset.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "attend_arguments.hpp"
#include "attend_inputs.hpp"
#include "heed/distributed/attention.hpp"
#include "mpi/session.hpp"

namespace heed::cli {

class ShardReader {
 public:
  ShardReader(const Session& session, const AttendArguments& arguments)
      : session_(session), arguments_(arguments) {}

  [[nodiscard]] AttendInputs read();
  /// The distribution of queries and keys over ranks. Call it after read().
  [[nodiscard]] distributed::Layout layout() const;
  /// Whether a tensor is sharded: it has positions and does not broadcast along them.
  [[nodiscard]] bool is_cut(const std::string& option) const { return lengths_.contains(option); }
  [[nodiscard]] bool length_first() const { return arguments_.length_first; }
  /// A shard as a view of the whole tensor's shape, for checks only: it must not be read, because its memory
  /// repeats.
  [[nodiscard]] TensorView whole(const std::string& option, const TensorView& shard, int axis = -2) const;

 private:
  [[nodiscard]] ReadTensor read(const std::string& option, const std::string& text, const Along& along);
  [[nodiscard]] Sharding sharding_of_length(std::int64_t length) const;

  const Session& session_;
  const AttendArguments& arguments_;
  std::map<std::string, std::int64_t> lengths_;  // of the sharded axis, by option
};

/// Throws UsageError if a tensor would come from standard input.
void require_files(const AttendArguments& arguments);

/// Throws the errors that attention(), and attention_backward() if it follows, would throw for the whole
/// call.
void check_whole_call(const ShardReader& shards, const AttendInputs& inputs);

}  // namespace heed::cli
