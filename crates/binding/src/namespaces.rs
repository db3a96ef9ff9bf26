//! Trust by namespace: which namespaces a listener, a Gateway or the mesh lets in.

use pointsman_resources::gateway::{From, Namespaces};

use crate::store::Reader;

/// Whether objects of `namespace` are let in by something that lives in `home`. `Err` says which rule refused.
pub(crate) fn check_allowed(
    reader: &Reader<'_>,
    choice: Option<&Namespaces>,
    default: From,
    home: &str,
    namespace: &str,
) -> Result<(), String> {
    match choice.and_then(|choice| choice.from).unwrap_or(default) {
        From::All => Ok(()),
        From::None => Err("namespaces.from is None".to_owned()),
        From::Same if namespace == home => Ok(()),
        From::Same => Err(format!(
            "namespaces.from is Same, so only namespace {home} is let in, not {namespace}"
        )),
        From::Selector => {
            let Some(selector) = choice.and_then(|choice| choice.selector.as_ref()) else {
                return Err("namespaces.from is Selector, but there is no selector".to_owned());
            };
            match selector.matches(&reader.namespace_labels(namespace)) {
                Ok(true) => Ok(()),
                Ok(false) => Err(format!(
                    "namespaces.selector does not select the labels of namespace {namespace}"
                )),
                Err(wrong) => Err(format!("namespaces.selector is invalid: {wrong}")),
            }
        }
    }
}
