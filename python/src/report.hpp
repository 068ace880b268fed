// A report for Python: its numbers, and the calls that answer further questions.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "heed/inspect/document.hpp"
#include "heed/model/look.hpp"
#include "options.hpp"

namespace heed::python {

/// A call whose weights can be computed again. It keeps alive all memory that its views refer to.
struct Call {
  Document document;  ///< without its report
  Tensor lse;         ///< [B, H, Lq]
  std::vector<Borrowed> inputs;
  std::optional<Arguments> arguments;
};

/// A report, of one call or of a model's layers.
struct ReportData {
  AttentionReport report;
  std::vector<std::shared_ptr<Call>> calls;  ///< their heads, in this order, are the report's heads
  std::vector<Retrieval> retrieval{};        ///< one per head, if there is a needle
};

/// Takes a document with its report.
ReportData report_data(Document document);

}  // namespace heed::python
