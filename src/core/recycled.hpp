// Memory that repeated calls reuse.
#pragma once

#include <utility>

namespace heed::detail {

/// A T that takes over the memory of the last one on this thread, so that repeated calls allocate nothing.
template <class T>
class Recycled {
 public:
  Recycled() { std::swap(value_, kept()); }
  ~Recycled() { std::swap(value_, kept()); }
  Recycled(const Recycled&) = delete;
  Recycled& operator=(const Recycled&) = delete;

  T& operator*() { return value_; }
  const T& operator*() const { return value_; }
  T* operator->() { return &value_; }
  const T* operator->() const { return &value_; }

 private:
  static T& kept() {
    thread_local T kept;
    return kept;
  }
  T value_;
};

}  // namespace heed::detail
