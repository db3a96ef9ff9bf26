//! A client that records its requests as the permissions that they need, and answers some of them itself, so that a controller makes the requests that follow.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use kube::{Client, Config};
use serde_json::json;

/// API group, resource with subresource, and verb.
pub type Permission = (String, String, String);

/// The requests so far.
#[derive(Default)]
pub struct Recorder {
    /// Permissions that were used.
    used: Mutex<BTreeSet<Permission>>,
    /// Requests that the API server denied, with the permission that each needs.
    denied: Mutex<BTreeSet<(Option<Permission>, String)>>,
    /// Permissions whose first use was answered here.
    answered: Mutex<BTreeSet<Permission>>,
}

impl Recorder {
    /// Creates a client whose requests are recorded. The first status of each kind is in conflict with another writer, and no list of objects is streamed at the first attempt.
    pub fn client(self: &Arc<Self>, config: Config) -> Client {
        let namespace = config.default_namespace.clone();
        let client = Client::try_from(config).expect("a client");
        let recorder = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, recorder) = (client.clone(), recorder.clone());
            async move { recorder.send(&client, request).await }
        });
        Client::new(service, namespace)
    }

    /// Returns the permissions that were used.
    pub fn used(&self) -> BTreeSet<Permission> {
        self.used.lock().expect("not poisoned").clone()
    }

    /// Returns the requests that were denied, with the permission that each needs.
    pub fn denied(&self) -> BTreeSet<(Option<Permission>, String)> {
        self.denied.lock().expect("not poisoned").clone()
    }

    async fn send(&self, client: &Client, request: Request<Body>) -> kube::Result<Response<Body>> {
        let permission = permission(request.method(), request.uri());
        if let Some(code) = self.own_answer(&request, permission.as_ref()) {
            return Ok(failure(code));
        }
        let text = format!("{} {}", request.method(), request.uri());
        let response = client.send(request).await?;
        let status = response.status().as_u16();
        if status == 403 {
            return self.denial((permission, text), response).await;
        }
        if let Some(permission) = permission {
            let mut used = self.used.lock().expect("not poisoned");
            if status == 201 {
                // An apply request that creates the object needs both.
                let (group, resource, _) = permission.clone();
                used.insert((group, resource, "create".to_owned()));
            }
            used.insert(permission);
        }
        Ok(response)
    }

    /// Records a request for which a permission is missing. Namespaces that are being deleted deny requests too.
    async fn denial(
        &self,
        request: (Option<Permission>, String),
        response: Response<Body>,
    ) -> kube::Result<Response<Body>> {
        let (head, body) = response.into_parts();
        let body = body.collect_bytes().await?;
        if String::from_utf8_lossy(&body).contains(" cannot ") {
            self.denied.lock().expect("not poisoned").insert(request);
        }
        Ok(Response::from_parts(head, Body::from(body)))
    }

    /// Returns the status with which a request is answered without the API server.
    fn own_answer(&self, request: &Request<Body>, permission: Option<&Permission>) -> Option<u16> {
        let permission = permission?;
        let query = request.uri().query().unwrap_or_default();
        let code = match &*permission.2 {
            "patch" if permission.1.ends_with("/status") => 409,
            "watch" if query.contains("sendInitialEvents") => 422,
            _ => return None,
        };
        let mut answered = self.answered.lock().expect("not poisoned");
        answered.insert(permission.clone()).then_some(code)
    }
}

fn failure(code: u16) -> Response<Body> {
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "message": "answered by the test", "reason": "Test"});
    let response = Response::builder().status(code);
    let body = Body::from(status.to_string().into_bytes());
    response.body(body).expect("it is valid")
}

/// Returns the permission that a request needs; `None` if it is for no resource.
fn permission(method: &Method, uri: &http::Uri) -> Option<Permission> {
    let mut path = uri.path().trim_matches('/').split('/');
    let group = match path.next()? {
        "api" => "",
        "apis" => path.next()?,
        _ => return None,
    };
    path.next()?;
    let rest: Vec<&str> = path.collect();
    let rest = match &rest[..] {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        rest => rest,
    };
    let resource = match rest {
        [resource] | [resource, _] => (*resource).to_owned(),
        [resource, _, subresource] => format!("{resource}/{subresource}"),
        _ => return None,
    };
    let is_watch = uri
        .query()
        .is_some_and(|query| query.contains("watch=true"));
    let verb = match (method, rest.len()) {
        (&Method::GET, 1) if is_watch => "watch",
        (&Method::GET, 1) => "list",
        (&Method::GET, _) => "get",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, 1) => "deletecollection",
        (&Method::DELETE, _) => "delete",
        _ => return None,
    };
    Some((group.to_owned(), resource, verb.to_owned()))
}
