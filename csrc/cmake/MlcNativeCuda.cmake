# libmlc_native_cuda.so: the plug-in for NVIDIA GPUs. csrc/kernels/cuda/*.cu are compiled by nvcc, its
# runtime.cc and csrc/models/cuda/*.cc by the host compiler. No GPU is needed to build, and
# libmlc_native itself knows nothing of CUDA.
#
#   MLC_NATIVE_CUDA                ON, OFF, AUTO (where a GPU and nvcc are)
#   MLC_NATIVE_CUDA_ARCHITECTURES  what to compile for: as CMAKE_CUDA_ARCHITECTURES, or "release": all
#                                  that are supported; default: native where a GPU is, else release
#
# nvcc takes several times as long as everything else, for each architecture: AUTO spares machines that
# would not run the result, and tools/release.sh compiles for all. The runtime is linked statically
# and kept inside: torch brings one of its own.
set(MLC_NATIVE_CUDA AUTO CACHE STRING
  "Build libmlc_native_cuda: ON, OFF, AUTO (where a GPU and nvcc are)")

# A library of the models on whatever compiled the kernels: CUDA, or the emulator of the tests.
function(mlc_native_add_cuda_models name)
  file(GLOB sources CONFIGURE_DEPENDS ${MLC_NATIVE_ROOT}/csrc/models/cuda/*.cc)
  add_library(${name} SHARED ${sources} ${ARGN})
  mlc_native_unity(${name} ${sources})
  target_link_libraries(${name} PUBLIC mlc_native
    PRIVATE mlc_native_options mlc_native_json ${CMAKE_DL_LIBS})
  # Beside libmlc_native, or in the package mlc_native_cuda beside mlc_native.
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/../../mlc_native/lib")
  if(NOT MLC_NATIVE_SANITIZE)
    target_link_options(${name} PRIVATE -Wl,--no-undefined)
  endif()
endfunction()

set(has_gpu OFF)
set(default_architectures release)
if(EXISTS /dev/nvidia0 OR EXISTS /dev/dxg)  # the device of Linux, of Windows' Linux
  set(has_gpu ON)
  set(default_architectures native)
endif()
set(MLC_NATIVE_CUDA_ARCHITECTURES ${default_architectures} CACHE STRING
  "as CMAKE_CUDA_ARCHITECTURES, or release")
set(MLC_NATIVE_HAS_CUDA OFF)
set(cuda_is_wanted ${MLC_NATIVE_CUDA})
if(cuda_is_wanted STREQUAL "AUTO" AND
    (NOT has_gpu OR MLC_NATIVE_SANITIZE OR CMAKE_CROSSCOMPILING))
  set(cuda_is_wanted OFF)
endif()
if(cuda_is_wanted)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(MLC_NATIVE_HAS_CUDA ON)
  elseif(NOT cuda_is_wanted STREQUAL "AUTO")
    message(FATAL_ERROR "nvcc not found: install the CUDA toolkit (12.8 or later), set "
                        "-DCMAKE_CUDA_COMPILER=..., or -DMLC_NATIVE_CUDA=OFF")
  endif()
endif()
if(NOT MLC_NATIVE_HAS_CUDA)
  message(STATUS "CUDA: left out (MLC_NATIVE_CUDA=ON builds it without a GPU, too)")
  return()
endif()

set(CMAKE_CUDA_ARCHITECTURES ${MLC_NATIVE_CUDA_ARCHITECTURES})
if(CMAKE_CUDA_ARCHITECTURES STREQUAL "release")  # the last one also as PTX, for newer GPUs
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)
endif()
# All GPUs of compute capability 9.0 have what sm_90a adds to sm_90.
list(TRANSFORM CMAKE_CUDA_ARCHITECTURES REPLACE "^90($|-)" "90a\\1")
if(MLC_NATIVE_CCACHE AND NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${MLC_NATIVE_CCACHE})
endif()
enable_language(CUDA)
if(CMAKE_CUDA_ARCHITECTURES STREQUAL "native" AND CMAKE_CUDA_ARCHITECTURES_NATIVE)
  list(TRANSFORM CMAKE_CUDA_ARCHITECTURES_NATIVE REPLACE "^90($|-)" "90a\\1"
    OUTPUT_VARIABLE CMAKE_CUDA_ARCHITECTURES)
endif()
find_package(CUDAToolkit REQUIRED)
message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")

# Sets OUT to one file that includes the sources. (CMake's own unity builds take CUDA from 3.31 on.)
function(mlc_native_cuda_unity out name)
  if(NOT MLC_NATIVE_UNITY)
    set(${out} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  list(TRANSFORM ARGN REPLACE ".*/(kernels/cuda/.*)" "#include \"\\1\"\n")
  list(JOIN ARGN "" includes)
  set(unity ${CMAKE_BINARY_DIR}/cuda/${name}.cu)
  file(CONFIGURE OUTPUT ${unity} CONTENT "${includes}" @ONLY)
  set(${out} ${unity} PARENT_SCOPE)
endfunction()

# Objects, so that the flags of the C++ code stay away from nvcc. A second of each file would be CUDA's
# headers, so there are three of about the same length, and the architectures of a file are compiled side by side.
file(GLOB others CONFIGURE_DEPENDS kernels/cuda/*.cu)
set(decoding ${others})
list(FILTER decoding INCLUDE REGEX "/(batch_gemv|decode_attention)\\.cu$")
set(products ${others})
list(FILTER products INCLUDE REGEX "/(gemm|([a-z]+_)?gemv)\\.cu$")
list(REMOVE_ITEM products ${decoding})
list(REMOVE_ITEM others ${decoding} ${products})
mlc_native_cuda_unity(decoding decoding ${decoding})
mlc_native_cuda_unity(products products ${products})
mlc_native_cuda_unity(others others ${others})
# Of the host's code, which launches kernels. Theirs is optimized whatever this says.
string(REPLACE "-O3" "-O1" CMAKE_CUDA_FLAGS_RELEASE "${CMAKE_CUDA_FLAGS_RELEASE}")
add_library(mlc_native_cuda_kernels OBJECT ${others} ${decoding} ${products})
target_include_directories(mlc_native_cuda_kernels PRIVATE ${mlc_native_includes})
set_target_properties(mlc_native_cuda_kernels PROPERTIES
  POSITION_INDEPENDENT_CODE ON CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF)
target_compile_options(mlc_native_cuda_kernels PRIVATE
  --expt-relaxed-constexpr --threads=2 -Xcompiler=-Wall,-Wextra
  $<$<BOOL:${MLC_NATIVE_WERROR}>:-Werror=all-warnings> $<$<BOOL:${MLC_NATIVE_WERROR}>:-Xcompiler=-Werror>)

file(GLOB cuda_host_sources CONFIGURE_DEPENDS kernels/cuda/*.cc)
mlc_native_add_cuda_models(mlc_native_cuda ${cuda_host_sources}
  $<TARGET_OBJECTS:mlc_native_cuda_kernels>)
target_link_libraries(mlc_native_cuda PRIVATE CUDA::cudart_static)
target_link_options(mlc_native_cuda PRIVATE -Wl,--exclude-libs,ALL)
install(TARGETS mlc_native_cuda LIBRARY DESTINATION lib COMPONENT cuda)
# What wheels/mlc_native_cuda contains.
add_custom_target(mlc_native_cuda_package DEPENDS mlc_native_cuda)

# Benchmarks: of the kernels, and of the machine.
add_library(cuda_micro_kernels OBJECT EXCLUDE_FROM_ALL ${MLC_NATIVE_ROOT}/bench/cuda/micro.cu)
target_include_directories(cuda_micro_kernels PRIVATE ${mlc_native_includes})
set_target_properties(cuda_micro_kernels PROPERTIES
  CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF)
target_compile_options(cuda_micro_kernels PRIVATE --expt-relaxed-constexpr)
add_executable(cuda_kernels EXCLUDE_FROM_ALL ${MLC_NATIVE_ROOT}/bench/cuda/kernels.cc)
add_executable(cuda_micro EXCLUDE_FROM_ALL ${MLC_NATIVE_ROOT}/bench/cuda/micro.cc
  $<TARGET_OBJECTS:cuda_micro_kernels>)
foreach(program cuda_kernels cuda_micro)
  target_link_libraries(${program} PRIVATE
    mlc_native_cuda mlc_native_options mlc_native_json CUDA::cudart_static)
  set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endforeach()
