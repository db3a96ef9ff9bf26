//! Tests of requests and responses between all combinations of versions.

use bytes::Bytes;
use http::{Request, Response};
use pointsman_proxy::Limits;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::*;

async fn echo_proxy(protocol: EndpointProtocol) -> TestProxy {
    let endpoint = match protocol {
        EndpointProtocol::Http1 => http1_endpoint().await,
        EndpointProtocol::Http2 => http2_endpoint(echo).await,
    };
    test_proxy(Limits::default(), protocol, &[endpoint])
}

#[tokio::test]
async fn a_request_over_http2_reaches_endpoints_of_either_version() {
    for protocol in [EndpointProtocol::Http1, EndpointProtocol::Http2] {
        let proxy = echo_proxy(protocol).await;
        let mut client = client(proxy.address).await;
        let mut request = get("/a?b=c");
        request.headers_mut().insert("x-mine", "1".parse().unwrap());
        request
            .headers_mut()
            .append("cookie", "a=1".parse().unwrap());
        request
            .headers_mut()
            .append("cookie", "b=2".parse().unwrap());
        let response = fetch(&mut client, request).await;
        assert_eq!(response.status, 200);
        assert_eq!(response.header("x-kind"), Some("mirror"));
        let seen = response.text();
        let first = match protocol {
            EndpointProtocol::Http1 => "get /a?b=c http/1.1",
            EndpointProtocol::Http2 => "GET http://shop.example/a?b=c",
        };
        assert!(seen.starts_with(first), "{seen}");
        for line in [
            "x-mine: 1",
            "cookie: a=1; b=2",
            "x-forwarded-proto: http",
            "x-forwarded-host: shop.example",
        ] {
            assert!(seen.contains(line), "{line} in {seen}");
        }
        assert!(!seen.contains("transfer-encoding"), "{seen}");
        assert!(response.header("date").is_some());
    }
}

#[tokio::test]
async fn bodies_of_any_size_are_forwarded_in_both_directions() {
    for protocol in [EndpointProtocol::Http1, EndpointProtocol::Http2] {
        let proxy = echo_proxy(protocol).await;
        let mut client = client(proxy.address).await;
        for size in [1, 5_000, 70_000, 1_000_000] {
            let body = vec![b'x'; size];
            let mut request = post("/");
            let length = size.to_string().parse().unwrap();
            request.headers_mut().insert("content-length", length);
            let response = send_request(&mut client, request, &body, None)
                .await
                .unwrap();
            assert_eq!(response.status, 200);
            assert!(response.body.ends_with(&body), "{size} to {protocol:?}");
            let events = format!("content-length: {size}");
            assert!(
                String::from_utf8_lossy(&response.body[..600.min(response.body.len())])
                    .contains(&events)
            );
        }
        // Without a Content-Length.
        let response = send_request(&mut client, post("/"), b"some bytes", None)
            .await
            .unwrap();
        assert!(response.text().contains("some bytes"));
    }
}

#[tokio::test]
async fn trailers_are_forwarded_over_http2_and_from_http1_endpoints() {
    let proxy = echo_proxy(EndpointProtocol::Http2).await;
    let mut sender = client(proxy.address).await;
    let sum = trailers("x-sum", "7");
    let response = send_request(&mut sender, post("/"), b"body", Some(sum.clone()))
        .await
        .unwrap();
    assert!(response.text().ends_with("body"));
    assert_eq!(response.trailers.unwrap(), sum);
    let proxy = self::test_proxy(
        Limits::default(),
        EndpointProtocol::Http1,
        &[canned_endpoint(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nx-sum: 9\r\n\r\n").await],
    );
    let mut sender = client(proxy.address).await;
    let response = fetch(&mut sender, get("/")).await;
    assert_eq!(response.text(), "body");
    assert_eq!(response.trailers.unwrap(), trailers("x-sum", "9"));
}

/// RFC 9112 §7.1.2: "A recipient that removes the chunked coding from a message MAY selectively retain or discard the received trailer fields."
#[tokio::test]
async fn trailers_of_a_request_never_reach_an_endpoint_of_http1() {
    let proxy = echo_proxy(EndpointProtocol::Http1).await;
    let mut sender = client(proxy.address).await;
    let sum = trailers("x-sum", "7");
    let response = send_request(&mut sender, post("/"), b"body", Some(sum))
        .await
        .unwrap();
    let text = response.text();
    assert!(text.ends_with("4\r\nbody\r\n0\r\n\r\n"), "{text}");

    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    let request = b"POST / HTTP/1.1\r\nhost: shop.example\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n1: /shut/smuggled HTTP/1.1\r\nX-User: admin\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut bytes = Vec::new();
    let end = within_deadline(
        "a response",
        read_until(&mut stream, &mut bytes, b"body\r\n0\r\n\r\n"),
    )
    .await;
    assert!(end.is_some(), "{}", bytes.escape_ascii());
}

#[tokio::test]
async fn a_client_of_http1_reaches_an_endpoint_of_http2() {
    let proxy = echo_proxy(EndpointProtocol::Http2).await;
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    let request = b"POST /up HTTP/1.1\r\nhost: shop.example\r\ntransfer-encoding: chunked\r\nconnection: x-mine\r\nx-mine: 1\r\n\r\n4\r\nbody\r\n0\r\nx-sum: 7\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut bytes = Vec::new();
    let end = within_deadline(
        "a response",
        read_until(&mut stream, &mut bytes, b"x-sum: 7\r\n\r\n"),
    )
    .await;
    let response = String::from_utf8(bytes[..end.unwrap()].to_vec()).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(
        response.contains("POST http://shop.example/up"),
        "{response}"
    );
    assert!(
        response.contains("transfer-encoding: chunked"),
        "{response}"
    );
    assert!(!response.contains("x-mine"), "{response}");
    // A second request on the connection, with an empty body.
    stream
        .write_all(b"GET /empty HTTP/1.1\r\nhost: shop.example\r\n\r\n")
        .await
        .unwrap();
    let mut bytes = Vec::new();
    let end = within_deadline(
        "a response",
        read_until(&mut stream, &mut bytes, b"0\r\n\r\n"),
    )
    .await;
    assert!(end.is_some());
    assert!(String::from_utf8_lossy(&bytes).contains("GET http://shop.example/empty"));
}

#[tokio::test]
async fn responses_without_bodies_have_the_right_length() {
    let endpoint = http2_endpoint(|request, mut respond| async move {
        let status = request.uri().path()[1..].parse::<u16>().unwrap();
        let response = Response::builder().status(status);
        let response = match status {
            200 | 304 => response.header("content-length", "5"),
            _ => response,
        };
        let _ = respond.send_response(response.body(()).unwrap(), true);
    })
    .await;
    let proxy = test_proxy(Limits::default(), EndpointProtocol::Http2, &[endpoint]);
    let mut sender = client(proxy.address).await;
    let head = Request::head("http://shop.example/200").body(()).unwrap();
    let response = fetch(&mut sender, head).await;
    assert_eq!(
        (response.status, response.header("content-length")),
        (200, Some("5"))
    );
    let response = fetch(&mut sender, get("/304")).await;
    assert_eq!((response.status, response.body.len()), (304, 0));
    let response = fetch(&mut sender, get("/204")).await;
    assert_eq!(
        (response.status, response.header("content-length")),
        (204, None)
    );
    // To HTTP/1, a body known to be empty has a Content-Length.
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    stream
        .write_all(b"GET /201 HTTP/1.1\r\nhost: shop.example\r\n\r\n")
        .await
        .unwrap();
    let mut bytes = Vec::new();
    within_deadline("a head", read_until(&mut stream, &mut bytes, b"\r\n\r\n"))
        .await
        .unwrap();
    let head = String::from_utf8(bytes).unwrap();
    assert!(head.contains("content-length: 0\r\n"), "{head}");
}

#[tokio::test]
async fn interim_responses_are_forwarded() {
    let endpoint = canned_endpoint(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let proxy = test_proxy(Limits::default(), EndpointProtocol::Http1, &[endpoint]);
    let mut sender = client(proxy.address).await;
    let (mut response, _) = sender.send_request(get("/"), true).unwrap();
    let interim = std::future::poll_fn(|cx| response.poll_informational(cx));
    let interim = within_deadline("an interim response", interim)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (interim.status().as_u16(), &interim.headers()["link"]),
        (103, &"</a>".parse().unwrap())
    );
    let response = within_deadline("a response", response).await.unwrap();
    assert_eq!(read_response(response).await.unwrap().text(), "ok");
}

#[tokio::test]
async fn a_grpc_call_streams_in_both_directions_at_once() {
    // Each message gets a response before the next one is sent; the status follows the last one.
    let endpoint = http2_endpoint(|request, mut respond| async move {
        assert_eq!(request.headers()["te"], "trailers");
        let response = Response::builder().header("content-type", "application/grpc");
        let mut sink = respond
            .send_response(response.body(()).unwrap(), false)
            .unwrap();
        let mut stream = request.into_body();
        while let Some(Ok(piece)) = stream.data().await {
            let _ = stream.flow_control().release_capacity(piece.len());
            let _ = send_all(&mut sink, &piece).await;
        }
        let _ = sink.send_trailers(trailers("grpc-status", "0"));
    })
    .await;
    let proxy = test_proxy(Limits::default(), EndpointProtocol::Http2, &[endpoint]);
    let mut sender = client(proxy.address).await;
    let mut request = post("/shop.Cart/Watch");
    request
        .headers_mut()
        .insert("content-type", "application/grpc".parse().unwrap());
    request
        .headers_mut()
        .insert("te", "trailers".parse().unwrap());
    let (response, mut sink) = sender.send_request(request, false).unwrap();
    let response = within_deadline("a head", response).await.unwrap();
    let mut stream = response.into_body();
    for message in 0..20u8 {
        sink.send_data(Bytes::from(vec![message; 100]), false)
            .unwrap();
        let mut got = Vec::new();
        while got.len() < 100 {
            let piece = within_deadline("a message", stream.data())
                .await
                .unwrap()
                .unwrap();
            let _ = stream.flow_control().release_capacity(piece.len());
            got.extend(piece);
        }
        assert_eq!(got, vec![message; 100]);
    }
    sink.send_data(Bytes::new(), true).unwrap();
    assert!(within_deadline("the end", stream.data()).await.is_none());
    let status = within_deadline("trailers", stream.trailers())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(status, trailers("grpc-status", "0"));
}

#[tokio::test]
async fn a_local_reply_to_grpc_has_its_status_in_the_headers() {
    let proxy = test_proxy(Limits::default(), EndpointProtocol::Http2, &[]);
    let mut sender = client(proxy.address).await;
    let mut request = post("/shop.Cart/Get");
    request
        .headers_mut()
        .insert("content-type", "application/grpc".parse().unwrap());
    let (response, _sink) = sender.send_request(request, false).unwrap();
    let response = within_deadline("a head", response).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["grpc-status"], "14");
    assert_eq!(response.headers()["x-pointsman-reason"], "NoEndpoints");
    assert!(response.body().is_end_stream());
}

#[tokio::test]
async fn concurrent_requests_share_few_connections() {
    let proxy = echo_proxy(EndpointProtocol::Http2).await;
    let sender = client(proxy.address).await;
    let requests: Vec<_> = (0..100)
        .map(|at| {
            let mut sender = sender.clone();
            tokio::spawn(async move { fetch(&mut sender, get(&format!("/{at}"))).await.status })
        })
        .collect();
    for request in requests {
        assert_eq!(within_deadline("a response", request).await.unwrap(), 200);
    }
    let metrics = proxy.proxy.metrics().render();
    let connects = metrics
        .lines()
        .find(|line| line.contains("connects_total{") && !line.contains("failed"));
    assert!(
        connects.is_some_and(|line| line.ends_with(" 1")),
        "{connects:?}"
    );
}
