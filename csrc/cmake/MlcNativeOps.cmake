# The kernels as torch.ops.mlc_native.*, loaded by mlc_native/ops.py: libmlc_native_ops.so with those of
# the CPU, libmlc_native_cuda_ops.so (where nvcc is) with those of libmlc_native_cuda. torch's release
# is written beside them, which must be known before a library is loaded. No header of CUDA is
# needed, nor a torch that was built with it.
function(mlc_native_add_ops name)
  add_library(${name} SHARED ${ARGN})
  target_link_libraries(${name} PRIVATE mlc_native_options ${MLC_NATIVE_TORCH_LIBRARIES})
  target_compile_options(${name} PRIVATE ${MLC_NATIVE_TORCH_COMPILE_OPTIONS})
  set_target_properties(${name} PROPERTIES
    INSTALL_RPATH "$ORIGIN;$ORIGIN/../../torch/lib;${MLC_NATIVE_EXTRA_RPATH}")
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
