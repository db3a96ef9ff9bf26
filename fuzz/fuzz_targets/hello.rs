//! Fuzzes the ClientHello parser: it never panics, more bytes do not change a final result, and server names are normalized.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pointsman_proxy::tls::client_hello::{HelloError, read};

fuzz_target!(|bytes: &[u8]| {
    let whole = read(bytes);
    for end in 0..bytes.len().min(256) {
        let beginning = read(&bytes[..end]);
        assert!(beginning == Err(HelloError::Incomplete) || beginning == whole);
    }
    if let Ok(hello) = whole
        && let Some(name) = hello.server_name
    {
        assert!(!name.is_empty() && !name.ends_with('.') && name == name.to_ascii_lowercase());
    }
});
