# Installation: one static library of all floors but the command line, the headers, the program, and the CMake package
# that gives torsor::torsor.
include(CMakePackageConfigHelpers)

set(parts "")
foreach(library IN LISTS TORSOR_LIBRARIES)
  if(NOT library STREQUAL "torsor_cli")
    list(APPEND parts "$<TARGET_OBJECTS:${library}>")
  endif()
endforeach()
if(TARGET torsor_udpipe)
  list(APPEND parts "$<TARGET_OBJECTS:torsor_udpipe>")
endif()
if(NOT parts)
  return()
endif()

add_library(torsor_library STATIC ${parts})
add_library(torsor::torsor ALIAS torsor_library)
set_target_properties(torsor_library PROPERTIES OUTPUT_NAME torsor EXPORT_NAME torsor LINKER_LANGUAGE CXX)
target_compile_features(torsor_library INTERFACE cxx_std_20)
target_include_directories(torsor_library INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_link_libraries(torsor_library INTERFACE nlohmann_json::nlohmann_json Threads::Threads hwy::hwy)
if(TORSOR_WITH_TORCH)
  target_link_libraries(torsor_library INTERFACE Torsor::torch)
endif()
if(TARGET Torsor::sentencepiece)
  target_link_libraries(torsor_library INTERFACE Torsor::sentencepiece)
  set(sentencepiece ON)
else()
  set(sentencepiece OFF)
endif()

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/torsor")
install(TARGETS torsor_library EXPORT torsorTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT torsorTargets NAMESPACE torsor:: DESTINATION "${package_dir}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/torsor" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h" PATTERN "torsor/cli" EXCLUDE)
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/torsorConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/torsorConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/torsorConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/torsorConfig.cmake" "${PROJECT_BINARY_DIR}/torsorConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/TorsorTorch.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/TorsorSentencePiece.cmake" DESTINATION "${package_dir}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
if(TARGET torsor)
  install(TARGETS torsor RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
