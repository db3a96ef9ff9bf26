//! The ServiceAccount of this process. It owns the objects that a controller creates in its own namespace, so that garbage collection removes them with the
//! installation.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Deserialize;

/// File with the token of a Pod.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Claims of a token.
#[derive(Deserialize)]
struct OwnTokenClaims {
    #[serde(rename = "kubernetes.io")]
    kubernetes: BoundObjectClaims,
}

/// Objects that a token is bound to.
#[derive(Deserialize)]
struct BoundObjectClaims {
    namespace: String,
    serviceaccount: OwnAccount,
}

#[derive(Deserialize)]
struct OwnAccount {
    name: String,
    uid: String,
}

/// Returns a reference to the ServiceAccount of this Pod, if it is in this namespace: owners of objects in other namespaces are not possible.
pub fn account(namespace: &str) -> Option<OwnerReference> {
    let token = std::fs::read_to_string(TOKEN).ok()?;
    owner(token.trim(), namespace)
}

/// Reads the ServiceAccount of a token.
fn owner(token: &str, namespace: &str) -> Option<OwnerReference> {
    let claims = token.split('.').nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    let bound = serde_json::from_slice::<OwnTokenClaims>(&claims)
        .ok()?
        .kubernetes;
    let OwnAccount { name, uid } = bound.serviceaccount;
    (bound.namespace == namespace).then(|| OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ServiceAccount".to_owned(),
        name,
        uid,
        ..OwnerReference::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_names_its_account_with_its_uid() {
        let claims = json!({"sub": "system:serviceaccount:own:controller", "kubernetes.io": {"namespace": "own", "node": {"name": "n"},
            "serviceaccount": {"name": "controller", "uid": "1-2"}}});
        let token = format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let found = owner(&token, "own").expect("an account");
        assert_eq!(
            (&*found.kind, &*found.name, &*found.uid),
            ("ServiceAccount", "controller", "1-2")
        );
        assert_eq!(owner(&token, "other"), None);
        assert_eq!(owner("opaque", "own"), None);
    }
}
