// Helpers shared by all C functions, including libheed_mpi's. Each C function runs its work inside guarded(),
// so that no exception leaves it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <span>
#include <string_view>

#include "heed/attention/masks.hpp"
#include "heed/attention/score_mod.hpp"
#include "heed/attention/sharding.hpp"
#include "heed/error.hpp"
#include "heed/heed.h"
#include "heed/tensor.hpp"

struct heed_mask {
  heed::SparseMask mask;
};
struct heed_score_mod {
  heed::ScoreMod mod;
};
struct heed_sharding {
  heed::Sharding sharding;
};

namespace heed::detail::c_api {

template <class Work>
heed_status guarded(Work work) noexcept {
  try {
    work();
    return heed_set_last_error(HEED_OK, "");
  } catch (const Error& error) {
    return heed_set_last_error(static_cast<heed_status>(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return heed_set_last_error(HEED_OUT_OF_MEMORY, "not enough memory for the workspace of the call");
  } catch (const std::exception& error) {
    return heed_set_last_error(HEED_INTERNAL, error.what());
  } catch (...) {
    return heed_set_last_error(HEED_INTERNAL, "an exception of an unknown kind");
  }
}

/// These throw if a pointer is NULL, a dtype is unknown, or a shape has a wrong rank or a negative size.
void require(std::string_view name, const void* pointer);
[[nodiscard]] DType dtype_of(std::string_view name, std::int32_t dtype);
[[nodiscard]] Dims shape_of(std::string_view name, std::int32_t rank, const std::int64_t* shape);
[[nodiscard]] MutableTensorView view_of(std::string_view name, const heed_tensor* tensor);
/// `list` may be NULL if `count` is 0.
template <class Entry>
[[nodiscard]] std::span<const Entry> list_of(std::string_view name, const Entry* list, std::size_t count) {
  if (count > 0) require(name, list);
  return {list, count};
}

/// Sets *to to a new handle of the result of make(), or to NULL if it fails.
template <class Handle, class Make>
heed_status make_handle(std::string_view name, Handle** to, Make make) noexcept {
  return guarded([&] {
    require(name, to);
    *to = nullptr;
    *to = new Handle{make()};
  });
}

}  // namespace heed::detail::c_api
