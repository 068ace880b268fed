// Looks at calls: reports, documents, pages.
#pragma once

#include "heed/inspect/document.hpp"
#include "heed/inspect/grid.hpp"
#include "heed/inspect/moved.hpp"
#include "heed/inspect/page.hpp"
#include "heed/inspect/reports.hpp"
