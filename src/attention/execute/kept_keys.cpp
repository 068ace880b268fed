// A reference call whose keys arrive in ranges. It keeps them, and computes at the end.
#include <cstring>

#include "attention/execute/key_stream.hpp"
#include "attention/problem/operands.hpp"
#include "attention/reference/reference.hpp"

namespace heed::detail {
namespace {

std::size_t bytes_of(const TensorView& view) {
  return static_cast<std::size_t>(view.count()) * size_of(view.dtype());
}

class KeptKeys final : public KeyStream {
 public:
  explicit KeptKeys(const Problem& problem)
      : p_(problem),
        key_({p_.batch, p_.kv_heads, p_.key_length, p_.head_dim}, p_.dtype),
        value_({p_.batch, p_.kv_heads, p_.key_length, p_.value_dim}, p_.dtype) {}

  void attend(const ArrivedKeys& arrived) override {
    copy(arrived.key, range_of(key_, arrived.keys));
    copy(arrived.value, range_of(value_, arrived.keys));
  }

  void states(const ArrivedKeys& arrived, std::byte* bytes) override {
    for (const TensorView& view : {arrived.key, arrived.value}) {
      const Tensor dense = Tensor::copy_of(view);
      if (dense.count() > 0) std::memcpy(bytes, dense.view().data(), bytes_of(dense));
      bytes += bytes_of(dense);
    }
  }

  void merge(const KeyRange& keys, const std::byte* bytes) override {
    for (Tensor* kept : {&key_, &value_}) {
      const MutableTensorView to = range_of(*kept, keys);
      Tensor dense = Tensor::uninitialized(to.shape(), to.dtype());
      if (dense.count() > 0) std::memcpy(dense.mutable_view().data(), bytes, bytes_of(dense));
      copy(dense, to);
      bytes += bytes_of(dense);
    }
  }

  [[nodiscard]] std::size_t state_bytes(const KeyRange& keys) const override {
    const std::int64_t numbers =
        p_.batch * p_.kv_heads * (keys.end - keys.begin) * (p_.head_dim + p_.value_dim);
    return static_cast<std::size_t>(numbers) * size_of(p_.dtype);
  }

  KernelRun finish(std::vector<cpu::RowStatus>& /*status*/) override {
    Problem problem = p_;
    problem.key = tensor_of("key", key_).rows;
    problem.value = tensor_of("value", value_).rows;
    return run_reference(problem);
  }

  [[nodiscard]] std::size_t bytes() const override { return bytes_of(key_) + bytes_of(value_); }

 private:
  static MutableTensorView range_of(Tensor& all, const KeyRange& keys) {
    return all.mutable_view().narrow(2, keys.begin, keys.end - keys.begin);
  }

  const Problem& p_;
  Tensor key_, value_;
};

}  // namespace

std::unique_ptr<KeyStream> reference_stream(const Problem& problem) {
  return std::make_unique<KeptKeys>(problem);
}

}  // namespace heed::detail
