// A small HTTP server for this machine only. It listens on 127.0.0.1 and never opens connections itself.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace heed::cli {

/// A request as received; none of it can be trusted.
struct HttpQuestion {
  std::string method;                                  ///< "GET"
  std::vector<std::string> hosts;                      ///< every Host header
  std::string path;                                    ///< decoded, without the query string
  std::multimap<std::string, std::string> parameters;  ///< decoded
  bool of_parts = false;                               ///< has a Range header
};

struct HttpAnswer {
  int status = 200;
  std::string type;
  std::shared_ptr<const std::string> body;
};

/// Computes an answer. It is called from several threads at once. An exception becomes status 500.
using HttpAnswerer = std::function<HttpAnswer(const HttpQuestion&)>;

/// Whether this build can serve: it was built with the library cpp-httplib.
[[nodiscard]] bool can_serve() noexcept;

/// Listens from construction on; answers while run() runs.
class HttpServer {
 public:
  /// Port 0 picks any free port. Throws Error: io if the port is taken, invalid_argument if can_serve() is
  /// false.
  explicit HttpServer(int port);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] int port() const noexcept;

  /// Answers until `stop` returns true; it is polled about 20 times a second.
  void run(HttpAnswerer answerer, const std::function<bool()>& stop);

 private:
  struct Listener;
  std::unique_ptr<Listener> listener_;
};

}  // namespace heed::cli
