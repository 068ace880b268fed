// A C++ object as Python holds it, for threads that work without Python's lock.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace heed::python {

/// Many may read, or one may write; a writer waits for those who read now, not for those who come after it.
class Access {
 public:
  [[nodiscard]] std::shared_lock<std::shared_mutex> to_read() {
    const std::scoped_lock turn(turn_);
    return std::shared_lock(used_);
  }
  [[nodiscard]] std::unique_lock<std::shared_mutex> to_write() {
    const std::scoped_lock turn(turn_);
    return std::unique_lock(used_);
  }

 private:
  std::mutex turn_;
  std::shared_mutex used_;
};

/// The library works without Python's lock, so that another thread may change the object meanwhile: `access`
/// keeps the two apart. It is taken after Python's lock is let go, and let go before that is taken again, so
/// that nobody waits for one of them while holding the other.
template <class Module>
struct Held {
  explicit Held(Module object) : module(std::move(object)) {}

  template <class Work>
  auto read(Work work) const {
    const nanobind::gil_scoped_release released;
    const auto reading = access->to_read();
    return work(module);
  }
  template <class Work>
  auto write(Work work) {
    const nanobind::gil_scoped_release released;
    const auto writing = access->to_write();
    return work(module);
  }

  Module module;
  std::unique_ptr<Access> access = std::make_unique<Access>();
};

}  // namespace heed::python
