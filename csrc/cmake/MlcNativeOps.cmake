# The kernels as torch.ops.mlc_native.*, loaded by mlc_native/ops.py: libmlc_native_ops.so with those of
# the CPU, libmlc_native_cuda_ops.so (where nvcc is) with those of libmlc_native_cuda. They are all of
# the build that sees torch. torch's release is written beside them, which must be known before a
# library is loaded. No header of CUDA is needed, nor a torch that was built with it.
if(MLC_NATIVE_OPS STREQUAL "AUTO" AND NOT MLC_NATIVE_PYTHON)
  return()
endif()
if(NOT MLC_NATIVE_TORCH_ROOT)
  find_package(Python 3.11 COMPONENTS Interpreter QUIET)
  if(Python_EXECUTABLE)
    execute_process(
      COMMAND ${Python_EXECUTABLE} -c
        "import importlib.util as u; s = u.find_spec('torch'); \
print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE torch_root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
else()
  set(torch_root ${MLC_NATIVE_TORCH_ROOT})
endif()
if(NOT EXISTS "${torch_root}/lib/libtorch_cpu.so")
  if(MLC_NATIVE_OPS STREQUAL "AUTO")
    message(STATUS "torch ops: left out, install torch before building to have them")
    return()
  endif()
  message(FATAL_ERROR "torch not found for ${Python_EXECUTABLE}: pip install torch, or "
                      "-DMLC_NATIVE_OPS=OFF")
endif()
message(STATUS "torch ops: ${torch_root}")

# The C++ standard library ABI that this torch was built for, from torch's own record of it.
file(READ "${torch_root}/share/cmake/Torch/TorchConfig.cmake" torch_config)
string(REGEX MATCH "-D_GLIBCXX_USE_CXX11_ABI=[01]" torch_abi "${torch_config}")
if(torch_abi STREQUAL "-D_GLIBCXX_USE_CXX11_ABI=0")
  message(FATAL_ERROR "this torch uses the pre-C++11 ABI; torch 2.11 and later do not")
endif()

# torch's own CMake package is not used because, on its CUDA wheels, it demands a CUDA toolkit. The
# libraries of torch are found by name: a process that loads ops has imported torch.
function(mlc_native_add_ops name)
  add_library(${name} SHARED ${ARGN})
  target_link_libraries(${name} PRIVATE mlc_native_options
    ${torch_root}/lib/libtorch_cpu.so ${torch_root}/lib/libc10.so)
  target_compile_options(${name} PRIVATE ${torch_abi} -isystem${torch_root}/include
    -isystem${torch_root}/include/torch/csrc/api/include)
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN")
  target_link_options(${name} PRIVATE -Wl,--no-undefined)
endfunction()

# The ops on CUDA's kernels, which `kernels` is linked from.
file(GLOB cuda_ops_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/torch_ops/cuda*.cc)
function(mlc_native_add_cuda_ops name kernels)
  mlc_native_add_ops(${name} ${cuda_ops_sources} ${ARGN})
  target_link_libraries(${name} PRIVATE ${kernels} mlc_native_ops)
endfunction()

file(GLOB ops_sources CONFIGURE_DEPENDS torch_ops/*.cc)
list(REMOVE_ITEM ops_sources ${cuda_ops_sources})
mlc_native_add_ops(mlc_native_ops ${ops_sources})
target_link_libraries(mlc_native_ops PUBLIC mlc_native)
install(TARGETS mlc_native_ops LIBRARY DESTINATION lib)
if(TARGET mlc_native_cuda)
  mlc_native_add_cuda_ops(mlc_native_cuda_ops mlc_native_cuda)
  install(TARGETS mlc_native_cuda_ops LIBRARY DESTINATION lib)
endif()

file(STRINGS "${torch_root}/version.py" torch_version REGEX "^__version__")
string(REGEX MATCH "[0-9][^'+]*" torch_version "${torch_version}")
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/torch_version.txt CONTENT "@torch_version@\n" @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/torch_version.txt DESTINATION lib)
