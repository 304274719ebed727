# mlc_native_c: libmlc_native_c.so, the C API of include/mlc_native/mlc_native.h with the whole library
# inside. It exports the functions of that header and needs libc, libm and the C++ runtime alone.
#
# It is loaded by its name, without a version in it, since a wheel has no symbolic links; the symbols have
# the version MLCN_1. With MLC_NATIVE_STATIC=ON, libmlc_native_c.a is the same as one archive, which a
# program links with the C++ runtime and the threads of the system.
option(MLC_NATIVE_STATIC "Build and install libmlc_native_c.a, too" OFF)
mlc_native_add_part(mlc_native_c_api mlc_native_engine c_api/*.cc)
target_compile_definitions(mlc_native_c_api PRIVATE MLC_NATIVE_VERSION="${PROJECT_VERSION}")

add_library(mlc_native_c SHARED ${mlc_native_objects} $<TARGET_OBJECTS:mlc_native_c_api>)
target_include_directories(mlc_native_c PUBLIC
  "$<BUILD_INTERFACE:${MLC_NATIVE_ROOT}/include>" $<INSTALL_INTERFACE:include>)
target_link_libraries(mlc_native_c PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
mlc_native_exports(mlc_native_c c_exports)
set_target_properties(mlc_native_c PROPERTIES
  LINKER_LANGUAGE CXX EXPORT_NAME c INSTALL_RPATH "$ORIGIN")
if(NOT MLC_NATIVE_SANITIZE)
  target_link_options(mlc_native_c PRIVATE -Wl,--no-undefined)
endif()

if(MLC_NATIVE_STATIC)
  add_library(mlc_native_c_archive STATIC ${mlc_native_objects} $<TARGET_OBJECTS:mlc_native_c_api>)
  target_include_directories(mlc_native_c_archive INTERFACE
    "$<BUILD_INTERFACE:${MLC_NATIVE_ROOT}/include>" $<INSTALL_INTERFACE:include>)
  target_link_libraries(mlc_native_c_archive INTERFACE Threads::Threads ${CMAKE_DL_LIBS} stdc++ m)
  set_target_properties(mlc_native_c_archive PROPERTIES
    OUTPUT_NAME mlc_native_c LINKER_LANGUAGE CXX EXPORT_NAME c_static)
  install(TARGETS mlc_native_c_archive EXPORT mlc_nativeTargets ARCHIVE DESTINATION lib)
endif()
