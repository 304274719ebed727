# Installs into the prefix mlc_native/ of a wheel: lib/, lib/cuda_src/, include/mlc_native/,
# lib/cmake/mlc_native/.
# A C++ host says find_package(mlc_native) and links mlc_native::mlc_native; it needs no torch headers.
include(CMakePackageConfigHelpers)
install(TARGETS mlc_native EXPORT mlc_nativeTargets LIBRARY DESTINATION lib)
file(GLOB public_headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}
  *.h support/*.h config/*.h observe/*.h kernels/*.h kv/*.h sampling/*.h tokenizer/*.h grammar/*.h
  checkpoint/*.h arch/*.h weights/*.h models/*.h request/*.h step/*.h)
foreach(header ${public_headers})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${header} DESTINATION include/mlc_native/${folder})
endforeach()

# What mlc_native/support/cuda_build.py builds libmlc_native_cuda.so of, beside these headers.
foreach(folder kernels/cuda models/cuda)
  install(DIRECTORY ${folder}/ DESTINATION lib/cuda_src/${folder} FILES_MATCHING
    PATTERN "*.cu" PATTERN "*.cuh" PATTERN "*.cc" PATTERN "*.h")
endforeach()

set(config_dir lib/cmake/mlc_native)
configure_package_config_file(cmake/mlc_nativeConfig.cmake.in
  ${CMAKE_BINARY_DIR}/mlc_nativeConfig.cmake INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/mlc_nativeConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/mlc_nativeConfig.cmake
  ${CMAKE_BINARY_DIR}/mlc_nativeConfigVersion.cmake DESTINATION ${config_dir})
install(EXPORT mlc_nativeTargets NAMESPACE mlc_native:: DESTINATION ${config_dir})
