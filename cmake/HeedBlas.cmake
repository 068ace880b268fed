# Finds BLAS::BLAS and the folder of its C header (HEED_CBLAS_INCLUDE_DIR): OpenBLAS, unless BLA_VENDOR is set.
if(NOT BLA_VENDOR)
  set(BLA_VENDOR OpenBLAS)
endif()
find_package(BLAS REQUIRED)
find_path(HEED_CBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas openblas-pthread REQUIRED)
