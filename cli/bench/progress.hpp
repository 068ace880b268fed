// A bar that shows how far a long command is: on standard error, and only where that is a terminal.
#pragma once

#include <cstddef>
#include <string>

namespace heed::cli {

class Progress {
 public:
  explicit Progress(std::size_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(std::size_t done, const std::string& doing);
  void clear();  ///< before something else is printed

 private:
  std::size_t total_;
  bool enabled_;
  int width_;
  int shown_ = 0;  // columns that the bar takes now
};

}  // namespace heed::cli
