#include "model/files/weights.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/fault.hpp"
#include "io/json_file.hpp"
#include "io/mapped_file.hpp"
#include "io/safetensors_header.hpp"

namespace heed::detail {
namespace {

namespace fs = std::filesystem;
using io::detail::fail;
using io::detail::subject_of;
using Json = nlohmann::ordered_json;

constexpr std::uintmax_t kMaxIndexMiB = 16;
constexpr std::size_t kMaxTensors = 65536;
constexpr JsonLimits kIndexLimits = {.depth = 3, .members = kMaxTensors, .values = 2 * kMaxTensors};

// The files of the index, each once. The files themselves say which tensors they hold.
std::vector<std::string> files_of_index(const std::string& path) {
  const Json index = parsed_in_order(io::detail::json_in(path, kMaxIndexMiB, kIndexLimits));
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    fail(subject_of(path), "has no weight_map");
  std::set<std::string> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    const std::string text = file.is_string() ? file.get<std::string>() : "";
    // Only files beside the index are accepted.
    if (text.empty() || fs::path(text).filename() != text || text == "." || text == "..")
      fail(subject_of(path), "names a file outside its folder for ", io::detail::printable(name));
    files.insert(text);
  }
  return {files.begin(), files.end()};
}

// Folders older than safetensors hold a pickle, which could run anything.
void refuse_pickles(const std::string& folder) {
  std::error_code error;
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
    if (fs::exists(folder + "/" + name, error) && !fs::exists(folder + "/model.safetensors", error))
      fail(subject_of(folder), "has its weights in ", name,
           ", which heed does not read; model.safetensors is expected, which "
           "transformers can write: AutoModelForCausalLM (AutoModel for an encoder) "
           ".from_pretrained(folder).save_pretrained(folder)");
}

}  // namespace

void read_weights(const WeightMatrix& matrix, std::int64_t row, std::int64_t begin, std::int64_t count,
                  float* to) {
  const std::int64_t place = bytes_of(*matrix.format, row * matrix.columns + begin);
  read_numbers(*matrix.format, static_cast<const std::byte*>(matrix.data) + place, count, to);
}

WeightMatrix rows_between(const WeightMatrix& matrix, std::int64_t begin, std::int64_t count) {
  const auto* data = static_cast<const std::byte*>(matrix.data);
  return {data + begin * bytes_of(*matrix.format, matrix.columns), matrix.format, count, matrix.columns,
          matrix.fast};
}

void read_weight_row(const WeightMatrix& matrix, std::int64_t row, float* to) {
  read_weights(matrix, row, 0, matrix.columns, to);
}

std::shared_ptr<Weights> Weights::open(const std::string& folder) {
  auto weights = std::make_shared<Weights>(subject_of(folder), "config.json");
  const std::string index = folder + "/model.safetensors.index.json";
  std::error_code error;
  std::vector<std::string> files = {"model.safetensors"};
  // transformers reads the index only where the whole file is missing.
  if (!fs::exists(folder + "/model.safetensors", error) && fs::exists(index, error))
    files = files_of_index(index);
  else
    refuse_pickles(folder);
  for (const std::string& name : files) {
    const std::string path = folder + "/" + name;
    const io::detail::RandomAccessFile file(path);
    const io::detail::SafetensorsHeader header = io::detail::read_safetensors_header(file);
    const auto mapping = std::make_shared<const io::detail::MappedFile>(path, file.size());
    weights->keep(mapping);
    for (const io::detail::StoredTensor& tensor : header.tensors) {
      if (!tensor.type->dtype || tensor.rank > static_cast<std::size_t>(kMaxRank)) {
        // No weight has this type or rank; require_all_taken() or take() reports it.
        weights->add(tensor.name, {nullptr, nullptr, Dims{0}, file.subject()});
        continue;
      }
      const std::byte* data = mapping->data() + header.data_begin + tensor.begin;
      const std::size_t element = size_of(*tensor.type->dtype);
      if (reinterpret_cast<std::uintptr_t>(data) % element != 0) {
        auto copy = std::make_shared<Tensor>(
            Tensor::uninitialized({static_cast<std::int64_t>(tensor.end - tensor.begin)}, DType::u8));
        std::copy(data, data + (tensor.end - tensor.begin),
                  static_cast<std::byte*>(copy->mutable_view().data()));
        data = static_cast<const std::byte*>(copy->view().data());
        weights->keep(std::move(copy));
      }
      const DType dtype = *tensor.type->dtype;
      weights->add(tensor.name,
                   {data, weight_format_of(dtype), tensor.shape, file.subject(), dtype == DType::u8});
    }
  }
  return weights;
}

void Weights::add(const std::string& name, StoredWeight weight) {
  const std::string file = weight.file;
  if (!tensors_.emplace(name, std::move(weight)).second)
    fail(file, "has a tensor ", io::detail::printable(name), " that is also in another file");
}

const StoredWeight& Weights::take(const std::string& name, const Dims& shape, bool bytes) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    fail(subject_, "has no tensor ", shown(name), ", which the model of its ", configuration_, " needs");
  const StoredWeight& stored = found->second;
  if (bytes && !stored.bytes) fail(stored.file, "has a tensor ", shown(name), " that is not u8");
  if (!bytes && (stored.data == nullptr || stored.format == nullptr))
    fail(stored.file, "has a tensor ", shown(name), " that is neither f32 nor bf16 nor f16");
  if (stored.shape != shape)
    fail(stored.file, "has a tensor ", shown(name), " of shape ", stored.shape, "; ", shape,
         " is expected, as ", configuration_ == "config.json" ? "" : "its ", configuration_, " says");
  if (taken_.insert(name).second) numbers_ += element_count(shape);
  return stored;
}

WeightMatrix Weights::matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
  const StoredWeight& stored = take(name, {rows, columns});
  return {stored.data, stored.format, rows, columns, fast_};
}

std::vector<WeightMatrix> Weights::matrices(const std::string& name, std::int64_t count, std::int64_t rows,
                                            std::int64_t columns) {
  const StoredWeight& stored = take(name, {count, rows, columns});
  const WeightMatrix all = {stored.data, stored.format, count * rows, columns, fast_};
  std::vector<WeightMatrix> made;
  for (std::int64_t i = 0; i < count; ++i) made.push_back(rows_between(all, i * rows, rows));
  return made;
}

const std::uint8_t* Weights::bytes(const std::string& name, const Dims& shape) {
  return static_cast<const std::uint8_t*>(take(name, shape, true).data);
}

Tensor Weights::vector(const std::string& name, std::int64_t size) {
  const StoredWeight& stored = take(name, {size});
  Tensor numbers = Tensor::uninitialized({size}, DType::f32);
  read_numbers(*stored.format, stored.data, size, numbers.values<float>().data());
  return numbers;
}

void Weights::leave(const std::string& name) { taken_.insert(name); }

void Weights::require_all_taken() const {
  for (const auto& [name, stored] : tensors_)
    if (!taken_.contains(name))
      fail(stored.file, "has a tensor ", io::detail::printable(shown(name)),
           " that is not a parameter of the model of its ", configuration_);
}

}  // namespace heed::detail
