# csrc/kernels/cuda: compiled by nvcc alone (no torch header), or replaced by no_cuda.cc, where each
# function says that this build has no CUDA. No GPU is needed to build.
#
#   MLC_NATIVE_CUDA                ON, OFF, AUTO (where nvcc is)
#   MLC_NATIVE_CUDA_ARCHITECTURES  what to compile for; the last one also as PTX for newer GPUs
#
# The runtime is linked statically: libmlc_native loads on machines without a GPU or libcudart.
set(MLC_NATIVE_CUDA OFF CACHE STRING "Compile the CUDA kernels: ON, OFF, AUTO (where nvcc is)")
set(MLC_NATIVE_CUDA_ARCHITECTURES "80-real;90-real;100" CACHE STRING "as CMAKE_CUDA_ARCHITECTURES")

set(MLC_NATIVE_HAS_CUDA OFF)
if(MLC_NATIVE_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(MLC_NATIVE_HAS_CUDA ON)
  elseif(NOT MLC_NATIVE_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "nvcc not found: install the CUDA toolkit (12.8 or later), set "
                        "-DCMAKE_CUDA_COMPILER=..., or -DMLC_NATIVE_CUDA=OFF")
  endif()
endif()
if(NOT MLC_NATIVE_HAS_CUDA)
  message(STATUS "CUDA: left out, no nvcc (or MLC_NATIVE_CUDA=OFF)")
  target_sources(mlc_native PRIVATE kernels/cuda/no_cuda.cc)
  return()
endif()

set(CMAKE_CUDA_ARCHITECTURES ${MLC_NATIVE_CUDA_ARCHITECTURES})
if(MLC_NATIVE_CCACHE AND NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${MLC_NATIVE_CCACHE})
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")

# Objects, so that the flags of the C++ library stay away from nvcc.
file(GLOB cuda_sources CONFIGURE_DEPENDS kernels/cuda/*.cu)
add_library(mlc_native_cuda OBJECT ${cuda_sources})
target_include_directories(mlc_native_cuda PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
set_target_properties(mlc_native_cuda PROPERTIES
  POSITION_INDEPENDENT_CODE ON CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF)
target_compile_options(mlc_native_cuda PRIVATE
  --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra
  $<$<BOOL:${MLC_NATIVE_WERROR}>:-Werror=all-warnings> $<$<BOOL:${MLC_NATIVE_WERROR}>:-Xcompiler=-Werror>)
target_sources(mlc_native PRIVATE $<TARGET_OBJECTS:mlc_native_cuda>)
target_link_libraries(mlc_native PRIVATE $<BUILD_INTERFACE:CUDA::cudart_static>)
