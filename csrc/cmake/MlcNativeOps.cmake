# The kernels as torch.ops.mlc_native.*, loaded by mlc_native/ops.py: libmlc_native_ops.so with those of
# the CPU, libmlc_native_cuda_ops.so (where nvcc is) with those of libmlc_native_cuda. They are all of
# the build that sees torch, and see its stable ABI alone: a library that was built with one release of
# torch works with all from TORCH_TARGET_VERSION on. No header of CUDA is needed, nor a torch that was
# built with it.
if(MLC_NATIVE_OPS STREQUAL "AUTO" AND NOT MLC_NATIVE_PYTHON)
  return()
endif()
set(MLC_NATIVE_TORCH_ROOT "" CACHE PATH
  "The package torch to build the ops with, of any Python; empty: that of the interpreter")
set(torch_root "${MLC_NATIVE_TORCH_ROOT}")
if(NOT torch_root)
  find_package(Python 3.11 COMPONENTS Interpreter QUIET)
  if(Python_EXECUTABLE)
    execute_process(
      COMMAND ${Python_EXECUTABLE} -c
        "import importlib.util as u; s = u.find_spec('torch'); \
print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE torch_root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
if(NOT EXISTS "${torch_root}/lib/libtorch_cpu.so")
  set(ops_obstacle "there is no torch for ${Python_EXECUTABLE}")
else()
  file(STRINGS "${torch_root}/version.py" torch_version REGEX "^__version__")
  string(REGEX MATCH "[0-9][^'+]*" torch_version "${torch_version}")
  if(torch_version VERSION_LESS 2.10)
    set(ops_obstacle "torch 2.10 or later is needed, ${torch_root} is ${torch_version}")
  endif()
endif()
if(ops_obstacle AND MLC_NATIVE_OPS STREQUAL "AUTO")
  message(STATUS "torch ops: left out, ${ops_obstacle}")
  return()
elseif(ops_obstacle)
  message(FATAL_ERROR "torch ops: ${ops_obstacle}; pip install torch, or -DMLC_NATIVE_OPS=OFF")
endif()
message(STATUS "torch ops: ${torch_root} (${torch_version})")

# torch's own CMake package is not used because, on its CUDA wheels, it demands a CUDA toolkit. The
# library of torch is found by name: a process that loads ops has imported torch.
function(mlc_native_ops_target name)
  target_link_libraries(${name} PRIVATE mlc_native mlc_native_options)
  target_include_directories(${name} SYSTEM PRIVATE ${torch_root}/include)
  if(MLC_NATIVE_GLIBC)  # as in MlcNativeToolchain
    target_compile_options(${name} PRIVATE -ffile-prefix-map=${torch_root}/=)
  endif()
  target_compile_definitions(${name} PRIVATE
    TORCH_TARGET_VERSION=0x020a000000000000 TORCH_STABLE_ONLY)  # 2.10
  set_target_properties(${name} PROPERTIES
    CXX_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON INSTALL_RPATH "$ORIGIN")
endfunction()

# What the ops of all devices begin with.
file(GLOB common_ops_sources CONFIGURE_DEPENDS torch_ops/*.cc)
list(FILTER common_ops_sources EXCLUDE REGEX "/(cpu|cuda|schema)[^/]*$")
add_library(mlc_native_common_ops STATIC ${common_ops_sources})
mlc_native_unity(mlc_native_common_ops ${common_ops_sources})
mlc_native_ops_target(mlc_native_common_ops)

function(mlc_native_add_ops name)
  add_library(${name} SHARED ${ARGN})
  mlc_native_unity(${name} ${ARGN})
  mlc_native_ops_target(${name})
  target_link_libraries(${name} PRIVATE mlc_native_common_ops ${torch_root}/lib/libtorch_cpu.so)
  target_link_options(${name} PRIVATE -Wl,--no-undefined)
  mlc_native_exports(${name} plugin_exports)
endfunction()

# The ops on CUDA's kernels, which `kernels` is linked from.
file(GLOB cuda_ops_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/torch_ops/cuda*.cc)
function(mlc_native_add_cuda_ops name kernels)
  mlc_native_add_ops(${name} ${cuda_ops_sources} ${ARGN})
  target_link_libraries(${name} PRIVATE ${kernels} ${CMAKE_DL_LIBS})
endfunction()

file(GLOB cpu_ops_sources CONFIGURE_DEPENDS torch_ops/cpu*.cc)
mlc_native_add_ops(mlc_native_ops ${cpu_ops_sources} torch_ops/schema.cc)
install(TARGETS mlc_native_ops LIBRARY DESTINATION lib)
if(TARGET mlc_native_cuda)
  mlc_native_add_cuda_ops(mlc_native_cuda_ops mlc_native_cuda)
  set_target_properties(mlc_native_cuda_ops PROPERTIES
    INSTALL_RPATH "$ORIGIN;$ORIGIN/../../mlc_native/lib")
  install(TARGETS mlc_native_cuda_ops LIBRARY DESTINATION lib COMPONENT cuda)
  add_dependencies(mlc_native_cuda_package mlc_native_cuda_ops)
endif()
