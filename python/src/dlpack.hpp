// The structs of DLPack (https://dmlc.github.io/dlpack), the ABI through which array libraries share memory.
// Versions 0 (DLManagedTensor) and 1 (DLManagedTensorVersioned, and the table of C functions that a tensor's
// type may offer as `__dlpack_c_exchange_api__`).
#pragma once

#include <cstdint>

namespace heed::python::dlpack {

inline constexpr std::uint32_t kMajor = 1;
inline constexpr std::uint32_t kMinor = 0;
inline constexpr std::int32_t kCpu = 1;  // device type
inline constexpr std::uint64_t kReadOnly = 1;

enum class Code : std::uint8_t { integer = 0, unsigned_integer = 1, floating = 2, bfloat = 4, boolean = 6 };

struct Device {
  std::int32_t type = kCpu;
  std::int32_t id = 0;
};

struct DataType {
  std::uint8_t code = 0;
  std::uint8_t bits = 0;
  std::uint16_t lanes = 1;
};

/// Strides count elements; nullptr means row-major.
struct Tensor {
  void* data = nullptr;
  Device device{};
  std::int32_t rank = 0;
  DataType dtype{};
  std::int64_t* shape = nullptr;
  std::int64_t* strides = nullptr;
  std::uint64_t byte_offset = 0;
};

struct Managed {
  Tensor tensor{};
  void* context = nullptr;
  void (*deleter)(Managed*) = nullptr;
};

struct Version {
  std::uint32_t major = kMajor;
  std::uint32_t minor = kMinor;
};

struct ManagedVersioned {
  Version version{};
  void* context = nullptr;
  void (*deleter)(ManagedVersioned*) = nullptr;
  std::uint64_t flags = 0;
  Tensor tensor{};
};

struct ExchangeHeader {
  Version version{};
  ExchangeHeader* previous = nullptr;
};

/// Each function returns 0, or -1 with a Python exception set.
struct Exchange {
  ExchangeHeader header{};
  void* allocate = nullptr;
  int (*managed_from_object)(void* object, ManagedVersioned** out) = nullptr;
  int (*managed_to_object)(ManagedVersioned* tensor, void** out_object) = nullptr;
  /// May be null. The tensor is valid as long as the object lives.
  int (*tensor_from_object)(void* object, Tensor* out) = nullptr;
  void* current_stream = nullptr;
};

}  // namespace heed::python::dlpack
