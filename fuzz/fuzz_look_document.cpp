// What `heed look` keeps in a file: whatever its bytes are, the file is refused in one sentence that names
// it, or every question that can be asked of it has an answer.
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

#include "command.hpp"
#include "fuzz_support.hpp"
#include "heed/error.hpp"
#include "look/answer.hpp"
#include "look/check.hpp"
#include "look/document.hpp"
#include "look/print.hpp"
#include "look/tables.hpp"
#include "page/report.hpp"

// A result that is too large is an Error, not the sanitizer's end of the program.
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}

namespace {

using heed::cli::LookArguments;
using heed::cli::Subject;
using heed::fuzz::MemoryFile;
using heed::fuzz::require;

void ask_for_summary(const Subject& subject, std::ostringstream& out) {
  const heed::cli::Sheet sheet{out};
  LookArguments arguments;
  arguments.order = heed::cli::HeadOrder::entropy;
  arguments.check = 2;
  const auto heads = heads_of(subject, arguments);
  print_subject(sheet, subject);
  print_heads(sheet, subject, heads);
  (void)check_report(subject, arguments);
  out << heed::cli::heads_csv(heads) << subject_json(subject).dump() << heads_json(subject, heads).dump();
  if (subject.report.queries == 0 || subject.report.keys == 0) return;
  arguments.map = {2, 3};
  const heed::Tensor map = answer_map(subject, arguments);
  print_map(sheet, subject, map, heads);
  out << heed::cli::values_json(map).dump();
}

void ask_for_rows(const Subject& subject, std::ostringstream& out) {
  const heed::cli::Sheet sheet{out};
  LookArguments arguments;
  if (subject.report.queries == 0) return;
  arguments.row = subject.report.queries - 1;
  const auto row = answer_row(subject, arguments);
  print_rows(sheet, subject, row);
  out << rows_csv(subject, row) << rows_json(subject, row).dump();
  if (subject.query_tokens.empty()) return;
  arguments.word = subject.query_tokens.front();
  const auto rows = answer_token(subject, arguments);
  print_rows(sheet, subject, rows);
  out << rows_csv(subject, rows);
}

void ask_for_tile(Subject& subject, std::ostringstream& out) {
  LookArguments arguments;
  arguments.tile = heed::TileRange{0, subject.report.queries, 0, subject.report.keys};
  check_question(subject, arguments);
  subject.report.weights = answer_tile(subject, arguments);
  out << heed::cli::tile_csv(subject.report.weights);
  if (subject.report.queries > 0 && subject.report.keys > 0)
    print_tile({out}, subject, subject.report.weights);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const MemoryFile file;
  file.put(data, size);
  try {
    Subject subject = heed::cli::read_document(file.path());
    if (!subject.has_report) return 0;  // an explanation: three tensors, which any call may have
    std::ostringstream out;
    ask_for_summary(subject, out);
    ask_for_rows(subject, out);
    if (subject.report.queries > 0 && subject.report.keys > 0)
      (void)heed::detail::page_report(subject.report, {});
    ask_for_tile(subject, out);
    if (subject.report.queries > 0 && subject.report.keys > 0)
      (void)heed::detail::page_report(subject.report, {});
  } catch (const heed::Error& error) {
    if (error.code() == heed::ErrorCode::io)
      require(std::string(error.what()).find(file.path()) != std::string::npos);
    else
      require(error.code() == heed::ErrorCode::out_of_memory);
  } catch (const heed::cli::UsageError&) {  // a tile of more than the machine's memory
  }
  return 0;
}
