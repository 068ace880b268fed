// The command `heed`: does what the command line asks, and turns what fails into one line and an exit code.
#include <exception>
#include <iostream>
#include <new>
#include <string>

#include "command_line.hpp"
#include "heed/error.hpp"
#include "standard_streams.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr int kFailure = 1;
constexpr int kBadUse = 2;
constexpr int kInterrupted = 130;

int fail(int exit_code, const std::string& message) {
  std::cerr << "heed: " << printable(message) << std::endl;
  return exit_code;
}

int exit_code_of(const Error& error) {
  return error.code() == ErrorCode::invalid_argument ? kBadUse : kFailure;
}

}  // namespace
}  // namespace heed::cli

int main(int argc, char** argv) {
  using namespace heed::cli;
  try {
    hold_standard_streams();
    run_command_line(argc, argv,
                     {add_attend, add_bench, add_explain, add_look, add_who, add_atlas, add_train,
                      add_generate, add_plan, add_info});
    return 0;
  } catch (const UsageError& error) {
    return fail(kBadUse, error.what());
  } catch (const Interrupted& stop) {
    return fail(kInterrupted, stop.what());
  } catch (const heed::Error& error) {
    return fail(exit_code_of(error), error.what());
  } catch (const std::bad_alloc&) {
    return fail(kFailure, "not enough memory");
  } catch (const std::exception& error) {
    return fail(kFailure, error.what());
  }
}
