#include "command.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

namespace heed::test {
namespace {

constexpr std::chrono::seconds kLimit(60);

void require(bool holds, const char* what) {
  if (!holds) throw std::system_error(errno, std::generic_category(), what);
}

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }
  [[nodiscard]] int get() const { return number_; }
  void close() {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
  }

 private:
  int number_ = -1;
};

struct Channel {
  Descriptor ours;
  Descriptor theirs;
};

// A pipe that the child writes to, or reads its input from.
Channel make_pipe(bool child_reads) {
  std::array<int, 2> ends{};
  require(pipe2(ends.data(), O_CLOEXEC) == 0, "pipe2");
  Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);
  if (child_reads) return {std::move(writing), std::move(reading)};
  return {std::move(reading), std::move(writing)};
}

Channel make_terminal(int columns) {
  int master = -1;
  int slave = -1;
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  size.ws_row = 25;
  require(openpty(&master, &slave, nullptr, nullptr, &size) == 0, "openpty");
  fcntl(master, F_SETFD, FD_CLOEXEC);
  fcntl(slave, F_SETFD, FD_CLOEXEC);
  return {Descriptor(master), Descriptor(slave)};
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_for(const CommandInput& input) {
  std::map<std::string, std::string> variables = {{"LANG", "C.UTF-8"}, {"TERM", "dumb"}};
  // The child needs the variables of coverage and sanitizers, and the target that the test itself uses.
  for (const char* name :
       {"PATH", "HOME", "HEED_ISA", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "GCOV_PREFIX"}) {
    if (const char* value = std::getenv(name)) variables[name] = value;
  }
  for (const auto& [name, value] : input.environment) variables[name] = value;
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  return entries;
}

pid_t start(const std::vector<std::string>& arguments, const CommandInput& input, int standard_input,
            int standard_output, int standard_error) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, standard_input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, standard_error, STDERR_FILENO);
  if (input.close_output) {
    posix_spawn_file_actions_addclose(&actions, STDOUT_FILENO);
  } else if (!input.output_path.empty()) {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, input.output_path.c_str(), O_WRONLY, 0);
  } else {
    posix_spawn_file_actions_adddup2(&actions, standard_output, STDOUT_FILENO);
  }
  if (!input.directory.empty()) posix_spawn_file_actions_addchdir_np(&actions, input.directory.c_str());
  const std::string program = input.program.empty() ? HEED_COMMAND : input.program;
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = environment_for(input);
  // This process ignores SIGPIPE (see below); a child would inherit that.
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = -1;
  errno = posix_spawnp(&child, program.c_str(), &actions, &attributes, pointers_to(words).data(),
                       pointers_to(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  require(errno == 0, ("posix_spawn of " + program).c_str());
  return child;
}

// Reads from a descriptor. Returns false at its end, which a terminal reports as EIO.
bool read_some(int descriptor, std::string& text) {
  std::array<char, 65536> buffer{};
  const ssize_t count = read(descriptor, buffer.data(), buffer.size());
  if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && errno == EINTR);
}

// Reads both until they end or the time is over.
bool read_all(int output, int errors, CommandResult& result) {
  const auto deadline = std::chrono::steady_clock::now() + kLimit;
  std::array<pollfd, 2> watched = {pollfd{output, POLLIN, 0}, pollfd{errors, POLLIN, 0}};
  while (watched[0].fd >= 0 || watched[1].fd >= 0) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    if (poll(watched.data(), watched.size(), 100) <= 0) continue;
    if (watched[0].revents != 0 && !read_some(output, result.output)) watched[0].fd = -1;
    if (watched[1].revents != 0 && !read_some(errors, result.errors)) watched[1].fd = -1;
  }
  return true;
}

void write_all(int descriptor, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = write(descriptor, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;  // the command did not read all of it
    done += static_cast<std::size_t>(count);
  }
}

}  // namespace

CommandResult run_heed(const std::vector<std::string>& arguments, const CommandInput& input) {
  signal(SIGPIPE, SIG_IGN);
  Channel to_child = make_pipe(true);
  Channel output = input.terminal_columns > 0 ? make_terminal(input.terminal_columns) : make_pipe(false);
  Channel errors = make_pipe(false);
  const pid_t child = start(arguments, input, to_child.theirs.get(), output.theirs.get(),
                            input.errors_on_terminal ? output.theirs.get() : errors.theirs.get());
  for (Channel* channel : {&to_child, &output, &errors}) channel->theirs.close();
  CommandResult result;
  std::thread writer([&] {
    write_all(to_child.ours.get(), input.text);
    to_child.ours.close();
    if (input.meanwhile) input.meanwhile(child);
  });
  if (!read_all(output.ours.get(), errors.ours.get(), result)) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  writer.join();
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

bool has_terminals() {
  const Descriptor master(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  return master.get() >= 0;
}

}  // namespace heed::test
