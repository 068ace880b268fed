#include "io/held_temporary.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>

namespace heed::io::detail {
namespace {

constexpr int kFree = -1, kTaken = -2;

// A handler may read a name while another thread writes it: then it finds no such file.
struct Slot {
  std::atomic<int> folder = kFree;
  std::array<char, 32> name{};
};
static_assert(std::atomic<int>::is_always_lock_free);

std::array<Slot, 64> slots;
std::atomic<int> waits = 0, waiting_signal = 0;

}  // namespace

HeldTemporary::HeldTemporary(int folder, const std::string& name) noexcept {
  if (folder < 0 || name.size() >= slots[0].name.size()) return;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    int expected = kFree;
    if (!slots[i].folder.compare_exchange_strong(expected, kTaken)) continue;
    slots[i].name[name.copy(slots[i].name.data(), name.size())] = '\0';
    slots[i].folder = folder;
    slot_ = static_cast<int>(i);
    return;
  }
}

HeldTemporary::~HeldTemporary() {
  if (slot_ >= 0) slots[static_cast<std::size_t>(slot_)].folder = kFree;
}

SignalsWait::SignalsWait() noexcept { ++waits; }

SignalsWait::~SignalsWait() {
  if (--waits == 0 && waiting_signal != 0) end_by_signal(waiting_signal);
}

void remove_temporaries() noexcept {
  for (const Slot& slot : slots)
    if (const int folder = slot.folder; folder >= 0) (void)::unlinkat(folder, slot.name.data(), 0);
}

void end_by_signal(int signal) noexcept {
  waiting_signal = signal;  // before the check: the last SignalsWait may end now
  if (waits > 0) return;
  remove_temporaries();
  std::signal(signal, SIG_DFL);
  (void)std::raise(signal);
}

void remove_temporaries_at_signals() noexcept {
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGXFSZ})
    if (std::signal(signal, end_by_signal) == SIG_IGN) std::signal(signal, SIG_IGN);
}

}  // namespace heed::io::detail
