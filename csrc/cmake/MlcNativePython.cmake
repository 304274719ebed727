# mlc_native._core: csrc/bindings over libmlc_native. It lives at mlc_native/_core.*.so, the library
# at mlc_native/lib, so one relative run path serves wheels and editable installs.
#
# With MLC_NATIVE_STABLE_ABI it is _core.abi3.so, which CPython 3.12 and all later ones load. For an
# interpreter without a GIL, it declares that it needs none.
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
set(stable_abi "")
if(MLC_NATIVE_STABLE_ABI)
  find_package(Python 3.12 REQUIRED COMPONENTS Interpreter Development.Module Development.SABIModule)
  set(stable_abi STABLE_ABI)
endif()
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
  OUTPUT_VARIABLE nanobind_dir OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(nanobind_DIR ${nanobind_dir} CACHE PATH "" FORCE)  # never that of another environment
find_package(nanobind CONFIG REQUIRED)

file(GLOB binding_sources CONFIGURE_DEPENDS bindings/*.cc)
nanobind_add_module(_core ${stable_abi} FREE_THREADED NB_STATIC NOMINSIZE ${binding_sources})
get_target_property(core_suffix _core SUFFIX)
if(MLC_NATIVE_STABLE_ABI AND NOT core_suffix STREQUAL ".abi3.so")
  message(FATAL_ERROR "nanobind does not build for the stable ABI of ${Python_EXECUTABLE}")
endif()
mlc_native_unity(_core ${binding_sources})
# nanobind's own sources may be compiled as one file (its src/nb_combined.cpp), in a third of the time.
get_target_property(core_libraries _core LINK_LIBRARIES)
list(FILTER core_libraries INCLUDE REGEX "^nanobind-static")
set_target_properties(${core_libraries} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
target_link_libraries(_core PRIVATE mlc_native mlc_native_options mlc_native_json)
set_target_properties(_core PROPERTIES
  INSTALL_RPATH "$ORIGIN/lib" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python)
install(TARGETS _core LIBRARY DESTINATION .)
