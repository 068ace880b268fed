// A C++ object held by Python, for threads that run without the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace heed::python {

/// Many readers or one writer. A waiting writer blocks later readers, but not current ones.
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

/// The library runs without the GIL, so other threads could change the object meanwhile; `access` prevents
/// this. It is locked after the GIL is released, and unlocked before the GIL is taken again. So no thread
/// waits for one while holding the other.
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
