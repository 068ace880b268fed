// A small HTTP server for this machine alone: it listens on 127.0.0.1 and only ever answers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace heed::cli {

/// A request as it came: none of it can be trusted.
struct HttpQuestion {
  std::string method;                                  ///< "GET"
  std::vector<std::string> hosts;                      ///< every Host header
  std::string path;                                    ///< decoded, without what follows a '?'
  std::multimap<std::string, std::string> parameters;  ///< decoded
  bool of_parts = false;                               ///< a Range header asks for pieces
};

struct HttpAnswer {
  int status = 200;
  std::string type;
  std::shared_ptr<const std::string> body;
};

/// What answers. Called from several threads at once; what it throws becomes status 500.
using HttpAnswerer = std::function<HttpAnswer(const HttpQuestion&)>;

/// Whether this build can serve: the library cpp-httplib was there.
[[nodiscard]] bool can_serve() noexcept;

/// Listens from its construction on; answers while run() runs.
class HttpServer {
 public:
  /// Port 0 takes any that is free. Throws Error: io where the port is taken, invalid_argument without
  /// can_serve().
  explicit HttpServer(int port);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] int port() const noexcept;

  /// Answers until `stop` says so; it is asked some twenty times a second.
  void run(HttpAnswerer answerer, const std::function<bool()>& stop);

 private:
  struct Listener;
  std::unique_ptr<Listener> listener_;
};

}  // namespace heed::cli
