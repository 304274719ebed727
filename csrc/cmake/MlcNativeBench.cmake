# bench/NAME.cc -> a program NAME.
find_package(benchmark REQUIRED)
file(GLOB bench_sources CONFIGURE_DEPENDS ${MLC_NATIVE_ROOT}/bench/*.cc)
foreach(source ${bench_sources})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE
    mlc_native_fake_model_path mlc_native_options mlc_native_json benchmark::benchmark)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endforeach()

target_link_libraries(native PRIVATE mlc_native_c_api)

# Grammars are looked for in the folder of the program.
if(TARGET mlc_native_grammar)
  foreach(name grammar overhead)
    add_dependencies(${name} mlc_native_grammar)
  endforeach()
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
  foreach(file libmlc_native_grammar.so mlc_native_grammar_worker)
    file(CREATE_LINK ${CMAKE_BINARY_DIR}/${file} ${CMAKE_BINARY_DIR}/bench/${file} SYMBOLIC)
  endforeach()
endif()
