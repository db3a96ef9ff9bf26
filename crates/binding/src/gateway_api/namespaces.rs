//! Evaluates `namespaces` fields, which limit the namespaces that may attach to a listener, a Gateway or the mesh.

use pointsman_resources::gateway::{From, Namespaces};
use pointsman_resources::meta::Labels;

use crate::engine::Reader;

/// Checks whether objects in `namespace` may attach to an object in `home`. The error names the rule that forbids it.
pub(crate) fn check_allowed(
    reader: &Reader<'_>,
    choice: Option<&Namespaces>,
    default: From,
    home: &str,
    namespace: &str,
) -> Result<(), String> {
    match choice.and_then(|choice| choice.from).unwrap_or(default) {
        From::All => Ok(()),
        From::None => Err("namespaces.from is None, which allows no namespace".to_owned()),
        From::Same if namespace == home => Ok(()),
        From::Same => Err(format!(
            "namespaces.from is Same, which allows only namespace {home}, not {namespace}"
        )),
        From::Selector => {
            let selector = choice.and_then(|choice| choice.selector.as_ref());
            let selector = selector.ok_or_else(|| format!("namespaces.{NO_SELECTOR}"))?;
            match selector.matches(&reader.namespace_labels(namespace)) {
                Ok(true) => Ok(()),
                Ok(false) => Err(format!(
                    "namespaces.selector does not select the labels of namespace {namespace}"
                )),
                Err(error) => Err(format!("namespaces.selector is invalid: {error}")),
            }
        }
    }
}

const NO_SELECTOR: &str = "from is Selector, but there is no selector";

/// Returns the reason why a namespace selector allows no namespace at all, if so.
pub(crate) fn selects_none(choice: Option<&Namespaces>) -> Option<String> {
    let choice = choice.filter(|choice| choice.from == Some(From::Selector))?;
    let Some(selector) = &choice.selector else {
        return Some(NO_SELECTOR.to_owned());
    };
    let error = selector.matches(&Labels::default()).err()?;
    Some(format!("selector is invalid: {error}"))
}
