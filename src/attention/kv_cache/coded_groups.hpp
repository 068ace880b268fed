// The codes of one sequence of a cache. Rows wait in the tails, in f32, until their group of positions is
// full; then the group is encoded.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/kv_cache/cache_state.hpp"

namespace heed::detail {

class CodedGroups {
 public:
  CodedGroups(CacheState& state, Sequence& sequence) : state_(state), s_(sequence) {}

  /// Writes the row at position `length` to the tails.
  void append(const Operand& key, const Operand& value, std::int64_t batch, std::int64_t row);
  /// Encodes the group that has just become full, from the tails.
  void encode_group();
  /// Returns the rows of the group that `length` cuts to the tails, and frees the scales of later groups. The
  /// rows are the original ones if the tails still hold them, else the decoded ones; evicted rows become 0.
  void truncate(std::int64_t length);
  /// Frees the scales of groups without held rows.
  void free_evicted();
  /// Frees all scales; the table still names them.
  void free_all();

 private:
  void write_tail(const Operand& from, std::int64_t batch, std::int64_t row, std::vector<float>& tail,
                  std::int64_t width, bool rotates);
  const float* tail_at(const std::vector<float>& tail, std::int64_t head, std::int64_t position,
                       std::int64_t width) const;
  std::int32_t take_scales();
  void encode_channel(std::int32_t number, std::int64_t head, std::int64_t channel, std::int64_t first);
  void encode_value(std::int64_t head, std::int64_t row);
  std::uint8_t* code_row(CacheRowsMemory& memory, std::int64_t head, std::int64_t row);
  void restore_tail(bool is_key, std::int64_t head, std::int64_t position, std::vector<float>& tail,
                    std::int64_t width);
  void give_scale_back(std::int32_t number);

  CacheState& state_;
  Sequence& s_;
};

}  // namespace heed::detail
