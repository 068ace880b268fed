// Backends of `heed attend`: this process, or the ranks of mpirun (cli/mpi).
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "attend_inputs.hpp"
#include "command.hpp"
#include "heed/attention/backward.hpp"

namespace heed::cli {

/// A result and the file to write it to. Over ranks, the view is this rank's shard.
struct ResultFile {
  std::string path;
  TensorView view;
  Along along;
};

class AttendBackend {
 public:
  virtual ~AttendBackend() = default;

  /// Runs before any file is read. Throws UsageError for options that the backend does not support.
  virtual void check(const CLI::App& app, const AttendArguments& arguments) = 0;
  virtual AttendInputs read(const AttendArguments& arguments) = 0;
  /// Bytes that all results together may take.
  virtual double memory() = 0;
  virtual AttentionResult forward(const AttendInputs& inputs) = 0;
  virtual void forward_into(const AttendInputs& inputs, const AttentionOutputs& outputs) = 0;
  virtual AttentionGradients backward(const AttentionBackwardInputs& from, const AttentionOptions& options,
                                      const GradientRequest& request) = 0;
  virtual void backward_into(const AttentionBackwardInputs& from, const AttentionOptions& options,
                             const AttentionGradientViews& gradients) = 0;
  /// Writes all files, or none if one fails.
  virtual void write(const std::vector<ResultFile>& files) = 0;
  /// Adds the backend's members to the output of --json.
  virtual void describe(nlohmann::ordered_json& object) = 0;
};

[[nodiscard]] Command add_attend_with(CLI::App& heed, std::shared_ptr<AttendBackend> backend);

}  // namespace heed::cli
