# Builds the tree that holds this folder. A port of the registry takes a release instead, with vcpkg_from_github.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)

vcpkg_check_features(OUT_FEATURE_OPTIONS features
  FEATURES
    command HEED_BUILD_CLI
    model HEED_MODEL
    nn HEED_NN
)
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    ${features}
    -DHEED_BUILD_EXAMPLES=OFF
    -DHEED_MPI=OFF
    -DHEED_PICTURES=OFF
    -DHEED_SERVE=OFF
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/heed)
vcpkg_fixup_pkgconfig()
if("command" IN_LIST FEATURES)
  vcpkg_copy_tools(TOOL_NAMES heed AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share" "${CURRENT_PACKAGES_DIR}/share/doc")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
