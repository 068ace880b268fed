#include "train/stop_signals.hpp"

#include <csignal>

namespace heed::cli {
namespace {

// A signal handler can only reach globals.
volatile std::sig_atomic_t stop_asked = 0;

extern "C" void note_stop(int) { stop_asked = 1; }

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  (void)sigaction(signal, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  stop_asked = 0;
  handle(SIGINT, note_stop);
  handle(SIGTERM, note_stop);
}

StopSignals::~StopSignals() {
  handle(SIGINT, SIG_DFL);
  handle(SIGTERM, SIG_DFL);
}

bool StopSignals::asked() noexcept { return stop_asked != 0; }

}  // namespace heed::cli
