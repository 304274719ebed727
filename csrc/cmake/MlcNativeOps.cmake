# libmlc_native_ops.so: the kernels as torch.ops.mlc_native.*, loaded by mlc_native/ops.py. torch's
# release is written beside it, which must be known before the library is loaded.
file(GLOB ops_sources CONFIGURE_DEPENDS torch_ops/*.cc)
list(FILTER ops_sources EXCLUDE REGEX "/cuda[^/]*\\.cc$")

function(mlc_native_ops_target name)
  target_link_libraries(${name} PRIVATE mlc_native mlc_native_options ${MLC_NATIVE_TORCH_LIBRARIES})
  target_compile_options(${name} PRIVATE ${MLC_NATIVE_TORCH_COMPILE_OPTIONS})
  set_target_properties(${name} PROPERTIES
    INSTALL_RPATH "$ORIGIN;$ORIGIN/../../torch/lib;${MLC_NATIVE_EXTRA_RPATH}")
  target_link_options(${name} PRIVATE -Wl,--no-undefined)
endfunction()

add_library(mlc_native_ops SHARED ${ops_sources})
mlc_native_ops_target(mlc_native_ops)
file(STRINGS "${torch_root}/version.py" torch_version REGEX "^__version__")
string(REGEX MATCH "[0-9][^'+]*" torch_version "${torch_version}")
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/torch_version.txt CONTENT "@torch_version@\n" @ONLY)
install(TARGETS mlc_native_ops LIBRARY DESTINATION lib)
install(FILES ${CMAKE_BINARY_DIR}/torch_version.txt DESTINATION lib)
