#include "io/safetensors_header.hpp"

#include <algorithm>
#include <array>
#include <istream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <streambuf>
#include <string_view>
#include <tuple>

#include "io/fault.hpp"

namespace heed::io::detail {
namespace {

// All types of the official reader (safetensors 0.8); a file with another type is refused.
constexpr std::array<StoredType, 22> kTypes{
    {{"F64", 64, DType::f64}, {"F32", 32, DType::f32}, {"F16", 16, DType::f16}, {"BF16", 16, DType::bf16},
     {"I64", 64, DType::i64}, {"I32", 32, DType::i32}, {"U8", 8, DType::u8},    {"BOOL", 8, DType::boolean},
     {"F4", 4, {}},           {"F6_E2M3", 6, {}},      {"F6_E3M2", 6, {}},      {"I8", 8, {}},
     {"F8_E5M2", 8, {}},      {"F8_E4M3", 8, {}},      {"F8_E8M0", 8, {}},      {"F8_E4M3FNUZ", 8, {}},
     {"F8_E5M2FNUZ", 8, {}},  {"I16", 16, {}},         {"U16", 16, {}},         {"U32", 32, {}},
     {"C64", 64, {}},         {"U64", 64, {}}}};

template <class... Parts>
[[noreturn]] void fail_tensor(const std::string& subject, const std::string& name, const Parts&... what) {
  fail(subject, "has a tensor ", printable(name), " ", what...);
}

// Streams the header to the JSON reader, so that it is never in memory as a whole. Refuses beforehand what a
// JSON reader handles badly: an unterminated string, and a control character. (This reader takes a zero byte
// as the end of the text and would accept anything after it.)
class HeaderBuffer : public std::streambuf {
 public:
  HeaderBuffer(const RandomAccessFile& file, std::uint64_t begin, std::uint64_t end)
      : file_(file), begin_(begin), at_(begin), end_(end) {}

 protected:
  int_type underflow() override {
    if (at_ == end_) return traits_type::eof();
    const std::size_t count = std::min<std::uint64_t>(piece_.size(), end_ - at_);
    file_.read(at_, std::as_writable_bytes(std::span(piece_).first(count)));
    for (std::size_t i = 0; i < count; ++i) check(piece_[i], at_ + i - begin_);
    at_ += count;
    setg(piece_.data(), piece_.data(), piece_.data() + count);
    return traits_type::to_int_type(piece_[0]);
  }

 private:
  void check(char c, std::uint64_t place) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < ' ' && c != '\t' && c != '\n' && c != '\r')
      fail(file_.subject(), "has the control character ", byte, " at byte ", place, " of its header");
    // The JSON reader buffers everything since the start of a token, including white space.
    if (c == '"' && !escaped_) {
      in_string_ = !in_string_;
      since_quote_ = 0;
    } else if (++since_quote_ > kMaxStringBytes) {
      fail(file_.subject(), "has a string, or a gap between two, of more than ", kMaxStringBytes,
           " bytes in its header, the limit");
    }
    escaped_ = in_string_ && !escaped_ && c == '\\';
  }

  const RandomAccessFile& file_;
  const std::uint64_t begin_;
  std::uint64_t at_;
  const std::uint64_t end_;
  std::array<char, 65536> piece_{};
  bool in_string_ = false;
  bool escaped_ = false;
  std::size_t since_quote_ = 0;
};

// Handles the JSON as events. Every event must fit the one form that a header has. Nesting is thus bounded,
// and no intermediate JSON value is built.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderHandler(const std::string& subject, std::uint64_t data_size, SafetensorsHeader& header)
      : subject_(subject), data_size_(data_size), header_(header) {}

  bool null() override { misplaced(); }
  bool boolean(bool /*value*/) override { misplaced(); }
  bool number_integer(std::int64_t /*value*/) override { misplaced(); }
  bool number_float(double /*value*/, const std::string& /*text*/) override { misplaced(); }
  bool binary(nlohmann::json::binary_t& /*value*/) override { misplaced(); }

  bool number_unsigned(std::uint64_t value) override {
    if (place_ == Place::shape)
      add_size(value);
    else if (place_ == Place::offsets)
      add_offset(value);
    else
      misplaced();
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::metadata) {
      add_metadata(value);
    } else if (place_ == Place::tensor && field_ == Field::dtype) {
      tensor_.type = stored_type_named(value);
      if (tensor_.type == nullptr)
        fail_tensor(subject_, tensor_.name, "of ", printable(value),
                    ", a type that the format does not have");
    } else {
      misplaced();
    }
    return true;
  }

  bool start_object(std::size_t /*unknown*/) override {
    if (place_ == Place::outside) {
      place_ = Place::root;
    } else if (place_ == Place::root && tensor_.name == kMetadataKey) {
      if (seen_metadata_) fail(subject_, "has two entries named '__metadata__' in its header");
      seen_metadata_ = true;
      place_ = Place::metadata;
    } else if (place_ == Place::root) {
      if (header_.tensors.size() == kMaxTensors)
        fail(subject_, "has more than ", kMaxTensors, " tensors, the limit");
      place_ = Place::tensor;
      seen_ = {};
      offsets_ = 0;
      count_ = 1;
      empty_ = false;
    } else {
      misplaced();
    }
    return true;
  }

  bool key(std::string& text) override {
    if (place_ == Place::root) {
      tensor_ = StoredTensor{};
      tensor_.name = text;
    } else if (place_ == Place::metadata) {
      metadata_key_ = text;
    } else {
      start_field(text);
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      finish_tensor();
      place_ = Place::root;
    } else if (place_ == Place::metadata) {
      place_ = Place::root;
    }
    return true;
  }

  bool start_array(std::size_t /*unknown*/) override {
    if (place_ != Place::tensor || field_ == Field::dtype) misplaced();
    place_ = field_ == Field::shape ? Place::shape : Place::offsets;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offsets && offsets_ != 2) misplaced();
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*last*/,
                   const nlohmann::json::exception& /*error*/) override {
    fail(subject_, "has a header that is not JSON in UTF-8 at its byte ", position - 1);
  }

 private:
  enum class Place { outside, root, metadata, tensor, shape, offsets };
  enum class Field { dtype, shape, offsets };

  [[noreturn]] void misplaced() const {
    if (tensor_.name == kMetadataKey)
      fail(subject_, "has a __metadata__ entry that is not an object of strings");
    fail(subject_, "has a malformed entry ", printable(tensor_.name),
         " in its header: an object of a dtype (a string), a shape (whole numbers) and "
         "data_offsets (two whole numbers) is expected");
  }

  void add_metadata(std::string& value) {
    if (header_.metadata.size() == kMaxMetadataEntries)
      fail(subject_, "has more than ", kMaxMetadataEntries, " entries of metadata, the limit");
    if (!header_.metadata.emplace(metadata_key_, std::move(value)).second)
      fail(subject_, "has two entries named ", printable(metadata_key_), " in its metadata");
  }

  void start_field(const std::string& text) {
    if (text == "dtype")
      field_ = Field::dtype;
    else if (text == "shape")
      field_ = Field::shape;
    else if (text == "data_offsets")
      field_ = Field::offsets;
    else
      fail_tensor(subject_, tensor_.name, "with the key ", printable(text),
                  "; dtype, shape and data_offsets are expected");
    bool& seen = seen_[static_cast<std::size_t>(field_)];
    if (seen) fail_tensor(subject_, tensor_.name, "with the key '", text, "' twice");
    seen = true;
  }

  void add_size(std::uint64_t size) {
    // Like element_count(), leave sizes of 0 out of the product, so that they do not hide an overflow.
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (__builtin_mul_overflow(count_, std::max<std::uint64_t>(size, 1), &count_) || count_ > kMax)
      fail_tensor(subject_, tensor_.name, "with more elements than 64 bits can count");
    if (size == 0) empty_ = true;
    if (tensor_.rank++ < static_cast<std::size_t>(kMaxRank))
      tensor_.shape.push_back(static_cast<std::int64_t>(size));
  }

  void add_offset(std::uint64_t offset) {
    if (offsets_ == 2) misplaced();
    (offsets_++ == 0 ? tensor_.begin : tensor_.end) = offset;
  }

  void finish_tensor() {
    if (!seen_[0] || !seen_[1] || !seen_[2])
      fail_tensor(subject_, tensor_.name, "without a ",
                  !seen_[0]   ? "dtype"
                  : !seen_[1] ? "shape"
                              : "data_offsets");
    if (tensor_.end < tensor_.begin)
      fail_tensor(subject_, tensor_.name, "whose data run backwards, from byte ", tensor_.begin, " to byte ",
                  tensor_.end);
    if (tensor_.end > data_size_)
      fail_tensor(subject_, tensor_.name, "whose data end at byte ", tensor_.end, " of ", data_size_);
    std::uint64_t bits = 0;
    if (__builtin_mul_overflow(empty_ ? 0 : count_, std::uint64_t{tensor_.type->bits}, &bits))
      fail_tensor(subject_, tensor_.name, "with more bytes than 64 bits can count");
    if (bits % 8 != 0) fail_tensor(subject_, tensor_.name, "that does not fill its last byte");
    if (tensor_.end - tensor_.begin != bits / 8)
      fail_tensor(subject_, tensor_.name, "of ", heed::detail::counted(tensor_.end - tensor_.begin, "byte"),
                  "; its shape and ", tensor_.type->name, " need ", bits / 8);
    header_.tensors.push_back(std::move(tensor_));
  }

  const std::string& subject_;
  const std::uint64_t data_size_;
  SafetensorsHeader& header_;
  Place place_ = Place::outside;
  Field field_ = Field::dtype;
  StoredTensor tensor_;         // the entry being read
  std::array<bool, 3> seen_{};  // fields of the entry seen so far
  std::size_t offsets_ = 0;     // number of the two offsets read so far
  std::uint64_t count_ = 1;     // product of the sizes that are not 0
  bool empty_ = false;          // one of the sizes is 0
  bool seen_metadata_ = false;
  std::string metadata_key_;
};

// Checks that the tensors cover the data without gaps, from the first byte to the last.
void check_cover(const std::string& subject, const std::vector<StoredTensor>& tensors,
                 std::uint64_t data_size) {
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].begin < at)
      fail_tensor(subject, tensors[i].name, "whose data overlap those of ", printable(tensors[i - 1].name));
    if (tensors[i].begin > at)
      fail(subject, "has ", heed::detail::counted(tensors[i].begin - at, "byte"), " before the data of ",
           printable(tensors[i].name), " outside any tensor");
    at = tensors[i].end;
  }
  if (at != data_size)
    fail(subject, "has ", heed::detail::counted(data_size - at, "byte"), " after its last tensor");
}

void index_names(const std::string& subject, SafetensorsHeader& header) {
  const std::vector<StoredTensor>& tensors = header.tensors;
  header.by_name.resize(tensors.size());
  std::iota(header.by_name.begin(), header.by_name.end(), 0u);
  const auto name_of_index = [&](std::uint32_t i) -> const std::string& { return tensors[i].name; };
  std::ranges::sort(header.by_name, {}, name_of_index);
  const auto twice = std::ranges::adjacent_find(header.by_name, {}, name_of_index);
  if (twice != header.by_name.end()) fail(subject, "has two tensors named ", printable(tensors[*twice].name));
}

// The kind of a file whose first bytes are not a header length; nullptr if unknown.
const char* other_kind(const std::array<std::byte, kHeaderLengthBytes>& first) {
  const std::string_view bytes(reinterpret_cast<const char*>(first.data()), first.size());
  if (bytes.starts_with("\x93NUMPY")) return ".npy file";
  if (bytes.starts_with("PK\x03\x04")) return "zip file, as .npz and .pt are";
  if (bytes.starts_with("GGUF")) return "GGUF file";
  return nullptr;
}

}  // namespace

const StoredType* stored_type_named(std::string_view name) {
  const auto* found = std::ranges::find(kTypes, name, &StoredType::name);
  return found == kTypes.end() ? nullptr : found;
}

const StoredType& stored_type_of(DType dtype) {
  return *std::ranges::find(kTypes, std::optional(dtype), &StoredType::dtype);
}

SafetensorsHeader read_safetensors_header(const RandomAccessFile& file) {
  const std::string& subject = file.subject();
  if (file.size() < kHeaderLengthBytes)
    fail(subject, "is not a safetensors file: it has ", heed::detail::counted(file.size(), "byte"), ", and ",
         kHeaderLengthBytes, " for the length of a header are expected");
  std::array<std::byte, kHeaderLengthBytes> length_bytes{};
  file.read(0, length_bytes);
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < length_bytes.size(); ++i)
    length |= std::to_integer<std::uint64_t>(length_bytes[i]) << (8 * i);
  if (length > kMaxHeaderBytes) {
    if (const char* kind = other_kind(length_bytes); kind != nullptr)
      fail(subject, "is a ", kind, "; a safetensors file is expected");
    fail(subject, "has a header of ", length, " bytes; at most ", kMaxHeaderBytes, " are expected");
  }
  if (length > file.size() - kHeaderLengthBytes)
    fail(subject, "has a header of ", length, " bytes, of which ", file.size() - kHeaderLengthBytes,
         " are there");

  SafetensorsHeader header;
  header.data_begin = kHeaderLengthBytes + length;
  const std::uint64_t data_size = file.size() - header.data_begin;
  // Required by the format; also excludes what a JSON reader might skip: white space and a byte order mark.
  std::array<std::byte, 1> first{};
  if (length > 0) file.read(kHeaderLengthBytes, first);
  if (first[0] != std::byte{'{'}) fail(subject, "has a header that does not begin with '{'");
  HeaderBuffer buffer(file, kHeaderLengthBytes, header.data_begin);
  std::istream stream(&buffer);
  HeaderHandler handler(subject, data_size, header);
  (void)nlohmann::json::sax_parse(stream, &handler);  // errors are thrown

  // Empty tensors may share an offset; sort those by name.
  std::ranges::sort(header.tensors, {},
                    [](const StoredTensor& t) { return std::tie(t.begin, t.end, t.name); });
  index_names(subject, header);
  check_cover(subject, header.tensors, data_size);
  return header;
}

}  // namespace heed::io::detail
