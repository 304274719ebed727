//! Links libmlc_native_c.so of the folder in `MLC_NATIVE_LIB_DIR`, which
//! `python -P -c 'import mlc_native; print(mlc_native.lib_dir())'` prints.

fn main() {
    println!("cargo:rerun-if-env-changed=MLC_NATIVE_LIB_DIR");
    if let Ok(folder) = std::env::var("MLC_NATIVE_LIB_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
    println!("cargo:rustc-link-lib=dylib=mlc_native_c");
}
