# Sets HEED_HAS_MPI: whether libheed_mpi is built. MPI's C++ interface, removed from the standard, is excluded.
set(HEED_HAS_MPI OFF)
if(HEED_MPI AND NOT CMAKE_CROSSCOMPILING)
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    set(HEED_HAS_MPI ON)
    target_compile_definitions(MPI::MPI_CXX INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  endif()
endif()
