# Installs into the prefix mlc_native/ of a wheel: lib/, lib/cuda_src/, include/mlc_native/ (the public
# headers), lib/cmake/mlc_native/.
# A C++ host says find_package(mlc_native) and links mlc_native::mlc_native; it needs no torch headers. A
# host in C, or in a language that calls C, links mlc_native::c. lib/pkgconfig/ has the same for others.
include(CMakePackageConfigHelpers)
install(TARGETS mlc_native mlc_native_c EXPORT mlc_nativeTargets LIBRARY DESTINATION lib)
foreach(name mlc_native mlc_native_c)
  configure_file(cmake/${name}.pc.in ${CMAKE_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/${name}.pc DESTINATION lib/pkgconfig)
endforeach()
install(DIRECTORY ${MLC_NATIVE_ROOT}/include/ DESTINATION include FILES_MATCHING PATTERN "*.h")

# What mlc_native/support/cuda_build.py builds libmlc_native_cuda.so of, on the public headers: its
# sources, and the headers of the folders that it is built on.
foreach(folder kernels/cuda models/cuda)
  install(DIRECTORY ${folder}/ DESTINATION lib/cuda_src/${folder} FILES_MATCHING
    PATTERN "*.cu" PATTERN "*.cuh" PATTERN "*.cc" PATTERN "*.h")
endforeach()
foreach(folder arch checkpoint config kernels models sampling support weights)
  file(GLOB headers CONFIGURE_DEPENDS ${folder}/*.h)
  install(FILES ${headers} DESTINATION lib/cuda_src/${folder})
endforeach()

set(config_dir lib/cmake/mlc_native)
configure_package_config_file(cmake/mlc_nativeConfig.cmake.in
  ${CMAKE_BINARY_DIR}/mlc_nativeConfig.cmake INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/mlc_nativeConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/mlc_nativeConfig.cmake
  ${CMAKE_BINARY_DIR}/mlc_nativeConfigVersion.cmake DESTINATION ${config_dir})
install(EXPORT mlc_nativeTargets NAMESPACE mlc_native:: DESTINATION ${config_dir})
