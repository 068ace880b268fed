#include "mpi/temporaries.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <list>

namespace heed::cli {
namespace {

std::list<std::vector<std::string>> all;  // old lists are kept, because a handler may still read one
std::atomic<const std::vector<std::string>*> held = nullptr;
static_assert(std::atomic<const std::vector<std::string>*>::is_always_lock_free);

void end_by(int signal) {
  remove_temporaries();
  std::signal(signal, SIG_DFL);
  (void)std::raise(signal);
}

}  // namespace

void hold_temporaries(std::vector<std::string> paths) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) std::signal(signal, paths.empty() ? SIG_DFL : end_by);
  held = paths.empty() ? nullptr : &all.emplace_back(std::move(paths));
}

void remove_temporaries() {
  const std::vector<std::string>* paths = held.exchange(nullptr);
  if (paths == nullptr) return;
  for (const std::string& path : *paths) (void)unlink(path.c_str());
}

}  // namespace heed::cli
