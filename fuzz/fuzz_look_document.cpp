// Opens arbitrary bytes as a document of `heed look`. Either the file is refused with a message that names
// it, or every query on it succeeds.
#include <cstddef>
#include <cstdint>
#include <string>

#include "fuzz_support.hpp"
#include "heed/error.hpp"
#include "heed/inspect/document.hpp"
#include "page/report.hpp"

// Makes a failed allocation an Error; by default the sanitizer would end the program.
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}

namespace {

using heed::Document;
using heed::fuzz::MemoryFile;
using heed::fuzz::require;

// More cells would be correct, but slow.
constexpr std::int64_t kMaxCells = 1 << 22;

void ask(Document& document) {
  const heed::AttentionReport& report = document.report;
  (void)check_document(document, 2);
  if (report.queries == 0 || report.keys == 0) return;
  (void)attention_map(document, {2, 3});
  if (report.batch > 0 && report.heads > 0)
    for (const bool all : {false, true})
      (void)attended_row(document, 0, report.heads - 1, report.queries - 1, 5, all);
  (void)heed::detail::page_report(report, {});
  if (report.lse.count() > kMaxCells / report.keys) return;
  document.report.weights = attention_tile(document, {0, report.queries, 0, report.keys});
  (void)heed::detail::page_report(report, {});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const MemoryFile file;
  file.put(data, size);
  try {
    Document document = heed::open_document(file.path());
    if (document.has_report) ask(document);  // an explanation is three tensors; any call may have them
  } catch (const heed::Error& error) {
    if (error.code() == heed::ErrorCode::io)
      require(std::string(error.what()).find(file.path()) != std::string::npos);
    else
      require(error.code() == heed::ErrorCode::out_of_memory);
  }
  return 0;
}
