// Answers about a document over HTTP: its page, and any piece of its weights.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "heed/document.hpp"
#include "serve/http.hpp"

namespace heed::cli {

/// So many weights go into one answer at most: summed where a bin has several, else sent.
inline constexpr std::int64_t kMostSummed = std::int64_t{1} << 24;
inline constexpr std::int64_t kMostSent = std::int64_t{1} << 20;

/// 32 hexadecimal digits from the system's random source. Throws Error (io) where that fails.
[[nodiscard]] std::string random_token();

/// Answers GET /TOKEN/ with the page, and
///
///     GET /TOKEN/tile?head=N&rows=R0:R1&keys=C0:C1&step=S
///
/// with the weights of rows R0 to R1 - 1 against keys C0 to C1 - 1, summed into bins of S x S: little-endian
/// f32 row after row, -inf where all of a bin is masked. Head N is batch entry N / H, head N % H. All else is
/// refused in a sentence: a host that is not this machine's (403: a page elsewhere may have its name point
/// here), no or a wrong token (403), other methods (405), other paths (404), bad or too large pieces (400).
class DocumentServer {
 public:
  /// The document must outlive it.
  DocumentServer(const Document& document, std::string page, std::string token, int port);

  [[nodiscard]] std::string address() const;
  [[nodiscard]] HttpAnswer answer(const HttpQuestion& question) const;

 private:
  [[nodiscard]] bool is_this_host(const HttpQuestion& question) const;
  [[nodiscard]] HttpAnswer answer_tile(const HttpQuestion& question) const;

  const Document& document_;
  std::shared_ptr<const std::string> page_;
  std::string token_;
  std::string port_;
  mutable std::mutex computing_;  // one piece at a time takes all threads
};

}  // namespace heed::cli
