// heed built without Pango and Cairo: pictures are refused with a message.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "picture/canvas.hpp"

namespace {

TEST(NoPicture, IsRefusedWithTheOptionThatAskedForIt) {
  EXPECT_EQ(heed::cli::picture_libraries(), "");
  try {
    (void)heed::cli::picture_format("--out", "atlas.png");
    FAIL() << "not refused";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()),
              "--out is given, but this heed was built without Pango and Cairo, which draw pictures; one "
              "built where "
              "libpango1.0-dev is installed has them");
  }
}

}  // namespace
