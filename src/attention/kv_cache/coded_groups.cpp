#include "attention/kv_cache/coded_groups.hpp"

#include <algorithm>

#include "attention/kv_cache/read_row.hpp"
#include "attention/problem/elements.hpp"

namespace heed::detail {

void CodedGroups::append(const Operand& key, const Operand& value, std::int64_t batch, std::int64_t row) {
  write_tail(key, batch, row, s_.key_tail, state_.options.head_dim, state_.options.rotate);
  write_tail(value, batch, row, s_.value_tail, state_.stored_value_dim(), false);
  s_.tail_begin = std::max(s_.tail_begin, s_.length + 1 - 2 * state_.options.group);
}

void CodedGroups::free_all() {
  for (const std::int32_t group : s_.groups) give_scale_back(group);
}

void CodedGroups::write_tail(const Operand& from, std::int64_t batch, std::int64_t row,
                             std::vector<float>& tail, std::int64_t width, bool rotates) {
  const std::int64_t length = 2 * state_.options.group;
  for (std::int64_t h = 0; h < state_.options.kv_heads; ++h) {
    float* to = tail.data() + (h * length + s_.length % length) * width;
    read_numbers(from, batch, h, row, std::span(to, index(width)));
    if (rotates) rotate({to, index(width)});
  }
}

void CodedGroups::encode_group() {
  const std::int64_t begin = s_.length - state_.options.group;
  const std::int64_t first = s_.row_from(begin);
  if (first == s_.rows()) {
    s_.groups.push_back(-1);
    return;
  }
  const std::int32_t number = take_scales();
  for (std::int64_t h = 0; h < state_.options.kv_heads; ++h) {
    for (std::int64_t c = 0; c < state_.options.head_dim; ++c) encode_channel(number, h, c, first);
    for (std::int64_t row = first; row < s_.rows(); ++row) encode_value(h, row);
  }
  s_.groups.push_back(number);
}

const float* CodedGroups::tail_at(const std::vector<float>& tail, std::int64_t head, std::int64_t position,
                                  std::int64_t width) const {
  const std::int64_t length = 2 * state_.options.group;
  return tail.data() + (head * length + position % length) * width;
}

std::int32_t CodedGroups::take_scales() {
  if (!state_.free_scales.empty()) {
    const std::int32_t number = state_.free_scales.back();
    state_.free_scales.pop_back();
    state_.scale_holders[index(number)] = 1;
    return number;
  }
  const auto number = static_cast<std::int32_t>(state_.scale_holders.size());
  const auto size = index((number + 1) * state_.options.kv_heads * state_.options.head_dim);
  state_.key_scale.resize(size);
  if (state_.has_offsets()) state_.key_offset.resize(size);
  state_.scale_holders.push_back(1);
  return number;
}

// The scale covers all rows of the group, held or evicted, so codes do not depend on when rows are evicted.
void CodedGroups::encode_channel(std::int32_t number, std::int64_t head, std::int64_t channel,
                                 std::int64_t first) {
  const std::int64_t width = state_.options.head_dim;
  const auto element = [&](std::int64_t position) {
    return tail_at(s_.key_tail, head, position, width)[channel];
  };
  const std::int64_t begin = s_.length - state_.options.group;
  float low = element(begin), high = low;
  for (std::int64_t position = begin + 1; position < s_.length; ++position) {
    low = std::min(low, element(position));
    high = std::max(high, element(position));
  }
  const CodeScale scale = scale_for(state_.format, low, high);
  const std::size_t at = index((number * state_.options.kv_heads + head) * width + channel);
  state_.key_scale[at] = scale.scale;
  if (state_.has_offsets()) state_.key_offset[at] = scale.offset;
  for (std::int64_t row = first; row < s_.rows(); ++row)
    set_code(state_.format, code_row(state_.key, head, row), channel,
             encode(state_.format, scale, element(s_.position(row))));
}

void CodedGroups::encode_value(std::int64_t head, std::int64_t row) {
  const std::int64_t width = state_.stored_value_dim();
  const float* from = tail_at(s_.value_tail, head, s_.position(row), width);
  const ScaleStrides strides = value_scale_strides(state_);
  for (std::int64_t c = 0; c < width; c += state_.options.group) {
    const std::int64_t end = std::min(width, c + state_.options.group);
    const auto [low, high] = std::minmax_element(from + c, from + end);
    const CodeScale scale = scale_for(state_.format, *low, *high);
    const std::size_t at =
        index(head * strides.head + s_.slots[index(row)] * strides.row + c / state_.options.group);
    state_.value_scale[at] = scale.scale;
    if (state_.has_offsets()) state_.value_offset[at] = scale.offset;
    for (std::int64_t i = c; i < end; ++i)
      set_code(state_.format, code_row(state_.value, head, row), i, encode(state_.format, scale, from[i]));
  }
}

std::uint8_t* CodedGroups::code_row(CacheRowsMemory& memory, std::int64_t head, std::int64_t row) {
  const std::int64_t at = offset_in(memory.view, 0, head, s_.slots[index(row)]);
  return reinterpret_cast<std::uint8_t*>(memory.writable) + code_bytes(state_.format, at);
}

void CodedGroups::truncate(std::int64_t length) {
  const std::int64_t begin = length / state_.options.group * state_.options.group;
  for (std::int64_t position = begin; position < std::min(length, s_.tail_begin); ++position)
    for (std::int64_t h = 0; h < state_.options.kv_heads; ++h) {
      restore_tail(true, h, position, s_.key_tail, state_.options.head_dim);
      restore_tail(false, h, position, s_.value_tail, state_.stored_value_dim());
    }
  s_.tail_begin = std::min(s_.tail_begin, begin);
  while (std::ssize(s_.groups) > begin / state_.options.group) {
    give_scale_back(s_.groups.back());
    s_.groups.pop_back();
  }
}

void CodedGroups::restore_tail(bool is_key, std::int64_t head, std::int64_t position,
                               std::vector<float>& tail, std::int64_t width) {
  const std::int64_t length = 2 * state_.options.group;
  const std::span<float> to = {tail.data() + (head * length + position % length) * width, index(width)};
  const std::int64_t row = s_.row_from(position);
  if (row < s_.rows() && s_.position(row) == position)
    state_.read_row(s_, is_key, head, row, to);
  else
    std::ranges::fill(to, 0.0f);
}

void CodedGroups::give_scale_back(std::int32_t number) {
  if (number >= 0 && --state_.scale_holders[index(number)] == 0) state_.free_scales.push_back(number);
}

void CodedGroups::free_evicted() {
  const std::int64_t group = state_.options.group;
  for (std::size_t g = 0; g < s_.groups.size(); ++g) {
    const auto begin = static_cast<std::int64_t>(g) * group;
    if (s_.groups[g] < 0 || s_.row_from(begin) < s_.row_from(begin + group)) continue;
    give_scale_back(s_.groups[g]);
    s_.groups[g] = -1;
  }
}

}  // namespace heed::detail
