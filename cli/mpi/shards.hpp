// This rank's shards of the tensors of a call, read from their files by offset.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "attend_arguments.hpp"
#include "attend_inputs.hpp"
#include "heed/distributed.hpp"
#include "mpi/session.hpp"

namespace heed::cli {

class ShardReader {
 public:
  ShardReader(const Session& session, const AttendArguments& arguments)
      : session_(session), arguments_(arguments) {}

  [[nodiscard]] AttendInputs read();
  /// Who has which queries and keys. Once they are read.
  [[nodiscard]] distributed::Layout layout() const;
  /// Whether a tensor is cut: it has positions, and does not broadcast along them.
  [[nodiscard]] bool is_cut(const std::string& option) const { return lengths_.contains(option); }
  [[nodiscard]] bool length_first() const { return arguments_.length_first; }
  /// A view of a shard as one of the whole, which can be looked at but not read: memory repeats.
  [[nodiscard]] TensorView whole(const std::string& option, const TensorView& shard, int axis = -2) const;

 private:
  [[nodiscard]] ReadTensor read(const std::string& option, const std::string& text, const Along& along);
  [[nodiscard]] Sharding sharding_of_length(std::int64_t length) const;

  const Session& session_;
  const AttendArguments& arguments_;
  std::map<std::string, std::int64_t> lengths_;  // of the cut axis, by option
};

/// Throws UsageError where a tensor is to come from standard input.
void require_files(const AttendArguments& arguments);

/// Throws what attention(), and attention_backward() where it follows, would say of the whole call.
void check_whole_call(const ShardReader& shards, const AttendInputs& inputs);

}  // namespace heed::cli
