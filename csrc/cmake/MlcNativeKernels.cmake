# csrc/kernels/cpu, compiled per instruction set. Nothing here yet beyond the portable sources.
file(GLOB cpu_kernel_sources CONFIGURE_DEPENDS kernels/cpu/*.cc)
target_sources(mlc_native PRIVATE ${cpu_kernel_sources})
