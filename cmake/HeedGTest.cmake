# Provides GTest::gtest_main. A cross compiler has no installed GoogleTest, so its source (of the package googletest) is
# built with the tests.
set(HEED_GTEST_SOURCE "" CACHE PATH "Build GoogleTest from here; empty: take the one that is installed")
if(HEED_GTEST_SOURCE)
  set(INSTALL_GTEST OFF)
  set(BUILD_GMOCK OFF)
  add_subdirectory("${HEED_GTEST_SOURCE}" googletest EXCLUDE_FROM_ALL)
else()
  find_package(GTest REQUIRED)
endif()
