// What Python holds of a report: its numbers, and the calls that they are of, which answer further questions.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "heed/document.hpp"
#include "heed/model_look.hpp"
#include "options.hpp"

namespace heed::python {

/// A call whose weights can be computed again. What the views point into is kept here.
struct Call {
  Document document;  ///< without its report
  Tensor lse;         ///< [B, H, Lq]
  std::vector<Borrowed> inputs;
  std::optional<Arguments> arguments;
};

/// A report, of one call or of a model's layers.
struct ReportData {
  AttentionReport report;
  std::vector<std::shared_ptr<Call>> calls;  ///< whose heads are those of the report, in this order
  std::vector<Retrieval> retrieval{};        ///< of each head, where there is a needle
};

/// Takes a document with its report.
ReportData report_data(Document document);

}  // namespace heed::python
