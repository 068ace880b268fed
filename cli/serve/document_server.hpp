// Serves a document over HTTP: its page and tiles of its weights.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "heed/inspect/document.hpp"
#include "serve/http.hpp"

namespace heed::cli {

/// Limits for one answer: weights summed into bins, and values sent.
inline constexpr std::int64_t kMaxSummed = std::int64_t{1} << 24;
inline constexpr std::int64_t kMaxSent = std::int64_t{1} << 20;

/// 32 hexadecimal digits from the system's random source. Throws Error (io) if that fails.
[[nodiscard]] std::string random_token();

/// Answers GET /TOKEN/ with the page, and
///
///     GET /TOKEN/tile?head=N&rows=R0:R1&keys=C0:C1&step=S
///
/// with the weights of rows R0 to R1 - 1 on keys C0 to C1 - 1, summed into bins of S x S. The answer is
/// little-endian f32, row by row, with -inf for a fully masked bin. Head N is batch entry N / H, head N % H.
/// All other requests are refused with a sentence: a foreign Host header (403, against DNS rebinding), a
/// missing or wrong token (403), other methods (405), other paths (404), Range headers, invalid or too large
/// tiles (400).
class DocumentServer {
 public:
  /// The document must outlive the server.
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
  mutable std::mutex computing_;  // one tile at a time, because each uses all threads
};

}  // namespace heed::cli
