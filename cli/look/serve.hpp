// heed look --serve: a page in the browser that requests weights as the reader looks around.
#pragma once

#include <cstdint>
#include <iosfwd>

#include "heed/inspect/document.hpp"
#include "heed/inspect/page.hpp"

namespace heed::cli {

/// Prints the address, then serves the page and any tile of weights on 127.0.0.1 until Ctrl-C or SIGTERM.
/// Throws Error (io) if the port is not available.
void serve_document(std::ostream& output, const Document& document, HtmlPage page, std::int64_t port);

}  // namespace heed::cli
