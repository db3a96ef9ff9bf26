//! Generates Rust types from the `.proto` files with protox, a protobuf compiler in Rust, so that building needs no `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = [
        "pointsman/v1/resources.proto",
        "pointsman/v1/control.proto",
        "envoy/service/discovery/v3/ads.proto",
    ];
    let files = protox::compile(files, ["proto"])?;
    prost_build::Config::new().compile_fds(files)?;
    Ok(())
}
