// Errors of heed attend: each is one line, and no file is written.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "attend_support.hpp"
#include "command.hpp"
#include "heed/attention/attention.hpp"
#include "heed/io/tensors.hpp"
#include "heed/tensor.hpp"

namespace {

using heed::DType;
using heed::Tensor;
using heed::test::Attend;
using heed::test::CommandInput;
using heed::test::CommandResult;
using heed::test::random_tensor;
using heed::test::run_heed;
using heed::test::same;
using heed::test::Words;

class AttendErrors : public Attend {};

// The pipe has no reader, so the command waits with a temporary file beside it.
TEST_F(AttendErrors, ASignalLeavesNoTemporaryFile) {
  ASSERT_EQ(mkfifo((folder / "pipe.npy").c_str(), 0600), 0);
  heed::test::write_file(folder / "o.npy", "old");
  const Words before = folder.names();
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGXFSZ, SIGBUS}) {
    CommandInput input;
    input.meanwhile = [&](pid_t command) {
      for (int tries = 0; tries < 3000 && folder.names() == before; ++tries) usleep(10'000);
      EXPECT_EQ(folder.names().size(), before.size() + 1);
      kill(command, signal);
    };
    EXPECT_EQ(run({"--out", "o.npy", "--weights", "pipe.npy"}, input).exit_code,
              signal == SIGBUS ? 1 : 128 + signal);
    EXPECT_EQ(folder.names(), before) << signal;
    EXPECT_EQ(heed::test::read_file(folder / "o.npy"), "old");
  }
}

TEST_F(AttendErrors, AnIgnoredSignalIsStillIgnored) {
  ASSERT_EQ(mkfifo((folder / "pipe.npy").c_str(), 0600), 0);
  const Words before = folder.names();
  CommandInput input;
  input.program = "nohup";
  input.directory = folder.path();
  input.meanwhile = [&](pid_t command) {
    for (int tries = 0; tries < 3000 && folder.names() == before; ++tries) usleep(10'000);
    kill(command, SIGHUP);
    EXPECT_FALSE(heed::test::read_file(folder / "pipe.npy").empty());
  };
  const CommandResult result = run_heed({HEED_COMMAND, "attend", "--query", "q.npy", "--key", "k.npy",
                                         "--value", "v.npy", "--out", "o.npy", "--weights", "pipe.npy"},
                                        input);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
}

TEST_F(AttendErrors, SaysWhatIsWrongWithAnOption) {
  const Words out = {"--out", "o.npy"};
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--scale", "big"}, "--scale is 'big'; a finite number is expected"},
      {{"--scale", "inf"}, "--scale is 'inf'; a finite number is expected"},
      {{"--softcap", "nan"}, "--softcap is 'nan'; a finite number is expected"},
      {{"--softcap", "-1"}, "--softcap is -1; a number of 0 (off) or more is expected"},
      {{"--align", "middle"}, "--align is 'middle'; top-left or bottom-right is expected"},
      {{"--layout", "hbld"}, "--layout is 'hbld'; bhld or blhd is expected"},
      {{"--dtype", "i64"}, "--dtype is 'i64'; f64, f32, bf16 or f16 is expected"},
      {{"--kernel", "fast"}, "--kernel is 'fast'; automatic, reference or fused is expected"},
      {{"--scores", "s.npy", "--scores-stage", "last"},
       "--scores-stage is 'last'; raw, softcap or bias is expected"},
      {{"--query-offset", "1.5"}, "--query-offset is '1.5'; a whole number is expected"},
      {{"--query-offset", "9223372036854775808"},
       "--query-offset is '9223372036854775808'; a whole number from -9223372036854775808 to "
       "9223372036854775807 is expected"},
      {{"--repeat", "9223372036854775808"},
       "--repeat is '9223372036854775808'; a whole number from 1 to 9223372036854775807 is expected"},
      {{"--window", "3"}, "--window is '3'; LEFT,RIGHT (whole numbers; -1 is unbounded) is expected"},
      {{"--window", "3,-2"}, "--window is '3,-2'; LEFT,RIGHT (whole numbers; -1 is unbounded) is expected"},
      {{"--window", "1,2,3"}, "--window is '1,2,3'; LEFT,RIGHT (whole numbers; -1 is unbounded) is expected"},
      {{"--threads", "-1"}, "--threads is '-1'; a whole number from 0 to 32767 is expected"},
      {{"--repeat", "0"}, "--repeat is '0'; a whole number of at least 1 is expected"},
      {{"--dropout", "1"}, "--dropout is 1; a number of 0 or more and below 1 is expected"},
      {{"--dropout-seed", "-4"}, "--dropout-seed is '-4'; a whole number of at least 0 is expected"},
      {{"--dropout-seed", "18446744073709551616"},
       "--dropout-seed is '18446744073709551616'; a whole number from 0 to 18446744073709551615 is "
       "expected"},
      {{"--dropout-seed", "1"}, "--dropout-seed is given without --dropout P"},
      {{"--repeat", "3"}, "--repeat is given without --json, which prints the median of its seconds"},
      {{"--plan", "--repeat", "3"}, "--repeat is given together with --plan, which computes nothing"},
      {{"--top-k", "0"}, "--top-k is '0'; a whole number of at least 1 is expected"},
      {{"--top-k", "3"}, "--top-k is given without --top-k-out INDEX.npy,WEIGHT.npy"},
      {{"--top-k-out", "i.npy,w.npy"}, "--top-k-out is given without --top-k K"},
      {{"--top-k", "3", "--top-k-out", "i.npy"}, "--top-k-out is 'i.npy'; INDEX.npy,WEIGHT.npy is expected"},
      {{"--top-k", "3", "--top-k-out", ",w.npy"},
       "--top-k-out is ',w.npy'; INDEX.npy,WEIGHT.npy is expected"},
      {{"--mask", ""}, "--mask is ''; TENSOR is expected"},
      {{"--lse", ""}, "--lse is ''; FILE is expected"},
      {{"--map", "8"}, "--map is '8'; ROWSxCOLUMNS, such as 64x64, is expected"},
      {{"--map", "0x4"}, "--map is '0x4'; ROWSxCOLUMNS, such as 64x64, is expected"},
      {{"--map", "8x8"}, "--map is given without --map-out FILE.npy"},
      {{"--map-out", "m.npy"}, "--map-out is given without --map RxC"},
      {{"--received-last", "2"}, "--received-last is given without --received FILE.npy"},
      {{"--received-last-out", "r.npy"}, "--received-last-out is given without --received-last W"},
      {{"--scores-stage", "raw"}, "--scores-stage is given without --scores FILE.npy"},
      {{"--query-segments", "q.npy"}, "--query-segments is given without --key-segments OFFSETS.npy"},
      {{"--key-segments", "q.npy"}, "--key-segments is given without --query-segments OFFSETS.npy"},
      {{"--lse", "--json"}, "--lse is '--json'; a file whose name ends in .npy is expected"},
      {{"--weights", "x.safetensors:w"},
       "--weights is 'x.safetensors:w'; a file whose name ends in .npy is expected"},
      {{"--mask", "mask.txt"},
       "--mask is 'mask.txt'; FILE.npy, FILE.safetensors:NAME or - (a .npy file on standard input) is "
       "expected"},
      {{"--bias", "x.safetensors"},
       "--bias is 'x.safetensors', which does not say which tensor of the file; FILE.safetensors:NAME is "
       "expected"},
      {{"--bias", "x.safetensors:"},
       "--bias is 'x.safetensors:', which does not say which tensor of the file; FILE.safetensors:NAME is "
       "expected"},
      {{"--mask", "-", "--bias", "-"},
       "--mask and --bias are both '-'; standard input holds only one tensor"},
      {{"--mask", "q.npy"},
       "--mask has dtype f32; bool is expected (numbers to add to the scores are a --bias)"},
      {{"--lse", "a.npy", "--lse", "b.npy"}, "--lse is given more than once"},
      {{"--cuasal"}, "--cuasal is not an option of heed attend; did you mean --causal?"},
      {{"o2.npy"}, "'o2.npy' is one argument too many (see heed attend --help)"},
  };
  for (const auto& [words, message] : cases) {
    Words all = words;
    all.insert(all.end(), out.begin(), out.end());
    expect_error(2, all, message);
  }
}

TEST_F(AttendErrors, SaysWhatIsMissing) {
  CommandInput here;
  here.directory = folder.path();
  EXPECT_EQ(run_heed({"attend"}, here).errors,
            "heed: --query is missing: FILE.npy, FILE.safetensors:NAME or - (see heed attend --help)\n");
  EXPECT_EQ(run_heed({"attend", "--query", "q.npy", "--key", "k.npy"}, here).errors,
            "heed: --value is missing: FILE.npy, FILE.safetensors:NAME or - (see heed attend --help)\n");
  expect_error(2, {"--lse", "lse.npy", "--out"}, "--out needs a value");
  expect_error(2, {}, "no result is requested; --out FILE.npy, another result, --plan or --json is expected");
}

TEST_F(AttendErrors, SaysWhatIsWrongWithTheTensors) {
  const Words out = {"--out", "o.npy"};
  write("k.npy", random_tensor({2, 2, 7, 9}, 2));
  expect_error(2, out, "key has head dimension 9 (shape [2, 2, 7, 9]); 8 as in query is expected");
  write("k.npy", key);
  write("q.npy", Tensor::copy_of(query, DType::i32));
  expect_error(2, out,
               "--query has dtype i32; f64, f32, f16 or bf16 is expected (--dtype f32 would convert it)");
  write("q.npy", query.view().select(0, 0).select(0, 0).select(0, 0));
  expect_error(2, out, "query has shape [8]; 2 to 4 axes, [B, H, L, D], are expected");
  std::filesystem::remove(folder / "q.npy");
  expect_error(1, out, "cannot open 'q.npy': No such file or directory");
  heed::test::write_file(folder / "q.npy", "not an array");
  expect_error(1, out, "'q.npy' is not a .npy file: it does not begin with \\x93NUMPY");
}

TEST_F(AttendErrors, SaysWhenTheResultsAreTooLarge) {
  const CommandResult top_k = run({"--top-k", "9000000000000000000", "--top-k-out", "i.npy,w.npy"});
  EXPECT_EQ(top_k.exit_code, 1);
  EXPECT_EQ(top_k.errors,
            "heed: shape [2, 4, 5, 9000000000000000000] has more elements than 64 bits can count\n");
  const CommandResult map = run({"--map", "9000000000000000000x2", "--map-out", "m.npy"});
  EXPECT_EQ(map.exit_code, 1);
  EXPECT_EQ(folder.names().size(), 3u);
}

TEST_F(AttendErrors, RefusesAMatrixOfWeightsBeyondTheMachineAndSaysWhatAnswersWithoutIt) {
  const Tensor column({3'000'000, 1}, DType::f32);
  write("long.npy", column.view());
  CommandInput input;
  input.directory = folder.path();
  const Words words = {"attend",  "--query",  "long.npy",  "--key", "long.npy",
                       "--value", "long.npy", "--weights", "w.npy"};
  const CommandResult result = run_heed(words, input);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.errors.find("--weights and --scores need 36.0 TB, more than this machine's memory"),
            std::string::npos)
      << result.errors;
  EXPECT_NE(result.errors.find("--map 1024x1024 (exact sums)"), std::string::npos) << result.errors;
}

TEST_F(AttendErrors, NamesTheTensorsThatASafetensorsFileHas) {
  heed::io::write_safetensors(folder / "x.safetensors", {{"k", key}, {"v", value}});
  const CommandResult result = run({"--bias", "x.safetensors:q", "--out", "o.npy"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.errors.find("'q'"), std::string::npos) << result.errors;
  EXPECT_NE(result.errors.find("'k', 'v'"), std::string::npos) << result.errors;
}

TEST_F(AttendErrors, NeverOverwritesAnInput) {
  namespace fs = std::filesystem;
  fs::create_symlink("q.npy", folder / "link.npy");
  fs::create_hard_link(folder / "q.npy", folder / "hard.npy");
  fs::create_directory(folder / "sub");
  const std::string is_query = "' is the file that --query is read from; an input is never overwritten";
  for (const std::string path : {"q.npy", "./q.npy", "sub/../q.npy", "link.npy", "hard.npy"}) {
    expect_error(2, {"--out", path}, "--out '" + path + is_query);
    expect_error(2, {"--out", "o.npy", "--lse", path}, "--lse '" + path + is_query);
  }
  expect_error(2, {"--top-k", "1", "--top-k-out", "i.npy,v.npy"},
               "--top-k-out 'v.npy' is the file that --value is read from; an input is never overwritten");
  write("m.npy", Tensor({1}, DType::boolean));
  expect_error(2, {"--mask", "m.npy", "--out", "m.npy"},
               "--out 'm.npy' is the file that --mask is read from; an input is never overwritten");
  EXPECT_TRUE(same(read("q.npy"), query));
}

TEST_F(AttendErrors, GivesEachResultAFileOfItsOwn) {
  namespace fs = std::filesystem;
  expect_error(2, {"--out", "o.npy", "--lse", "./o.npy"},
               "--lse './o.npy' is the file that --out goes to; each result needs its own file");
  expect_error(2, {"--top-k", "2", "--top-k-out", "i.npy,i.npy"},
               "--top-k-out 'i.npy' is the file that --top-k-out goes to; each result needs its own file");
  fs::create_symlink("o.npy", folder / "to_nothing_yet.npy");
  expect_error(2, {"--out", "o.npy", "--lse", "to_nothing_yet.npy"},
               "--lse 'to_nothing_yet.npy' is the file that --out goes to; each result needs its own file");
}

TEST_F(AttendErrors, WritesNothingWhereOneFileCannotBeWritten) {
  heed::test::write_file(folder / "o.npy", "old");
  expect_error(1, {"--out", "o.npy", "--lse", "none/lse.npy"},
               "cannot write 'none/lse.npy' (--lse): No such file or directory");
  std::filesystem::create_directory(folder / "folder.npy");
  expect_error(1, {"--out", "o.npy", "--lse", "folder.npy"},
               "cannot write 'folder.npy' (--lse): Is a directory");
  EXPECT_EQ(heed::test::read_file(folder / "o.npy"), "old");
}

TEST_F(AttendErrors, FindsOutBeforeItWritesThatNobodyWillReadItsObject) {
  CommandInput closed;
  closed.close_output = true;
  expect_error(1, {"--json", "--out", "o.npy"}, "standard output could not be written: Bad file descriptor",
               closed);
  const CommandResult silent = run({"--out", "o.npy"}, closed);
  EXPECT_EQ(silent.exit_code, 0) << silent.errors;
  EXPECT_TRUE(same(read("o.npy"), attention(query, key, value).output)) << "not printed into";
}

}  // namespace
