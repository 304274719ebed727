# bench/NAME.cc -> a program NAME. Those that load the fake model get its path compiled in.
find_package(benchmark REQUIRED)
file(GLOB bench_sources CONFIGURE_DEPENDS ${MLC_NATIVE_ROOT}/bench/*.cc)
foreach(source ${bench_sources})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE
    mlc_native mlc_native_options mlc_native_json benchmark::benchmark)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
  if(TARGET mlc_native_fake_model)
    add_dependencies(${name} mlc_native_fake_model)
    target_compile_definitions(${name} PRIVATE
      MLC_NATIVE_FAKE_MODEL_PATH="$<TARGET_FILE:mlc_native_fake_model>")
  endif()
endforeach()
