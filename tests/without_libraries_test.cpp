// heed built without Pango and Cairo refuses pictures, and without cpp-httplib it refuses to serve.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "heed/error.hpp"
#include "picture/canvas.hpp"
#include "serve/http.hpp"

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

TEST(NoServer, IsRefused) {
  EXPECT_FALSE(heed::cli::can_serve());
  EXPECT_THROW(heed::cli::HttpServer(0), heed::Error);
}

}  // namespace
