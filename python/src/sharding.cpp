// heed.distributed.Sharding.
#include "heed/attention/sharding.hpp"

#include <nanobind/operators.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>
#include <vector>

#include "core/message.hpp"
#include "distributed.hpp"
#include "fail.hpp"
#include "options.hpp"
#include "saved.hpp"

namespace heed::python {
namespace {

using Ends = std::pair<std::int64_t, std::int64_t>;

Sharding from_ranges(nb::handle of_ranks) {
  constexpr const char* kExpected = "a sequence of (begin, end) for each rank";
  if (!nb::isinstance<nb::sequence>(of_ranks))
    fail_type("ranges is of type ", nb::inst_name(of_ranks).c_str(), "; ", kExpected, " is expected");
  std::vector<std::vector<PositionRange>> all;
  for (const nb::handle ranges : nb::borrow<nb::sequence>(of_ranks)) {
    auto& own = all.emplace_back();
    if (!nb::isinstance<nb::sequence>(ranges))
      fail_type("ranges[", all.size() - 1, "] is of type ", nb::inst_name(ranges).c_str(), "; ", kExpected,
                " is expected");
    for (const nb::handle range : nb::borrow<nb::sequence>(ranges)) {
      const auto [begin, end] = two("a range", range, "(begin, end)");
      own.push_back({integer("begin", begin), integer("end", end)});
    }
  }
  return Sharding::from_ranges(all);
}

std::vector<Ends> ranges(const Sharding& sharding, int rank) {
  std::vector<Ends> all;
  for (const PositionRange& range : sharding.ranges(rank)) all.emplace_back(range.begin, range.end);
  return all;
}

std::vector<std::vector<Ends>> all_ranges(const Sharding& sharding) {
  std::vector<std::vector<Ends>> all;
  for (int rank = 0; rank < sharding.ranks(); ++rank) all.push_back(ranges(sharding, rank));
  return all;
}

nb::object shard(const Sharding& sharding, nb::handle whole, int axis, int rank) {
  const Borrowed array("array", whole);
  return to_python(sharding.shard(array.view(), axis, rank), array_type(whole).kind);
}

nb::object join(const Sharding& sharding, nb::sequence shards, int axis) {
  std::vector<Borrowed> arrays;
  for (const nb::handle one : shards) arrays.emplace_back(sentence("shards[", arrays.size(), "]"), one);
  std::vector<TensorView> views;
  for (const Borrowed& array : arrays) views.push_back(array.view());
  const Kind kind = arrays.empty() ? Kind::numpy : array_type(shards[0]).kind;
  return to_python(sharding.join(views, axis), kind);
}

std::string describe(const Sharding& sharding) {
  return sentence("<Sharding of ", detail::counted(sharding.length(), "position"), " over ",
                  detail::counted(sharding.ranks(), "rank"), ">");
}

}  // namespace

void define_sharding(nb::module_& module) {
  nb::class_<Sharding>(module, "Sharding",
                       "Which rank holds which positions of a sequence. The rows of a rank are its positions "
                       "in ascending order.")
      .def(CopiedAsItself())
      .def(pickled(all_ranges, from_ranges))
      .def_static("contiguous", &Sharding::contiguous, nb::arg("length"), nb::arg("ranks"),
                  "Rank r holds the r-th of consecutive ranges whose sizes differ by at most 1.")
      .def_static(
          "zigzag", &Sharding::zigzag, nb::arg("length"), nb::arg("ranks"),
          "Rank r holds the chunks r and 2 * ranks - 1 - r of 2 * ranks: even work under a causal mask.")
      .def_static("striped", &Sharding::striped, nb::arg("length"), nb::arg("ranks"), nb::arg("stripe") = 192,
                  "Runs of `stripe` positions are dealt to the ranks in turn.")
      .def_static("from_ranges", from_ranges, nb::arg("ranges"),
                  "ranges[r] lists the (begin, end) of rank r; every position lies in exactly one range.")
      .def_prop_ro("ranks", &Sharding::ranks)
      .def_prop_ro("length", &Sharding::length)
      .def("rows", &Sharding::rows, nb::arg("rank"), "The number of positions of the rank.")
      .def("ranges", ranges, nb::arg("rank"), "The positions of a rank as [(begin, end), …], ascending.")
      .def("position", &Sharding::position, nb::arg("rank"), nb::arg("row"),
           "The position of a row of a rank.")
      .def("rank_of", &Sharding::rank_of, nb::arg("position"), "The rank that holds a position.")
      .def("row_of", &Sharding::row_of, nb::arg("position"), "The row of a position on its rank.")
      .def("shard", shard, nb::arg("array"), nb::arg("axis"), nb::arg("rank"),
           "The rows of a rank, as a copy of the same array type.")
      .def("join", join, nb::arg("shards"), nb::arg("axis"),
           "The inverse of shard(): shards[r] is the shard of rank r.")
      .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"))
      .def("__repr__", describe);
}

}  // namespace heed::python
