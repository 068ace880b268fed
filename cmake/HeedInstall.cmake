# Installing: the library, its headers, the command, and what find_package(heed) and pkg-config read.
include(CMakePackageConfigHelpers)
get_target_property(library_type heed TYPE)
set(config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/heed")

install(TARGETS heed EXPORT heedTargets)
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

install(EXPORT heedTargets NAMESPACE heed:: DESTINATION "${config_dir}")
configure_package_config_file(cmake/heedConfig.cmake.in "${PROJECT_BINARY_DIR}/heedConfig.cmake"
                              INSTALL_DESTINATION "${config_dir}")
# Before 1.0 a new minor version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/heedConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/heedConfig.cmake" "${PROJECT_BINARY_DIR}/heedConfigVersion.cmake"
        DESTINATION "${config_dir}")

# heed.pc finds the prefix from where it lies itself, so the installed tree may be moved.
file(RELATIVE_PATH HEED_PC_TO_PREFIX "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
if(library_type STREQUAL "STATIC_LIBRARY")
  set(HEED_PC_CFLAGS " -DHEED_STATIC")
else()
  set(HEED_PC_CFLAGS "")
endif()
configure_file(cmake/heed.pc.in "${PROJECT_BINARY_DIR}/heed.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/heed.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

# A Debian package of all of it: scripts/deb.
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
