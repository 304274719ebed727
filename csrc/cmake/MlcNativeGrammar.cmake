# libmlc_native_grammar.so: csrc/grammar/xgrammar on tvm-ffi. libmlc_native loads it on the first
# constrained request and never links tvm-ffi itself. mlc_native_grammar_worker: the helper process
# that compiles unknown grammars first. xgrammar is not needed to build: its library
# is opened at run time, from the package next to tvm_ffi.
if(NOT MLC_NATIVE_TVM_FFI_ROOT)
  find_package(Python 3.11 COMPONENTS Interpreter QUIET)
  if(Python_EXECUTABLE)
    execute_process(
      COMMAND ${Python_EXECUTABLE} -c
        "import importlib.util as u; s = u.find_spec('tvm_ffi'); \
print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE tvm_ffi_root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
else()
  set(tvm_ffi_root ${MLC_NATIVE_TVM_FFI_ROOT})
endif()
if(NOT EXISTS "${tvm_ffi_root}/lib/libtvm_ffi.so")
  if(MLC_NATIVE_WITH_GRAMMAR STREQUAL "AUTO")
    message(STATUS "grammars: left out, `pip install apache-tvm-ffi xgrammar` to have them")
    return()
  endif()
  message(FATAL_ERROR "tvm_ffi not found for ${Python_EXECUTABLE}: pip install apache-tvm-ffi, or "
                      "-DMLC_NATIVE_WITH_GRAMMAR=OFF")
endif()
message(STATUS "grammars: ${tvm_ffi_root}")

# The libraries lie next to libmlc_native, in wheels also next to site-packages/tvm_ffi. A build without
# Python may be installed anywhere.
set(tvm_ffi_rpath ${MLC_NATIVE_EXTRA_RPATH})
if(NOT tvm_ffi_rpath AND NOT MLC_NATIVE_PYTHON)
  set(tvm_ffi_rpath ${tvm_ffi_root}/lib)
endif()
function(mlc_native_grammar_target name)
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_include_directories(${name} PRIVATE ${mlc_native_includes})
  target_include_directories(${name} SYSTEM PRIVATE ${tvm_ffi_root}/include)
  target_link_libraries(${name} PRIVATE mlc_native_options mlc_native_json
    ${tvm_ffi_root}/lib/libtvm_ffi.so ${CMAKE_DL_LIBS})
  set_target_properties(${name} PROPERTIES
    CXX_VISIBILITY_PRESET hidden
    INSTALL_RPATH "$ORIGIN;$ORIGIN/../../tvm_ffi/lib;${tvm_ffi_rpath}")
endfunction()

# What the plug-in and its worker share.
set(xgrammar_shared compile.cc library.cc structural_tag.cc tokens.cc)
list(TRANSFORM xgrammar_shared PREPEND grammar/xgrammar/)
add_library(mlc_native_grammar_shared OBJECT ${xgrammar_shared})
mlc_native_grammar_target(mlc_native_grammar_shared)
mlc_native_unity(mlc_native_grammar_shared ${xgrammar_shared})
set_target_properties(mlc_native_grammar_shared PROPERTIES POSITION_INDEPENDENT_CODE ON)

add_library(mlc_native_grammar SHARED $<TARGET_OBJECTS:mlc_native_grammar_shared>
  grammar/xgrammar/matcher.cc grammar/xgrammar/plugin.cc)
mlc_native_grammar_target(mlc_native_grammar)
mlc_native_unity(mlc_native_grammar grammar/xgrammar/matcher.cc grammar/xgrammar/plugin.cc)
# It has its own copy of what it needs of mlc_native_base and the part below, and exports nothing of it.
target_link_libraries(mlc_native_grammar PRIVATE mlc_native_base)
mlc_native_exports(mlc_native_grammar plugin_exports)
if(NOT MLC_NATIVE_SANITIZE)
  target_link_options(mlc_native_grammar PRIVATE -Wl,--no-undefined)
endif()

# The worker does not link libmlc_native, to start quickly. It is never sanitized, because it lives
# under a limit of its address space and sanitizers reserve terabytes: a sanitized build compiles all
# of it again.
file(GLOB worker_sources CONFIGURE_DEPENDS grammar/worker/*.cc)
add_executable(mlc_native_grammar_worker ${worker_sources})
mlc_native_grammar_target(mlc_native_grammar_worker)
mlc_native_unity(mlc_native_grammar_worker ${worker_sources})
target_link_libraries(mlc_native_grammar_worker PRIVATE Threads::Threads)
if(MLC_NATIVE_SANITIZE)
  file(GLOB rewriting CONFIGURE_DEPENDS grammar/regex*.cc grammar/schema_*.cc)
  target_sources(mlc_native_grammar_worker PRIVATE ${xgrammar_shared} ${rewriting}
    grammar/big_stack.cc grammar/spec_check.cc grammar/trial_protocol.cc support/check.cc
    support/json.cc support/json_in_order.cc support/utf8.cc)
  target_compile_options(mlc_native_grammar_worker PRIVATE -fno-sanitize=all)
  target_link_options(mlc_native_grammar_worker PRIVATE -fno-sanitize=all)
else()
  target_sources(mlc_native_grammar_worker PRIVATE $<TARGET_OBJECTS:mlc_native_grammar_shared>)
  target_link_libraries(mlc_native_grammar_worker PRIVATE mlc_native_base)
endif()
add_dependencies(mlc_native_grammar mlc_native_grammar_worker)  # whoever loads one starts the other
install(TARGETS mlc_native_grammar mlc_native_grammar_worker
  LIBRARY DESTINATION lib RUNTIME DESTINATION lib)
