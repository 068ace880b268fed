#include "look/serve.hpp"

#include <ostream>
#include <utility>

#include "serve/document_server.hpp"
#include "train/stop_signals.hpp"

namespace heed::cli {

void serve_document(std::ostream& output, const Document& document, HtmlPage page, std::int64_t port) {
  HttpServer http(static_cast<int>(port));
  page.served = true;
  const DocumentServer server(document, html_text(page), random_token(), http.port());
  const StopSignals signals;
  output << "\nOpen " << server.address() << " in a browser on this machine. Ctrl-C stops the server.\n"
         << std::flush;
  http.run([&](const HttpQuestion& question) { return server.answer(question); }, StopSignals::asked);
  output << "\nThe server has stopped.\n";
}

}  // namespace heed::cli
