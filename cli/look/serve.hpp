// heed look --serve: the page in a browser, and what it asks for as one looks around.
#pragma once

#include <cstdint>
#include <iosfwd>

#include "heed/document.hpp"
#include "heed/page.hpp"

namespace heed::cli {

/// Serves the page and any piece of the document's weights on 127.0.0.1 until Ctrl-C or SIGTERM, and prints
/// the address first. Throws Error (io) where the port cannot be had.
void serve_document(std::ostream& output, const Document& document, HtmlPage page, std::int64_t port);

}  // namespace heed::cli
