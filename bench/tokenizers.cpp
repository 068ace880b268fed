// Speed of a tokenizer on one thread: bytes per second, and seconds for reading its file.
//
//   tokenizers TOKENIZER.json TEXT [SECONDS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>

#include "heed/model/tokenizer.hpp"

namespace {

// CPU time, because other processes may share the processor.
double now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

int run(const std::string& tokenizer_file, const std::string& text_file, double seconds) {
  const double start = now();
  const auto tokenizer = heed::Tokenizer::from_file(tokenizer_file);
  std::printf("read in %.3f s\n", now() - start);
  std::ifstream file(text_file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  double best = 1e30;
  std::size_t tokens = 0;
  for (double spent = 0; spent < seconds;) {
    const double begin = now();
    tokens = tokenizer.encode(text).size();
    const double took = now() - begin;
    best = std::min(best, took);
    spent += took;
  }
  std::printf("%zu bytes, %zu tokens, %.2f MB/s at best\n", text.size(), tokens,
              static_cast<double>(text.size()) / best / 1e6);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) {
    std::fprintf(stderr, "usage: tokenizers TOKENIZER.json TEXT [SECONDS]\n");
    return 2;
  }
  try {
    return run(words[1], words[2], count > 3 ? std::atof(words[3]) : 3);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tokenizers: %s\n", error.what());
    return 1;
  }
}
