//! What to try: each line for a person with curl, what it does without one, and what must come of it.

use std::path::Path;

use anyhow::Result;

use super::client::{self, DemoResponse};
use super::{DemoAddresses, POD};
use crate::output::{Paint, Style, print};

/// What all of it is.
const SHOP: &str = "A shop with a canary, a beta, a redirect, a gRPC service and a mesh";

/// One thing to try.
struct Example {
    /// What it shows.
    shows: &'static str,
    /// What to type.
    line: String,
}

fn examples(addresses: &DemoAddresses) -> Vec<Example> {
    let port = addresses.front.port();
    let shop = format!("http://shop.localhost:{port}");
    let table = [
        ("a page", format!("curl {shop}/")),
        (
            "who says `x-beta: yes` gets the beta",
            format!("curl -i -H 'x-beta: yes' {shop}/"),
        ),
        (
            "a canary: one call in ten, exactly",
            format!("for i in 0 1 2 3 4 5 6 7 8 9; do curl -s {shop}/cart | head -1; done"),
        ),
        (
            "an address that has moved",
            format!("curl -i {shop}/basket/7"),
        ),
        (
            "gRPC: the catalog repeats what it hears",
            format!(
                "printf '\\0\\0\\0\\0\\5hello' | curl -s --http2-prior-knowledge -H 'content-type: application/grpc' -H 'te: trailers' --data-binary @- http://catalog.localhost:{port}/shop.v1.Catalog/Say | tail -c 5"
            ),
        ),
        (
            "the mesh: everyone's calls to the cart",
            format!("curl http://{}/", addresses.mesh),
        ),
        (
            "the mesh: calls from namespace checkout take its own route",
            format!("curl --interface {POD} http://{}/", addresses.mesh),
        ),
        (
            "no route: the response says so",
            format!("curl -i http://nobody.localhost:{port}/"),
        ),
    ];
    table
        .into_iter()
        .map(|(shows, line)| Example { shows, line })
        .collect()
}

/// What a person reads when the demo starts.
pub fn page(addresses: &DemoAddresses, folder: &Path) -> String {
    let paint = Paint::new();
    let shop = paint.paint(Style::Strong, SHOP);
    let mut text = format!("{shop} is running. Try, in another terminal:\n");
    for Example { shows, line } in examples(addresses) {
        text.push_str(&format!(
            "\n  {}\n  {}\n",
            paint.paint(Style::Faint, &format!("# {shows}")),
            paint.paint(Style::Strong, &line)
        ));
    }
    text.push_str(&format!(
        "\nEdit a manifest in {} and call again: it is in effect at once.\nEverything at a glance: {}\nTo end: Ctrl-C\n",
        paint.paint(Style::Strong, &folder.display().to_string()),
        paint.paint(Style::Strong, &format!("http://{}/", addresses.admin))
    ));
    text
}

/// Tries each line as a client of its own and shows what came. Whether all was as it must be.
pub async fn run(addresses: &DemoAddresses) -> Result<bool> {
    let paint = Paint::new();
    let mut succeeded = true;
    let shop = paint.paint(Style::Strong, SHOP);
    print(&format!(
        "{shop}. Each line is tried here; without --once it goes on, for you to try.\n\n"
    ))?;
    for (number, Example { shows, line }) in examples(addresses).into_iter().enumerate() {
        let heading = paint.paint(Style::Faint, &format!("# {shows}"));
        let line = paint.paint(Style::Strong, &format!("$ {line}"));
        print(&format!("{heading}\n{line}\n"))?;
        let (shown, wrong) = match one(number, addresses).await {
            Ok((shown, wrong)) => (shown, wrong),
            Err(error) => (String::new(), Some(format!("{error:#}"))),
        };
        print(&format!("{}\n", shown.trim_end()))?;
        if let Some(wrong) = wrong {
            succeeded = false;
            print(&format!(
                "{}\n",
                paint.paint(Style::Bad, &format!("✗ {wrong}"))
            ))?;
        }
        print("\n")?;
    }
    let end = match succeeded {
        true => paint.paint(Style::Good, "all is as it should be"),
        false => paint.paint(Style::Bad, "something is not as it should be"),
    };
    print(&format!("{end}\n"))?;
    Ok(succeeded)
}

/// What came of a line, and what is wrong with it.
async fn one(number: usize, addresses: &DemoAddresses) -> Result<(String, Option<String>)> {
    let shop = |target: &str| {
        client::get(
            addresses.front,
            &format!("shop.localhost:{}", addresses.front.port()),
            target,
        )
    };
    let inside = || client::get(addresses.mesh, &addresses.mesh.to_string(), "/");
    Ok(match number {
        0 => from(&shop("/").send().await?, "web"),
        1 => {
            let response = shop("/").header("x-beta", "yes").send().await?;
            let (_, wrong) = from(&response, "web-beta");
            let edition = expect("x-edition", response.header("x-edition"), "beta");
            (with_head(&response), wrong.or(edition))
        }
        2 => canary(&shop).await?,
        3 => {
            let response = shop("/basket/7").send().await?;
            let wanted = format!("http://shop.localhost:{}/cart/7", addresses.front.port());
            let wrong = expect("the status", Some(&response.status.to_string()), "301");
            (
                with_head(&response),
                wrong.or(expect("location", response.header("location"), &wanted)),
            )
        }
        4 => {
            let host = format!("catalog.localhost:{}", addresses.front.port());
            let response =
                client::call(addresses.front, &host, "shop.v1.Catalog/Say", "hello").await?;
            let wrong = expect("grpc-status", response.header("grpc-status"), "0");
            (
                response.body.clone(),
                wrong.or(expect("the message", Some(&response.body), "hello")),
            )
        }
        5 => from(&inside().send().await?, "cart"),
        6 => from(&inside().from(POD).send().await?, "cart-v2"),
        _ => {
            let host = format!("nobody.localhost:{}", addresses.front.port());
            let response = client::get(addresses.front, &host, "/").send().await?;
            (
                with_head(&response),
                expect("the status", Some(&response.status.to_string()), "404"),
            )
        }
    })
}

/// Ten calls of which one goes to the new version.
async fn canary(shop: &impl Fn(&str) -> client::Get) -> Result<(String, Option<String>)> {
    let (mut shown, mut new) = (String::new(), 0);
    for _ in 0..10 {
        let response = shop("/cart").send().await?;
        if let (_, Some(wrong)) = from(&response, "cart")
            && response.header("x-backend") != Some("cart-v2")
        {
            return Ok((shown, Some(wrong)));
        }
        new += usize::from(response.header("x-backend") == Some("cart-v2"));
        shown.push_str(&format!(
            "{}\n",
            response.body.lines().next().unwrap_or_default()
        ));
    }
    Ok((
        shown,
        expect("calls to cart-v2", Some(&new.to_string()), "1"),
    ))
}

/// The body, which must be from that backend.
fn from(response: &DemoResponse, backend: &str) -> (String, Option<String>) {
    (
        response.body.clone(),
        expect("the backend", response.header("x-backend"), backend),
    )
}

/// As `curl -i` shows it.
fn with_head(response: &DemoResponse) -> String {
    let mut text = format!("HTTP/1.1 {} {}\n", response.status, response.reason);
    for (name, value) in &response.headers {
        text.push_str(&format!("{name}: {value}\n"));
    }
    text + "\n" + &response.body
}

fn expect(what: &str, got: Option<&str>, wanted: &str) -> Option<String> {
    let got = got.unwrap_or("nothing");
    (got != wanted).then(|| format!("{what}: wanted {wanted}, got {got}"))
}
