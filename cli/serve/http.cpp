#include "serve/http.hpp"

#include "core/message.hpp"
#include "heed/error.hpp"

#if HEED_HTTP
#include <arpa/inet.h>
#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#endif

namespace heed::cli {

#if HEED_HTTP
namespace {

constexpr const char* kHere = "127.0.0.1";
constexpr std::size_t kMaxBody = 1024;  // bytes; requests need no body
constexpr int kPatience = 5;            // seconds to wait for the rest of a request
constexpr int kIdle = 2;                // seconds to wait for a request on an open connection
constexpr int kGrace = 1;               // seconds to finish answers after the end was asked for
constexpr int kConnections = 64;  // served at once: a browser leaves several idle, and each takes a thread

HttpQuestion question_of(const httplib::Request& request) {
  HttpQuestion question{request.method, {}, request.path, {}, request.has_header("Range")};
  const auto [begin, end] = request.headers.equal_range("Host");
  for (auto header = begin; header != end; ++header) question.hosts.push_back(header->second);
  question.parameters.insert(request.params.begin(), request.params.end());
  return question;
}

// Streams the body from its own memory. The library would compress a body set as text, which is slow.
void send(const HttpAnswer& answer, httplib::Response& response) {
  response.status = answer.status;
  if (answer.status == 405) response.set_header("Allow", "GET");
  if (answer.status != 200) return response.set_content(*answer.body, answer.type);
  const std::shared_ptr<const std::string> body = answer.body;
  response.set_content_provider(body->size(), answer.type,
                                [body](std::size_t from, std::size_t count, httplib::DataSink& sink) {
                                  return sink.write(body->data() + from, count);
                                });
}

// Shuts all connections of the server at this port. The library would wait for each, however slowly it sends.
void shut_connections(int port) {
  std::error_code none;  // without /dev/fd the server ends once the clients do
  for (const auto& file : std::filesystem::directory_iterator("/dev/fd", none)) {
    const int socket = std::stoi(file.path().filename());
    sockaddr_in here{};
    socklen_t size = sizeof here;
    if (getsockname(socket, reinterpret_cast<sockaddr*>(&here), &size) == 0 && here.sin_family == AF_INET &&
        ntohs(here.sin_port) == port)
      (void)shutdown(socket, SHUT_RDWR);
  }
}

}  // namespace

struct HttpServer::Listener {
  httplib::Server server;
  int port = 0;
};

bool can_serve() noexcept { return true; }

HttpServer::HttpServer(int port) : listener_(std::make_unique<Listener>()) {
  httplib::Server& server = listener_->server;
  // Replaces the library's default SO_REUSEPORT, which would let two servers share a port unnoticed.
  server.set_socket_options([](socket_t socket) {
    const int on = 1;
    (void)setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  });
  server.set_tcp_nodelay(true);
  server.set_payload_max_length(kMaxBody);
  server.set_read_timeout(kPatience);
  server.set_write_timeout(kPatience);
  server.set_keep_alive_timeout(kIdle);
  server.new_task_queue = [] { return new httplib::ThreadPool(kConnections); };
  server.set_default_headers({{"Cache-Control", "no-store"},
                              {"Referrer-Policy", "no-referrer"},  // the address holds the token
                              {"Cross-Origin-Resource-Policy", "same-origin"},
                              {"X-Frame-Options", "DENY"},
                              {"X-Content-Type-Options", "nosniff"}});
  const bool bound = port == 0 ? (listener_->port = server.bind_to_any_port(kHere)) > 0
                               : server.bind_to_port(kHere, listener_->port = port);
  if (!bound)
    detail::refuse(ErrorCode::io, "port ", port, " of ", kHere,
                   " cannot be opened: another program may use it");
}

void HttpServer::run(HttpAnswerer answerer, const std::function<bool()>& stop) {
  httplib::Server& server = listener_->server;
  server.set_pre_routing_handler([&](const httplib::Request& request, httplib::Response& response) {
    const HttpQuestion question = question_of(request);
    // Otherwise the library would cut a refusal to the range.
    const_cast<httplib::Request&>(request).ranges.clear();
    send(answerer(question), response);
    return httplib::Server::HandlerResponse::Handled;
  });
  // Adds a body to errors that the library reports itself.
  server.set_error_handler([](const httplib::Request&, httplib::Response& response) {
    if (response.body.empty())
      response.set_content("this is not a request that heed understands\n", "text/plain; charset=utf-8");
  });
  std::atomic<bool> ended = false;
  std::thread listening([&] {
    server.listen_after_bind();
    ended = true;
  });
  while (!stop() && !ended) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(kGrace);
  while (!ended) {  // stop() has no effect before the server listens, so repeat it
    server.stop();
    if (std::chrono::steady_clock::now() > patience) shut_connections(port());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  listening.join();
}

#else
struct HttpServer::Listener {
  int port = 0;
};

bool can_serve() noexcept { return false; }

HttpServer::HttpServer(int) {
  throw Error(ErrorCode::invalid_argument, "this heed was built without cpp-httplib and cannot serve");
}

void HttpServer::run(HttpAnswerer, const std::function<bool()>&) {}
#endif

HttpServer::~HttpServer() = default;
int HttpServer::port() const noexcept { return listener_->port; }

}  // namespace heed::cli
