# csrc/kernels/cpu/kernels_ISA.cc: one translation unit per instruction set, chosen at run time by
# kernels/dispatch.cc. Never -march=native or LTO here: the binary must run on any CPU.
set(isa_flags_portable "")
set(isa_flags_avx2 -mavx2 -mfma -mf16c)
set(isa_flags_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # false reports in GCC's own header (its bug 105593)
  list(APPEND isa_flags_avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
endif()
set(isa_flags_avx512_bf16 ${isa_flags_avx512} -mavx512bf16 -mavx512vnni)
set(isa_flags_neon "")
set(isa_flags_neon_dotprod -march=armv8.2-a+dotprod)
set(isa_flags_neon_bf16 -march=armv8.2-a+dotprod+bf16)

set(isas portable)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND isas avx2 avx512 avx512_bf16)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(APPEND isas neon neon_dotprod neon_bf16)
endif()

# Pack and quantize whole checkpoints at load: live from the vectorizer, on the base ISA.
set_source_files_properties(kernels/packed_weights.cc kernels/quantize.cc PROPERTIES
  COMPILE_OPTIONS "-O3;-fno-trapping-math")

set(kernel_optimization -O3)
if(MLC_NATIVE_SANITIZE)  # instrumented, the unrolled loops would take minutes per file
  set(kernel_optimization -O0 -Wno-psabi)
endif()
foreach(isa IN LISTS isas)
  set(source kernels/cpu/kernels_${isa}.cc)
  set_source_files_properties(${source} PROPERTIES
    COMPILE_OPTIONS "${kernel_optimization};${isa_flags_${isa}}")
  target_sources(mlc_native PRIVATE ${source})
endforeach()
