#include "text/piece_cache.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace heed::detail {
namespace {

// Hashes eight bytes at a time. On a collision the later word takes the slot.
std::uint64_t hash_of(std::string_view word) {
  std::uint64_t hash = word.size();
  for (std::size_t at = 0; at < word.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t part = 0;
    std::memcpy(&part, word.data() + at, std::min(sizeof part, word.size() - at));
    hash = (std::rotl(hash, 23) ^ part) * 0x9E3779B97F4A7C15u;
  }
  return hash >> 32;
}

}  // namespace

PieceCache::PieceCache(const TokenModel& model, std::size_t text_size)
    : model_(model), slots_(std::bit_ceil(std::clamp(text_size / 32, std::size_t{1}, kMaxSlots))) {}

std::span<const TokenPiece> PieceCache::pieces_of(std::string_view word) {
  pieces_.clear();
  if (word.empty() || word.size() > kLongestWord) {
    model_.cut(word, pieces_);
    return pieces_;
  }
  Slot& slot = slots_[hash_of(word) & (slots_.size() - 1)];
  if (std::string_view(slot.word.data(), slot.size) != word) {
    model_.cut(word, pieces_);
    keep(word, slot);
    return pieces_;
  }
  for (std::size_t i = 0; i < slot.count; ++i)
    pieces_.push_back({slot.ids[i], slot.places[2 * i], slot.places[2 * i + 1]});
  return pieces_;
}

void PieceCache::keep(std::string_view word, Slot& slot) const {
  if (pieces_.size() > kMaxPieces) return;
  slot.size = static_cast<std::uint8_t>(word.size());
  slot.count = static_cast<std::uint8_t>(pieces_.size());
  std::copy(word.begin(), word.end(), slot.word.begin());
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    slot.ids[i] = static_cast<std::int32_t>(pieces_[i].id);
    slot.places[2 * i] = static_cast<std::uint8_t>(pieces_[i].begin);
    slot.places[2 * i + 1] = static_cast<std::uint8_t>(pieces_[i].end);
  }
}

}  // namespace heed::detail
