# Build type, ccache, warnings and sanitizers, in one interface target for our own code.
# Headers of others (torch, nanobind, JSON) come in as SYSTEM and are not held to our warnings.
find_package(Threads REQUIRED)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(MLC_NATIVE_CCACHE ccache)
if(MLC_NATIVE_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MLC_NATIVE_CCACHE})
endif()

# mlc_native_unity(TARGET SOURCES...): compiles the sources of each folder as one file, because most of
# a file's compile time is its headers. Names in unnamed namespaces are unique within a folder; files
# with options of their own stay by themselves.
function(mlc_native_unity target)
  if(NOT MLC_NATIVE_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # GCC takes a .cc file that is included for a header.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  foreach(source IN LISTS ARGN)
    get_filename_component(folder ${source} DIRECTORY)
    get_filename_component(folder "${folder}" NAME)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP "${folder}")
  endforeach()
endfunction()

# For a release: what is linked also runs on systems with an older glibc, and nothing in it tells where
# it was built, so that two builds give the same bytes.
set(MLC_NATIVE_GLIBC "" CACHE STRING
  "Link for systems with this version of glibc or later, as 2.28; empty: for this one's")
if(MLC_NATIVE_GLIBC)
  find_package(Python 3.11 REQUIRED COMPONENTS Interpreter)
  set(baseline ${CMAKE_BINARY_DIR}/baseline)
  execute_process(COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/baseline/make_baseline.py
    --glibc ${MLC_NATIVE_GLIBC} --compiler ${CMAKE_CXX_COMPILER} ${baseline}
    COMMAND_ERROR_IS_FATAL ANY)
  add_link_options(-L${baseline} -Wl,--exclude-libs,ALL -Wl,--wrap=__libc_start_main)
  set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)  # else the length of this folder stays in each library
  foreach(root ${MLC_NATIVE_ROOT} ${CMAKE_BINARY_DIR} ${MLC_NATIVE_TVM_FFI_ROOT})
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${root}/=>
                        $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffile-prefix-map=${root}/=>)
  endforeach()
endif()

add_library(mlc_native_options INTERFACE)
# No fused products but those the code asks for: which ones a compiler fuses depends on what it inlines,
# and where fusing is part of the base level (AArch64) GCC does it by default. Two ways to compute the
# same must give the same bits, on every machine.
target_compile_options(mlc_native_options INTERFACE
  -ffp-contract=off
  -Wall -Wextra $<$<BOOL:${MLC_NATIVE_WERROR}>:-Werror>)
if(MLC_NATIVE_SANITIZE)
  # Everything in the process must agree on the sanitizer, so the flags are global.
  # -O2 and full debug information take three times as long to compile; -g1 gives lines of a stack.
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g1 -DNDEBUG")
  add_compile_options(-fsanitize=${MLC_NATIVE_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${MLC_NATIVE_SANITIZE})
  if(MLC_NATIVE_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()
