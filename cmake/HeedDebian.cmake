# The Debian packages, which scripts/deb builds: two of each library, the command, and the Python package where it is built.
# Each needs the others of its own version. They are native packages, without a source package.
set(CPACK_GENERATOR DEB)
set(HEED_CONTACT "The heed project <heed@localhost>" CACHE STRING "The maintainer of the Debian packages: NAME <ADDRESS>")
set(CPACK_PACKAGE_CONTACT "${HEED_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # it would precede those of the packages
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL "")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}/src")
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)  # of SOURCE_DATE_EPOCH, if it is set
set(changelog "${PROJECT_BINARY_DIR}/debian/changelog")
file(WRITE "${changelog}" "heed (${PROJECT_VERSION}) unstable; urgency=medium

  * Version ${PROJECT_VERSION}. CHANGELOG.md in the source says what is new.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
execute_process(COMMAND "${gzip}" -9nf "${changelog}" COMMAND_ERROR_IS_FATAL ANY)

# heed_debian_package(COMPONENT NAME SECTION SUMMARY TEXT NEEDED…)
function(heed_debian_package component name section summary text)
  list(TRANSFORM ARGN APPEND " (= ${PROJECT_VERSION})" OUTPUT_VARIABLE needed)
  list(JOIN needed ", " needed)
  string(TOUPPER ${component} key)
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_DEPENDS "${needed}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_DESCRIPTION "${summary}\n${text}" PARENT_SCOPE)
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${component} PARENT_SCOPE)
  install(FILES "${PROJECT_SOURCE_DIR}/cmake/debian/copyright" "${changelog}.gz"
          DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/${name}" COMPONENT ${component})
endfunction()

set(about_heed "attention, masks, KV caches and reports")
set(about_heed_nn "layers and training of attention")
set(about_heed_model "tokenizers and models that run on attention")
set(about_heed_mpi "attention over the ranks of MPI")
set(all "heed computes attention on processors and shows what its heads attend to.\n")
file(WRITE "${PROJECT_BINARY_DIR}/debian/triggers" "activate-noawait ldconfig\n")
set(needed_by_heed_command "")
foreach(library IN LISTS libraries)
  string(REPLACE _ - name lib${library})
  set(runtime libheed${heed_soversion})
  set(headers libheed-dev)
  if(library STREQUAL heed)
    set(runtime "")
    set(headers "")
  endif()
  heed_debian_package(${library} ${name}${heed_soversion} libs "${about_${library}}"
                      "${all}This package has the library that programs load." ${runtime})
  heed_debian_package(${library}_dev ${name}-dev libdevel "${about_${library}} (development)"
                      "${all}This package has what programs that use it are built with." ${name}${heed_soversion} ${headers})
  string(TOUPPER ${library} key)
  set(CPACK_DEBIAN_${key}_PACKAGE_CONTROL_EXTRA "${PROJECT_BINARY_DIR}/debian/triggers")
  list(APPEND needed_by_heed_command ${name}${heed_soversion})
endforeach()
if(TARGET heed_command)
  heed_debian_package(command heed science "${PROJECT_DESCRIPTION}" "${all}This package has its command, with two small models."
                      ${needed_by_heed_command})
endif()
# The module is for one version of Python. It loads the libraries; `heed` draws and serves for it.
if(TARGET heed_python)
  set(packages_of_python "lib/python3/dist-packages")
  install(TARGETS heed_python LIBRARY DESTINATION "${packages_of_python}/heed" COMPONENT python)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/python/heed" DESTINATION "${packages_of_python}" COMPONENT python
          FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)
  file(WRITE "${PROJECT_BINARY_DIR}/debian/METADATA" "Metadata-Version: 2.1\nName: heed-attention\nVersion: ${PROJECT_VERSION}
Summary: ${PROJECT_DESCRIPTION}\nLicense: Apache-2.0\nRequires-Dist: numpy>=1.24\n")
  install(FILES "${PROJECT_BINARY_DIR}/debian/METADATA"
          DESTINATION "${packages_of_python}/heed_attention-${PROJECT_VERSION}.dist-info" COMPONENT python)
  file(WRITE "${PROJECT_BINARY_DIR}/debian/postinst" "#!/bin/sh\nset -e\nif [ \"$1\" = configure ]; then\n  py3compile -p python3-heed\nfi\n")
  file(WRITE "${PROJECT_BINARY_DIR}/debian/prerm" "#!/bin/sh\nset -e\npy3clean -p python3-heed\n")
  file(CHMOD "${PROJECT_BINARY_DIR}/debian/postinst" "${PROJECT_BINARY_DIR}/debian/prerm" PERMISSIONS
       OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  heed_debian_package(python python3-heed python "${PROJECT_DESCRIPTION} (Python)"
                      "${all}This package has its module for Python, with models, tokenizers and reports." heed
                      ${needed_by_heed_command})
  math(EXPR next_python "${Python_VERSION_MINOR} + 1")
  string(APPEND CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS
         ", python3 (>= 3.${Python_VERSION_MINOR}), python3 (<< 3.${next_python}), python3-numpy")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA
      "${PROJECT_BINARY_DIR}/debian/postinst;${PROJECT_BINARY_DIR}/debian/prerm")
endif()
include(CPack)
