//! Fuzzes the parser of PROXY protocol headers: it never panics, more bytes do not change a final result, and enough bytes always give one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pointsman_proxy::proxy_protocol::{MAX_READ, ProxyHeaderError, read};

fuzz_target!(|bytes: &[u8]| {
    let whole = read(bytes);
    assert!(bytes.len() < MAX_READ || whole != Err(ProxyHeaderError::Incomplete));
    for end in 0..bytes.len().min(256) {
        let beginning = read(&bytes[..end]);
        assert!(beginning == Err(ProxyHeaderError::Incomplete) || beginning == whole);
    }
});
