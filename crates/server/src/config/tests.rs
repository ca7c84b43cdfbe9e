use super::*;

fn example(name: &str) -> Result<Loaded, Report> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    load(&folder.join(name))
}

#[test]
fn the_quickstart_configuration_loads() {
    let loaded = quickstart().unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(loaded.config.policies.len(), 1);
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
}

#[test]
fn the_examples_load() {
    for name in ["full.yaml", "gateway.yaml", "quickstart.yaml"] {
        let loaded = example(name).unwrap_or_else(|report| panic!("{report}"));
        assert!(loaded.config.gateway.is_some());
        eprintln!("{}", loaded.warnings);
    }
}
