#include "train/stop_signals.hpp"

#include <csignal>

#include "io/held_temporary.hpp"

namespace heed::cli {
namespace {

// A signal handler can only reach globals.
volatile std::sig_atomic_t stop_asked = 0;

extern "C" void note_stop(int signal) {
  stop_asked = 1;
  std::signal(signal, io::detail::end_by_signal);
}

}  // namespace

StopSignals::StopSignals() {
  stop_asked = 0;
  std::signal(SIGINT, note_stop);
  std::signal(SIGTERM, note_stop);
}

StopSignals::~StopSignals() {
  std::signal(SIGINT, io::detail::end_by_signal);
  std::signal(SIGTERM, io::detail::end_by_signal);
}

bool StopSignals::asked() noexcept { return stop_asked != 0; }

}  // namespace heed::cli
