//! What strings must look like to Kuma, in its own words.

use super::super::text::Pattern;
use crate::kuma::TargetKind;

/// What a reference refers to.
pub(super) static TARGET_KIND: Pattern = Pattern::worded(
    |text| TargetKind::find(text).is_some(),
    |text| format!("value '{text}' is not supported"),
);
