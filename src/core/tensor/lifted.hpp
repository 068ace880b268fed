#pragma once

namespace heed::detail {

/// The view with leading axes of size 1, until it has `rank` axes.
template <class View>
[[nodiscard]] View lifted(View view, int rank = 4) {
  while (view.rank() < rank) view = view.unsqueeze(0);
  return view;
}

}  // namespace heed::detail
