//! Benchmarks of reading, forwarding and framing HTTP/1 messages.

#![allow(missing_docs, reason = "the macros write functions without")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pointsman_proxy::http1::*;

/// A browser's request with ten fields.
const REQUEST: &[u8] = b"GET /api/v2/items/4711?expand=owner&limit=20 HTTP/1.1\r\n\
Host: shop.example.com\r\n\
Connection: keep-alive\r\n\
User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
Accept-Encoding: gzip, deflate, br, zstd\r\n\
Accept-Language: en-GB,en;q=0.9\r\n\
Referer: https://shop.example.com/\r\n\
Cookie: session=8c1f6a0b2e9d4c57; theme=dark\r\n\
Cache-Control: no-cache\r\n\
X-Request-Id: 0f8fad5b-d9cb-469f-a165-70867728950e\r\n\r\n";

/// A load generator's request.
const SMALL: &[u8] =
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: load\r\nAccept: */*\r\n\r\n";

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
Date: Mon, 01 Jan 2024 00:00:00 GMT\r\n\
Content-Type: application/json\r\n\
Content-Length: 13\r\n\
Cache-Control: max-age=60\r\n\
Server: backend\r\n\r\n";

fn heads(c: &mut Criterion) {
    let limits = Limits::default();
    let mut group = c.benchmark_group("head");
    for (name, bytes) in [("read, 10 fields", REQUEST), ("read, 3 fields", SMALL)] {
        let mut head = RequestHead::new();
        group.bench_function(name, |b| b.iter(|| head.parse(black_box(bytes), &limits)));
    }
    group.bench_function("read, 10 fields, httparse alone", |b| {
        b.iter(|| {
            let mut room = [const { std::mem::MaybeUninit::uninit() }; 100];
            let mut request = httparse::Request::new(&mut []);
            let length = request.parse_with_uninit_headers(black_box(REQUEST), &mut room);
            (length.is_ok(), black_box(&request).headers.len())
        });
    });
    let mut response = ResponseHead::new();
    group.bench_function("read a response, 5 fields", |b| {
        b.iter(|| response.parse(black_box(RESPONSE), ResponseContext::default(), &limits));
    });

    let mut head = RequestHead::new();
    head.parse(REQUEST, &limits).expect("it is valid");
    let request = head.view(REQUEST);
    let mut out = Vec::with_capacity(4096);
    group.bench_function("write, 10 fields, each by itself", |b| {
        b.iter(|| {
            out.clear();
            let mut writer = HeadWriter::request(
                &mut out,
                b"GET",
                request.target().as_bytes(),
                Version::Http11,
            )?;
            writer.field(b"host", b"shop.example.com")?;
            writer.fields(request.fields().forwarded())?;
            Encoder::request(Framing::None).announce(&mut writer);
            Ok::<_, WriteError>(writer.finish())
        });
    });
    group.bench_function("write, 10 fields, copied", |b| {
        b.iter(|| {
            out.clear();
            let mut writer = HeadWriter::request(
                &mut out,
                b"GET",
                request.target().as_bytes(),
                Version::Http11,
            )?;
            writer.field(b"host", b"shop.example.com")?;
            writer.forward(&request.fields(), |_| true);
            writer.field(b"x-forwarded-for", b"192.0.2.1")?;
            Encoder::request(Framing::None).announce(&mut writer);
            Ok::<_, WriteError>(writer.finish())
        });
    });
    group.finish();
}

fn decode(body: &[u8]) -> u64 {
    let mut decoder = BodyDecoder::new(Framing::Chunked, &Limits::default());
    let mut rest = body;
    loop {
        match decoder.decode(rest) {
            Ok(Decoded::Data(range)) => rest = &rest[range.end..],
            _ => return decoder.received(),
        }
    }
}

fn bodies(c: &mut Criterion) {
    let mut group = c.benchmark_group("chunked");
    for size in [64, 4096] {
        let mut body = Vec::new();
        let mut encoder = Encoder::request(Framing::Chunked);
        for _ in 0..64 * 1024 / size {
            encoder
                .data(&vec![b'x'; size], &mut body)
                .expect("chunks have no end");
        }
        encoder.end([], &mut body).expect("there are no trailers");
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(format!("read 64 KiB in chunks of {size}"), |b| {
            b.iter(|| decode(black_box(&body)))
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(30);
    targets = heads, bodies
}
criterion_main!(benches);
