# libtorch of the pip package: headers, libtorch_cpu and libc10, nothing else. torch's own CMake
# package is not used because, on its CUDA wheels, it demands a CUDA toolkit that we do not need.
if(NOT MLC_NATIVE_TORCH_ROOT)
  find_package(Python 3.11 REQUIRED COMPONENTS Interpreter)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c
      "import importlib.util as u; s = u.find_spec('torch'); \
print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE torch_root OUTPUT_STRIP_TRAILING_WHITESPACE)
else()
  set(torch_root ${MLC_NATIVE_TORCH_ROOT})
endif()
if(NOT EXISTS "${torch_root}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "torch not found for ${Python_EXECUTABLE}: pip install torch, or "
                      "-DMLC_NATIVE_WITH_TORCH=OFF for the C++ library without it")
endif()
set(MLC_NATIVE_TORCH_LIB_DIR "${torch_root}/lib")
set(MLC_NATIVE_TORCH_LIBRARIES
  ${MLC_NATIVE_TORCH_LIB_DIR}/libtorch_cpu.so ${MLC_NATIVE_TORCH_LIB_DIR}/libc10.so)

# The C++ standard library ABI that this torch was built for, from torch's own record of it.
file(READ "${torch_root}/share/cmake/Torch/TorchConfig.cmake" torch_config)
string(REGEX MATCH "-D_GLIBCXX_USE_CXX11_ABI=[01]" torch_abi "${torch_config}")
if(torch_abi STREQUAL "-D_GLIBCXX_USE_CXX11_ABI=0")
  message(FATAL_ERROR "this torch uses the pre-C++11 ABI; torch 2.11 and later do not")
endif()
set(MLC_NATIVE_TORCH_COMPILE_OPTIONS
  ${torch_abi} -isystem${torch_root}/include -isystem${torch_root}/include/torch/csrc/api/include)
message(STATUS "libtorch: ${torch_root}")
