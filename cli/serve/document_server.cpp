#include "serve/document_server.hpp"

#include <unistd.h>

#include <array>
#include <bit>
#include <limits>
#include <new>
#include <utility>

#include "core/message.hpp"
#include "heed/error.hpp"
#include "options.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

using heed::detail::refuse;

static_assert(std::endian::native == std::endian::little, "tiles are sent as they lie in memory");

constexpr const char* kText = "text/plain; charset=utf-8";

HttpAnswer refusal(int status, const std::string& sentence) {
  return {status, kText, std::make_shared<const std::string>(sentence + "\n")};
}

// Compares all characters, so that timing reveals nothing about the token.
bool same_text(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
  return difference == 0;
}

const std::string& parameter(const HttpQuestion& question, const char* name) {
  const auto [first, last] = question.parameters.equal_range(name);
  if (first == last || std::next(first) != last)
    refuse(name, " is given ", first == last ? "not at all" : "more than once",
           "; tile?head=N&rows=R0:R1&keys=C0:C1&step=S is expected");
  return first->second;
}

std::int64_t number(const HttpQuestion& question, const char* name, std::int64_t least, std::int64_t most) {
  const std::string& text = parameter(question, name);
  const auto value = whole_number(text);
  if (!value || *value < least || *value > most)
    refuse(name, " is '", printable(text), "'; ", least, " to ", most, " is expected");
  return *value;
}

std::pair<std::int64_t, std::int64_t> range(const HttpQuestion& question, const char* name,
                                            std::int64_t count) {
  const std::string& text = parameter(question, name);
  const std::vector<std::int64_t> ends = whole_numbers(text, ':');
  if (ends.size() != 2 || ends[0] < 0 || ends[1] <= ends[0] || ends[1] > count)
    refuse(name, " is '", printable(text), "'; FROM:TO within 0:", count, " is expected");
  return {ends[0], ends[1]};
}

// Division avoids overflow for any sizes.
void require_at_most(std::int64_t rows, std::int64_t keys, std::int64_t most, const char* what) {
  if (rows > most / keys)
    refuse("the tile has ", rows, " x ", keys, " ", what, "; ", most, " at most are expected");
}

// The range of the tile, and the step of its bins.
std::pair<TileRange, std::int64_t> piece_of(const HttpQuestion& question, const AttentionReport& report) {
  if (question.parameters.size() != 4)
    refuse(heed::detail::there_are(question.parameters.size(), "parameter"),
           "; head, rows, keys and step are expected");
  const std::int64_t head = number(question, "head", 0, report.batch * report.heads - 1);
  const auto [row_begin, row_end] = range(question, "rows", report.queries);
  const auto [key_begin, key_end] = range(question, "keys", report.keys);
  const std::int64_t step = number(question, "step", 1, kMaxSummed);
  const auto bins = [&](std::int64_t count) { return (count + step - 1) / step; };
  require_at_most(bins(row_end - row_begin), bins(key_end - key_begin), kMaxSent, "bins");
  require_at_most(row_end - row_begin, key_end - key_begin, kMaxSummed, "weights");
  return {{row_begin, row_end, key_begin, key_end, head / report.heads, head % report.heads}, step};
}

std::string bytes_of(const WeightTile& tile) {
  Tensor weights = Tensor::copy_of(tile.weights.view(), DType::f32);
  const auto numbers = weights.values<float>();
  const auto allowed = tile.allowed.values<bool>();
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (!allowed[i]) numbers[i] = -std::numeric_limits<float>::infinity();
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()};
}

}  // namespace

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  if (getentropy(bytes.data(), bytes.size()) != 0)
    throw Error(ErrorCode::io, "the system's random source returned no bytes for the token");
  constexpr const char* kDigits = "0123456789abcdef";
  std::string token;
  for (const unsigned char byte : bytes) {
    token += kDigits[byte >> 4];
    token += kDigits[byte & 15];
  }
  return token;
}

DocumentServer::DocumentServer(const Document& document, std::string page, std::string token, int port)
    : document_(document),
      page_(std::make_shared<const std::string>(std::move(page))),
      token_(std::move(token)),
      port_(std::to_string(port)) {}

std::string DocumentServer::address() const { return "http://127.0.0.1:" + port_ + "/" + token_ + "/"; }

bool DocumentServer::is_this_host(const HttpQuestion& question) const {
  return question.hosts.size() == 1 &&
         (question.hosts[0] == "127.0.0.1:" + port_ || question.hosts[0] == "localhost:" + port_);
}

HttpAnswer DocumentServer::answer_tile(const HttpQuestion& question) const {
  const auto [range, step] = piece_of(question, document_.report);
  const std::lock_guard<std::mutex> lock(computing_);
  const WeightTile tile =
      step == 1 ? attention_tile(document_, range) : attention_tile_in_bins(document_, range, step);
  return {200, "application/octet-stream", std::make_shared<const std::string>(bytes_of(tile))};
}

HttpAnswer DocumentServer::answer(const HttpQuestion& question) const {
  if (!is_this_host(question))
    return refusal(403, "the Host header is not this server's; 127.0.0.1:" + port_ + " is expected");
  if (question.method != "GET") return refusal(405, "only GET is allowed: nothing here can be changed");
  const std::size_t end = std::min(question.path.find('/', 1), question.path.size());
  if (question.path.empty() || !same_text(question.path.substr(0, end), "/" + token_))
    return refusal(403, "the token in the address is missing or wrong: open the address that heed printed");
  const std::string rest = question.path.substr(end);
  if (rest != "/" && rest != "/tile") return refusal(404, "the path is neither the page nor tile");
  if (question.of_parts) return refusal(400, "a Range header is given; this server sends only whole answers");
  if (rest == "/") return {200, "text/html; charset=utf-8", page_};
  try {
    return answer_tile(question);
  } catch (const std::bad_alloc&) {
    return refusal(503, "not enough memory for this tile");
  } catch (const Error& error) {
    return refusal(error.code() == ErrorCode::invalid_argument ? 400 : 500, error.what());
  }
}

}  // namespace heed::cli
