# csrc/kernels/cpu/*_kernels.cc: compiled once per instruction set, one of which kernels/dispatch.cc
# chooses at run time. Never -march=native or LTO here: the binary must run on any CPU.
set(isa_flags_portable "")
set(isa_flags_avx2 -mavx2 -mfma -mf16c)
set(isa_flags_avx2_vnni ${isa_flags_avx2} -mavxvnni)
set(isa_flags_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # false reports in GCC's own header (its bug 105593)
  list(APPEND isa_flags_avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
endif()
set(isa_flags_avx512_vnni ${isa_flags_avx512} -mavx512vnni)
set(isa_flags_avx512_bf16 ${isa_flags_avx512_vnni} -mavx512bf16)
set(isa_flags_avx512_amx ${isa_flags_avx512_bf16}) # its tiles are in assembly
set(isa_flags_neon "")
set(isa_flags_neon_dotprod -march=armv8.2-a+dotprod)
set(isa_flags_neon_bf16 -march=armv8.2-a+dotprod+bf16)
set(isa_flags_neon_i8mm -march=armv8.2-a+dotprod+bf16+i8mm)

set(linear_only avx512_amx neon_i8mm)  # what else they compute is that of another ISA
# For builds whose tests run no kernel, which would wait longest for these files.
option(MLC_NATIVE_PORTABLE_ONLY "Leave out the kernels of all instruction sets but the portable ones" OFF)
set(isas portable)
if(MLC_NATIVE_PORTABLE_ONLY)
  target_compile_definitions(mlc_native_numerics PRIVATE MLC_NATIVE_PORTABLE_ONLY)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND isas avx2 avx2_vnni avx512 avx512_vnni avx512_bf16 avx512_amx)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(APPEND isas neon neon_dotprod neon_bf16 neon_i8mm)
endif()

# Pack and quantize whole checkpoints at load: live from the vectorizer, on the base ISA. Instrumented,
# that would take a minute to compile.
set(optimization_packing -O3)
if(MLC_NATIVE_SANITIZE)
  set(optimization_packing -O1)
endif()
set_source_files_properties(kernels/packed_weights.cc kernels/quantize.cc kernels/error_feedback.cc
  PROPERTIES COMPILE_OPTIONS "${optimization_packing};-fno-trapping-math")

# -O2 for what only machines without AVX2 run: -O3 takes more than twice as long to compile it.
set(optimization_portable -O2)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # notes on passing vectors, which happens within a file only
  set(isa_flags_portable -Wno-psabi)
endif()
# mlc_native_add_kernels(TARGET ISA SOURCES... [INCLUDES folder]): an object library of them.
function(mlc_native_add_kernels target isa)
  cmake_parse_arguments(arg "" "INCLUDES" "" ${ARGN})
  add_library(${target} OBJECT ${arg_UNPARSED_ARGUMENTS})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_include_directories(${target} PRIVATE ${arg_INCLUDES} ${mlc_native_includes})
  target_link_libraries(${target} PRIVATE mlc_native_options)
  set(optimization -O3)
  if(DEFINED optimization_${isa})
    set(optimization ${optimization_${isa}})
  endif()
  if(MLC_NATIVE_SANITIZE)  # instrumented, the unrolled loops would take minutes per file
    set(optimization -O0 -Wno-psabi)
  endif()
  target_compile_options(${target} PRIVATE ${optimization} ${isa_flags_${isa}})
endfunction()

set(kernel_objects "")
foreach(isa IN LISTS isas)
  set(kernels mlc_native_kernels_${isa})
  set(sources kernels/cpu/linear_kernels.cc)
  if(NOT isa IN_LIST linear_only)
    list(APPEND sources kernels/cpu/attention_kernels.cc kernels/cpu/delta_kernels.cc
      kernels/cpu/rowwise_kernels.cc)
  endif()
  mlc_native_add_kernels(${kernels} ${isa} ${sources})
  target_compile_definitions(${kernels} PRIVATE
    MLC_NATIVE_ISA=${isa} MLC_NATIVE_ISA_HEADER="kernels/cpu/dot_${isa}.h")
  list(APPEND kernel_objects $<TARGET_OBJECTS:${kernels}>)
endforeach()
target_sources(mlc_native_numerics PRIVATE ${kernel_objects})
