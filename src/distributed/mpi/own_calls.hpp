// The calls of heed/distributed/attention.hpp on a communicator that already belongs to the call. C and
// Python compare their arguments over ranks first, and copying a communicator takes as long as decoding over
// few keys.
#pragma once

#include "distributed/mpi/communicator.hpp"
#include "heed/distributed/attention.hpp"

namespace heed::distributed {

[[nodiscard]] Result attention(const Communicator& comm, const TensorView& query, const TensorView& key,
                               const TensorView& value, const Layout& layout, const AttentionOptions& options,
                               const Choice& choice);
Run attention_into(const Communicator& comm, const TensorView& query, const TensorView& key,
                   const TensorView& value, const Layout& layout, const AttentionOptions& options,
                   const AttentionOutputs& outputs, const Choice& choice);
[[nodiscard]] Gradients attention_backward(const Communicator& comm, const AttentionBackwardInputs& inputs,
                                           const Layout& layout, const AttentionOptions& options,
                                           const GradientRequest& request, const Choice& choice);
Run attention_backward_into(const Communicator& comm, const AttentionBackwardInputs& inputs,
                            const Layout& layout, const AttentionOptions& options,
                            const AttentionGradientViews& gradients, const Choice& choice);

}  // namespace heed::distributed
