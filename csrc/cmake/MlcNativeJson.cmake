# nlohmann-json: from MLC_NATIVE_JSON_INCLUDE, the pip package of that name, or the system.
if(NOT MLC_NATIVE_JSON_INCLUDE)
  find_package(Python 3.11 COMPONENTS Interpreter QUIET)
  if(Python_EXECUTABLE)
    execute_process(
      COMMAND ${Python_EXECUTABLE} -c
        "import importlib.util as u; s = u.find_spec('nlohmann_json'); \
print(s.submodule_search_locations[0] + '/include' if s else '')"
      OUTPUT_VARIABLE json_hint OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  find_path(MLC_NATIVE_JSON_INCLUDE nlohmann/json.hpp HINTS ${json_hint})
endif()
if(NOT EXISTS "${MLC_NATIVE_JSON_INCLUDE}/nlohmann/json.hpp")
  message(FATAL_ERROR "nlohmann/json.hpp not found: `pip install nlohmann-json` for the Python given "
                      "by -DPython_EXECUTABLE=..., or set -DMLC_NATIVE_JSON_INCLUDE=DIR")
endif()
add_library(mlc_native_json INTERFACE)
target_include_directories(mlc_native_json SYSTEM INTERFACE ${MLC_NATIVE_JSON_INCLUDE})
