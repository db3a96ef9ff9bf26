//! The plans of a worker. A plan stays in use when the configuration changes, unless the change concerns it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use pointsman_binding::bound::Frontend;
use pointsman_routing::LookupResult;

use super::rule_plan::RulePlan;

/// The plans of a worker.
#[derive(Debug, Default)]
pub(super) struct PlanCache {
    /// Plans by the pointers to their rule and frontend. A plan keeps both alive, so a pointer is not reused.
    plans: RefCell<HashMap<(usize, usize), CachedPlan, foldhash::fast::RandomState>>,
    /// Version of the configuration at the last removal of unused plans.
    trimmed: Cell<u64>,
}

/// A plan, with the version of the last configuration that used it.
#[derive(Debug)]
struct CachedPlan {
    plan: Rc<RulePlan>,
    version: Cell<u64>,
}

impl PlanCache {
    /// Returns the plan of a rule at a frontend in this version of the configuration.
    pub(super) fn get(
        &self,
        version: u64,
        frontend: &Arc<Frontend>,
        hit: &LookupResult<'_>,
        create: impl FnOnce() -> RulePlan,
    ) -> Rc<RulePlan> {
        let key = (Arc::as_ptr(hit.rule).addr(), Arc::as_ptr(frontend).addr());
        if let Some(known) = self.plans.borrow().get(&key)
            && (known.version.get() == version || known.plan.is_current(hit))
        {
            known.version.set(version);
            return known.plan.clone();
        }
        let plan = Rc::new(create());
        let cached = CachedPlan {
            plan: plan.clone(),
            version: Cell::new(version),
        };
        self.plans.borrow_mut().insert(key, cached);
        plan
    }

    /// Removes all plans. Required when backends change, because plans have their upstreams.
    pub(super) fn clear(&self) {
        self.plans.borrow_mut().clear();
    }

    /// Removes plans that no configuration has used since the one at the last call, such as those of removed rules.
    pub(super) fn trim(&self, version: u64) {
        let trimmed = self.trimmed.replace(version);
        let mut plans = self.plans.borrow_mut();
        plans.retain(|_, cached| cached.version.get() >= trimmed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pointsman_binding::{Binder, Change};
    use pointsman_resources::Name;
    use pointsman_resources::read::ManifestReader;
    use pointsman_routing::Tables;

    use super::*;
    use crate::changed::Changed;
    use crate::metrics::Registry;
    use crate::options::Options;
    use crate::worker::{Capacity, ConfigSnapshot, Worker, WorkerShared};

    const GATEWAY: &str = "
{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: ours}, spec: {controllerName: pointsman.io/controller}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: edge, namespace: infra}, spec: {gatewayClassName: ours, listeners: [{name: a, port: 1, protocol: TCP}, {name: b, port: 2, protocol: TCP}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: infra}, spec: {ports: [{name: p, port: 80}]}}
";

    fn route(listener: &str, weight: u32) -> String {
        format!(
            "
---
{{apiVersion: gateway.networking.k8s.io/v1alpha2, kind: TCPRoute, metadata: {{name: {listener}, namespace: infra}}, spec: {{parentRefs: [{{name: edge, sectionName: {listener}}}], rules: [{{backendRefs: [{{name: web, port: 80, weight: {weight}}}]}}]}}}}"
        )
    }

    struct TestWorker {
        worker: Worker,
        binder: Binder,
        tables: Tables,
    }

    impl TestWorker {
        fn new(yaml: &str) -> Self {
            let capacity = Capacity::new(None, 100, 1);
            let shared = WorkerShared::new(Options::default(), capacity, None);
            let metrics = Registry::default().worker(0);
            let mut worker = TestWorker {
                worker: Worker::new(Arc::new(shared), metrics, 0, 1),
                binder: Binder::new(),
                tables: Tables::default(),
            };
            worker.apply(yaml);
            worker
        }

        fn apply(&mut self, yaml: &str) {
            let mut reader = ManifestReader::new();
            reader.read("test.yaml", yaml.as_bytes());
            let documents = reader.finish().documents.into_iter();
            let changes = documents.map(|document| Change::Put(document.resource));
            let delta = self.binder.apply(changes);
            self.tables.apply(&delta);
            let mut changed = Changed::default();
            changed.record(&delta);
            self.install(&changed);
        }

        fn install(&self, changed: &Changed) {
            let config = ConfigSnapshot {
                tables: self.tables.clone(),
                ..ConfigSnapshot::default()
            };
            self.worker.install(Arc::new(config), changed);
        }

        /// The plan of the route at the listener on port 1.
        fn plan(&self) -> Rc<RulePlan> {
            let snapshot = self.worker.pin_snapshot();
            let tables = &snapshot.config.tables;
            let table = tables.listener(&Name::new("infra", "edge"), 1, None);
            let table = table.expect("a listener");
            let hit = table.lookup_stream(None).expect("a rule");
            self.worker.plan(&snapshot, table.frontend(), &hit)
        }
    }

    #[test]
    fn a_plan_stays_in_use_until_its_route_or_a_backend_changes() {
        let routes = route("a", 1) + &route("b", 1);
        let mut worker = TestWorker::new(&format!("{GATEWAY}{routes}"));
        let first = worker.plan();
        worker.apply(&route("b", 2));
        assert!(Rc::ptr_eq(&worker.plan(), &first), "another route");
        worker.apply(&route("a", 2));
        let second = worker.plan();
        assert!(!Rc::ptr_eq(&second, &first), "its own route");
        let backends = worker.tables.backends().map(|backend| backend.id.clone());
        worker.install(&Changed {
            backends: backends.collect::<BTreeSet<_>>(),
            ..Changed::default()
        });
        assert!(!Rc::ptr_eq(&worker.plan(), &second), "a backend");
    }

    #[test]
    fn plans_that_are_no_longer_used_are_removed() {
        let worker = TestWorker::new(&format!("{GATEWAY}{}", route("a", 1)));
        let plan = worker.plan();
        let trim = || {
            let version = worker.worker.pin_snapshot().version;
            worker.worker.plans.trim(version);
        };
        for _ in 0..3 {
            worker.install(&Changed::default());
            trim();
            worker.plan();
        }
        assert_eq!(Rc::strong_count(&plan), 2, "used with each configuration");
        worker.install(&Changed::default());
        trim();
        trim();
        assert_eq!(Rc::strong_count(&plan), 1);
    }
}
