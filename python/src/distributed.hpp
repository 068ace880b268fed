// The parts of the extension heed._heed_mpi.
#pragma once

#include <nanobind/nanobind.h>

namespace heed::python {

void define_sharding(nanobind::module_& module);

}  // namespace heed::python
