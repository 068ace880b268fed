# Installs the library, its headers, the command, and the files that find_package(heed) and pkg-config read.
include(CMakePackageConfigHelpers)
get_target_property(library_type heed TYPE)
get_property(libraries GLOBAL PROPERTY HEED_LIBRARIES)  # heed, heed_nn, heed_model, heed_mpi: those that are built
set(config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/heed")

if(HEED_KERNELS STREQUAL "native")
  install(CODE "message(STATUS \"heed: this build is fast on this processor alone; for others, configure with -DHEED_KERNELS=all\")")
endif()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/heed" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
if(TARGET heed_command)
  file(RELATIVE_PATH bin_to_lib "/prefix/${CMAKE_INSTALL_BINDIR}" "/prefix/${CMAKE_INSTALL_LIBDIR}")
  set_target_properties(heed_command PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  install(TARGETS heed_command)
  if(TARGET heed_mpi_command)
    set_target_properties(heed_mpi_command PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
    install(TARGETS heed_mpi_command)
  endif()
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/models/" DESTINATION "${CMAKE_INSTALL_DATADIR}/heed")
endif()

# A file of targets for each library, so that find_package(heed) finds those that are installed.
foreach(library IN LISTS libraries)
  set_target_properties(${library} PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS ${library} EXPORT ${library}_targets)
  install(EXPORT ${library}_targets NAMESPACE heed:: DESTINATION "${config_dir}")
endforeach()
configure_package_config_file(cmake/heedConfig.cmake.in "${PROJECT_BINARY_DIR}/heedConfig.cmake"
                              INSTALL_DESTINATION "${config_dir}")
# Before 1.0 a new minor version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/heedConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/heedConfig.cmake" "${PROJECT_BINARY_DIR}/heedConfigVersion.cmake"
        DESTINATION "${config_dir}")

install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/heed")

# heed.pc computes the prefix from its own path, so the installed tree may be moved.
file(RELATIVE_PATH HEED_PC_TO_PREFIX "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
if(library_type STREQUAL "STATIC_LIBRARY")
  set(HEED_PC_CFLAGS " -DHEED_STATIC")
else()
  set(HEED_PC_CFLAGS "")
endif()
# The loader searches only the system's folders. For other prefixes heed.pc adds an rpath, as CMake does.
set(HEED_PC_RPATH "")
if(library_type STREQUAL "SHARED_LIBRARY" AND NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(HEED_PC_RPATH " -Wl,-rpath,\${libdir}")
endif()
set(HEED_MPI_PC_PRIVATE "")
if(HEED_NN)
  set(HEED_MPI_PC_PRIVATE "Requires.private: heed_nn = ${PROJECT_VERSION}\n")
endif()
foreach(package IN LISTS libraries)
  configure_file(cmake/${package}.pc.in "${PROJECT_BINARY_DIR}/${package}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/${package}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endforeach()

# Builds a Debian package of all that is installed: scripts/deb.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME heed)
set(CPACK_PACKAGE_CONTACT "The heed project <heed@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION math)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}/src")
include(CPack)
