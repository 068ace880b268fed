// Prints the target that attention takes on this processor.
#include <cstdio>
#include <heed/info.hpp>

int main() { std::printf("heed runs on the target %s\n", heed::info().isa.c_str()); }
