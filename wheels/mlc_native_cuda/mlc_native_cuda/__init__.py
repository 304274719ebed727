"""The CUDA library of mlc_native. An engine finds it beside the package mlc_native by itself."""
