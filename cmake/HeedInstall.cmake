# Installs the library, its headers, the command, and the files that find_package(heed) and pkg-config read.
include(CMakePackageConfigHelpers)
get_target_property(library_type heed TYPE)
get_property(libraries GLOBAL PROPERTY HEED_LIBRARIES)  # heed, heed_nn, heed_model, heed_mpi: those that are built
set(config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/heed")

if(HEED_KERNELS STREQUAL "native")
  install(CODE "message(STATUS \"heed: this build is for this processor; for others, configure with -DHEED_KERNELS=all\")")
endif()
# What belongs to one library is a component: its headers, the library, and the files that find it. Debian has a package
# of what programs need to run, and another of what compilers need.
option(HEED_DEBIAN "Lay files out and cut packages as Debian's policy says" OFF)
set(development "")
set(zsh_folder site-functions)
set(gzip "")
if(HEED_DEBIAN)
  set(development _dev)
  set(zsh_folder vendor-completions)
  find_program(HEED_GZIP gzip REQUIRED)
  set(gzip "${HEED_GZIP}")
endif()
set(folders_heed attention inspect io)
set(folders_heed_nn nn)
set(folders_heed_model model)
set(folders_heed_mpi distributed)
set(include "${PROJECT_SOURCE_DIR}/include/heed")
file(GLOB base_headers "${include}/*.hpp")
foreach(library IN ITEMS heed heed_nn heed_model heed_mpi)
  foreach(folder IN LISTS folders_${library})
    list(REMOVE_ITEM base_headers "${include}/${folder}.hpp")
    if(library IN_LIST libraries)
      install(DIRECTORY "${include}/${folder}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/heed" COMPONENT ${library}${development})
      install(FILES "${include}/${folder}.hpp" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/heed" COMPONENT ${library}${development})
    endif()
  endforeach()
endforeach()
install(FILES ${base_headers} "${include}/heed.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/heed" COMPONENT heed${development})
if(TARGET heed_mpi)
  install(FILES "${include}/heed_mpi.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/heed" COMPONENT heed_mpi${development})
endif()
if(TARGET heed_command)
  file(RELATIVE_PATH bin_to_lib "/prefix/${CMAKE_INSTALL_BINDIR}" "/prefix/${CMAKE_INSTALL_LIBDIR}")
  set_target_properties(heed_command PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  install(TARGETS heed_command COMPONENT command)
  if(TARGET heed_mpi_command)
    set_target_properties(heed_mpi_command PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
    install(TARGETS heed_mpi_command COMPONENT command)
  endif()
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/models/" DESTINATION "${CMAKE_INSTALL_DATADIR}/heed" COMPONENT command)
endif()

# Manual pages and completion, which the command itself prints. A build for another machine cannot run it, and one with
# sanitizers or coverage is not for users.
if(TARGET heed_command AND NOT CMAKE_CROSSCOMPILING AND NOT HEED_SANITIZE AND NOT HEED_COVERAGE)
  set(manual "${PROJECT_BINARY_DIR}/manual")
  add_custom_command(
    OUTPUT "${manual}/done"
    COMMAND ${CMAKE_COMMAND} "-DHEED=$<TARGET_FILE:heed_command>" "-DFOLDER=${manual}" "-DGZIP=${gzip}"
            -P "${PROJECT_SOURCE_DIR}/cmake/WriteManual.cmake"
    COMMAND ${CMAKE_COMMAND} -E touch "${manual}/done"
    DEPENDS heed_command "${PROJECT_SOURCE_DIR}/cmake/WriteManual.cmake"
    COMMENT "Writing manual pages and completion" VERBATIM)
  add_custom_target(heed_manual ALL DEPENDS "${manual}/done")
  foreach(from_to IN ITEMS "man1:${CMAKE_INSTALL_MANDIR}/man1" "bash:${CMAKE_INSTALL_DATADIR}/bash-completion/completions"
          "zsh:${CMAKE_INSTALL_DATADIR}/zsh/${zsh_folder}" "fish:${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
    string(REGEX MATCH "^([a-z0-9]+):(.*)$" from_to "${from_to}")
    install(DIRECTORY "${manual}/${CMAKE_MATCH_1}/" DESTINATION "${CMAKE_MATCH_2}" COMPONENT command)
  endforeach()
endif()

# A file of targets for each library, so that find_package(heed) finds those that are installed.
foreach(library IN LISTS libraries)
  set_target_properties(${library} PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS ${library} EXPORT ${library}_targets COMPONENT ${library} LIBRARY NAMELINK_COMPONENT ${library}${development})
  install(EXPORT ${library}_targets NAMESPACE heed:: DESTINATION "${config_dir}" COMPONENT ${library}${development})
endforeach()
configure_package_config_file(cmake/heedConfig.cmake.in "${PROJECT_BINARY_DIR}/heedConfig.cmake"
                              INSTALL_DESTINATION "${config_dir}")
# Before 1.0 a new minor version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/heedConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/heedConfig.cmake" "${PROJECT_BINARY_DIR}/heedConfigVersion.cmake"
        DESTINATION "${config_dir}" COMPONENT heed${development})

# Each of Debian's packages has its copyright and changelog, by HeedDebian.cmake.
if(NOT HEED_DEBIAN)
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/heed" COMPONENT heed)
endif()

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
  install(FILES "${PROJECT_BINARY_DIR}/${package}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT ${package}${development})
endforeach()

if(HEED_DEBIAN)
  include(HeedDebian)
endif()
